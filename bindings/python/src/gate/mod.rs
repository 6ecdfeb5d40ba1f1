//! What a gate in front of a Python service decides: `tollgate-gate` on the heads of its requests.
//!
//! - `mod.rs`: the class, its settings and its rulings
//! - `key.rs`: where a request has its agent's id
//! - `head.rs`: the head of a request, read from an ASGI scope or a WSGI environ
//! - `connection.rs`: messages and slots of a WebSocket

mod connection;
mod head;
mod key;

pub(crate) use connection::Connection;
pub(crate) use key::Key;

use crate::arguments::{Whole, wrong_type};
use crate::engine::Attached;
use crate::lane::Plan;
use crate::limiter::Limiter;
use bytes::Bytes;
use head::{Request, encoded, encoded_rule, variable};
use http::{HeaderMap, HeaderName, HeaderValue, Response};
use key::Call;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString, PyTuple};
use std::fmt::Display;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tollgate::LaneId;
use tollgate_gate::{Asked, BuildError, Peer, Question, Ruling};

/// What the answer to a request says if its address is needed and the server has none.
const NO_ADDRESS: &str = "the client's address is unknown: the server has none for this connection; if it listens on a \
     Unix socket behind a proxy, let it read X-Forwarded-For (uvicorn --forwarded-allow-ips='*'), or use another key";

/// Rules on requests: which agent, on which lane, at what cost, and what the client sees of it. The middlewares of
/// this package are thin adapters around it.
#[pyclass(frozen, module = "tollgate_limiter")]
pub(crate) struct Gate {
    gate: Arc<tollgate_gate::Gate>,
    /// Runs as long as this can check.
    _engine: Option<Arc<Attached>>,
    /// The headers that the gate reads, with the variables of an environ that have them.
    read: Vec<HeaderName>,
    variables: Vec<(HeaderName, Py<PyString>)>,
    /// The headers that name the agent.
    single: Vec<HeaderName>,
    calls_python: bool,
    cost: Option<Py<PyAny>>,
    plan: Option<Py<PyAny>>,
}

/// Lanes that a request is charged to together: all of them or none.
#[pyclass(frozen, module = "tollgate_limiter")]
pub(crate) struct Lanes {
    lanes: Vec<LaneId>,
    /// The first of them whose slots are held, if there is one.
    held: Option<String>,
}

impl Lanes {
    /// The lanes, none of which is held: nobody would release its slots.
    fn charged(&self) -> PyResult<&[LaneId]> {
        match &self.held {
            None => Ok(&self.lanes),
            Some(held) => Err(of_build(BuildError::HeldLane { lane: held.clone() })),
        }
    }
}

/// Why a gate cannot be built, with the advice in terms of this package.
fn of_build(error: BuildError) -> PyErr {
    match error {
        BuildError::HeldLane { lane } => invalid(format!(
            "slots of the lane {lane:?} are held until they are released, and a request releases none; name it as the \
             lane of connections, or take slots with Lane.hold"
        )),
        BuildError::NoLane => invalid(
            "the policy has several lanes; name the one for requests that no rule matches with lane=\"...\", or let \
             them pass with pass_others=True",
        ),
        _ => invalid(error),
    }
}

fn invalid(problem: impl Display) -> PyErr {
    PyValueError::new_err(problem.to_string())
}

/// A function is called before the request goes on, and nothing awaits what it returns.
fn must_be_plain(what: &str, function: &Bound<'_, PyAny>) -> PyResult<()> {
    let is_async = function.py().import("inspect")?.getattr("iscoroutinefunction")?;
    // An object that is called is as its method is.
    let is_async = |of: &Bound<'_, PyAny>| is_async.call1((of,))?.is_truthy();
    match is_async(function)? || is_async(&function.getattr("__call__")?)? {
        true => Err(PyTypeError::new_err(format!(
            "{what} is an ordinary function, not one with async: it is called before the request goes on; let a \
             middleware or a dependency find out what it needs"
        ))),
        false => Ok(()),
    }
}

