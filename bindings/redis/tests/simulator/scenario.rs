//! What a seed is about.

use crate::random::Random;

/// What is broken on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// What is given back is sent twice.
    GiveResent,
    /// After a loss the server is told nothing.
    NoFloor,
    /// What was spent in advance is not paid.
    NotPaid,
    /// What is granted to nobody is handed out all the same: it is granted and not debited.
    GrantNotDebited,
    /// Credit that is not spent never ends.
    NoExpiry,
    /// A debt beyond the capacity is forgotten: there is no overdraft.
    ClampTooLow,
    /// A lane forgets that the engine has been asked about it.
    AskedBitLost,
}

impl Fault {
    pub(crate) const ALL: [Self; 7] = [
        Self::GiveResent,
        Self::NoFloor,
        Self::NotPaid,
        Self::GrantNotDebited,
        Self::NoExpiry,
        Self::ClampTooLow,
        Self::AskedBitLost,
    ];
}

/// What happens in a run, all of it from the seed.
#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    pub(crate) seed: u64,
    pub(crate) nodes: usize,
    /// How many machines each expects at least; the others are counted as they come.
    pub(crate) nodes_at_least: usize,
    /// Whether machines come one after the other.
    pub(crate) joins: bool,
    /// As the policy says it, and as numbers.
    pub(crate) limit: String,
    pub(crate) capacity: u64,
    pub(crate) token_ns: u64,
    pub(crate) slack_percent: u8,
    /// Whether nothing is spent in advance.
    pub(crate) is_exact: bool,
    /// Whether a lost lane is closed; otherwise each machine has its share.
    pub(crate) is_closed: bool,
    pub(crate) agents: usize,
    pub(crate) cost_max: u64,
    /// Checks a second, of each machine.
    pub(crate) rate: u64,
    /// Whether they come in bursts instead, with seconds of silence between them.
    pub(crate) bursts: bool,
    /// How long a message takes, at most.
    pub(crate) delay_us: u64,
    /// How many of a thousand messages are lost, and of a thousand replies are heard twice.
    pub(crate) lost_permille: u64,
    pub(crate) twice_permille: u64,
    /// Whether the server stops now and then, and whether it forgets then.
    pub(crate) stops: bool,
    pub(crate) forgets: bool,
    /// Whether the server's clock steps.
    pub(crate) clock_steps: bool,
    /// Whether machines pause, some of them with their clocks; whether their engines stand still while they serve; and
    /// whether they die and start anew.
    pub(crate) pauses: bool,
    pub(crate) stalls: bool,
    pub(crate) dies: bool,
    /// Whether engines end in order, and others begin.
    pub(crate) restarts: bool,
    /// Whether agents are reset, and requests refunded.
    pub(crate) forgives: bool,
    pub(crate) seconds: u64,
}

impl Scenario {
    pub(crate) fn of(seed: u64) -> Self {
        let mut random = Random::new(seed ^ 0x5eed);
        let mut one_of = |values: &[u64]| values[random.below(values.len() as u64) as usize];
        let (tokens, per, burst) = match one_of(&[0, 1, 2, 3, 4, 5]) {
            0 => (10, 60, 10),
            1 => (60, 60, 60),
            2 => (1_000, 1, 1_000),
            3 => (100, 1, 40),
            4 => (5, 1, 200),
            // Nearly as slow as can be shared: 26 days.
            _ => (1, 2_250_000, 1),
        };
        let nodes = one_of(&[1, 2, 3, 3, 5, 8]) as usize;
        let of_two = |one_of: &mut dyn FnMut(&[u64]) -> u64| one_of(&[0, 1]) == 1;
        let of_three = |one_of: &mut dyn FnMut(&[u64]) -> u64| one_of(&[0, 0, 1]) == 1;
        let of_six = |one_of: &mut dyn FnMut(&[u64]) -> u64| one_of(&[0, 0, 0, 0, 0, 1]) == 1;
        let mut scenario = Self {
            seed,
            nodes,
            nodes_at_least: one_of(&[1, nodes as u64, nodes as u64, nodes as u64]) as usize,
            joins: of_three(&mut one_of),
            limit: format!("{tokens} per {per} seconds burst {burst}"),
            capacity: burst,
            token_ns: (per * 1_000_000_000_u64).div_ceil(tokens),
            slack_percent: one_of(&[1, 10, 10, 40, 100]) as u8,
            is_exact: of_six(&mut one_of),
            is_closed: of_six(&mut one_of),
            agents: one_of(&[1, 1, 2, 6]) as usize,
            cost_max: one_of(&[1, 1, 3, burst]).min(burst),
            rate: one_of(&[20, 200, 2_000]),
            bursts: of_three(&mut one_of),
            delay_us: one_of(&[200, 2_000, 20_000, 150_000]),
            lost_permille: one_of(&[0, 0, 0, 2, 20]),
            twice_permille: one_of(&[0, 0, 100]),
            stops: of_two(&mut one_of),
            forgets: of_two(&mut one_of),
            clock_steps: of_six(&mut one_of),
            pauses: of_three(&mut one_of),
            stalls: of_six(&mut one_of),
            dies: of_three(&mut one_of),
            restarts: of_six(&mut one_of),
            forgives: of_six(&mut one_of),
            seconds: one_of(&[3, 8]),
        };
        if one_of(&[0, 0, 0, 1]) == 1 {
            scenario.calm();
        }
        if scenario.bursts {
            scenario.seconds = 30;
        }
        scenario
    }

    /// Nothing goes wrong, and messages are quick: then all of the limit has to be admitted, too.
    fn calm(&mut self) {
        (self.nodes_at_least, self.delay_us, self.lost_permille) = (self.nodes, self.delay_us.min(2_000), 0);
        (self.joins, self.bursts, self.stops, self.clock_steps) = (false, false, false, false);
        (self.pauses, self.stalls, self.dies, self.restarts, self.forgives) = (false, false, false, false, false);
    }

    pub(crate) fn is_calm(&self) -> bool {
        let is_troubled = self.stops || self.clock_steps || self.pauses || self.stalls || self.dies || self.restarts;
        !is_troubled && !self.bursts && !self.joins && self.lost_permille == 0 && self.delay_us <= 2_000
    }

    /// Tokens of credit that a machine may have, which counts so many machines.
    fn share(&self, nodes: usize) -> u64 {
        self.capacity * u64::from(self.slack_percent) / (200 * nodes as u64)
    }

    /// Tokens that a machine may spend in advance.
    pub(crate) fn advance_max(&self) -> u64 {
        if self.is_exact { 0 } else { self.share(self.nodes_at_least).max(1) }
    }

    /// Tokens that a machine may hold.
    pub(crate) fn credit_max(&self) -> u64 {
        let share = self.share(self.nodes_at_least);
        // A request that costs more than the advance is paid for in full before it passes, and its tokens wait for it.
        let waits = if self.cost_max > self.advance_max() { self.cost_max } else { 0 };
        share.max(waits)
    }
}
