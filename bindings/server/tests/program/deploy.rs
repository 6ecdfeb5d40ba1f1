//! The files of `deploy/`: what they say of the program is true.

use crate::{Directory, ServerProcess, tollgate, tools};
use std::process::Command;

const MANIFESTS: &str = include_str!("../../deploy/kubernetes.yaml");
const IMAGE: &str = include_str!("../../deploy/Dockerfile");

/// The number after a key in the manifests.
fn number(key: &str) -> u64 {
    let mut found = MANIFESTS.lines().filter_map(|line| line.trim().strip_prefix(key)?.strip_prefix(": "));
    let number = found.next().unwrap_or_else(|| panic!("there is no {key}"));
    assert_eq!(found.next(), None, "{key} twice");
    number.parse().unwrap()
}

/// The block of lines after a line, without the indentation.
fn block(begin: &str) -> String {
    let mut lines = MANIFESTS.lines().skip_while(|line| line.trim() != begin);
    let first = lines.next().unwrap_or_else(|| panic!("there is no {begin}"));
    let indent = first.len() - first.trim_start().len();
    let is_in = |line: &&str| line.is_empty() || line.len() - line.trim_start().len() > indent;
    lines.take_while(is_in).map(|line| line.trim_start().to_owned() + "\n").collect()
}

/// A time of the policy file, in seconds.
fn seconds(policy: &str, key: &str) -> u64 {
    let value = policy.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(" = \"")?.strip_suffix("s\""));
    value.unwrap_or_else(|| panic!("there is no {key}")).parse().unwrap()
}

#[test]
fn the_manifests_have_a_valid_policy_and_times_that_match() {
    let directory = Directory::new("manifests");
    let policy = block("tollgate.toml: |");
    let file = directory.file("tollgate.toml", &policy);
    let mut check = tollgate(&["check-config", &file]);
    // The manifests take both from the Secret.
    for name in ["TOLLGATE_CLUSTER_SECRET", "TOLLGATE_ADMIN_TOKEN"] {
        assert!(MANIFESTS.contains(&format!("- name: {name}\n")));
        check.env(name, "0123456789abcdef");
    }
    let checked = check.output().unwrap();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
    // A pod that ends is out of the Service before it closes a connection, and has ended before it is killed.
    let readiness = block("readinessProbe:");
    let of_readiness = |key: &str| -> u64 {
        readiness.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(": ")).unwrap().parse().unwrap()
    };
    let (notice, drain, grace) = (seconds(&policy, "notice"), seconds(&policy, "drain"), seconds(&policy, "grace"));
    assert!(of_readiness("periodSeconds") * of_readiness("failureThreshold") < notice);
    assert!(notice + drain + grace < number("terminationGracePeriodSeconds"));
    // One of them may go, so there are two.
    assert!(number("minAvailable") < number("replicas"));
    assert!(policy.contains(&format!("nodes = {}\n", number("replicas"))));
}

/// The paths of the probes, and the command of the image, asked of a server with the same policy.
#[test]
fn the_probes_of_the_manifests_and_of_the_image_find_a_server_healthy() {
    let directory = Directory::new("probes");
    let policy = block("tollgate.toml: |");
    let server_table = policy.split("[server]").nth(1).unwrap().replace("0.0.0.0:8787", "127.0.0.1:0");
    let file = directory.file("tollgate.toml", &format!("preset = \"standard\"\n[server]{server_table}"));
    let mut server = ServerProcess::start(&mut tollgate(&["serve", "--config", &file]));
    let paths: Vec<_> = MANIFESTS.lines().filter_map(|line| line.trim().strip_prefix("path: ")).collect();
    assert_eq!(paths, ["/readyz", "/healthz"]);
    for path in paths {
        let answer = server.send(&format!("GET {path} HTTP/1.1\r\nhost: 10.1.2.3:8787\r\nconnection: close\r\n\r\n"));
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }
    if tools::has("bash", "bash") {
        let command = IMAGE.lines().find_map(|line| line.strip_prefix("HEALTHCHECK ")?.split_once(" CMD ")).unwrap().1;
        let words: Vec<String> = serde_json::from_str(command).unwrap();
        assert_eq!(words.len(), 3, "{command}");
        let is_healthy = |address: &str| {
            let (host, port) = address.rsplit_once(':').unwrap();
            let script = words[2].replace("127.0.0.1/8787", &format!("{host}/{port}"));
            assert_ne!(script, words[2]);
            Command::new(&words[0]).args([&words[1], &script]).output().unwrap().status.success()
        };
        let address = server.address.to_string();
        assert!(is_healthy(&address));
        server.child.kill().unwrap();
        server.child.wait().unwrap();
        assert!(!is_healthy(&address));
    } else {
        server.child.kill().unwrap();
        server.child.wait().unwrap();
    }
}

