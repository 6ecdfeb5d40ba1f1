//! The tables, read.

use super::*;

fn read(text: &str) -> Result<Settings, String> {
    Settings::from_toml(text, Path::new("/etc/tollgate")).map_err(|error| error.to_string())
}

#[test]
fn a_file_without_the_table_has_the_defaults() {
    assert_eq!(read("preset = \"hub\""), Ok(Settings::default()));
    assert_eq!(read("[server]"), Ok(Settings::default()));
}

#[test]
fn every_key_is_read() {
    for key in KEYS {
        let error = read(&format!("[server]\n{key} = 1e3")).unwrap_err();
        assert!(error.contains(&format!("server.{key}: this is of type float; give ")), "{error}");
    }
    for key in RESP_KEYS {
        let error = read(&format!("[resp]\n{key} = 1e3")).unwrap_err();
        assert!(error.contains(&format!("resp.{key}: this is of type float; give ")), "{error}");
    }
    for key in SHARED_KEYS {
        let error = read(&format!("[shared]\n{key} = 1e3")).unwrap_err();
        assert!(error.contains(&format!("shared.{key}: this is of type float; give ")), "{error}");
    }
}

#[test]
fn values_reach_their_settings() {
    let settings = read(
        r#"
        [server]
        listen = "0.0.0.0:80"
        hosts = ["Limits.Example.COM"]
        state = "state"
        admin_token = "0123456789abcdef"
        open_checks = true
        agents = 1_000
        prefault = true
        on_full = "deny"
        profile = "hub"
        max_connections = 50
        head_timeout = "2min"
        notice = "5s"
        drain = "0s"

        [shared]
        slab = "/run/tollgate/slab"
        mode = "0660"
        "#,
    );
    let expected = Settings {
        listen: "0.0.0.0:80".parse().unwrap(),
        hosts: vec!["limits.example.com".into()],
        state: Some("/etc/tollgate/state".into()),
        admin_token: Some("0123456789abcdef".into()),
        open_checks: Some(true),
        agents: 1_000,
        prefault: true,
        on_full: OnFull::Deny,
        slab: Some("/run/tollgate/slab".into()),
        slab_mode: 0o660,
        profile: Profile::Hub,
        max_connections: 50,
        head_timeout: Duration::from_secs(120),
        notice: Duration::from_secs(5),
        drain: Duration::ZERO,
        ..Settings::default()
    };
    assert_eq!(settings, Ok(expected.clone()));
    assert_eq!(expected.style(), Style::Legacy);
}

#[test]
fn clients_of_redis_need_an_address() {
    let resp = |text: &str| read(&format!("[resp]\n{text}")).map(|settings| settings.resp);
    let expected = RespSettings { lane: Some("any".into()), ..RespSettings::new("127.0.0.1:6380".parse().unwrap()) };
    assert_eq!(resp("listen = \"6380\"\nlane = \"any\""), Ok(Some(expected)));
    for (text, problem) in [
        ("lane = \"any\"", "resp has no address; add listen = \"127.0.0.1:6380\""),
        ("listen = \"unix:/run/a\"", "resp.listen: give an address and a port"),
        ("listen = \"here\"", "resp.listen: \"here\" is not an address"),
        ("lsten = 1", "resp has no key \"lsten\"; allowed: listen, lane, max_connections, idle_timeout"),
    ] {
        let error = resp(text).unwrap_err();
        assert!(error.contains(problem), "{error}");
    }
    assert_eq!(read("").unwrap().resp, None);
}

