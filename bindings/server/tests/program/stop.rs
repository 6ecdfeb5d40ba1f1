//! Stopping, as a service manager does it.

use super::{Directory, ServerProcess, tollgate};
use rustix::process::Signal;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;

/// 64 of 64 kept-alive connections used to see the end and no response.
#[test]
fn sigterm_drops_no_request_that_was_sent() {
    let directory = Directory::new("end");
    let file = directory.file("tollgate.toml", "preset = \"standard\"\n[server]\nnotice = \"0s\"\ndrain = \"5s\"\n");
    let mut server = ServerProcess::start(&mut tollgate(&["serve", "--config", &file, "--listen", "127.0.0.1:0"]));
    let request = format!("GET /healthz HTTP/1.1\r\nhost: {}\r\n\r\n", server.address);
    let mut kept: Vec<_> = (0..64).map(|_| TcpStream::connect(server.address).unwrap()).collect();
    for stream in &mut kept {
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = [0; 15];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"HTTP/1.1 200 OK");
    }
    server.signal(Signal::TERM);
    let ready = request.replace("/healthz", "/readyz").replace("\r\n\r\n", "\r\nconnection: close\r\n\r\n");
    while !server.send(&ready).starts_with("HTTP/1.1 503 ") {}
    // The drain takes time, and kept-alive connections outlast some of it.
    std::thread::sleep(std::time::Duration::from_millis(500));
    for stream in &mut kept {
        stream.write_all(request.as_bytes()).unwrap();
    }
    for stream in &mut kept {
        let mut answers = String::new();
        stream.read_to_string(&mut answers).unwrap();
        assert!(answers.contains("200 OK") && answers.contains("connection: close"), "{answers}");
    }
    assert!(server.child.wait().unwrap().success());
}
