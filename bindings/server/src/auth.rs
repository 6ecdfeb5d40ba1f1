//! Who may do what: tokens, and the sessions of the dashboard.
//!
//! Tokens are compared by their hashes under a random key, so the time it takes
//! reveals nothing about the token. They are compared before anything is counted,
//! so wrong tokens never delay a client with the right one. Sessions are random,
//! live in memory, and end with the process.

use crate::error::StartError;
use crate::problem::Problem;
use crate::random;
use crate::settings::{self, May, NamedToken, Settings};
use crate::tokens::{Scope, Tokens};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::{HeaderMap, StatusCode, header};
use siphasher::sip128::{Hasher128 as _, SipHasher24};
use std::collections::VecDeque;
use std::hash::Hasher as _;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tollgate::shared::SharedSecret;
use tollgate::{LaneId, Limiter, Policy, ReservationId};
use tollgate_tower::address::{Group, Proxies};

/// The cookie of the dashboard's session, followed by the port: browsers send a
/// cookie to every port of its host, so servers on one machine would overwrite
/// each other's sessions.
const COOKIE: &str = "tollgate_session";

/// How many sessions there may be; a new one replaces the oldest.
const SESSIONS_MAX: usize = 64;

/// How long a session lasts.
const SESSION: Duration = Duration::from_secs(12 * 3_600);

/// How many wrong tokens of a client are answered 401: more than anyone needs who
/// has mistyped one. Further ones are answered 429. What protects a token from
/// being guessed is its length.
const GUESSES: &str = "20/s burst 200";

/// Where to find the right one.
const WRONG_TOKEN: &str = "the token is wrong; the right one is in the server's TOLLGATE_ADMIN_TOKEN or \
                           TOLLGATE_CHECK_TOKEN, in its policy file, or in what it printed when it started";

const WRONG_ADMIN_TOKEN: &str = "this is not the admin token; it is in the server's TOLLGATE_ADMIN_TOKEN, in its \
                                 policy file, or in what it printed when it started";

/// What a client may do, from less to more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Right {
    /// Nothing that needs a right.
    None,
    /// Read `/metrics`, if it needs a token.
    Metrics,
    /// Read the state of agents.
    Read,
    /// Check.
    Check,
    /// Everything.
    Admin,
}

/// The tokens and sessions.
pub(crate) struct Keys {
    key: (u64, u64),
    /// Seals the ids of reservations; servers that share a limiter have one in common.
    seal_key: (u64, u64),
    admin: u128,
    check: Option<u128>,
    tokens: Tokens,
    open_checks: bool,
    open_metrics: bool,
    sessions: Mutex<VecDeque<(u128, Instant)>>,
    /// Wrong tokens by client.
    guesses: Limiter,
    proxies: Proxies,
}

impl Keys {
    /// Takes the tokens from the settings. Also returns the admin token if it was generated, because there was none.
    pub(crate) fn new(settings: &Settings) -> Result<(Self, Option<String>), StartError> {
        let is_local = settings.listen.is_local();
        let generated = match &settings.admin_token {
            Some(_) => None,
            None if is_local => Some(random::hex::<16>()?),
            None => {
                return Err(StartError::new(format!(
                    "{} is not a loopback address, and there is no admin token; set admin_token_file in [server], or \
                     the variable TOLLGATE_ADMIN_TOKEN",
                    settings.listen
                )));
            }
        };
        for token in [&settings.admin_token, &settings.check_token].into_iter().flatten() {
            settings::check_token(token).map_err(StartError::new)?;
        }
        if settings.admin_token.is_some() && settings.admin_token == settings.check_token {
            return Err(StartError::new("the check token and the admin token are the same; make them differ"));
        }
        let key = || random::bytes().map(u64::from_be_bytes);
        let mut keys = Self {
            key: (key()?, key()?),
            seal_key: (key()?, key()?),
            admin: 0,
            check: None,
            tokens: Tokens::default(),
            open_checks: settings.checks_are_open(),
            open_metrics: settings.open_metrics,
            sessions: Mutex::default(),
            guesses: guesses()?,
            proxies: Proxies::new(settings.trusted_proxies.clone()),
        };
        let admin = settings.admin_token.as_deref().or(generated.as_deref()).unwrap_or_default();
        keys.admin = keys.digest(admin.as_bytes());
        keys.check = settings.check_token.as_ref().map(|token| keys.digest(token.as_bytes()));
        keys.replace_tokens(&settings.tokens)?;
        Ok((keys, generated))
    }

    /// Puts named tokens in force in place of those before.
    ///
    /// # Errors
    ///
    /// If one of them is invalid or is also another one. Then nothing has changed.
    pub(crate) fn replace_tokens(&self, tokens: &[NamedToken]) -> Result<(), StartError> {
        for token in tokens {
            for digest in token.secrets.iter().map(|secret| self.digest(secret.as_bytes())) {
                if digest == self.admin || Some(digest) == self.check {
                    let name = &token.name;
                    let problem =
                        format!("the token {name} is the admin token or the check token too; make them differ");
                    return Err(StartError::new(problem));
                }
            }
        }
        self.tokens.replace(tokens, |secret| self.digest(secret.as_bytes()))
    }

