//! The rules in force, as a tree: which rule is for a descriptor?
//!
//! A descriptor walks down the tree, entry by entry. At each step the value itself comes before wildcards, those in the
//! order of the file, and they come before a rule for any value. There is no way back: if a step matches and the next
//! one does not, the descriptor has no rule. A rule is for descriptors of exactly its length. All that is as in
//! envoyproxy/ratelimit.

use super::agent::{self, Id};
use super::counters::Counters;
use super::wire::Entry;
use super::written::{Rate, Step, WrittenLimit, WrittenRule, label};
use std::collections::HashMap;
use std::sync::Arc;
use tollgate::{CallLimit, LaneId, Limit, Policy};

/// How many rules there may be.
const RULES_MAX: usize = 100_000;

/// How many entries the descriptor of a rule may have.
pub(crate) const STEPS_MAX: usize = 32;

/// All rules, by domain.
#[derive(Debug, Default)]
pub(crate) struct Rules {
    domains: HashMap<String, Domain>,
    /// The lane of the limits that rules and requests bring along.
    pub(super) dynamic: Option<LaneId>,
    /// Nothing is denied.
    pub(super) is_shadow: bool,
}

#[derive(Debug)]
struct Domain {
    root: Node,
    /// What is counted of limits that requests bring along.
    brought: Arc<Counters>,
}

/// Where a descriptor may be after some of its entries.
#[derive(Debug, Default)]
struct Node {
    rule: Option<Rule>,
    next: HashMap<String, Values>,
}

/// The values that an entry of one key may have.
#[derive(Debug, Default)]
struct Values {
    exact: HashMap<String, Node>,
    wild: Vec<Wildcard>,
    any: Option<Box<Node>>,
}

#[derive(Debug)]
struct Wildcard {
    /// As it is written.
    text: String,
    /// All values that match are one agent.
    is_shared: bool,
    node: Node,
}

/// A rule.
#[derive(Debug)]
pub(super) struct Rule {
    pub(super) limit: RuleLimit,
    agent: Option<Vec<String>>,
    /// What it is called in metrics, and, without a name, in answers.
    pub(super) label: String,
    pub(super) name: Option<String>,
    pub(super) replaces: Vec<String>,
    pub(super) is_shadow: bool,
    pub(super) is_quota: bool,
    pub(super) counters: Arc<Counters>,
}

/// What a rule allows.
#[derive(Clone, Copy, Debug)]
pub(super) enum RuleLimit {
    /// Everything; the descriptor is exempt.
    None,
    /// Everything, and Envoy learns that.
    Unlimited,
    Deny,
    Lane(LaneId),
    Own(CallLimit, Option<Rate>),
}

/// The counters of each rule, by domain and label.
pub(crate) type AllCounters = HashMap<(String, String), Arc<Counters>>;

/// The label under which limits are counted that requests bring along.
const BROUGHT: &str = "(request)";

/// Why rules cannot be put in force: the index of the one at fault, where in its text if not at its beginning, and why.
pub(super) type Fault = (usize, Option<std::ops::Range<usize>>, String);

impl Rules {
    /// Rules for the lanes of a policy. Counters of rules that were there before go on counting.
    pub(super) fn new(
        written: &[WrittenRule],
        policy: &Policy,
        lane: &str,
        before: &AllCounters,
    ) -> Result<(Self, AllCounters), Fault> {
        let is_dynamic = |lane: &LaneId| policy.limit(*lane).is_some_and(|limit| limit.is_dynamic());
        let dynamic = policy.lane(lane).filter(is_dynamic);
        let mut rules = Self { domains: HashMap::new(), dynamic, is_shadow: false };
        let mut counters = AllCounters::new();
        let mut counters_of = |domain: &str, label: &str| {
            let key = (domain.to_owned(), label.to_owned());
            let found = before.get(&key).cloned().unwrap_or_default();
            Arc::clone(counters.entry(key).or_insert(found))
        };
        for (index, written) in written.iter().enumerate() {
            let fault = |problem: String| (index, None, problem);
            if index >= RULES_MAX {
                return Err(fault(format!("there are more than {RULES_MAX} rules")));
            }
            let limit = limit_of(written, policy, lane, dynamic).map_err(|(at, problem)| (index, at, problem))?;
            let new = || Domain { root: Node::default(), brought: counters_of(&written.domain, BROUGHT) };
            let node = rules.domains.entry(written.domain.clone()).or_insert_with(new).root.at(&written.steps);
            let node = node.map_err(fault)?;
            if node.rule.is_some() {
                return Err(fault(format!("there are two rules for {}", label(&written.steps))));
            }
            let label = label(&written.steps);
            node.rule = Some(Rule {
                limit,
                agent: written.agent.clone(),
                name: written.name.clone(),
                replaces: written.replaces.clone(),
                is_shadow: written.is_shadow,
                is_quota: written.is_quota,
                counters: counters_of(&written.domain, &label),
                label,
            });
        }
        Ok((rules, counters))
    }

    /// Whether there is a rule.
    pub(super) fn is_empty(&self) -> bool {
        self.domains.is_empty()
    }

