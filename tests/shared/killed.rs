//! Processes are killed and stopped at any instruction, while others go on: nothing is admitted beyond the limits, and
//! nothing is left that contradicts itself.
//!
//! Two processes count what a hot agent is allowed, and are spared. All others do everything at once on a slab that is
//! too small for their agents: check, reserve, hold, override, exempt, assign, forget, reset, replace the policy. A
//! process that is given a slot of `conn` must also get one of as many file locks, which the kernel gives out: if it
//! does not, a slot was given out twice.

use crate::child;
use crate::forks::{alone, stays};
use crate::locks::{Locks, unlock};
use crate::place::Place;
use crate::random::Random;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tollgate::observe::Observe;
use tollgate::{Agent, Clock, ControlError, Error, Limiter, OnFull, Policy, Request, Settle};

/// Refilled so fast that the counting processes are never idle, and so slowly that they are often denied.
const RATE: u64 = 2_000;
const BURST: u64 = 100;
const SLOTS: u64 = 3;
const AGENTS: u64 = 600;
/// More than there are records.
const IDS: u64 = 5_000;

pub(crate) fn policy(is_second: bool) -> Policy {
    Policy::builder()
        .lane("hot", format!("{RATE}/s burst {BURST}").as_str())
        .lane("http", if is_second { "3000/s burst 7" } else { "2000/s burst 9" })
        .lane("llm", "100_000/s burst 500")
        .lane("conn", format!("held {SLOTS}").as_str())
        .plan("pro", [("http", "5000/s burst 20")])
        .build()
        .unwrap()
}

fn limiter(slab: &Path) -> Limiter {
    let builder = Limiter::builder(policy(false)).agents(AGENTS).reservations(256).on_full(OnFull::Deny);
    // Many records share a place of the roster.
    builder.observe(Observe::new().roster(50)).clock(Clock::os()).shared(slab).build().unwrap()
}

/// Ends this process with a message that the parent shows.
fn fail(what: &str) -> ! {
    eprintln!("FAULT {what}");
    std::process::exit(3);
}

/// Checks the hot agent until its input ends, then says how often it was allowed and denied, and in what time.
fn count(slab: &Path) {
    let limiter = limiter(slab);
    let hot = limiter.lane("hot").unwrap();
    let is_done = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let done = std::sync::Arc::clone(&is_done);
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_line(&mut String::new());
        done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    let (mut answers, first) = ([0_u64; 2], limiter.now());
    while !is_done.load(std::sync::atomic::Ordering::Relaxed) {
        match limiter.check("hot", hot) {
            Ok(verdict) => answers[usize::from(!verdict.is_allowed())] += 1,
            // It has no record yet; or it did not run for so long that its bucket was full, and lost its record.
            Err(Error::Busy | Error::Full) => {}
            Err(error) => fail(&format!("the hot agent: {error}")),
        }
    }
    let [allowed, denied] = answers;
    eprintln!("COUNTED {allowed} {denied} {} {}", first.as_nanos(), limiter.now().as_nanos());
}

fn is_expected(error: &ControlError) -> bool {
    matches!(error, ControlError::Busy { .. } | ControlError::Agent(Error::Busy))
}

/// Holds a slot, and with it one of as many locks of files.
fn hold(limiter: &Limiter, locks: &Locks) {
    let conn = limiter.lane("conn").unwrap();
    let request = Request::new("conn", conn);
    match limiter.hold_until_released(request) {
        Ok(verdict) if verdict.is_allowed() => {
            let Some(file) = locks.lock() else { fail("more slots are held than there are") };
            std::thread::yield_now();
            unlock(file);
            while let Err(error) = limiter.release(request) {
                // A process is stopped that gives back slots of the same agent.
                if error != Error::Busy {
                    fail(&format!("a slot that is held: {error}"));
                }
            }
        }
        Ok(_) | Err(Error::Busy | Error::Full) => {}
        Err(error) => fail(&format!("hold: {error}")),
    }
}

