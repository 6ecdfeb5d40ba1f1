//! One limiter for many processes: making it, joining it, looking at it (feature `shared`).

use super::Limiter;
use crate::shared::Sharing;
#[cfg(unix)]
use std::os::fd::BorrowedFd;

impl Limiter {
    /// Who shares it, and how that goes. `None` if it is private. Asks the system about every process that has joined.
    #[must_use]
    pub fn sharing(&self) -> Option<Sharing> {
        #[cfg(all(target_os = "linux", not(loom)))]
        return self.engine.memory.joined().map(|joined| joined.view());
        #[cfg(not(all(target_os = "linux", not(loom))))]
        None
    }

    /// Looks for what cannot be, and returns it as sentences: an agent with two records, a count that
    /// is wrong, a lock that nobody will release. An empty list means that all is well.
    ///
    /// What dead processes left is put right first, as the next calls would have done. For tools and tests, while no
    /// other call is under way: one that is may be taken for a fault.
    #[must_use]
    pub fn audit(&self) -> Vec<String> {
        // No record has been idle for that long.
        self.engine.sweep(std::time::Duration::MAX, self.now());
        self.engine.audit()
    }

    /// The descriptor of the slab that it shares, to pass it on to another process. `None` if it is private.
    ///
    /// A child that is forked shares the slab without it.
    #[cfg(unix)]
    #[must_use]
    pub fn shared_descriptor(&self) -> Option<BorrowedFd<'_>> {
        #[cfg(all(target_os = "linux", not(loom)))]
        return self.engine.memory.joined().map(|joined| joined.descriptor());
        #[cfg(not(all(target_os = "linux", not(loom))))]
        None
    }
}

#[cfg(not(all(target_os = "linux", not(loom))))]
mod unsupported {
    use crate::error::BuildError;
    use crate::limiter::{Limiter, LimiterBuilder};
    use crate::shared::{Shared, SharedError};

    impl LimiterBuilder {
        pub(in crate::limiter) fn build_shared(self, _: &Shared) -> Result<Limiter, BuildError> {
            Err(SharedError::Unsupported.into())
        }
    }
}

#[cfg(all(target_os = "linux", not(loom)))]
mod supported {
    use crate::bounds::{HOLDS_MAX, HOLDS_MIN, POLICY_BYTES_MAX, POLICY_BYTES_MIN};
    use crate::clock::Clock;
    use crate::control::CONTROL_WORDS;
    use crate::engine::layout::layout;
    use crate::engine::policy_text;
    use crate::error::BuildError;
    use crate::limiter::builder::Ground;
    use crate::limiter::{Limiter, LimiterBuilder};
    use crate::policy::{Kind, LaneId, Policy};
    use crate::shared::{Agreed, Attached, Memory, Shape, Shared, SharedError, attach};
    use crate::slab::hash::{HashKey, IdHash};
    use crate::slab::{Geometry, OnFull};
    use std::path::Path;
    use std::sync::Arc;

    /// How often a slab that does not fit, and that nobody uses, is made anew.
    const TRIES_MAX: usize = 4;

    /// What becomes of two policies.
    enum Agreement {
        /// The slab's stays.
        Adopt,
        /// This one replaces it.
        Replace,
    }

    impl LimiterBuilder {
        /// Makes the shared slab or joins it, and builds a limiter on it.
        pub(in crate::limiter) fn build_shared(mut self, place: &Shared) -> Result<Limiter, BuildError> {
            let clock = self.clock.take().or(self.policy.as_ref().map(|_| Clock::auto()));
            for _ in 0..TRIES_MAX {
                let asked = self.asked(clock.as_ref());
                let attached = attach(place, &asked, |shape| layout(shape, CONTROL_WORDS), self.policy.is_none())?;
                let memory = Memory::Shared(Arc::clone(&attached.joined));
                let path = attached.joined.path().to_owned();
                let policy_bytes = attached.agreed.shape.policy_bytes as usize;
                let (policy, epoch, agreement) = if attached.joined.is_maker() {
                    (self.policy.clone(), 0, Agreement::Adopt)
                } else {
                    let (policy, epoch) = policy_text::in_force(&memory, policy_bytes)
                        .ok_or_else(|| SharedError::Foreign { path: path.clone() })?;
                    match self.policy.as_ref().map_or(Ok(Agreement::Adopt), |asked| agree(&policy, asked, &path)) {
                        Ok(agreement) => (Some(policy), epoch, agreement),
                        // Nobody uses it: it is made anew.
                        Err(refusal) => match attached.remove()? {
                            true => continue,
                            false => return Err(refusal.into()),
                        },
                    }
                };
                return self.joined(attached, clock, policy, epoch, &agreement);
            }
            Err(SharedError::Attaching { path: std::path::PathBuf::from("the slab") }.into())
        }

