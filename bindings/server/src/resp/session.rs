//! One client: bytes in, bytes out. Nothing here waits or reads a socket.

use super::reply::{Protocol, Replies};
use super::service::{Denied, Service};
use super::throttle::Throttle;
use super::words::{Next, Words};
use std::net::IpAddr;

/// While a client has this many bytes of replies to read, its commands wait.
const REPLIES_BYTES_MAX: usize = 256 * 1024;

/// How many bytes a client's name may have.
const NAME_BYTES_MAX: usize = 256;

/// A client's state, and what it has sent and has not been sent yet.
pub(super) struct Session {
    number: i64,
    peer: IpAddr,
    may_check: bool,
    name: Vec<u8>,
    /// What has arrived and is no whole command yet, or waits.
    input: Vec<u8>,
    replies: Replies,
    /// How many bytes of the replies were sent.
    sent: usize,
    /// No command comes after the last one.
    is_over: bool,
    /// Decisions that are not counted yet.
    throttles: u64,
}

impl Session {
    pub(super) fn new(number: i64, peer: IpAddr, may_check: bool) -> Self {
        let (name, input, replies) = (Vec::new(), Vec::new(), Replies::default());
        Self { number, peer, may_check, name, input, replies, sent: 0, is_over: false, throttles: 0 }
    }

    /// Whether more bytes are wanted from the client.
    pub(super) fn wants_more(&self) -> bool {
        !self.is_over && self.to_send().len() < REPLIES_BYTES_MAX
    }

    /// Whether nothing more will be sent.
    pub(super) fn is_done(&self) -> bool {
        self.is_over && self.to_send().is_empty()
    }

    /// Whether a command has begun and is not whole.
    pub(super) fn is_amid(&self) -> bool {
        !self.input.is_empty()
    }

    pub(super) fn to_send(&self) -> &[u8] {
        self.replies.bytes.get(self.sent..).unwrap_or_default()
    }

    /// Notes that this many bytes of it were sent, and goes on with commands that have waited.
    pub(super) fn sent(&mut self, bytes: usize, service: &Service<'_>, words: &mut Words) {
        self.sent += bytes;
        if self.to_send().is_empty() {
            self.replies.bytes.clear();
            // Nobody keeps the room of its largest reply.
            self.replies.bytes.shrink_to(4_096);
            self.sent = 0;
            self.run(service, words);
        }
    }

    /// Takes bytes from the client, and runs the commands in them.
    pub(super) fn receive(&mut self, bytes: &[u8], service: &Service<'_>, words: &mut Words) {
        if self.input.is_empty() && !self.is_over {
            // Mostly all that arrives is whole commands: then nothing is copied.
            let rest = self.run_all(bytes, service, words);
            self.input.extend_from_slice(bytes.get(rest..).unwrap_or_default());
        } else {
            self.input.extend_from_slice(bytes);
            self.run(service, words);
        }
    }

    fn run(&mut self, service: &Service<'_>, words: &mut Words) {
        if self.input.is_empty() {
            return;
        }
        let input = std::mem::take(&mut self.input);
        let done = self.run_all(&input, service, words);
        self.input = input;
        self.input.drain(..done);
        self.input.shrink_to(4_096);
    }

    /// Runs the commands that are whole, and returns how many bytes they had.
    fn run_all(&mut self, bytes: &[u8], service: &Service<'_>, words: &mut Words) -> usize {
        let done = self.run_whole(bytes, service, words);
        service.counts().add_throttles(std::mem::take(&mut self.throttles));
        if self.is_over { bytes.len() } else { done }
    }

    fn run_whole(&mut self, bytes: &[u8], service: &Service<'_>, words: &mut Words) -> usize {
        let mut done = 0;
        // Ends: each round takes a command's bytes, or is the last.
        while self.wants_more() {
            let rest = bytes.get(done..).unwrap_or_default();
            match words.read(rest) {
                Next::Command(length) => {
                    self.command(words.of(rest), service);
                    done += length;
                }
                Next::Part(_) => break,
                Next::Broken(problem) => {
                    service.counts().count_error();
                    self.replies.error(&format!("ERR Protocol error: {problem}"));
                    self.is_over = true;
                }
            }
        }
        done
    }

