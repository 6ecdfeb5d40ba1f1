//! Rights, sessions and guesses.

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
    keys.require(right, headers, PEER).map_or_else(|problem| problem.status().as_u16(), |_| 200)
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
    let needs = |change: fn(&mut Settings)| keys(change).unwrap().0.require_check(&HeaderMap::new(), || PEER).is_err();
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
