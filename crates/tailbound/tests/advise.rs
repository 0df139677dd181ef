//! `tailbound advise` from outside: text, JSON, files, exit codes, the service.

#[allow(dead_code, reason = "other tests use more of it")]
#[path = "place/support.rs"]
mod support;

use serde_json::Value;
use std::fmt::Write as _;
use std::path::Path;
use support::{CommandOutput, Service, tailbound};

const QUESTION: &str = "8 KB within 1 ms at 99 %";

/// Writes a log of four machines: calls of 1 KB, answers of 4 KB, and transfers of 200 KB.
fn log(directory: &Path, gap_ns: u64) {
    let mut text = String::from("time_ns,guest,destination,bytes\n");
    let mut number = 1_u64;
    let mut draw = |most: u64| {
        number = number
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (number >> 33) % most
    };
    let mut at = 0;
    for row in 0..5_000 {
        at += draw(400_000) + if row == 2_000 { gap_ns } else { 0 };
        let (from, size) = (draw(4), [1_000, 4_000][draw(2) as usize]);
        let size = if draw(200) == 0 { 200_000 } else { size };
        let to = (from + 1 + draw(3)) % 4;
        writeln!(text, "{at},vm{from},vm{to},{size}").expect("it is in memory");
    }
    std::fs::write(directory.join("vms.csv"), text).unwrap();
}

fn advise(directory: &Path, arguments: &[&str]) -> CommandOutput {
    let mut command = tailbound();
    command.arg("advise").args(arguments).current_dir(directory);
    CommandOutput::new(command.output().unwrap())
}

fn json(directory: &Path, arguments: &[&str]) -> Value {
    let all = [
        &["vms.csv", "--question", QUESTION],
        arguments,
        &["--output", "json"],
    ]
    .concat();
    serde_json::from_str(&advise(directory, &all).done()).unwrap()
}

#[test]
fn the_text_has_the_guarantee_its_price_and_its_certainty() {
    let directory = tempfile::tempdir().unwrap();
    log(directory.path(), 0);
    let text = advise(directory.path(), &["vms.csv", "--question", QUESTION]).done();
    assert!(text.starts_with("Request ("), "{text}");
    let (_, first) = text.split_once("): ").expect("the verdict comes first");
    assert!(first.starts_with("--vms 4 --bandwidth "), "{text}");
    for part in [
        "It is for 8KB within 1ms at 99 % for 4 machines, from ",
        "slots, at least 4: ",
        "Its choice is from the first ",
        "S_in",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn the_document_and_the_files_have_the_frontier() {
    let directory = tempfile::tempdir().unwrap();
    log(directory.path(), 0);
    let document = json(directory.path(), &["--out", "out", "--machines", "40"]);
    assert_eq!(document["kind"], "advise");
    assert_eq!(document["machines"], 40);
    let frontier = document["frontier"].as_array().unwrap();
    assert!(frontier.len() > 3, "{document}");
    assert!(frontier.contains(&document["best"]), "{document}");
    for point in frontier {
        let slots = point["price"]["slots"].as_f64().unwrap();
        assert!(slots >= 40.0, "{point}");
        let within = point["delay_ns"].as_u64().unwrap();
        assert!((1..1_000_000).contains(&within), "{point}");
    }
    let out = directory.path().join("out");
    for file in [
        "advise.json",
        "advise.html",
        "advise-frontier.svg",
        "advise-price.svg",
    ] {
        assert!(out.join(file).is_file(), "{file}");
    }
}

#[test]
fn a_gap_is_a_warning_and_a_wrong_recording_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    log(path, 30_000_000_000);
    // The part before the pause and the pause are too little for what comes after them.
    let CommandOutput { code, out, .. } = advise(path, &["vms.csv", "--question", QUESTION]);
    assert_eq!(code, Some(1), "{out}");
    assert!(
        out.starts_with("warning: no machine sent anything for 30.0 s"),
        "{out}"
    );
    assert!(out.contains("the advice does not hold"), "{out}");
    for (arguments, code, reason) in [
        (
            &["missing.csv", "--question", QUESTION][..],
            2,
            "missing.csv: ",
        ),
        (
            &["vms.csv", "--question", "8 KB soon"],
            64,
            "`within` is missing",
        ),
        (&["vms.csv"], 64, "--question"),
        (
            &["vms.csv", "--question", "8 KB within 100 ns at 99 %"],
            1,
            "no guarantee for 8KB within 100ns at 99 % has a place",
        ),
        (
            &[
                "vms.csv",
                "--question",
                QUESTION,
                "--guest",
                "a",
                "--guest",
                "a",
            ],
            64,
            "machine a is named twice",
        ),
        (
            &["vms.csv", "--question", QUESTION, "--guest", "a"],
            2,
            "nothing in it is sent by a",
        ),
    ] {
        let error = advise(path, arguments).failed(code);
        assert!(error.contains(reason), "{arguments:?}: {error}");
    }
}

#[test]
fn the_service_admits_in_a_dry_run_and_has_the_present_guarantee() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    log(path, 0);
    let service = Service::open(path);
    service
        .place(&[
            "create",
            "web",
            "--owner",
            "acme",
            "--vms",
            "2",
            "--bandwidth",
            "100Mbit/s",
            "--burst",
            "1MB",
        ])
        .done();
    let url = ["--url", &service.url];
    let document = json(path, &[&url[..], &["--tenant", "acme/web"]].concat());
    let usage = &document["usage"];
    assert_eq!(usage["tenant"], "acme/web");
    let needed = usage["needed_burst_bytes"].as_u64().unwrap();
    assert!((200_000..1_000_000).contains(&needed), "{usage}");
    assert!(
        usage["needed_bandwidth_bit_s"].as_u64().unwrap() < 100_000_000,
        "{usage}"
    );
    // Four machines, in both directions.
    assert_eq!(usage["levels"].as_array().unwrap().len(), 8);
    assert_eq!(document.get("dry_run"), None);
    let all = [&["vms.csv", "--question", QUESTION, "--dry-run"], &url[..]].concat();
    let answer = advise(path, &all);
    let fits = answer.code == Some(0);
    let said = if fits {
        "dry run: the service would place it"
    } else {
        "would refuse it"
    };
    assert!(answer.out.contains(said), "{answer:?}");
    // Nothing was reserved.
    let list = service.place(&["list"]).done();
    assert!(!list.contains("advise"), "{list}");
}
