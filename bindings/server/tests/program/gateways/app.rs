//! The service behind a gateway: it answers every request with what it has got.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

pub(super) struct Service {
    pub(super) address: SocketAddr,
    requests: Arc<AtomicUsize>,
}

impl Service {
    /// Serves until the test process ends.
    pub(super) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let requests = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&requests);
        std::thread::spawn(move || {
            // Ends with the process. A thread for each connection: a gateway may open some before it needs them.
            for stream in listener.incoming().flatten() {
                let counter = Arc::clone(&counter);
                std::thread::spawn(move || answer(stream, &counter));
            }
        });
        Self { address, requests }
    }

    /// How many requests it has got.
    pub(super) fn requests(&self) -> usize {
        self.requests.load(SeqCst)
    }
}

/// Answers one request. A broken connection is the gateway's affair.
fn answer(mut stream: TcpStream, requests: &AtomicUsize) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let (mut head, mut length, mut is_chunked) = (String::new(), 0, false);
    reader.read_line(&mut head).ok().filter(|read| *read > 0)?;
    let request = head.trim_end().trim_end_matches(" HTTP/1.1").trim_end_matches(" HTTP/1.0").to_owned();
    // Ends with the head: it has an empty line, or the connection is closed.
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
        let line = line.trim_end().to_ascii_lowercase();
        if line.is_empty() {
            break;
        }
        length = line.strip_prefix("content-length:").map_or(Some(length), |length| length.trim().parse().ok())?;
        is_chunked |= line.starts_with("transfer-encoding:");
    }
    if is_chunked {
        // One chunk is enough for these bodies.
        let mut size = String::new();
        reader.read_line(&mut size).ok()?;
        length = usize::from_str_radix(size.trim(), 16).ok()?;
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    requests.fetch_add(1, SeqCst);
    let text = format!("{request} with {length} bytes");
    let head = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-type: text/plain";
    write!(stream, "{head}\r\ncontent-length: {}\r\n\r\n{text}", text.len()).ok()
}
