//! Ready-made policies, and where each of their numbers comes from.
//!
//! [`Policy::preset`] builds one by name. A policy file can start from one and
//! change what differs.
//!
//! ```
//! use tollgate::{Limit, Policy};
//!
//! let policy = Policy::preset("hub")?;
//! let heavy = policy.lane("ws/heavy").expect("a lane of the preset");
//! assert_eq!(policy.limit(heavy), Some(Limit::per_minute(10)));
//! # Ok::<(), tollgate::preset::UnknownPreset>(())
//! ```
//!
//! Each is also a policy file, `presets/<name>.toml`, with the reasons beside the
//! numbers; the test `a_preset_is_its_file` compares the two. Here they are
//! written in Rust, since the default build has no TOML parser. What a file leaves
//! out has its default: the rules of conduct are those of [`ConductRules`], waits
//! are the lanes' own, and a changed limit keeps an agent's debt.
//!
//! # `hub`
//!
//! ```toml
#![doc = include_str!("../../presets/hub.toml")]
//! ```
//!
//! # `platform`
//!
//! ```toml
#![doc = include_str!("../../presets/platform.toml")]
//! ```
//!
//! # `adr`
//!
//! ```toml
#![doc = include_str!("../../presets/adr.toml")]
//! ```
//!
//! # `citizen`
//!
//! ```toml
#![doc = include_str!("../../presets/citizen.toml")]
//! ```
//!
//! # `standard`
//!
//! ```toml
#![doc = include_str!("../../presets/standard.toml")]
//! ```

use super::nearest::did_you_mean;
use super::plan::OnChange;
use super::{ConductRules, Policy, PolicyBuilder};
use std::fmt;
use std::time::Duration;

