//! A policy as a TOML file: [`Policy::from_toml`] and [`Policy::to_toml`].
//!
//! `read.rs` and `write.rs` are the two directions, `error.rs` is what is wrong
//! with a file, and `location.rs` where.

mod error;
mod location;
mod read;
mod write;

pub use error::ConfigError;

use super::Policy;

impl Policy {
    /// Reads a policy from the text of a TOML file. Needs the feature `config`.
    ///
    /// ```
    /// use tollgate::{Limit, Policy};
    ///
    /// let policy = Policy::from_toml(r#"
    ///     preset = "hub"             # start from a preset; without it, from nothing
    ///     on_change = "keep"         # or "reset"
    ///     warn_below_percent = 20
    ///     warn_again_percent = 40    # warn once, and again only after this share was left
    ///     exempt = ["dashboard"]     # never limited
    ///     unknown_actions_to = "normal"
    ///     outside_total = ["ws/light"]   # a plan's total does not count these
    ///
    ///     [lanes]                    # every lane and its limit
    ///     "ws/light" = "600/min burst 100"
    ///
    ///     [plans.pro]                # the lanes whose limits differ in this plan
    ///     "ws/light" = "1200/min"
    ///     total = "2000/min"         # over all lanes; under [lanes] for all plans
    ///
    ///     [actions.ws]               # tier = [actions]: here those of ws/light
    ///     light = ["ping", "status", "whoami"]
    ///
    ///     [conduct]
    ///     curve = ["1s", "2s", "5s", "10s", "30s"]
    ///     quiet = "60s"
    ///     abuse = { violations = 10, within = "5min" }
    ///     every_denial = true        # otherwise only those before a wait is over
    ///     enforce_wait = false       # whether the wait after a violation is a block
    /// "#)?;
    /// let light = policy.lane("ws/light").expect("a lane of the preset");
    /// let pro = policy.plan("pro").expect("named in the file");
    /// assert_eq!(policy.limit(light), Some(Limit::per_minute(600).burst(100)));
    /// assert_eq!(policy.plan_limit(pro, light), Some(Limit::per_minute(1_200)));
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    ///
    /// Every key is optional. Its default is the preset's value, or that of
    /// [`builder`](Policy::builder). A file changes its preset and adds to it,
    /// but removes nothing: a lane or plan of the preset gets the limits in the
    /// file, a new one comes after those of the preset, and an action moves to
    /// the lane that the file names. A new name that differs from one of the
    /// preset's by one letter is refused as a typo. The tables `server`
    /// and `shared` are for the server, which reads the same file, and are
    /// ignored here.
    ///
    /// # Errors
    ///
    /// The first mistake: where it is, the value, what is allowed, and the name
    /// that was probably meant.
    ///
    /// ```
    /// # use tollgate::Policy;
    /// let error = Policy::from_toml("[lanes]\n\"ws/light\" = \"0/min\"").unwrap_err();
    /// assert_eq!((error.line(), error.column()), (2, 14));
    /// assert_eq!(error.to_string(), r#"
    /// line 2, column 14: lane "ws/light": a rate or burst of 0; give at least 1, or "deny" to let nothing through
    ///   |
    /// 2 | "ws/light" = "0/min"
    ///   |              ^^^^^^^
    /// "#.trim());
    /// ```
    pub fn from_toml(text: &str) -> Result<Policy, ConfigError> {
        read::policy(text)
    }

    /// Writes the whole policy as the text of a TOML file, without a preset.
    /// [`from_toml`](Policy::from_toml) reads the same policy back. Needs the
    /// feature `config`.
    ///
    /// ```
    /// use tollgate::Policy;
    ///
    /// let policy = Policy::preset("platform")?;
    /// let text = policy.to_toml();
    /// assert!(text.contains("\"http/executions\" = \"20/minute burst 40\""));
    /// assert_eq!(Policy::from_toml(&text)?, policy);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn to_toml(&self) -> String {
        write::Toml(self).to_string()
    }

    /// Whether the text reads back as this very policy.
    #[cfg(feature = "shared")]
    pub(crate) fn is_read_from(&self, text: &str) -> bool {
        Self::from_toml(text).is_ok_and(|read| read == *self)
    }
}
