//! How a limiter is built, and what is found in it by name.

use crate::arguments::{Whole, wrong_type};
use crate::clock::ManualClock;
use crate::engine::Attached;
use crate::errors::{Class, of_build, of_call, raise};
use crate::lane::{Lane, Plan};
use crate::redis::Redis;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyInt, PyString};
use std::path::PathBuf;
use std::sync::Arc;
use tollgate::observe::Observe;
use tollgate::shared::Shared;
use tollgate::{Clock, IdHash, LaneId, LimiterBuilder, OnFull, Policy};

/// An exact rate limiter for a fixed number of agents. Any number of threads may use it at once.
#[pyclass(frozen, module = "tollgate_limiter")]
pub(crate) struct Limiter(pub(crate) Arc<tollgate::Limiter>, pub(crate) Option<Arc<Attached>>);

/// One of these words.
pub(crate) fn choose<T: Copy>(what: &str, word: &str, known: &[(&str, T)]) -> PyResult<T> {
    known.iter().find(|(name, _)| *name == word).map(|(_, value)| *value).ok_or_else(|| {
        let known: Vec<_> = known.iter().map(|(name, _)| format!("{name:?}")).collect();
        PyValueError::new_err(format!("{what} is one of {}, not {word:?}", known.join(", ")))
    })
}

fn clock(given: &Bound<'_, PyAny>) -> PyResult<Option<Clock>> {
    if let Ok(manual) = given.cast::<ManualClock>() {
        return Ok(Some(manual.get().0.clone().into()));
    }
    let Ok(word) = given.cast::<PyString>() else {
        return Err(wrong_type("a clock is a str or a ManualClock", given.as_borrowed()));
    };
    type Make = fn() -> Clock;
    let known: [(&str, Option<Make>); 4] =
        [("auto", None), ("os", Some(Clock::os)), ("coarse", Some(Clock::coarse)), ("boottime", Some(Clock::boottime))];
    Ok(choose("a clock", word.to_str()?, &known)?.map(|make| make()))
}

/// The names, for messages.
fn listed<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ")
}

fn built(py: Python<'_>, builder: LimiterBuilder) -> PyResult<Limiter> {
    py.detach(|| builder.build()).map(|limiter| Limiter(Arc::new(limiter), None)).map_err(of_build)
}

impl Limiter {
    pub(crate) fn lane_of_id(&self, id: LaneId) -> Lane {
        Lane { limiter: Arc::clone(&self.0), id, _engine: self.1.clone() }
    }

    /// A lane by its name or its number.
    pub(crate) fn lane_id(policy: &Policy, lane: &Bound<'_, PyAny>) -> PyResult<LaneId> {
        if let Ok(name) = lane.cast::<PyString>() {
            let name = name.to_str()?;
            return policy.lane(name).ok_or_else(|| {
                let known = listed(policy.lanes().map(|(_, name)| name));
                raise(Class::Request, "unknown_lane", format!("there is no lane {name:?}; the lanes are {known}"))
            });
        }
        if !lane.is_instance_of::<PyInt>() {
            return Err(wrong_type("a lane is its name or its number", lane.as_borrowed()));
        }
        let (Whole(number), lanes) = (lane.extract()?, policy.lanes().len() as u32);
        let number = u32::try_from(number).unwrap_or(u32::MAX);
        match number < lanes {
            true => Ok(LaneId::new(number)),
            false => Err(of_call(tollgate::Error::UnknownLane { lane: number, lanes })),
        }
    }
}

