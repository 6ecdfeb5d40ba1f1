//! The scripts as they are sent, by the server's own clock.

use crate::link::{BUCKET, Link, key};
use crate::server::on_each;
use redis::Value;
use std::time::{Duration, Instant};
use tollgate_redis::{AgentKey, BudgetSettlement, EXPIRY_MARGIN_MS, LaneKey, SETTLEMENTS_MAX, Settled, Settlement};

const SECOND: u64 = 1_000_000_000;

#[test]
fn a_debt_shrinks_as_the_servers_clock_goes() {
    on_each(|server| {
        let (mut link, key) = (Link::new(server.connect()), key(1, "api"));
        let sent = Instant::now();
        assert_eq!(link.settle(&key, &Settlement { owed: 7, ..BUCKET }).unwrap().debt_ns, 7 * SECOND);
        let answered = Instant::now();
        std::thread::sleep(Duration::from_millis(50));
        let least = answered.elapsed();
        let debt = Duration::from_nanos(link.settle(&key, &BUCKET).unwrap().debt_ns);
        let gone = Duration::from_secs(7) - debt;
        // The server's clock is not ours to the microsecond.
        let error = Duration::from_millis(5);
        assert!(least <= gone + error && gone <= sent.elapsed() + error, "{gone:?} after {least:?}");
    });
}

