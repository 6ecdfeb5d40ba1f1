//! What the store has goes in force here.

use super::known::{Known, Sum};
use super::plain;
use super::{COMPARE_EVERY, DECISIONS_MAX, Decisions, Field, Head, Stored};
use std::collections::HashMap;
use std::time::Duration;
use tollgate::cluster::{Followed, Operators};
use tollgate::{Assignment, ControlError, Policy};

/// Reads the store from a place on, up to its end.
pub(super) struct Reading {
    /// If all is read: to compare it with what is known.
    whole: Option<Whole>,
}

/// What is noted while all is read.
struct Whole {
    /// The store that is read.
    born: Option<u128>,
    /// Up to where this machine had read before, if that was in the same store.
    before: Option<u64>,
    /// The horizon when it began.
    horizon: u64,
    /// What the store has, with its stamp; 0 for a removal.
    seen: HashMap<Field, u64>,
}

/// What is to go in force.
struct Opened {
    field: Field,
    known: Known,
    decision: Result<Decision, String>,
}

enum Decision {
    Agent(Box<[u8]>, Assignment),
    Policy(Box<Policy>),
}

impl Decisions {
    /// What the store has in all, as it answered just now.
    pub(super) fn saw(&mut self, head: Head, now: Duration) {
        match self.born {
            None => self.read_all(head.born, None),
            Some(born) if born != head.born => self.read_all(head.born, None),
            Some(_) if head.place < self.place => self.read_all(head.born, Some(self.place)),
            // Removals that this machine has not read are forgotten: it finds them by what is missing.
            Some(_) if head.horizon > self.place => self.read_all(head.born, Some(self.place)),
            Some(_) if head.place > self.place => self.reading = Some(Reading { whole: None }),
            Some(_) => {
                let is_early = self.compared_at.is_some_and(|at| now.saturating_sub(at) < COMPARE_EVERY);
                if Sum::new(head.sum, head.live).less(self.known.sum()) != self.drift && !is_early {
                    self.compared_at = Some(now);
                    self.read_all(head.born, Some(self.place));
                }
            }
        }
    }

    fn read_all(&mut self, born: Option<u128>, before: Option<u64>) {
        self.place = 0;
        self.reading = Some(Reading { whole: Some(Whole { born, before, horizon: 0, seen: HashMap::new() }) });
    }

    /// Reads all again as after a start: what the store has wins over what is in force here.
    pub(super) fn start_over(&mut self) {
        self.known = Default::default();
        self.put_back.clear();
        (self.born, self.reading, self.asked_at) = (None, None, None);
    }

    /// Decisions that the store has behind the place up to which it was read.
    pub(super) fn read(
        &mut self,
        operators: &Operators<'_>,
        head: Head,
        stored: &[Stored],
    ) -> Result<(), ControlError> {
        let Some(reading) = &mut self.reading else { return Ok(()) };
        let (born, before) = match &reading.whole {
            Some(whole) => (whole.born, whole.before),
            None => (self.born.flatten(), Some(self.place)),
        };
        if born != head.born || head.place < self.place {
            // It has lost them in the meantime.
            self.read_all(head.born, before.filter(|_| born == head.born));
            return Ok(());
        }
        // Removals that are forgotten before they were read are found by what is missing, in one reading of all.
        let known = match &mut reading.whole {
            Some(whole) if self.place == 0 => {
                whole.horizon = head.horizon;
                whole.horizon
            }
            Some(whole) => whole.horizon,
            None => 0,
        };
        if head.horizon > self.place.max(known) {
            self.read_all(head.born, before);
            return Ok(());
        }
        self.put_in_force(operators, stored)?;
        let last = stored.last().map_or(head.place, |stored| stored.place);
        self.place = last;
        if last >= head.place
            && let Some(Reading { whole: Some(whole) }) = self.reading.take()
        {
            self.compare(operators, head, whole)?;
        }
        if self.horizon != head.horizon {
            self.horizon = head.horizon;
            self.known.forget_removals(head.horizon);
        }
        Ok(())
    }

    /// Puts in force what is later than what is known. After an error nothing of these is known.
    fn put_in_force(&mut self, operators: &Operators<'_>, stored: &[Stored]) -> Result<(), ControlError> {
        let mut opened = Vec::new();
        for Stored { field, value, .. } in stored {
            let (Some(field), Some((stamp, is_live, sealed))) = (*field, value) else {
                self.problems.found_foreign();
                continue;
            };
            if let Some(Reading { whole: Some(whole) }) = &mut self.reading {
                whole.seen.insert(field, if *is_live { *stamp } else { 0 });
            }
            let known = self.known.stamp(field);
            if *stamp < known {
                self.put_back.insert(field);
            } else if *stamp > known {
                opened.push(self.opened(field, *stamp, *is_live, sealed.clone()));
            }
        }
        self.follow(operators, opened)
    }

    fn opened(&self, field: Field, stamp: u64, is_live: bool, sealed: Box<[u8]>) -> Opened {
        let plain = self.seal.open(field, &sealed);
        let digest = plain.as_ref().map(|plain| self.seal.digest(plain));
        let decision = plain.ok_or_else(|| "it does not open: it was altered".to_owned()).and_then(|plain| {
            Ok(match field {
                Field::Agent(_) => {
                    let (id, assignment) = plain::read_agent(&plain)?;
                    Decision::Agent(id, assignment)
                }
                Field::Policy => {
                    let policy = Policy::from_toml(plain::read_policy(&plain)?).map_err(|error| error.to_string())?;
                    Decision::Policy(policy.into())
                }
            })
        });
        Opened { field, known: Known { stamp, is_live, digest, is_in_force: false, sealed }, decision }
    }