/// The keys that a caller gives: one or several, each a [`Key`] or a function.
fn keys(given: Option<&Bound<'_, PyAny>>) -> PyResult<Vec<(tollgate_gate::Key, bool)>> {
    let one = |key: &Bound<'_, PyAny>| -> PyResult<(tollgate_gate::Key, bool)> {
        if let Ok(key) = key.cast::<Key>() {
            return Ok((key.get().key(), key.get().calls_python));
        }
        if !key.is_callable() {
            return Err(wrong_type("a key is a Key, a function of the request, or a list of them", key.as_borrowed()));
        }
        must_be_plain("a key", key)?;
        Ok((Key::of_function("an id".to_owned(), key.clone().unbind()).key(), true))
    };
    match given {
        None => Ok(vec![(tollgate_gate::Key::address(), false)]),
        Some(list) if list.is_instance_of::<PyList>() || list.is_instance_of::<PyTuple>() => {
            list.try_iter()?.map(|key| one(&key?)).collect()
        }
        Some(key) => Ok(vec![one(key)?]),
    }
}

/// What happens to a request, in the types of HTTP.
enum Ruled {
    Pass(Option<HeaderMap>),
    Answer(Response<Bytes>),
}

#[pymethods]
impl Gate {
    /// A gate over a limiter. Without a key the agent is the client's address.
    #[new]
    #[pyo3(signature = (limiter, *, key=None, lane=None, routes=None, path_contains=None, pass_others=false, cost=None,
        plan=None, count_violations=false, answer_head=false, trusted_proxies=vec![], allow_networks=vec![],
        allow_routes=vec![], allow_prefixes=vec![], profile="standard", headers=None, headers_only_when_low=false,
        wall_clock=None))]
    #[expect(clippy::too_many_arguments, reason = "keywords of Python")]
    fn new(
        limiter: &Bound<'_, Limiter>,
        key: Option<&Bound<'_, PyAny>>,
        lane: Option<String>,
        routes: Option<&Bound<'_, PyDict>>,
        path_contains: Option<&Bound<'_, PyDict>>,
        pass_others: bool,
        cost: Option<Py<PyAny>>,
        plan: Option<Py<PyAny>>,
        count_violations: bool,
        answer_head: bool,
        trusted_proxies: Vec<String>,
        allow_networks: Vec<String>,
        allow_routes: Vec<String>,
        allow_prefixes: Vec<String>,
        profile: &str,
        headers: Option<&str>,
        headers_only_when_low: bool,
        wall_clock: Option<f64>,
    ) -> PyResult<Self> {
        let mut builder = tollgate_gate::Gate::builder(Arc::clone(&limiter.get().0)).peer::<Peer>();
        let mut calls_python = false;
        for (key, calls) in keys(key)? {
            (builder, calls_python) = (builder.key(key), calls_python || calls);
        }
        for (rule, lane) in routes.into_iter().flatten() {
            builder = builder.route(encoded_rule(&rule.extract::<String>()?), lane.extract::<String>()?);
        }
        for (text, lane) in path_contains.into_iter().flatten() {
            builder = builder.path_contains(encoded(text.extract::<&str>()?.as_bytes()), lane.extract::<String>()?);
        }
        builder = allow_networks.into_iter().fold(builder, |builder, network| builder.allow_network(network));
        builder = allow_routes.iter().fold(builder, |builder, rule| builder.allow_route(encoded_rule(rule)));
        builder = allow_prefixes.iter().fold(builder, |builder, path| builder.allow_prefix(encoded(path.as_bytes())));
        builder = builder.trusted_proxies(trusted_proxies).no_address(NO_ADDRESS);
        builder = builder.profile(profile.parse().map_err(invalid)?);
        if let Some(style) = headers {
            builder = builder.style(style.parse().map_err(invalid)?);
        }
        builder = lane.into_iter().fold(builder, |builder, lane| builder.lane(lane));
        builder = if pass_others { builder.pass_others() } else { builder };
        builder = if count_violations { builder.count_violations() } else { builder };
        builder = if answer_head { builder.answer_head() } else { builder };
        builder = if headers_only_when_low { builder.headers_only_when_low() } else { builder };
        if let Some(seconds) = wall_clock {
            let now = Duration::try_from_secs_f64(seconds).map_err(invalid)?;
            builder = builder.wall_clock(move || SystemTime::UNIX_EPOCH + now);
        }
        let py = limiter.py();
        if let Some(plan) = plan.as_ref().map(|plan| plan.bind(py)) {
            if !plan.is_callable() {
                let expected = "plan is a function of the request that returns a plan's name, or None";
                return Err(wrong_type(expected, plan.as_borrowed()));
            }
            must_be_plain("plan", plan)?;
        }
        if let Some(cost) = cost.as_ref().map(|cost| cost.bind(py)) {
            match cost.is_callable() {
                true => must_be_plain("cost", cost)?,
                false => drop(cost.extract::<Whole>()?),
            }
        }
        let gate = builder.build().map_err(of_build)?;
        let read = gate.headers_read();
        let variables = read.iter().map(|name| (name.clone(), variable(py, name))).collect();
        let single = gate.headers_of_agents();
        Ok(Self {
            gate: Arc::new(gate),
            _engine: limiter.get().1.clone(),
            read,
            variables,
            single,
            calls_python,
            cost,
            plan,
        })
    }

    /// Lanes that requests are charged to together, for the calls that take them.
    #[pyo3(signature = (*names))]
    fn lanes(&self, names: &Bound<'_, PyTuple>) -> PyResult<Lanes> {
        let policy = self.gate.limiter().policy();
        let known = || policy.lanes().map(|(_, name)| name).collect::<Vec<_>>().join(", ");
        let lane = |name: Bound<'_, PyAny>| {
            let name = name.extract::<String>()?;
            let unknown = || invalid(format!("there is no lane {name:?}; the limiter's policy has {}", known()));
            policy.lane(&name).ok_or_else(unknown)
        };
        let lanes = names.iter().map(lane).collect::<PyResult<Vec<_>>>()?;
        let is_held = |lane: &&LaneId| self.gate.limiter().is_held(**lane).unwrap_or(false);
        let name = |lane: &LaneId| policy.lanes().find(|(id, _)| id == lane).map(|(_, name)| name.to_owned());
        let held = lanes.iter().find(is_held).and_then(name);
        Ok(Lanes { lanes, held })
    }

    fn __repr__(&self) -> String {
        let policy = self.gate.limiter().policy();
        let lanes: Vec<_> = policy.lanes().map(|(_, name)| format!("{name:?}")).collect();
        format!("<Gate over the lanes {}>", lanes.join(", "))
    }

    /// The style of its headers: "draft-10", "legacy" or "off".
    #[getter]
    fn headers(&self) -> String {
        self.gate.style().to_string()
    }

    /// Rules on a request in ASGI. `None`: it passes. A list: it passes, and its response carries these headers. A
    /// tuple of status, headers and body: this is the response.
    ///
    /// Functions are called with `request`, or with the scope. `lanes` and `cost` take the place of the gate's own.
    #[pyo3(signature = (scope, request=None, *, lanes=None, cost=None))]
    fn asgi<'py>(
        &self,
        scope: &Bound<'py, PyDict>,
        request: Option<&Bound<'py, PyAny>>,
        lanes: Option<&Bound<'py, Lanes>>,
        cost: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let object = request.unwrap_or(scope.as_any());
        let head = Request::of_scope(scope, &self.read)?;
        let ruled = self.ruled(head, object, lanes, cost)?;
        shown(scope.py(), ruled, as_bytes)
    }

    /// Rules on a request in WSGI: as `asgi`, with headers and status as WSGI has them. `path` is the decoded path if
    /// the environ has none that counts, as in Django.
    #[pyo3(signature = (environ, request=None, *, path=None, lanes=None, cost=None))]
    fn wsgi<'py>(
        &self,
        environ: &Bound<'py, PyDict>,
        request: Option<&Bound<'py, PyAny>>,
        path: Option<&str>,
        lanes: Option<&Bound<'py, Lanes>>,
        cost: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let object = request.unwrap_or(environ.as_any());
        let head = Request::of_environ(environ, path, &self.variables, &self.single)?;
        let ruled = self.ruled(head, object, lanes, cost)?;
        shown(environ.py(), ruled, as_text)
    }

    /// Rules on the opening of a WebSocket: the ruling as `asgi` gives it, and what its messages need, or `None`.
    ///
    /// It takes a slot of the held lane `connections`, and gives it back when the connection is released.
    #[pyo3(signature = (scope, *, connections=None, messages=None))]
    fn connect<'py>(
        &self,
        scope: &Bound<'py, PyDict>,
        connections: Option<&Bound<'py, Lanes>>,
        messages: Option<&Bound<'py, Lanes>>,
    ) -> PyResult<(Bound<'py, PyAny>, Option<Connection>)> {
        connection::connect(self, scope, connections, messages)
    }
}

