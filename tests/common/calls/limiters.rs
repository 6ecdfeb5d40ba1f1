//! Calls that make limiters and ask about them as a whole.

use super::oracle::Watched;
use super::{World, call};
use std::collections::{BTreeMap, BTreeSet};
use std::ptr::{null, null_mut};
use tollgate::ffi::*;

/// Whether what the options say of sharing goes together.
fn are_allowed(options: &LimiterOptions) -> bool {
    let has_path = !options.shared_path.is_null();
    let [path, memfd, descriptor] = [SharedBy::Path, SharedBy::Memfd, SharedBy::Descriptor].map(|by| by as i32);
    let is_place = match options.shared_by {
        by if by == path => options.shared_fd == 0 && (!has_path || options.shared_path_len > 0),
        by if by == memfd => options.shared_fd == 0 && !has_path,
        by => by == descriptor && !has_path,
    };
    is_place && (options.shared_mode == 0 || has_path) && options.shared_mode <= 0o777
}

/// Options of lanes that machines share: too small, and without a secret.
struct Clusters([ClusterOptions; 2]);

// SAFETY: its pointers are NULL.
unsafe impl Sync for Clusters {}

static CLUSTERS: Clusters = {
    let none = ClusterOptions {
        struct_size: size_of::<ClusterOptions>() as u32,
        slack_percent: 0,
        secret: null(),
        secret_len: 0,
        lanes: null(),
        lanes_count: 0,
        when_lost: 0,
        reserved: 0,
    };
    Clusters([ClusterOptions { struct_size: 47, ..none }, none])
};

