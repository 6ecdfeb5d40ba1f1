//! The files of a certificate.

use super::entry::{Entry, Section, Value};
use std::path::PathBuf;
use tollgate::ConfigError;

/// The files that TLS needs, as PEM. They are read again when they change.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TlsFiles {
    /// The certificate, followed by those between it and the root.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// Who may sign clients' certificates; `None` asks clients for none.
    pub client_ca: Option<PathBuf>,
}

impl TlsFiles {
    /// A certificate and its key.
    #[must_use]
    pub fn new(certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        Self { certificate: certificate.into(), key: key.into(), client_ca: None }
    }

    /// Requires a certificate of every client, signed by one of these.
    #[must_use]
    pub fn client_ca(mut self, file: impl Into<PathBuf>) -> Self {
        self.client_ca = Some(file.into());
        self
    }
}

/// The keys, as they are read.
#[derive(Default)]
pub(super) struct TlsKeys {
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
    client_ca: Option<PathBuf>,
}

impl TlsKeys {
    /// Whether the entry is one of the keys.
    pub(super) fn set(&mut self, entry: &Entry<'_, '_>) -> Result<bool, ConfigError> {
        match entry.name {
            "tls_certificate" => self.certificate = Some(entry.path()?),
            "tls_key" => self.key = Some(entry.path()?),
            "tls_client_ca" => self.client_ca = Some(entry.path()?),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// The files, if there are any; those of a pair come together.
    pub(super) fn files(&self, section: &Section<'_>, table: &Value<'_>) -> Result<Option<TlsFiles>, ConfigError> {
        let problem = match (&self.certificate, &self.key, &self.client_ca) {
            (None, None, None) => return Ok(None),
            (Some(certificate), Some(key), client_ca) => {
                let files = TlsFiles::new(certificate, key);
                return Ok(Some(TlsFiles { client_ca: client_ca.clone(), ..files }));
            }
            (Some(_), None, _) => "a certificate needs its key; set tls_key too",
            (None, Some(_), _) => "a key needs its certificate; set tls_certificate too",
            (None, None, Some(_)) => "clients show certificates inside TLS; set tls_certificate and tls_key too",
        };
        Err(ConfigError::new(section.text, table.span(), format!("{}: {problem}", section.name)))
    }
}