impl Gate {
    /// Rules on a request. What functions raise is raised, and then nothing was charged.
    fn ruled(
        &self,
        mut request: Request,
        object: &Bound<'_, PyAny>,
        lanes: Option<&Bound<'_, Lanes>>,
        cost: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Ruled> {
        let call = self.call(&mut request, object);
        let head = request.head();
        let lanes = lanes.map_or_else(|| Ok(self.gate.lanes(&head)), |lanes| lanes.get().charged())?;
        let mut question = match self.asked(&head, lanes, object, cost, call.as_deref())? {
            Asked::Pass => return Ok(Ruled::Pass(None)),
            Asked::Answer(response) => return Ok(Ruled::Answer(response)),
            Asked::Decide(question) => question,
        };
        self.choose_plan(&mut question, object)?;
        Ok(match self.gate.decide(&head, &question) {
            Ruling::Answer(response) => Ruled::Answer(response),
            Ruling::Pass(None) => Ruled::Pass(None),
            Ruling::Pass(Some(limits)) => {
                let mut headers = HeaderMap::new();
                self.gate.write_headers(&mut headers, &limits);
                Ruled::Pass(Some(headers))
            }
        })
    }

    /// Lets the gate's keys call functions with this object.
    fn call(&self, request: &mut Request, object: &Bound<'_, PyAny>) -> Option<Arc<Call>> {
        let call = self.calls_python.then(|| Call::new(object.clone().unbind()));
        if let Some(call) = &call {
            request.extensions.insert(Arc::clone(call));
        }
        call
    }

    fn asked<'g>(
        &self,
        head: &tollgate_gate::Head<'_>,
        lanes: &'g [LaneId],
        object: &Bound<'_, PyAny>,
        cost: Option<&Bound<'_, PyAny>>,
        call: Option<&Call>,
    ) -> PyResult<Asked<'g>>
    where
        Self: 'g,
    {
        let own = self.cost.as_ref().map(|cost| cost.bind(object.py()));
        let mut raised = Ok(());
        let asked = self.gate.ask_on(head, lanes, |_| match cost.or(own).map(|cost| cost_of(cost, object)) {
            None => 1,
            Some(Ok(cost)) => cost,
            Some(Err(error)) => {
                raised = Err(error);
                0
            }
        });
        raised?;
        call.map_or(Ok(()), Call::raised)?;
        Ok(asked)
    }

