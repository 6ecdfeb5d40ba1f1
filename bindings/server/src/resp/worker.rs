//! A thread that serves clients: it accepts them, and they stay with it.
//!
//! One loop over epoll, without a runtime: a command is decided where it was
//! read, and its reply goes out with the replies to all commands that arrived with
//! it. So a client that sends a hundred commands at once costs two system calls.

use super::service::Service;
use super::session::Session;
use super::words::Words;
use crate::app::App;
use crate::net::stages::Stage;
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tollgate::LaneId;

pub(super) const LISTENER: Token = Token(usize::MAX);
pub(super) const WAKER: Token = Token(usize::MAX - 1);

/// How often a thread looks for clients that take too long.
const TICK: Duration = Duration::from_secs(1);

/// How many events are taken from the system at once.
const EVENTS: usize = 256;

/// How many bytes are read at once.
const READ_BYTES: usize = 64 * 1024;

/// How often a client is read before others get their turn.
const READS: usize = 4;

/// How many connections are accepted before clients get their turn.
const ACCEPTS: usize = 64;

/// What all threads do alike.
#[derive(Clone)]
pub(super) struct Rules {
    pub(super) lane: LaneId,
    pub(super) is_open: bool,
    pub(super) clients_max: usize,
    /// How long a client may be silent.
    pub(super) idle: Duration,
    /// How long a command may take to arrive, and a reply to be taken.
    pub(super) busy: Duration,
    /// How long clients that are busy may go on after the end.
    pub(super) grace: Duration,
}

struct Client {
    stream: TcpStream,
    session: Session,
    /// The last time that anything was read or sent.
    active: Instant,
    /// Since when it has been in the middle of a command or of replies.
    busy: Option<Instant>,
}

/// What becomes of a client.
#[derive(Clone, Copy, PartialEq)]
enum Fate {
    /// It waits for an event.
    Stays,
    /// There may be more to read without another event.
    Again,
    Leaves,
}

pub(super) struct Worker {
    app: Arc<App>,
    rules: Rules,
    poll: Poll,
    listener: Option<TcpListener>,
    clients: Vec<Option<Client>>,
    free: Vec<usize>,
    /// Clients that have more to read.
    again: Vec<usize>,
    /// Whether connections may still wait to be accepted.
    accepts_again: bool,
    words: Words,
    buffer: Box<[u8]>,
}

impl Worker {
    pub(super) fn new(app: Arc<App>, rules: Rules, poll: Poll, mut listener: TcpListener) -> std::io::Result<Self> {
        poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
        Ok(Self {
            app,
            rules,
            poll,
            listener: Some(listener),
            clients: Vec::new(),
            free: Vec::new(),
            again: Vec::new(),
            accepts_again: false,
            words: Words::default(),
            buffer: vec![0; READ_BYTES].into(),
        })
    }

    /// Serves until the server closes its listeners, and then until no client is in the middle of anything.
    pub(super) fn run(mut self) {
        let mut events = Events::with_capacity(EVENTS);
        let (mut ticked, mut closing) = (Instant::now(), None);
        loop {
            let is_waiting = !self.again.is_empty() || self.accepts_again;
            let wait = if is_waiting || closing.is_some() { Duration::from_millis(10) } else { TICK };
            let wait = if self.again.is_empty() { wait } else { Duration::ZERO };
            let polled = self.poll.poll(&mut events, Some(wait));
            if let Some(error) = polled.err().filter(|error| error.kind() != ErrorKind::Interrupted) {
                tracing::error!(%error, "the clients of [resp] are no longer served");
                return;
            }
            let again = std::mem::take(&mut self.again);
            again.into_iter().for_each(|index| self.drive(index));
            for event in &events {
                match event.token() {
                    LISTENER => self.accepts_again = true,
                    WAKER => {}
                    Token(index) => self.drive(index),
                }
            }
            if self.accepts_again {
                self.accept();
            }
            let now = Instant::now();
            if now.duration_since(ticked) >= TICK {
                ticked = now;
                self.end_late(now);
            }
            if self.app.stages().has_begun(Stage::Closing) {
                let until = *closing.get_or_insert(now + self.rules.grace);
                if self.close(now >= until) {
                    return;
                }
            }
        }
    }

    fn accept(&mut self) {
        self.accepts_again = false;
        let Some(listener) = &self.listener else { return };
        let mut arrived = Vec::new();
        for _ in 0..ACCEPTS {
            match listener.accept() {
                Ok((stream, peer)) => arrived.push((stream, peer.ip())),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return self.enter_all(arrived),
                Err(error) if matches!(error.kind(), ErrorKind::ConnectionAborted | ErrorKind::Interrupted) => {}
                Err(error) => {
                    // No more files can be opened; the next turn tries again.
                    tracing::warn!(%error, "cannot accept clients of [resp]");
                    break;
                }
            }
        }
        self.accepts_again = true;
        self.enter_all(arrived);
    }