    /// The named tokens.
    pub(crate) const fn tokens(&self) -> &Tokens {
        &self.tokens
    }

    /// Seals ids of reservations with the secret of a shared limiter from now on.
    pub(crate) fn share(&mut self, secret: SharedSecret) {
        self.seal_key = secret.words().into();
    }

    /// What the client of a request may do.
    ///
    /// # Errors
    ///
    /// If it sends an invalid token, or too many wrong ones.
    pub(crate) fn right(&self, headers: &HeaderMap, peer: IpAddr) -> Result<Right, Problem> {
        self.scoped_right(headers, peer).map(|(right, _)| right)
    }

    /// What the client of a request may do, and in which lanes.
    fn scoped_right(&self, headers: &HeaderMap, peer: IpAddr) -> Result<(Right, Scope), Problem> {
        let Some(authorization) = headers.get(header::AUTHORIZATION) else {
            let right = if self.has_session(headers) { Right::Admin } else { Right::None };
            return Ok((right, Scope::default()));
        };
        let token = authorization.as_bytes().split_at_checked(7);
        let Some((_, token)) = token.filter(|(scheme, _)| scheme.eq_ignore_ascii_case(b"Bearer ")) else {
            return Err(Problem::unauthorized("the Authorization header is not of the form: Bearer TOKEN"));
        };
        match self.right_of_token(token, headers, peer)? {
            (Right::None, _) => Err(Problem::unauthorized(WRONG_TOKEN)),
            right => Ok(right),
        }
    }

    /// The address of a request's client, behind trusted proxies too.
    pub(crate) fn client(&self, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
        self.proxies.client(peer, headers).address
    }

    /// Checks that the client of a request has this right, and returns the lanes in which it has it.
    pub(crate) fn require(&self, right: Right, headers: &HeaderMap, peer: IpAddr) -> Result<Scope, Problem> {
        let (has, scope) = self.scoped_right(headers, peer)?;
        if has >= right { Ok(scope) } else { Err(too_little(has)) }
    }

    /// Checks that the client of a request may check, and returns the lanes in which it may.
    pub(crate) fn require_check(&self, headers: &HeaderMap, peer: impl FnOnce() -> IpAddr) -> Result<Scope, Problem> {
        if self.open_checks { Ok(Scope::default()) } else { self.require(Right::Check, headers, peer()) }
    }

    /// What the client of a request may do, who may read the state of agents, and the lanes that it may see.
    pub(crate) fn require_read(&self, headers: &HeaderMap, peer: IpAddr) -> Result<(Right, Scope), Problem> {
        let (has, scope) = self.scoped_right(headers, peer)?;
        if self.open_checks || has >= Right::Read { Ok((has, scope)) } else { Err(too_little(has)) }
    }

    /// Checks that the client of a request may read the metrics.
    pub(crate) fn require_metrics(&self, headers: &HeaderMap, peer: IpAddr) -> Result<(), Problem> {
        if self.open_metrics { Ok(()) } else { self.require(Right::Metrics, headers, peer).map(|_| ()) }
    }

    /// The right that a token gives, and in which lanes. A wrong one counts as a guess of the client.
    pub(crate) fn right_of_token(
        &self,
        token: &[u8],
        headers: &HeaderMap,
        peer: IpAddr,
    ) -> Result<(Right, Scope), Problem> {
        let digest = self.digest(token);
        match (digest == self.admin, Some(digest) == self.check) {
            (true, _) => return Ok((Right::Admin, Scope::default())),
            (_, true) => return Ok((Right::Check, Scope::default())),
            _ => {}
        }
        if let Some((may, scope)) = self.tokens.find(digest) {
            let right = match may {
                May::Metrics => Right::Metrics,
                May::Read => Right::Read,
                May::Check => Right::Check,
            };
            return Ok((right, scope));
        }
        let client = Group::of(self.client(peer, headers), 64).to_string();
        match self.guesses.check(&client, LaneId::new(0)) {
            Ok(verdict) if !verdict.is_allowed() => {
                let detail = "too many wrong tokens came from this address";
                Err(Problem::new(StatusCode::TOO_MANY_REQUESTS, detail).retry_after(1))
            }
            _ => Ok((Right::None, Scope::default())),
        }
    }

