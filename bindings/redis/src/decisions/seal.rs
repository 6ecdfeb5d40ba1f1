//! Seals decisions, so that no id stands on the server and nobody without the secret can make one.
//!
//! A decision is sealed with XChaCha20-Poly1305, under a key that is derived from the cluster's, and bound to the field
//! under which it is stored. So what somebody moves to another field, or alters, does not open.
//!
//! *Keys.* Ids are hashed under the cluster's key and stand on the server so. The sealing key and the tag are hashes
//! under that key too, of texts that are longer than any id may be: so nobody can have them hashed as an id.
//!
//! *Nonces.* A nonce is the engine's name, 16 random bytes, and a count. No engine uses one twice, and no two have the
//! same name.
//!
//! Who may write to the server can put a decision back that was sealed earlier, or remove one. The store is trusted
//! with that as with the counts.

use super::Field;
use chacha20poly1305::aead::{Aead as _, KeyInit as _, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use siphasher::sip128::SipHasher24;

/// A text to derive with is longer than the longest id.
const LABEL_BYTES: usize = 320;
const _: () = assert!(LABEL_BYTES > tollgate::bounds::ID_BYTES_MAX);

const NONCE_BYTES: usize = 24;

/// Opens and seals.
pub(super) struct Seal {
    cipher: XChaCha20Poly1305,
    hasher: SipHasher24,
    tag: u128,
    /// The engine's name, and how often it has sealed.
    name: u128,
    count: u64,
}

impl Seal {
    /// With the cluster's key, for an engine of this name: random, and new for each engine.
    pub(super) fn new(key: [u8; 16], name: u128) -> Self {
        let hasher = SipHasher24::new_with_key(&key);
        let derive = |label: &str| {
            let mut text = [0; LABEL_BYTES];
            text[..label.len()].copy_from_slice(label.as_bytes());
            u128::from(hasher.hash(&text))
        };
        let [low, high, tag] = ["decisions: seal, low", "decisions: seal, high", "decisions: tag"].map(derive);
        let mut sealing = [0; 32];
        sealing[..16].copy_from_slice(&low.to_le_bytes());
        sealing[16..].copy_from_slice(&high.to_le_bytes());
        Self { cipher: XChaCha20Poly1305::new(&sealing.into()), hasher, tag, name, count: 0 }
    }

    /// What stands in the braces of the keys: each secret has its own, so clusters that share a server do not meet.
    pub(super) const fn tag(&self) -> u128 {
        self.tag
    }

    /// The field of an agent: its id hashed as in the keys of its lanes.
    pub(super) fn field(&self, id: &[u8]) -> Field {
        Field::Agent(self.hasher.hash(id).into())
    }

    /// What tells two plain decisions apart.
    pub(super) fn digest(&self, plain: &[u8]) -> u128 {
        self.hasher.hash(plain).into()
    }

    /// `None` for what is too long to be sealed: 256 GB.
    pub(super) fn seal(&mut self, field: Field, plain: &[u8]) -> Option<Box<[u8]>> {
        let mut nonce = [0; NONCE_BYTES];
        nonce[..16].copy_from_slice(&self.name.to_le_bytes());
        nonce[16..].copy_from_slice(&self.count.to_le_bytes());
        self.count += 1;
        let field = field.to_string();
        let payload = Payload { msg: plain, aad: field.as_bytes() };
        let sealed = self.cipher.encrypt(&XNonce::from(nonce), payload).ok()?;
        Some([&nonce[..], &sealed].concat().into())
    }

    /// `None` if it was sealed for another field or under another secret, or was altered.
    pub(super) fn open(&self, field: Field, sealed: &[u8]) -> Option<Vec<u8>> {
        let (nonce, sealed) = sealed.split_first_chunk::<NONCE_BYTES>()?;
        let field = field.to_string();
        let payload = Payload { msg: sealed, aad: field.as_bytes() };
        self.cipher.decrypt(&XNonce::from(*nonce), payload).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn what_was_sealed_opens_in_its_field_under_its_secret_and_nowhere_else() {
        let (mut seal, other) = (Seal::new([7; 16], 1), Seal::new([8; 16], 1));
        let field = seal.field(b"agent-7");
        let sealed = seal.seal(field, b"a decision").unwrap();
        assert_eq!(seal.open(field, &sealed).unwrap(), b"a decision");
        assert_eq!(Seal::new([7; 16], 2).open(field, &sealed).unwrap(), b"a decision", "on another machine");
        assert_eq!(seal.open(seal.field(b"agent-8"), &sealed), None);
        assert_eq!(seal.open(Field::Policy, &sealed), None);
        assert_eq!(other.open(field, &sealed), None);
        for place in 0..sealed.len() {
            let mut altered = sealed.to_vec();
            altered[place] ^= 1;
            assert_eq!(seal.open(field, &altered), None, "byte {place}");
            assert_eq!(seal.open(field, &sealed[..place]), None, "{place} bytes");
        }
        assert!(!sealed.windows(8).any(|window| window == b"decision"));
    }

    #[test]
    fn no_nonce_comes_twice() {
        let mut nonces = HashSet::new();
        for name in [1, 2] {
            let mut seal = Seal::new([7; 16], name);
            for _ in 0..1_000 {
                let sealed = seal.seal(Field::Policy, b"the same").unwrap();
                assert!(nonces.insert(sealed[..NONCE_BYTES].to_vec()));
            }
        }
    }

    /// Computed once with ciphers written apart, in another language: machines of different versions find each other's
    /// decisions, and open them.
    #[test]
    fn keys_are_what_they_were() {
        let seal = Seal::new(*b"0123456789abcdef", 1);
        assert_eq!(crate::AgentKey::from_bits(seal.tag()).to_string(), "H1erC-fUIVtBAQ8fdu4Nhg");
        let nonce = [&1_u128.to_le_bytes()[..], &0_u64.to_le_bytes()].concat();
        let sealed = Seal::new(*b"0123456789abcdef", 1).seal(Field::Policy, b"abc").unwrap();
        assert_eq!(sealed[..NONCE_BYTES], nonce);
        assert_eq!(
            sealed[NONCE_BYTES..],
            [177, 183, 99, 251, 105, 179, 238, 96, 65, 91, 206, 90, 245, 68, 98, 46, 213, 100, 64]
        );
    }

    #[test]
    fn the_field_of_an_agent_is_that_of_its_lanes() {
        let keyring = crate::Keyring::new(b"sixteen bytes...").unwrap();
        let field = Seal::new(keyring.key(), 1).field(b"agent-7");
        assert_eq!(field.to_string(), keyring.agent(b"agent-7").to_string());
        assert_eq!(Field::read(field.to_string().as_bytes()), Some(field));
        assert_eq!(Field::read(b"policy"), Some(Field::Policy));
        assert_eq!(Field::read(b"something else"), None);
    }
}
