//! The words of a command, read from bytes that arrive in pieces.
//!
//! A command is an array of bulk strings, or a line of words, as people type it
//! into telnet. Nothing is kept between two calls: what is not whole yet is read
//! again once it can be. So a command is the same wherever its bytes were cut.

use std::ops::Range;

/// How many words a command may have.
pub(crate) const WORDS_MAX: usize = 1_024;

/// How many bytes a command may have, with all that frames it.
pub(crate) const COMMAND_BYTES_MAX: usize = 64 * 1024;

/// A number and its line ending: more is no length.
const LENGTH_BYTES_MAX: usize = 16;

/// What the bytes begin with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// A command of this many bytes; its words were read.
    Command(usize),
    /// Less than a command: there will be this many bytes at least.
    Part(usize),
    /// No command, and nothing after it can be one.
    Broken(&'static str),
}

/// Where the words of a command are. Kept from one command to the next.
#[derive(Debug, Default)]
pub(crate) struct Words(Vec<Range<usize>>);

impl Words {
    /// The words that were read last, in the bytes that they were read from.
    pub(crate) fn of<'a>(&'a self, bytes: &'a [u8]) -> impl ExactSizeIterator<Item = &'a [u8]> {
        self.0.iter().map(|range| bytes.get(range.clone()).unwrap_or_default())
    }

    /// Reads the command that the bytes begin with.
    pub(crate) fn read(&mut self, bytes: &[u8]) -> Next {
        self.0.clear();
        match bytes.first() {
            None => Next::Part(1),
            Some(b'*') => self.read_array(bytes),
            Some(_) => self.read_line(bytes),
        }
    }

    fn read_array(&mut self, bytes: &[u8]) -> Next {
        let (words, mut at) = match length(bytes, 1) {
            Length::Of(number, at) => (number, at),
            Length::Part => return Next::Part(bytes.len() + 1),
            Length::None => return Next::Broken("invalid multibulk length"),
        };
        if words > WORDS_MAX as i64 {
            return Next::Broken("invalid multibulk length");
        }
        // Ends: at most `WORDS_MAX` rounds. A negative number is no words.
        for _ in 0..words {
            match bytes.get(at) {
                None => return part_of(at + 1),
                Some(b'$') => {}
                Some(_) => return Next::Broken("expected '$'"),
            }
            let start = match length(bytes, at + 1) {
                Length::Of(number, start) => {
                    let size = usize::try_from(number).ok().filter(|size| *size <= COMMAND_BYTES_MAX);
                    let Some(size) = size else { return Next::Broken("invalid bulk length") };
                    start..start + size
                }
                Length::Part => return part_of(bytes.len() + 1),
                Length::None => return Next::Broken("invalid bulk length"),
            };
            at = start.end + 2;
            if at > COMMAND_BYTES_MAX {
                return Next::Broken("too big request");
            }
            match bytes.get(start.end..at) {
                None => return Next::Part(at),
                Some(b"\r\n") => self.0.push(start),
                Some(_) => return Next::Broken("expected the end of a bulk string"),
            }
        }
        Next::Command(at)
    }

    fn read_line(&mut self, bytes: &[u8]) -> Next {
        let within = bytes.get(..COMMAND_BYTES_MAX).unwrap_or(bytes);
        let Some(end) = within.iter().position(|byte| *byte == b'\n') else {
            return if within.len() < COMMAND_BYTES_MAX { part_of(bytes.len() + 1) } else { TOO_BIG_LINE };
        };
        let (mut start, is_space) = (0, |byte: &u8| byte.is_ascii_whitespace());
        for at in 0..=end {
            if !bytes.get(at).is_none_or(is_space) {
                continue;
            }
            if at > start {
                if self.0.len() == WORDS_MAX {
                    return TOO_BIG_LINE;
                }
                self.0.push(start..at);
            }
            start = at + 1;
        }
        Next::Command(end + 1)
    }
}

const TOO_BIG_LINE: Next = Next::Broken("too big inline request");

/// More bytes are needed; too many of them are no command.
fn part_of(bytes: usize) -> Next {
    if bytes > COMMAND_BYTES_MAX { Next::Broken("too big request") } else { Next::Part(bytes) }
}

/// A length in a line of its own.
enum Length {
    /// The number, and where the next line begins.
    Of(i64, usize),
    /// The line is not whole yet.
    Part,
    None,
}

