//! Lists of agents: the query, and a page of the answer.

use super::AgentView;
use crate::bounds::PAGE_MAX;

/// Which agents to list, in which order; see [`Limiter::agents`](crate::Limiter::agents).
///
/// ```
/// use tollgate::observe::{AgentQuery, AgentSort};
///
/// let busiest = AgentQuery::new().prefix("user:").sort(AgentSort::Usage).per_page(20);
/// let next = busiest.clone().page(1);
/// # let _ = next;
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct AgentQuery {
    prefix: Vec<u8>,
    contains: Vec<u8>,
    pub(crate) sort: AgentSort,
    pub(crate) page: usize,
    pub(crate) per_page: usize,
}

/// In which order agents are listed. Ties are listed by id.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AgentSort {
    /// By id, byte by byte.
    #[default]
    Id,
    /// Agents whose dominant lane is nearest to its limit come first.
    Usage,
    /// Agents with the most violations in the present window come first.
    Violations,
}

impl Default for AgentQuery {
    fn default() -> Self {
        Self { prefix: Vec::new(), contains: Vec::new(), sort: AgentSort::default(), page: 0, per_page: PAGE_MAX }
    }
}

impl AgentQuery {
    /// All agents by id, the first page of [`PAGE_MAX`].
    pub fn new() -> Self {
        Self::default()
    }

    /// Lists only agents whose id begins with these bytes.
    pub fn prefix(mut self, prefix: impl AsRef<[u8]>) -> Self {
        self.prefix = prefix.as_ref().to_vec();
        self
    }

    /// Lists only agents whose id contains these bytes.
    pub fn contains(mut self, part: impl AsRef<[u8]>) -> Self {
        self.contains = part.as_ref().to_vec();
        self
    }

    /// Lists them in this order.
    pub fn sort(mut self, sort: AgentSort) -> Self {
        self.sort = sort;
        self
    }

    /// Returns this page; the first is 0.
    pub fn page(mut self, page: usize) -> Self {
        self.page = page;
        self
    }

    /// How many agents a page has: 1 to [`PAGE_MAX`]. Values outside are clamped.
    pub fn per_page(mut self, agents: usize) -> Self {
        self.per_page = agents.clamp(1, PAGE_MAX);
        self
    }

    pub(crate) fn matches(&self, id: &[u8]) -> bool {
        let contains = |part: &[u8]| part.is_empty() || id.windows(part.len()).any(|window| window == part);
        id.starts_with(&self.prefix) && contains(&self.contains)
    }
}

/// A page of a list of agents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct AgentPage {
    /// The agents of the page.
    pub agents: Vec<ListedAgent>,
    /// How many agents match, on all pages.
    pub matched: u64,
    /// How many agents could be listed.
    pub listed: u64,
    /// How many agents have a record but cannot be listed, because there is no
    /// roster or it is too small.
    pub not_listed: u64,
}

/// An agent of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ListedAgent {
    /// Its id.
    pub id: Vec<u8>,
    /// Its state.
    pub view: AgentView,
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn ids_match_by_their_start_and_by_a_part() {
        let ids: [&[u8]; 5] = [b"user:1", b"user:12", b"ip:1", b"\xff\x00", b"u"];
        let matching = |query: AgentQuery| ids.map(|id| query.matches(id));
        assert_eq!(matching(AgentQuery::new()), [true; 5]);
        assert_eq!(matching(AgentQuery::new().prefix("user:")), [true, true, false, false, false]);
        assert_eq!(matching(AgentQuery::new().contains(":1")), [true, true, true, false, false]);
        assert_eq!(matching(AgentQuery::new().prefix("user").contains("2")), [false, true, false, false, false]);
        assert_eq!(matching(AgentQuery::new().contains([0])), [false, false, false, true, false]);
        assert_eq!(matching(AgentQuery::new().contains([b'u'; 300])), [false; 5]);
    }

    #[test]
    fn a_page_has_one_to_two_hundred_agents() {
        assert_eq!([0, 1, 200, 201].map(|agents| AgentQuery::new().per_page(agents).per_page), [1, 1, 200, 200]);
    }
}
