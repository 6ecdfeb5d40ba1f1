//! Machines that are processes, over real servers: what they admit together, whatever happens to the servers meanwhile.
//! Real time itself is under test here. A short form is strict about what is admitted, and patient about how long
//! things take, since it runs where much else does; the long forms are strict about both.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a panic names the line that failed")]

mod fleet;
mod node;
mod proxy;
#[path = "../server/mod.rs"]
mod server;

use fleet::{Fleet, Report};
use node::now_ns;
use server::group::{Cluster, Sentinels, ask};
use server::{Kind, Server, on_each};
use std::thread::sleep;
use std::time::{Duration, Instant};

const MILLI: Duration = Duration::from_millis(1);

/// A process that another test starts.
#[test]
#[ignore = "part of the others, and nothing without what they say"]
fn a_machine() {
    node::run();
}

/// Limits, each with what it holds and refills a second.
const LIMITS: [(&str, f64, f64); 4] =
    [("10/min", 10.0, 10.0 / 60.0), ("60/min", 60.0, 1.0), ("1000/s", 1e3, 1e3), ("100000/s", 1e5, 1e5)];

/// What machines may admit at once beyond a full bucket, with a slack of 10 %.
fn slack(capacity: f64, nodes: u16) -> f64 {
    let share = (capacity / (20.0 * f64::from(nodes))).floor();
    f64::from(nodes) * (share + share.max(1.0))
}

/// One agent, at twice its limit; at least this part of which has to be admitted.
fn one_limit(server: &Server, (limit, capacity, per_second): (&str, f64, f64), nodes: u16, seconds: u64, least: f64) {
    ask::<()>(&mut server.connect(), "FLUSHALL").unwrap();
    let rate = (2.0 * (per_second + capacity / seconds as f64) / f64::from(nodes)).max(20.0) as u64;
    let fleet = Fleet::start(&[server.url()], limit, nodes, 1, rate, Duration::from_secs(seconds));
    let report = fleet.join(1);
    let (admitted, at_once) = (report.admitted(0) as f64, report.at_once(0, per_second));
    let (most, all) = (capacity + slack(capacity, nodes), capacity + seconds as f64 * per_second);
    println!(
        "{:?}: {nodes} machines, {limit}: {admitted} admitted of {all:.0}, {at_once:.1} at once of at most {most}; \
         {:.4} settlements a check, a round trip took {} us",
        server.kind(),
        report.steps as f64 / report.asked as f64,
        report.round_trip_us
    );
    // Where a machine was starved it was lost too, and had its share meanwhile.
    let shares = if report.losses > 0 { capacity } else { 0.0 };
    // The clock of the counts has milliseconds.
    assert!(at_once <= most + shares + 1.0 + 0.002 * per_second, "{at_once} of at most {most}: {report:?}");
    let held = slack(capacity, nodes) / 2.0;
    assert!(admitted >= least * all - held - 1.0, "{admitted} of {all}: {report:?}");
}

#[test]
fn machines_admit_one_limit_together() {
    on_each(|server| {
        if server.kind() == Kind::Redis {
            LIMITS.iter().for_each(|limit| one_limit(server, *limit, 3, 1, 0.8));
        } else {
            one_limit(server, LIMITS[2], 8, 1, 0.8);
            one_limit(server, LIMITS[1], 16, 1, 0.8);
        }
    });
}

#[test]
#[ignore = "ten minutes: make ignored"]
fn many_machines_admit_one_limit_together_for_long() {
    for limit in LIMITS {
        for nodes in [3, 8, 16] {
            on_each(|server| one_limit(server, limit, nodes, 20, 0.98));
        }
    }
}

/// What happens, and how the store is made to answer again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trouble {
    /// SIGKILL, and an empty server at the same place.
    Killed,
    /// SIGSTOP.
    Stopped,
    ScriptsFlushed,
    ClientsKilled,
    /// No memory left.
    Full,
    /// 20 ms for each answer, by a proxy.
    Slow,
    /// Nothing arrives.
    BlackHole,
}

const ALL: [Trouble; 7] = [
    Trouble::Killed,
    Trouble::Stopped,
    Trouble::BlackHole,
    Trouble::ScriptsFlushed,
    Trouble::ClientsKilled,
    Trouble::Full,
    Trouble::Slow,
];

/// When a trouble began and ended.
struct Episode {
    begin_ns: u64,
    end_ns: u64,
}