fn length(bytes: &[u8], at: usize) -> Length {
    let rest = bytes.get(at..).unwrap_or_default();
    let line = rest.get(..LENGTH_BYTES_MAX).unwrap_or(rest);
    let Some(end) = line.iter().position(|byte| *byte == b'\r') else {
        return if line.len() < LENGTH_BYTES_MAX { Length::Part } else { Length::None };
    };
    let number = number(line.get(..end).unwrap_or_default());
    match (number, rest.get(end + 1)) {
        (Some(number), Some(b'\n')) => Length::Of(number, at + end + 2),
        (Some(_), None) => Length::Part,
        _ => Length::None,
    }
}

/// A whole number in decimal, as Redis reads it: no plus, no blank, nothing after it.
pub(crate) fn number(text: &[u8]) -> Option<i64> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    if is_number { std::str::from_utf8(text).ok()?.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(bytes: &[u8]) -> (Next, Vec<Vec<u8>>) {
        let mut words = Words::default();
        let next = words.read(bytes);
        let found = words.of(bytes).map(<[u8]>::to_vec).collect();
        (next, found)
    }

    fn array(words: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            bytes.extend(format!("${}\r\n", word.len()).into_bytes());
            bytes.extend_from_slice(word);
            bytes.extend(b"\r\n");
        }
        bytes
    }

    #[test]
    fn a_command_is_an_array_or_a_line() {
        let words = |list: &[&str]| list.iter().map(|word| word.as_bytes().to_vec()).collect::<Vec<_>>();
        assert_eq!(read(b"*2\r\n$4\r\nECHO\r\n$0\r\n\r\nmore"), (Next::Command(20), words(&["ECHO", ""])));
        assert_eq!(
            read(b"CL.THROTTLE  user 15\t30 60\r\nmore"),
            (Next::Command(28), words(&["CL.THROTTLE", "user", "15", "30", "60"]))
        );
        assert_eq!(read(b"\r\nPING\r\n"), (Next::Command(2), words(&[])));
        assert_eq!(read(b"*0\r\n"), (Next::Command(4), words(&[])));
        assert_eq!(read(b"*-1\r\n"), (Next::Command(5), words(&[])));
    }

    #[test]
    fn what_is_no_command_is_named() {
        for (bytes, problem) in [
            (&b"*x\r\n"[..], "invalid multibulk length"),
            (b"*1025\r\n", "invalid multibulk length"),
            (b"*99999999999999999", "invalid multibulk length"),
            (b"*1\r\n:3\r\n", "expected '$'"),
            (b"*1\r\n$-1\r\n", "invalid bulk length"),
            (b"*1\r\n$65537\r\n", "invalid bulk length"),
            (b"*2\r\n$60000\r\n", "too big request"),
            (b"*1\r\n$1\r\nabc", "expected the end of a bulk string"),
        ] {
            let bytes = if problem == "too big request" {
                [bytes, &[b'a'; 60_000], b"\r\n$9000\r\n"].concat()
            } else {
                bytes.to_vec()
            };
            assert_eq!(
                read(&bytes).0,
                Next::Broken(problem),
                "{:?}",
                String::from_utf8_lossy(&bytes[..20.min(bytes.len())])
            );
        }
        assert_eq!(read(&[b'a'; COMMAND_BYTES_MAX]).0, TOO_BIG_LINE);
        assert_eq!(read(&[b"a ".repeat(WORDS_MAX + 1), b"\n".to_vec()].concat()).0, TOO_BIG_LINE);
    }

    proptest! {
        /// A command that is cut anywhere is a part of itself, and asks for no
        /// more bytes than it has.
        #[test]
        fn a_command_is_the_same_wherever_it_is_cut(
            words in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..8),
        ) {
            let bytes = array(&words);
            for end in 0..bytes.len() {
                let (next, _) = read(&bytes[..end]);
                prop_assert!(matches!(next, Next::Part(needed) if needed > end && needed <= bytes.len()), "{next:?} of {end}");
            }
            prop_assert_eq!(read(&bytes), (Next::Command(bytes.len()), words));
        }

        /// Any bytes are a command, a part of one, or none; and what was a
        /// command stays one, whatever follows.
        #[test]
        fn any_bytes_are_read(bytes in prop::collection::vec(
            prop_oneof![any::<u8>(), prop::sample::select(b"*$\r\n0123456789- ".to_vec())], 0..200)
        ) {
            let whole = read(&bytes);
            for end in 0..bytes.len() {
                match read(&bytes[..end]).0 {
                    Next::Command(length) => prop_assert_eq!(Next::Command(length), whole.0),
                    Next::Broken(problem) => prop_assert_eq!(Next::Broken(problem), whole.0),
                    Next::Part(needed) => prop_assert!(needed > end && needed <= COMMAND_BYTES_MAX),
                }
            }
        }
    }
}
