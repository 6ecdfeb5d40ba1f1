//! What a machine knows of the decisions in the store.

use super::Field;
use super::wire::STAMP_END as MODULUS;
use std::collections::HashMap;

/// A decision as the store has it, or had it before it lost it.
#[derive(Clone, Debug)]
pub(super) struct Known {
    /// Of two decisions in one field, the one with the larger stamp is the later one.
    pub(super) stamp: u64,
    /// Whether anything is decided; otherwise it says that nothing is any more.
    pub(super) is_live: bool,
    /// Of the plain decision; `None` if it did not open.
    pub(super) digest: Option<u128>,
    /// Whether it was put in force here.
    pub(super) is_in_force: bool,
    /// To put it back.
    pub(super) sealed: Box<[u8]>,
}

/// Stamps of live decisions, summed up as the script does, and how many there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sum {
    stamps: u64,
    count: u64,
}

impl Sum {
    pub(super) const fn new(stamps: u64, count: u64) -> Self {
        Self { stamps: stamps % MODULUS, count }
    }

    pub(super) const fn add(&mut self, stamp: u64) {
        (self.stamps, self.count) = ((self.stamps + stamp % MODULUS) % MODULUS, self.count.wrapping_add(1));
    }

    const fn remove(&mut self, stamp: u64) {
        *self = self.less(Self::new(stamp, 1));
    }

    /// By how much it is more than another.
    pub(super) const fn less(self, other: Self) -> Self {
        let stamps = (self.stamps + MODULUS - other.stamps) % MODULUS;
        Self { stamps, count: self.count.wrapping_sub(other.count) }
    }
}

/// All of them.
#[derive(Default)]
pub(super) struct KnownDecisions {
    of: HashMap<Field, Known>,
    sum: Sum,
}

impl KnownDecisions {
    pub(super) fn get(&self, field: Field) -> Option<&Known> {
        self.of.get(&field)
    }

    /// The stamp of what is known of a field; 0 if that is nothing.
    pub(super) fn stamp(&self, field: Field) -> u64 {
        self.of.get(&field).map_or(0, |known| known.stamp)
    }

    pub(super) fn insert(&mut self, field: Field, known: Known) {
        self.remove(field);
        if known.is_live {
            self.sum.add(known.stamp);
        }
        self.of.insert(field, known);
    }

    pub(super) fn remove(&mut self, field: Field) {
        if let Some(known) = self.of.remove(&field).filter(|known| known.is_live) {
            self.sum.remove(known.stamp);
        }
    }

    pub(super) fn set_in_force(&mut self, field: Field, is_in_force: bool) {
        if let Some(known) = self.of.get_mut(&field) {
            known.is_in_force = is_in_force;
        }
    }

    /// Forgets removals up to the horizon, as the store has.
    pub(super) fn forget_removals(&mut self, horizon: u64) {
        self.of.retain(|_, known| known.is_live || known.stamp > horizon);
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Field, &Known)> {
        self.of.iter().map(|(field, known)| (*field, known))
    }

    /// Of all live ones.
    pub(super) const fn sum(&self) -> Sum {
        self.sum
    }

    pub(super) const fn live(&self) -> u64 {
        self.sum.count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(stamp: u64, is_live: bool) -> Known {
        Known { stamp, is_live, digest: None, is_in_force: true, sealed: Box::default() }
    }

    #[test]
    fn the_sum_is_that_of_live_decisions_whatever_comes_and_goes() {
        let mut all = KnownDecisions::default();
        let [a, b] = [1, 2].map(Field::Agent);
        all.insert(a, known(MODULUS - 1, true));
        all.insert(b, known(5, true));
        assert_eq!(all.sum(), Sum::new(4, 2));
        all.insert(a, known(MODULUS - 3, true));
        assert_eq!(all.sum(), Sum::new(2, 2));
        all.insert(b, known(9, false));
        assert_eq!((all.sum(), all.stamp(b)), (Sum::new(MODULUS - 3, 1), 9));
        all.forget_removals(8);
        assert_eq!(all.stamp(b), 9);
        all.forget_removals(9);
        assert_eq!(all.stamp(b), 0);
        all.remove(a);
        all.remove(a);
        assert_eq!((all.sum(), all.live()), (Sum::default(), 0));
        assert_eq!(Sum::new(3, 1).less(Sum::new(5, 2)), Sum::new(MODULUS - 2, u64::MAX));
    }
}
