//! What the program prints is true: every command in it is run as printed.

use crate::{Directory, ServerProcess, error, output, tollgate, tools};
use std::process::Command;

const ADMIN: &str = "an-admin-token-of-mine";
const CHECK: &str = "a-check-token-of-mine";

/// What a shell prints for a command, in a directory, with both tokens in its environment.
fn shell(command: &str, directory: &Directory) -> String {
    let mut shell = Command::new("sh");
    shell.args(["-c", command]).current_dir(directory.path());
    shell.env("TOLLGATE_ADMIN_TOKEN", ADMIN).env("TOLLGATE_CHECK_TOKEN", CHECK).env_remove("CARGO_MANIFEST_DIR");
    let output = shell.output().unwrap();
    String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap()
}

/// The status line that `curl -i` prints.
fn status(answer: &str) -> &str {
    answer.lines().find_map(|line| line.strip_prefix("HTTP/1.1 ")).unwrap_or_else(|| panic!("{answer}"))
}

/// Runs the command after "Try it", as often as it says.
fn try_it(server: &ServerProcess, directory: &Directory) {
    let greeting = &server.greeting;
    let line =
        greeting.lines().find_map(|line| line.strip_prefix("Try it:     ")).unwrap_or_else(|| panic!("{greeting}"));
    let times = greeting.split("Call it ").nth(1).unwrap().split([' ', ':']).next().unwrap();
    let times = if times == "once" { 1 } else { times.parse().unwrap() };
    for call in 1..=times {
        let answer = shell(line, directory);
        let expected = if call < times { "200 OK" } else { "429 Too Many Requests" };
        assert_eq!(status(&answer), expected, "call {call} of {line}\n{answer}");
    }
}

#[test]
fn the_command_to_try_works_for_every_policy() {
    if !tools::has("curl", "curl") {
        return;
    }
    let directory = Directory::new("try-it");
    let open = "[server]\nopen_checks = true\n";
    for (name, listen, tokens, text) in [
        ("held first", "0", false, "[lanes]\nws = \"held 2\"\napi = \"5/min\"\n"),
        ("held alone", "0", false, "[lanes]\n\"ws's\" = \"held 2\"\n"),
        ("large", "0", false, "[lanes]\napi = \"5000/min\"\n"),
        ("denied", "0", false, "[lanes]\napi = \"deny\"\n"),
        ("budget", "0", false, "[lanes]\nllm = \"budget 1000/month\"\n"),
        ("odd name", "0", false, "[lanes]\n'a\"b' = \"2/min\"\n"),
        ("everywhere", "0.0.0.0:0", true, "preset = \"hub\"\n"),
        ("everywhere and open", "0.0.0.0:0", true, open),
        ("everywhere, in IPv6", "[::]:0", true, "preset = \"adr\"\n"),
        ("with a check token", "localhost:0", true, "preset = \"platform\"\n"),
        ("closed", ":0", false, "preset = \"citizen\"\n[server]\nopen_checks = false\n"),
    ] {
        let text = if text == open { format!("preset = \"standard\"\n{open}") } else { text.to_owned() };
        let file = directory.file("tollgate.toml", &text);
        let mut command = tollgate(&["serve", "--config", &file, "--listen", listen]);
        if tokens {
            command.env("TOLLGATE_ADMIN_TOKEN", ADMIN).env("TOLLGATE_CHECK_TOKEN", CHECK);
        }
        let server = ServerProcess::start(&mut command);
        println!("{name}: {}", server.greeting);
        try_it(&server, &directory);
        server.stop();
    }
}

#[test]
fn every_other_command_in_the_greeting_works() {
    if !tools::has("curl", "curl") {
        return;
    }
    let directory = Directory::new("greeting");
    let server = ServerProcess::start(&mut tollgate(&["--listen", "0"]));
    let commands: Vec<_> = server.greeting.lines().map(|line| line.get(12..).unwrap_or_default()).collect();
    let find = |text: &str| *commands.iter().find(|line| line.contains(text)).unwrap_or_else(|| panic!("{commands:?}"));
    let admin = shell(find("/api/admin/rate-limits"), &directory);
    assert!(admin.contains("\"defaults\""), "{admin}");
    // The rest of a line explains the command.
    let init = find(" init ").split("    ").next().unwrap();
    assert!(shell(init, &directory).contains("Wrote tollgate.toml."));
    let serve = find("serve --config tollgate.toml").to_owned() + " --listen 0 & sleep 1; kill $!; wait";
    let served = shell(&serve, &directory);
    assert!(served.contains("serves the policy of tollgate.toml on http://127.0.0.1:"), "{served}");
    server.stop();
}

#[test]
fn the_next_steps_that_init_prints_work() {
    let directory = Directory::new("init's path");
    let file = directory.path().join("my policy.toml");
    let printed = String::from_utf8(output(&["init", file.to_str().unwrap()]).stdout).unwrap();
    let check = printed.lines().find(|line| line.contains("check-config")).unwrap();
    let checked = shell(check, &directory);
    assert!(checked.contains("http/heavy"), "{check}\n{checked}");
}