    fn enter_all(&mut self, arrived: Vec<(TcpStream, IpAddr)>) {
        for (stream, peer) in arrived {
            self.enter(stream, peer);
        }
    }

    fn enter(&mut self, mut stream: TcpStream, peer: IpAddr) {
        let counts = self.app.meter().resp();
        let Some(number) = counts.enter(self.rules.clients_max) else {
            // If it does not take that, it sees a closed connection.
            _ = stream.write(b"-ERR max number of clients reached\r\n");
            return;
        };
        let index = self.free.pop().unwrap_or(self.clients.len());
        let interest = Interest::READABLE | Interest::WRITABLE;
        // Replies to commands that came together go out together.
        _ = stream.set_nodelay(true);
        if self.poll.registry().register(&mut stream, Token(index), interest).is_err() {
            counts.leave();
            self.free.push(index);
            return;
        }
        let session = Session::new(number, peer, self.rules.is_open);
        let client = Client { stream, session, active: Instant::now(), busy: None };
        match self.clients.get_mut(index) {
            Some(place) => *place = Some(client),
            None => self.clients.push(Some(client)),
        }
        self.again.push(index);
    }

    /// Reads, decides and answers, as long as there is something to do.
    fn drive(&mut self, index: usize) {
        let Some(Some(client)) = self.clients.get_mut(index) else { return };
        let service = Service { app: &self.app, lane: self.rules.lane, is_open: self.rules.is_open };
        match client.drive(&service, &mut self.words, &mut self.buffer) {
            Fate::Stays => {}
            Fate::Again => self.again.push(index),
            Fate::Leaves => self.leave(index),
        }
    }

    fn leave(&mut self, index: usize) {
        if let Some(mut client) = self.clients.get_mut(index).and_then(Option::take) {
            _ = self.poll.registry().deregister(&mut client.stream);
            self.app.meter().resp().leave();
            self.free.push(index);
        }
    }

    /// Ends clients that are silent, or in the middle of something, for too long.
    fn end_late(&mut self, now: Instant) {
        let Rules { idle, busy, .. } = self.rules;
        let is_late = |client: &Client| {
            now.duration_since(client.active) > idle
                || client.busy.is_some_and(|since| now.duration_since(since) > busy)
        };
        self.leave_if(is_late);
    }

    fn leave_if(&mut self, is_over: impl Fn(&Client) -> bool) {
        for index in 0..self.clients.len() {
            if self.clients.get(index).and_then(Option::as_ref).is_some_and(&is_over) {
                self.leave(index);
            }
        }
    }

    /// Accepts nobody any more, and ends clients that are not in the middle of something, or all. `true` if none is
    /// left.
    fn close(&mut self, all: bool) -> bool {
        if let Some(mut listener) = self.listener.take() {
            _ = self.poll.registry().deregister(&mut listener);
        }
        // What was sent by now is answered.
        for index in 0..self.clients.len() {
            self.drive(index);
        }
        self.leave_if(|client| all || client.busy.is_none());
        self.clients.iter().all(Option::is_none)
    }
}

impl Client {
    fn drive(&mut self, service: &Service<'_>, words: &mut Words, buffer: &mut [u8]) -> Fate {
        let fate = self.exchange(service, words, buffer).unwrap_or(Fate::Leaves);
        let is_busy = self.session.is_amid() || !self.session.to_send().is_empty();
        self.busy = match self.busy {
            Some(since) if is_busy => Some(since),
            _ => is_busy.then(Instant::now),
        };
        fate
    }

    fn exchange(&mut self, service: &Service<'_>, words: &mut Words, buffer: &mut [u8]) -> std::io::Result<Fate> {
        for _ in 0..READS {
            if !self.flush(service, words)? || self.session.is_done() {
                return Ok(if self.session.is_done() { Fate::Leaves } else { Fate::Stays });
            }
            match self.stream.read(buffer) {
                Ok(0) => return Ok(Fate::Leaves),
                Ok(count) => {
                    self.active = Instant::now();
                    // A command that is complete ends the one that was not.
                    self.busy = None;
                    self.session.receive(buffer.get(..count).unwrap_or_default(), service, words);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(Fate::Stays),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(if self.flush(service, words)? { Fate::Again } else { Fate::Stays })
    }

    /// Sends what there is. `false` if the client does not take all of it now.
    fn flush(&mut self, service: &Service<'_>, words: &mut Words) -> std::io::Result<bool> {
        // Ends: each round sends something, and commands that wait are bounded by what was read.
        while !self.session.to_send().is_empty() {
            match self.stream.write(self.session.to_send()) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => {
                    self.active = Instant::now();
                    self.session.sent(count, service, words);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }
}
