//! What the server listens on: a port, or a Unix socket.
//!
//! A Unix socket is a file. One that a killed server has left refuses connections, and is
//! replaced; one at which somebody listens is not. Nobody connects before the file has
//! its mode: until then the socket does not listen.

use crate::address::Address;
use std::fs::Permissions;
use std::io::{Error, ErrorKind, Result};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use tokio::net::{TcpListener, TcpSocket, UnixListener, UnixSocket};

/// How many connections may wait to be accepted, if the system allows as many
/// (`net.core.somaxconn`). If the queue is full, the client's system tries again a
/// second later.
pub(crate) const BACKLOG: u32 = 4_096;

/// How much of a response the system buffers for a client that does not read; Linux
/// doubles it. By default it buffers megabytes.
const SEND_BYTES: u32 = 128 * 1024;

/// The address of a client on a Unix socket: it has none, and is on this machine.
const LOCAL: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// A socket that listens.
pub(crate) enum Socket {
    Tcp(TcpListener),
    Unix(UnixListener, SocketFile),
}

/// An accepted connection, not yet registered with the runtime of a thread.
pub(crate) enum Accepted {
    Tcp(std::net::TcpStream),
    Unix(std::os::unix::net::UnixStream),
}

/// The file of a Unix socket, removed when the socket closes, unless another server has replaced it.
pub(crate) struct SocketFile {
    path: PathBuf,
    /// The number of the file in its file system.
    file: u64,
}

impl Socket {
    /// Listens; `mode` is the mode of a Unix socket's file.
    ///
    /// # Errors
    ///
    /// What the system refuses, or `AddrInUse` if somebody listens there.
    pub(crate) fn bind(address: &Address, mode: u32) -> Result<Self> {
        match address {
            Address::Tcp(address) => bind_tcp(*address).map(Self::Tcp),
            Address::Unix(path) => bind_unix(path, mode),
        }
    }

    /// Where it listens, with the real port if port 0 was requested.
    pub(crate) fn address(&self) -> Result<Address> {
        match self {
            Self::Tcp(listener) => listener.local_addr().map(Address::Tcp),
            Self::Unix(_, file) => Ok(Address::Unix(file.path.clone())),
        }
    }

    /// The same without its file: nobody can connect any more, and nobody who has is lost.
    pub(crate) fn hidden(self) -> Self {
        if let Self::Unix(_, file) = &self {
            file.remove();
        }
        self
    }

    /// The next connection, and the address of its client.
    pub(crate) async fn accept(&self) -> Result<(Accepted, SocketAddr)> {
        match self {
            Self::Tcp(listener) => {
                let (stream, peer) = listener.accept().await?;
                Ok((Accepted::Tcp(stream.into_std()?), peer))
            }
            Self::Unix(listener, _) => Ok((Accepted::Unix(listener.accept().await?.0.into_std()?), LOCAL)),
        }
    }
}

fn bind_tcp(address: SocketAddr) -> Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // A restart does not wait for connections of the previous run.
    socket.set_reuseaddr(true)?;
    // Connections inherit it from the listener.
    socket.set_send_buffer_size(SEND_BYTES)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

fn bind_unix(path: &Path, mode: u32) -> Result<Socket> {
    remove_stale(path)?;
    let socket = UnixSocket::new_stream()?;
    socket.bind(path)?;
    let file = SocketFile { path: path.to_owned(), file: std::fs::symlink_metadata(path)?.ino() };
    std::fs::set_permissions(path, Permissions::from_mode(mode))?;
    Ok(Socket::Unix(socket.listen(BACKLOG)?, file))
}

/// Removes the file of a socket at which nobody listens any more.
fn remove_stale(path: &Path) -> Result<()> {
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
        Ok(found) if !found.file_type().is_socket() => {
            let problem = "there is a file that is not a socket, which is left alone";
            return Err(Error::new(ErrorKind::AlreadyExists, problem));
        }
        Ok(_) => {}
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => std::fs::remove_file(path),
        // Its queue may be full, or it may not let us in: somebody is there.
        Ok(_) | Err(_) => Err(ErrorKind::AddrInUse.into()),
    }
}

impl SocketFile {
    fn remove(&self) {
        if std::fs::symlink_metadata(&self.path).is_ok_and(|found| found.ino() == self.file) {
            _ = std::fs::remove_file(&self.path);
        }
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        self.remove();
    }
}
