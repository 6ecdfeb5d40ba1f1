//! How limits are shared with other machines: where the store is, who this machine is to it, and which lanes.

use crate::arguments::{Span, Whole, wrong_type};
use crate::limiter::choose;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyString};
use std::fmt::Display;
use std::num::NonZeroU16;
use tollgate::cluster::{Cluster, ClusterLane, WhenLost};
use tollgate_redis::{EngineBuilder, Tls};

/// Limits that machines share through one Redis or Valkey: `Limiter(..., redis=Redis(url, secret=..., nodes=3))`.
///
/// Nothing shows the secret, a password or a key.
#[pyclass(frozen, module = "tollgate_limiter")]
pub(crate) struct Redis {
    pub(crate) cluster: Cluster,
    pub(crate) engine: EngineBuilder,
    servers: &'static str,
    nodes: NonZeroU16,
}

/// A text that no error shows, not even that of Python for what UTF-8 has not, which keeps the text.
struct Hidden(String);

impl<'a, 'py> FromPyObject<'a, 'py> for Hidden {
    type Error = PyErr;

    fn extract(text: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        let Ok(text) = text.cast::<PyString>() else { return Err(wrong_type("a str is expected", text)) };
        text.to_str().map(|text| Self(text.to_owned())).map_err(|_| not_utf_8())
    }
}

/// What all machines know: any bytes.
struct Secret(Vec<u8>);

impl<'a, 'py> FromPyObject<'a, 'py> for Secret {
    type Error = PyErr;

    fn extract(secret: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(bytes) = secret.cast::<PyBytes>() {
            return Ok(Self(bytes.as_bytes().to_vec()));
        }
        match secret.is_instance_of::<PyString>() {
            true => secret.extract::<Hidden>().map(|text| Self(text.0.into_bytes())),
            false => Err(wrong_type("a secret is a str or bytes", secret)),
        }
    }
}

fn not_utf_8() -> PyErr {
    PyValueError::new_err("a text of Redis has a character that UTF-8 has not: a lone surrogate")
}

fn refused(problem: impl Display) -> PyErr {
    PyValueError::new_err(problem.to_string())
}

fn when_lost(word: &str) -> PyResult<WhenLost> {
    let known = [WhenLost::Share, WhenLost::Closed, WhenLost::Open, WhenLost::Alone];
    choose("when_lost", word, &known.map(|what| (what.name(), what)))
}

/// One of `lanes`: how it differs from the others.
fn lane(name: &str, options: &Bound<'_, PyAny>) -> PyResult<ClusterLane> {
    let Ok(options) = options.cast::<PyDict>() else {
        return Err(wrong_type("a lane of Redis has a dict, such as {\"exact\": True}", options.as_borrowed()));
    };
    let mut lane = ClusterLane::new();
    for (key, value) in options {
        let about = |error: PyErr| match error.is_instance_of::<PyTypeError>(value.py()) {
            true => PyTypeError::new_err(format!("{key} of lane {name:?}: {}", error.value(value.py()))),
            false => error,
        };
        lane = match key.cast::<PyString>().ok().map(|key| key.to_str()).transpose()? {
            Some("exact") => match value.cast::<PyBool>() {
                Ok(is_exact) if is_exact.is_true() => lane.exact(),
                Ok(_) => lane,
                Err(_) => return Err(about(wrong_type("True or False is expected", value.as_borrowed()))),
            },
            Some("slack") => lane.slack_percent(value.extract::<Whole>().map_err(about)?.to("a slack")?),
            Some("when_lost") => lane.when_lost(when_lost(&value.extract::<String>().map_err(about)?)?),
            _ => {
                let key = key.repr()?;
                return Err(refused(format!("lane {name:?} of Redis has exact, slack and when_lost, not {key}")));
            }
        };
    }
    Ok(lane)
}