#[pymethods]
impl Limiter {
    /// A limiter with this policy: a preset's name, TOML text, a pathlib.Path or a dict.
    #[new]
    #[pyo3(signature = (policy, *, agents=None, clock=None, shared=None, shared_mode=None, on_full=None, id_hash=None,
        reservations=None, reservations_per_agent=None, prefault=false, observe=false, roster=None, sample_every=None,
        redis=None))]
    #[expect(clippy::too_many_arguments, reason = "keywords of Python")]
    fn new(
        py: Python<'_>,
        policy: &Bound<'_, PyAny>,
        agents: Option<Whole>,
        clock: Option<&Bound<'_, PyAny>>,
        shared: Option<PathBuf>,
        shared_mode: Option<Whole>,
        on_full: Option<&str>,
        id_hash: Option<&str>,
        reservations: Option<Whole>,
        reservations_per_agent: Option<Whole>,
        prefault: bool,
        observe: bool,
        roster: Option<Whole>,
        sample_every: Option<Whole>,
        redis: Option<&Bound<'_, Redis>>,
    ) -> PyResult<Self> {
        let mut builder = tollgate::Limiter::builder(crate::policy::policy(policy)?).prefault(prefault);
        if let Some(Whole(agents)) = agents {
            builder = builder.agents(agents);
        }
        if let Some(clock) = clock.map(self::clock).transpose()?.flatten() {
            builder = builder.clock(clock);
        }
        if let Some(word) = on_full {
            builder = builder.on_full(choose("on_full", word, &[("evict", OnFull::Evict), ("deny", OnFull::Deny)])?);
        }
        if let Some(word) = id_hash {
            let known = [("multilinear", IdHash::Multilinear), ("siphash13", IdHash::SipHash13)];
            builder = builder.hash(choose("id_hash", word, &known)?);
        }
        if let Some(reservations) = reservations {
            builder = builder.reservations(reservations.to("a number of reservations")?);
        }
        if let Some(most) = reservations_per_agent {
            builder = builder.reservations_per_agent(most.to("a number of reservations")?);
        }
        match (observe, roster, sample_every) {
            (true, roster, checks) => {
                let roster = roster.unwrap_or(Whole(0)).to("a roster")?;
                let checks = checks.unwrap_or(Whole(0)).to("sample_every")?;
                builder = builder.observe(Observe::new().roster(roster).sample_every(checks));
            }
            (false, None, None) => {}
            _ => return Err(PyValueError::new_err("roster and sample_every need observe=True")),
        }
        match (shared, shared_mode) {
            (Some(path), None) => builder = builder.shared(path),
            (Some(path), Some(mode)) => builder = builder.shared(Shared::at(path).mode(mode.to("a mode")?)),
            (None, None) => {}
            (None, Some(_)) => return Err(PyValueError::new_err("shared_mode needs shared")),
        }
        let Some(redis) = redis.map(Bound::get) else { return built(py, builder) };
        let limiter = built(py, builder.cluster(redis.cluster.clone()))?.0;
        let attached = Attached::start(py, redis.engine.clone(), &limiter)?;
        Ok(Self(limiter, Some(attached)))
    }

    /// Joins a shared slab, with the policy and the numbers that it was made with.
    #[staticmethod]
    fn join(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        built(py, tollgate::Limiter::join(path))
    }

    /// The lane of this name, or with this number. Get it once, and check it often.
    fn lane(&self, lane: &Bound<'_, PyAny>) -> PyResult<Lane> {
        let id = Self::lane_id(&self.0.policy(), lane)?;
        Ok(self.lane_of_id(id))
    }

    /// The lanes' names, in the order of the policy.
    #[getter]
    fn lanes(&self) -> Vec<String> {
        self.0.policy().lanes().map(|(_, name)| name.to_owned()).collect()
    }

    /// The plan of this name.
    fn plan(&self, name: &str) -> PyResult<Plan> {
        Ok(Plan { limiter: Arc::clone(&self.0), id: Plan::find(&self.0, name)? })
    }

    /// The plans' names; the first is `default`.
    #[getter]
    fn plans(&self) -> Vec<String> {
        self.0.policy().plans().map(|(_, name)| name.to_owned()).collect()
    }

    /// The policy in force, as TOML text.
    #[getter]
    fn policy(&self) -> String {
        self.0.policy().to_toml()
    }

    /// The clock's present instant, in nanoseconds.
    fn now(&self) -> u64 {
        self.0.now().as_nanos()
    }

    /// How many bytes of address space it has reserved.
    fn memory(&self) -> u64 {
        self.0.memory()
    }

    fn __repr__(&self) -> String {
        let policy = self.0.policy();
        format!("<Limiter with the lanes {}>", listed(policy.lanes().map(|(_, name)| name)))
    }
}

impl Plan {
    /// The number of the plan of this name.
    pub(crate) fn find(limiter: &tollgate::Limiter, name: &str) -> PyResult<tollgate::PlanId> {
        let policy = limiter.policy();
        policy.plan(name).ok_or_else(|| {
            let known = listed(policy.plans().map(|(_, name)| name));
            raise(Class::Request, "unknown_plan", format!("there is no plan {name:?}; the plans are {known}"))
        })
    }
}