#[test]
fn the_advice_in_errors_works() {
    let server = ServerProcess::start(&mut tollgate(&["--listen", "127.0.0.1:0"]));
    let get = |path: &str, token: &str| {
        let head = format!("GET {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n", server.address);
        server.send(&format!("{head}{token}\r\n"))
    };
    let nothing = get("/nowhere", "");
    assert!(nothing.contains("POST /v1/check ") && nothing.contains("GET /v1/agents/{agent} "), "{nothing}");
    assert!(nothing.contains("`tollgate --help`"), "{nothing}");
    assert!(get("/v1/agents/a", "").starts_with("HTTP/1.1 200 "));
    let zero = server.post("/v1/check", r#"{"agent": "a", "lane": "http/heavy", "cost": 0}"#);
    assert!(zero.contains("GET /v1/agents/{agent}") && !zero.contains("status to look"), "{zero}");
    server.stop();
    // With a configured token, none was printed at the start.
    let mut given = tollgate(&["--listen", "127.0.0.1:0"]);
    let server = ServerProcess::start(given.env("TOLLGATE_ADMIN_TOKEN", ADMIN));
    let head = format!("GET /api/admin/rate-limits HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n", server.address);
    let wrong = server.send(&format!("{head}authorization: Bearer wrong-token-of-mine\r\n\r\n"));
    assert!(wrong.starts_with("HTTP/1.1 401 ") && wrong.contains("TOLLGATE_ADMIN_TOKEN"), "{wrong}");
    server.stop();
}

#[test]
fn addresses_are_accepted_as_people_write_them() {
    for listen in ["localhost:0", ":0", "0", "127.0.0.1:0"] {
        let server = ServerProcess::start(&mut tollgate(&["--listen", listen]));
        assert!(server.address.ip().is_loopback(), "{listen}");
        let address = format!("http://{}/", server.address);
        let explained = output(&["explain", "me", "--server", &address]);
        assert!(explained.status.success(), "{explained:?}");
        server.stop();
    }
    let usage = output(&["--listen", "example.com:80"]);
    assert_eq!(usage.status.code(), Some(2));
    let text = String::from_utf8(usage.stderr).unwrap();
    assert!(text.contains("is not an address; give an address and a port, such as 127.0.0.1:8787"), "{text}");
    let directory = Directory::new("listen");
    let file = directory.file("tollgate.toml", "preset = \"hub\"\n[server]\nlisten = \"somewhere\"\n");
    assert!(error(&output(&["serve", "--config", &file])).contains("server.listen: \"somewhere\" is not an address"));
}

/// It used to call these files valid, and then `serve` did not start.
#[test]
fn check_config_reports_what_serve_would() {
    let directory = Directory::new("check-config");
    let a_file = directory.file("a-file", "");
    let defaults = directory.path().join("state");
    std::fs::create_dir(&defaults).unwrap();
    std::fs::write(defaults.join("defaults.json"), r#"{"no-lane": "1/s"}"#).unwrap();
    // Some 390 GB of memory, if all of them arrive.
    let agents = format!("agents = {}", tollgate::bounds::AGENTS_MAX);
    for (server, text) in [
        (format!("state = \"{a_file}\""), "cannot write to the state directory"),
        (format!("state = \"{a_file}/deeper/still\""), "cannot write to the state directory"),
        ("state = \"/proc/tollgate\"".to_owned(), "cannot write to the state directory /proc/tollgate"),
        (format!("audit_directory = \"{a_file}\""), "cannot write to the audit directory"),
        ("state = \"state\"".to_owned(), "no-lane"),
        ("listen = \"0.0.0.0:0\"".to_owned(), "TOLLGATE_ADMIN_TOKEN"),
        (format!("listen = \"192.0.2.7:80\"\nadmin_token = \"{ADMIN}\""), "cannot listen on 192.0.2.7:80"),
        (format!("prefault = true\n{agents}"), "prefault takes"),
        (format!("admin_token = \"{ADMIN}\"\ncheck_token = \"{ADMIN}\""), "make them differ"),
    ] {
        let file = directory.file("tollgate.toml", &format!("preset = \"standard\"\n[server]\n{server}\n"));
        let refused = error(&output(&["check-config", &file]));
        assert!(refused.contains(text) && refused.contains(&file), "{server}: {refused}");
        if !server.contains("prefault") {
            assert_eq!(output(&["serve", "--config", &file]).status.code(), Some(1), "{server}");
        }
    }
    let file = directory.file("tollgate.toml", "preset = \"standard\"\n[server]\nlisten = \"0.0.0.0:0\"\n");
    let given = tollgate(&["check-config", &file]).env("TOLLGATE_ADMIN_TOKEN", ADMIN).output().unwrap();
    assert!(given.status.success(), "{given:?}");
    let file = directory.file("tollgate.toml", "preset = \"standard\"\n[server]\nstate = \"new/one\"\n");
    let checked = output(&["check-config", &file]);
    assert!(checked.status.success(), "{checked:?}");
    assert!(!directory.path().join("new").exists(), "it creates nothing");
    let file = directory.file("tollgate.toml", &format!("preset = \"standard\"\n[server]\n{agents}\n"));
    let large = String::from_utf8(output(&["check-config", &file]).stdout).unwrap();
    assert!(large.contains(&format!("warning: {} agents take up to ", tollgate::bounds::AGENTS_MAX)), "{large}");
}