#[pymethods]
impl Redis {
    /// The store: one server by its URL, or the master that `sentinels` know, or the servers of a Redis Cluster. The
    /// secret is the same on every machine: 16 bytes or more, random.
    #[new]
    #[pyo3(signature = (url=None, *, secret, sentinels=None, master=None, cluster=None, nodes=None, slack=None,
        when_lost="share", lanes=None, excepted=vec![], user=None, password=None, sentinel_user=None,
        sentinel_password=None, tls_ca=None, tls_certificate=None, tls_key=None, timeout=None))]
    #[expect(clippy::too_many_arguments, reason = "keywords of Python")]
    fn new(
        url: Option<Hidden>,
        secret: Secret,
        sentinels: Option<Vec<Hidden>>,
        master: Option<String>,
        cluster: Option<Vec<Hidden>>,
        nodes: Option<Whole>,
        slack: Option<Whole>,
        when_lost: &str,
        lanes: Option<&Bound<'_, PyDict>>,
        excepted: Vec<String>,
        user: Option<Hidden>,
        password: Option<Hidden>,
        sentinel_user: Option<Hidden>,
        sentinel_password: Option<Hidden>,
        tls_ca: Option<Hidden>,
        tls_certificate: Option<Hidden>,
        tls_key: Option<Hidden>,
        timeout: Option<Span>,
    ) -> PyResult<Self> {
        let mut shared = Cluster::with_secret(&secret.0).map_err(refused)?.when_lost(self::when_lost(when_lost)?);
        if let Some(percent) = slack {
            shared = shared.slack_percent(percent.to("a slack")?);
        }
        for (name, options) in lanes.into_iter().flatten() {
            let name: String = name.extract()?;
            let lane = lane(&name, &options)?;
            shared = shared.lane(name, lane);
        }
        shared = excepted.into_iter().fold(shared, Cluster::except);

        let texts = |urls: Vec<Hidden>| urls.into_iter().map(|url| url.0);
        let (servers, engine) = match (url, sentinels, cluster, master) {
            (Some(url), None, None, None) => ("one server", EngineBuilder::new(&url.0)),
            (None, Some(urls), None, Some(master)) => ("sentinels", EngineBuilder::sentinel(texts(urls), master)),
            (None, None, Some(urls), None) => ("a cluster", EngineBuilder::cluster(texts(urls))),
            _ => return Err(refused("Redis needs a url, or sentinels and their master, or a cluster: one of these")),
        };
        let given = [
            (user, EngineBuilder::user as fn(EngineBuilder, String) -> EngineBuilder),
            (password, EngineBuilder::password),
            (sentinel_user, EngineBuilder::sentinel_user),
            (sentinel_password, EngineBuilder::sentinel_password),
        ];
        let given = given.into_iter().filter_map(|(text, set)| Some((text?.0, set)));
        let mut engine = given.fold(engine.map_err(refused)?, |engine, (text, set)| set(engine, text));
        engine = match (tls_ca, tls_certificate, tls_key) {
            (None, None, None) => engine,
            (ca, Some(certificate), Some(key)) => engine.tls(believed(ca).client(certificate.0, key.0)),
            (ca, None, None) => engine.tls(believed(ca)),
            _ => return Err(refused("tls_certificate and tls_key go together; give both, or neither")),
        };
        let nodes = NonZeroU16::new(nodes.unwrap_or(Whole(1)).to("nodes")?)
            .ok_or_else(|| refused("nodes of 0; allowed: 1 to 65535"))?;
        engine = engine.nodes_at_least(nodes);
        if let Some(Span(timeout)) = timeout {
            engine = engine.timeout(timeout);
        }
        engine.check().map_err(refused)?;
        Ok(Self { cluster: shared, engine, servers, nodes })
    }

    fn __repr__(&self) -> String {
        format!("<Redis: {}, nodes={}>", self.servers, self.nodes)
    }
}

fn believed(ca: Option<Hidden>) -> Tls {
    ca.map_or(Tls::new(), |ca| Tls::new().ca(ca.0))
}
