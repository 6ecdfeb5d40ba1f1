//! Who may do what: tokens, and the sessions of the page.
//!
//! A token is compared by its hash under a key that was drawn at the start, so
//! the time it takes tells nothing about the token. Sessions are random, live
//! in memory, and end with the process.

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
use tollgate::{LaneId, Limiter, Policy, ReservationId};
use tollgate_tower::address::Group;

/// The cookie of the page's session.
const COOKIE: &str = "tollgate_session";

/// How many sessions there may be; the oldest makes room.
const SESSIONS_MAX: usize = 64;

/// How long a session lasts.
const SESSION: Duration = Duration::from_secs(12 * 3_600);

/// How many wrong tokens an address may bring: far too few to guess one, and
/// far more than anybody needs who has mistyped his.
const GUESSES: &str = "20/s burst 200";

/// What somebody may do, from less to more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Right {
    /// Nothing that needs a right.
    None,
    /// Check and look at what a check tells.
    Check,
    /// Everything.
    Admin,
}

/// The tokens and sessions.
pub(crate) struct Keys {
    key: (u64, u64),
    admin: u128,
    check: Option<u128>,
    open_checks: bool,
    sessions: Mutex<VecDeque<(u128, Instant)>>,
    /// Wrong tokens by address.
    guesses: Limiter,
}

impl Keys {
    /// Takes the tokens of the settings; with them the admin token that was
    /// made up, if there was none.
    pub(crate) fn new(settings: &Settings) -> Result<(Self, Option<String>), StartError> {
        let is_loopback = settings.listen.ip().is_loopback();
        let made_up = match &settings.admin_token {
            Some(_) => None,
            None if is_loopback => Some(random::hex::<16>()?),
            None => {
                return Err(StartError::new(format!(
                    "{} is no loopback address, and there is no admin token; set admin_token_file in [server], or the \
                     variable TOLLGATE_ADMIN_TOKEN",
                    settings.listen
                )));
            }
        };
        for token in [&settings.admin_token, &settings.check_token].into_iter().flatten() {
            settings::check_token(token).map_err(StartError::new)?;
        }
        if settings.admin_token.is_some() && settings.admin_token == settings.check_token {
            return Err(StartError::new("the check token is the admin token as well; make them differ"));
        }
        let key = || random::bytes().map(u64::from_be_bytes);
        let mut keys = Self {
            key: (key()?, key()?),
            admin: 0,
            check: None,
            open_checks: settings.open_checks.unwrap_or(is_loopback && settings.check_token.is_none()),
            sessions: Mutex::default(),
            guesses: guesses()?,
        };
        let admin = settings.admin_token.as_deref().or(made_up.as_deref()).unwrap_or_default();
        keys.admin = keys.digest(admin.as_bytes());
        keys.check = settings.check_token.as_ref().map(|token| keys.digest(token.as_bytes()));
        Ok((keys, made_up))
    }

    /// What the sender of a request may do.
    ///
    /// # Errors
    ///
    /// It brings something that is no token, or too many of them were wrong.
    pub(crate) fn right(&self, headers: &HeaderMap, peer: IpAddr) -> Result<Right, Problem> {
        let Some(authorization) = headers.get(header::AUTHORIZATION) else {
            return Ok(if self.has_session(headers) { Right::Admin } else { Right::None });
        };
        let token = authorization.as_bytes().split_at_checked(7);
        let Some((_, token)) = token.filter(|(scheme, _)| scheme.eq_ignore_ascii_case(b"Bearer ")) else {
            return Err(Problem::unauthorized("the Authorization header is not of the form: Bearer TOKEN"));
        };
        match self.right_of_token(token, peer)? {
            Right::None => Err(Problem::unauthorized("this is not the token; the server has told it when it started")),
            right => Ok(right),
        }
    }

    /// Whether the sender of a request may do this.
    pub(crate) fn require(&self, right: Right, headers: &HeaderMap, peer: IpAddr) -> Result<(), Problem> {
        match self.right(headers, peer)? {
            has if has >= right => Ok(()),
            Right::None => Err(Problem::unauthorized("this needs a token; send it as: Authorization: Bearer TOKEN")),
            _ => Err(Problem::new(StatusCode::FORBIDDEN, "this token may check and look; this needs the admin token")),
        }
    }

    /// Whether the sender of a request may check.
    pub(crate) fn require_check(&self, headers: &HeaderMap, peer: impl FnOnce() -> IpAddr) -> Result<(), Problem> {
        if self.open_checks { Ok(()) } else { self.require(Right::Check, headers, peer()) }
    }

    /// What a token is good for.
    fn right_of_token(&self, token: &[u8], peer: IpAddr) -> Result<Right, Problem> {
        let lane = LaneId::new(0);
        let who = Group::of(peer, 64).to_string();
        if self.guesses.status(&who, lane).is_ok_and(|status| status.remaining() == 0) {
            let detail = "too many wrong tokens came from this address";
            return Err(Problem::new(StatusCode::TOO_MANY_REQUESTS, detail).retry_after(1));
        }
        let digest = self.digest(token);
        let right = match (digest == self.admin, Some(digest) == self.check) {
            (true, _) => Right::Admin,
            (_, true) => Right::Check,
            _ => Right::None,
        };
        if right == Right::None {
            // Counted; the answer does not matter.
            _ = self.guesses.check(&who, lane);
        }
        Ok(right)
    }

