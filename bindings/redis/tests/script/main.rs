//! The scripts on real servers: against exact integers, and as an operator runs them.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a panic names the line that failed")]

mod access;
mod calls;
mod cost;
mod decided;
mod decisions;
mod exact;
mod faults;
mod foreign;
mod link;
mod oracle;
#[path = "../../../../tests/common/random.rs"]
mod random;
mod real_time;
#[path = "../server/mod.rs"]
mod server;

use exact::{compare, in_virtual_time, load};
use oracle::{Bucket, Budget};
use server::{Server, on_each};
use std::time::Instant;

fn agrees(server: &Server, calls: usize, seed: u64) {
    let mut connection = server.connect();
    let scripts = load(&mut connection, in_virtual_time);
    let begin = Instant::now();
    let buckets = compare::<Bucket>(&mut connection, &scripts, calls, seed).unwrap();
    let budgets = compare::<Budget>(&mut connection, &scripts, calls / 4, seed).unwrap();
    let (kind, elapsed) = (server.kind(), begin.elapsed().as_secs_f64());
    println!("{kind:?}: {buckets} calls with buckets, {budgets} with budgets, no difference, {elapsed:.1} s");
}

#[test]
fn the_scripts_agree_with_exact_integers() {
    on_each(|server| agrees(server, 10_000, 1));
}

#[test]
#[ignore = "a million calls: make ignored"]
fn the_scripts_agree_with_exact_integers_a_million_times() {
    on_each(|server| agrees(server, 1_000_000, 2));
}