    /// Starts a session for the admin token, and returns the cookie to set.
    pub(crate) fn log_in(&self, token: &[u8], headers: &HeaderMap, peer: IpAddr) -> Result<String, Problem> {
        if self.right_of_token(token, headers, peer)?.0 != Right::Admin {
            return Err(Problem::unauthorized(WRONG_ADMIN_TOKEN));
        }
        let session =
            random::hex::<32>().map_err(|error| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
        let mut sessions = self.sessions();
        while sessions.len() >= SESSIONS_MAX {
            sessions.pop_front();
        }
        sessions.push_back((self.session_digest(headers, &session), Instant::now()));
        let cookie = cookie(headers);
        Ok(format!("{cookie}={session}; Path=/; HttpOnly; SameSite=Strict; Max-Age={}", SESSION.as_secs()))
    }

    /// Ends the session of a request, and returns the cookie to set.
    pub(crate) fn log_out(&self, headers: &HeaderMap) -> String {
        if let Some(digest) = self.session(headers) {
            self.sessions().retain(|(known, _)| *known != digest);
        }
        format!("{}=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0", cookie(headers))
    }

    fn has_session(&self, headers: &HeaderMap) -> bool {
        let Some(digest) = self.session(headers) else { return false };
        self.sessions().iter().any(|(known, since)| *known == digest && since.elapsed() < SESSION)
    }

    fn session(&self, headers: &HeaderMap) -> Option<u128> {
        let expected = cookie(headers);
        let cookies = headers.get_all(header::COOKIE).iter().filter_map(|cookies| cookies.to_str().ok());
        let mut cookies =
            cookies.flat_map(|cookies| cookies.split(';')).filter_map(|cookie| cookie.trim().split_once('='));
        let (_, session) = cookies.find(|(name, _)| *name == expected)?;
        Some(self.session_digest(headers, session))
    }

    /// A session is valid only for the host and port at which it was started.
    fn session_digest(&self, headers: &HeaderMap, session: &str) -> u128 {
        self.digest(format!("a session at {}, not a token: {session}", host(headers).to_ascii_lowercase()).as_bytes())
    }

    fn sessions(&self) -> MutexGuard<'_, VecDeque<(u128, Instant)>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The id of a reservation as clients see it: with a code that only this process
    /// can compute, and those that share its limiter, because the number alone could be guessed.
    pub(crate) fn seal(&self, id: ReservationId, lane: LaneId) -> String {
        let (number, lane) = (id.number().to_be_bytes(), lane.number().to_be_bytes());
        let message = [number.as_slice(), &lane].concat();
        URL_SAFE_NO_PAD.encode([&message, self.code(&message).to_be_bytes().as_slice()].concat())
    }

    /// The id that was sealed; `None` if it was not.
    pub(crate) fn unseal(&self, sealed: &str) -> Option<(ReservationId, LaneId)> {
        let sealed = URL_SAFE_NO_PAD.decode(sealed).ok()?;
        let (number, rest) = sealed.split_first_chunk()?;
        let (lane, code) = rest.split_first_chunk()?;
        let code = u128::from_be_bytes(code.try_into().ok()?);
        let is_ours = code == self.code(sealed.get(..number.len() + lane.len())?);
        let id = ReservationId::from_number(u64::from_be_bytes(*number));
        is_ours.then_some((id, LaneId::new(u32::from_be_bytes(*lane))))
    }

    /// Never the digest of something that a client can send as a token.
    fn code(&self, message: &[u8]) -> u128 {
        digest(self.seal_key, &[b"a reservation, not a token: ", message].concat())
    }

    fn digest(&self, secret: &[u8]) -> u128 {
        digest(self.key, secret)
    }
}

/// The refusal of a client that may do this and not more.
fn too_little(has: Right) -> Problem {
    let detail = match has {
        Right::None => {
            return Problem::unauthorized("this needs a token; send it as: Authorization: Bearer TOKEN");
        }
        Right::Metrics => "this token may only read the metrics; send another one",
        Right::Read => "this token may only read; send another one",
        Right::Check | Right::Admin => "this token may only check and read; send the admin token",
    };
    Problem::new(StatusCode::FORBIDDEN, detail)
}

fn digest(key: (u64, u64), secret: &[u8]) -> u128 {
    let mut hasher = SipHasher24::new_with_keys(key.0, key.1);
    hasher.write(secret);
    hasher.finish128().as_u128()
}

/// The host that a request names; the front refuses a request with more than one.
fn host(headers: &HeaderMap) -> &str {
    headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default()
}

/// The name of the session's cookie at this host.
fn cookie(headers: &HeaderMap) -> String {
    match host(headers).rsplit_once(':') {
        Some((_, port)) if !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()) => {
            format!("{COOKIE}_{port}")
        }
        _ => COOKIE.to_owned(),
    }
}

fn guesses() -> Result<Limiter, StartError> {
    let policy = Policy::builder().lane("wrong-tokens", GUESSES);
    let policy = policy.build().map_err(|error| StartError::new(error.to_string()))?;
    Limiter::builder(policy).agents(10_000).build().map_err(|error| StartError::new(error.to_string()))
}

#[cfg(test)]
mod tests;
