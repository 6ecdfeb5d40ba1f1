//! Two real processes: what one of them changes holds for the very next check of the other.

use crate::forks::{alone, in_child};
use crate::place::Place;
use crate::random::Random;
use std::path::Path;
use tollgate::{Agent, Limiter, Policy, Request};

const LIMIT: u64 = 5;
const LIMIT_PRO: u64 = 20;

fn policy(limit: u64) -> Policy {
    let lane = format!("{limit}/day");
    let pro = format!("{LIMIT_PRO}/day");
    Policy::builder().lane("http", lane.as_str()).plan("pro", [("http", pro.as_str())]).build().unwrap()
}

fn limiter(slab: &Path) -> Limiter {
    Limiter::builder(policy(LIMIT)).agents(200).shared(slab).build().unwrap()
}

/// What the other process must find at its very next check of an agent.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Expected {
    agent: u64,
    capacity: u64,
    is_exempt: bool,
    /// Whether nothing is charged before that check.
    is_fresh: bool,
}

impl Expected {
    fn to_bytes(self) -> [u8; 32] {
        let words = [self.agent, self.capacity, self.is_exempt.into(), self.is_fresh.into()];
        let mut bytes = [0; 32];
        bytes.chunks_exact_mut(8).zip(words).for_each(|(chunk, word)| chunk.copy_from_slice(&word.to_ne_bytes()));
        bytes
    }

    fn from_bytes(bytes: [u8; 32]) -> Self {
        let mut words = bytes.chunks_exact(8).map(|chunk| u64::from_ne_bytes(*chunk.first_chunk().unwrap()));
        let mut next = || words.next().unwrap();
        Self { agent: next(), capacity: next(), is_exempt: next() == 1, is_fresh: next() == 1 }
    }
}

/// Both ends of two pipes, so that each process waits for the other.
struct Pipes([[libc::c_int; 2]; 2]);

impl Pipes {
    fn new() -> Self {
        let mut ends = [[0; 2]; 2];
        // SAFETY: room for both ends of each.
        ends.iter_mut().for_each(|ends| assert_eq!(unsafe { libc::pipe(ends.as_mut_ptr()) }, 0));
        Self(ends)
    }

    /// Leaves the end to the child by which it answers: a read ends if the child does.
    fn leave_to_child(&mut self) {
        // SAFETY: this test's own.
        unsafe { libc::close(std::mem::replace(&mut self.0[1][1], -1)) };
    }

    fn send<const N: usize>(&self, pipe: usize, bytes: [u8; N]) {
        // SAFETY: as many bytes as there are.
        assert_eq!(unsafe { libc::write(self.0[pipe][1], bytes.as_ptr().cast(), N) }, N as isize);
    }

    fn receive<const N: usize>(&self, pipe: usize) -> [u8; N] {
        let mut bytes = [0; N];
        // SAFETY: room for as many bytes; so few arrive at once.
        assert_eq!(unsafe { libc::read(self.0[pipe][0], bytes.as_mut_ptr().cast(), N) }, N as isize);
        bytes
    }
}

impl Drop for Pipes {
    fn drop(&mut self) {
        for end in self.0.iter().flatten() {
            // SAFETY: this test's own.
            unsafe { libc::close(*end) };
        }
    }
}

fn id(agent: u64) -> String {
    format!("agent-{agent}")
}

/// Asks as the other process is told. 1 if all is as expected, and what is wrong on stderr.
fn ask(limiter: &Limiter, expected: Expected) -> u8 {
    let http = limiter.lane("http").unwrap();
    let verdict = limiter.check(id(expected.agent), http).unwrap();
    let is_exempt = verdict.decision() == tollgate::Decision::Exempt;
    let is_fresh = verdict.remaining().checked_add(1) == Some(expected.capacity);
    let is_right = match expected.is_exempt {
        true => is_exempt,
        false => !is_exempt && verdict.capacity() == expected.capacity && (is_fresh || !expected.is_fresh),
    };
    if !is_right {
        eprintln!("{expected:?}, but {verdict:?}");
    }
    is_right.into()
}

/// What is decided about an agent, as this test remembers it.
#[derive(Clone, Copy, Default)]
struct Decided {
    is_pro: bool,
    own: Option<u64>,
    is_exempt: bool,
}

/// Makes a change at random, and says what it means for an agent.
fn change(limiter: &Limiter, random: &mut Random, decided: &mut [Decided], limit: &mut u64) -> Expected {
    let agent = random.below(decided.len() as u64);
    let of = &mut decided[agent as usize];
    let (id, mut is_fresh) = (id(agent), false);
    match random.below(10) {
        0 | 1 => {
            let own = 1 + random.below(1_000);
            limiter.set_override(&id, "http", format!("{own}/day").as_str()).unwrap();
            of.own = Some(own);
        }
        2 => {
            limiter.remove_overrides(&id).unwrap();
            of.own = None;
        }
        3 => {
            limiter.assign(&id, limiter.plan("pro").unwrap()).unwrap();
            of.is_pro = true;
        }
        4 => {
            limiter.unassign(&id).unwrap();
            of.is_pro = false;
        }
        5 => {
            limiter.exempt(&id).unwrap();
            of.is_exempt = true;
        }
        6 => {
            limiter.unexempt(&id).unwrap();
            of.is_exempt = false;
        }
        7 => {
            *limit = LIMIT + random.below(100);
            limiter.replace_policy(policy(*limit)).unwrap();
        }
        8 => {
            limiter.reset(Agent::new(&id)).unwrap();
            is_fresh = true;
        }
        _ => {
            limiter.forget(Agent::new(&id)).unwrap();
            is_fresh = true;
        }
    }
    let plan = if of.is_pro { LIMIT_PRO } else { *limit };
    Expected { agent, capacity: of.own.unwrap_or(plan), is_exempt: of.is_exempt, is_fresh }
}

/// They take turns: one makes this many changes, and the other asks at once after each.
fn run(changes: u64) {
    let _alone = alone();
    let place = Place::new();
    let slab = place.slab();
    let first = limiter(&slab);
    let mut pipes = Pipes::new();
    let child = in_child(|| {
        // SAFETY: sets the timer that ends a child, for as many changes.
        unsafe { libc::alarm(60 + changes as u32 / 100) };
        // Its own limiter, not the copy of its parent's.
        let second = limiter(&slab);
        for _ in 0..changes {
            let expected = Expected::from_bytes(pipes.receive(0));
            pipes.send(1, [ask(&second, expected)]);
        }
        u8::from(second.sharing().unwrap().processes.iter().filter(|process| process.is_this).count() == 1)
    });
    pipes.leave_to_child();
    let (mut random, mut decided, mut limit) = (Random::new(7), [Decided::default(); 8], LIMIT);
    for number in 0..changes {
        let expected = change(&first, &mut random, &mut decided, &mut limit);
        pipes.send(0, expected.to_bytes());
        assert_eq!(pipes.receive::<1>(1), [1], "change {number}: {expected:?}");
    }
    assert_eq!(child.wait(), 1);
    let http = first.lane("http").unwrap();
    assert!(first.peek(Request::new("agent-0", http)).is_ok());
    assert_eq!((first.sharing().unwrap().processes.len(), first.audit()), (1, Vec::new()));
}

#[test]
fn a_change_holds_for_the_very_next_check_of_another_process() {
    run(2_000);
}

#[test]
#[ignore = "a minute: run it with make long"]
fn many_changes_hold_for_the_very_next_check_of_another_process() {
    run(100_000);
}
