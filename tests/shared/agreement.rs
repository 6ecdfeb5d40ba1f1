//! What must agree, and what a process is told that does not.

use crate::forks::{alone, in_child};
use crate::place::Place;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use tollgate::observe::Observe;
use tollgate::shared::{Shared, SharedError};
use tollgate::{BuildError, Clock, IdHash, Limiter, LimiterBuilder, OnFull, Policy};

fn policy(http: &str) -> Policy {
    Policy::builder().lane("http", http).lane("llm", "budget 9/day").build().unwrap()
}

fn builder(http: &str, slab: &Path) -> LimiterBuilder {
    Limiter::builder(policy(http)).agents(1_000).shared(slab)
}

/// Why the slab cannot be used.
fn refusal(builder: LimiterBuilder) -> SharedError {
    match builder.build() {
        Err(BuildError::Shared(refusal)) => refusal,
        other => panic!("{other:?}"),
    }
}

#[test]
fn numbers_that_do_not_fit_are_refused_with_both_values() {
    let _alone = alone();
    let place = Place::new();
    let slab = &place.slab();
    let first = builder("10/min", slab).build().unwrap();
    let more = refusal(builder("10/min", slab).agents(2_000));
    assert_eq!(
        more.to_string(),
        format!(
            "the slab at {} has room for 1000 agents, and this process asks for 2000; ask for fewer, or stop all 1 \
             processes that use it",
            place.file().display()
        )
    );
    let too_small =
        SharedError::TooSmall { path: place.file(), what: "reservations", has: 16_384, asked: 20_000, processes: 1 };
    assert_eq!(refusal(builder("10/min", slab).reservations(20_000)), too_small);
    let differs = |what, has: &str, asked: &str| SharedError::Differs {
        path: place.file(),
        what,
        has: has.into(),
        asked: asked.into(),
    };
    let coarse = refusal(builder("10/min", slab).clock(Clock::coarse()));
    assert_eq!(coarse, differs("clock", "auto or os", "coarse"));
    assert_eq!(refusal(builder("10/min", slab).on_full(OnFull::Deny)), differs("on_full", "evict", "deny"));
    assert_eq!(
        refusal(builder("10/min", slab).hash(IdHash::SipHash13)),
        differs("hash of ids", "multilinear", "siphash13")
    );
    let per_agent = refusal(builder("10/min", slab).reservations_per_agent(7));
    assert_eq!(per_agent, differs("reservations per agent", "256", "7"));
    let roster = refusal(builder("10/min", slab).observe(Observe::new().roster(500)));
    assert_eq!(
        roster,
        SharedError::TooSmall { path: place.file(), what: "agents in its roster", has: 0, asked: 500, processes: 1 }
    );
    // Fewer is enough, and the OS clock counts from the same origin.
    let fewer = builder("10/min", slab).agents(10).clock(Clock::os()).build().unwrap();
    assert_eq!(fewer.stats().records, first.stats().records);
}

#[test]
fn lanes_must_be_the_same_while_somebody_uses_them() {
    let _alone = alone();
    let place = Place::new();
    let slab = &place.slab();
    let first = builder("10/min", slab).build().unwrap();
    let http = first.lane("http").unwrap();
    assert!(first.check("agent-7", http).unwrap().is_allowed());
    let other = |has: &str, asked: &str, lane| SharedError::OtherLane {
        path: place.file(),
        lane,
        has: has.into(),
        asked: asked.into(),
    };
    let window = refusal(builder("window 10/min", slab));
    assert_eq!(window, other("\"http\" = \"10/minute\"", "\"http\" = \"window 10/minute\"", 0));
    let more = Policy::builder().lane("http", "10/min").lane("llm", "budget 9/day").lane("x", "1/s").build().unwrap();
    assert_eq!(
        refusal(Limiter::builder(more).agents(1_000).shared(&**slab)),
        other("no such lane", "\"x\" = \"1/second\"", 2)
    );
    // Nobody uses it any more: it is made anew.
    drop(first);
    let second = builder("window 10/min", slab).build().unwrap();
    assert_eq!(second.stats().agents, 0);
}

