//! Bytes in, bytes out.

use super::*;
use crate::app::App;
use crate::settings::Settings;
use crate::source::Source;
use proptest::prelude::*;
use std::net::Ipv4Addr;
use tollgate::{Clock, LaneId, ManualClock, Policy};

const TOKEN: &str = "0123456789abcdef";

fn app() -> App {
    let policy = Policy::builder().lane("any", "dynamic").build().unwrap();
    let settings = Settings { check_token: Some(TOKEN.to_owned()), agents: 100, ..Settings::default() };
    App::new(settings, Source::Policy(Box::new(policy)), Some(Clock::from(ManualClock::new()))).unwrap()
}

/// What a client that sends these pieces is sent; and whether it is done then.
fn talk(app: &App, is_open: bool, pieces: &[&[u8]]) -> (String, bool) {
    let service = Service { app, lane: LaneId::new(0), is_open };
    let (mut session, mut words) = (Session::new(7, Ipv4Addr::LOCALHOST.into(), is_open), Words::default());
    let mut replies = Vec::new();
    for piece in pieces {
        if !session.wants_more() {
            break;
        }
        session.receive(piece, &service, &mut words);
        // A few bytes at a time, as a slow client takes them.
        while !session.to_send().is_empty() {
            let some = session.to_send().len().min(1_000);
            replies.extend_from_slice(&session.to_send()[..some]);
            session.sent(some, &service, &mut words);
        }
    }
    (String::from_utf8_lossy(&replies).into_owned(), session.is_done())
}

fn line(app: &App, text: &str) -> String {
    talk(app, true, &[text.as_bytes(), b"\r\n"]).0
}

#[test]
fn commands_get_the_replies_that_clients_expect() {
    let app = app();
    assert_eq!(line(&app, "ping"), "+PONG\r\n");
    assert_eq!(line(&app, "PING hello"), "$5\r\nhello\r\n");
    assert_eq!(line(&app, "ECHO hello"), "$5\r\nhello\r\n");
    assert_eq!(line(&app, "SELECT 0"), "+OK\r\n");
    assert!(line(&app, "SELECT 1").starts_with("-ERR there is one database"));
    assert_eq!(line(&app, "CL.THROTTLE user123 15 30 60 1"), "*5\r\n:0\r\n:16\r\n:15\r\n:-1\r\n:2\r\n");
    assert_eq!(line(&app, "cl.throttle user123 15 30 60 99"), "*5\r\n:1\r\n:16\r\n:15\r\n:-1\r\n:2\r\n");
    assert_eq!(line(&app, "DEL user123 nobody"), ":1\r\n");
    assert_eq!(line(&app, "CL.THROTTLE user123 15 30 60 0"), "*5\r\n:0\r\n:16\r\n:16\r\n:-1\r\n:0\r\n");
    assert!(line(&app, "CL.THROTTLE user123").starts_with("-ERR write CL.THROTTLE <key>"));
    assert!(line(&app, "GET user123").starts_with("-ERR unknown command 'get': tollgate limits rates"));
    assert!(line(&app, "INFO").contains("redis_version:7") && line(&app, "INFO").contains("loading:0\r\n"));
    assert_eq!(line(&app, "CLIENT ID"), ":7\r\n");
    assert_eq!(line(&app, "CLIENT SETINFO LIB-NAME x"), "+OK\r\n");
    assert!(line(&app, "CLIENT MAINT_NOTIFICATIONS ON").starts_with("-ERR "));
    assert_eq!(line(&app, "COMMAND"), "*0\r\n");
    assert_eq!(line(&app, "CLUSTER INFO"), "-ERR This instance has cluster support disabled\r\n");
    let (named, _) = talk(&app, true, &[b"CLIENT SETNAME me\r\nCLIENT GETNAME\r\nRESET\r\nCLIENT GETNAME\r\n"]);
    assert_eq!(named, "+OK\r\n$2\r\nme\r\n+RESET\r\n$-1\r\n");
    let (hello, _) = talk(&app, true, &[b"HELLO 3\r\nCLIENT GETNAME\r\n"]);
    assert!(hello.starts_with("%7\r\n$6\r\nserver\r\n$5\r\nredis\r\n") && hello.ends_with("*0\r\n_\r\n"), "{hello}");
    assert!(line(&app, "HELLO").starts_with("*14\r\n") && line(&app, "HELLO 4").starts_with("-NOPROTO"));
    assert!(line(&app, "AUTH secret").starts_with("-ERR AUTH <password> called without"));
    let (quit, is_done) = talk(&app, true, &[b"QUIT\r\nPING\r\n", b"PING\r\n"]);
    assert_eq!((quit.as_str(), is_done), ("+OK\r\n", true));
    let (broken, is_done) = talk(&app, true, &[b"PING\r\n*1\r\n:3\r\nPING\r\n"]);
    assert_eq!((broken.as_str(), is_done), ("+PONG\r\n-ERR Protocol error: expected '$'\r\n", true));
}

