//! A machine: this program again, as a process of its own, which checks at a given rate between two instants.

use crate::peers::{Answer, Peer, Rate};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const VARIABLE: &str = "TOLLGATE_BENCH_MACHINE";

/// How a machine checks.
#[derive(Clone, Debug)]
pub(crate) struct Load {
    pub(crate) peer: &'static str,
    pub(crate) url: String,
    pub(crate) limit: Rate,
    pub(crate) nodes: u16,
    pub(crate) agents: usize,
    /// Checks a second, of each machine.
    pub(crate) rate: u64,
    pub(crate) length: Duration,
    /// When the store stops, after the beginning.
    pub(crate) stops_after: Option<Duration>,
}

/// What machines did together.
#[derive(Clone, Debug, Default)]
pub(crate) struct Done {
    pub(crate) checks: u64,
    pub(crate) allowed: u64,
    pub(crate) unanswered: u64,
    pub(crate) settlements: Option<u64>,
    /// Nanoseconds that checks took, sorted: while the store answered, and while it did not.
    pub(crate) connected: Vec<u64>,
    pub(crate) stopped: Vec<u64>,
}

/// The time of the machine, the same in all processes.
pub(crate) fn now_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

/// Machines that are starting.
pub(crate) struct Machines {
    children: Vec<Child>,
    pub(crate) begin_ns: u64,
}

impl Load {
    pub(crate) fn start(&self) -> Machines {
        let begin_ns = now_ns() + 1_500_000_000;
        let Self { peer, url, limit, nodes, agents, rate, length, .. } = self;
        let stops = self.stops_after.map_or(u64::MAX, |after| begin_ns + after.as_nanos() as u64);
        let text = format!(
            "{peer};{url};{};{};{nodes};{agents};{rate};{begin_ns};{};{stops}",
            limit.tokens,
            limit.seconds,
            begin_ns + length.as_nanos() as u64
        );
        let spawn = |number| {
            let mut program = Command::new(std::env::current_exe().expect("this program"));
            program.env(VARIABLE, format!("{text};{number}")).stdout(Stdio::piped());
            program.spawn().expect("this program again")
        };
        Machines { children: (0..*nodes).map(spawn).collect(), begin_ns }
    }
}

impl Machines {
    pub(crate) fn join(self) -> Done {
        let mut done = Done::default();
        for child in self.children {
            let output = child.wait_with_output().expect("our child");
            assert!(output.status.success(), "a machine failed");
            for line in String::from_utf8_lossy(&output.stdout).lines() {
                done.read(line);
            }
        }
        done.connected.sort_unstable();
        done.stopped.sort_unstable();
        done
    }
}

impl Done {
    fn read(&mut self, line: &str) {
        let mut words = line.split(' ');
        let name = words.next().unwrap_or_default();
        let numbers: Vec<u64> = words.filter_map(|word| word.parse().ok()).collect();
        match name {
            "counts" => {
                self.checks += numbers[0];
                self.allowed += numbers[1];
                self.unanswered += numbers[2];
            }
            "settlements" => *self.settlements.get_or_insert(0) += numbers[0],
            "connected" => self.connected.extend(numbers),
            "stopped" => self.stopped.extend(numbers),
            _ => {}
        }
    }
}

/// Nanoseconds below which this part of them is.
pub(crate) fn quantile(sorted: &[u64], part: f64) -> u64 {
    let place = (sorted.len() as f64 * part) as usize;
    sorted.get(place.min(sorted.len().saturating_sub(1))).copied().unwrap_or(0)
}

/// The most times that are kept of each kind.
const TIMES_MAX: usize = 100_000;

/// Does what the variable says, if it is there.
pub(crate) fn run_if_asked() -> bool {
    let Ok(text) = std::env::var(VARIABLE) else { return false };
    let parts: Vec<_> = text.split(';').collect();
    let number = |place: usize| parts[place].parse::<u64>().expect("a number");
    let (begin, end, stops) = (number(7), number(8), number(9));
    let (agents, rate) = (number(5), number(6));
    let limit = Rate { tokens: number(2), seconds: number(3) };
    let mut peer = Peer::new(parts[0], parts[1], limit, number(4) as u16);
    let ids: Vec<_> = (0..agents).map(|agent| format!("agent-{agent}")).collect();
    let (mut allowed, mut unanswered, mut times) = (0_u64, 0_u64, [Vec::new(), Vec::new()]);
    let mut next = number(10);
    while now_ns() < begin {
        // What a connection has to learn is learned before it is measured: about an agent that nobody counts.
        let _ = peer.check("warm");
        std::thread::sleep(Duration::from_millis(5));
    }
    let mut checks = 0_u64;
    // Ends at the given instant.
    loop {
        let now = now_ns();
        if now >= end {
            break;
        }
        let due = u128::from(now - begin) * u128::from(rate) / 1_000_000_000;
        if u128::from(checks) >= due {
            std::thread::sleep(Duration::from_micros(200));
            continue;
        }
        let agent = &ids[(next % agents) as usize];
        let asked = Instant::now();
        let answer = peer.check(agent);
        let took = asked.elapsed().as_nanos() as u64;
        match answer {
            Answer::Allowed => allowed += 1,
            Answer::Denied => {}
            Answer::None => unanswered += 1,
        }
        let kept = &mut times[usize::from(now > stops)];
        if kept.len() < TIMES_MAX {
            kept.push(took);
        }
        (checks, next) = (checks + 1, next + 1);
    }
    println!("counts {checks} {allowed} {unanswered}");
    // Shown once a second; and what is given back is part of it.
    std::thread::sleep(Duration::from_millis(1_300));
    if let Some(settlements) = peer.settlements() {
        println!("settlements {settlements}");
    }
    for (name, times) in ["connected", "stopped"].iter().zip(times) {
        let times: Vec<_> = times.iter().map(u64::to_string).collect();
        println!("{name} {}", times.join(" "));
    }
    true
}
