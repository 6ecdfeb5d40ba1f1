//! A network between machines and a server: one that is slow, and one in which everything vanishes.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{sleep, spawn};
use std::time::Duration;

/// What the network does.
#[derive(Default)]
pub(crate) struct Network {
    /// How long everything takes, each way.
    delay_us: AtomicU64,
    is_black_hole: AtomicBool,
}

impl Network {
    pub(crate) fn set_delay(&self, delay: Duration) {
        self.delay_us.store(delay.as_micros() as u64, Ordering::Relaxed);
    }

    /// Whether nothing arrives, and nobody hears of that.
    pub(crate) fn set_black_hole(&self, is: bool) {
        self.is_black_hole.store(is, Ordering::Relaxed);
    }

    /// Carries what comes to where it goes, until one side ends.
    fn carry(&self, mut from: impl Read, mut to: impl Write) {
        let mut buffer = vec![0; 1 << 16];
        // Ends with the connection, and that with the test at the latest.
        while let Ok(count @ 1..) = from.read(&mut buffer) {
            sleep(Duration::from_micros(self.delay_us.load(Ordering::Relaxed)));
            while self.is_black_hole.load(Ordering::Relaxed) {
                sleep(Duration::from_millis(1));
            }
            if to.write_all(&buffer[..count]).is_err() {
                break;
            }
        }
    }
}

/// Opens a way to the server behind this socket, and returns its URL. It lasts as long as the process.
pub(crate) fn proxy(socket: &str) -> (String, Arc<Network>) {
    let (listener, network) = (TcpListener::bind("127.0.0.1:0").expect("a port"), Arc::new(Network::default()));
    let url = format!("redis://{}", listener.local_addr().expect("its address"));
    let (socket, of_listener) = (socket.to_owned(), Arc::clone(&network));
    spawn(move || {
        for client in listener.incoming().flatten() {
            let Ok(server) = UnixStream::connect(&socket) else { continue };
            both_ways(client, server, &of_listener);
        }
    });
    (url, network)
}

fn both_ways(client: TcpStream, server: UnixStream, network: &Arc<Network>) {
    let (Ok(()), Ok(from_client), Ok(to_server)) = (client.set_nodelay(true), client.try_clone(), server.try_clone())
    else {
        return;
    };
    let (there, back) = (Arc::clone(network), Arc::clone(network));
    spawn(move || {
        there.carry(&from_client, &to_server);
        _ = to_server.shutdown(std::net::Shutdown::Both);
    });
    spawn(move || {
        back.carry(&server, &client);
        _ = client.shutdown(std::net::Shutdown::Both);
    });
}
