//! The table alone: which slots each agent gets, and what it finds in them.

use super::slot::*;
use super::*;
use crate::lane::LaneWord;
use crate::policy::{Kind, LaneId};

const LANE: LaneId = LaneId::new(1);
const OTHER_LANE: LaneId = LaneId::new(2);

fn at(nanos: u64) -> Tick {
    Tick::from_nanos(nanos)
}

/// Agents of one shade have the same low bits.
fn hash(low_bits: u64, rest: u64) -> AgentHash {
    AgentHash::from_bits(rest << 16 | low_bits)
}

fn entry(hash: AgentHash, lane: LaneId) -> Entry {
    Entry {
        hash,
        lane,
        plan: None,
        left: 3,
        token: 5,
        worth: 15,
        place: 100,
        position: 7,
        generation: 9,
        expires: at(10),
        is_charged: true,
    }
}

/// Opens a slot at instant 0 with this entry, and returns its id.
fn open(table: &Reservations, entry: Entry) -> u64 {
    let held = table.take(entry.hash, Tick::ZERO).expect("a free slot");
    assert!(held.announce(entry.hash, entry.lane, entry.worth, Tick::ZERO));
    let id = held.id();
    held.keep(entry);
    id
}

/// What the slot of an id holds at instant 0, if it is open.
fn found(table: &Reservations, id: u64) -> Option<Entry> {
    let held = table.find(id, Tick::ZERO).ok()?;
    let entry = held.entry();
    held.keep(entry);
    Some(entry)
}

#[test]
fn homes_are_spread_over_the_table_and_slots_follow_them_around_its_end() {
    let table = Reservations::new(10_000, 3, false);
    assert_eq!((table.len(), table.per_agent()), (10_000, 3));
    for (low_bits, home) in [(0, 0), (1, 2), (3, 7), (2_048, 5_000), (4_095, 9_997), (4_096, 0), (65_535, 9_997)] {
        for (offset, beyond) in [(0, 0), (1, 1), (4, 4), (9_999, 9_999)] {
            assert_eq!(table.index(hash(low_bits, 5), offset), (home + beyond) % 10_000, "{low_bits}, {offset}");
        }
    }
}

#[test]
fn a_shade_knows_of_its_own_reservations_alone() {
    let table = Reservations::new(8, 1, false);
    let id = open(&table, entry(hash(1, 5), LANE));
    let shades = [1, 4_097, 0, 2, 16, 4_095].map(|low_bits| table.may_have(low_bits));
    assert_eq!(shades, [true, true, false, false, false, false]);
    table.find(id, Tick::ZERO).expect("it is open").close(hash(1, 5));
    assert!(!table.may_have(1));
}

#[test]
fn what_was_kept_is_found_as_it_was() {
    let table = Reservations::new(2, 2, false);
    let wide = Entry {
        hash: AgentHash::from_bits(u64::MAX),
        lane: LaneId::new(crate::bounds::LANES_MAX as u32 - 1),
        plan: Some(crate::PlanId::new(crate::bounds::PLANS_MAX as u16 - 1)),
        left: u64::MAX,
        token: u64::MAX - 1,
        worth: u64::MAX - 2,
        place: u64::MAX - 3,
        position: (1 << 32) - 1,
        generation: 15,
        expires: Tick::MAX,
        is_charged: false,
    };
    let plain = entry(hash(0, 1), LANE);
    let ids = [open(&table, wide), open(&table, plain)];
    assert_eq!(ids.map(|id| found(&table, id)), [Some(wide), Some(plain)]);
    // At the instant of its expiry it is no longer open.
    assert!(table.find(ids[1], at(9)).is_ok_and(|held| {
        held.keep(plain);
        true
    }));
    assert!(table.find(ids[1], at(10)).is_err());
    assert_eq!(found(&table, ids[1]), Some(plain));
}

