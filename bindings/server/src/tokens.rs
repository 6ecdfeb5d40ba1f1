//! Named tokens: what their clients may do, and in which lanes.
//!
//! A reload replaces them. Each secret counts its uses, so that an operator sees when
//! nobody sends the old one any more.

use crate::error::StartError;
use crate::problem::Problem;
use crate::settings::{May, NamedToken, check_token, matches};
use http::StatusCode;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, RwLock};

/// The lanes that a client may use.
#[must_use = "a token may be for some lanes alone"]
#[derive(Clone, Default)]
pub(crate) struct Scope(Option<Arc<Named>>);

/// One of the tokens.
pub(crate) struct Named {
    token: NamedToken,
    /// The digests of its secrets, and how often each was used.
    secrets: Vec<(u128, AtomicU64)>,
}

/// All of them.
#[derive(Default)]
pub(crate) struct Tokens(RwLock<Vec<Arc<Named>>>);

impl fmt::Debug for Scope {
    /// Without the secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.as_ref().map(|named| &named.token).fmt(f)
    }
}

impl Scope {
    /// Whether the client may use a lane.
    pub(crate) fn has(&self, lane: &str) -> bool {
        let lanes = self.0.as_ref().and_then(|named| named.token.lanes.as_ref());
        lanes.is_none_or(|lanes| lanes.iter().any(|pattern| matches(pattern, lane)))
    }

    /// Refuses a lane that the client may not use.
    pub(crate) fn require(&self, lane: &str) -> Result<(), Problem> {
        if self.has(lane) {
            return Ok(());
        }
        let name = self.0.as_ref().map_or("", |named| named.token.name.as_str());
        let detail = format!("the token {name} is not for the lane {lane}; its lanes are in the server's policy file");
        Err(Problem::new(StatusCode::FORBIDDEN, detail).in_field("lane"))
    }
}

impl Tokens {
    /// Puts tokens in force in place of those before. The secrets that stay keep their counts.
    ///
    /// # Errors
    ///
    /// If one of them is invalid, or stands twice. Then nothing has changed.
    pub(crate) fn replace(&self, tokens: &[NamedToken], digest: impl Fn(&str) -> u128) -> Result<(), StartError> {
        let before = self.list();
        let mut all: Vec<Arc<Named>> = Vec::with_capacity(tokens.len());
        for token in tokens {
            let mut secrets = Vec::with_capacity(token.secrets.len());
            for secret in &token.secrets {
                check_token(secret).map_err(|problem| StartError::new(format!("token {}: {problem}", token.name)))?;
                let digest = digest(secret);
                let known = |named: &&Arc<Named>| named.use_of(digest).is_some();
                if let Some(other) = all.iter().find(known) {
                    let (one, other) = (&token.name, &other.token.name);
                    return Err(StartError::new(format!(
                        "the tokens {other} and {one} are the same; make them differ"
                    )));
                }
                let same = before.iter().find(|named| named.token.name == token.name);
                let uses = same.and_then(|named| named.use_of(digest)).map_or(0, |uses| uses.load(Relaxed));
                secrets.push((digest, AtomicU64::new(uses)));
            }
            all.push(Arc::new(Named { token: token.clone(), secrets }));
        }
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = all;
        Ok(())
    }

    fn list(&self) -> Vec<Arc<Named>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What a secret permits, if it is one of theirs.
    pub(crate) fn find(&self, digest: u128) -> Option<(May, Scope)> {
        let all = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let named = all.iter().find(|named| match named.use_of(digest) {
            Some(uses) => {
                uses.fetch_add(1, Relaxed);
                true
            }
            None => false,
        })?;
        Some((named.token.may, Scope(Some(Arc::clone(named)))))
    }

    /// How often each secret was used: the name, which of the name's secrets, the count.
    pub(crate) fn uses(&self) -> Vec<(String, usize, u64)> {
        let uses = |named: &Arc<Named>| {
            let name = named.token.name.clone();
            let secrets = named.secrets.iter().map(|(_, uses)| uses.load(Relaxed));
            secrets.enumerate().map(move |(at, uses)| (name.clone(), at + 1, uses)).collect::<Vec<_>>()
        };
        self.list().iter().flat_map(uses).collect()
    }
}

impl Named {
    fn use_of(&self, digest: u128) -> Option<&AtomicU64> {
        self.secrets.iter().find(|(known, _)| *known == digest).map(|(_, uses)| uses)
    }
}