fn change(limiter: &Limiter, random: &mut Random) {
    let agent = format!("agent-{}", random.below(60));
    let pro = limiter.plan("pro").unwrap();
    let changed = match random.below(20) {
        0..5 => limiter.set_override(&agent, "http", "1100/s burst 3"),
        5..9 => limiter.remove_overrides(&agent),
        9..12 => limiter.assign(&agent, pro),
        12..14 => limiter.unassign(&agent),
        14..16 => limiter.exempt(&agent),
        16..18 => limiter.unexempt(&agent),
        18 => limiter.replace_policy(policy(random.below(2) == 0)),
        _ => {
            let forgotten = limiter.forget(Agent::new(&agent)).map(drop);
            forgotten.and_then(|()| limiter.reset(Agent::new(&agent))).map_err(ControlError::Agent)
        }
    };
    match changed {
        Err(error) if !is_expected(&error) => fail(&format!("a change: {error}")),
        _ => {}
    }
}

/// Does everything, until it is killed.
fn churn(slab: &Path, seed: u64) -> ! {
    let limiter = limiter(slab);
    let locks = Locks::beside(slab, &limiter, SLOTS);
    let mut random = Random::new(seed);
    let [http, llm] = ["http", "llm"].map(|lane| limiter.lane(lane).unwrap());
    loop {
        let agent = format!("agent-{}", random.below(IDS));
        let answer = match random.below(100) {
            0..75 => limiter.check(&agent, http).map(drop),
            75..85 => {
                hold(&limiter, &locks);
                Ok(())
            }
            85..93 => {
                let request = Request::new(&agent, llm).cost(1 + random.below(40));
                limiter.reserve(request, Duration::from_millis(random.below(30))).and_then(|reservation| {
                    let settle = Settle::used(random.below(60));
                    reservation.id().map_or(Ok(()), |id| limiter.settle(id, settle).map(drop))
                })
            }
            _ => {
                change(&limiter, &mut random);
                Ok(())
            }
        };
        use Error::{Busy, Full, ReservationsFull, TooManyReservations, UnknownReservation};
        match answer {
            Ok(()) | Err(Busy | Full | ReservationsFull | TooManyReservations { .. } | UnknownReservation) => {}
            Err(error) => fail(&format!("{agent}: {error}")),
        }
    }
}

const SEED: &str = "TOLLGATE_TEST_SEED";

/// In a child: its work. 0 is for those that count.
fn child_of(slab: &Path) {
    match std::env::var(SEED).unwrap().parse().unwrap() {
        0 => count(slab),
        seed => churn(slab, seed),
    }
}

/// A program in C that churns like [`churn`]; `make c` builds it.
const CHURN: &str = "TOLLGATE_CHURN";

/// The directory with the Elixir package as it was built; `make elixir` builds it. Its VM churns too.
const BEAM: &str = "TOLLGATE_BEAM";

/// What is killed.
#[derive(Clone, Copy, PartialEq)]
enum Victim {
    /// In Rust or, every second one, in C.
    Native,
    Beam,
}

