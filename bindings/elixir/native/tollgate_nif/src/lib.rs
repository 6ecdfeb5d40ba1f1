//! A limiter as a NIF, with Rustler.
//!
//! It has what a check needs and no more. The package itself uses the C header
//! (`c_src`): that is cheaper per check, and can be loaded over itself.

use rustler::{Atom, Binary, Error, NifResult, Resource, ResourceArc};
use tollgate::clock::wait_ms;
use tollgate::{Decision, LaneId, Limiter, Policy};

mod atoms {
    rustler::atoms! { allow, warn, deny, exempt, ws, http, light, normal, heavy, full }
}

struct Instance {
    limiter: Limiter,
    lanes: [(Atom, Atom, LaneId); 6],
}

#[rustler::resource_impl]
impl Resource for Instance {}

/// What is left, or the wait in milliseconds; or that no limit applies.
#[derive(rustler::NifUntaggedEnum)]
enum Detail {
    Number(u64),
    Word(Atom),
}

/// A limiter with the lanes of the hub, each with this limit.
#[rustler::nif(schedule = "DirtyCpu")]
fn new(agents: u64, limit: &str) -> NifResult<ResourceArc<Instance>> {
    let names = ["ws/light", "ws/normal", "ws/heavy", "http/light", "http/normal", "http/heavy"];
    let policy = names.iter().fold(Policy::builder(), |policy, name| policy.lane(*name, limit));
    let policy = policy.build().map_err(raise)?;
    let limiter = Limiter::builder(policy).agents(agents).build().map_err(raise)?;
    let lane = |channel: Atom, tier: Atom, name: &str| {
        limiter.lane(name).map(|lane| (channel, tier, lane)).ok_or(Error::BadArg)
    };
    let lanes = [
        lane(atoms::ws(), atoms::light(), "ws/light")?,
        lane(atoms::ws(), atoms::normal(), "ws/normal")?,
        lane(atoms::ws(), atoms::heavy(), "ws/heavy")?,
        lane(atoms::http(), atoms::light(), "http/light")?,
        lane(atoms::http(), atoms::normal(), "http/normal")?,
        lane(atoms::http(), atoms::heavy(), "http/heavy")?,
    ];
    Ok(ResourceArc::new(Instance { limiter, lanes }))
}

#[rustler::nif]
fn check(instance: ResourceArc<Instance>, agent: Binary<'_>, channel: Atom, tier: Atom) -> NifResult<(Atom, Detail)> {
    let known = instance.lanes.iter().find(|(known, of, _)| *of == tier && *known == channel);
    let (_, _, lane) = known.ok_or(Error::BadArg)?;
    let verdict = instance.limiter.check(agent.as_slice(), *lane).map_err(raise)?;
    Ok(match verdict.decision() {
        Decision::Allow => (atoms::allow(), Detail::Number(verdict.remaining())),
        Decision::Warn => (atoms::warn(), Detail::Number(verdict.remaining())),
        Decision::Exempt => (atoms::allow(), Detail::Word(atoms::exempt())),
        _ => (atoms::deny(), Detail::Number(wait_ms(verdict.retry_after(), 1_000, 60_000))),
    })
}

/// Costs nothing but the call.
#[rustler::nif]
fn nothing() -> Atom {
    rustler::types::atom::ok()
}

/// Panics, to show that the VM goes on: Rustler turns it into an exception.
#[rustler::nif]
#[expect(clippy::panic, reason = "it is what the function is for")]
fn panic() -> Atom {
    panic!("a test asked for this panic")
}

fn raise(problem: impl ToString) -> Error {
    Error::RaiseTerm(Box::new(problem.to_string()))
}

rustler::init!("Elixir.Tollgate.RustlerExample");
