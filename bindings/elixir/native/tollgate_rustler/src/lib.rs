//! What a NIF of your own over tollgate needs, with Rustler.
//!
//! ```ignore
//! use rustler::{Atom, Env, NifResult, ResourceArc};
//! use tollgate_rustler::{Agent, Answer, Instance};
//!
//! #[rustler::nif]
//! fn check(instance: ResourceArc<Instance>, agent: Agent<'_>, channel: Atom, tier: Atom) -> NifResult<Answer> {
//!     instance.check(agent, channel, tier)
//! }
//! ```
//!
//! | item | idea |
//! |---|---|
//! | [`Instance`] | a limiter as a resource, with its lanes as the atoms that Elixir calls them by |
//! | [`Agent`] | an argument: a binary of 1 to 256 bytes |
//! | [`Answer`] | a verdict as Elixir sees it: `{:allow, 9}`, `{:deny, 6000}` |
//! | [`argument_error`] | a mistake of the caller, as Elixir raises it |
//!
//! A check takes a fraction of a microsecond and belongs on a normal scheduler. Making an instance reserves its memory:
//! use `schedule = "DirtyCpu"`.

use rustler::types::elixir_struct;
use rustler::{Atom, Binary, Decoder, Encoder, Env, Error, NifResult, Resource, ResourceArc, Term};
use std::fmt::Display;
use tollgate::bounds::ID_BYTES_MAX;
use tollgate::clock::wait_ms;
use tollgate::{Decision, LaneId, Limiter, Policy, Verdict};

mod atoms {
    rustler::atoms! { allow, warn, deny, exempt, infinity, message, nil, __exception__ }
}

/// A limiter that Elixir holds a reference to. It lives until the last one is collected.
pub struct Instance {
    limiter: Limiter,
    lanes: Box<[(Atom, Atom, LaneId)]>,
}

#[rustler::resource_impl]
impl Resource for Instance {}

impl Instance {
    /// Makes a limiter for `agents` agents. A lane `ws/heavy` is known by the atoms `:ws` and `:heavy`, one without a
    /// slash has the channel `nil`.
    ///
    /// # Errors
    ///
    /// [`argument_error`] if the limiter cannot be built.
    pub fn new(env: Env<'_>, policy: Policy, agents: u64) -> NifResult<ResourceArc<Self>> {
        let mut lanes = Vec::with_capacity(policy.lanes().len());
        for (lane, name) in policy.lanes() {
            let (channel, tier) = match name.rsplit_once('/') {
                Some((channel, tier)) => (Atom::from_str(env, channel)?, tier),
                None => (atoms::nil(), name),
            };
            lanes.push((channel, Atom::from_str(env, tier)?, lane));
        }
        let limiter = Limiter::builder(policy).agents(agents).build().map_err(argument_error)?;
        Ok(ResourceArc::new(Self { limiter, lanes: lanes.into() }))
    }

    /// The limiter itself, for every other verb.
    #[must_use]
    pub fn limiter(&self) -> &Limiter {
        &self.limiter
    }

    /// A lane by its atoms.
    ///
    /// # Errors
    ///
    /// [`argument_error`] if the policy does not have it.
    pub fn lane(&self, channel: Atom, tier: Atom) -> NifResult<LaneId> {
        // A policy has a few lanes, and an atom is one word.
        let found = self.lanes.iter().find(|(of, known, _)| *known == tier && *of == channel);
        found.map(|(_, _, lane)| *lane).ok_or_else(|| argument_error("the policy has no such lane"))
    }

    /// May the agent do this on this lane now? Charges the lane if so.
    ///
    /// # Errors
    ///
    /// [`argument_error`] for an unknown lane, and if no record is free for a new agent.
    pub fn check(&self, agent: Agent<'_>, channel: Atom, tier: Atom) -> NifResult<Answer> {
        let lane = self.lane(channel, tier)?;
        self.limiter.check(agent.bytes(), lane).map(Answer).map_err(argument_error)
    }
}

/// An agent as an argument: a binary of 1 to 256 bytes. Anything else is an `ArgumentError`.
#[derive(Clone, Copy)]
pub struct Agent<'a>(&'a [u8]);

impl<'a> Agent<'a> {
    /// The id.
    #[must_use]
    pub fn bytes(self) -> &'a [u8] {
        self.0
    }
}

impl<'a> Decoder<'a> for Agent<'a> {
    fn decode(term: Term<'a>) -> NifResult<Self> {
        let bytes = Binary::from_term(term)?.as_slice();
        if (1..=ID_BYTES_MAX).contains(&bytes.len()) { Ok(Self(bytes)) } else { Err(Error::BadArg) }
    }
}

/// A verdict as Elixir sees it: `{:allow, remaining}`, `{:warn, remaining}`, `{:deny, milliseconds | :infinity}` or
/// `{:allow, :exempt}`.
#[derive(Clone, Copy, Debug)]
pub struct Answer(pub Verdict);

impl Encoder for Answer {
    fn encode<'a>(&self, env: Env<'a>) -> Term<'a> {
        let verdict = &self.0;
        match verdict.decision() {
            Decision::Allow => (atoms::allow(), verdict.remaining()).encode(env),
            Decision::Warn => (atoms::warn(), verdict.remaining()).encode(env),
            Decision::Exempt => (atoms::allow(), atoms::exempt()).encode(env),
            _ => match verdict.retry_after() {
                Some(wait) => (atoms::deny(), wait_ms(Some(wait), 1, 0)).encode(env),
                None => (atoms::deny(), atoms::infinity()).encode(env),
            },
        }
    }
}

/// A mistake of the caller, as an `ArgumentError` with this message.
pub fn argument_error(problem: impl Display) -> Error {
    Error::RaiseTerm(Box::new(ArgumentError(problem.to_string())))
}

struct ArgumentError(String);

impl Encoder for ArgumentError {
    fn encode<'a>(&self, env: Env<'a>) -> Term<'a> {
        let fields = elixir_struct::make_ex_struct(env, "Elixir.ArgumentError")
            .and_then(|error| error.map_put(atoms::__exception__(), true))
            .and_then(|error| error.map_put(atoms::message(), &self.0));
        // Only a term that is no map refuses a key, and this one is a map.
        fields.unwrap_or_else(|_| self.0.encode(env))
    }
}
