//! The judge: reads what passed and when, and knows only what is promised.

use super::run::{BUCKET, BUDGET, DEBT, EXACT, Log, Numbers, TOTAL, Total, WINDOW};

/// Something that passed, at an instant between `low` and `high`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Charge {
    pub(crate) agent: usize,
    pub(crate) lane: u32,
    pub(crate) low: u64,
    pub(crate) high: u64,
    /// The start of the third of a window that the clock had reached by then. A
    /// window treats an older instant as the start of the latest third that it
    /// knows.
    pub(crate) third: u64,
    /// The cost that was requested.
    pub(crate) asked: u64,
    /// The final cost: a reservation costs what was used of it.
    pub(crate) cost: u64,
    pub(crate) span: Span,
}

/// When a call began and ended, in one order of all calls.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub(crate) began: u64,
    pub(crate) ended: u64,
}

/// Something that was given back outside of a reservation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refund {
    pub(crate) agent: usize,
    pub(crate) lane: u32,
    pub(crate) cost: u64,
    pub(crate) span: Span,
}

/// A point at which a lane starts afresh or gets other numbers: nothing is judged across it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cut {
    pub(crate) agent: usize,
    /// The numbers from then on.
    pub(crate) numbers: Numbers,
    pub(crate) span: Span,
}

/// The calls between two cuts.
struct Segment<'a> {
    numbers: Numbers,
    charges: Vec<&'a Charge>,
    refunded: u64,
}

pub(crate) fn judge(log: &Log) -> Result<(), String> {
    for agent in 0..log.agents {
        let lanes = [BUCKET, WINDOW, EXACT, BUDGET, DEBT, TOTAL];
        for lane in lanes.into_iter().filter(|lane| *lane != TOTAL || log.total != Total::None) {
            for segment in segments(log, agent, lane) {
                let Numbers { capacity, token, total, total_token, .. } = segment.numbers;
                let judged = match lane {
                    BUCKET => bucket(&segment, capacity, token, 0),
                    DEBT => bucket(&segment, capacity, token, segment.excess()),
                    TOTAL if log.total == Total::Bucket => bucket(&segment, total, total_token, 0),
                    TOTAL => window(&segment, total),
                    WINDOW => window(&segment, segment.numbers.window),
                    EXACT => trailing(&segment, segment.numbers.exact),
                    _ => budget(&segment),
                };
                judged.map_err(|problem| format!("agent {agent}, lane {lane}: {problem}"))?;
            }
        }
    }
    match log.held_most.iter().max() {
        Some(most) if *most > log.numbers.held => Err(format!("{most} slots held of {}", log.numbers.held)),
        _ => Ok(()),
    }
}

/// The calls that lie entirely between two cuts. Cuts of an agent never overlap.
fn segments<'a>(log: &'a Log, agent: usize, lane: u32) -> Vec<Segment<'a>> {
    let mut cuts: Vec<_> = log.cuts.iter().filter(|cut| cut.agent == agent).collect();
    cuts.sort_by_key(|cut| cut.span.began);
    let starts = std::iter::once((0, log.numbers)).chain(cuts.iter().map(|cut| (cut.span.ended, cut.numbers)));
    let ends = cuts.iter().map(|cut| cut.span.began).chain(std::iter::once(u64::MAX));
    // Everything charged to a lane is charged to the total.
    let is_of = |of: u32| lane == of || lane == TOTAL;
    let segment = |((start, numbers), end)| {
        let is_within = |span: &Span| span.began >= start && span.ended <= end;
        let charges = log.charges.iter().filter(|one| one.agent == agent && is_of(one.lane) && is_within(&one.span));
        let overlaps = |span: &Span| span.ended >= start && span.began <= end;
        let refunds = log.refunds.iter().filter(|one| one.agent == agent && is_of(one.lane) && overlaps(&one.span));
        Segment { numbers, charges: charges.collect(), refunded: refunds.map(|refund| refund.cost).sum() }
    };
    starts.zip(ends).map(segment).collect()
}

impl Segment<'_> {
    /// How far the largest request was above the capacity.
    fn excess(&self) -> u64 {
        let largest = self.charges.iter().map(|charge| charge.asked).max();
        largest.map_or(0, |asked| asked.saturating_sub(self.numbers.capacity))
    }
}

/// Over every pair of instants, never more than the capacity, the refill and
/// the excess of one request.
fn bucket(segment: &Segment<'_>, capacity: u64, token: u64, excess: u64) -> Result<(), String> {
    let allowed = |span: u64| (capacity + excess + segment.refunded) * token + span;
    over_pairs(segment, |charge| charge.high, |sum, span| sum * token <= allowed(span)).map_err(|(sum, span)| {
        format!("{sum} tokens passed within {span} ns of a bucket of {capacity}, {token} ns each")
    })
}

