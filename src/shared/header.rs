//! The head of a shared file: what has to agree between the processes that use it.

use super::SharedError;
use super::attach::Seen;
use super::memory::PAGE_BYTES;
use crate::bounds::SHARED_LAYOUT;
use crate::clock::ClockKind;
use std::fs::File;
use std::hash::BuildHasher;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

/// How many words the header has: a page.
pub(super) const HEADER_WORDS: usize = PAGE_BYTES / 8;

/// "tollgate" as bytes.
const MAGIC: u64 = u64::from_le_bytes(*b"tollgate");

const MAGIC_AT: usize = 0;
const LAYOUT_AT: usize = 1;
pub(super) const STATE_AT: usize = 2;
const BYTES_AT: usize = 3;
const BOOT_AT: usize = 4;
const TIME_NAMESPACE_AT: usize = 6;
const CLOCK_AT: usize = 7;
const ON_FULL_AT: usize = 8;
const HASH_AT: usize = 9;
pub(super) const MADE_AT: usize = 10;
pub(super) const TAKEOVERS_AT: usize = 11;
pub(super) const BUSY_AT: usize = 12;
/// One more than the highest seat that was ever taken.
pub(super) const SEATS_USED_AT: usize = 13;
/// Two random numbers.
pub(super) const SECRET_AT: usize = 14;
const SHAPE_AT: usize = 16;
const KEY_AT: usize = 32;

/// The state of a file that can be joined; 0 until everything else is written.
pub(super) const READY: u64 = 1;

/// How large everything is. The file's layout follows from it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) agents: u64,
    pub(crate) lanes: u64,
    /// Words that the lanes take in a record.
    pub(crate) cells: u64,
    pub(crate) reservations: u64,
    pub(crate) reservations_per_agent: u64,
    pub(crate) has_total: u64,
    /// Places in the roster; 0 if there is none.
    pub(crate) roster: u64,
    /// Room for the policy's text.
    pub(crate) policy_bytes: u64,
    /// How many calls may hold slots; 0 if no lane has any.
    pub(crate) holds: u64,
    /// Places for the ids of agents whose used budgets are kept: as many as there are records. 0 if no lane has a
    /// budget, or the roster has them all.
    pub(crate) kept_ids: u64,
}

const SHAPE_WORDS: usize = 10;
const _: () = assert!(SHAPE_AT + SHAPE_WORDS <= KEY_AT);

impl Shape {
    const fn words(&self) -> [u64; SHAPE_WORDS] {
        let Self { agents, lanes, cells, reservations, reservations_per_agent, .. } = *self;
        let Self { has_total, roster, policy_bytes, holds, kept_ids, .. } = *self;
        [agents, lanes, cells, reservations, reservations_per_agent, has_total, roster, policy_bytes, holds, kept_ids]
    }

    fn from_words(words: [u64; SHAPE_WORDS]) -> Self {
        let [agents, lanes, cells, reservations, reservations_per_agent, has_total, ..] = words;
        let [.., roster, policy_bytes, holds, kept_ids] = words;
        let first = Self { agents, lanes, cells, reservations, reservations_per_agent, ..Self::default() };
        Self { has_total, roster, policy_bytes, holds, kept_ids, ..first }
    }
}

/// What every process that uses a file must agree on, or adopts.
#[derive(Clone, Debug)]
pub(crate) struct Agreed {
    pub(crate) shape: Shape,
    /// `None` for a process that adopts it.
    pub(crate) clock: Option<ClockKind>,
    pub(crate) on_full: Option<&'static str>,
    /// How ids are hashed, by number.
    pub(crate) hash: u64,
    /// Whether the process takes that as it is.
    pub(crate) adopts_hash: bool,
    /// Whether the process has asked for a number of reservations of each agent.
    pub(crate) asks_per_agent: bool,
    /// The words of the key.
    pub(crate) key: Vec<u64>,
}

/// The values of `on_full`, each at its number.
pub(crate) const ON_FULL: [&str; 2] = ["evict", "deny"];

/// How ids may be hashed, each at its number.
const HASHES: [&str; 2] = ["multilinear", "siphash13"];

/// This start of the machine, as two numbers; the same in every container.
pub(super) fn boot() -> io::Result<[u64; 2]> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    let half = |range| digits.get(range).and_then(|digits| u64::from_str_radix(digits, 16).ok()).unwrap_or(0);
    Ok([half(0..16), half(16..32)])
}

/// The namespace by which this process reads monotonic clocks; 0 where there is none.
fn time_namespace() -> u64 {
    std::fs::metadata("/proc/self/ns/time").map_or(0, |about| about.ino())
}

/// The words of the header of a new file, its state aside.
pub(super) fn written(agreed: &Agreed, bytes: usize, made: u64, boot: [u64; 2]) -> [u64; HEADER_WORDS] {
    let mut words = [0; HEADER_WORDS];
    words[MAGIC_AT] = MAGIC;
    words[LAYOUT_AT] = SHARED_LAYOUT;
    words[BYTES_AT] = bytes as u64;
    words[BOOT_AT..BOOT_AT + 2].copy_from_slice(&boot);
    words[TIME_NAMESPACE_AT] = time_namespace();
    words[CLOCK_AT] = agreed.clock.unwrap_or(ClockKind::Monotonic) as u64;
    words[ON_FULL_AT] = ON_FULL.iter().position(|name| Some(*name) == agreed.on_full).unwrap_or(0) as u64;
    words[HASH_AT] = agreed.hash;
    let random = std::hash::RandomState::new();
    words[SECRET_AT] = random.hash_one(1);
    words[SECRET_AT + 1] = random.hash_one(2);
    words[MADE_AT] = made;
    words[SHAPE_AT..SHAPE_AT + SHAPE_WORDS].copy_from_slice(&agreed.shape.words());
    words[KEY_AT..KEY_AT + agreed.key.len()].copy_from_slice(&agreed.key);
    words
}

