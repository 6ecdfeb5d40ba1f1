//! Why a layer could not be built.

use crate::address::NetworkError;
use crate::key::KeysError;
use crate::route::RouteError;
use std::fmt;

/// Why a layer could not be built. Each says what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BuildError {
    /// A rule names a lane that the policy does not have.
    UnknownLane {
        /// The name.
        lane: String,
        /// The lanes there are.
        known: Vec<String>,
    },
    /// A rule names a lane whose slots are held, and the layer releases none.
    HeldLane {
        /// The name.
        lane: String,
    },
    /// A rule names a plan that the policy does not have.
    UnknownPlan {
        /// The name.
        plan: String,
        /// The plans there are.
        known: Vec<String>,
    },
    /// There are several lanes, and none is named for requests that no rule matches.
    NoLane,
    /// Something needs the client's address, and nothing says where it is.
    NoPeer,
    /// The keys can never work.
    Keys(KeysError),
    /// A rule by route is none.
    Route(RouteError),
    /// A text is no network.
    Network(NetworkError),
    /// The trusted proxies would be everybody.
    TrustedEverybody {
        /// The network that has them all.
        network: String,
    },
    /// A prefix or a part of a path that says nothing.
    Path {
        /// The text as given.
        text: String,
    },
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownLane { lane, known } => {
                write!(f, "there is no lane {lane:?}; the limiter's policy has {}", known.join(", "))
            }
            Self::HeldLane { lane } => write!(
                f,
                "slots of the lane {lane:?} are held until they are released, which this layer does not do; hold them \
                 in the handler, with Limiter::hold"
            ),
            Self::UnknownPlan { plan, known } => {
                write!(f, "there is no plan {plan:?}; the limiter's policy has {}", known.join(", "))
            }
            Self::NoLane => write!(
                f,
                "the policy has several lanes; name the one for requests that no rule matches with .lane(\"...\"), \
                 or let them pass with .pass_others()"
            ),
            Self::NoPeer => write!(
                f,
                "Key::address, allow_network and trusted_proxies need the peer's address; say where it is, with axum \
                 by .peer::<ConnectInfo<SocketAddr>>(), otherwise by .peer::<Peer>() or .peer_with(...)"
            ),
            Self::Keys(error) => error.fmt(f),
            Self::Route(error) => error.fmt(f),
            Self::Network(error) => error.fmt(f),
            Self::TrustedEverybody { network } => write!(
                f,
                "to trust {network} is to take everybody's word for who they are; name the networks of your proxies"
            ),
            Self::Path { text } => write!(f, "{text:?} in a rule by path; it has to begin with /"),
        }
    }
}

impl std::error::Error for BuildError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Keys(error) => Some(error),
            Self::Route(error) => Some(error),
            Self::Network(error) => Some(error),
            _ => None,
        }
    }
}

impl From<KeysError> for BuildError {
    fn from(error: KeysError) -> Self {
        Self::Keys(error)
    }
}

impl From<RouteError> for BuildError {
    fn from(error: RouteError) -> Self {
        Self::Route(error)
    }
}

impl From<NetworkError> for BuildError {
    fn from(error: NetworkError) -> Self {
        Self::Network(error)
    }
}