/// Never more than `most` in any trailing window.
fn trailing(segment: &Segment<'_>, most: u64) -> Result<(), String> {
    trailing_by(segment, most, |charge| charge.high)
}

/// The same for a window, which may place a charge later than requested.
fn window(segment: &Segment<'_>, most: u64) -> Result<(), String> {
    trailing_by(segment, most, |charge| charge.high.max(charge.third))
}

fn trailing_by(segment: &Segment<'_>, most: u64, end: impl Fn(&Charge) -> u64) -> Result<(), String> {
    let length = segment.numbers.length;
    over_pairs(segment, end, |sum, span| span >= length || sum <= most + segment.refunded)
        .map_err(|(sum, span)| format!("{sum} passed within {span} ns, of {most} in {length} ns"))
}

fn budget(segment: &Segment<'_>) -> Result<(), String> {
    let (sum, most) = (segment.charges.iter().map(|charge| charge.cost).sum::<u64>(), segment.numbers.budget);
    if sum <= most + segment.refunded { Ok(()) } else { Err(format!("{sum} of {most} were used in a day")) }
}

/// Adds up what certainly passed between each pair of instants. The error is the pair that breaks the promise.
fn over_pairs(
    segment: &Segment<'_>,
    end: impl Fn(&Charge) -> u64,
    holds: impl Fn(u64, u64) -> bool,
) -> Result<(), (u64, u64)> {
    let mut by_end = segment.charges.clone();
    by_end.sort_by_key(|charge| end(charge));
    let mut starts: Vec<u64> = by_end.iter().map(|charge| charge.low).collect();
    starts.sort_unstable();
    starts.dedup();
    for start in starts {
        let mut sum = 0;
        for charge in by_end.iter().filter(|charge| charge.low >= start) {
            sum += charge.cost;
            let span = end(charge) - start;
            if !holds(sum, span) {
                return Err((sum, span));
            }
        }
    }
    Ok(())
}

/// A judge that accepts everything would prove nothing.
#[test]
fn one_token_too_many_is_noticed() {
    let numbers = Numbers {
        capacity: 2,
        token: 10,
        window: 2,
        exact: 2,
        length: 100,
        budget: 2,
        held: 1,
        total: 3,
        total_token: 10,
    };
    let charge = |lane, at, call: u64| Charge {
        agent: 0,
        lane,
        low: at,
        high: at,
        third: at,
        asked: 1,
        cost: 1,
        span: Span { began: 2 * call, ended: 2 * call + 1 },
    };
    let log = |charges: Vec<Charge>| Log {
        agents: 1,
        total: Total::Bucket,
        numbers,
        charges,
        refunds: Vec::new(),
        cuts: Vec::new(),
        held_most: vec![0],
    };
    let at = |lane, instants: &[u64]| log(instants.iter().zip(1..).map(|(at, call)| charge(lane, *at, call)).collect());
    assert!(judge(&at(BUCKET, &[0, 0, 10])).is_ok() && judge(&at(BUCKET, &[0, 0, 9])).is_err());
    let large = |at, call| Charge { asked: 5, cost: 5, ..charge(DEBT, at, call) };
    // More than the capacity of the total.
    let without_total = |charges| Log { total: Total::None, ..log(charges) };
    assert!(judge(&without_total(vec![large(0, 1), large(50, 2)])).is_ok());
    assert!(judge(&without_total(vec![large(0, 1), large(49, 2)])).is_err());
    assert!(judge(&at(EXACT, &[0, 0, 100])).is_ok() && judge(&at(EXACT, &[0, 0, 99])).is_err());
    assert!(judge(&at(WINDOW, &[0, 0, 100])).is_ok() && judge(&at(WINDOW, &[0, 0, 99])).is_err());
    assert!(judge(&at(BUDGET, &[0, 500])).is_ok() && judge(&at(BUDGET, &[0, 500, 900])).is_err());
    // Two of each lane are four of the total.
    let both = |at: u64| {
        log([(BUDGET, 0), (EXACT, 0), (BUDGET, 0), (EXACT, at)]
            .into_iter()
            .zip(1..)
            .map(|((lane, at), call)| charge(lane, at, call))
            .collect())
    };
    assert!(judge(&both(10)).is_ok() && judge(&both(9)).is_err());
    // A reset between the second call and the third: they are not added up.
    let calls = at(BUDGET, &[0, 500, 900]).charges;
    let cut = Cut { agent: 0, numbers, span: Span { began: 5, ended: 6 } };
    assert!(judge(&Log { cuts: vec![cut], ..log(calls) }).is_ok());
    assert!(judge(&Log { held_most: vec![2], ..log(Vec::new()) }).is_err());
}
