use super::*;

const LANE: LaneId = LaneId::new(0);
const DEAD: u64 = 7;
const LIVING: u64 = 8;

fn table() -> Holds {
    let reach = Words::reserve(1).unwrap();
    Holds { entries: Words::reserve(4).unwrap(), reach, lately: Lately::new() }
}

fn agent(number: u64) -> AgentHash {
    AgentHash::from_bits(number)
}

/// What the exchange of an operation leaves in a word.
fn exchanged(holds: &Holds, word: LaneWord, operation: Operation) -> LaneWord {
    holds.confirm(word);
    held::marked(word, operation.mark())
}

fn releases(holds: &Holds, of: u64, process: u64) -> Operation {
    match holds.begin_release(0, agent(of), LANE, None, 1, process) {
        Begun::Operation(operation) => operation,
        other => panic!("{other:?}"),
    }
}

/// The first entry has been used by agent 1, whose word still says so. Agent 2 then takes a slot by it, after
/// `denials` and before `refusals`; its process dies when it has begun to give the slot back, and agent 1's word is
/// replaced. Returns whether agent 2 still has its slot.
fn keeps_its_slot(denials: usize, refusals: usize) -> bool {
    let (holds, fresh) = (table(), LaneWord::default());
    let taken = holds.begin(agent(1), LANE, 1, LIVING).unwrap();
    let word = exchanged(&holds, fresh, taken);
    holds.opened(taken);
    let given_back = releases(&holds, 1, LIVING);
    let old = exchanged(&holds, word, given_back);
    holds.released(given_back, 1);
    for _ in 0..denials {
        let denied = holds.begin(agent(3), LANE, 1, LIVING).unwrap();
        assert_eq!(denied.number, 0);
        holds.freed(denied);
    }
    let taken = holds.begin(agent(2), LANE, 1, DEAD).unwrap();
    let word = exchanged(&holds, fresh, taken);
    holds.opened(taken);
    for _ in 0..refusals {
        holds.reopened(releases(&holds, 2, LIVING));
    }
    holds.set_releasing(&releases(&holds, 2, DEAD), 1);
    holds.confirm(old);
    let remains = holds.take_over(0, LIVING, |process| process == DEAD).unwrap();
    assert!(holds.judge(&remains, || Some(word)).is_none());
    holds.state(0).phase() == OPEN
}

/// Each denial used up a generation of the entry. After 2,046 of them the entry had a mark again that another agent's
/// word still had. When that word changed, an operation counted as done whose process had died before it: its slot was
/// lost for good.
#[test]
fn denials_use_up_no_generation() {
    for denials in [0, 2_045, 2_046, 2_047, 3_000, 4_093] {
        assert!(keeps_its_slot(denials, 0), "{denials}");
    }
}

/// The same of calls that give back more than the agent holds.
#[test]
fn refused_releases_use_up_no_generation() {
    for refusals in [0, 2_045, 2_046, 2_047, 3_000, 4_093] {
        assert!(keeps_its_slot(0, refusals), "{refusals}");
    }
}

/// A denied operation and the next one have the same mark; whoever judges the next finds what that one did.
#[test]
fn an_operation_after_a_denial_is_judged_by_its_own_exchange() {
    for is_exchanged in [false, true] {
        let (holds, fresh) = (table(), LaneWord::default());
        let denied = holds.begin(agent(1), LANE, 1, DEAD).unwrap();
        holds.freed(denied);
        let operation = holds.begin(agent(1), LANE, 1, DEAD).unwrap();
        assert_eq!(operation.mark(), denied.mark());
        let word = if is_exchanged { exchanged(&holds, fresh, operation) } else { fresh };
        let remains = holds.take_over(0, LIVING, |process| process == DEAD).unwrap();
        assert_eq!(holds.judge(&remains, || Some(word)).is_some(), is_exchanged);
    }
}