impl Policy {
    /// The names of the presets.
    pub const PRESETS: [&'static str; 5] = ["adr", "citizen", "hub", "platform", "standard"];

    /// The ready-made policy of this name. [`preset`](crate::preset) describes
    /// each and where its numbers come from.
    ///
    /// ```
    /// use tollgate::Policy;
    ///
    /// assert!(Policy::preset("standard").is_ok());
    /// assert_eq!(
    ///     Policy::preset("hubs").unwrap_err().to_string(),
    ///     r#"there is no preset "hubs"; did you mean "hub"? There are adr, citizen, hub, platform and standard"#,
    /// );
    /// ```
    ///
    /// # Errors
    ///
    /// There is no such preset.
    pub fn preset(name: &str) -> Result<Policy, UnknownPreset> {
        let preset = builder(name).ok_or_else(|| UnknownPreset::new(name))?;
        Ok(preset.build().expect("a preset is valid: the tests build every one"))
    }
}

/// A preset before it is built, so that a file can change it.
pub(super) fn builder(name: &str) -> Option<PolicyBuilder> {
    match name {
        "adr" => Some(adr()),
        "citizen" => Some(citizen()),
        "hub" => Some(hub()),
        "platform" => Some(platform()),
        "standard" => Some(standard()),
        _ => None,
    }
}

fn hub() -> PolicyBuilder {
    Policy::builder()
        .lane("ws/light", "120/minute")
        .lane("ws/normal", "60/minute")
        .lane("ws/heavy", "10/minute")
        .lane("http/light", "120/minute")
        .lane("http/normal", "60/minute")
        .lane("http/heavy", "10/minute")
        .plan(
            "unauthenticated",
            [("http/light", "60/minute"), ("http/normal", "60/minute"), ("http/heavy", "5/minute")],
        )
        .actions("ws", "light", ["ping", "list_agents", "list_channels", "status", "channel_history"])
        .actions("ws", "normal", ["message", "channel_publish", "channel_subscribe", "channel_unsubscribe"])
        .actions("ws", "normal", ["task_accepted", "task_progress", "task_complete", "task_failed", "task_recovering"])
        .actions("ws", "heavy", ["identify", "channel_create", "task_submit"])
        .actions("http", "light", ["get_agents", "get_channels", "get_tasks", "get_metrics", "get_health"])
        .actions("http", "light", ["get_mailbox", "get_schemas", "get_dashboard_state"])
        .actions("http", "normal", ["post_message", "post_channel_publish", "post_mailbox_ack"])
        .actions("http", "normal", ["get_messages", "get_task_detail", "get_channel_info"])
        .actions("http", "heavy", ["post_task", "post_channel", "post_admin_push_task", "post_onboard_register"])
        .actions("http", "heavy", ["channel_create", "task_submit"])
        .on_change(OnChange::Reset)
        .conduct(ConductRules::default().with_curve([1, 2, 5, 10, 30].map(Duration::from_secs)).with_every_denial(true))
        .exempt(["dashboard"])
}

fn platform() -> PolicyBuilder {
    let plan = |requests, executions, tokens, connections| {
        [
            ("total", requests),
            ("http/default", requests),
            ("http/executions", executions),
            ("llm/tokens", tokens),
            ("ws/connections", connections),
        ]
    };
    Policy::builder()
        .lane("http/default", "100/minute burst 200")
        .lane("http/auth", "10/minute burst 20")
        .lane("http/read", "100/minute burst 200")
        .lane("http/write", "50/minute burst 100")
        .lane("http/executions", "20/minute burst 40")
        .lane("http/webhooks", "1000/minute burst 2000")
        .lane("http/admin", "20/minute burst 40")
        .lane("http/refresh", "30/minute")
        .lane("http/list_agents", "100/minute")
        .lane("http/create_agent", "10/minute")
        .lane("http/login", "exact 5/minute")
        .lane("http/register", "exact 3/minute")
        .lane("http/forgot_password", "exact 3/5min")
        .lane("llm/tokens", "budget 10_000/day")
        .lane("ws/connections", "held 1")
        .outside_total(["llm/tokens", "http/webhooks"])
        .plan("free", plan("20/minute", "5/minute burst 10", "budget 10_000/day", "held 1"))
        .plan("starter", plan("100/minute", "20/minute burst 40", "budget 100_000/day", "held 3"))
        .plan("pro", plan("500/minute", "100/minute burst 200", "budget 1_000_000/day", "held 10"))
        .plan("team", plan("2000/minute", "500/minute burst 1000", "budget 5_000_000/day", "held 50"))
        .plan("enterprise", plan("2000/minute", "500/minute burst 1000", "budget 5_000_000/day", "held 50"))
        .actions("http", "login", ["post_auth_login"])
        .actions("http", "register", ["post_auth_register"])
        .actions("http", "forgot_password", ["post_auth_forgot_password"])
        .actions("http", "refresh", ["post_auth_refresh"])
        .actions("http", "list_agents", ["get_agents"])
        .actions("http", "create_agent", ["post_agents"])
        .actions("http", "executions", ["post_agents_run", "post_agents_run_stream"])
        .unknown_actions_to("default")
}

fn adr() -> PolicyBuilder {
    Policy::builder()
        .lane("http/requests", "2/second burst 10")
        .lane("http/auth", "5/minute")
        .plan("jwt", [("http/requests", "20/second burst 100")])
        .plan("api_key", [("http/requests", "10/second burst 50")])
        .plan("unauthenticated", [("http/requests", "2/second burst 10")])
}

fn citizen() -> PolicyBuilder {
    Policy::builder()
        .lane("http/read", "100/minute burst 150")
        .lane("http/write", "exact 20/minute")
        .lane("http/auth", "exact 5/5min")
        .lane("ws/message", "10/second burst 20")
        .warn_below_percent(0)
}

fn standard() -> PolicyBuilder {
    Policy::builder()
        .lane("http/read", "10/second burst 100")
        .lane("http/write", "2/second burst 20")
        .lane("http/heavy", "10/minute burst 5")
        .lane("http/auth", "5/minute")
        .lane("ws/message", "10/second burst 20")
        .plan(
            "unauthenticated",
            [
                ("http/read", "2/second burst 40"),
                ("http/write", "10/minute burst 5"),
                ("http/heavy", "2/minute"),
                ("ws/message", "1/second burst 5"),
            ],
        )
        .plan(
            "trusted",
            [
                ("http/read", "100/second burst 1000"),
                ("http/write", "20/second burst 200"),
                ("http/heavy", "100/minute burst 50"),
                ("ws/message", "100/second burst 200"),
            ],
        )
        .actions("http", "read", ["GET", "HEAD", "OPTIONS"])
        .actions("http", "write", ["POST", "PUT", "PATCH", "DELETE"])
        .unknown_actions_to("write")
}

/// There is no preset of this name. The message lists the presets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownPreset {
    name: String,
}

impl UnknownPreset {
    pub(super) fn new(name: &str) -> Self {
        Self { name: name.chars().take(80).collect() }
    }

    /// The name as given, its first 80 characters.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl fmt::Display for UnknownPreset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [others @ .., last] = Policy::PRESETS;
        let meant = did_you_mean(&self.name, Policy::PRESETS);
        let next = if meant.is_empty() { "; there are" } else { " There are" };
        write!(f, "there is no preset {:?}{meant}{next} {} and {last}", self.name, others.join(", "))
    }
}

impl std::error::Error for UnknownPreset {}