impl World<'_> {
    pub(super) fn new_limiter(&mut self) {
        let Some(known) = self.policies.last() else { return };
        let (policy, lanes, warn_percent) = (known.policy, known.lanes.clone(), known.warn_percent);
        let mut faults = Vec::new();
        let policy = self.handle(policy, &mut faults);
        let options = self.options();
        // SAFETY: NULL or one of ours.
        let cluster = unsafe { options.cluster.as_ref() };
        if !(64..=4096).contains(&options.struct_size) || cluster.is_some_and(|cluster| cluster.struct_size < 48) {
            faults.push(Status::StructSize);
        }
        faults.extend(cluster.filter(|cluster| cluster.secret.is_null()).map(|_| Status::NullPointer));
        let unwanted = options.observe == 0 && (options.sample_every, options.roster) != (0, 0);
        let are_known =
            [options.on_full, options.id_hash, options.observe].iter().all(|option| (0..=1).contains(option));
        let is_other = options.prefault > 1 || !are_allowed(&options);
        if !are_known || unwanted || is_other || options.reservations > TOLLGATE_RESERVATIONS_MAX {
            faults.push(Status::InvalidOption);
        }
        if options.agents > TOLLGATE_AGENTS_MAX {
            faults.push(Status::AgentsOutOfRange);
        }
        let mut limiter = null_mut();
        let place = self.handle(&raw mut limiter, &mut faults);
        let mut raw = super::arguments::Raw::<512>::new(512);
        let error = self.error(&mut raw, &mut faults);
        let status = call!(self, tollgate_limiter_new(policy, &options, error, place));
        let shared = options.shared_by == SharedBy::Memfd as i32 || !options.shared_path.is_null();
        if !cfg!(feature = "shared") && (options.shared_by, options.shared_path) != (0, null()) {
            faults.push(Status::NotBuiltIn);
        }
        // A path of a file system that is not in memory; a descriptor that is none; a lane of held slots.
        let found = if options.shared_by != 0 || shared { &[Status::Shared][..] } else { &[] };
        if !self.judge_error(status, &faults, found, &raw, !error.is_null()) {
            return assert!(limiter.is_null());
        }
        self.report.shared += u64::from(shared);
        let reservations = options.reservations;
        self.limiters.push(Watched {
            limiter,
            lanes,
            warn_percent,
            shared,
            deny_on_full: options.on_full == OnFull::Deny as i32,
            manual: !options.clock.is_null(),
            full_at: BTreeMap::new(),
            agents: BTreeSet::new(),
            decided: BTreeSet::new(),
            latest: 0,
            exact: true,
            ahead: false,
            open: Vec::new(),
            reservations_max: if reservations == 0 { TOLLGATE_RESERVATIONS_DEFAULT } else { reservations } as usize,
            few_per_agent: (1..16).contains(&options.reservations_per_agent),
        });
        if self.limiters.len() > 2 {
            let oldest = self.limiters.remove(0);
            call!(self, tollgate_limiter_free(oldest.limiter));
        }
    }

    /// Options, right as a rule.
    fn options(&mut self) -> LimiterOptions {
        let mut options = LimiterOptions {
            struct_size: size_of::<LimiterOptions>() as u32,
            on_full: i32::from(self.bytes.below(2)),
            agents: 1 + u64::from(self.bytes.below(32)),
            clock: self.clock,
            id_hash: i32::from(self.bytes.below(2)),
            observe: 0,
            sample_every: 0,
            prefault: u32::from(self.bytes.below(2)),
            roster: 0,
            reservations: u64::from(self.bytes.below(4)), // 0 for as many as usual.
            reservations_per_agent: u32::from(self.bytes.once_in(8)), // 0 for as many as usual.
            shared_by: SharedBy::Path as i32,
            shared_path: null(),
            shared_path_len: 0,
            shared_mode: 0,
            shared_fd: 0,
            cluster: null(),
        };
        if cfg!(feature = "shared") && self.bytes.once_in(16) {
            options.shared_by = SharedBy::Memfd as i32;
        }
        if self.bytes.once_in(8) {
            options.observe = 1;
            options.sample_every = u32::from(self.bytes.below(4));
            options.roster = u64::from(self.bytes.below(3)) * 16;
        }
        if !self.bytes.once_in(4) {
            return options;
        }
        match self.bytes.below(17) {
            16 => options.cluster = if self.bytes.once_in(2) { &CLUSTERS.0[0] } else { &CLUSTERS.0[1] },
            0 => options.struct_size = self.bytes.number() as u32 % 64,
            1 => options.struct_size = u32::MAX - u32::from(self.bytes.byte()),
            2 => options.on_full = self.bytes.number() as i32,
            3 => options.id_hash = self.bytes.number() as i32,
            4 => options.agents = TOLLGATE_AGENTS_MAX + 1 + self.bytes.number() % (1 << 40),
            5 => options.observe = self.bytes.number() as i32,
            6 => options.reservations = TOLLGATE_RESERVATIONS_MAX + 1 + self.bytes.number() % (1 << 40),
            7 => options.prefault = self.bytes.number() as u32,
            8 => options.shared_by = self.bytes.number() as i32,
            9 => options.reservations_per_agent = u32::MAX, // As many as there are.
            10 => (options.shared_by, options.shared_fd) = (SharedBy::Descriptor as i32, -1),
            11 => options.shared_fd = self.bytes.number() as i32,
            12 => options.shared_mode = self.bytes.number() as u32,
            13 => (options.shared_path, options.shared_path_len) = (c"/proc/slab".as_ptr(), 10),
            14 => options.shared_path = c"".as_ptr(),
            _ => options.clock = null(),
        }
        options
    }

    /// One of the limiters, taken out so that it can be changed along.
    pub(super) fn take_limiter(&mut self) -> Option<Watched> {
        let count = u8::try_from(self.limiters.len()).ok().filter(|count| *count > 0)?;
        let index = usize::from(self.bytes.below(count));
        Some(self.limiters.swap_remove(index))
    }

    pub(super) fn look_at_limiter(&mut self, watched: &mut Watched) {
        let mut faults = Vec::new();
        let limiter = self.handle(watched.limiter, &mut faults);
        match self.bytes.below(5) {
            0 => {
                let now = self.ask(faults, |world, place| call!(world, tollgate_limiter_now(limiter, place)));
                assert!(now.is_none_or(|now| !watched.manual || now == self.now));
            }
            1 => {
                let name = self.text(&["default", "pro"]);
                faults.extend(name.faults());
                let plan = self.ask_some(faults, &[Status::UnknownPlan], |world, place: *mut u32| {
                    call!(world, tollgate_limiter_plan(limiter, name.start(), name.len, place))
                });
                assert!(plan.is_none_or(|plan| (plan as usize) < TOLLGATE_PLANS_MAX));
            }
            2 => {
                let name = self.text(&["fast", "d/e"]);
                faults.extend(name.faults());
                let lane = self.ask_some(faults, &[Status::UnknownLane], |world, place: *mut u32| {
                    call!(world, tollgate_limiter_lane(limiter, name.start(), name.len, place))
                });
                assert!(lane.is_none_or(|lane| (lane as usize) < watched.lanes.len()));
            }
            3 => {
                let mut policy = null_mut();
                let status = call!(self, tollgate_limiter_policy(limiter, &mut policy));
                assert_eq!(self.judge(status, &faults), !policy.is_null());
                call!(self, tollgate_policy_free(policy));
            }
            _ => {
                let (at, now) = self.instant();
                let idle_for = self.bytes.number();
                let swept =
                    self.ask(faults, |world, place| call!(world, tollgate_limiter_sweep(limiter, idle_for, at, place)));
                if swept.is_some() {
                    watched.at(now, self.now);
                    watched.sweep(now.saturating_sub(idle_for));
                }
                assert!(swept.is_none_or(|swept| swept <= watched.agents.len() as u64));
            }
        }
    }
}
