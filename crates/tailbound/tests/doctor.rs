//! `tailbound doctor` on the machine at hand.

mod program;

use program::{CommandOutput, PROGRAM, run_anywhere, words};
use serde_json::Value;
use std::collections::BTreeSet;
use std::process::Command;
use tailbound_sys::probe::TABLE;
use tailbound_sys::probe::required::{Part, skipped};

fn interfaces() -> BTreeSet<String> {
    let names = std::fs::read_dir("/sys/class/net").unwrap();
    names
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with("tbprobe"))
        .collect()
}

#[test]
fn every_capability_is_judged_and_nothing_is_left_behind() {
    let output = run_anywhere("doctor --output json");
    let report = output.json();
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
    assert_eq!(output.code, Some(i32::from(!is_ready)));
    assert_eq!(interfaces(), BTreeSet::new());
}

#[test]
fn the_help_is_stable() {
    insta::assert_snapshot!(run_anywhere("doctor --help").done());
}

/// Runs the query of a bridge of three ports in its own network namespace; `None` if none can be
/// created. `setting` configures the port of the query.
fn ask_bridge(setting: &str, arguments: &str) -> Option<(i32, Value)> {
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
        {PROGRAM} doctor --switch up0 {arguments} --output json"
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
    let output = CommandOutput::new(run(&["sh", "-c", &script]).unwrap());
    Some((output.code.unwrap(), output.json()))
}

#[test]
fn the_verdict_matches_how_the_bridge_treats_voids() {
    for (setting, arguments, code, verdict) in [
        ("", "--witness h1", 0, "dropped"),
        ("", "", 0, "not-back"),
        // Such a bridge does not learn.
        (
            "ip link set far0 type bridge_slave learning off",
            "--witness h1",
            1,
            "flooded",
        ),
        (
            "ip link set far0 type bridge_slave learning off hairpin on",
            "",
            1,
            "come-back",
        ),
        // A witness at no port proves nothing.
        ("ip link set p1 nomaster", "--witness h1", 2, "blind"),
    ] {
        let Some((ended, answer)) = ask_bridge(setting, arguments) else {
            return;
        };
        let seen = (ended, &answer["verdict"]);
        assert_eq!(seen, (code, &verdict.into()), "{answer}");
        if verdict == "dropped" {
            assert_eq!(answer["controls"]["at_witness"], 100);
            assert_eq!(answer["voids"]["at_witness"], 0);
        }
    }
}

/// Doctor does not report a feature as working for an ordinary user if the agent refuses it.
#[test]
fn doctor_warns_an_ordinary_user_of_refused_features() {
    let is_root = rustix::process::geteuid().is_root();
    let ordinary = |line: &str| {
        let nobody = "setpriv --reuid=65534 --regid=65534 --clear-groups --inh-caps=-all";
        let nobody = if is_root { nobody } else { "" };
        let line = format!("{nobody} {PROGRAM} {line}");
        let words = words(&line);
        CommandOutput::new(Command::new(words[0]).args(&words[1..]).output().unwrap())
    };
    let report = ordinary("doctor vcpu --output json").json();
    let findings = report["findings"].as_array().unwrap();
    for name in ["custom-slice", "sched-deadline"] {
        let finding = findings.iter().find(|it| it["name"] == name).unwrap();
        assert_eq!(finding["grade"], "WARN", "{finding}");
    }
    // A guest of somebody else's is there where the test is root's.
    if is_root {
        let mut guest = Command::new("sleep").arg("600").spawn().unwrap();
        let pid = guest.id();
        for level in ["high", "top"] {
            let refused = ordinary(&format!("vcpu apply --pid {pid} --level {level}"));
            assert_ne!(refused.code, Some(0), "{level}: {refused:?}");
        }
        guest.kill().unwrap();
        guest.wait().unwrap();
    }
}