    /// Puts decisions in force, all of them with one write to this machine's file. After an error nothing of these is
    /// known.
    fn follow(&mut self, operators: &Operators<'_>, opened: Vec<Opened>) -> Result<(), ControlError> {
        // The policy is first: plans that are new with it may be assigned in the same step.
        let (policies, others): (Vec<_>, Vec<_>) = opened.into_iter().partition(|opened| opened.field == Field::Policy);
        for opened in policies {
            self.follow_policy(operators, opened);
        }
        let (mut assignments, mut fields) = (Vec::new(), Vec::new());
        for Opened { field, decision, .. } in &others {
            match decision {
                Ok(Decision::Agent(id, assignment)) if !self.waiting.contains(id) => {
                    fields.push(*field);
                    assignments.push((id.clone(), assignment.clone()));
                }
                _ => {}
            }
        }
        let outcomes = if assignments.is_empty() { Vec::new() } else { operators.follow(&assignments)? };
        self.problems.worked();
        for Opened { field, known, decision } in others {
            self.put_back.remove(&field);
            self.known.insert(field, known);
            match decision {
                Err(problem) => self.problems.refuse(field, problem),
                Ok(_) => self.problems.settled(field),
            }
        }
        for ((field, (id, _)), outcome) in fields.into_iter().zip(assignments).zip(outcomes) {
            match outcome {
                Followed::InForce => {
                    self.counts.followed += 1;
                    self.known.set_in_force(field, true);
                }
                // Taken next, and written.
                Followed::ChangedHere => {}
                Followed::Refused(problem) => {
                    let agent: String = String::from_utf8_lossy(&id).chars().flat_map(char::escape_debug).collect();
                    self.problems.refuse(field, format!("agent \"{agent}\": {problem}"));
                }
            }
        }
        Ok(())
    }

    fn follow_policy(&mut self, operators: &Operators<'_>, Opened { field, mut known, decision }: Opened) {
        self.put_back.remove(&field);
        let own = operators.limiter().policy();
        self.problems.settled(field);
        match decision {
            Err(problem) => self.problems.refuse(field, problem),
            Ok(Decision::Policy(policy)) if !self.policy_waits => {
                let (version, is_start) = (policy.version(), self.born.is_none());
                if own.to_toml() == policy.to_toml() {
                    known.is_in_force = true;
                } else if is_start && own.version() > version {
                    self.policy_waits = true;
                } else {
                    match operators.follow_policy(*policy) {
                        Followed::InForce => {
                            known.is_in_force = true;
                            self.counts.followed += 1;
                            if is_start {
                                self.problems.replaced(version);
                            } else {
                                self.problems.policy_changed();
                            }
                            self.try_again();
                        }
                        Followed::ChangedHere => {}
                        Followed::Refused(problem) => self.problems.refuse(field, problem.to_string()),
                    }
                }
            }
            Ok(_) => {}
        }
        self.known.insert(field, known);
    }

    /// All that the store has was read, and is known: what it lacks was lost, or was removed while this machine was
    /// away.
    fn compare(&mut self, operators: &Operators<'_>, head: Head, whole: Whole) -> Result<(), ControlError> {
        let Whole { born, before, seen, .. } = whole;
        let mut sum = Sum::default();
        seen.values().filter(|stamp| **stamp > 0).for_each(|stamp| sum.add(*stamp));
        self.drift = Sum::new(head.sum, head.live).less(sum);
        let was_away = before.is_some_and(|before| before < head.horizon);
        let mut removed = Vec::new();
        for (field, known) in self.known.iter().filter(|(field, _)| !seen.contains_key(field)) {
            if known.is_live && was_away && known.stamp <= head.horizon {
                removed.push(field);
            } else if known.is_live || known.stamp > head.horizon {
                self.put_back.insert(field);
            }
        }
        for fields in removed.chunks(DECISIONS_MAX) {
            if let Err(problem) = self.remove(operators, fields) {
                // From the start again: what was removed must not be put back.
                self.read_all(born, before);
                return Err(problem);
            }
        }
        if self.born.replace(head.born).is_none() {
            self.compare_all(operators, false);
        }
        Ok(())
    }

    /// Makes agents like any others about whom the store has forgotten that nothing is decided.
    fn remove(&mut self, operators: &Operators<'_>, fields: &[Field]) -> Result<(), ControlError> {
        let id = |field: &Field| {
            let plain = self.seal.open(*field, &self.known.get(*field)?.sealed)?;
            let (id, _) = plain::read_agent(&plain).ok()?;
            (!self.waiting.contains(&id)).then_some((id, Assignment::default()))
        };
        let assignments: Vec<_> = fields.iter().filter_map(id).collect();
        operators.follow(&assignments)?;
        for field in fields {
            self.known.remove(*field);
            self.problems.settled(*field);
        }
        Ok(())
    }

    /// Notes what is to be tried again after another policy.
    pub(super) fn try_again(&mut self) {
        self.again = self.problems.fields().filter(|field| *field != Field::Policy).collect();
    }

    /// Tries some of it again. Returns whether this machine could not.
    pub(super) fn try_refused_again(&mut self, operators: &Operators<'_>) -> bool {
        let fields: Vec<_> = self.again.iter().take(DECISIONS_MAX).copied().collect();
        if fields.is_empty() {
            return false;
        }
        let opened = fields.iter().filter(|field| self.problems.is_refused(**field)).filter_map(|field| {
            let Known { stamp, is_live, sealed, .. } = self.known.get(*field)?.clone();
            Some(self.opened(*field, stamp, is_live, sealed))
        });
        let opened = opened.collect();
        if let Err(problem) = self.follow(operators, opened) {
            self.problems.failed(&problem);
            return true;
        }
        self.again.retain(|field| !fields.contains(field));
        false
    }
}