#[test]
fn mistakes_are_reported_with_their_location() {
    for (line, problem) in [
        ("listn = 1", "line 2, column 1: server has no key \"listn\"; allowed: listen, listen_mode, tls_certificate,"),
        (
            "listen = \"here\"",
            "line 2, column 10: server.listen: \"here\" is not an address; give an address and a port",
        ),
        ("listen = []", "server.listen: this is of type array; give an address and a port"),
        ("listen = [1]", "or a list of such"),
        ("listen = \"unix:\"", "has no path of a socket; write unix:/run/tollgate.sock"),
        ("listen_mode = \"0755\"", "give a mode in octal"),
        ("tls_certificate = \"a.pem\"", "line 1, column 1: server: a certificate needs its key; set tls_key too"),
        ("tls_key = \"a.pem\"", "a key needs its certificate; set tls_certificate too"),
        ("tls_client_ca = \"a.pem\"", "clients show certificates inside TLS"),
        ("cors_origins = [\"https://a.example/x\"]", "without a path; give a list of origins"),
        ("cors_origins = [\"a.example\"]", "each is a scheme and a host"),
        ("cors_origins = \"*\"", "give a list of origins"),
        ("[server.tokens.\"a b\"]", "a token's name has 1 to 64 letters, digits and -_."),
        ("[server.tokens.a]\nmay = \"read\"", "server.tokens.a has 0 secrets; give 1 to 8"),
        ("[server.tokens.a]\ntoken = \"short\"", "server.tokens.a.token: a token of 5 bytes; give a token of 16"),
        ("[server.tokens.a]\nrole = \"read\"", "server.tokens.a has no key \"role\"; allowed: token, token_file, may"),
        ("[server.tokens.a]\nmay = \"write\"", "\"write\"; give \"check\", \"read\" or \"metrics\""),
        ("[server.tokens.a]\nlanes = [\"*/*\"]", "with one * at most"),
        ("agents = 0", "out of range; give a whole number, 1 to"),
        ("agents = -1", "out of range"),
        ("prefault = 1", "server.prefault: this is of type integer; give true or false"),
        ("profile = \"hubs\"", "there is no profile \"hubs\"; there are standard, hub"),
        ("headers = \"draft\"", "there is no header style"),
        ("admin_token = \"short\"", "server.admin_token: a token of 5 bytes; give a token of 16 to 256"),
        ("admin_token = \"0123456789 abcdef\"", "without white space"),
        ("admin_token_file = \"none\"", "cannot read /etc/tollgate/none"),
        ("hosts = [\"https://a\"]", "a name without scheme and port"),
        ("trusted_proxies = [\"proxy\"]", "server.trusted_proxies: \"proxy\" is not a network; write 10.0.0.0/8"),
        ("trusted_proxies = [\"0.0.0.0/0\"]", "to trust 0.0.0.0/0 lets every client choose its address"),
        ("trusted_proxies = [10]", "each is a text; give a list of networks"),
        ("on_full = \"drop\"", "allowed: \"evict\" and \"deny\""),
        ("webhook = \"ftp://a\"", "write https://host:port/path"),
        ("webhook_secret = \"short\"", "server.webhook_secret: a token of 5 bytes"),
        ("metrics_agents = [\"\"]", "1 to 256 bytes"),
        ("grace = \"0s\"", "from \"1s\" to \"1h\""),
        ("drain = \"2h\"", "from \"0s\" to \"1h\""),
        ("grace = \"10 parsecs\"", "such as \"10s\""),
    ] {
        let error = read(&format!("[server]\n{line}")).unwrap_err();
        assert!(error.contains(problem), "{error}");
    }
    for (line, problem) in [
        ("slabs = \"/run/slab\"", "line 2, column 1: shared has no key \"slabs\"; allowed: slab, mode"),
        ("slab = \"\"", "line 2, column 8: shared.slab: the path is empty"),
        ("mode = 660", "shared.mode: this is of type integer; give a mode in octal and in quotes"),
        ("mode = \"0o660\"", "\"0o660\"; give a mode in octal and in quotes: \"0600\" for one user"),
        ("mode = \"660 \"", "give a mode in octal"),
        ("mode = \"0460\"", "give a mode in octal"),
        ("mode = \"0640\"", "give a mode in octal"),
        ("mode = \"00660\"", "give a mode in octal"),
    ] {
        let error = read(&format!("[shared]\n{line}")).unwrap_err();
        assert!(error.contains(problem), "{error}");
    }
    assert_eq!(read("[shared]\nmode = \"660\"").unwrap().slab_mode, 0o660);
    assert!(read("server = 1").unwrap_err().contains("write [server]"));
    assert!(read("shared = 1").unwrap_err().contains("write [shared]"));
    assert!(read("[server").unwrap_err().contains("line 1"));
}

#[test]
fn a_server_listens_at_several_addresses() {
    let listen = |text: &str| read(&format!("[server]\nlisten = {text}")).map(|settings| settings.listen.to_string());
    assert_eq!(
        listen(r#"[":80", "unix:run/a.sock", "unix:/run/b.sock"]"#),
        Ok("127.0.0.1:80 and unix:/etc/tollgate/run/a.sock and unix:/run/b.sock".to_owned())
    );
    assert!(listen(r#"[":80", "unix:"]"#).unwrap_err().contains("no path of a socket"));
    let open = |text: &str| read(&format!("[server]\nlisten = {text}")).map(|settings| settings.checks_are_open());
    assert_eq!((open(r#"["unix:a", ":1"]"#), open(r#"["unix:a", "0.0.0.0:1"]"#)), (Ok(true), Ok(false)));
}

#[test]
fn tokens_have_names_and_their_secrets_are_not_shown() {
    let text = r#"
        [server.tokens.scrape]
        token = "scrape-token-0123456789"
        may = "metrics"

        [server.tokens.gateway]
        token = ["new-token-0123456789", "old-token-0123456789"]
        lanes = ["http/*"]
    "#;
    let settings = read(text).unwrap();
    let gateway = NamedToken::new("gateway", ["new-token-0123456789", "old-token-0123456789"]).lanes(["http/*"]);
    let scrape = NamedToken::new("scrape", ["scrape-token-0123456789"]).may(May::Metrics);
    assert_eq!(settings.tokens, [gateway, scrape]);
    assert!(!settings.checks_are_open() && !format!("{settings:?}").contains("0123456789"));
    let error = read("[server.tokens.a]\ntoken = [\"0123456789abcdef\", \"short-secret\"]").unwrap_err();
    assert!(error.contains("a token of 12 bytes") && !error.contains("short-secret"), "{error}");
}
