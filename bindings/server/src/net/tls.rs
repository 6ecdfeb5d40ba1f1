//! TLS: the certificate in force, and handshakes.
//!
//! The files are read again when they change, and on SIGHUP. If they do not fit together,
//! as when one of them was replaced and the other was not yet, the old certificate stays
//! in force and they are tried again. Connections keep the certificate that they began with.

use super::stream::{Unread, has_unread};
use crate::error::StartError;
use crate::settings::TlsFiles;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};
use tokio_rustls::server::TlsStream;

/// What the files looked like when they were read: device, file, size, and when each was changed.
type Stamps = Vec<Option<(u64, u64, u64, i64, i64)>>;

/// The certificate in force, and the files that it comes from.
pub(crate) struct Tls {
    files: TlsFiles,
    state: Mutex<State>,
}

struct State {
    config: Arc<ServerConfig>,
    stamps: Stamps,
    /// Why the files could not be used when they were last read.
    problem: Option<String>,
}

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    ///
    /// Which file is wrong, and what to do.
    pub(crate) fn load(files: &TlsFiles) -> Result<Self, StartError> {
        let stamps = stamps(files);
        let state = State { config: read(files).map_err(StartError::new)?, stamps, problem: None };
        Ok(Self { files: files.clone(), state: Mutex::new(state) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the files again if they have changed, or could not be used the last time. Returns whether that
    /// succeeded, and `None` if it was not necessary.
    pub(crate) fn reload_if_changed(&self) -> Option<bool> {
        let stamps = stamps(&self.files);
        let state = self.state();
        let is_needed = state.stamps != stamps || state.problem.is_some();
        drop(state);
        is_needed.then(|| self.reload()).flatten()
    }

    /// Reads the files again. Returns whether they are in force, and `None` if they still have the problem that they
    /// had before, which was logged.
    pub(crate) fn reload(&self) -> Option<bool> {
        let (stamps, read) = (stamps(&self.files), read(&self.files));
        let mut state = self.state();
        state.stamps = stamps;
        match read {
            Ok(config) => {
                (state.config, state.problem) = (config, None);
                tracing::info!(certificate = %self.files.certificate.display(), "the certificate was read again");
                Some(true)
            }
            Err(problem) if state.problem.as_ref() == Some(&problem) => None,
            Err(problem) => {
                tracing::error!(problem, "the certificate was not read again; the old one stays in force");
                state.problem = Some(problem);
                Some(false)
            }
        }
    }

    /// Makes the handshake of a connection. `None` if it failed: the client has been told why, if it can be told.
    pub(super) async fn accept(&self, mut stream: TcpStream) -> Option<TlsConnection> {
        if is_plain_http(&stream).await {
            refuse_plain_http(&mut stream).await;
            return None;
        }
        let config = Arc::clone(&self.state().config);
        let noting = Noting { stream, has_read: false };
        match TlsAcceptor::from(config).accept(noting).await {
            Ok(mut stream) => {
                stream.get_mut().0.has_read = false;
                Some(TlsConnection(stream))
            }
            Err(error) => {
                tracing::debug!(%error, "a TLS handshake failed");
                None
            }
        }
    }
}

/// A handshake begins with the byte 22, and a method with a letter.
async fn is_plain_http(stream: &TcpStream) -> bool {
    let mut first = [0];
    matches!(stream.peek(&mut first).await, Ok(1) if first[0].is_ascii_uppercase())
}

async fn refuse_plain_http(stream: &mut TcpStream) {
    const BODY: &str = "this port speaks TLS; use https://\n";
    // Bytes that nobody reads would discard the response.
    let mut head = [0; 8 * 1024];
    _ = stream.read(&mut head).await;
    let length = BODY.len();
    let head = "HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain\r\nconnection: close\r\n";
    let response = format!("{head}content-length: {length}\r\n\r\n{BODY}");
    _ = stream.write_all(response.as_bytes()).await;
    _ = stream.shutdown().await;
}

fn stamps(files: &TlsFiles) -> Stamps {
    let stamp = |path: &Path| {
        let found = std::fs::metadata(path).ok()?;
        Some((found.dev(), found.ino(), found.size(), found.mtime(), found.mtime_nsec()))
    };
    [Some(&files.certificate), Some(&files.key), files.client_ca.as_ref()]
        .into_iter()
        .flatten()
        .map(|path| stamp(path))
        .collect()
}

fn read(files: &TlsFiles) -> Result<Arc<ServerConfig>, String> {
    let provider = Arc::new(ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| error.to_string())?;
    let builder = match &files.client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let mut roots = RootCertStore::empty();
            for certificate in certificates(path)? {
                roots.add(certificate).map_err(|error| format!("{}: {error}", path.display()))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
            builder.with_client_cert_verifier(verifier.map_err(|error| format!("{}: {error}", path.display()))?)
        }
    };
    let key = PrivateKeyDer::from_pem_slice(&bytes(&files.key)?).map_err(|error| {
        format!("{} has no private key: {error}; give one as PEM, without a passphrase", files.key.display())
    })?;
    let mut config = builder.with_single_cert(certificates(&files.certificate)?, key).map_err(|error| {
        let (certificate, key) = (files.certificate.display(), files.key.display());
        format!("the certificate {certificate} and the key {key} cannot be used: {error}; do they belong together?")
    })?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// The certificates in a file, one at least.
pub(crate) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes(path)?).collect();
    match certificates {
        Ok(certificates) if !certificates.is_empty() => Ok(certificates),
        Ok(_) => Err(format!("{} has no certificate; give one or more as PEM", path.display())),
        Err(error) => Err(format!("{}: {error}; give certificates as PEM", path.display())),
    }
}

fn bytes(path: &Path) -> Result<Vec<u8>, String> {
    let text = crate::source::read_text(path);
    text.map(String::into_bytes).map_err(|error| format!("cannot read {}: {error}", path.display()))
}

/// A TCP stream that notes whether bytes were read.
struct Noting {
    stream: TcpStream,
    has_read: bool,
}

/// A stream inside TLS.
pub(super) struct TlsConnection(TlsStream<Noting>);

impl TlsConnection {
    /// Whether the client has chosen HTTP/2.
    pub(super) fn is_http2(&self) -> bool {
        self.0.get_ref().1.alpn_protocol() == Some(b"h2")
    }
}

impl Unread for TlsConnection {
    /// Bytes that have not become text yet are part of a record whose rest is on the way.
    fn has_unread(&self) -> bool {
        let noting = self.0.get_ref().0;
        noting.has_read || has_unread(&noting.stream)
    }
}

impl AsyncRead for Noting {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(cx, buffer);
        self.has_read |= buffer.filled().len() > before;
        polled
    }
}

impl AsyncRead for TlsConnection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.0).poll_read(cx, buffer);
        if buffer.filled().len() > before {
            self.0.get_mut().0.has_read = false;
        }
        polled
    }
}

/// Writes go through as they are.
macro_rules! writes_to {
    ($stream:ty, $inner:tt) => {
        impl AsyncWrite for $stream {
            fn poll_write(
                mut self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                bytes: &[u8],
            ) -> Poll<std::io::Result<usize>> {
                Pin::new(&mut self.$inner).poll_write(cx, bytes)
            }

            fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
                Pin::new(&mut self.$inner).poll_flush(cx)
            }

            fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
                Pin::new(&mut self.$inner).poll_shutdown(cx)
            }
        }
    };
}

writes_to!(Noting, stream);
writes_to!(TlsConnection, 0);