impl Trouble {
    fn happens(self, server: &mut Server, network: &proxy::Network) -> Episode {
        let begin_ns = now_ns();
        match self {
            Self::Killed => {
                server.kill();
                sleep(300 * MILLI);
                server.restart_empty();
            }
            Self::Stopped => {
                server.pause();
                sleep(300 * MILLI);
                server.resume();
            }
            Self::ScriptsFlushed => ask::<()>(&mut server.connect(), "SCRIPT FLUSH").unwrap(),
            Self::ClientsKilled => ask::<()>(&mut server.connect(), "CLIENT KILL TYPE normal").unwrap(),
            Self::Full => {
                let mut admin = server.connect();
                ask::<()>(&mut admin, "CONFIG SET maxmemory 1").unwrap();
                sleep(100 * MILLI);
                ask::<()>(&mut admin, "CONFIG SET maxmemory 0").unwrap();
            }
            Self::Slow => {
                network.set_delay(10 * MILLI);
                sleep(300 * MILLI);
                network.set_delay(Duration::ZERO);
            }
            Self::BlackHole => {
                network.set_black_hole(true);
                sleep(300 * MILLI);
                network.set_black_hole(false);
            }
        }
        Episode { begin_ns, end_ns: now_ns() }
    }

    /// Whether every machine has to notice.
    const fn is_a_loss(self) -> bool {
        !matches!(self, Self::Slow)
    }
}

/// How long may pass until the store is taken for lost, and for back.
struct Patience {
    is_strict: bool,
    lost: Duration,
    back: Duration,
}

const NODES: u16 = 3;
const AGENTS: usize = 30;

/// Three machines and thirty agents under load, and a trouble again and again.
fn troubled(server: &mut Server, trouble: Trouble, rounds: u32, patience: &Patience) {
    let (limit, capacity, per_second) = ("100/s", 100.0, 100.0);
    let url = server.url();
    let (through, network) = proxy::proxy(url.trim_start_matches("redis+unix://"));
    let urls = if matches!(trouble, Trouble::Slow | Trouble::BlackHole) { [through] } else { [url] };
    let for_ever = Duration::from_secs(1_000_000);
    // Each agent is asked about at twice its limit.
    let fleet = Fleet::start(&urls, limit, NODES, AGENTS, 200 * AGENTS as u64 / u64::from(NODES), for_ever);
    sleep(Duration::from_nanos(fleet.begin_ns.saturating_sub(now_ns())));
    let mut episodes = Vec::new();
    for _ in 0..rounds {
        sleep(300 * MILLI);
        episodes.push(trouble.happens(server, &network));
    }
    sleep(patience.back);
    let report = fleet.end(AGENTS);
    judge(&report, server.kind(), trouble, &episodes, patience, (capacity, per_second));
}

fn judge(
    report: &Report,
    kind: Kind,
    trouble: Trouble,
    episodes: &[Episode],
    patience: &Patience,
    (capacity, per_second): (f64, f64),
) {
    let nodes = f64::from(NODES);
    // Each time at most: the shares of machines that had not heard of an agent; another bucket, if all is forgotten.
    let shares = if report.losses > 0 { capacity * (nodes - 1.0) / nodes } else { 0.0 };
    let forgotten = if trouble == Trouble::Killed { capacity + slack(capacity, NODES) } else { 0.0 };
    let (depth, once) = (capacity + slack(capacity, NODES) + 1.0 + 0.002 * per_second, shares + forgotten);
    let begins: Vec<_> = episodes.iter().map(|episode| episode.begin_ns).collect();
    let mut beyond: Vec<_> = (0..AGENTS).map(|agent| report.beyond(agent, per_second, depth, &begins)).collect();
    beyond.sort_by(f64::total_cmp);
    let (median, worst) = (beyond[AGENTS / 2], beyond[AGENTS - 1]);
    // Until the next trouble: a machine that was lost already, since it got no time, is lost in that one.
    let ends = begins.iter().skip(1).copied().chain([u64::MAX]);
    let times = |is_back: bool| -> Vec<Duration> {
        let from = |episode: &Episode| if is_back { episode.end_ns } else { episode.begin_ns };
        let all = episodes.iter().zip(ends.clone());
        let mut times: Vec<_> = all.filter_map(|(one, end)| report.after(from(one), end, is_back)).collect();
        times.sort();
        times
    };
    let (lost, back) = if trouble.is_a_loss() { (times(false), times(true)) } else { (Vec::new(), Vec::new()) };
    println!(
        "{kind:?}: {trouble:?} x {}: {} losses; beyond {depth:.0} at once {worst:.0} of an agent each time, \
         {median:.0} of the median, at most {once:.0}; lost within {:?}, back within {:?}",
        episodes.len(),
        report.losses,
        lost.last().unwrap_or(&Duration::ZERO),
        back.last().unwrap_or(&Duration::ZERO)
    );
    assert!(worst <= once, "{worst} of at most {once}");
    if !trouble.is_a_loss() {
        return;
    }
    // Where machines get no time they may sleep through a trouble.
    let least = if patience.is_strict { episodes.len() } else { episodes.len() / 2 };
    assert!(lost.len() >= least && back.len() >= least, "each machine notices: {:?}", report.changes);
    assert!(lost.iter().all(|time| *time <= patience.lost), "{lost:?}");
    assert!(back.iter().all(|time| *time <= patience.back), "{back:?}");
}

