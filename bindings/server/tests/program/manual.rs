//! Completions and man pages: they have every command, and shells can read them.

use crate::{error, output, tools};
use std::collections::BTreeSet;
use std::process::Command;

fn printed(arguments: &[&str]) -> String {
    let output = output(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The commands that `--help` lists.
fn commands() -> BTreeSet<String> {
    let help = printed(&["-h"]);
    let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let names = listed.filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    // A line that goes on begins with more spaces.
    let names: BTreeSet<_> = names.filter(|name| !name.is_empty()).map(str::to_owned).collect();
    assert!(names.contains("serve") && names.contains("man"), "{help}");
    names
}

#[test]
fn every_command_has_a_man_page() {
    let page = printed(&["man"]);
    assert!(page.contains(".TH tollgate 1 ") && page.contains("POST /v1/check answers 200 or 429"), "{page}");
    let pages = page.lines().filter_map(|line| line.strip_prefix("tollgate\\-")?.strip_suffix("(1)"));
    assert_eq!(pages.map(|name| name.replace('\\', "")).collect::<BTreeSet<_>>(), commands());
    for command in commands() {
        let page = printed(&["man", &command]);
        let title = page.lines().find(|line| line.starts_with(".TH ")).unwrap();
        assert!(title.starts_with(&format!(".TH tollgate-{command} 1 ")), "{title}");
        assert!(title.contains(concat!("\"tollgate ", env!("CARGO_PKG_VERSION"), "\"")), "{title}");
    }
    assert!(printed(&["man", "serve"]).contains("\\-\\-listen"));
    let unknown = error(&output(&["man", "serv"]));
    assert!(unknown.contains("there is no command \"serv\"; the commands are serve, check-config, "), "{unknown}");
}

#[test]
fn shells_complete_commands_and_options() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = printed(&["completions", shell]);
        for command in commands() {
            assert!(script.contains(&command), "{shell}: {command}");
        }
    }
    let unknown = output(&["completions", "cmd"]);
    assert!(!unknown.status.success() && unknown.stdout.is_empty());
    if !tools::has("bash", "bash") {
        return;
    }
    // What bash itself would do at the Tab key.
    for (words, expected) in [
        (&["tollgate", "check"][..], "check-config"),
        (&["tollgate", "serve", "--lis"], "--listen"),
        (&["tollgate", "completions", "po"], "powershell"),
    ] {
        let complete = r#"source <("$0" completions bash); COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
            _tollgate tollgate "${!#}" "${COMP_WORDS[COMP_CWORD - 1]}"; echo "${COMPREPLY[*]}""#;
        let mut bash = Command::new("bash");
        let output = bash.args(["-c", complete, env!("CARGO_BIN_EXE_tollgate")]).args(words).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), expected, "{words:?}: {output:?}");
    }
}
