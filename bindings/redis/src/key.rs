//! Keys: `tollgate:{22 characters}:lane`, and no id in them.
//!
//! The characters are a keyed hash of the agent's id, so whoever reads the server
//! learns no ids, and no client can choose ids that meet. All keys of an agent
//! have them in braces, so that they meet in one slot of a cluster.

use crate::error::SecretError;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use siphasher::sip128::SipHasher24;
use std::fmt::{self, Write as _};
use tollgate::cluster::Cluster;
pub use tollgate::cluster::SECRET_BYTES_MIN;

/// From ids to keys, with the secret that all nodes of a cluster have.
#[derive(Clone)]
pub struct Keyring {
    hasher: SipHasher24,
    key: [u8; 16],
}

impl Keyring {
    /// Takes the cluster's secret: any bytes, at least [`SECRET_BYTES_MIN`].
    ///
    /// The secret should be random, as `openssl rand -hex 32` makes it. SipHash
    /// derives the key from it at full speed, so a word that can be guessed can be
    /// found by trying, and with it whether an id has a key on the server.
    pub fn new(secret: &[u8]) -> Result<Self, SecretError> {
        let key = Cluster::with_secret(secret).map_err(|_| SecretError { bytes: secret.len() })?.key();
        Ok(Self::of(key))
    }

    /// That of a [`key`](Self::key).
    pub(crate) fn of(key: [u8; 16]) -> Self {
        Self { hasher: SipHasher24::new_with_key(&key), key }
    }

    /// The key for [`Cluster::new`](tollgate::cluster::Cluster::new), with which a limiter hashes ids as this does.
    #[must_use]
    pub const fn key(&self) -> [u8; 16] {
        self.key
    }

    /// What stands for an agent on the server.
    #[must_use]
    pub fn agent(&self, id: &[u8]) -> AgentKey {
        AgentKey(u128::from(self.hasher.hash(id)))
    }

    /// The key under which the nodes with this secret show that they live: a sorted set. Others on the same server have
    /// another, and do not count.
    #[must_use]
    pub fn nodes(&self) -> String {
        // No agent has an empty id.
        format!("tollgate:nodes:{{{}}}", self.agent(b""))
    }
}

/// Does not show the secret.
impl fmt::Debug for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Keyring")
    }
}

/// 128 bits that stand for an agent on the server: its id, hashed under the cluster's secret.
///
/// Displayed as the 22 characters that its keys have in braces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AgentKey(u128);

impl AgentKey {
    /// The one with these bits.
    #[must_use]
    pub const fn from_bits(bits: u128) -> Self {
        Self(bits)
    }

    /// Its bits.
    #[must_use]
    pub const fn to_bits(self) -> u128 {
        self.0
    }

    /// What [`Display`](fmt::Display) has written; `None` for anything else.
    #[must_use]
    pub fn read(text: &[u8]) -> Option<Self> {
        let bytes = BASE64.decode(text).ok()?;
        bytes.try_into().ok().map(|bytes| Self(u128::from_le_bytes(bytes)))
    }

    /// The key of a bucket.
    #[must_use]
    pub fn bucket(self, lane: &LaneKey) -> String {
        format!("tollgate:{{{self}}}:{}", lane.0)
    }

    /// The key of a budget in the calendar window with this number.
    #[must_use]
    pub fn budget(self, lane: &LaneKey, window: u64) -> String {
        format!("tollgate:{{{self}}}:{}:{window}", lane.0)
    }
}

impl fmt::Display for AgentKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&BASE64.encode(self.0.to_le_bytes()))
    }
}

/// A lane's name as it stands in keys.
///
/// Whatever is not of `A-Z a-z 0-9 / _ . -` is percent-encoded, byte by byte. So
/// different names stay different, no name has a colon, a brace, a space or a
/// control character, and a budget's key is never taken for a bucket's.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LaneKey(String);

impl LaneKey {
    /// Escapes a name.
    #[must_use]
    pub fn new(name: &str) -> Self {
        let mut escaped = String::with_capacity(name.len());
        for byte in name.bytes() {
            match byte {
                b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'/' | b'_' | b'.' | b'-' => escaped.push(char::from(byte)),
                _ => drop(write!(escaped, "%{byte:02X}")),
            }
        }
        Self(escaped)
    }

    /// The name as it stands in keys.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Computed once with a SipHash written apart, in another language.
    const VECTORS: [(&[u8], &[u8], &str); 4] = [
        (b"0f6f4c0d9d1e7e4a0a2b", b"agent-7", "8N-E-c2mlSJXIizEJ2YDXw"),
        (b"correct horse battery staple", b"agent-7", "XiO0973Xp26NGmr7Oucpzg"),
        (b"sixteen bytes...", b"", "FzFpBQdJ10gxFBY9miETEg"),
        (b"sixteen bytes...", &[0xa5; 256], "VreAt6fHrJvT7YYccX0WnA"),
    ];

    #[test]
    fn keys_are_what_they_were() {
        let lane = LaneKey::new("http/heavy");
        for (secret, id, characters) in VECTORS {
            let agent = Keyring::new(secret).unwrap().agent(id);
            assert_eq!(agent.to_string(), characters);
            assert_eq!(agent.bucket(&lane), format!("tollgate:{{{characters}}}:http/heavy"));
            assert_eq!(agent.budget(&lane, 20_410), format!("tollgate:{{{characters}}}:http/heavy:20410"));
            assert_eq!(AgentKey::from_bits(agent.to_bits()), agent);
        }
    }

    #[test]
    fn the_hash_is_siphash_2_4_of_128_bits() {
        // The first vector of the reference implementation: the key 00 to 0f, and no input.
        let key: [u8; 16] = std::array::from_fn(|i| u8::try_from(i).unwrap());
        let hash = SipHasher24::new_with_key(&key).hash(b"").as_bytes();
        assert_eq!(hash, [163, 129, 127, 4, 186, 37, 168, 230, 109, 246, 114, 20, 199, 85, 2, 147]);
    }

    #[test]
    fn a_short_secret_is_refused() {
        let error = Keyring::new(b"fifteen bytes..").unwrap_err();
        assert!(error.to_string().starts_with("the cluster's secret has 15 bytes, and 16 at least"), "{error}");
        assert!(Keyring::new(b"sixteen bytes...").is_ok());
    }

    #[test]
    fn no_id_stands_in_a_key_and_no_secret_in_what_is_printed() {
        let keyring = Keyring::new(b"correct horse battery staple").unwrap();
        let key = keyring.agent(b"alice@example.org").bucket(&LaneKey::new("api"));
        assert!(!key.contains("alice") && !key.contains("example"), "{key}");
        assert_eq!(key.len(), "tollgate:{}:api".len() + 22);
        assert_eq!(format!("{keyring:?}"), "Keyring");
    }

    #[test]
    fn lanes_are_escaped_and_stay_different() {
        for (name, escaped) in [
            ("ws/normal-2_x.y", "ws/normal-2_x.y"),
            ("a{b}c:d e", "a%7Bb%7Dc%3Ad%20e"),
            ("100%", "100%25"),
            ("tab\tnul\0", "tab%09nul%00"),
            ("für", "f%C3%BCr"),
            ("*", "%2A"),
        ] {
            assert_eq!(LaneKey::new(name).as_str(), escaped);
        }
    }
}
