//! The scripts of decisions beside their model, call by call, in virtual time.

use crate::decided::DecidedStore;
use crate::random::Random;
use crate::server::on_each;
use redis::{Connection, Value};
use tollgate_redis::{DECISIONS_MAX, DecisionScripts, Field, Put, StoreReply, StoreRequest};

const NAMES: [&str; 2] = ["first", "second"];
const LIVES_US: u64 = 50_000;
const REMOVALS_MAX: usize = 20;
/// The clock of the scripts: seconds and microseconds in a key.
const CLOCK: &str = "tollgate:clock";

/// The scripts of each engine, with these changes.
fn load(connection: &mut Connection, changes: &[(&str, &str)]) -> [DecisionScripts; 2] {
    let mut replies = Vec::new();
    for text in DecisionScripts::texts() {
        let clock = format!("{{string.match(redis.call('GET', '{CLOCK}'), '(%d+) (%d+)')}}");
        let mut text = text.replace("redis.call('TIME')", &clock);
        changes.iter().for_each(|(from, to)| text = text.replace(from, to));
        replies.push(redis::cmd("SCRIPT").arg("LOAD").arg(text).query::<Value>(connection).unwrap());
    }
    NAMES.map(|name| DecisionScripts::loaded(&replies, "tag", name).unwrap().removals(LIVES_US, REMOVALS_MAX as u64))
}

/// A random request. Restored stamps are near those that are known.
fn request(random: &mut Random, store: &DecidedStore, numbers: &mut [u64; 2], engine: usize) -> StoreRequest {
    let place = store.head().place;
    match random.below(8) {
        0 => StoreRequest::Head,
        1 | 2 => StoreRequest::Since(place.saturating_sub(random.below(4) * random.below(200_000))),
        kind => {
            let count = if random.below(10) == 0 { DECISIONS_MAX as u64 } else { 1 + random.below(4) };
            let is_new = kind < 6;
            let put = |random: &mut Random| {
                let field = Field::Agent(random.below(if count > 9 { 2_000 } else { 40 }).into());
                let near = store.decision(field).map_or(place, |(stamp, _)| stamp) + random.below(6);
                let stamp = if is_new { 0 } else { near.saturating_sub(2).max(1) };
                let sealed = random.next().to_le_bytes().as_slice().into();
                Put { field, stamp, is_live: random.below(2) == 0, sealed }
            };
            // Now and then a call that was sent before.
            numbers[engine] += u64::from(random.below(4) > 0);
            let number = if is_new { numbers[engine].max(1) } else { 0 };
            let mut puts: Vec<Put> = (0..count).map(|_| put(random)).collect();
            puts.sort_by_key(|put| put.field);
            puts.dedup_by_key(|put| put.field);
            StoreRequest::Put { born: random.next().into(), number, puts }
        }
    }
}

/// Makes so many calls, and returns the first that is answered otherwise than the model does.
fn compare(connection: &mut Connection, changes: &[(&str, &str)], calls: usize, seed: u64) -> Result<(), String> {
    redis::cmd("FLUSHALL").exec(connection).unwrap();
    let scripts = load(connection, changes);
    let mut random = Random::new(seed);
    let (mut store, mut numbers, mut now_us) = (DecidedStore::new(LIVES_US, REMOVALS_MAX), [0; 2], 1_000_000_u64);
    for call in 0..calls {
        now_us = match random.below(1_000) {
            ..25 => now_us.saturating_sub(random.below(100_000)),
            25..500 => now_us,
            _ => now_us + random.below(3_000),
        };
        // For one call the clock is beyond what can be counted. The time before that is as far away as any other: 2112.
        let now_us = if random.below(1_000) == 0 { (1 << 52) + random.below(9) } else { now_us };
        let engine = random.below(2) as usize;
        let request = request(&mut random, &store, &mut numbers, engine);
        let clock = format!("{} {}", now_us / 1_000_000, now_us % 1_000_000);
        redis::cmd("SET").arg(CLOCK).arg(clock).exec(connection).unwrap();
        let expected = store.answer(now_us, NAMES[engine], &request);
        let reply = scripts[engine].command(&request).query::<Value>(connection).map_err(|error| error.to_string())?;
        let reply = scripts[engine].reply(&request, &reply).map_err(|error| error.to_string())?;
        if !is_same(&reply, &expected) {
            return Err(format!("call {call}, {request:?}:\n{reply:?} came, and\n{expected:?} was expected"));
        }
    }
    Ok(())
}