/// Limits go on where they were, if nobody was there in between.
#[test]
fn a_slab_outlives_its_processes() {
    let _alone = alone();
    let place = Place::new();
    let slab = &place.slab();
    for allowed in [true, false] {
        let limiter = builder("1/day", slab).build().unwrap();
        let http = limiter.lane("http").unwrap();
        assert_eq!(limiter.check("agent-7", http).unwrap().is_allowed(), allowed);
    }
}

#[test]
fn of_two_policies_the_higher_version_is_in_force() {
    let _alone = alone();
    let place = Place::new();
    let slab = &place.slab();
    let version = |http: &str, version| {
        let policy = Policy::builder().lane("http", http).lane("llm", "budget 9/day").version(version);
        Limiter::builder(policy.build().unwrap()).agents(1_000).shared(&**slab)
    };
    let capacity = |limiter: &Limiter| limiter.check("agent-7", limiter.lane("http").unwrap()).unwrap().capacity();
    let first = builder("10/min", slab).build().unwrap();
    let other = builder("20/min", slab).build().unwrap();
    assert!(other.sharing().unwrap().policy_differs && !first.sharing().unwrap().policy_differs);
    assert_eq!(capacity(&other), 10, "the first one decides");
    let second = version("30/min", 2).build().unwrap();
    assert_eq!([&first, &other, &second].map(capacity), [30; 3]);
    let older = version("40/min", 1).build().unwrap();
    assert_eq!((capacity(&older), older.sharing().unwrap().policy_differs), (30, true));
    let same = refusal(version("50/min", 2));
    assert_eq!(
        same,
        SharedError::SameVersion {
            path: place.file(),
            version: 2,
            has: "\"http\" = \"30/minute\" in plan \"default\"".into(),
            asked: "\"http\" = \"50/minute\" in plan \"default\"".into(),
        }
    );
    assert!(version("30/min", 2).build().is_ok());
    assert_eq!(Limiter::join(&**slab).build().unwrap().policy().version(), Some(2));
}

#[test]
fn files_that_are_not_safe_or_not_slabs_are_refused() {
    let _alone = alone();
    let place = Place::new();
    let (slab, file) = (place.slab(), place.file());
    let write = |bytes: &[u8]| std::fs::write(&file, bytes).unwrap();
    write(&[7; 10_000]);
    assert_eq!(refusal(builder("1/s", &slab)), SharedError::Foreign { path: file.clone() });
    write(b"short");
    assert_eq!(refusal(builder("1/s", &slab)), SharedError::Foreign { path: file.clone() });
    std::fs::remove_file(&file).unwrap();
    std::os::unix::fs::symlink(place.path().join("elsewhere"), &file).unwrap();
    assert_eq!(refusal(builder("1/s", &slab)), SharedError::SymbolicLink { path: file.clone() });
    std::fs::remove_file(&file).unwrap();
    assert_eq!(refusal(Limiter::join(&*slab)), SharedError::Missing { path: file.clone() });
    assert!(!file.exists(), "a look makes nothing");

    let limiter = builder("1/s", &slab).build().unwrap();
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o666)).unwrap();
    let writable = SharedError::WritableByOthers { path: file.clone(), mode: 0o666, asked: 0o600 };
    assert_eq!(refusal(builder("1/s", &slab)), writable);
    let group = Limiter::builder(policy("1/s")).agents(1_000).shared(Shared::at(&slab).mode(0o660));
    assert!(matches!(refusal(group.clone()), SharedError::WritableByOthers { asked: 0o660, .. }));
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o660)).unwrap();
    assert!(group.build().is_ok());
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();

    // Cut off by somebody else: an error, and no process dies of it that has not mapped it.
    let bytes = std::fs::metadata(&file).unwrap().len();
    let copy = place.path().join("other.v1");
    std::fs::copy(&file, &copy).unwrap();
    std::fs::OpenOptions::new().write(true).open(&copy).unwrap().set_len(bytes / 2).unwrap();
    let cut = SharedError::Truncated { path: copy.clone(), bytes: bytes / 2, made: bytes };
    assert_eq!(refusal(builder("1/s", &place.path().join("other"))), cut);

    // Removed or replaced: this one goes on, and says so.
    assert!(!limiter.sharing().unwrap().is_detached);
    std::fs::remove_file(&file).unwrap();
    assert!(limiter.sharing().unwrap().is_detached);
    let new = builder("1/s", &slab).build().unwrap();
    assert!(limiter.sharing().unwrap().is_detached && !new.sharing().unwrap().is_detached);
    assert!(limiter.check("agent-7", limiter.lane("http").unwrap()).unwrap().is_allowed());
}

