//! Which lane a request is on, and which requests bypass the limiter.

use crate::address::{Client, Networks};
use crate::head::Head;
use crate::route::{Routes, has_prefix, is_plain};
use std::slice;
use tollgate::LaneId;

/// Requests that bypass the limiter.
#[derive(Default)]
pub(crate) struct Bypass {
    pub(crate) networks: Networks,
    pub(crate) routes: Routes<()>,
    pub(crate) prefixes: Vec<String>,
}

/// Which lane a request is on.
pub(crate) struct Lanes {
    pub(crate) names: Vec<String>,
    pub(crate) routes: Routes<LaneId>,
    /// Texts in paths, searched in this order.
    pub(crate) substrings: Vec<(String, LaneId)>,
    /// The lane of all other requests; `None` lets them pass.
    pub(crate) others: Option<LaneId>,
}

impl Bypass {
    pub(crate) fn contains(&self, head: &Head<'_>, client: Option<Client>) -> bool {
        // Any client may be behind a proxy that is not trusted.
        if client.is_some_and(|client| client.is_certain && self.networks.contains(client.address)) {
            return true;
        }
        let path = head.uri.path();
        let is_listed =
            self.routes.at(head.method, path).is_some() || self.prefixes.iter().any(|prefix| has_prefix(path, prefix));
        is_listed && is_plain(path)
    }
}

impl Lanes {
    /// The lane of a request; empty if it passes without a limit.
    pub(crate) fn of(&self, head: &Head<'_>) -> &[LaneId] {
        let path = head.uri.path();
        let mut substrings = self.substrings.iter();
        let by_substring = || substrings.find(|(text, _)| path.contains(text.as_str())).map(|(_, lane)| lane);
        let lane = self.routes.at(head.method, path).or_else(by_substring).or(self.others.as_ref());
        lane.map_or(&[], slice::from_ref)
    }

    /// The name of a lane of the limiter.
    pub(crate) fn name(&self, lane: LaneId) -> &str {
        self.names.get(lane.number() as usize).map_or("", String::as_str)
    }
}
