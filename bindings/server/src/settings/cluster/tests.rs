use super::super::Settings;
use super::*;
use std::path::Path;

const LANES: &str =
    "[lanes]\n\"http/read\" = \"20/s\"\n\"http/login\" = \"5/min\"\n\"ws/conn\" = \"held 3\"\ntotal = \"50/s\"\n";

/// A file with a secret, for as long as a test runs.
struct SecretFile(std::path::PathBuf);

impl SecretFile {
    fn new(name: &str, text: &str) -> Self {
        let path = std::env::temp_dir().join(format!("tollgate-secret-{name}-{}", std::process::id()));
        std::fs::write(&path, text).unwrap();
        Self(path)
    }

    /// A file with these lanes and this table, on one line each.
    fn read(&self, table: &str) -> Result<ClusterSettings, String> {
        let secret = self.0.display();
        read(&format!("{LANES}[cluster]\nsecret = \"file:{secret}\"\n{table}"))
    }
}

impl Drop for SecretFile {
    fn drop(&mut self) {
        _ = std::fs::remove_file(&self.0);
    }
}

fn read(text: &str) -> Result<ClusterSettings, String> {
    let settings = Settings::from_toml(text, Path::new("/etc/tollgate")).map_err(|error| error.to_string())?;
    Ok(settings.cluster.unwrap())
}

fn names(lanes: &[SharedLane]) -> Vec<&str> {
    lanes.iter().map(|lane| lane.name.as_str()).collect()
}

#[test]
fn every_key_is_read() {
    for key in CLUSTER_KEYS {
        let error = read(&format!("[cluster]\n{key} = 1e3")).unwrap_err();
        assert!(
            error.contains(&format!("line 2, column {}: cluster.{key}: this is of type float; give", key.len() + 4))
        );
    }
}

#[test]
fn buckets_are_shared_by_default_and_other_lanes_are_not() {
    let file = SecretFile::new("defaults", "0123456789abcdef\n");
    let settings = file.read("redis = \"redis://10.0.0.5\"").unwrap();
    assert_eq!(settings.store, Store::One("redis://10.0.0.5".to_owned()));
    assert_eq!((settings.secret.bytes(), settings.nodes.get()), (&b"0123456789abcdef"[..], 1));
    assert_eq!(settings.timeout, Duration::from_millis(200));
    assert_eq!(names(&settings.lanes), ["http/read", "http/login"]);
    let read = settings.lane("http/read").unwrap();
    assert_eq!((read.is_exact, read.slack_percent, read.when_lost), (false, 10, WhenLost::Share));
    assert_eq!(read.wait, Duration::from_millis(5));
    let own: Vec<_> = settings.own.iter().map(|lane| (lane.name.as_str(), lane.why.is_some())).collect();
    assert_eq!(own, [("ws/conn", true), ("total", true)]);
    let why = settings.own[0].why.as_deref().unwrap();
    assert!(
        why.starts_with("lane \"ws/conn\" is \"held 3\", and machines share only ") && !why.contains("except"),
        "{why}"
    );
    assert_eq!(format!("{settings:?}").find("0123456789"), None, "the secret is not shown");
    assert!(settings.cluster().is_ok());
}

