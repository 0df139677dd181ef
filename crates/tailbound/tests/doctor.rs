//! `tailbound doctor` on the machine at hand.

use serde_json::Value;
use std::collections::BTreeSet;
use std::process::Command;
use tailbound_sys::probe::TABLE;
use tailbound_sys::probe::required::{Part, skipped};

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
    assert_eq!(report["schema"], 2);
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
        assert!(grade != "FAIL" || !probe.needed_by.is_empty(), "{finding}");
        assert_eq!(grade == "PASS", finding["mend"].is_null(), "{finding}");
        assert!(
            !finding["detail"]
                .as_str()
                .unwrap()
                .contains("did not end in 10 s"),
            "{finding}"
        );
    }
    let purposes = report["purposes"].as_array().unwrap();
    let mut common = purposes
        .iter()
        .filter(|it| it["purpose"] == "demo" || it["purpose"] == "host");
    let is_ready = common.all(|it| it["ready"] == true);
    assert_eq!(report["ready"], is_ready);
    assert_eq!(output.status.code(), Some(i32::from(!is_ready)));
    assert_eq!(interfaces(), BTreeSet::new());
}

#[test]
fn the_help_is_stable() {
    let help = doctor(&["--help"]);
    insta::assert_snapshot!(String::from_utf8(help.stdout).unwrap());
}

/// Runs the query of a bridge of three ports in its own network namespace; `None` if none can be
/// created. `setting` configures the port of the query.
fn ask_bridge(setting: &str, arguments: &str) -> Option<(i32, Value)> {
    let program = env!("CARGO_BIN_EXE_tailbound");
    let script = format!(
        "set -e
        ip link add up0 type veth peer name far0
        ip link add h1 type veth peer name p1
        ip link add br0 type bridge
        for device in up0 far0 h1 p1 br0; do
            echo 1 >/proc/sys/net/ipv6/conf/$device/disable_ipv6
            ip link set $device up
        done
        ip link set far0 master br0
        ip link set p1 master br0
        {setting}
        set +e
        {program} doctor --switch up0 {arguments} --output json"
    );
    let mut unshare = vec!["--net"];
    if !rustix::process::geteuid().is_root() {
        unshare.extend(["--user", "--map-root-user"]);
    }
    let run = |arguments: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(&unshare).args(arguments).output().ok()
    };
    if !run(&["ip", "link"]).is_some_and(|output| output.status.success()) {
        skipped(Part::NetworkNamespaces, "unshare or ip fails");
        return None;
    }
    let output = run(&["sh", "-c", &script]).unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let answer = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{said}"));
    Some((output.status.code().unwrap(), answer))
}

#[test]
fn a_bridge_drops_voids_and_its_witness_shows_that_it_would_see_them() {
    if let Some((code, answer)) = ask_bridge("", "--witness h1") {
        assert_eq!(
            (code, &answer["verdict"]),
            (0, &"dropped".into()),
            "{answer}"
        );
        assert_eq!(answer["controls"]["at_witness"], 100);
        assert_eq!(answer["voids"]["at_witness"], 0);
    }
    if let Some((code, answer)) = ask_bridge("", "") {
        assert_eq!(
            (code, &answer["verdict"]),
            (0, &"not-back".into()),
            "{answer}"
        );
    }
}

#[test]
fn a_switch_that_does_not_learn_is_caught_flooding_voids_or_sending_them_back() {
    let forgets = "ip link set far0 type bridge_slave learning off";
    if let Some((code, answer)) = ask_bridge(forgets, "--witness h1") {
        assert_eq!(
            (code, &answer["verdict"]),
            (1, &"flooded".into()),
            "{answer}"
        );
    }
    let mirrors = "ip link set far0 type bridge_slave learning off hairpin on";
    if let Some((code, answer)) = ask_bridge(mirrors, "") {
        assert_eq!(
            (code, &answer["verdict"]),
            (1, &"come-back".into()),
            "{answer}"
        );
    }
}

#[test]
fn a_witness_that_is_on_no_port_of_the_switch_proves_nothing() {
    let apart = "ip link set p1 nomaster";
    if let Some((code, answer)) = ask_bridge(apart, "--witness h1") {
        assert_eq!((code, &answer["verdict"]), (2, &"blind".into()), "{answer}");
    }
}

/// Doctor does not report a feature as working for an ordinary user if the agent refuses it.
#[test]
fn an_ordinary_user_is_told_what_the_agent_will_refuse() {
    let is_root = rustix::process::geteuid().is_root();
    let ordinary = |arguments: &[&str]| {
        let program = env!("CARGO_BIN_EXE_tailbound");
        let nobody = "setpriv --reuid=65534 --regid=65534 --clear-groups --inh-caps=-all";
        let mut words: Vec<_> = nobody.split(' ').filter(|_| is_root).collect();
        words.push(program);
        words.extend(arguments);
        Command::new(words[0]).args(&words[1..]).output().unwrap()
    };
    let output = ordinary(&["doctor", "vcpu", "--output", "json"]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let findings = report["findings"].as_array().unwrap();
    for name in ["custom-slice", "sched-deadline"] {
        let finding = findings.iter().find(|it| it["name"] == name).unwrap();
        assert_eq!(finding["grade"], "WARN", "{finding}");
    }
    // A guest of somebody else's is there where the test is root's.
    if is_root {
        let mut guest = Command::new("sleep").arg("600").spawn().unwrap();
        let pid = guest.id().to_string();
        for level in ["high", "top"] {
            let refused = ordinary(&["vcpu", "apply", "--pid", &pid, "--level", level]);
            let said = String::from_utf8_lossy(&refused.stderr).into_owned();
            assert!(!refused.status.success(), "{level}: {said}");
        }
        guest.kill().unwrap();
        guest.wait().unwrap();
    }
}