#[test]
fn without_the_token_nothing_is_decided() {
    let app = app();
    let talk = |text: String| talk(&app, false, &[text.as_bytes()]).0;
    let throttle = "CL.THROTTLE user 15 30 60\r\n";
    assert_eq!(talk(throttle.to_owned()), "-NOAUTH Authentication required.\r\n");
    assert_eq!(talk("PING\r\n".to_owned()), "-NOAUTH Authentication required.\r\n");
    assert!(talk("HELLO 3\r\n".to_owned()).starts_with("-NOAUTH HELLO must be called"));
    assert!(talk("AUTH wrong\r\nPING\r\n".to_owned()).ends_with("-NOAUTH Authentication required.\r\n"));
    assert!(talk(format!("AUTH {TOKEN}\r\n{throttle}")).starts_with("+OK\r\n*5\r\n:0\r\n"));
    assert!(talk(format!("AUTH default {TOKEN}\r\nPING\r\n")).ends_with("+PONG\r\n"));
    assert!(talk(format!("HELLO 3 AUTH default {TOKEN} SETNAME me\r\nCLIENT GETNAME\r\n")).ends_with("$2\r\nme\r\n"));
    assert!(talk(format!("AUTH {TOKEN}\r\nRESET\r\nPING\r\n")).ends_with("-NOAUTH Authentication required.\r\n"));
    assert_eq!(app.meter().resp().commands().0[0].1, 1, "one was decided");
}

/// A client that reads nothing holds up its own commands, and loses none.
#[test]
fn replies_that_are_not_read_are_bounded() {
    let app = app();
    let service = Service { app: &app, lane: LaneId::new(0), is_open: true };
    let (mut session, mut words) = (Session::new(1, Ipv4Addr::LOCALHOST.into(), true), Words::default());
    let echo = [b"*2\r\n$4\r\nECHO\r\n$60000\r\n".as_slice(), &[b'x'; 60_000], b"\r\n"].concat();
    let sent = 10;
    session.receive(&echo.repeat(sent), &service, &mut words);
    assert!(!session.wants_more() && session.to_send().len() < REPLIES_BYTES_MAX + 61_000);
    let mut replies = 0;
    // Ends: each round sends what there is.
    while !session.to_send().is_empty() {
        replies += session.to_send().len();
        session.sent(session.to_send().len(), &service, &mut words);
    }
    assert_eq!(replies, sent * (60_000 + "$60000\r\n\r\n".len()));
    assert!(session.wants_more() && !session.is_amid());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Wherever the bytes are cut, the replies are the same.
    #[test]
    fn replies_do_not_depend_on_where_bytes_are_cut(
        commands in prop::collection::vec(prop::sample::select(vec![
            "PING", "ECHO x", "CL.THROTTLE a 4 1 10", "CL.THROTTLE a 4 1 10 3", "CL.THROTTLE b 4 x 10", "DEL a",
            "HELLO 3", "GET a", "CLIENT GETNAME", "CLIENT SETNAME y", "", "RESET",
        ]), 1..12),
        is_array: bool,
        broken: bool,
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
    ) {
        let array = |command: &&str| {
            let words: Vec<_> = command.split(' ').filter(|word| !word.is_empty()).collect();
            let words = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len())).collect::<Vec<_>>();
            format!("*{}\r\n{}", words.len(), words.concat())
        };
        let text = |command: &&str| if is_array { array(command) } else { format!("{command}\r\n") };
        let mut bytes: Vec<u8> = commands.iter().map(text).collect::<String>().into_bytes();
        if broken {
            bytes.extend_from_slice(b"*1\r\n!PING\r\n");
        }
        let whole = talk(&app(), true, &[&bytes]);
        let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(bytes.len())).collect();
        cuts.sort_unstable();
        let (mut pieces, mut from) = (Vec::new(), 0);
        for cut in cuts.into_iter().chain([bytes.len()]) {
            pieces.push(&bytes[from..cut]);
            from = cut;
        }
        prop_assert_eq!(talk(&app(), true, &pieces), whole);
    }

    /// No bytes stop the server, or make it keep more than a command.
    #[test]
    fn any_bytes_are_answered_or_wait(pieces in prop::collection::vec(
        prop::collection::vec(prop_oneof![
            any::<u8>(), prop::sample::select(b"*$\r\n0123456789- clthroe.CLTHROE".to_vec()),
        ], 0..300), 1..6),
    ) {
        let pieces: Vec<&[u8]> = pieces.iter().map(Vec::as_slice).collect();
        let _ = talk(&app(), true, &pieces);
    }
}