#[test]
fn a_slot_that_somebody_has_is_given_to_nobody_else() {
    let table = Reservations::new(1, 1, false);
    let agent = hash(0, 1);
    let held = table.take(agent, at(5)).expect("a free slot");
    assert!(table.take(agent, at(5)).is_none() && table.take(agent, Tick::MAX).is_none());
    assert!(held.announce(agent, LANE, 1, at(5)));
    let id = held.id();
    held.close(agent);
    // Its id no longer works, whatever is in the slot.
    assert!(table.find(id, Tick::ZERO).is_err());
    let next = open(&table, entry(agent, LANE));
    assert!(table.find(id, Tick::ZERO).is_err() && table.take(agent, at(9)).is_none());
    table.find(next, Tick::ZERO).expect("it is open").close(agent);
    let last = open(&table, entry(agent, LANE));
    assert!(id != next && next != last && last != id);
}

#[test]
fn an_id_names_its_slot_and_no_other() {
    let table = Reservations::new(3, 3, false);
    let agent = hash(0, 1);
    let ids = [1, 2, 3].map(|left| open(&table, Entry { left, ..entry(agent, LANE) }));
    assert_eq!(ids.map(|id| id & SLOT_MASK), [0, 1, 2]);
    assert_eq!(ids.map(|id| found(&table, id).map(|entry| entry.left)), [Some(1), Some(2), Some(3)]);
    for made_up in [ids[0] + 3, ids[0] ^ 1 << SLOT_BITS, ids[0] ^ 1 << 63, ids[0] + (1 << SLOT_BITS)] {
        assert!(table.find(made_up, Tick::ZERO).is_err(), "{made_up:#x} instead of {:#x}", ids[0]);
    }
}

/// The slot of an expired reservation goes to another agent, which finds it
/// although its own slots never reached that far.
#[test]
fn an_expired_slot_is_taken_and_counts_for_its_new_agent() {
    let table = Reservations::new(1, 1, false);
    let (first, second) = (hash(0, 1), hash(1, 2));
    let id = open(&table, entry(first, LANE));
    assert!(table.take(second, at(9)).is_none());
    // At once, and long after that.
    for now in [10, 11, 50] {
        let table = Reservations::new(1, 1, false);
        open(&table, entry(first, LANE));
        assert!(table.take(second, at(now)).is_some(), "at {now}");
    }
    let held = table.take(second, at(10)).expect("it has expired");
    assert_eq!(table.counts(at(10)), Counts { open: 0, expired: 1, refused: 0 });
    assert!(held.announce(second, LANE, 15, at(10)));
    assert_ne!(held.id(), id);
    held.keep(Entry { expires: at(30), ..entry(second, LANE) });
    assert!(!table.may_have(0) && table.may_have(1) && table.find(id, Tick::ZERO).is_err());
    assert_eq!((table.reserved(second, LANE, at(10)), table.reserved(first, LANE, at(10))), (15, 0));
}

#[test]
fn a_reservation_is_open_until_it_expires_and_is_counted_as_expired_once() {
    let table = Reservations::new(4, 4, false);
    let agent = hash(0, 1);
    let ids = [10, 20].map(|expires| open(&table, Entry { expires: at(expires), ..entry(agent, LANE) }));
    let counts = |now| (table.counts(at(now)).open, table.counts(at(now)).expired);
    assert_eq!([0, 9, 10, 19, 20].map(counts), [(2, 0), (2, 0), (1, 0), (1, 0), (0, 0)]);
    for (now, left) in [(9, (2, 0)), (10, (1, 1)), (10, (1, 1)), (19, (1, 1)), (20, (0, 2))] {
        table.close_expired(at(now));
        assert_eq!((table.counts(Tick::ZERO).open, table.counts(Tick::ZERO).expired), left, "at {now}");
        assert_eq!(table.may_have(0), left.0 > 0);
    }
    assert!(ids.into_iter().all(|id| table.find(id, Tick::ZERO).is_err()));
    table.count_refusal();
    assert_eq!(table.counts(Tick::ZERO).refused, 1);
}