/// The arguments that start the image start a server, if it has an admin token.
#[test]
fn the_image_starts_with_its_own_arguments() {
    let directory = Directory::new("image");
    let command = IMAGE.lines().find_map(|line| line.strip_prefix("CMD ")).unwrap();
    let words: Vec<String> = serde_json::from_str(command).unwrap();
    let file = directory.path().join("tollgate.toml").to_str().unwrap().to_owned();
    assert!(crate::output(&["init", &file]).status.success());
    let state = directory.path().to_str().unwrap();
    let words = words.iter().map(|word| match word.as_str() {
        "/etc/tollgate/tollgate.toml" => &*file,
        "/var/lib/tollgate" => state,
        "0.0.0.0:8787" => "0.0.0.0:0",
        other => other,
    });
    let words: Vec<_> = words.collect();
    let refused = crate::error(&tollgate(&words).output().unwrap());
    assert!(refused.contains("admin token"), "{refused}");
    let server = ServerProcess::start(tollgate(&words).env("TOLLGATE_ADMIN_TOKEN", "an-admin-token-of-mine"));
    server.stop();
}

#[test]
fn the_package_for_debian_has_a_program_that_runs() {
    if !tools::has("dpkg-deb", "dpkg") || !tools::has("bash", "bash") {
        return;
    }
    let directory = Directory::new("deb");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/deb");
    let package = directory.path().join("tollgate.deb");
    // Compressing a program with its debug information takes a minute.
    let mut pack = Command::new("bash");
    pack.arg(script).arg(env!("CARGO_BIN_EXE_tollgate")).arg(&package).env("TOLLGATE_DEB", "-Znone");
    let packed = pack.output().unwrap();
    assert!(packed.status.success(), "{}", String::from_utf8_lossy(&packed.stderr));
    let ask = |arguments: &[&str]| {
        let output = Command::new("dpkg-deb").args(arguments).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let (package, unpacked) = (package.to_str().unwrap(), directory.path().join("unpacked"));
    let listed = ask(&["--contents", package]);
    for (mode, file) in [
        ("-rwxr-xr-x root/root", "./usr/bin/tollgate"),
        ("-rw-r--r-- root/root", "./usr/lib/systemd/system/tollgate.service"),
        ("-rw-r--r-- root/root", "./etc/tollgate/tollgate.toml"),
        ("-rw-r--r-- root/root", "./usr/share/doc/tollgate/copyright"),
        ("-rw-r--r-- root/root", "./usr/share/bash-completion/completions/tollgate"),
        ("-rw-r--r-- root/root", "./usr/share/zsh/vendor-completions/_tollgate"),
        ("-rw-r--r-- root/root", "./usr/share/fish/vendor_completions.d/tollgate.fish"),
        ("-rw-r--r-- root/root", "./usr/share/man/man1/tollgate.1.gz"),
        ("-rw-r--r-- root/root", "./usr/share/man/man1/tollgate-check-config.1.gz"),
    ] {
        let line = listed.lines().find(|line| line.ends_with(file)).unwrap_or_else(|| panic!("{file}: {listed}"));
        assert!(line.starts_with(mode), "{line}");
    }
    assert_eq!(ask(&["--field", package, "Version"]).trim(), env!("CARGO_PKG_VERSION"));
    assert!(ask(&["--field", package, "Depends"]).contains("libc6 (>= 2."));
    assert!(ask(&["--info", package, "conffiles"]).lines().eq(["/etc/tollgate/tollgate.toml"]));
    ask(&["--extract", package, unpacked.to_str().unwrap()]);
    let unit = std::fs::read_to_string(unpacked.join("usr/lib/systemd/system/tollgate.service")).unwrap();
    assert!(unit.contains("ExecStart=/usr/bin/tollgate serve --config /etc/tollgate/tollgate.toml "), "{unit}");
    let checked = Command::new(unpacked.join("usr/bin/tollgate"))
        .arg("check-config")
        .arg(unpacked.join("etc/tollgate/tollgate.toml"))
        .output();
    assert!(checked.unwrap().status.success());
}
