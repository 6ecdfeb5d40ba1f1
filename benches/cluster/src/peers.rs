//! What is measured: ours, limitador's cached Redis mode, and a script for each request.

use limitador::AsyncRateLimiter;
use limitador::limit::{Context, Limit};
use limitador::storage::redis::CachedRedisStorageBuilder;
use std::collections::HashMap;
use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;
use tollgate::cluster::{Cluster, Link};
use tollgate::{LaneId, Limiter, Policy};
use tollgate_redis::{Engine, EngineBuilder, Keyring};

/// A limit of so many tokens in so many seconds, that many at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rate {
    pub(crate) tokens: u64,
    pub(crate) seconds: u64,
}

/// How a check ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Allowed,
    Denied,
    /// An error, or none in time: the program has to decide by itself.
    None,
}

/// A limiter of one machine.
pub(crate) enum Peer {
    Tollgate { limiter: Arc<Limiter>, lane: LaneId, engine: Engine },
    Limitador { runtime: tokio::runtime::Runtime, limiter: AsyncRateLimiter },
    Script { client: redis::Client, connection: Option<redis::Connection>, digest: String, rate: Rate },
}

/// A token bucket for each request, as it is written by hand: what is left, and when that was.
const BUCKET: &str = "
local capacity, per_us = tonumber(ARGV[1]), tonumber(ARGV[2])
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local held = redis.call('HMGET', KEYS[1], 'left', 'at')
local left, at = tonumber(held[1]) or capacity, tonumber(held[2]) or now
left = math.min(capacity, left + (now - at) * per_us)
local allowed = 0
if left >= 1 then
  left = left - 1
  allowed = 1
end
redis.call('HSET', KEYS[1], 'left', left, 'at', now)
redis.call('PEXPIRE', KEYS[1], math.ceil(capacity / per_us / 1000) + 1000)
return allowed
";

/// As long as ours waits for an answer.
const TIMEOUT: Duration = Duration::from_millis(200);

impl Peer {
    pub(crate) fn new(name: &str, url: &str, rate: Rate, nodes: u16) -> Self {
        match name {
            "tollgate" => Self::tollgate(url, rate, nodes),
            "limitador" => Self::limitador(url, rate),
            _ => Self::Script {
                client: redis::Client::open(url).expect("a URL"),
                connection: None,
                digest: String::new(),
                rate,
            },
        }
    }

    fn tollgate(url: &str, rate: Rate, nodes: u16) -> Self {
        let limit = format!("{} per {} seconds burst {}", rate.tokens, rate.seconds, rate.tokens);
        let policy = Policy::builder().lane("http", limit.as_str()).build().expect("a policy");
        let cluster = Cluster::new(Keyring::new(b"a secret of the benchmark").expect("long enough").key());
        let limiter = Limiter::builder(policy).agents(200_000).cluster(cluster).build();
        let limiter = Arc::new(limiter.expect("a limiter"));
        let builder = EngineBuilder::new(url).expect("a URL");
        let nodes = NonZeroU16::new(nodes).expect("machines");
        let engine = builder.nodes_at_least(nodes).attach(Arc::clone(&limiter)).expect("a thread");
        let lane = limiter.lane("http").expect("its lane");
        while !Link::of(&limiter).is_some_and(|link| link.is_connected()) {
            std::thread::sleep(Duration::from_millis(1));
        }
        Self::Tollgate { limiter, lane, engine }
    }

    /// With its defaults, but for a cache with room for all agents.
    fn limitador(url: &str, rate: Rate) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("threads");
        let storage = CachedRedisStorageBuilder::new(url).max_cached_counters(200_000);
        let storage = runtime.block_on(storage.build()).expect("a connection");
        let limiter = AsyncRateLimiter::new_with_storage(Box::new(storage));
        let agent = "agent".try_into().expect("an expression");
        limiter.add_limit(Limit::new("bench", rate.tokens, rate.seconds, vec![], vec![agent]));
        Self::Limitador { runtime, limiter }
    }

    pub(crate) fn check(&mut self, agent: &str) -> Answer {
        match self {
            Self::Tollgate { limiter, lane, .. } => match limiter.check(agent, *lane) {
                Ok(verdict) if verdict.is_allowed() => Answer::Allowed,
                Ok(_) => Answer::Denied,
                Err(_) => Answer::None,
            },
            Self::Limitador { runtime, limiter } => {
                let context = Context::from(HashMap::from([("agent".to_owned(), agent.to_owned())]));
                let namespace = "bench".into();
                let checked = limiter.check_rate_limited_and_update(&namespace, &context, 1);
                match runtime.block_on(checked) {
                    Ok(result) if result.limited => Answer::Denied,
                    Ok(_) => Answer::Allowed,
                    Err(_) => Answer::None,
                }
            }
            Self::Script { client, connection, digest, rate } => {
                let answer = script(client, connection, digest, *rate, agent);
                if answer.is_err() {
                    *connection = None;
                }
                answer.map_or(Answer::None, |allowed| if allowed == 1 { Answer::Allowed } else { Answer::Denied })
            }
        }
    }

    /// Settlements that were sent, if checks do not each cost one.
    pub(crate) fn settlements(&self) -> Option<u64> {
        match self {
            Self::Tollgate { engine, .. } => Some(engine.status().counts.sent),
            _ => None,
        }
    }
}

fn script(
    client: &redis::Client,
    connection: &mut Option<redis::Connection>,
    digest: &mut String,
    rate: Rate,
    agent: &str,
) -> redis::RedisResult<u64> {
    let connection = match connection {
        Some(connection) => connection,
        None => {
            let mut new = client.get_connection_with_timeout(TIMEOUT)?;
            new.set_read_timeout(Some(TIMEOUT))?;
            *digest = redis::cmd("SCRIPT").arg("LOAD").arg(BUCKET).query(&mut new)?;
            connection.insert(new)
        }
    };
    let per_us = rate.tokens as f64 / (rate.seconds as f64 * 1e6);
    redis::cmd("EVALSHA").arg(&*digest).arg(1).arg(agent).arg(rate.tokens).arg(per_us).query(connection)
}