/// Agents of one shade, and so behind each other, and lanes of one of them.
#[test]
fn an_agent_has_reserved_what_is_its_own_on_the_lane_and_not_yet_paid() {
    let table = Reservations::new(8, 3, false);
    let (agent, neighbour) = (hash(0, 1), hash(0, 2));
    for (of, lane, worth, place) in
        [(agent, LANE, 10, 100), (neighbour, LANE, 200, 300), (agent, OTHER_LANE, 3_000, 4_000), (agent, LANE, 20, 120)]
    {
        open(&table, Entry { worth, place, ..entry(of, lane) });
    }
    let reserved = |of, lane, now| table.reserved(of, lane, at(now));
    assert_eq!([0, 90, 95, 100, 110, 120, 130].map(|now| reserved(agent, LANE, now)), [30, 30, 25, 20, 10, 0, 0]);
    assert_eq!((reserved(neighbour, LANE, 0), reserved(agent, OTHER_LANE, 0)), (200, 3_000));
    assert_eq!((reserved(neighbour, OTHER_LANE, 0), reserved(hash(1, 1), LANE, 0)), (0, 0));
}

/// The pieces end one below the other within the shorter bar, each no higher
/// than it was.
#[test]
fn pieces_are_moved_down_to_fit() {
    let table = Reservations::new(8, 4, false);
    let (agent, neighbour) = (hash(0, 1), hash(0, 2));
    let piece = |of, lane, worth, place| open(&table, Entry { worth, place, ..entry(of, lane) });
    let ids = [
        piece(agent, LANE, 10, 20),
        piece(agent, LANE, 30, 60),
        piece(agent, LANE, 5, 70),
        piece(agent, OTHER_LANE, 10, 65),
        piece(neighbour, LANE, 10, 65),
    ];
    let places = || ids.map(|id| found(&table, id).map_or(0, |entry| entry.place));
    let end = |payload| LaneWord::default().with_payload(payload);
    table.lower(agent, LANE, end(70), None);
    assert_eq!(places(), [20, 60, 70, 65, 65]);
    // The two upper ones no longer fit; the lowest still does.
    table.lower(agent, LANE, end(56), None);
    assert_eq!(places(), [20, 51, 56, 65, 65]);
    // The one that is being settled is left out.
    let held = table.find(ids[1], Tick::ZERO).expect("it is open");
    table.lower(agent, LANE, end(18), Some(&held));
    let entry = held.entry();
    held.keep(entry);
    assert_eq!(places(), [13, 51, 18, 65, 65]);
    table.lower(agent, LANE, end(2), None);
    // Two met there, and one of them went on.
    assert_eq!(places(), [0, 0, 2, 65, 65]);
}

#[test]
fn only_the_agents_open_reservations_are_revised() {
    let table = Reservations::new(8, 4, false);
    let (agent, neighbour) = (hash(0, 1), hash(0, 2));
    let ids = [agent, neighbour, agent, agent].map(|of| open(&table, entry(of, LANE)));
    let busy = table.find(ids[2], Tick::ZERO).expect("it is open");
    table.revise(agent, |entry| Some(entry.worthless()));
    busy.keep(entry(agent, LANE));
    let worth = || ids.map(|id| found(&table, id).map(|entry| entry.worth));
    assert_eq!(worth(), [Some(0), Some(15), Some(15), Some(0)]);
    table.revise_slot(1, None, &|entry| Some(Entry { worth: 4, ..entry }));
    assert_eq!(worth(), [Some(0), Some(4), Some(15), Some(0)]);
    table.revise(agent, |_| None);
    assert_eq!(worth(), [None, Some(4), None, None]);
    assert_eq!((table.counts(Tick::ZERO).open, table.counts(Tick::ZERO).expired), (1, 0));
}

#[test]
fn open_slots_are_found_by_the_records_that_they_charged() {
    let table = Reservations::new(8, 8, false);
    let agent = hash(0, 1);
    let ids = [30, 10, 20, 40, 10].map(|position| open(&table, Entry { position, ..entry(agent, LANE) }));
    table.find(ids[2], Tick::ZERO).expect("it is open").close(agent);
    assert_eq!(table.open_in(&(10..40)), [(10, 1), (10, 4), (30, 0)]);
    assert_eq!(table.open_in(&(0..10)), []);
    assert_eq!(table.open_in(&(0..100)).len(), 4);
}

