//! Replies, as bytes.

use std::io::Write as _;

/// The version of the protocol that a client has asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Protocol {
    #[default]
    Two,
    Three,
}

impl Protocol {
    pub(super) const fn number(self) -> i64 {
        match self {
            Self::Two => 2,
            Self::Three => 3,
        }
    }
}

/// What a client has not been sent yet.
#[derive(Debug, Default)]
pub(super) struct Replies {
    pub(super) bytes: Vec<u8>,
    pub(super) protocol: Protocol,
}

impl Replies {
    /// Writing to a `Vec` never fails.
    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        _ = self.bytes.write_fmt(line);
        self.bytes.extend_from_slice(b"\r\n");
    }

    pub(super) fn ok(&mut self) {
        self.simple("OK");
    }

    /// A short text without line breaks.
    pub(super) fn simple(&mut self, text: &str) {
        self.line(format_args!("+{text}"));
    }

    /// An error: a code, and a sentence.
    pub(super) fn error(&mut self, text: &str) {
        // A line break would end it.
        let is_one_line = !text.bytes().any(|byte| byte == b'\r' || byte == b'\n');
        match is_one_line {
            true => self.line(format_args!("-{text}")),
            false => self.line(format_args!("-{}", text.replace(['\r', '\n'], " "))),
        }
    }

    pub(super) fn number(&mut self, number: i64) {
        self.line(format_args!(":{number}"));
    }

    pub(super) fn bulk(&mut self, bytes: &[u8]) {
        self.line(format_args!("${}", bytes.len()));
        self.bytes.extend_from_slice(bytes);
        self.bytes.extend_from_slice(b"\r\n");
    }

    pub(super) fn null(&mut self) {
        match self.protocol {
            Protocol::Two => self.bytes.extend_from_slice(b"$-1\r\n"),
            Protocol::Three => self.bytes.extend_from_slice(b"_\r\n"),
        }
    }

    /// The start of an array of this many.
    pub(super) fn array(&mut self, count: usize) {
        self.line(format_args!("*{count}"));
    }

    /// The start of a map of this many pairs, which are an array in version 2.
    pub(super) fn map(&mut self, pairs: usize) {
        match self.protocol {
            Protocol::Two => self.array(2 * pairs),
            Protocol::Three => self.line(format_args!("%{pairs}")),
        }
    }

    /// An array of numbers: the reply to most commands.
    pub(super) fn numbers(&mut self, numbers: [i64; 5]) {
        self.bytes.extend_from_slice(b"*5\r\n");
        for number in numbers {
            self.bytes.push(b':');
            self.digits(number);
            self.bytes.extend_from_slice(b"\r\n");
        }
    }

    /// Without the machinery of formatting, which would take as long as the check.
    fn digits(&mut self, number: i64) {
        let mut text = [0; 20];
        let (mut rest, mut at) = (number.unsigned_abs(), text.len());
        // Ends: a number of 64 bits has 20 digits at most.
        loop {
            at -= 1;
            text[at] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        if number < 0 {
            self.bytes.push(b'-');
        }
        self.bytes.extend_from_slice(&text[at..]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(protocol: Protocol, write: impl Fn(&mut Replies)) -> String {
        let mut replies = Replies { protocol, ..Replies::default() };
        write(&mut replies);
        String::from_utf8(replies.bytes).unwrap()
    }

    #[test]
    fn replies_are_what_the_protocol_says() {
        let two = |write: fn(&mut Replies)| written(Protocol::Two, write);
        let three = |write: fn(&mut Replies)| written(Protocol::Three, write);
        assert_eq!(two(Replies::ok), "+OK\r\n");
        assert_eq!(two(|replies| replies.error("ERR a\r\nb")), "-ERR a  b\r\n");
        assert_eq!(two(|replies| replies.bulk(b"a\r\nb")), "$4\r\na\r\nb\r\n");
        assert_eq!((two(Replies::null), three(Replies::null)), ("$-1\r\n".into(), "_\r\n".into()));
        let map = |replies: &mut Replies| replies.map(2);
        assert_eq!((two(map), three(map)), ("*4\r\n".into(), "%2\r\n".into()));
        let numbers = [0, -1, 10, i64::MAX, i64::MIN];
        let expected: String = numbers.iter().map(|number| format!(":{number}\r\n")).collect();
        assert_eq!(written(Protocol::Two, |replies| replies.numbers(numbers)), format!("*5\r\n{expected}"));
    }
}
