//! Connections that are encrypted.

use super::error::EngineError;
use super::secret::Secret;

/// How servers are believed, and what they are shown: for URLs that begin with `rediss://`. Needs the feature `tls`.
///
/// Texts are PEM. Without a CA the certificates of the system are believed.
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct Tls {
    ca: Option<String>,
    client: Option<(String, Secret)>,
}

impl Tls {
    /// The certificates of the system are believed, and the servers are shown none.
    pub const fn new() -> Self {
        Self { ca: None, client: None }
    }

    /// Believes only servers with a certificate of one of these authorities.
    pub fn ca(mut self, pem: impl Into<String>) -> Self {
        self.ca = Some(pem.into());
        self
    }

    /// Shows servers this certificate, with the authorities between it and one that they know, and proves it with its
    /// key.
    pub fn client(mut self, certificate_pem: impl Into<String>, key_pem: impl Into<String>) -> Self {
        self.client = Some((certificate_pem.into(), Secret(key_pem.into())));
        self
    }

    /// The address with these settings.
    #[cfg(feature = "tls")]
    pub(super) fn apply(
        &self,
        host: String,
        port: u16,
        info: redis::ConnectionInfo,
    ) -> Result<redis::ConnectionInfo, EngineError> {
        use redis::{ClientTlsConfig, ConnectionAddr, TlsCertificates};
        // The program's own choice stands. Without one the redis crate would panic where there are two to choose from.
        _ = rustls::crypto::ring::default_provider().install_default();
        for (what, pem) in [("CA", self.ca.as_ref()), ("certificate", self.client.as_ref().map(|(pem, _)| pem))] {
            if pem.is_some_and(|pem| !pem.contains("-----BEGIN CERTIFICATE-----")) {
                return Err(EngineError::tls(format!("the {what} is not PEM with a certificate in it")));
            }
        }
        let client_tls = self.client.as_ref().map(|(certificate, key)| ClientTlsConfig {
            client_cert: certificate.clone().into_bytes(),
            client_key: key.0.clone().into_bytes(),
        });
        let certificates = TlsCertificates { client_tls, root_cert: self.ca.clone().map(String::into_bytes) };
        let address = ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None };
        redis::Client::build_with_tls(info.set_addr(address), certificates)
            .map(|client| client.get_connection_info().clone())
            .map_err(|problem| EngineError::tls(format!("a certificate or its key cannot be read: {problem}")))
    }

    #[cfg(not(feature = "tls"))]
    pub(super) fn apply(
        &self,
        _host: String,
        _port: u16,
        _info: redis::ConnectionInfo,
    ) -> Result<redis::ConnectionInfo, EngineError> {
        Err(EngineError::tls("rediss:// needs TLS; build tollgate-redis with the feature `tls`"))
    }
}