/// Why a file without an end cannot be joined.
const UNFINISHED: &str = "was not finished by its maker";

/// Whether the file contains nothing but zeros. A file of somebody else may begin with some.
fn is_blank(file: &File, bytes: u64) -> bool {
    let mut part = vec![0; 64 * PAGE_BYTES];
    let mut at = 0;
    // Ends: each round is another part of the file.
    while at < bytes {
        let length = (bytes - at).min(part.len() as u64);
        // Lossless: no more than the part has.
        let read = file.read_exact_at(&mut part[..length as usize], at);
        if read.is_err() || part.iter().any(|byte| *byte != 0) {
            return false;
        }
        at += length;
    }
    true
}

/// Reads the header of a file that is not empty.
pub(super) fn read(
    file: &File,
    path: &Path,
    key_words: usize,
    boot: [u64; 2],
) -> Result<Seen<Box<Agreed>>, SharedError> {
    let bytes = file.metadata().map_or(0, |about| about.len());
    let mut page = [0; PAGE_BYTES];
    if file.read_exact_at(&mut page, 0).is_err() {
        return Err(SharedError::Foreign { path: path.into() });
    }
    let word =
        |at: usize| page.chunks_exact(8).nth(at).and_then(|bytes| bytes.first_chunk()).map(|b| u64::from_ne_bytes(*b));
    let word = |at: usize| word(at).unwrap_or(0);
    if word(MAGIC_AT) == 0 && bytes % PAGE_BYTES as u64 == 0 && is_blank(file, bytes) {
        return Ok(Seen::Stale(UNFINISHED)); // Its maker was killed before it wrote anything.
    }
    if word(MAGIC_AT) != MAGIC {
        return Err(SharedError::Foreign { path: path.into() });
    }
    if word(LAYOUT_AT) != SHARED_LAYOUT {
        return Err(SharedError::Layout { path: path.into(), has: word(LAYOUT_AT), asked: SHARED_LAYOUT });
    }
    if word(STATE_AT) != READY {
        return Ok(Seen::Stale(UNFINISHED));
    }
    if [word(BOOT_AT), word(BOOT_AT + 1)] != boot {
        return Ok(Seen::Stale("was made before the machine was started"));
    }
    if bytes != word(BYTES_AT) {
        return Err(SharedError::Truncated { path: path.into(), bytes, made: word(BYTES_AT) });
    }
    if word(TIME_NAMESPACE_AT) != time_namespace() {
        let shown = |number: u64| format!("time:[{number}]");
        return Err(SharedError::Differs {
            path: path.into(),
            what: "time namespace",
            has: shown(word(TIME_NAMESPACE_AT)),
            asked: shown(time_namespace()),
        });
    }
    let clock = ClockKind::from_number(word(CLOCK_AT)).ok_or(SharedError::Foreign { path: path.into() })?;
    let on_full = ON_FULL.get(word(ON_FULL_AT) as usize).ok_or(SharedError::Foreign { path: path.into() })?;
    Ok(Seen::Ready(Box::new(Agreed {
        shape: Shape::from_words(std::array::from_fn(|at| word(SHAPE_AT + at))),
        clock: Some(clock),
        on_full: Some(on_full),
        hash: word(HASH_AT),
        adopts_hash: false,
        asks_per_agent: false,
        key: (0..key_words).map(|at| word(KEY_AT + at)).collect(),
    })))
}

impl Agreed {
    /// Why a process that asks for `asked` cannot use the file.
    pub(super) fn refusal(&self, asked: &Agreed, path: &Path, processes: usize) -> Option<SharedError> {
        let path = || path.to_owned();
        let rooms = [
            ("agents", self.shape.agents, asked.shape.agents),
            ("reservations", self.shape.reservations, asked.shape.reservations),
            // A roster is shared with whatever room it has.
            ("agents in its roster", self.shape.roster, if self.shape.roster > 0 { 0 } else { asked.shape.roster }),
        ];
        if let Some((what, has, asked)) = rooms.into_iter().find(|(_, has, asked)| has < asked) {
            return Some(SharedError::TooSmall { path: path(), what, has, asked, processes });
        }
        let of_clock = |agreed: &Agreed| agreed.clock.map(|clock| clock.name().to_owned());
        let of_full = |agreed: &Agreed| agreed.on_full.map(str::to_owned);
        let hash = |agreed: &Agreed| HASHES[usize::from(agreed.hash == 1)].to_owned();
        let of_hash = |agreed: &Agreed| (!agreed.adopts_hash).then(|| hash(agreed));
        let of_agent = |agreed: &Agreed| agreed.shape.reservations_per_agent.to_string();
        let settings = [
            ("clock", of_clock(self), of_clock(asked)),
            ("on_full", of_full(self), of_full(asked)),
            ("hash of ids", of_hash(self), of_hash(asked)),
            ("reservations per agent", Some(of_agent(self)), asked.asks_per_agent.then(|| of_agent(asked))),
        ];
        let differs = |(what, has, asked): (&'static str, Option<String>, Option<String>)| {
            has.zip(asked).filter(|(has, asked)| has != asked).map(|(has, asked)| (what, has, asked))
        };
        let (what, has, asked) = settings.into_iter().find_map(differs)?;
        Some(SharedError::Differs { path: path(), what, has, asked })
    }
}
