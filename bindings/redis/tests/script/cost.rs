//! What a settlement costs the server: CPU time by its own count, and memory.

use crate::link::{BUCKET, Link, key};
use crate::server::{Server, on_each};
use redis::{Value, pipe};
use tollgate_redis::{SETTLEMENTS_MAX, Settlement};

/// Of a warm server: agents, and rounds over all of them.
const AGENTS: u64 = 64 * 256;
const ROUNDS: u64 = 8;

/// One field of INFO.
fn info(link: &mut Link, section: &str, field: &str) -> f64 {
    let text: String = redis::cmd("INFO").arg(section).query(&mut link.connection).unwrap();
    let value = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    value.and_then(|value| value.trim().parse().ok()).unwrap_or_else(|| panic!("{field} in {text}"))
}

fn cpu_us(link: &mut Link) -> f64 {
    (info(link, "cpu", "used_cpu_user") + info(link, "cpu", "used_cpu_sys")) * 1e6
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
    link.send(&["FLUSHALL"]).unwrap();
    let begin = info(&mut link, "memory", "used_memory");
    measure(&mut link, granted, SETTLEMENTS_MAX);
    let memory = (info(&mut link, "memory", "used_memory") - begin) / AGENTS as f64;
    println!("{kind:?}: {memory:.0} bytes of memory for each bucket that is not full\n");
}

#[test]
#[ignore = "it measures, for a quarter of a minute"]
fn what_a_settlement_costs_the_server() {
    on_each(|server| costs(server));
}