        /// What this process asks of the slab.
        fn asked(&self, clock: Option<&Clock>) -> Agreed {
            let cells = self.policy.as_ref().map_or(0, |policy| policy.cell_kinds().len());
            let text = self.policy.as_ref().map_or(0, |policy| policy.to_toml().len());
            let records = Geometry::for_agents(self.agents, cells).records;
            let roster = self.observe.as_ref().map_or(0, |observe| observe.roster_wanted()).min(records);
            let has_budgets = self.policy.as_ref().is_some_and(|policy| policy.kinds().any(is_budget));
            let has_held = self.policy.as_ref().is_some_and(|policy| policy.kinds().any(|kind| kind == Kind::Held));
            let shape = Shape {
                agents: self.agents,
                lanes: self.policy.as_ref().map_or(0, |policy| policy.lanes().len()) as u64,
                cells: cells as u64,
                reservations: self.reservations as u64,
                reservations_per_agent: self.per_agent() as u64,
                has_total: self.policy.as_ref().is_some_and(|policy| policy.total().is_some()).into(),
                roster: roster as u64,
                kept_ids: if has_budgets && roster < records { records as u64 } else { 0 },
                // Room for a policy that grows.
                holds: if has_held { self.agents.clamp(HOLDS_MIN, HOLDS_MAX) } else { 0 },
                policy_bytes: (4 * text).clamp(POLICY_BYTES_MIN, POLICY_BYTES_MAX).next_multiple_of(8) as u64,
            };
            let on_full = match self.on_full {
                OnFull::Evict => "evict",
                OnFull::Deny => "deny",
            };
            Agreed {
                shape,
                clock: clock.map(Clock::kind),
                on_full: self.policy.as_ref().map(|_| on_full),
                hash: self.hash.number(),
                adopts_hash: self.policy.is_none(),
                asks_per_agent: self.reservations_per_agent.is_some(),
                key: HashKey::random(self.hash).words().collect(),
            }
        }

        /// The limiter on a slab that this process has made or found.
        fn joined(
            mut self,
            attached: Attached,
            clock: Option<Clock>,
            policy: Option<Policy>,
            epoch: u64,
            agreement: &Agreement,
        ) -> Result<Limiter, BuildError> {
            let Agreed { shape, clock: kind, on_full, hash, ref key, .. } = attached.agreed;
            let mut words = key.iter().copied();
            let key = HashKey::from_words(IdHash::from_number(hash), || words.next().unwrap_or(0));
            // Lossless: each is compared with the file's length.
            let [reservations, per_agent, roster, kept_ids, policy_bytes] =
                [shape.reservations, shape.reservations_per_agent, shape.roster, shape.kept_ids, shape.policy_bytes]
                    .map(|number| number as usize);
            let asked = std::mem::replace(&mut self.policy, policy);
            self.clock = clock.or(kind.map(Clock::of_kind));
            self.agents = shape.agents;
            self.on_full = if on_full == Some("deny") { OnFull::Deny } else { OnFull::Evict };
            let builder = self.reservations(reservations).reservations_per_agent(per_agent);
            let ground = Ground {
                memory: Memory::Shared(Arc::clone(&attached.joined)),
                epoch,
                roster: (roster > 0).then_some(roster),
                kept_ids: (kept_ids > 0).then_some(kept_ids),
                policy_bytes,
                holds: shape.holds as usize,
            };
            let (joined, is_maker) = (Arc::clone(&attached.joined), attached.joined.is_maker());
            let seated = attached.sit_down().map_err(BuildError::from);
            let built = seated.and_then(|()| builder.within(ground, key)).and_then(|limiter| {
                if let (true, Some(text)) = (is_maker, limiter.engine.policy_text()) {
                    write_text(text, &limiter.policy(), joined.path())?;
                }
                Ok(limiter)
            });
            let limiter = match built {
                Ok(limiter) => limiter,
                Err(error) => {
                    if is_maker {
                        attached.remove()?;
                    }
                    return Err(error);
                }
            };
            attached.publish();
            limiter.engine.bury_all(); // What those hold that died before.
            match (agreement, asked) {
                (Agreement::Adopt, asked) => {
                    let text = limiter.engine.policy_text().zip(asked);
                    text.into_iter().for_each(|(text, asked)| text.set_asked(Arc::new(asked), &limiter.policy()));
                }
                (Agreement::Replace, Some(policy)) => {
                    replace(&limiter, policy, joined.path())?;
                }
                (Agreement::Replace, None) => {}
            }
            Ok(limiter)
        }
    }