    /// The rule for a descriptor, and its agent.
    pub(super) fn find(&self, domain: &str, entries: &[Entry]) -> Option<(&Rule, Vec<u8>)> {
        let mut node = &self.domains.get(domain)?.root;
        let mut id = Id::new();
        id.push(domain);
        for entry in entries {
            let (next, shared) = node.next.get(&entry.key)?.find(&entry.value)?;
            id.push(&entry.key);
            id.push(shared.unwrap_or(&entry.value));
            node = next;
        }
        let rule = node.rule.as_ref()?;
        let agent = match &rule.agent {
            None => id.end(),
            Some(keys) => agent::of_values(keys, entries),
        };
        Some((rule, agent))
    }

    /// The counters of limits that requests of this domain bring along, and the agent of such a descriptor. A domain
    /// without rules has no limits.
    pub(super) fn find_brought(&self, domain: &str, entries: &[Entry]) -> Option<(&Arc<Counters>, Vec<u8>)> {
        let found = self.domains.get(domain)?;
        let mut id = Id::new();
        id.push(domain);
        for Entry { key, value } in entries {
            id.push(key);
            id.push(value);
        }
        Some((&found.brought, id.end()))
    }
}

impl Node {
    /// The node at the end of these steps, made if it is not there.
    fn at(&mut self, steps: &[Step]) -> Result<&mut Self, String> {
        let [step, rest @ ..] = steps else { return Ok(self) };
        let values = self.next.entry(step.key.clone()).or_default();
        let node = match &step.value {
            None => &mut **values.any.get_or_insert_default(),
            Some(value) if value.contains('*') => {
                let index = match values.wild.iter().position(|wild| wild.text == *value) {
                    Some(index) if values.wild[index].is_shared != step.is_shared => {
                        let problem = format!("{value} is shared in one rule and not in another");
                        return Err(problem);
                    }
                    Some(index) => index,
                    None => {
                        let (text, is_shared) = (value.clone(), step.is_shared);
                        values.wild.push(Wildcard { text, is_shared, node: Self::default() });
                        values.wild.len() - 1
                    }
                };
                &mut values.wild[index].node
            }
            Some(value) => values.exact.entry(value.clone()).or_default(),
        };
        node.at(rest)
    }
}

impl Values {
    /// Where a value leads, and the wildcard that stands for it if all its values are one agent.
    fn find(&self, value: &str) -> Option<(&Node, Option<&str>)> {
        if let Some(node) = self.exact.get(value) {
            return Some((node, None));
        }
        match self.wild.iter().find(|wild| matches(&wild.text, value)) {
            Some(wild) => Some((&wild.node, wild.is_shared.then_some(&wild.text))),
            None => self.any.as_deref().map(|node| (node, None)),
        }
    }
}

/// Whether a value matches a wildcard, in which each `*` stands for any text.
fn matches(wildcard: &str, value: &str) -> bool {
    let Some((first, rest)) = wildcard.split_once('*') else { return wildcard == value };
    let (middle, last) = rest.rsplit_once('*').unwrap_or(("", rest));
    let Some(mut left) = value.strip_prefix(first).and_then(|left| left.strip_suffix(last)) else { return false };
    // The first place of each part leaves the most for the others.
    for part in middle.split('*') {
        match left.find(part) {
            Some(at) => left = &left[at + part.len()..],
            None => return false,
        }
    }
    true
}

/// The limit of a rule, checked.
fn limit_of(
    written: &WrittenRule,
    policy: &Policy,
    lane: &str,
    dynamic: Option<LaneId>,
) -> Result<RuleLimit, (Option<std::ops::Range<usize>>, String)> {
    let own = |at: Option<&std::ops::Range<usize>>, limit: RuleLimit| match dynamic {
        Some(_) => Ok(limit),
        None => Err((
            at.cloned(),
            format!("a limit of its own needs a dynamic lane; add {lane:?} = \"dynamic\" under [lanes]"),
        )),
    };
    match &written.limit {
        WrittenLimit::None => Ok(RuleLimit::None),
        WrittenLimit::Unlimited => Ok(RuleLimit::Unlimited),
        WrittenLimit::Deny => Ok(RuleLimit::Deny),
        WrittenLimit::Rate(rate) => {
            let limit = rate.call_limit().map_err(|error| (None, error.to_string()))?;
            own(None, RuleLimit::Own(limit, Some(*rate)))
        }
        WrittenLimit::Text(text, at) => {
            let limit: Limit = text.parse().map_err(|error| (Some(at.clone()), format!("{error}")))?;
            let limit = CallLimit::try_from(limit).map_err(|error| (Some(at.clone()), error.to_string()))?;
            own(Some(at), RuleLimit::Own(limit, None))
        }
        WrittenLimit::Lane(name, at) => {
            let wrong = |problem: String| (Some(at.clone()), problem);
            let names = || policy.lanes().map(|(_, name)| name).collect::<Vec<_>>().join(", ");
            let unknown = || wrong(format!("there is no lane {name:?}; the lanes are {}", names()));
            let lane = policy.lane(name).ok_or_else(unknown)?;
            let limit = policy.limit(lane).unwrap_or(Limit::deny_all());
            if policy.total() == Some(lane) {
                return Err(wrong("the total is charged with every other lane and never alone".to_owned()));
            }
            if limit.is_dynamic() {
                return Err(wrong(format!(
                    "{name:?} is a dynamic lane; write the limit instead: limit = \"5/minute\""
                )));
            }
            if limit.to_string().starts_with("held") {
                return Err(wrong(format!("{name:?} is a held lane, and Envoy would never release its slots")));
            }
            Ok(RuleLimit::Lane(lane))
        }
    }
}

#[cfg(test)]
mod tests;