    fn choose_plan(&self, question: &mut Question<'_>, object: &Bound<'_, PyAny>) -> PyResult<()> {
        let Some(function) = &self.plan else { return Ok(()) };
        let name = function.bind(object.py()).call1((object,))?;
        if !name.is_none() {
            question.plan = Some(Plan::find(self.gate.limiter(), name.extract()?)?);
        }
        Ok(())
    }
}

/// The cost that a caller gives: a number, or a function of the request.
fn cost_of(cost: &Bound<'_, PyAny>, object: &Bound<'_, PyAny>) -> PyResult<u64> {
    let Whole(cost) = if cost.is_callable() { cost.call1((object,))?.extract()? } else { cost.extract()? };
    Ok(cost)
}

type Shown = for<'py> fn(Python<'py>, &[u8]) -> Bound<'py, PyAny>;

/// A field as ASGI has it.
fn as_bytes<'py>(py: Python<'py>, field: &[u8]) -> Bound<'py, PyAny> {
    PyBytes::new(py, field).into_any()
}

/// A field as WSGI has it: what the gate writes is ASCII.
fn as_text<'py>(py: Python<'py>, field: &[u8]) -> Bound<'py, PyAny> {
    PyString::new(py, &String::from_utf8_lossy(field)).into_any()
}

/// A ruling as Python has it.
fn shown<'py>(py: Python<'py>, ruled: Ruled, text: Shown) -> PyResult<Bound<'py, PyAny>> {
    let pairs = |headers: &HeaderMap| {
        let pair = |(name, value): (&HeaderName, &HeaderValue)| {
            PyTuple::new(py, [text(py, name.as_str().as_bytes()), text(py, value.as_bytes())])
        };
        PyList::new(py, headers.iter().map(pair).collect::<PyResult<Vec<_>>>()?)
    };
    match ruled {
        Ruled::Pass(None) => Ok(py.None().into_bound(py)),
        Ruled::Pass(Some(headers)) => Ok(pairs(&headers)?.into_any()),
        Ruled::Answer(mut response) => {
            let length = HeaderValue::from(response.body().len());
            response.headers_mut().insert(http::header::CONTENT_LENGTH, length);
            let (status, headers) = (response.status().as_u16(), pairs(response.headers())?);
            Ok((status, headers, PyBytes::new(py, response.body())).into_pyobject(py)?.into_any())
        }
    }
}
