//! Assignments as data: the plan, the overrides and the exemption of agents.

use super::control::{control, no_plan};
use super::failure::Failure;
use super::guard::guard;
use super::pointers::{ListOut, Tagged, agent, borrow, bytes, list, out, plan_id, tagged_out, text_array};
use super::{
    Error, Limiter, Status, TOLLGATE_BATCH_MAX, TOLLGATE_ID_BYTES_MAX, TOLLGATE_LANES_MAX, TOLLGATE_LIMIT_BYTES,
    TOLLGATE_NONE,
};
use crate as tollgate;
use std::ffi::{c_char, c_void};
use tollgate::Limit;

/// An agent id as an output. It never grows.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct AgentId {
    /// How many bytes it has.
    pub len: u32,
    /// The bytes, and zeros after them.
    pub bytes: [u8; TOLLGATE_ID_BYTES_MAX],
}

const _: () = assert!(size_of::<AgentId>() == 260);

impl AgentId {
    pub(super) fn new(id: &[u8]) -> Self {
        let mut bytes = [0; TOLLGATE_ID_BYTES_MAX];
        for (to, from) in bytes.iter_mut().zip(id) {
            *to = *from;
        }
        Self { len: id.len().min(TOLLGATE_ID_BYTES_MAX) as u32, bytes }
    }
}

/// A limit of an agent's own. It never grows.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Override {
    /// The lane.
    pub lane: u32,
    /// The limit as text. It ends at the first NUL, or fills the array.
    pub limit: [c_char; TOLLGATE_LIMIT_BYTES],
}

const _: () = assert!(size_of::<Override>() == 96);

impl Override {
    fn limit(&self) -> Result<Limit, Failure> {
        let text: Vec<u8> = self.limit.iter().map_while(|byte| (*byte != 0).then_some(*byte as u8)).collect();
        Ok(std::str::from_utf8(&text).map_err(|_| Status::NotUtf8)?.parse::<Limit>()?)
    }

    /// The name of its lane, and its limit.
    fn named<'a>(&self, policy: &'a tollgate::Policy) -> Result<(&'a str, Limit), Failure> {
        let (lane, lanes) = (self.lane, policy.lanes().len());
        let Some((_, name)) = policy.lanes().nth(lane as usize) else {
            let problem = format_args!("there is no lane {lane}; this policy has {lanes}, numbered from 0");
            return Err(Failure::new(Status::UnknownLane, &problem));
        };
        Ok((name, self.limit().map_err(|failure| failure.about(&format_args!("lane {name:?}")))?))
    }
}

/// The assignment of an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct AssignmentState {
    /// Set it to sizeof(tollgate_assignment_state) before the call.
    pub struct_size: u32,
    /// Its plan. TOLLGATE_NONE without one.
    pub plan: u32,
    /// 1 if it is exempt, else 0.
    pub exempt: u32,
    /// How many overrides it has.
    pub override_count: u32,
}

const _: () = assert!(size_of::<AssignmentState>() == 16);

// SAFETY: `repr(C)`, and `struct_size` comes first.
unsafe impl Tagged for AssignmentState {
    const SIZE_MIN: u32 = 16;
}

/// The assignment of one agent, for tollgate_set_assignments. It never grows.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct AssignmentEntry {
    /// The agent: any bytes.
    pub id: *const c_void,
    /// How many bytes: 1 to TOLLGATE_ID_BYTES_MAX.
    pub id_len: usize,
    /// Its overrides. Of two for one lane the last one counts.
    pub overrides: *const Override,
    /// How many, up to TOLLGATE_LANES_MAX.
    pub override_count: usize,
    /// Its plan. TOLLGATE_NONE for no plan.
    pub plan: u32,
    /// 1 to exempt it, else 0.
    pub exempt: u32,
}

const _: () = assert!(size_of::<AssignmentEntry>() == 40);

/// The assignment of an agent. overrides_out gets its overrides in the order of
/// the lanes' names, at most overrides_max of them; TOLLGATE_LANES_MAX are always
/// enough.
///
/// Status: EMPTY_ID, ID_TOO_LONG, STRUCT_SIZE.
///
/// # Safety
///
/// `limiter` is NULL or a limiter that is not freed; `id` is NULL or readable
/// for `id_len` bytes; `assignment_out` is NULL, or readable and writable for
/// as many bytes as its struct_size says; `overrides_out` is NULL or writable
/// for `overrides_max` overrides.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_assignment(
    limiter: *const Limiter,
    id: *const c_void,
    id_len: usize,
    assignment_out: *mut AssignmentState,
    overrides_out: *mut Override,
    overrides_max: usize,
) -> Status {
    guard(|| {
        // SAFETY: NULL, or valid for as many bytes as its tag says, by this function's contract.
        let (assignment_out, struct_size) = unsafe { tagged_out(assignment_out) }?;
        // SAFETY: NULL, or writable for as many overrides, by this function's contract.
        let overrides_out = unsafe { ListOut::new(overrides_out, overrides_max) }?;
        // SAFETY: NULL, or alive and shared, by this function's contract.
        let limiter = &unsafe { borrow(limiter) }?.0;
        // SAFETY: NULL, or readable for `id_len` bytes, by this function's contract.
        let assignment = limiter.assignment(unsafe { agent(id, id_len) }?)?;
        let policy = limiter.policy();
        let plan = assignment.plan().and_then(|plan| policy.plan(plan));
        overrides_out.write(assignment.overrides().map(|(lane, limit)| Override {
            lane: policy.lane(lane).map_or(TOLLGATE_NONE, tollgate::LaneId::number),
            limit: text_array(&limit.to_string()),
        }));
        let assignment = AssignmentState {
            struct_size,
            plan: plan.map_or(TOLLGATE_NONE, |plan| plan.number().into()),
            exempt: assignment.is_exempt().into(),
            override_count: assignment.overrides().len() as u32,
        };
        // SAFETY: not NULL and large enough, so writable by this function's contract.
        unsafe { assignment_out.write(assignment) };
        Ok(())
    })
}