#[test]
fn a_key_lives_a_second_longer_than_its_debt_and_no_more() {
    on_each(|server| {
        let mut link = Link::new(server.connect());
        let long = key(1, "api");
        link.settle(&long, &Settlement { owed: 7, ..BUCKET }).unwrap();
        let ttl_ms = link.ttl_ms(&long);
        assert!((7_000..=8_000).contains(&ttl_ms), "{ttl_ms} ms");
        let short = key(2, "api");
        let begin = Instant::now();
        link.settle(&short, &Settlement { token_ns: 1, owed: 1, ..BUCKET }).unwrap();
        // Ends: at the latest the assertion fails.
        while link.ttl_ms(&short) != -2 {
            assert!(begin.elapsed() < Duration::from_secs(20), "a key of a nanosecond's debt lives on");
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(begin.elapsed() > Duration::from_millis(900), "{:?}", begin.elapsed());
    });
}

#[test]
fn a_full_bucket_has_no_key() {
    on_each(|server| {
        let (mut link, key) = (Link::new(server.connect()), key(1, "api"));
        link.settle(&key, &BUCKET).unwrap();
        assert_eq!(link.ttl_ms(&key), -2, "nothing was asked, and nothing is kept");
        let taken = link.settle(&key, &Settlement { min: 1, want: 4, ..BUCKET }).unwrap();
        assert_eq!((taken.granted, taken.debt_ns), (4, 4 * SECOND));
        assert!(link.ttl_ms(&key) > 0);
        assert_eq!(link.settle(&key, &Settlement { give: 4, ..BUCKET }).unwrap().debt_ns, 0);
        assert_eq!(link.ttl_ms(&key), -2);
    });
}

#[test]
fn nodes_with_different_limits_agree_on_a_debt() {
    // A node with a smaller limit once cut the debt to its own, and so gave the
    // other node's tokens back: a plan that came with each request was enough.
    on_each(|server| {
        let (mut link, key) = (Link::new(server.connect()), key(1, "api"));
        link.settle(&key, &Settlement { owed: 10, ..BUCKET }).unwrap();
        let small = Settlement { capacity: 1, owed: 1, want: 1, ..BUCKET };
        let seen = link.settle(&key, &small).unwrap();
        assert!(seen.granted == 0 && seen.debt_ns > 9 * SECOND, "{seen:?}");
        let large = link.settle(&key, &Settlement { want: 10, ..BUCKET }).unwrap();
        assert!(large.granted <= 1, "{large:?}");
    });
}

#[test]
fn many_keys_are_settled_as_one_by_one() {
    on_each(|server| {
        let mut link = Link::new(server.connect());
        let asked = |i: u64| Settlement { capacity: 100, owed: i, min: 1, want: 5, share: 3, ..BUCKET };
        let many = |i: u64| (key(u128::from(i), "many"), asked(i));
        let many: Vec<(String, Settlement)> = (0..SETTLEMENTS_MAX as u64).map(many).collect();
        let reply: Value = link.scripts.settle_many(&many).unwrap().query(&mut link.connection).unwrap();
        let answers = link.scripts.settled_many(&many, &reply).unwrap();
        for (i, answer) in (0..).zip(answers) {
            let one: Settled = link.settle(&key(i, "one"), &asked(i as u64)).unwrap();
            assert_eq!(answer, Ok(one), "{i}");
        }
    });
}

#[test]
fn a_budget_outlives_its_window_and_forgets_nothing() {
    on_each(|server| {
        let mut link = Link::new(server.connect());
        let (agent, lane) = (AgentKey::from_bits(7), LaneKey::new("llm/tokens"));
        let (today, tomorrow) = (agent.budget(&lane, 20_410), agent.budget(&lane, 20_411));
        let asked = BudgetSettlement {
            left_ms: 1_000,
            capacity: 10_000,
            owed: 9_000,
            give: 0,
            min: 1,
            want: 2_000,
            share: 1,
            over: 500,
            floor: 0,
        };
        let first = link.settle(&today, &asked).unwrap();
        assert_eq!((first.granted, first.used), (1_000, 10_000));
        let margin = i64::try_from(EXPIRY_MARGIN_MS).unwrap();
        let ttl_ms = link.ttl_ms(&today);
        assert!((margin..=margin + 1_000).contains(&ttl_ms), "{ttl_ms} ms");
        let forced = link.settle(&today, &asked).unwrap();
        assert_eq!((forced.granted, forced.used), (0, 10_500), "no more than the overdraft");
        let other = link.settle(&tomorrow, &asked).unwrap();
        assert_eq!((other.granted, other.used), (1_000, 10_000), "another window");
        let given = link.settle(&today, &BudgetSettlement { give: 10_500, owed: 0, want: 0, min: 0, ..asked }).unwrap();
        assert_eq!(given.used, 0);
        assert_eq!(link.ttl_ms(&today), -2);
    });
}

#[test]
fn a_script_that_is_gone_is_an_error_and_can_be_loaded_again() {
    on_each(|server| {
        let mut link = Link::new(server.connect());
        link.send(&["SCRIPT", "FLUSH"]).unwrap();
        let error = link.settle(&key(1, "api"), &BUCKET).unwrap_err();
        assert_eq!(error.code(), Some("NOSCRIPT"), "{error}");
        let scripts = link.scripts.clone();
        let mut link = Link::new(link.connection);
        assert_eq!(link.scripts, scripts, "digests are those of the texts");
        link.settle(&key(1, "api"), &BUCKET).unwrap();
        server.restart_empty();
        assert!(link.settle(&key(1, "api"), &BUCKET).is_err(), "the connection is gone");
        let mut bare = Link { connection: server.connect(), scripts };
        assert_eq!(bare.settle(&key(1, "api"), &BUCKET).unwrap_err().code(), Some("NOSCRIPT"));
    });
}

#[test]
fn a_paused_server_answers_when_it_goes_on() {
    on_each(|server| {
        let mut link = Link::new(server.connect());
        link.connection.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        server.pause();
        let error = link.settle(&key(1, "api"), &Settlement { owed: 1, ..BUCKET }).unwrap_err();
        assert!(error.is_timeout(), "{error}");
        server.resume();
        // What was sent is carried out, though its answer was not waited for: it must not be sent again.
        let debt_ns = Link::new(server.connect()).settle(&key(1, "api"), &BUCKET).unwrap().debt_ns;
        assert!(debt_ns > 0, "{debt_ns}");
    });
}