fn spawn(test: &str, slab: &Path, seed: u64, victim: Victim) -> Child {
    let mut command = match (victim, std::env::var_os(CHURN).filter(|_| seed % 2 == 1)) {
        (Victim::Native, None) => rust(test, slab),
        (Victim::Native, Some(program)) => with_arguments(Command::new(program), slab, seed),
        (Victim::Beam, _) => {
            let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("bindings/elixir/test/churn.exs");
            let mut command = Command::new("elixir");
            command.env("LANG", "C.UTF-8").arg("-pa").arg(std::env::var_os(BEAM).unwrap()).arg(script);
            with_arguments(command, slab, seed)
        }
    };
    command.env(SEED, seed.to_string()).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

fn with_arguments(mut command: Command, slab: &Path, seed: u64) -> Command {
    command.arg(slab).arg(seed.to_string()).arg(slab.with_file_name("policy.toml"));
    command
}

fn rust(test: &str, slab: &Path) -> Command {
    let mut command = child::command(test, slab);
    command.arg("--include-ignored");
    command
}

/// What a child has said, once it has ended.
fn said(child: &mut Child) -> String {
    let mut text = String::new();
    let lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    lines.for_each(|line| text.push_str(&format!("{line}\n")));
    text
}

fn signal(child: &Child, signal: i32) {
    // SAFETY: a child that nobody has waited for.
    unsafe { libc::kill(child.id() as i32, signal) };
}

/// Six processes, none of which is a BEAM.
const NATIVE: [Victim; 6] = [Victim::Native; 6];

/// How long a BEAM may live: it takes one or two seconds to start.
const BEAM_LIVES_MS: u64 = 6_000;

/// Processes that are killed or stopped one by one, until this many were.
fn run(test: &str, victims: &[Victim], kills: u64, seed: u64) {
    let _alone = alone();
    let place = Place::new();
    let slab = place.slab();
    let watcher = limiter(&slab);
    std::fs::write(slab.with_file_name("policy.toml"), policy(false).to_toml()).unwrap();
    let mut random = Random::new(seed);
    let mut next = seed;
    let mut start = |slab: &Path, victim: Victim| {
        next += 1;
        spawn(test, slab, next, victim)
    };
    let mut counting: Vec<_> = (0..2).map(|_| spawn(test, &slab, 0, Victim::Native)).collect();
    let mut churning: Vec<_> = victims.iter().map(|victim| (start(&slab, *victim), Instant::now())).collect();
    let began = Instant::now();
    while watcher.sharing().unwrap().processes.len() < 3 + victims.len() {
        assert!(began.elapsed() < Duration::from_secs(60), "they do not start");
        std::thread::yield_now();
    }
    let (mut stops, mut beams, mut faults) = (0, 0, Vec::new());
    let mut look = |said: String| {
        if said.contains("FAULT") || said.contains("panicked") {
            faults.push(said);
        }
    };
    for _ in 0..kills {
        // Real time: at which instruction a process is killed depends on nothing else.
        std::thread::sleep(Duration::from_micros(500 + random.below(25_000)));
        let chosen = random.below(victims.len() as u64) as usize;
        let may_die = |victim: usize| victims[victim] == Victim::Native || churning[victim].1 <= Instant::now();
        // There is always one: those that are no BEAMs may die at any time.
        let victim = (0..victims.len()).map(|at| (chosen + at) % victims.len()).find(|at| may_die(*at)).unwrap();
        if random.below(4) == 0 {
            stops += 1;
            signal(&churning[victim].0, libc::SIGSTOP);
            std::thread::sleep(Duration::from_micros(random.below(6_000)));
            signal(&churning[victim].0, libc::SIGCONT);
        }
        let is_beam = victims[victim] == Victim::Beam;
        beams += u64::from(is_beam);
        let lives = Duration::from_millis(if is_beam { random.below(BEAM_LIVES_MS) } else { 0 });
        let successor = (start(&slab, victims[victim]), Instant::now() + lives);
        let (mut killed, _) = std::mem::replace(&mut churning[victim], successor);
        signal(&killed, libc::SIGKILL);
        killed.wait().unwrap();
        look(said(&mut killed));
    }
    for (mut child, _) in churning {
        signal(&child, libc::SIGKILL);
        child.wait().unwrap();
        look(said(&mut child));
    }
    assert!(faults.is_empty(), "seed {seed}: {faults:#?}");
    let counts: Vec<[u64; 4]> = counting
        .iter_mut()
        .map(|child| {
            let _ = child.stdin.take().unwrap().write_all(b"\n");
            child.wait().unwrap();
            let said = said(child);
            let line = said
                .lines()
                .find_map(|line| line.strip_prefix("COUNTED "))
                .unwrap_or_else(|| panic!("seed {seed}: {said}"));
            let mut numbers = line.split(' ').map(|number| number.parse().unwrap());
            std::array::from_fn(|_| numbers.next().unwrap())
        })
        .collect();
    let [allowed, denied] = [0, 1].map(|answer| counts.iter().map(|counted| counted[answer]).sum::<u64>());
    let first = counts.iter().map(|[.., first, _]| *first).min().unwrap();
    let last = counts.iter().map(|[.., last]| *last).max().unwrap();
    let most = BURST + (last - first) * RATE / 1_000_000_000;
    let sharing = watcher.sharing().unwrap();
    println!(
        "{kills} kills, {beams} of them of BEAMs, {stops} stops: {allowed} of at most {most} allowed, {} takeovers, {} busy, {} claims",
        sharing.takeovers,
        sharing.busy,
        watcher.stats().claims,
    );
    assert!(allowed <= most, "seed {seed}: {allowed} allowed, at most {most}");
    // The limit was reached. How much is allowed of it depends on whether the counting processes run.
    assert!(allowed > BURST && denied > 0, "seed {seed}: {allowed} allowed and {denied} denied, at most {most}");
    judge(&watcher, seed);
}

/// Nothing is left of those that died.
fn judge(watcher: &Limiter, seed: u64) {
    assert_eq!(watcher.sharing().unwrap().processes.len(), 1);
    watcher.sweep(Duration::ZERO);
    // Ends what a control call has begun.
    watcher.unassign("nobody").unwrap();
    let conn = watcher.lane("conn").unwrap();
    assert_eq!(watcher.peek(Request::new("conn", conn)).unwrap().remaining(), SLOTS, "seed {seed}: slots are lost");
    let faults = watcher.audit();
    assert!(faults.is_empty(), "seed {seed}: {faults:#?}");
}

/// The oracle itself: of a process that is killed, the files are free when the slots are.
#[test]
fn the_files_of_a_killed_process_are_free_when_its_slots_are() {
    let _alone = alone();
    let place = Place::new();
    let slab = place.slab();
    let limiter = limiter(&slab);
    let locks = Locks::beside(&slab, &limiter, SLOTS);
    let all = Request::new("conn", limiter.lane("conn").unwrap()).cost(SLOTS);
    for kill in 0..100 {
        let child = stays(|| {
            let locks = Box::leak(Box::new(Locks::beside(&slab, &limiter, 1)));
            limiter.hold_until_released(all).unwrap().is_allowed() && locks.lock().is_some()
        });
        child.signal(libc::SIGKILL);
        // Ends with the child.
        while !limiter.hold_until_released(all).unwrap().is_allowed() {}
        let file = locks.lock().unwrap();
        assert_eq!(file.as_raw_fd(), locks.first().as_raw_fd(), "kill {kill}: the slots are free, and the file is not");
        unlock(file);
        child.reap();
        limiter.release(all).unwrap();
    }
}

#[test]
fn no_kill_leaves_anything_behind() {
    match child::argument() {
        Some(slab) => child_of(&slab),
        None => run("killed::no_kill_leaves_anything_behind", &NATIVE, 200, 1),
    }
}

/// Half of the processes are in C. Without that program there is nothing to run, and `make c` has it.
#[test]
fn no_kill_in_two_languages_leaves_anything_behind() {
    match child::argument() {
        Some(slab) => child_of(&slab),
        None if std::env::var_os(CHURN).is_none() => println!("not run: make c builds the program in C"),
        None => run("killed::no_kill_in_two_languages_leaves_anything_behind", &NATIVE, 200, 2),
    }
}

/// A third of the processes are BEAMs, which are killed more seldom: they start slowly. Without the Elixir package
/// there is nothing to run, and `make long` builds it.
#[test]
#[ignore = "two minutes: run it with make long"]
fn no_kill_in_three_languages_leaves_anything_behind() {
    use Victim::{Beam, Native};
    match child::argument() {
        Some(slab) => child_of(&slab),
        None if std::env::var_os(BEAM).is_none() => println!("not run: make long builds the Elixir package"),
        None => {
            let victims = [Native, Native, Native, Native, Beam, Beam];
            run("killed::no_kill_in_three_languages_leaves_anything_behind", &victims, 6_000, 3);
        }
    }
}

/// How many kills, in thousands.
const LONG: &str = "TOLLGATE_KILLS";

#[test]
#[ignore = "an hour: run it with make long"]
fn no_kill_of_many_leaves_anything_behind() {
    match child::argument() {
        Some(slab) => child_of(&slab),
        None => {
            let thousands = std::env::var(LONG).map_or(100, |number| number.parse().unwrap());
            for seed in 0..thousands {
                run("killed::no_kill_of_many_leaves_anything_behind", &NATIVE, 1_000, 1_000_000 * (seed + 1));
            }
        }
    }
}
