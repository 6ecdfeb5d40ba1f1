//! The actions of the hub, by channel and tier.

pub(crate) type Tiers = [(&'static str, &'static [&'static str]); 3];

pub(crate) const WS: Tiers = [
    ("light", &["ping", "list_agents", "list_channels", "status", "channel_history"]),
    (
        "normal",
        &[
            "message",
            "channel_publish",
            "channel_subscribe",
            "channel_unsubscribe",
            "task_accepted",
            "task_progress",
            "task_complete",
            "task_failed",
            "task_recovering",
        ],
    ),
    ("heavy", &["identify", "channel_create", "task_submit"]),
];

pub(crate) const HTTP: Tiers = [
    (
        "light",
        &[
            "get_agents",
            "get_channels",
            "get_tasks",
            "get_metrics",
            "get_health",
            "get_mailbox",
            "get_schemas",
            "get_dashboard_state",
        ],
    ),
    (
        "normal",
        &[
            "post_message",
            "post_channel_publish",
            "post_mailbox_ack",
            "get_messages",
            "get_task_detail",
            "get_channel_info",
        ],
    ),
    (
        "heavy",
        &[
            "post_task",
            "post_channel",
            "post_admin_push_task",
            "post_onboard_register",
            "channel_create",
            "task_submit",
        ],
    ),
];
