//! A user of the server that may do what a node does, and nothing else.

use crate::link::{BUCKET, Link, key};
use crate::server::{Kind, on_each};
use redis::{Client, Connection, Value};
use tollgate_redis::{AgentKey, BudgetSettlement, DecisionScripts, LaneKey, Settlement};
use tollgate_redis::{Field, Put, StoreRequest};

/// What `README.md` tells operators to allow.
fn rules(kind: Kind) -> Vec<String> {
    let readme = include_str!("../../README.md");
    let line = readme.lines().find(|line| line.starts_with("ACL SETUSER tollgate")).expect("the README's list");
    let rules = line.split_whitespace().skip(3);
    // Known from 7.2 on, of Redis and of Valkey.
    let is_known = |rule: &&str| kind != Kind::Redis || *rule != "+client|setinfo";
    rules.filter(is_known).map(str::to_owned).collect()
}

#[test]
fn the_list_in_the_readme_suffices_and_allows_no_other_key() {
    on_each(|server| {
        let mut admin = server.connect();
        let mut command = redis::cmd("ACL");
        command.arg("SETUSER").arg("tollgate").arg(rules(server.kind()));
        command.exec(&mut admin).unwrap();
        let client = Client::open(server.url_of("tollgate", "SECRET")).unwrap();
        let mut link = Link::new(client.get_connection().unwrap());
        assert_eq!(link.send(&["ACL", "WHOAMI"]).unwrap_err().code(), Some("NOPERM"), "ours is the limited user");

        let bucket = key(1, "api");
        link.settle(&bucket, &Settlement { owed: 5, ..BUCKET }).unwrap();
        link.settle(&bucket, &Settlement { give: 5, ..BUCKET }).unwrap();
        let many = [(bucket.as_str(), BUCKET)];
        link.scripts.settle_many(&many).unwrap().exec(&mut link.connection).unwrap();
        let budget = AgentKey::from_bits(1).budget(&LaneKey::new("llm"), 9);
        let asked = BudgetSettlement {
            left_ms: 1,
            capacity: 9,
            owed: 1,
            give: 0,
            min: 0,
            want: 0,
            share: 1,
            over: 0,
            floor: 0,
        };
        link.settle(&budget, &asked).unwrap();
        let replies = DecisionScripts::load().map(|command| command.query::<Value>(&mut link.connection).unwrap());
        // So that removals are forgotten too.
        let scripts = DecisionScripts::loaded(&replies, "tag", "node").unwrap().removals(0, 0);
        let put = |is_live| vec![Put { field: Field::Agent(1), stamp: 0, is_live, sealed: Box::default() }];
        for request in [
            StoreRequest::Head,
            StoreRequest::Put { born: 1, number: 1, puts: put(true) },
            StoreRequest::Since(0),
            StoreRequest::Put { born: 1, number: 2, puts: put(false) },
        ] {
            scripts.command(&request).exec(&mut link.connection).unwrap();
        }
        for words in [
            &["PING"] as &[&str],
            &["INFO", "memory"],
            &["HELLO", "3"],
            &["HELLO", "2"],
            &["TIME"],
            &["ZADD", "tollgate:nodes:{x}", "1", "node"],
            &["ZREMRANGEBYSCORE", "tollgate:nodes:{x}", "-inf", "0"],
            &["ZCARD", "tollgate:nodes:{x}"],
            &["GET", &bucket],
            &["SET", &bucket, "1:1"],
            &["DEL", &bucket],
        ] {
            link.send(words).unwrap_or_else(|error| panic!("{words:?}: {error}"));
        }
        if server.kind() == Kind::Valkey {
            link.send(&["CLIENT", "SETINFO", "LIB-NAME", "tollgate"]).unwrap();
        }

        redis::cmd("SET").arg("other").arg("5").exec(&mut admin).unwrap();
        let reply = link.settle("other", &Settlement { owed: 5, ..BUCKET }).unwrap_err();
        assert_eq!(reply.code(), Some("NOPERM"), "{reply}");
        for words in [
            &["GET", "other"] as &[&str],
            &["SET", "other", "1"],
            &["DEL", "other"],
            &["ZADD", "other", "1", "node"],
            &["EVAL", "return redis.call('GET', 'other')", "0"],
            &["KEYS", "*"],
            &["FLUSHALL"],
            &["SCRIPT", "FLUSH"],
            &["CONFIG", "GET", "*"],
        ] {
            let error = link.send(words).unwrap_err();
            assert_eq!(error.code(), Some("NOPERM"), "{words:?}: {error}");
        }
        let kept: Value = redis::cmd("GET").arg("other").query(&mut admin).unwrap();
        assert_eq!(kept, Value::BulkString(b"5".to_vec()));
    });
}

/// A call that each rule allows.
fn call(rule: &str) -> &'static [&'static str] {
    match rule {
        "+evalsha" => &["EVALSHA", "digest", "1", "tollgate:a"],
        "+script|load" => &["SCRIPT", "LOAD", "return 1"],
        "+get" => &["GET", "tollgate:a"],
        "+set" => &["SET", "tollgate:a", "1"],
        "+del" => &["DEL", "tollgate:a"],
        "+time" => &["TIME"],
        "+ping" => &["PING"],
        "+info" => &["INFO"],
        "+zadd" => &["ZADD", "tollgate:nodes:{x}", "1", "node"],
        "+zcard" => &["ZCARD", "tollgate:nodes:{x}"],
        "+zremrangebyscore" => &["ZREMRANGEBYSCORE", "tollgate:nodes:{x}", "-inf", "0"],
        "+hget" => &["HGET", "tollgate:a", "b"],
        "+hset" => &["HSET", "tollgate:a", "b", "1"],
        "+hmget" => &["HMGET", "tollgate:a", "b"],
        "+hdel" => &["HDEL", "tollgate:a", "b"],
        "+zrem" => &["ZREM", "tollgate:a", "b"],
        "+zrangebyscore" => &["ZRANGEBYSCORE", "tollgate:a", "-inf", "0"],
        "+client|setinfo" => &["CLIENT", "SETINFO", "LIB-NAME", "tollgate"],
        _ => panic!("{rule}: say how it is called"),
    }
}

#[test]
fn every_rule_of_the_list_is_needed() {
    on_each(|server| {
        let mut admin = server.connect();
        let rules = rules(server.kind());
        // HELLO is allowed to everybody: its rule only says that we use it.
        let granting: Vec<&String> = rules.iter().filter(|rule| rule.starts_with('+') && *rule != "+hello").collect();
        assert!(granting.len() > 10, "{granting:?}");
        for left_out in granting {
            let answer = |admin: &mut Connection, rules: &[&String]| -> String {
                redis::cmd("ACL").arg("SETUSER").arg("tried").arg("reset").arg(rules).exec(admin).unwrap();
                redis::cmd("ACL").arg("DRYRUN").arg("tried").arg(call(left_out)).query(admin).unwrap()
            };
            let all: Vec<&String> = rules.iter().collect();
            let others: Vec<&String> = rules.iter().filter(|rule| *rule != left_out).collect();
            assert_eq!(answer(&mut admin, &all), "OK", "{left_out}");
            assert!(answer(&mut admin, &others).contains("no permissions"), "{left_out}");
        }
    });
}