    /// Puts the policy of a process that joins in force. Another one may have put a newer policy in force since this
    /// one was found to be newer; so they are compared again, when no other process can replace it.
    fn replace(limiter: &Limiter, asked: Policy, path: &Path) -> Result<(), SharedError> {
        let mut agreement = Ok(Agreement::Adopt);
        let replaces = |in_force: &Policy| {
            agreement = agree(in_force, &asked, path);
            matches!(agreement, Ok(Agreement::Replace))
        };
        let refused =
            |problem: crate::ControlError| SharedError::Refused { path: path.to_owned(), problem: problem.to_string() };
        limiter.control().replace_policy_if(asked.clone(), replaces).map_err(refused)?;
        if let (Agreement::Adopt, Some(text)) = (agreement?, limiter.engine.policy_text()) {
            text.set_asked(Arc::new(asked), &limiter.policy());
        }
        Ok(())
    }

    const fn is_budget(kind: Kind) -> bool {
        matches!(kind, Kind::Budget(_))
    }

    fn write_text(text: &policy_text::PolicyText, policy: &Policy, path: &Path) -> Result<(), SharedError> {
        let written = policy.to_toml();
        if written.len() > text.most() {
            return Err(SharedError::PolicyTooLong { path: path.into(), bytes: written.len(), most: text.most() });
        }
        if !policy.is_read_from(&written) {
            return Err(SharedError::PolicyText { path: path.into() });
        }
        text.write(0, &written);
        Ok(())
    }

    /// What two policies must agree on in a lane, and how an error shows it.
    fn lane_of(policy: &Policy, lane: usize) -> (Option<(String, Kind, usize)>, String) {
        let Some((id, name)) = policy.lanes().nth(lane) else { return (None, "no such lane".to_owned()) };
        let kind = policy.kinds().nth(lane).zip(policy.cells().nth(lane));
        let limit = policy.limit(id).map_or(String::new(), |limit| limit.to_string());
        (kind.map(|(kind, cells)| (name.to_owned(), kind, cells.count)), format!("{name:?} = \"{limit}\""))
    }

    /// Whether a process with the policy `asked` may use a slab with the policy `has`.
    fn agree(has: &Policy, asked: &Policy, path: &Path) -> Result<Agreement, SharedError> {
        for lane in 0..has.lanes().len().max(asked.lanes().len()) {
            let [(kind, has), (other, asked)] = [lane_of(has, lane), lane_of(asked, lane)];
            if kind != other {
                return Err(SharedError::OtherLane { path: path.into(), lane, has, asked });
            }
        }
        match (has.version(), asked.version()) {
            (Some(old), Some(new)) if old == new && has != asked => {
                let (has, asked) = first_difference(has, asked);
                Err(SharedError::SameVersion { path: path.into(), version: new, has, asked })
            }
            (old, Some(new)) if old < Some(new) => Ok(Agreement::Replace),
            _ => Ok(Agreement::Adopt),
        }
    }

    /// The first limit in which two policies differ, or else the first line of their texts.
    fn first_difference(has: &Policy, asked: &Policy) -> (String, String) {
        for (plan, name) in has.plans() {
            for (lane, lane_name) in has.lanes() {
                let limit = |policy: &Policy, plan, lane: LaneId| policy.plan_limit(plan, lane);
                let of = [limit(has, plan, lane), asked.plan(name).and_then(|plan| limit(asked, plan, lane))];
                if of[0] != of[1] {
                    let shown =
                        |limit: Option<crate::Limit>| limit.map_or("none".to_owned(), |limit| limit.to_string());
                    let of = of.map(|limit| format!("{lane_name:?} = \"{}\" in plan {name:?}", shown(limit)));
                    let [has, asked] = of;
                    return (has, asked);
                }
            }
        }
        let (has, asked) = (has.to_toml(), asked.to_toml());
        let lines = has.lines().zip(asked.lines()).find(|(has, asked)| has != asked);
        let (has, asked) = lines.unwrap_or(("fewer or more lines", "other lines"));
        (has.to_owned(), asked.to_owned())
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        /// Two processes joined a slab at once, with versions 3 and 2 of its policy. Both found that theirs was to
        /// replace version 1, and the last one won.
        #[test]
        fn a_policy_that_another_has_overtaken_replaces_nothing() {
            let policy = |limit: &str, version| Policy::builder().lane("api", limit).version(version).build().unwrap();
            let builder = |policy| Limiter::builder(policy).agents(10).shared(Shared::memfd());
            let limiter = builder(policy("1/s", 1)).build().unwrap();
            let path = Path::new("memfd");
            // All of them have found version 1.
            replace(&limiter, policy("3/s", 3), path).unwrap();
            assert!(!limiter.sharing().unwrap().policy_differs);
            replace(&limiter, policy("2/s", 2), path).unwrap();
            assert_eq!(*limiter.policy(), policy("3/s", 3));
            assert!(limiter.sharing().unwrap().policy_differs);
            let refused = replace(&limiter, policy("4/s", 3), path).unwrap_err();
            assert!(matches!(refused, SharedError::SameVersion { version: 3, .. }), "{refused}");
            replace(&limiter, policy("3/s", 3), path).unwrap();
            assert!(!limiter.sharing().unwrap().policy_differs);
        }
    }
}