/// Whether two answers are the same. Fields of one place have no order: the server sorts them by their text.
fn is_same(reply: &StoreReply, expected: &StoreReply) -> bool {
    match (reply, expected) {
        (StoreReply::Since(a, in_a), StoreReply::Since(b, in_b)) => {
            let sorted = |stored: &[tollgate_redis::Stored]| {
                let mut all = stored.to_vec();
                all.sort_by_key(|stored| (stored.place, stored.field));
                all
            };
            a == b && sorted(in_a) == sorted(in_b)
        }
        (reply, expected) => reply == expected,
    }
}

#[test]
fn the_scripts_of_decisions_agree_with_their_model() {
    on_each(|server| compare(&mut server.connect(), &[], 3_000, 1).unwrap());
}

#[test]
#[ignore = "a hundred thousand calls: make ignored"]
fn the_scripts_of_decisions_agree_with_their_model_for_long() {
    on_each(|server| (0..10).for_each(|seed| compare(&mut server.connect(), &[], 10_000, seed).unwrap()));
}

#[test]
fn every_fault_in_the_scripts_of_decisions_is_noticed() {
    on_each(|server| {
        for (what, from, to) in [
            ("accepted twice", ">= number then", "> number then"),
            ("an older one wins", "stamp > known and", "stamp ~= known and"),
            ("the same again is news", "stamp > known and", "stamp >= known and"),
            ("a removal that was forgotten comes back", "stamp > horizon)", "stamp > 0)"),
            ("no horizon", "horizon = math.max(horizon, tonumber(old[i + 1]))", ""),
            ("removals count", "if is_live == '1' then\n      sum", "if true then\n      sum"),
            ("a stamp beyond the place", "place = math.max(place, tonumber(ARGV[i + 2]))", ""),
            ("a clock that steps back", "place = math.max(place, now)", "place = now"),
            ("removals stay", "'LIMIT', 0, 64)", "'LIMIT', 0, 0)"),
            ("too many removals stay", "excess > 0", "excess > 1000"),
            ("nothing written moves the place", "if written == 0 then", "if false then"),
            ("decisions of a call are torn apart", "found[#found] == last do", "false do"),
        ] {
            assert_eq!(
                DecisionScripts::texts().concat().matches(from).count(),
                1,
                "{what}: {from:?} stands there once"
            );
            let noticed = compare(&mut server.connect(), &[(from, to)], 3_000, 1);
            assert!(noticed.is_err(), "{what}: {:?} answered as it should", server.kind());
        }
    });
}

/// What somebody else has written in the place of a decision is shown as that; a key of another type is an error, and
/// nothing is written.
#[test]
fn what_somebody_else_has_written_is_shown_and_not_taken_for_a_decision() {
    on_each(|server| {
        let mut connection = server.connect();
        redis::cmd("SET").arg(CLOCK).arg("1 0").exec(&mut connection).unwrap();
        let [scripts, _] = load(&mut connection, &[]);
        let ask = |connection: &mut Connection, request: &StoreRequest| {
            let reply = scripts.command(request).query::<Value>(connection).map_err(|error| error.to_string())?;
            scripts.reply(request, &reply).map_err(|error| error.to_string())
        };
        let put = |number| {
            let puts = vec![Put { field: Field::Agent(1), stamp: 0, is_live: true, sealed: Box::default() }];
            StoreRequest::Put { born: 1, number, puts }
        };
        ask(&mut connection, &put(1)).unwrap();
        let key = DecisionScripts::key_of("tag");
        let field = Field::Agent(1).to_string();
        redis::cmd("HSET").arg(&key).arg(field).arg("mine").exec(&mut connection).unwrap();
        let StoreReply::Since(_, stored) = ask(&mut connection, &StoreRequest::Since(0)).unwrap() else { panic!() };
        assert_eq!((stored.len(), &stored[0].value), (1, &None));
        ask(&mut connection, &put(2)).unwrap();
        let StoreReply::Since(_, stored) = ask(&mut connection, &StoreRequest::Since(0)).unwrap() else { panic!() };
        assert!(stored[0].value.is_some(), "an operator's decision goes over it");
        for part in ["", ":order", ":head", ":removed", ":put:first"] {
            let key = key.clone() + part;
            redis::cmd("DEL").arg(&key).exec(&mut connection).unwrap();
            redis::cmd("LPUSH").arg(&key).arg("mine").exec(&mut connection).unwrap();
            let before: Vec<String> = redis::cmd("KEYS").arg("*").query(&mut connection).unwrap();
            let error = ask(&mut connection, &put(3)).unwrap_err();
            assert!(error.contains("WRONGTYPE"), "{part}: {error}");
            let after: Vec<String> = redis::cmd("KEYS").arg("*").query(&mut connection).unwrap();
            assert_eq!(before.len(), after.len());
            redis::cmd("DEL").arg(&key).exec(&mut connection).unwrap();
        }
    });
}
