//! Files that are refused, each with its complete message.
//!
//! `errors.txt` holds them: a file, a line `----`, the message, a line `====`.

use std::fmt::Write;
use tollgate::Policy;

const CASES: &str = include_str!("errors.txt");

#[test]
fn every_mistake_has_its_own_message() {
    let mut actual = String::new();
    for case in CASES.split("\n====\n").filter(|case| !case.trim().is_empty()) {
        let (file, _) = case.split_once("\n----\n").unwrap_or_else(|| panic!("no ---- in {case:?}"));
        let error = Policy::from_toml(file).expect_err(file);
        let place = format!("line {}, column {}: ", error.line(), error.column());
        assert!(error.to_string().starts_with(&format!("{place}{}\n", error.message())), "{error}");
        write!(actual, "{file}\n----\n{error}\n====\n").unwrap();
    }
    assert!(actual == CASES, "errors.txt should be:\n{actual}");
    assert!(CASES.matches("\n====\n").count() >= 45);
}

#[test]
fn the_message_in_the_documentation_is_the_real_one() {
    let error = Policy::from_toml("preset = \"hub\"\n\n[lanes]\n\"ws/lihgt\" = \"600/min\"").unwrap_err();
    assert!(include_str!("../../docs/policy-file.md").contains(&format!("```text\n{error}\n```")), "{error}");
}

#[test]
fn a_count_out_of_range_names_the_range() {
    let refused = |file: &str| Policy::from_toml(file).expect_err(file).to_string();
    let lanes: String = (0..63).map(|i| format!("l{i} = '1/s'\n")).collect();
    let error = refused(&format!("[lanes]\n{lanes}"));
    assert!(error.starts_with("line 1, column 2: a policy of 63 lanes; allowed: 1 to 62"), "{error}");
    let plans: String = (0..256).map(|i| format!("[plans.p{i}]\n")).collect();
    let error = refused(&format!("{plans}[lanes]\na = '1/s'"));
    assert!(error.starts_with("line 1, column 2: a policy of 257 plans; allowed: 1 to 256"), "{error}");
    let actions: Vec<_> = (0..4_097).map(|i| format!("'a{i}'")).collect();
    let error = refused(&format!("lanes = {{ 'a/normal' = '1/s' }}\n[actions.a]\nnormal = [{}]", actions.join(",")));
    assert!(error.starts_with("line 2, column 2: a policy of 4097 actions; allowed: up to 4096"), "{error}");
}