#[test]
fn values_reach_their_settings() {
    let file = SecretFile::new("values", "0123456789abcdef");
    let secret = file.0.display();
    let settings = file
        .read(&format!(
            "sentinels = [\"rediss://10.0.0.5:26379\"]\nmaster = \"main\"\nuser = \"tollgate\"\npassword = \"file:{secret}\"\n\
             slack = \"25 %\"\nnodes = 3\n\
             timeout = \"1s\"\nwhen_lost = \"closed\"\nwait = \"0ms\"\nlanes = [\"http/r*\"]\n\
             [cluster.lane.\"http/login\"]\nexact = true\nslack = \"5%\"\nwhen_lost = \"alone\"\nwait = \"20ms\"\n"
        ))
        .unwrap();
    let master = "main".to_owned();
    assert_eq!(settings.store, Store::Sentinels { sentinels: vec!["rediss://10.0.0.5:26379".to_owned()], master });
    assert_eq!(settings.user.as_deref(), Some("tollgate"));
    assert_eq!(settings.password, Some(Secret::new("0123456789abcdef")));
    assert_eq!(settings.tls, TlsSettings::default());
    assert_eq!((settings.nodes.get(), settings.timeout), (3, Duration::from_secs(1)));
    let [read, login] = &settings.lanes[..] else { panic!("{:?}", settings.lanes) };
    assert_eq!((read.is_exact, read.slack_percent, read.when_lost), (false, 25, WhenLost::Closed));
    assert_eq!((login.name.as_str(), login.is_exact, login.slack_percent), ("http/login", true, 5));
    assert_eq!((login.when_lost, login.wait), (WhenLost::Alone, Duration::from_millis(20)));
    assert_eq!(settings.own.len(), 2);
    let cluster = file.read("cluster = [\"redis://a\", \"redis://b\"]").unwrap();
    assert_eq!(cluster.store.to_string(), "the cluster redis://a, redis://b");
}

#[test]
fn a_lane_that_is_named_has_to_be_one_that_machines_can_share() {
    let file = SecretFile::new("lanes", "0123456789abcdef");
    let with = |table: &str| file.read(&format!("redis = \"redis://a\"\n{table}"));
    for (table, problem) in [
        (
            "lanes = [\"http/raed\"]",
            "line 9, column 10: cluster: there is no lane \"http/raed\"; the lanes are http/read, ",
        ),
        ("lanes = [\"http/*\", \"wss/*\"]", "line 9, column 20: cluster: no lane is called \"wss/*\"; the lanes are"),
        (
            "lanes = [\"http/*\", \"ws/conn\"]",
            "line 9, column 20: cluster: lane \"ws/conn\" is \"held 3\", and machines share",
        ),
        ("lanes = [\"total\"]", "line 9, column 10: cluster: lane \"total\""),
        ("[cluster.lane.\"ws/conn\"]\nexact = true", "line 9, column 15: cluster: lane \"ws/conn\" is \"held 3\""),
        ("[cluster.lane.\"login\"]\nexact = true", "line 9, column 15: cluster: there is no lane \"login\""),
        ("lanes = [\"ws/*\"]", "cluster: no lane can be shared: lane \"ws/conn\" is \"held 3\""),
        ("lanes = []", "cluster: no lane can be shared: none is named"),
        ("lanes = [\"*/*\"]", "\"*/*\" is not a lane; give its name, with one * at most"),
        ("[cluster.lanes.\"http/login\"]\nexact = true", "stands in [cluster.lane.\"...\"], without the s"),
    ] {
        let error = with(table).unwrap_err();
        assert!(error.contains(problem), "{table}: {error}");
    }
    assert_eq!(names(&with("lanes = [\"*/login\"]").unwrap().lanes), ["http/login"]);
    let own = with("lanes = [\"http/read\"]").unwrap().own;
    assert_eq!((own[0].name.as_str(), &own[0].why), ("http/login", &None));
    // A pattern takes what can be shared, and leaves the rest.
    assert_eq!(names(&with("lanes = [\"*\"]").unwrap().lanes), ["http/read", "http/login"]);
}

