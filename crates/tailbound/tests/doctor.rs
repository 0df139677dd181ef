//! `tailbound doctor` on the machine at hand.

use serde_json::Value;
use std::collections::BTreeSet;
use std::process::Command;
use tailbound_sys::probe::TABLE;

fn doctor(arguments: &[&str]) -> std::process::Output {
    Command::new(env!("CARGO_BIN_EXE_tailbound"))
        .arg("doctor")
        .args(arguments)
        .env_remove("COLUMNS")
        .output()
        .unwrap()
}

fn interfaces() -> BTreeSet<String> {
    let names = std::fs::read_dir("/sys/class/net").unwrap();
    names
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with("tbprobe"))
        .collect()
}

#[test]
fn every_capability_is_judged_and_nothing_is_left_behind() {
    let output = doctor(&["--output", "json"]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["schema"], 1);
    let findings = report["findings"].as_array().unwrap();
    let names: Vec<_> = findings
        .iter()
        .map(|finding| finding["name"].as_str().unwrap())
        .collect();
    assert_eq!(
        names,
        TABLE.iter().map(|probe| probe.name).collect::<Vec<_>>()
    );
    for (finding, probe) in findings.iter().zip(TABLE) {
        let grade = finding["grade"].as_str().unwrap();
        assert!(["PASS", "WARN", "FAIL"].contains(&grade));
        assert!(grade != "FAIL" || probe.needed, "{finding}");
        assert_eq!(grade == "PASS", finding["mend"].is_null(), "{finding}");
        assert!(
            !finding["detail"]
                .as_str()
                .unwrap()
                .contains("did not end in 10 s"),
            "{finding}"
        );
    }
    let fails = findings
        .iter()
        .filter(|finding| finding["grade"] == "FAIL")
        .count();
    assert_eq!(report["fail"], fails);
    assert_eq!(output.status.code(), Some(i32::from(fails > 0)));
    assert_eq!(interfaces(), BTreeSet::new());
}

#[test]
fn the_help_is_stable() {
    let help = doctor(&["--help"]);
    insta::assert_snapshot!(String::from_utf8(help.stdout).unwrap());
}
