//! A plain HTTP client over one connection, for the commands and the tests.

use crate::address::Address;
use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

/// How much of a response is read.
const ANSWER_BYTES_MAX: usize = 64 * 1024 * 1024;

/// One connection to a server.
pub struct Client {
    sender: SendRequest<Full<Bytes>>,
    host: String,
}

/// A response, read to the end.
#[derive(Debug)]
pub struct Answer {
    /// Its status.
    pub status: StatusCode,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body.
    pub body: Bytes,
}

/// Why there is no response.
pub type ClientError = Box<dyn std::error::Error + Send + Sync>;

impl Client {
    /// Connects to an address.
    ///
    /// # Errors
    ///
    /// If nobody listens there.
    pub async fn connect(address: impl Into<Address>) -> Result<Self, ClientError> {
        match address.into() {
            Address::Tcp(address) => {
                let stream = TcpStream::connect(address).await?;
                stream.set_nodelay(true)?;
                Self::over(stream, address.to_string()).await
            }
            Address::Unix(path) => Self::over(UnixStream::connect(path).await?, "localhost".to_owned()).await,
        }
    }

    /// Uses a connection to a host of this name.
    ///
    /// # Errors
    ///
    /// If the connection is closed.
    pub async fn over(
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        host: String,
    ) -> Result<Self, ClientError> {
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        Ok(Self { sender, host })
    }

    /// Sends a request and waits for the response.
    ///
    /// # Errors
    ///
    /// If the connection breaks, or the request is invalid.
    pub async fn send(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Result<Answer, ClientError> {
        let mut request = Request::builder().method(method).uri(path);
        if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
            request = request.header("host", &self.host);
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.sender.ready().await?;
        let response = self.sender.send_request(request.body(Full::new(body.into()))?).await?;
        let (parts, body) = response.into_parts();
        let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await?.to_bytes();
        Ok(Answer { status: parts.status, headers: parts.headers, body })
    }
}