fn ten_times(troubles: &[Trouble]) {
    let patience = Patience { is_strict: false, lost: Duration::from_secs(2), back: Duration::from_secs(2) };
    for trouble in troubles {
        let Some(mut server) = Server::start(Kind::Redis, &[]) else { return };
        troubled(&mut server, *trouble, 10, &patience);
    }
}

// Two tests, which run at the same time: most of it is waiting.
#[test]
fn machines_keep_the_bound_when_the_server_is_gone() {
    ten_times(&ALL[..3]);
}

#[test]
fn machines_keep_the_bound_when_the_server_refuses_or_is_far() {
    ten_times(&ALL[3..]);
}

#[test]
#[ignore = "hours: make ignored. TOLLGATE_ROUNDS=100 for a part"]
fn machines_keep_the_bound_a_thousand_times() {
    let rounds = std::env::var("TOLLGATE_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(1_000);
    let patience = Patience { is_strict: true, lost: 250 * MILLI, back: Duration::from_secs(1) };
    for trouble in ALL {
        on_each(|server| troubled(server, trouble, rounds, &patience));
    }
}

/// A master is lost while machines admit, and another takes its place.
fn fails_over(urls: &[String], kind: Kind, fail: impl FnOnce()) {
    let (capacity, per_second) = (100.0, 10.0);
    let fleet = Fleet::start(urls, "10/s burst 100", NODES, AGENTS, 3_000, Duration::from_secs(5));
    let at = fleet.begin_ns + 1_000_000_000;
    sleep(Duration::from_nanos(at.saturating_sub(now_ns())));
    fail();
    let report = fleet.join(AGENTS);
    let worst = (0..AGENTS).map(|agent| report.at_once(agent, per_second)).fold(0.0, f64::max);
    let most = 2.0 * (capacity + slack(capacity, NODES)) + capacity * f64::from(NODES - 1) / f64::from(NODES);
    let back = report.after(at + 1_000_000, u64::MAX, true);
    println!("{kind:?}: another master: an agent at most {worst:.0} at once of at most {most:.0}, back after {back:?}");
    assert!(report.losses >= u64::from(NODES), "every machine has noticed");
    assert!(worst <= most + 2.0, "{worst} of at most {most}");
}

fn fail_over(kind: Kind) {
    if let Some(mut group) = Sentinels::start(kind) {
        let urls: Vec<_> = std::iter::once("sentinels".to_owned()).chain(group.urls()).collect();
        fails_over(&urls, kind, || group.servers[0].server.kill());
    }
    if let Some(mut group) = Cluster::start(kind) {
        let urls: Vec<_> = std::iter::once("cluster".to_owned()).chain(group.urls()).collect();
        fails_over(&urls, kind, || group.servers[0].server.kill());
    }
}

#[test]
fn machines_keep_the_bound_when_another_master_takes_over() {
    fail_over(Kind::Redis);
}

#[test]
#[ignore = "an hour: make ignored. TOLLGATE_ROUNDS=10 for a part"]
fn machines_keep_the_bound_when_other_masters_take_over_again_and_again() {
    let rounds = std::env::var("TOLLGATE_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(100);
    let begin = Instant::now();
    for round in 0..rounds {
        Kind::ALL.into_iter().for_each(fail_over);
        println!("{} of {rounds} after {:?}", round + 1, begin.elapsed());
    }
}