/// Lists the agents that have an assignment, in the order of their ids: those
/// after after_id, or all if that is NULL. ids_out gets the first of them, at most
/// ids_max; count_out gets how many there are. For the next page, pass the last id.
///
/// Each call copies all assignments, so use large pages.
///
/// Status: ID_TOO_LONG.
///
/// # Safety
///
/// `limiter` is NULL or a limiter that is not freed; `after_id` is NULL or
/// readable for `after_len` bytes; `ids_out` is NULL or writable for `ids_max`
/// ids; `count_out` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_assigned(
    limiter: *const Limiter,
    after_id: *const c_void,
    after_len: usize,
    ids_out: *mut AgentId,
    ids_max: usize,
    count_out: *mut usize,
) -> Status {
    guard(|| {
        let count_out = out(count_out)?;
        // SAFETY: NULL, or writable for as many ids, by this function's contract.
        let ids_out = unsafe { ListOut::new(ids_out, ids_max) }?;
        // SAFETY: NULL, or alive and shared, by this function's contract.
        let limiter = unsafe { borrow(limiter) }?;
        let after = match after_id.is_null() {
            true => &[][..], // No id is empty, so all are behind it.
            // SAFETY: readable for `after_len` bytes, by this function's contract.
            false => unsafe { agent(after_id, after_len) }?,
        };
        let assigned = limiter.0.assignments();
        let behind = &assigned[assigned.partition_point(|(id, _)| id.as_slice() <= after)..];
        ids_out.write(behind.iter().map(|(id, _)| AgentId::new(id)));
        // SAFETY: not NULL, so writable by this function's contract.
        unsafe { count_out.write(behind.len()) };
        Ok(())
    })
}

/// What an entry decides.
///
/// # Safety
///
/// Its overrides are NULL or readable, as many as stated.
unsafe fn decided(policy: &tollgate::Policy, entry: &AssignmentEntry) -> Result<tollgate::Assignment, Failure> {
    let (exempt, count) = (entry.exempt, entry.override_count);
    if exempt > 1 {
        return Err(Failure::new(Status::InvalidOption, &format_args!("exempt is {exempt}; allowed: 0 and 1")));
    }
    if count > TOLLGATE_LANES_MAX {
        let problem = format_args!("override_count is {count}; allowed: up to {TOLLGATE_LANES_MAX}");
        return Err(Failure::new(Status::BatchSize, &problem));
    }
    let mut assignment = tollgate::Assignment::default();
    assignment.set_exempt(exempt == 1);
    if let Some(plan) = plan_id(entry.plan) {
        let known = policy.plans().find(|(known, _)| *known == plan);
        let (_, name) = known.ok_or_else(|| no_plan(entry.plan, policy))?;
        assignment.set_plan(Some(name.to_owned()));
    }
    // SAFETY: NULL, or readable for as many overrides, as the caller guarantees.
    for own in unsafe { list(entry.overrides, count) }? {
        let (lane, limit) = own.named(policy)?;
        assignment.set_override(lane, limit);
    }
    Ok(assignment)
}

/// The agent of an entry, and what the entry decides. A failure names the
/// agent, or the entry if that has none.
///
/// # Safety
///
/// Its id and its overrides are NULL or readable, as many as stated.
unsafe fn read_entry<'a>(
    policy: &tollgate::Policy,
    index: usize,
    entry: &AssignmentEntry,
) -> Result<(&'a [u8], tollgate::Assignment), Failure> {
    // SAFETY: NULL, or readable for `id_len` bytes, as the caller guarantees.
    let id = match unsafe { agent(entry.id, entry.id_len) } {
        Ok([]) => Err(Status::EmptyId),
        id => id,
    };
    let id = id.map_err(|status| Failure::from(status).about(&format_args!("entries[{index}]")))?;
    // SAFETY: as the caller guarantees.
    let decided = unsafe { decided(policy, entry) };
    // As the limiter's own errors name an agent.
    let shown = || String::from_utf8_lossy(id).chars().take(80).flat_map(char::escape_debug).collect::<String>();
    Ok((id, decided.map_err(|failure| failure.about(&format_args!("agent \"{}\"", shown())))?))
}