#[test]
fn mistakes_are_reported_with_their_location() {
    let file = SecretFile::new("mistakes", "0123456789abcdef");
    for (line, problem) in [
        ("redi = 1", "line 8, column 1: cluster has no key \"redi\"; allowed: redis, sentinels, master,"),
        ("redis = \"10.0.0.5\"", "line 8, column 9: cluster.redis: "),
        (
            "redis = \"redis://tollgate:hunter2@a\"",
            "a password does not belong into a URL; set password = \"env:NAME\"",
        ),
        ("redis = \"redis+unix:///a?pass=hunter2\"", "a password does not belong into a URL"),
        (
            "password = \"hunter2\"",
            "cluster.password: what is secret does not belong into this file; give \"env:NAME\"",
        ),
        ("password = \"env:\"", "it names no variable"),
        ("password = \"env:TOLLGATE_TEST_NOT_SET\"", "the environment has no TOLLGATE_TEST_NOT_SET; set it, or"),
        ("password = \"file:none\"", "cluster.password: cannot read /etc/tollgate/none"),
        ("tls_ca = \"/proc/self/stat\"", "is not PEM"),
        ("slack = \"0%\"", "cluster.slack: \"0%\"; give a share of the capacity from \"1%\" to \"100%\""),
        ("slack = \"101%\"", "give a share"),
        ("slack = \"10\"", "give a share"),
        ("nodes = 0", "cluster.nodes: out of range; give a whole number, 1 to 65535"),
        ("timeout = \"49ms\"", "cluster.timeout: \"49ms\"; give a duration from \"50ms\" to \"1000ms\""),
        ("timeout = \"200\"", "give a duration"),
        ("wait = \"2s\"", "cluster.wait: \"2s\"; give a duration from \"0ms\" to \"1000ms\""),
        ("when_lost = \"shared\"", "\"shared\"; give \"share\", \"closed\", \"open\" or \"alone\""),
        ("slack = \"5%\"", "cluster: no store is named; add redis = \"redis://...\""),
        ("sentinels = [\"redis://a\"]", "add master = \"...\""),
        (
            "redis = \"redis://a\"\ncluster = [\"redis://a\"]",
            "there is one store; keep one of redis, sentinels and cluster",
        ),
        ("redis = \"redis://a\"\nmaster = \"main\"", "master is a name that sentinels know"),
        ("sentinels = []", "give a list of URLs"),
        (
            "cluster = [\"redis://a\", 1]",
            "line 8, column 25: cluster.cluster: this is of type integer; give a list of URLs",
        ),
        (
            "redis = \"redis://a\"\n[cluster.lane.\"http/read\"]\nexakt = true",
            "cluster.lane.\"http/read\" has no key \"exakt\"; allowed: exact, slack",
        ),
        (
            "redis = \"redis://a\"\n[cluster.lane.\"http/read\"]\nslack = \"x\"",
            "line 10, column 9: cluster.lane.\"http/read\".slack: ",
        ),
    ] {
        let error = file.read(line).unwrap_err();
        assert!(error.contains(problem), "{line}: {error}");
        assert!(!error.contains("hunter2"), "what is secret is not shown: {error}");
    }
    let kept = SecretFile::new("pem", "-----BEGIN CERTIFICATE-----\n");
    let pem = kept.0.display();
    for (lines, problem) in [
        (format!("redis = \"redis://a\"\ntls_ca = \"{pem}\""), "cluster: TLS is set, and"),
        (
            format!("redis = \"rediss://a\"\ntls_key = \"{pem}\""),
            "a certificate needs its key; set tls_certificate and",
        ),
        (format!("redis = \"rediss://a\"\ntls_key = \"{pem}\"\ntls_certificate = \"{pem}\""), "cannot be read"),
    ] {
        let error = file.read(&lines).unwrap_err();
        assert!(error.contains(problem), "{error}");
    }
    let without = read(&format!("{LANES}[cluster]\nredis = \"redis://a\"\n")).unwrap_err();
    assert!(without.contains("cluster: add secret = \"env:NAME\"") && without.contains("16 random bytes"), "{without}");
    let short = SecretFile::new("short", "fifteen bytes..").read("redis = \"redis://a\"").unwrap_err();
    assert!(short.contains("cluster.secret: the cluster's secret has 15 bytes"), "{short}");
    assert!(read("cluster = 1").unwrap_err().contains("write [cluster]"));
}
