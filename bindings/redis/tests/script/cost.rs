//! What a settlement costs the server: CPU time by its own count, and memory.

use crate::link::{BUCKET, Link, key};
use crate::server::{Server, on_each};
use redis::{Cmd, Value, pipe};
use tollgate_redis::{SETTLEMENTS_MAX, Settlement};

/// Of a warm server: agents, and rounds over all of them.
const AGENTS: u64 = 64 * 256;
const ROUNDS: u64 = 8;

/// What the buckets owe whose memory is measured: the longer, the more digits.
const MINUTE_NS: u64 = 60_000_000_000;

/// One field of INFO.
fn info(link: &mut Link, section: &str, field: &str) -> f64 {
    let text: String = redis::cmd("INFO").arg(section).query(&mut link.connection).unwrap();
    let value = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    value.and_then(|value| value.trim().parse().ok()).unwrap_or_else(|| panic!("{field} in {text}"))
}

fn cpu_us(link: &mut Link) -> f64 {
    (info(link, "cpu", "used_cpu_user") + info(link, "cpu", "used_cpu_sys")) * 1e6
}

/// Bytes for each of many new keys that a command a key makes.
fn memory(server: &Server, command: impl Fn(&Link, &str) -> Cmd) -> f64 {
    const KEYS: u32 = 96_000;
    let mut link = Link::new(server.connect());
    let begin = info(&mut link, "memory", "used_memory");
    for some in (0..KEYS).collect::<Vec<_>>().chunks(1_000) {
        let mut commands = pipe();
        for agent in some {
            commands.add_command(command(&link, &key(u128::from(*agent) << 64, "http/heavy")));
        }
        commands.exec(&mut link.connection).unwrap();
    }
    (info(&mut link, "memory", "used_memory") - begin) / f64::from(KEYS)
}

/// CPU time for each of as many settlements as there are agents times rounds.
fn measure(link: &mut Link, asked: Settlement, batch: usize) -> f64 {
    let keys: Vec<(String, Settlement)> =
        (0..AGENTS).map(|agent| (key(u128::from(agent) << 64 | u128::from(agent), "http/heavy"), asked)).collect();
    let begin = cpu_us(link);
    for _ in 0..ROUNDS {
        // As a node sends them: a round trip for 1,024 settlements.
        for some in keys.chunks(1_024) {
            let mut commands = pipe();
            for batched in some.chunks(batch) {
                let command = match batched {
                    [(key, asked)] => link.scripts.settle(key, asked),
                    _ => link.scripts.settle_many(batched),
                };
                commands.add_command(command.unwrap());
            }
            let replies: Vec<Value> = commands.query(&mut link.connection).unwrap();
            assert_eq!(replies.len(), some.len().div_ceil(batch));
        }
    }
    (cpu_us(link) - begin) / (AGENTS * ROUNDS) as f64
}

fn costs(server: &Server) {
    let mut link = Link::new(server.connect());
    let kind = server.kind();
    // Seldom full again while this runs, and never at the end of its overdraft.
    let large = Settlement { token_ns: 60_000_000_000, capacity: 10_000, share: 6, over: 1_000, ..BUCKET };
    let granted = Settlement { owed: 1, min: 1, want: 5, ..large };
    let denied = Settlement { capacity: 1, min: 1, want: 1, ..large };
    println!("| {kind:?}, CPU µs a settlement | alone | in batches of {SETTLEMENTS_MAX} |");
    println!("|---|---:|---:|");
    measure(&mut link, granted, 1);
    for (what, asked) in [("paid and granted", granted), ("denied", denied)] {
        let alone = measure(&mut link, asked, 1);
        let batched = measure(&mut link, asked, SETTLEMENTS_MAX);
        println!("| {what} | {alone:.1} | {batched:.1} |");
    }
    println!();
}

#[test]
#[ignore = "it measures, for half a minute: the command is in the README"]
fn what_a_settlement_costs_the_server() {
    on_each(|server| {
        // On an empty server each: what is freed is not always freed at once.
        let owed = Settlement { token_ns: MINUTE_NS, owed: 1, ..BUCKET };
        let bucket = memory(server, |link, key| link.scripts.settle(key, &owed).unwrap());
        server.restart_empty();
        let integer = memory(server, |_, key| {
            let mut command = redis::cmd("SET");
            command.arg(key).arg(1_790_000_000_000_000_000_u64).arg("PX").arg(MINUTE_NS / 1_000_000).take()
        });
        server.restart_empty();
        println!("{:?}: {bucket:.0} bytes a bucket that is not full; an integer there is {integer:.0}", server.kind());
        costs(server);
    });
}
