//! What operators change here and on other machines.

use crate::control::{Changed, Control, ControlError, Followed};
use crate::engine::Assignment;
use crate::limiter::Limiter;
use crate::policy::Policy;

/// A limiter's side of what operators decide: what they change here comes out, and what they change on other machines
/// goes in. One engine at a time uses it.
///
/// ```
/// use tollgate::cluster::{Cluster, Followed, Operators};
/// use tollgate::{Assignment, Limiter, Policy};
///
/// let policy = Policy::builder().lane("api", "20/min").build()?;
/// let limiter = Limiter::builder(policy).agents(1_000).cluster(Cluster::new([7; 16])).build()?;
/// let operators = Operators::of(&limiter).expect("it has a cluster");
///
/// limiter.exempt("probe")?; // This has to follow to the other machines...
/// let changed = operators.changed()?.expect("something was changed");
/// assert!(changed.agents.contains(b"probe".as_slice()));
///
/// let mut assignment = Assignment::default();
/// assignment.set_override("api", "100/min".parse()?);
/// let followed = operators.follow(&[(b"agent-7".as_slice().into(), assignment)])?; // ... and this comes from one.
/// assert!(matches!(followed[..], [Followed::InForce]));
/// assert_eq!(operators.changed()?, None);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy)]
pub struct Operators<'a>(&'a Limiter);

impl<'a> Operators<'a> {
    /// That of a limiter. `None` unless it was built with [`cluster`](crate::LimiterBuilder::cluster).
    #[must_use]
    pub fn of(limiter: &'a Limiter) -> Option<Self> {
        limiter.engine.has_asks().then_some(Self(limiter))
    }

    /// Takes the names of what operators have changed on this machine since the last call, or since the limiter was
    /// built; `None` if that is nothing. As long as nothing has changed it takes no lock.
    ///
    /// # Errors
    ///
    /// [`ControlError::Forked`]: this process was forked in the midst of a change.
    pub fn changed(&self) -> Result<Option<Changed>, ControlError> {
        self.control().take_changed()
    }

    /// Puts assignments in force that were made on other machines, and keeps them in this limiter's file if it has one.
    /// They are not [`changed`](Self::changed) here. Each counts for itself, and so does its outcome.
    ///
    /// # Errors
    ///
    /// The file could not be written, so nothing of this call is in force; or [`ControlError::Forked`].
    pub fn follow(&self, assignments: &[(Box<[u8]>, Assignment)]) -> Result<Vec<Followed>, ControlError> {
        self.control().follow(assignments)
    }

    /// Puts a policy in force that was put in force on another machine, as [`replace_policy`](Limiter::replace_policy)
    /// does.
    #[must_use = "it may have been refused"]
    pub fn follow_policy(&self, policy: Policy) -> Followed {
        self.control().follow_policy(policy)
    }

    /// The secret key of the cluster, which the limiter was built with.
    #[must_use]
    pub fn key(&self) -> [u8; 16] {
        self.0.engine.cluster_key().unwrap_or_default()
    }

    /// The limiter.
    #[must_use]
    pub const fn limiter(&self) -> &'a Limiter {
        self.0
    }

    fn control(&self) -> Control<'a> {
        self.0.control()
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