    /// Starts a session of the page, for the admin token: the cookie to set.
    pub(crate) fn log_in(&self, token: &[u8], peer: IpAddr) -> Result<String, Problem> {
        if self.right_of_token(token, peer)? != Right::Admin {
            return Err(Problem::unauthorized("this is not the admin token; the server has told it when it started"));
        }
        let session =
            random::hex::<32>().map_err(|error| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
        let mut sessions = self.sessions();
        while sessions.len() >= SESSIONS_MAX {
            sessions.pop_front();
        }
        sessions.push_back((self.digest(session.as_bytes()), Instant::now()));
        Ok(format!("{COOKIE}={session}; Path=/; HttpOnly; SameSite=Strict; Max-Age={}", SESSION.as_secs()))
    }

    /// Ends the session of a request: the cookie to set.
    pub(crate) fn log_out(&self, headers: &HeaderMap) -> String {
        if let Some(digest) = self.session(headers) {
            self.sessions().retain(|(known, _)| *known != digest);
        }
        format!("{COOKIE}=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0")
    }

    fn has_session(&self, headers: &HeaderMap) -> bool {
        let Some(digest) = self.session(headers) else { return false };
        self.sessions().iter().any(|(known, since)| *known == digest && since.elapsed() < SESSION)
    }

    fn session(&self, headers: &HeaderMap) -> Option<u128> {
        let cookies = headers.get_all(header::COOKIE).iter().filter_map(|cookies| cookies.to_str().ok());
        let mut cookies =
            cookies.flat_map(|cookies| cookies.split(';')).filter_map(|cookie| cookie.trim().split_once('='));
        let (_, session) = cookies.find(|(name, _)| *name == COOKIE)?;
        Some(self.digest(session.as_bytes()))
    }

    fn sessions(&self) -> MutexGuard<'_, VecDeque<(u128, Instant)>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The id of a reservation as clients have it: with a code that only this
    /// process can make, since the numbers alone could be guessed.
    pub(crate) fn seal(&self, id: ReservationId, lane: LaneId) -> String {
        let (number, lane) = (id.number().to_be_bytes(), lane.number().to_be_bytes());
        let said = [number.as_slice(), &lane].concat();
        URL_SAFE_NO_PAD.encode([&said, self.code(&said).to_be_bytes().as_slice()].concat())
    }

    /// What was sealed; `None` if it was made up.
    pub(crate) fn unseal(&self, sealed: &str) -> Option<(ReservationId, LaneId)> {
        let sealed = URL_SAFE_NO_PAD.decode(sealed).ok()?;
        let (number, rest) = sealed.split_first_chunk()?;
        let (lane, code) = rest.split_first_chunk()?;
        let code = u128::from_be_bytes(code.try_into().ok()?);
        let is_ours = code == self.code(sealed.get(..number.len() + lane.len())?);
        let id = ReservationId::from_number(u64::from_be_bytes(*number));
        is_ours.then_some((id, LaneId::new(u32::from_be_bytes(*lane))))
    }

    /// Not the digest of anything that somebody sends as a token.
    fn code(&self, said: &[u8]) -> u128 {
        self.digest(&[b"a reservation, not a token: ", said].concat())
    }

    fn digest(&self, secret: &[u8]) -> u128 {
        let mut hasher = SipHasher24::new_with_keys(self.key.0, self.key.1);
        hasher.write(secret);
        hasher.finish128().as_u128()
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
        let (keys, made_up) = keys(|_| {}).unwrap();
        assert_eq!(made_up, None);
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
    fn without_a_token_one_is_made_up_on_loopback_and_nothing_starts_elsewhere() {
        let (keys, made_up) = self::keys(|settings| settings.admin_token = None).unwrap();
        let made_up = made_up.unwrap();
        assert_eq!(made_up.len(), 32);
        assert_eq!(status(&keys, Right::Admin, &bearer(&made_up)), 200);
        let elsewhere = |settings: &mut Settings| {
            settings.admin_token = None;
            settings.listen = "0.0.0.0:80".parse().unwrap();
        };
        let error = self::keys(elsewhere).err().unwrap().to_string();
        assert!(
            error.contains("0.0.0.0:80 is no loopback address") && error.contains("TOLLGATE_ADMIN_TOKEN"),
            "{error}"
        );
    }

    #[test]
    fn checks_are_open_on_loopback_unless_told_otherwise() {
        let needs =
            |change: fn(&mut Settings)| keys(change).unwrap().0.require_check(&HeaderMap::new(), || PEER).is_err();
        assert!(needs(|_| {}), "a check token is there to be used");
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
    fn a_session_stands_for_the_admin_token_until_it_is_ended() {
        let (keys, _) = keys(|_| {}).unwrap();
        assert_eq!(keys.log_in(CHECK.as_bytes(), PEER).unwrap_err().status(), 401);
        let cookie = keys.log_in(ADMIN.as_bytes(), PEER).unwrap();
        assert!(cookie.contains("; HttpOnly; SameSite=Strict;"), "{cookie}");
        let mut headers = HeaderMap::new();
        let pair = cookie.split(';').next().unwrap();
        headers.insert(header::COOKIE, format!("theme=dark; {pair}").parse().unwrap());
        assert_eq!(status(&keys, Right::Admin, &headers), 200);
        keys.log_out(&headers);
        assert_eq!(status(&keys, Right::Admin, &headers), 401);
    }

    #[test]
    fn old_sessions_make_room() {
        let (keys, _) = keys(|_| {}).unwrap();
        for _ in 0..2 * SESSIONS_MAX {
            keys.log_in(ADMIN.as_bytes(), PEER).unwrap();
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
    fn guessing_ends_and_others_are_not_held_up() {
        let (keys, _) = keys(|_| {}).unwrap();
        let refused = (0..400).filter(|_| status(&keys, Right::Admin, &bearer("a guess")) == 429).count();
        assert!(refused > 100, "{refused}");
        let other = "192.0.2.8".parse().unwrap();
        assert!(keys.require(Right::Admin, &bearer(ADMIN), other).is_ok());
    }
}
