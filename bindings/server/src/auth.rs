//! Who may do what: tokens, and the sessions of the dashboard.
//!
//! Tokens are compared by their hashes under a random key, so the time it takes
//! reveals nothing about the token. They are compared before anything is counted,
//! so wrong tokens never delay a client with the right one. Sessions are random,
//! live in memory, and end with the process.

use crate::error::StartError;
use crate::problem::Problem;
use crate::random;
use crate::settings::{self, Settings};
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
    /// Check, and read the state of agents.
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
    open_checks: bool,
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
            open_checks: settings.checks_are_open(),
            sessions: Mutex::default(),
            guesses: guesses()?,
            proxies: Proxies::new(settings.trusted_proxies.clone()),
        };
        let admin = settings.admin_token.as_deref().or(generated.as_deref()).unwrap_or_default();
        keys.admin = keys.digest(admin.as_bytes());
        keys.check = settings.check_token.as_ref().map(|token| keys.digest(token.as_bytes()));
        Ok((keys, generated))
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
        let Some(authorization) = headers.get(header::AUTHORIZATION) else {
            return Ok(if self.has_session(headers) { Right::Admin } else { Right::None });
        };
        let token = authorization.as_bytes().split_at_checked(7);
        let Some((_, token)) = token.filter(|(scheme, _)| scheme.eq_ignore_ascii_case(b"Bearer ")) else {
            return Err(Problem::unauthorized("the Authorization header is not of the form: Bearer TOKEN"));
        };
        match self.right_of_token(token, headers, peer)? {
            Right::None => Err(Problem::unauthorized(WRONG_TOKEN)),
            right => Ok(right),
        }
    }

    /// Checks that the client of a request has this right.
    pub(crate) fn require(&self, right: Right, headers: &HeaderMap, peer: IpAddr) -> Result<(), Problem> {
        match self.right(headers, peer)? {
            has if has >= right => Ok(()),
            Right::None => Err(Problem::unauthorized("this needs a token; send it as: Authorization: Bearer TOKEN")),
            _ => Err(Problem::new(StatusCode::FORBIDDEN, "this token may only check and read; send the admin token")),
        }
    }

    /// Checks that the client of a request may check.
    pub(crate) fn require_check(&self, headers: &HeaderMap, peer: impl FnOnce() -> IpAddr) -> Result<(), Problem> {
        if self.open_checks { Ok(()) } else { self.require(Right::Check, headers, peer()) }
    }

    /// The right that a token gives. A wrong one counts as a guess of the client.
    fn right_of_token(&self, token: &[u8], headers: &HeaderMap, peer: IpAddr) -> Result<Right, Problem> {
        let digest = self.digest(token);
        match (digest == self.admin, Some(digest) == self.check) {
            (true, _) => return Ok(Right::Admin),
            (_, true) => return Ok(Right::Check),
            _ => {}
        }
        let client = Group::of(self.proxies.client(peer, headers).address, 64).to_string();
        match self.guesses.check(&client, LaneId::new(0)) {
            Ok(verdict) if !verdict.is_allowed() => {
                let detail = "too many wrong tokens came from this address";
                Err(Problem::new(StatusCode::TOO_MANY_REQUESTS, detail).retry_after(1))
            }
            _ => Ok(Right::None),
        }
    }

    /// Starts a session for the admin token, and returns the cookie to set.
    pub(crate) fn log_in(&self, token: &[u8], headers: &HeaderMap, peer: IpAddr) -> Result<String, Problem> {
        if self.right_of_token(token, headers, peer)? != Right::Admin {
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
mod tests {
    use super::*;

    const PEER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 7));
    const ADMIN: &str = "admin-token-0123456789";
    const CHECK: &str = "check-token-0123456789";

    fn keys(change: impl FnOnce(&mut Settings)) -> Result<(Keys, Option<String>), StartError> {
        let (admin_token, check_token) = (Some(ADMIN.to_owned()), Some(CHECK.to_owned()));
        let mut settings = Settings { admin_token, check_token, ..Settings::default() };
        change(&mut settings);
        Keys::new(&settings)
    }

    fn bearer(token: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(header::AUTHORIZATION, format!("Bearer {token}").parse().unwrap());
        headers
    }

    fn status(keys: &Keys, right: Right, headers: &HeaderMap) -> u16 {
        keys.require(right, headers, PEER).map_or_else(|problem| problem.status().as_u16(), |()| 200)
    }

    #[test]
    fn each_token_has_its_right() {
        let (keys, generated) = keys(|_| {}).unwrap();
        assert_eq!(generated, None);
        for (headers, check, admin) in [
            (bearer(ADMIN), 200, 200),
            (bearer(CHECK), 200, 403),
            (bearer("something else"), 401, 401),
            (bearer(""), 401, 401),
            (HeaderMap::new(), 401, 401),
        ] {
            assert_eq!(status(&keys, Right::Check, &headers), check, "{headers:?}");
            assert_eq!(status(&keys, Right::Admin, &headers), admin, "{headers:?}");
        }
        let mut basic = HeaderMap::new();
        basic.insert(header::AUTHORIZATION, format!("Basic {ADMIN}").parse().unwrap());
        assert_eq!(status(&keys, Right::Admin, &basic), 401);
    }

    #[test]
    fn without_a_token_one_is_generated_on_loopback_and_nothing_starts_elsewhere() {
        let (keys, generated) = self::keys(|settings| settings.admin_token = None).unwrap();
        let generated = generated.unwrap();
        assert_eq!(generated.len(), 32);
        assert_eq!(status(&keys, Right::Admin, &bearer(&generated)), 200);
        let elsewhere = |settings: &mut Settings| {
            settings.admin_token = None;
            settings.listen = "0.0.0.0:80".parse().unwrap();
        };
        let error = self::keys(elsewhere).err().unwrap().to_string();
        assert!(
            error.contains("0.0.0.0:80 is not a loopback address") && error.contains("TOLLGATE_ADMIN_TOKEN"),
            "{error}"
        );
    }

    #[test]
    fn checks_are_open_on_loopback_by_default() {
        let needs =
            |change: fn(&mut Settings)| keys(change).unwrap().0.require_check(&HeaderMap::new(), || PEER).is_err();
        assert!(needs(|_| {}), "with a check token, checks need it");
        assert!(!needs(|settings| settings.check_token = None));
        assert!(needs(|settings| {
            settings.check_token = None;
            settings.listen = "0.0.0.0:80".parse().unwrap();
        }));
        assert!(!needs(|settings| settings.open_checks = Some(true)));
    }

    #[test]
    fn bad_tokens_in_the_settings_are_errors() {
        assert!(keys(|settings| settings.admin_token = Some("short".into())).is_err());
        assert!(keys(|settings| settings.check_token = settings.admin_token.clone()).is_err());
    }

    #[test]
    fn a_session_replaces_the_admin_token_until_it_ends() {
        let (keys, _) = keys(|_| {}).unwrap();
        assert_eq!(keys.log_in(CHECK.as_bytes(), &HeaderMap::new(), PEER).unwrap_err().status(), 401);
        let cookie = keys.log_in(ADMIN.as_bytes(), &HeaderMap::new(), PEER).unwrap();
        assert!(cookie.contains("; HttpOnly; SameSite=Strict;"), "{cookie}");
        let mut headers = HeaderMap::new();
        let pair = cookie.split(';').next().unwrap();
        headers.insert(header::COOKIE, format!("theme=dark; {pair}").parse().unwrap());
        assert_eq!(status(&keys, Right::Admin, &headers), 200);
        keys.log_out(&headers);
        assert_eq!(status(&keys, Right::Admin, &headers), 401);
    }

    #[test]
    fn new_sessions_replace_the_oldest() {
        let (keys, _) = keys(|_| {}).unwrap();
        for _ in 0..2 * SESSIONS_MAX {
            keys.log_in(ADMIN.as_bytes(), &HeaderMap::new(), PEER).unwrap();
        }
        assert_eq!(keys.sessions().len(), SESSIONS_MAX);
    }

    #[test]
    fn a_sealed_reservation_cannot_be_made_up() {
        let ((keys, _), (others, _)) = (keys(|_| {}).unwrap(), self::keys(|_| {}).unwrap());
        let (id, lane) = (ReservationId::from_number(0x0123_4567_89ab_cdef), LaneId::new(3));
        let sealed = keys.seal(id, lane);
        assert_eq!(keys.unseal(&sealed), Some((id, lane)));
        assert_eq!(others.unseal(&sealed), None);
        for at in 0..sealed.len() {
            for other in ["A", "B", "", "AA", "?"] {
                let mut changed = sealed.clone();
                changed.replace_range(at..=at, other);
                assert!(changed == sealed || keys.unseal(&changed).is_none(), "{changed}");
            }
        }
        assert_eq!(keys.unseal(""), None);
    }

    #[test]
    fn guessing_is_limited_and_delays_no_other_client() {
        let (keys, _) = keys(|_| {}).unwrap();
        let refused = (0..400).filter(|_| status(&keys, Right::Admin, &bearer("a guess")) == 429).count();
        assert!(refused > 100, "{refused}");
        assert_eq!(status(&keys, Right::Admin, &bearer(ADMIN)), 200);
        let other = "192.0.2.8".parse().unwrap();
        assert_eq!(keys.require(Right::Admin, &bearer("a guess"), other).unwrap_err().status(), 401);
    }
}
