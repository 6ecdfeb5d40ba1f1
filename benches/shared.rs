//! What sharing costs: a check on a shared slab beside one on a private slab, and two processes beside two threads.
//!
//! Short rounds alternate, and so does which side begins, so that what else the machine does disturbs both alike. Each
//! row has the medians of both sides, and the ratio of two rounds that follow one another, as the median of all such
//! pairs. A ratio that is out of bounds fails the bench, unless the look is a short one. Agents are random ones of
//! those that have records, at the caller's instant, so that no clock is read. The slab is on /dev/shm. Two threads and
//! two processes check the same limiter for the same time, and what they checked together is counted.
//!
//! `cargo bench --features shared --bench shared`, with `-- --quick` for a short look.

use std::hint::black_box;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tollgate::{LaneId, Limiter, Policy, Request, Tick};

const PROCESS: &str = "TOLLGATE_BENCH_SLAB";

fn limiter(agents: u64, slab: Option<&Path>) -> Limiter {
    let policy = Policy::builder().lane("http", "1000000/s burst 1000000").build().expect("a valid policy");
    let builder = Limiter::builder(policy).agents(agents);
    let builder = slab.map_or(builder.clone(), |slab| builder.shared(slab));
    let limiter = builder.build().expect("room for the slab");
    let lane = LaneId::new(0);
    for agent in 0..agents {
        let _ = limiter.check_request(Request::new(&id(agent), lane)).expect("an answer");
    }
    limiter
}

fn id(agent: u64) -> [u8; 16] {
    *format!("agent-{agent:010}").as_bytes().first_chunk().expect("sixteen bytes")
}

/// SplitMix64.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*state ^ *state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

/// Checks random agents, and returns how many nanoseconds one takes.
fn round(limiter: &Limiter, ids: &[[u8; 16]], checks: u64, now: Tick) -> f64 {
    let (mut state, lane) = (7, LaneId::new(0));
    let start = Instant::now();
    for _ in 0..checks {
        let agent = &ids[(next(&mut state) % ids.len() as u64) as usize];
        let _ = black_box(limiter.check_request(Request::new(agent, lane).at(now)));
    }
    start.elapsed().as_nanos() as f64 / checks as f64
}

/// Checks random agents for this long, and returns how many.
fn for_a_while(limiter: &Limiter, ids: &[[u8; 16]], seed: u64, time: Duration) -> u64 {
    let (mut state, mut checks, lane) = (seed, 0, LaneId::new(0));
    let start = Instant::now();
    while start.elapsed() < time {
        let now = limiter.now();
        for _ in 0..1_000 {
            let agent = &ids[(next(&mut state) % ids.len() as u64) as usize];
            let _ = black_box(limiter.check_request(Request::new(agent, lane).at(now)));
        }
        checks += 1_000;
    }
    checks
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<_> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// What a check may take in a shared slab, where 1 is a private one.
const SHARED_MAX: f64 = 1.05;

/// What two processes must do together, where 1 is two threads.
const PROCESSES_MIN: f64 = 0.95;

/// The medians of two sides, and of the ratios of the second to the first.
fn compare(rounds: usize, mut first: impl FnMut() -> f64, mut second: impl FnMut() -> f64) -> [f64; 3] {
    let pairs: Vec<_> = (0..rounds)
        .map(|round| {
            if round % 2 == 0 {
                return (first(), second());
            }
            let second = second();
            (first(), second)
        })
        .collect();
    let of = |side: fn(&(f64, f64)) -> f64| median(pairs.iter().map(side));
    [of(|pair| pair.0), of(|pair| pair.1), of(|pair| pair.1 / pair.0)]
}

fn ids(agents: u64) -> Vec<[u8; 16]> {
    (0..agents).map(id).collect()
}

/// Whether the ratio is within its bound.
fn beside_private(agents: u64, slab: &Path, rounds: usize, checks: u64) -> bool {
    let (private, shared, ids) = (limiter(agents, None), limiter(agents, Some(slab)), ids(agents));
    let of = |limiter: &Limiter| round(limiter, &ids, checks, limiter.now());
    let [private, shared, ratio] = compare(rounds, || of(&private), || of(&shared));
    println!(
        "{agents:>9} agents: private {private:.1} ns, shared {shared:.1} ns, ratio {ratio:.3} of {rounds} rounds, at most \
         {SHARED_MAX}"
    );
    ratio <= SHARED_MAX
}

const AGENTS: u64 = 1_000;

/// Whether the ratio is within its bound.
fn beside_threads(slab: &Path, rounds: usize, time: Duration) -> bool {
    let (shared, ids) = (limiter(AGENTS, Some(slab)), ids(AGENTS));
    let threads = || {
        let (shared, ids) = (&shared, &ids);
        std::thread::scope(|scope| {
            let threads = [1, 2].map(|seed| scope.spawn(move || for_a_while(shared, ids, seed, time)));
            threads.map(|thread| thread.join().expect("a count")).iter().sum::<u64>() as f64
        })
    };
    let processes = || {
        let start = |seed: &str| {
            let mut command = Command::new(std::env::current_exe().expect("the path of this program"));
            let command = command.env(PROCESS, slab).args([seed, &time.as_millis().to_string()]);
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a process")
        };
        let mut children = ["1", "2"].map(start);
        let mut said = [0; 6];
        // Both are ready before either begins.
        children.iter_mut().for_each(|child| {
            child.stdout.as_mut().expect("a pipe").read_exact(&mut said).expect("a word");
        });
        children.iter_mut().for_each(|child| drop(child.stdin.take()));
        let count = |child: std::process::Child| {
            let output = child.wait_with_output().expect("an end");
            String::from_utf8_lossy(&output.stdout).trim().parse::<f64>().expect("a count")
        };
        children.map(count).iter().sum::<f64>()
    };
    let [threads, processes, ratio] = compare(rounds, threads, processes);
    let [threads, processes] = [threads, processes].map(|checks| checks / time.as_secs_f64() / 1e6);
    println!(
        "two threads {threads:.1} M checks/s, two processes {processes:.1} M checks/s, ratio {ratio:.3} of {rounds} rounds, \
         at least {PROCESSES_MIN}"
    );
    ratio >= PROCESSES_MIN
}

/// One of two processes.
fn process(slab: &Path) {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [seed, time] = [&arguments[0], &arguments[1]].map(|number| number.parse::<u64>().expect("a number"));
    let (limiter, ids) = (limiter(AGENTS, Some(slab)), ids(AGENTS));
    println!("ready");
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    println!("{}", for_a_while(&limiter, &ids, seed, Duration::from_millis(time)));
}

fn main() {
    if let Some(slab) = std::env::var_os(PROCESS) {
        return process(Path::new(&slab));
    }
    let quick = std::env::args().any(|argument| argument == "--quick");
    let directory = Path::new("/dev/shm").join(format!("tollgate-bench-{}", std::process::id()));
    std::fs::create_dir(&directory).expect("a directory in memory");
    let (rounds, checks, time) = if quick { (5, 200_000, 100) } else { (101, 400_000, 300) };
    let is_within = [
        beside_private(AGENTS, &directory.join("few"), rounds, checks),
        beside_private(1_000_000, &directory.join("many"), rounds, checks),
        beside_threads(&directory.join("two"), rounds.min(31), Duration::from_millis(time)),
    ];
    let _ = std::fs::remove_dir_all(directory);
    if !quick && is_within.contains(&false) {
        eprintln!("a ratio is out of its bound");
        std::process::exit(1);
    }
}
