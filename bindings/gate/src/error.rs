//! Why a gate could not be built.

use crate::address::NetworkError;
use crate::key::KeysError;
use crate::route::RouteError;
use std::fmt;

/// Why a gate could not be built. Each message ends in advice.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BuildError {
    /// A rule names a lane that the policy does not have.
    UnknownLane {
        /// The name.
        lane: String,
        /// The policy's lanes.
        known: Vec<String>,
    },
    /// A rule names a held lane, and a gate never releases a slot.
    HeldLane {
        /// The name.
        lane: String,
    },
    /// A rule names a plan that the policy does not have.
    UnknownPlan {
        /// The name.
        plan: String,
        /// The policy's plans.
        known: Vec<String>,
    },
    /// The policy has several lanes, and none was chosen for requests that no rule matches.
    NoLane,
    /// A setting needs the client's address, and the gate does not know where to find it.
    NoPeer,
    /// The keys can never work.
    Keys(KeysError),
    /// A route is invalid.
    Route(RouteError),
    /// A text is not a network.
    Network(NetworkError),
    /// The trusted proxies include every address.
    TrustsEveryone {
        /// The network that includes them.
        network: String,
    },
    /// A path prefix or substring that does not begin with `/`.
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
                "slots of the lane {lane:?} are held until they are released, and this layer never releases one; hold \
                 them in the handler, with Limiter::hold"
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
                "Key::address, allow_network and trusted_proxies need the peer's address; set it with \
                 .peer::<ConnectInfo<SocketAddr>>() for axum, otherwise with .peer::<Peer>() or .peer_with(...)"
            ),
            Self::Keys(error) => error.fmt(f),
            Self::Route(error) => error.fmt(f),
            Self::Network(error) => error.fmt(f),
            Self::TrustsEveryone { network } => {
                write!(f, "to trust {network} lets every client choose its address; list the networks of your proxies")
            }
            Self::Path { text } => write!(f, "{text:?} is not a path; it has to begin with /"),
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