/// A mode without its owner made a file that no later start could open.
#[test]
fn a_mode_that_shuts_its_owner_out_is_refused_and_nothing_is_made() {
    let _alone = alone();
    let place = Place::new();
    for mode in [0, 0o400, 0o440, 0o200, 0o066] {
        let asked = Limiter::builder(policy("1/s")).agents(1_000).shared(Shared::at(place.slab()).mode(mode));
        assert_eq!(refusal(asked), SharedError::Mode { path: place.file(), mode });
    }
    assert!(!place.file().exists());
}

/// The system's "permission denied" did not say whose slab it was.
#[test]
fn a_slab_of_another_user_is_named_as_such_and_the_superuser_may_look() {
    const NOBODY: u32 = 65_534;
    let _alone = alone();
    let place = Place::new();
    // SAFETY: cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        assert!(std::env::var_os("TOLLGATE_ALL").is_none(), "this test acts as another user: run it as root");
        println!("not run: takes the rights of root to act as another user");
        return;
    }
    let limiter = builder("1/s", &place.slab()).build().unwrap();
    std::fs::set_permissions(place.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let child = in_child(|| {
        // SAFETY: gives up the rights of root in this child alone.
        assert_eq!(unsafe { libc::setuid(NOBODY) }, 0);
        for mode in [0o600, 0o660] {
            let asked = Limiter::builder(policy("1/s")).agents(1_000).shared(Shared::at(place.slab()).mode(mode));
            assert_eq!(refusal(asked), SharedError::OtherOwner { path: place.file(), owner: 0, user: NOBODY });
        }
        0
    });
    assert_eq!(child.wait(), 0);
    drop(limiter);

    std::os::unix::fs::chown(place.file(), Some(NOBODY), Some(NOBODY)).unwrap();
    let other = SharedError::OtherOwner { path: place.file(), owner: NOBODY, user: 0 };
    assert_eq!(refusal(builder("1/s", &place.slab())), other);
    assert!(Limiter::join(place.slab()).build().is_ok(), "a look");
}

#[test]
fn a_slab_belongs_in_memory() {
    let _alone = alone();
    let on_disk = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("slab-{}", std::process::id()));
    let file = on_disk.with_extension("v1");
    match builder("1/s", &on_disk).build() {
        // The build may be in memory itself.
        Ok(limiter) => drop(limiter),
        Err(error) => {
            assert_eq!(error, BuildError::Shared(SharedError::OnDisk { path: file.clone() }));
            assert!(error.to_string().ends_with("a shared slab belongs on tmpfs, such as /run or /dev/shm"), "{error}");
        }
    }
    let _ = std::fs::remove_file(file);
    let nowhere = refusal(builder("1/s", Path::new("/dev/shm/no/such/place/slab")));
    assert!(matches!(nowhere, SharedError::System { what: "open its directory", .. }), "{nowhere}");
}

/// A maker that was killed leaves a file that is not ready.
#[test]
fn a_file_that_is_half_made_is_made_anew() {
    let _alone = alone();
    let place = Place::new();
    let slab = place.slab();
    for bytes in [0, 4_096, 1 << 20] {
        std::fs::File::create(place.file()).unwrap().set_len(bytes).unwrap();
        let limiter = builder("1/s", &slab).build().unwrap();
        assert!(limiter.check("agent-7", limiter.lane("http").unwrap()).unwrap().is_allowed());
        drop(limiter);
        std::fs::remove_file(place.file()).unwrap();
    }
}