/// Replaces the assignments of many agents at once, all or none; other agents keep
/// theirs. An entry without plan, overrides and exemption removes the assignment.
/// Of two entries for one agent the last one counts. The error names the entry or
/// the agent.
///
/// Status: EMPTY_ID, ID_TOO_LONG, UNKNOWN_PLAN, UNKNOWN_LANE, INVALID_LIMIT,
/// NOT_UTF8, INVALID_OPTION, BATCH_SIZE, TOO_MANY_OVERRIDES, SAME_HASH, FORKED,
/// FILE, STRUCT_SIZE.
///
/// # Safety
///
/// `limiter` is NULL or a limiter that is not freed; `entries` is NULL or
/// readable for `count` entries, each with an id and overrides that are NULL or
/// readable, as many as stated; `error_out` is NULL, or readable and writable
/// for as many bytes as its struct_size says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_set_assignments(
    limiter: *mut Limiter,
    entries: *const AssignmentEntry,
    count: usize,
    error_out: *mut Error,
) -> Status {
    const _: () = assert!(TOLLGATE_BATCH_MAX == tollgate::bounds::BATCH_MAX);
    let set = |limiter: &tollgate::Limiter| {
        let policy = limiter.policy();
        // SAFETY: NULL, or readable for `count` entries, by this function's contract.
        let entries = unsafe { list(entries, count) }?;
        // SAFETY: what it points to is NULL or readable, by this function's contract.
        let read = |(index, entry)| unsafe { read_entry(&policy, index, entry) };
        Ok(limiter.set_assignments(entries.iter().enumerate().map(read).collect::<Result<Vec<_>, _>>()?)?)
    };
    // SAFETY: as this function's contract has it.
    unsafe { control(limiter, error_out, &set) }
}

/// Keeps assignments in a file from now on, and applies those that the file has
/// already. Call it before the first check, so that no agent is checked without
/// its limits. Assignments of other agents are added to the file. Needs
/// TOLLGATE_FEATURE_PERSIST.
///
/// The path is any bytes without a NUL. From then on a control call returns when
/// its change is in the file and in force. The error has the line and the column
/// of a mistake in the file.
///
/// Status: FILE if the file is invalid, in use, or cannot be read or written;
/// UNKNOWN_PLAN, UNKNOWN_LANE, INVALID_LIMIT, TOO_MANY_OVERRIDES, SAME_HASH,
/// FORKED, TEXT_TOO_LONG, NOT_BUILT_IN, STRUCT_SIZE.
///
/// # Safety
///
/// `limiter` is NULL or a limiter that is not freed; `path` is NULL or
/// readable for `path_len` bytes; `error_out` is NULL, or readable and
/// writable for as many bytes as its struct_size says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_keep_assignments_in(
    limiter: *mut Limiter,
    path: *const c_char,
    path_len: usize,
    error_out: *mut Error,
) -> Status {
    let keep = |limiter: &tollgate::Limiter| {
        // SAFETY: NULL, or readable for `path_len` bytes, by this function's contract.
        keep_in(limiter, unsafe { bytes(path, path_len) }?)
    };
    // SAFETY: as this function's contract has it.
    unsafe { control(limiter, error_out, &keep) }
}

#[cfg(feature = "persist")]
fn keep_in(limiter: &tollgate::Limiter, path: &[u8]) -> Result<(), Failure> {
    use std::os::unix::ffi::OsStrExt as _;
    Ok(limiter.keep_assignments_in(std::ffi::OsStr::from_bytes(path))?)
}

#[cfg(not(feature = "persist"))]
fn keep_in(_: &tollgate::Limiter, _: &[u8]) -> Result<(), Failure> {
    Err(Status::NotBuiltIn.into())
}

/// Reads the file of assignments again after an edit, and applies it. Agents that
/// the file does not name lose their assignments. Needs TOLLGATE_FEATURE_PERSIST.
///
/// What other processes that share the limiter have changed since is written to
/// the file first, and stays: call it every few seconds in the process that keeps
/// the file. If the file was edited too, that is an error that says what to do.
///
/// If it fails, control calls fail too until the file is corrected and reloaded,
/// so that none of them overwrites the edit.
///
/// Status: as tollgate_keep_assignments_in, and NO_FILE.
///
/// # Safety
///
/// `limiter` is NULL or a limiter that is not freed; `error_out` is NULL, or
/// readable and writable for as many bytes as its struct_size says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_reload_assignments(limiter: *mut Limiter, error_out: *mut Error) -> Status {
    // SAFETY: as this function's contract has it.
    unsafe { control(limiter, error_out, &reload) }
}

#[cfg(feature = "persist")]
fn reload(limiter: &tollgate::Limiter) -> Result<(), Failure> {
    Ok(limiter.reload_assignments()?)
}

#[cfg(not(feature = "persist"))]
fn reload(_: &tollgate::Limiter) -> Result<(), Failure> {
    Err(Status::NotBuiltIn.into())
}
