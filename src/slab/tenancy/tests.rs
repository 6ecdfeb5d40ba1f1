use super::*;
use crate::clock::Offset;
use crate::policy::Kind;
use crate::slab::Geometry;
use crate::slab::hash::fixed_key;

/// A slab of three regions.
fn slab() -> Slab {
    let geometry = Geometry::for_agents(2_000, 1);
    assert_eq!(geometry.regions(), 3);
    Slab::new(geometry, fixed_key(1), [Kind::Bucket].into()).unwrap()
}

/// An agent whose neighbourhood reaches from one region into the next.
fn on_a_border(slab: &Slab) -> AgentHash {
    let regions = |hash| {
        let groups = slab.neighbourhood(hash);
        (slab.region_of(groups.start * GROUP), slab.region_of((groups.end - 1) * GROUP))
    };
    let mut hashes = (0..10_000_u32).map(|id| slab.hash(&id.to_le_bytes()));
    hashes.find(|hash| regions(*hash).0 != regions(*hash).1).unwrap()
}

fn claim(slab: &Slab, hash: AgentHash) -> Position {
    let newcomer = Newcomer {
        hash,
        row: &|| Some(Row::unassigned(0)),
        now: Tick::ZERO,
        quiet_since: Tick::ZERO,
        clock: Tick::ZERO,
        offset: Offset::default(),
        on_full: OnFull::Deny,
        ranking: &|_, _| None,
        reserved: &|_| false,
        passes: &|_, _| true,
    };
    slab.claim(&newcomer).map_or(Position::MAX, |claimed| claimed.found.position)
}

#[test]
fn a_claim_locks_every_region_of_its_neighbourhood() {
    let slab = slab();
    let hash = on_a_border(&slab);
    let locked = || (0..3).filter(|region| slab.region(*region).is_locked()).count();
    let locks = slab.lock(hash, CLAIM_WITHIN).unwrap();
    assert!(slab.positions(hash).all(|position| slab.region(slab.region_of(position)).is_locked()));
    assert_eq!(locked(), 2);
    drop(locks);
    assert_eq!(locked(), 0);
}

#[test]
fn an_eviction_in_either_region_of_a_neighbourhood_raises_the_floor() {
    let slab = slab();
    let hash = on_a_border(&slab);
    let locks = slab.lock(hash, CLAIM_WITHIN).unwrap();
    for (nanos, region) in [(5, locks.home_region), (7, locks.home_region + 1), (9, locks.home_region)] {
        locks.of(region).raise_evicted_at(Tick::from_nanos(nanos));
        assert_eq!(locks.evicted_at(), Tick::from_nanos(nanos), "region {region}");
    }
}

/// A child is forked while another thread changes tenants: the thread that
/// takes over the lock gives the tenant its record back.
#[test]
fn a_tag_that_a_fork_left_closed_is_opened() {
    let slab = slab();
    let hash = on_a_border(&slab);
    let position = claim(&slab, hash);
    let (record, region) = (slab.record(position), slab.region(slab.region_of(position)));
    let tag = record.tag();
    record.set_tag(tag.closed());
    region.leave_behind();
    drop(slab.lock(hash, CLAIM_WITHIN).unwrap());
    assert_eq!(record.tag(), tag);
    assert_eq!(region.counts().occupied, 1);
}

/// The same, between one tenant and the next: the record is vacant.
#[test]
fn a_record_that_a_fork_left_between_tenants_is_vacant() {
    let slab = slab();
    let hash = on_a_border(&slab);
    let position = claim(&slab, hash);
    let (record, region) = (slab.record(position), slab.region(slab.region_of(position)));
    record.set_tag(TagWord::BETWEEN);
    region.leave_behind();
    drop(slab.lock(hash, CLAIM_WITHIN).unwrap());
    assert!(record.tag().is_vacant() && slab.find(hash).is_none());
    assert_eq!(region.counts().occupied, 0);
    assert_eq!(claim(&slab, hash), position);
}

/// A corrupt fingerprint of a shared slab stopped claims with a panic where assertions are on, and was counted as a
/// claim elsewhere.
#[cfg(all(feature = "shared", target_os = "linux"))]
#[test]
fn a_record_that_is_shown_as_vacant_and_is_not_is_shown_as_it_is() {
    let policy = crate::Policy::builder().lane("api", "1/day").build().unwrap();
    let builder = crate::Limiter::builder(policy).agents(100).on_full(OnFull::Deny);
    let limiter = builder.shared(crate::shared::Shared::memfd()).build().unwrap();
    let (slab, api) = (&limiter.engine.slab, limiter.lane("api").unwrap());
    let hash = slab.hash(b"agent");
    assert!(limiter.check("agent", api).unwrap().is_allowed());
    let position = slab.find(hash).unwrap().position;
    slab.show(position, Fingerprint::VACANT);
    for newcomer in 0..1_000 {
        let _ = limiter.check(newcomer.to_string(), api); // Until there is no room.
    }
    assert_eq!(slab.find(hash).map(|found| found.position), Some(position));
    assert_eq!(limiter.audit(), [""; 0]);
}
