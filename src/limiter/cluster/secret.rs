//! The secret of machines that share limits, and the key that is made of it.

use super::{Cluster, ClusterError};
use siphasher::sip::SipHasher24;

/// The shortest secret: 128 bits if all of them are random.
pub const SECRET_BYTES_MIN: usize = 16;

/// What the two halves of the key are derived with: any two different keys do.
const HALVES: [&[u8; 16]; 2] = [b"tollgate cluster", b"keyed by secret."];

impl Cluster {
    /// As [`Cluster::new`], with the key that is made of a secret: any bytes, at least [`SECRET_BYTES_MIN`], the same
    /// on every machine.
    ///
    /// The secret should be random, as `openssl rand -hex 32` makes it. SipHash derives the key from it at full speed,
    /// so a word that can be guessed can be found by trying, and with it whether an id has a key in the store.
    ///
    /// # Errors
    ///
    /// [`ClusterError::Secret`] if it is too short.
    pub fn with_secret(secret: &[u8]) -> Result<Self, ClusterError> {
        if secret.len() < SECRET_BYTES_MIN {
            return Err(ClusterError::Secret { bytes: secret.len() });
        }
        let [low, high] = HALVES.map(|key| SipHasher24::new_with_key(key).hash(secret));
        Ok(Self::new((u128::from(high) << 64 | u128::from(low)).to_le_bytes()))
    }
}
