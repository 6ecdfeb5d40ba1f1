//! Settings that cannot work are refused with a way out, and no password is shown.

use super::node::{Node, limiter, policy};
use super::server::on_each;
use std::sync::Arc;
use std::time::Duration;
use tollgate::Limiter;
use tollgate::cluster::Cluster;
use tollgate_redis::{Engine, EngineBuilder, EngineError, Keyring, State, Tls};

const PASSWORD: &str = "hunter2";

fn one() -> EngineBuilder {
    EngineBuilder::new("redis://127.0.0.1").unwrap()
}

fn refused<T>(result: Result<T, EngineError>) -> String {
    let error = result.err().unwrap();
    let (shown, debugged) = (error.to_string(), format!("{error:?}"));
    assert!(!shown.contains(PASSWORD) && !debugged.contains(PASSWORD), "{shown} {debugged}");
    shown
}

#[test]
fn a_limiter_or_a_time_that_cannot_work_is_refused() {
    let private = Arc::new(Limiter::builder(policy()).agents(10).build().unwrap());
    let attached: Result<Engine, _> = one().attach(private);
    assert!(refused(attached).contains("build it with cluster(..)"));
    for (timeout, why) in [(1, "takes a busy server for a lost one"), (2_000, "notices a lost server too late")] {
        let error = refused(one().timeout(Duration::from_millis(timeout)).attach(limiter()));
        assert!(error.contains(why) && error.ends_with("allowed: 50ms to 1s"), "{error}");
    }
}

#[test]
fn urls_that_cannot_work_are_refused() {
    for url in ["http://u:hunter2@127.0.0.1", "127.0.0.1:6379", "u:hunter2@127.0.0.1", "", "redis://u:hunter2@:1:2"] {
        let error = refused(EngineBuilder::new(url));
        assert!(error.starts_with("the server's URL: ") && error.contains("write redis://host:port"), "{error}");
    }
    assert!(refused(EngineBuilder::new("redis://u:hunter2@127.0.0.1/x")).contains("database"));
    assert!(refused(EngineBuilder::new("redis://u:hunter2@127.0.0.1#insecure")).contains("before its #"));
    let error = refused(EngineBuilder::sentinel(["redis://a", "http://u:hunter2@b"], "main"));
    assert!(error.starts_with("sentinel 2: "), "{error}");
    assert!(refused(EngineBuilder::sentinel(["redis://a:26379/1"], "main")).contains("sentinels have no databases"));
    assert!(refused(EngineBuilder::sentinel::<&str>([], "main")).contains("there is no sentinel"));
    assert!(refused(EngineBuilder::sentinel(["redis://a"], "")).contains("the master has no name"));
}

#[test]
fn logins_that_cannot_work_are_refused() {
    let check = |builder: EngineBuilder| refused(builder.check());
    assert!(check(one().user("app")).contains("a user needs a password"));
    assert!(check(one().password("")).contains("password is empty"));
    assert!(check(one().user("").password(PASSWORD)).contains("user is empty"));
    assert!(check(one().sentinel_password(PASSWORD)).contains("there are none"));
    let twice = EngineBuilder::new("redis://:hunter2@127.0.0.1").unwrap().password(PASSWORD);
    assert!(check(twice).contains("given apart"));
    let sentinel = || EngineBuilder::sentinel(["redis://:hunter2@127.0.0.1"], "main").unwrap();
    sentinel().user("app").password(PASSWORD).check().unwrap();
    assert!(check(sentinel().user("app")).contains("needs a password"));
    assert!(check(sentinel().sentinel_password(PASSWORD)).contains("given apart"));
}

#[test]
fn tls_that_cannot_work_is_refused() {
    assert!(refused(one().tls(Tls::new()).check()).contains("write rediss:// instead"));
    if !cfg!(feature = "tls") {
        assert!(refused(EngineBuilder::new("rediss://127.0.0.1")).contains("the feature `tls`"));
        return;
    }
    let tls = |tls| refused(EngineBuilder::new("rediss://127.0.0.1").unwrap().tls(tls).check());
    assert!(tls(Tls::new().ca("no certificate")).contains("the CA is not PEM"));
    assert!(tls(Tls::new().client("no certificate", PASSWORD)).contains("the certificate is not PEM"));
    let certificate = "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n";
    assert!(tls(Tls::new().client(certificate, PASSWORD)).contains("cannot be read"));
    assert!(tls(Tls::new().ca(certificate)).contains("cannot be read"));
    let mixed = EngineBuilder::sentinel(["rediss://a", "redis://b"], "main");
    assert!(refused(mixed).contains("sentinel 1 and sentinel 2: write rediss:// in both"));
}

#[test]
fn no_password_is_shown() {
    let builder = EngineBuilder::sentinel(["redis://:hunter2@127.0.0.1"], "main").unwrap();
    let builder = builder.user("app").password(PASSWORD).sentinel_user("app");
    let builder = builder.tls(Tls::new().client("certificate", PASSWORD));
    assert!(!format!("{builder:?}").contains(PASSWORD), "{builder:?}");
    let unix = EngineBuilder::new("redis+unix:///nowhere?user=app&pass=hunter2").unwrap();
    assert!(!format!("{unix:?}").contains(PASSWORD), "{unix:?}");
}

/// All machines on a server counted as one cluster: whoever had another secret made the shares of the others smaller.
#[test]
fn machines_with_another_secret_do_not_count() {
    on_each(|server| {
        let node = Node::start(server, 1);
        let cluster = Cluster::new(Keyring::new(b"another secret for tests").unwrap().key());
        let other = Limiter::builder(policy()).agents(10).cluster(cluster.except("ws")).build().unwrap();
        let engine = EngineBuilder::new(&server.url()).unwrap().attach(Arc::new(other)).unwrap();
        let of_other = Node { limiter: Arc::clone(&node.limiter), engine };
        of_other.wait_for(|status| status.state == State::Connected);
        let engine = EngineBuilder::new(&server.url()).unwrap().attach(limiter()).unwrap();
        let twin = Node { limiter: Arc::clone(&node.limiter), engine };
        twin.wait_for(|status| status.state == State::Connected);
        assert_eq!((of_other.status().nodes_seen, twin.status().nodes_seen), (1, 2));
    });
}