    fn command<'a>(&mut self, mut words: impl ExactSizeIterator<Item = &'a [u8]>, service: &Service<'_>) {
        let Some(name) = words.next() else { return };
        let mut upper = [0; 16];
        let name = upper_case(name, &mut upper);
        if name == b"CL.THROTTLE" && self.may_check {
            return self.throttle(words, service);
        }
        service.counts().count_command();
        match (name, self.may_check) {
            (b"HELLO", _) => self.hello(words, service),
            (b"AUTH", _) => self.authenticate(words, service),
            (b"QUIT", _) => {
                self.replies.ok();
                self.is_over = true;
            }
            (_, false) => self.refuse("NOAUTH Authentication required.", service),
            (b"PING", _) => match words.next() {
                Some(text) => self.replies.bulk(text),
                None => self.replies.simple("PONG"),
            },
            (b"ECHO", _) => match words.next() {
                Some(text) => self.replies.bulk(text),
                None => self.refuse("ERR wrong number of arguments for 'echo' command", service),
            },
            (b"SELECT", _) => match words.next() {
                Some(b"0") => self.replies.ok(),
                _ => self.refuse("ERR there is one database, 0", service),
            },
            (b"DEL" | b"UNLINK", _) => self.delete(words, service),
            (b"INFO", _) => self.replies.bulk(service.info().as_bytes()),
            (b"CLIENT", _) => self.client(words, service),
            (b"COMMAND", _) => self.describe(words),
            (b"CLUSTER", _) => self.refuse("ERR This instance has cluster support disabled", service),
            (b"RESET", _) => {
                (self.may_check, self.replies.protocol) = (service.is_open(), Protocol::Two);
                self.name.clear();
                self.replies.simple("RESET");
            }
            (name, _) => {
                let name = String::from_utf8_lossy(name).to_lowercase();
                let problem = format!(
                    "ERR unknown command '{name}': tollgate limits rates and stores nothing else; it knows \
                     CL.THROTTLE, DEL, PING, ECHO, AUTH, HELLO, SELECT 0, INFO, CLIENT, COMMAND and QUIT"
                );
                self.refuse(&problem, service);
            }
        }
    }

    fn refuse(&mut self, problem: &str, service: &Service<'_>) {
        service.counts().count_error();
        self.replies.error(problem);
    }

    fn throttle<'a>(&mut self, words: impl ExactSizeIterator<Item = &'a [u8]>, service: &Service<'_>) {
        self.throttles += 1;
        let decided = Throttle::read(words).and_then(|throttle| service.decide(&throttle));
        match decided {
            Ok(answer) => self.replies.numbers(answer.reply),
            Err(problem) => self.refuse(&problem, service),
        }
    }

    /// `DEL key...`: each is as if it had never been used. Whoever may throttle decides the limits, so this is no more
    /// than that.
    fn delete<'a>(&mut self, words: impl ExactSizeIterator<Item = &'a [u8]>, service: &Service<'_>) {
        if words.len() == 0 {
            return self.refuse("ERR wrong number of arguments for 'del' command", service);
        }
        let mut deleted = 0;
        for key in words {
            match service.delete(key) {
                Ok(was_used) => deleted += i64::from(was_used),
                Err(problem) => return self.refuse(&problem, service),
            }
        }
        self.replies.number(deleted);
    }

    /// `HELLO [2|3 [AUTH user password] [SETNAME name]]`.
    fn hello<'a>(&mut self, mut words: impl Iterator<Item = &'a [u8]>, service: &Service<'_>) {
        let protocol = match words.next() {
            None => self.replies.protocol,
            Some(b"2") => Protocol::Two,
            Some(b"3") => Protocol::Three,
            Some(_) => return self.refuse("NOPROTO unsupported protocol version", service),
        };
        let (mut may_check, mut name) = (self.may_check, None);
        // Ends with the words.
        while let Some(option) = words.next() {
            match option.to_ascii_uppercase().as_slice() {
                b"AUTH" => match (words.next(), words.next()) {
                    (Some(_), Some(password)) => match service.may_check(password, self.peer) {
                        Ok(()) => may_check = true,
                        Err(denied) => return self.refuse(denied.text(), service),
                    },
                    _ => return self.refuse("ERR Syntax error in HELLO", service),
                },
                b"SETNAME" => name = words.next(),
                _ => return self.refuse("ERR Syntax error in HELLO", service),
            }
        }
        if !may_check {
            let problem = "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO \
                           <proto> AUTH <user> <pass> option can be used to authenticate the client and select the \
                           RESP protocol version at the same time";
            return self.refuse(problem, service);
        }
        (self.may_check, self.replies.protocol) = (true, protocol);
        if let Some(name) = name {
            self.name = name.get(..NAME_BYTES_MAX).unwrap_or(name).to_vec();
        }
        self.replies.map(7);
        let texts = [("server", "redis"), ("version", super::service::REDIS_VERSION)];
        for (key, value) in texts {
            self.replies.bulk(key.as_bytes());
            self.replies.bulk(value.as_bytes());
        }
        for (key, value) in [("proto", protocol.number()), ("id", self.number)] {
            self.replies.bulk(key.as_bytes());
            self.replies.number(value);
        }
        for (key, value) in [("mode", "standalone"), ("role", "master")] {
            self.replies.bulk(key.as_bytes());
            self.replies.bulk(value.as_bytes());
        }
        self.replies.bulk(b"modules");
        self.replies.array(0);
    }

    /// `AUTH password`, or `AUTH user password`: the user is not looked at.
    fn authenticate<'a>(&mut self, words: impl ExactSizeIterator<Item = &'a [u8]>, service: &Service<'_>) {
        let count = words.len();
        let Some(password) = words.last().filter(|_| count <= 2) else {
            return self.refuse("ERR wrong number of arguments for 'auth' command", service);
        };
        match service.may_check(password, self.peer) {
            Ok(()) => {
                self.may_check = true;
                self.replies.ok();
            }
            // Redis says it like this, and clients know it.
            Err(Denied::Open) => self.refuse(Denied::Open.text(), service),
            Err(denied) => self.refuse(denied.text(), service),
        }
    }

    fn client<'a>(&mut self, mut words: impl Iterator<Item = &'a [u8]>, service: &Service<'_>) {
        let what = words.next().unwrap_or_default().to_ascii_uppercase();
        match (what.as_slice(), words.next()) {
            (b"ID", _) => self.replies.number(self.number),
            (b"GETNAME", _) if self.name.is_empty() => self.replies.null(),
            (b"GETNAME", _) => {
                let name = std::mem::take(&mut self.name);
                self.replies.bulk(&name);
                self.name = name;
            }
            (b"SETNAME", Some(name)) if name.len() <= NAME_BYTES_MAX => {
                self.name = name.to_vec();
                self.replies.ok();
            }
            (b"SETINFO" | b"NO-EVICT" | b"NO-TOUCH", Some(_)) => self.replies.ok(),
            _ => {
                self.refuse("ERR this CLIENT command is not known here: ID, GETNAME, SETNAME and SETINFO are", service)
            }
        }
    }

    /// Clients that ask for a list of commands go on without one.
    fn describe<'a>(&mut self, mut words: impl Iterator<Item = &'a [u8]>) {
        match words.next().unwrap_or_default().to_ascii_uppercase().as_slice() {
            b"COUNT" => self.replies.number(0),
            b"DOCS" => self.replies.map(0),
            _ => self.replies.array(0),
        }
    }
}

/// The name in capitals; a longer one stays as it is, since it is no command.
fn upper_case<'a>(name: &'a [u8], upper: &'a mut [u8; 16]) -> &'a [u8] {
    match upper.get_mut(..name.len()) {
        Some(upper) => {
            upper.copy_from_slice(name);
            upper.make_ascii_uppercase();
            upper
        }
        None => name.get(..64).unwrap_or(name),
    }
}

#[cfg(test)]
mod tests;
