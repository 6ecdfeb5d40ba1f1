//! Values that are not ours, and servers that cannot write: an error, and no token minted.

use crate::link::{BUCKET, Link, key};
use crate::server::on_each;
use redis::Value;
use tollgate_redis::{AgentKey, BudgetSettlement, LaneKey, ReplyError, Settlement};

const WANTED: Settlement = Settlement { min: 1, want: 5, ..BUCKET };
const BUDGET: BudgetSettlement =
    BudgetSettlement { left_ms: 1_000, capacity: 10, owed: 0, give: 0, min: 1, want: 5, share: 1, over: 0, floor: 0 };

#[test]
fn a_value_that_is_not_ours_is_an_error() {
    on_each(|server| {
        let (mut link, key) = (Link::new(server.connect()), key(1, "api"));
        let digits = "1".repeat(17);
        let (long_at, long_debt) = (format!("{digits}:1"), format!("1:{digits}"));
        for value in [
            "",
            "17",
            "1790000000000000000",
            "x",
            "1:",
            ":1",
            "1:2:3",
            "-1:2",
            "1.5:2",
            "1e3:2",
            "0x1:2",
            " 1:2",
            "1:2\n",
            "nan:nan",
            "1:inf",
            &long_at,
            &long_debt,
        ] {
            link.send(&["SET", &key, value]).unwrap();
            let error = link.settle(&key, &WANTED).unwrap_err();
            assert_eq!(error.code(), Some("TOLLGATE"), "{value:?}: {error}");
            assert!(error.to_string().contains(&key) && error.to_string().contains("delete the key"), "{error}");
            let kept = link.send(&["GET", &key]).unwrap();
            assert_eq!(kept, Value::BulkString(value.as_bytes().to_vec()), "it stays as it was");
        }
    });
}

#[test]
fn a_count_that_is_not_ours_is_an_error() {
    on_each(|server| {
        let (mut link, key) = (Link::new(server.connect()), AgentKey::from_bits(1).budget(&LaneKey::new("llm"), 9));
        for value in ["", "x", "-1", "1.5", "1e3", "0x10", " 1", "1\n", "inf", "1790000000000000:5", &"9".repeat(17)] {
            link.send(&["SET", &key, value]).unwrap();
            let error = link.settle(&key, &BUDGET).unwrap_err();
            assert_eq!(error.code(), Some("TOLLGATE"), "{value:?}: {error}");
        }
    });
}

#[test]
fn a_key_of_another_type_is_an_error() {
    on_each(|server| {
        let (mut link, key) = (Link::new(server.connect()), key(1, "api"));
        link.send(&["HSET", &key, "field", "1"]).unwrap();
        for error in [link.settle(&key, &WANTED).unwrap_err(), link.settle(&key, &BUDGET).unwrap_err()] {
            assert_eq!(error.code(), Some("TOLLGATE"), "{error}");
            assert!(error.to_string().contains("WRONGTYPE"), "{error}");
        }
    });
}

#[test]
fn in_a_batch_such_a_key_spoils_its_own_answer_alone() {
    on_each(|server| {
        let mut link = Link::new(server.connect());
        let many: Vec<(String, Settlement)> = (0..4).map(|agent| (key(agent, "api"), WANTED)).collect();
        link.send(&["SET", &many[1].0, "17"]).unwrap();
        link.send(&["HSET", &many[2].0, "field", "1"]).unwrap();
        let reply: Value = link.scripts.settle_many(&many).unwrap().query(&mut link.connection).unwrap();
        let answers = link.scripts.settled_many(&many, &reply).unwrap();
        assert_eq!(answers.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, false, false, true]);
        for (answer, reason) in answers[1..3].iter().zip(["delete the key", "WRONGTYPE"]) {
            assert!(matches!(answer, Err(ReplyError::Refused { why }) if why.contains(reason)), "{answer:?}");
        }
        assert_eq!(link.settle(&many[3].0, &BUCKET).unwrap().granted, 0);
        assert!(link.settle(&many[3].0, &BUCKET).unwrap().debt_ns > 4_000_000_000, "the last one was settled");
    });
}

#[test]
fn a_server_without_memory_says_so_and_changes_nothing() {
    on_each(|server| {
        let mut link = Link::new(server.connect());
        link.settle(&key(1, "api"), &Settlement { owed: 5, ..BUCKET }).unwrap();
        link.send(&["CONFIG", "SET", "maxmemory", "1"]).unwrap();
        let error = link.settle(&key(1, "api"), &WANTED).unwrap_err();
        assert_eq!(error.code(), Some("OOM"), "{error}");
        link.send(&["CONFIG", "SET", "maxmemory", "0"]).unwrap();
        let debt_ns = link.settle(&key(1, "api"), &BUCKET).unwrap().debt_ns;
        assert!((4_000_000_000..=5_000_000_000).contains(&debt_ns), "{debt_ns}");
    });
}

#[test]
fn a_replica_grants_nothing() {
    on_each(|server| {
        let mut link = Link::new(server.connect());
        // Of a master that is not there.
        link.send(&["REPLICAOF", "127.0.0.1", "1"]).unwrap();
        let error = link.settle(&key(1, "api"), &WANTED).unwrap_err();
        assert_eq!(error.code(), Some("READONLY"), "{error}");
    });
}
