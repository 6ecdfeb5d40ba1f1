//! The lanes of agents that the settler follows, and what is out of each lane.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;
use tollgate::LaneId;
use tollgate::cluster::Ask;

/// A lane of an agent.
pub(crate) type Of = (u128, LaneId);

/// What is known of a lane of an agent.
pub(crate) struct Followed {
    pub(crate) ask: Ask,
    pub(crate) is_queued: bool,
    pub(crate) is_under_way: bool,
    /// Whether it was asked about once more while it was.
    pub(crate) is_asked_again: bool,
    /// Whether the lane's view may have been charged, so that the server must be told at least that.
    pub(crate) has_floor: bool,
    /// Whether its view may be from before the last loss.
    pub(crate) is_old: bool,
    /// Tokens spent per second, as of the last settlements.
    pub(crate) rate: f64,
    pub(crate) settled_at: Duration,
    /// When its credit is to be given back.
    pub(crate) ends: Option<Duration>,
    out: Out,
}

impl Followed {
    pub(crate) fn new(ask: Ask) -> Self {
        Self {
            ask,
            is_queued: false,
            is_under_way: false,
            is_asked_again: false,
            has_floor: false,
            is_old: false,
            rate: 0.0,
            settled_at: Duration::ZERO,
            ends: None,
            out: Out::default(),
        }
    }

    /// What it had after the last settlement.
    pub(crate) const fn credit(&self) -> u64 {
        self.out.credit
    }
}

/// What a machine holds of a lane, and what it owes: of all agents that its settler follows, each as of its last
/// settlement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Out {
    /// Tokens of credit: debited from the server, and not spent.
    pub credit: u64,
    /// Tokens that were spent in advance, and not paid as far as this machine knows.
    pub advance: u64,
}

/// All that are followed.
#[derive(Default)]
pub(crate) struct FollowedLanes {
    lanes: HashMap<Of, Followed>,
    /// The sums of each lane.
    out: BTreeMap<LaneId, Out>,
}

impl FollowedLanes {
    pub(crate) fn len(&self) -> usize {
        self.lanes.len()
    }

    pub(crate) fn contains(&self, of: Of) -> bool {
        self.lanes.contains_key(&of)
    }

    pub(crate) fn get_mut(&mut self, of: Of) -> Option<&mut Followed> {
        self.lanes.get_mut(&of)
    }

    /// The lane, asked about and followed from now on. If it was not followed, what it knows `is_old`: it may be from
    /// before the last loss.
    pub(crate) fn follow(&mut self, of: Of, ask: Ask, is_old: bool) -> &mut Followed {
        let followed = self.lanes.entry(of).or_insert_with(|| Followed { is_old, ..Followed::new(ask) });
        followed.ask = ask;
        followed.is_asked_again |= followed.is_under_way;
        followed
    }

    /// Every lane that is followed.
    pub(crate) fn all(&self) -> impl Iterator<Item = Of> {
        self.lanes.keys().copied()
    }

    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut Followed> {
        self.lanes.values_mut()
    }

    pub(crate) fn forget(&mut self, of: Of) {
        self.set_out(of, Out::default());
        self.lanes.remove(&of);
    }

    /// What the lane has, and owes.
    pub(crate) fn set_out(&mut self, of: Of, out: Out) {
        let Some(followed) = self.lanes.get_mut(&of) else { return };
        let was = std::mem::replace(&mut followed.out, out);
        let sum = self.out.entry(of.1).or_default();
        sum.credit = (sum.credit + out.credit).saturating_sub(was.credit);
        sum.advance = (sum.advance + out.advance).saturating_sub(was.advance);
    }

    /// The sums of each lane.
    pub(crate) fn out(&self) -> BTreeMap<LaneId, Out> {
        self.out.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::num::NonZeroU16;
    use tollgate::cluster::{Cluster, Link};
    use tollgate::{Limiter, Policy};

    /// Questions about one lane of these agents.
    fn asks(agents: &[&str]) -> Vec<Ask> {
        let policy = Policy::builder().lane("http", "60/min").build().unwrap();
        let limiter = Limiter::builder(policy).agents(10).cluster(Cluster::new([7; 16])).build().unwrap();
        let (link, http) = (Link::of(&limiter).unwrap(), limiter.lane("http").unwrap());
        link.connected(NonZeroU16::MIN, Duration::ZERO);
        agents.iter().for_each(|agent| assert!(limiter.check(agent, http).unwrap().is_allowed()));
        link.asks(agents.len()).collect()
    }

    #[test]
    fn the_sum_of_a_lane_is_that_of_its_agents_whatever_comes_and_goes() {
        let (mut lanes, asks) = (FollowedLanes::default(), asks(&["a", "b"]));
        let of = |ask: &Ask| (u128::from_le_bytes(ask.key()), ask.lane());
        let sum = |lanes: &FollowedLanes| lanes.out().get(&asks[0].lane()).copied().unwrap_or_default();
        for ask in &asks {
            assert_eq!(lanes.follow(of(ask), *ask, false).credit(), 0);
        }
        assert_eq!(sum(&lanes), Out::default());
        lanes.set_out(of(&asks[0]), Out { credit: 5, advance: 0 });
        lanes.set_out(of(&asks[1]), Out { credit: 2, advance: 3 });
        assert_eq!(sum(&lanes), Out { credit: 7, advance: 3 });
        lanes.set_out(of(&asks[0]), Out { credit: 1, advance: 1 });
        assert_eq!(sum(&lanes), Out { credit: 3, advance: 4 });
        lanes.forget(of(&asks[1]));
        lanes.set_out(of(&asks[1]), Out { credit: 9, advance: 9 });
        assert_eq!(sum(&lanes), Out { credit: 1, advance: 1 }, "an agent that nobody follows has nothing");
        lanes.forget(of(&asks[0]));
        assert_eq!((sum(&lanes), lanes.len()), (Out::default(), 0));
    }
}