#[test]
fn an_agent_has_no_more_than_it_may_whoever_shares_its_shade() {
    let table = Reservations::new(16, 2, false);
    let (agent, neighbour) = (hash(0, 1), hash(0, 2));
    let announces = |of: AgentHash, now| {
        let held = table.take(of, at(now)).expect("a free slot");
        let may = held.announce(of, LANE, 1, at(now));
        held.close(of);
        may
    };
    for of in [agent, neighbour, neighbour] {
        open(&table, entry(of, LANE));
    }
    assert!(announces(agent, 0) && !announces(neighbour, 0));
    // Alone in its shade too.
    let alone = hash(1, 3);
    assert!(announces(alone, 0));
    let ids = [0, 1].map(|_| open(&table, entry(alone, LANE)));
    assert!(!announces(alone, 0));
    ids.into_iter().for_each(|id| table.find(id, Tick::ZERO).expect("it is open").close(alone));
    // One that is under way counts too.
    let id = open(&table, Entry { expires: at(50), ..entry(agent, LANE) });
    let busy = table.find(id, Tick::ZERO).expect("it is open");
    assert!(!announces(agent, 9));
    // Those that have expired do not; this one has not.
    assert!(announces(agent, 10) && announces(neighbour, 10));
    busy.keep(Entry { expires: at(50), ..entry(agent, LANE) });
    assert_eq!(table.counts(Tick::ZERO), Counts { open: 1, expired: 3, refused: 0 });
}

/// The words of a record, before and after other limits came into force.
fn moved(entry: Entry, kind: Kind, before: LaneWord, after: LaneWord, is_reset: bool) -> Entry {
    let (moves, kinds) = ([(LaneWord::default(), LaneWord::default()), (before, after)], [Kind::Bucket, kind]);
    entry.moved(&MovedRecord { position: 7, moves: &moves, kinds: &kinds, is_reset, now: at(20) })
}

#[test]
fn a_change_of_limits_leaves_a_charge_what_was_not_cut() {
    let before = (0..9).fold(LaneWord::default(), |word, _| word.next_generation()).with_payload(110);
    assert_eq!(before.generation(), 9);
    let after = |payload| before.next_generation().with_payload(payload);
    let charge = Entry { worth: 50, place: 60, ..entry(hash(0, 1), LANE) };
    let next = |worth, place| Entry { worth, place, generation: 10, ..charge };
    let bucket = |payload| moved(charge, Kind::Bucket, before, after(payload), false);
    // At 20 it is worth 40; all that was cut may have been part of it.
    assert_eq!([110, 100, 75, 55].map(bucket), [next(40, 60), next(30, 60), next(5, 60), next(0, 55)]);
    assert_eq!(moved(charge, Kind::Held, before, after(3), false), next(50, 60));
    assert_eq!(moved(charge, Kind::Bucket, before, after(110), true), charge.worthless());
    // Another record, a charge since then, and one of long before.
    assert_eq!(moved(Entry { position: 8, ..charge }, Kind::Bucket, before, after(0), false).worth, 50);
    let since = Entry { generation: 10, ..charge };
    assert_eq!(moved(since, Kind::Bucket, before, after(0), true), since);
    assert_eq!(moved(Entry { generation: 8, ..charge }, Kind::Bucket, before, after(110), false).worth, 0);
}

/// A corrupt reach in a shared slab kept every call of an agent of that shade busy for ever.
#[test]
fn a_reach_beyond_the_table_ends_with_it() {
    let (table, agent) = (Reservations::new(100, 3, false), hash(5, 1));
    open(&table, entry(agent, LANE));
    table.shade(agent.low_bits()).reach.store(u64::MAX, Ordering::Relaxed);
    assert_eq!(table.likely(agent).take(101).count(), 100);
}
