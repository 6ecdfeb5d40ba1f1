//! A NIF of one's own: copy it, and add what your Rust does.

use rustler::{Atom, Env, NifResult, ResourceArc};
use tollgate::Policy;
use tollgate_rustler::{Agent, Answer, Instance, argument_error};

/// A limiter with these lanes: `[{"ws/heavy", "10/minute"}]`.
#[rustler::nif(schedule = "DirtyCpu")]
fn new(env: Env<'_>, agents: u64, lanes: Vec<(String, String)>) -> NifResult<ResourceArc<Instance>> {
    let policy = lanes.iter().fold(Policy::builder(), |policy, (name, limit)| policy.lane(name, limit.as_str()));
    Instance::new(env, policy.build().map_err(argument_error)?, agents)
}

/// May the agent do this now?
#[rustler::nif]
fn check(instance: ResourceArc<Instance>, agent: Agent<'_>, channel: Atom, tier: Atom) -> NifResult<Answer> {
    instance.check(agent, channel, tier)
}

/// Panics, to show that the VM goes on: Rustler turns it into an exception.
#[rustler::nif]
fn panic() -> Atom {
    panic!("a test asked for this panic")
}

rustler::init!("Elixir.Tollgate.RustlerExample");
