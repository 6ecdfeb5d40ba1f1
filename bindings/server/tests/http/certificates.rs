//! Certificates for tests, as files.

use crate::directory::Directory;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use std::path::PathBuf;

/// Who signs certificates; its own is a file.
pub(crate) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    name: &'static str,
}

fn params(name: &str) -> CertificateParams {
    let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
    let mut params = CertificateParams::new(names).expect("names");
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

impl Authority {
    pub(crate) fn new(name: &'static str) -> Self {
        let mut params = params(name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        Self { issuer: CertifiedIssuer::self_signed(params, key).expect("a certificate"), name }
    }

    /// The file with its own certificate.
    pub(crate) fn file(&self, directory: &Directory) -> String {
        directory.file(&format!("{}.pem", self.name), &self.issuer.pem())
    }

    /// Writes a new certificate and its key, each in one step.
    pub(crate) fn sign(&self, directory: &Directory, name: &str) -> (PathBuf, PathBuf) {
        let key = KeyPair::generate().expect("a key");
        let certificate = params(name).signed_by(&key, &self.issuer).expect("a certificate");
        let write = |ending: &str, text: &str| {
            let path = directory.path().join(format!("{name}{ending}"));
            let new = directory.file(&format!("{name}{ending}.new"), text);
            std::fs::rename(new, &path).expect("a file");
            path
        };
        (write(".pem", &certificate.pem()), write("-key.pem", &key.serialize_pem()))
    }
}
