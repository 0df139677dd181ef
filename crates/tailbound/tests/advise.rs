//! `tailbound advise` from outside: text, JSON, files, exit codes, the service.

#[allow(dead_code, reason = "other tests use more of it")]
#[path = "place/support.rs"]
mod support;

use serde_json::Value;
use std::fmt::Write as _;
use support::{CommandOutput, Folder, Service};

const QUESTION: &str = "vms.csv --question '8 KB within 1 ms at 99 %'";

/// Writes a log of four machines: calls of 1 KB, answers of 4 KB, and transfers of 200 KB.
fn log(gap_ns: u64) -> Folder {
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
    let folder = Folder::new();
    folder.write("vms.csv", text);
    folder
}

fn advise(folder: &Folder, line: &str) -> CommandOutput {
    folder.run(&format!("advise {line}"))
}

fn json(folder: &Folder, flags: &str) -> Value {
    advise(folder, &format!("{QUESTION} {flags} --output json")).json()
}

#[test]
fn the_text_has_the_guarantee_its_price_and_its_certainty() {
    let text = advise(&log(0), QUESTION).done();
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
    let folder = log(0);
    let document = json(&folder, "--out out --machines 40");
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
    let out = folder.join("out");
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
    let folder = log(30_000_000_000);
    // The part before the pause and the pause are too little for what comes after them.
    let out = advise(&folder, QUESTION).ended(1).out;
    assert!(
        out.starts_with("warning: no machine sent anything for 30.0 s"),
        "{out}"
    );
    assert!(out.contains("the advice does not hold"), "{out}");
    for (line, code, reason) in [
        (
            "missing.csv --question '8 KB within 1 ms at 99 %'",
            2,
            "missing.csv: ",
        ),
        ("vms.csv --question '8 KB soon'", 64, "`within` is missing"),
        ("vms.csv", 64, "--question"),
        (
            "vms.csv --question '8 KB within 100 ns at 99 %'",
            1,
            "no guarantee for 8KB within 100ns at 99 % has a place",
        ),
        (
            &format!("{QUESTION} --guest a --guest a"),
            64,
            "machine a is named twice",
        ),
        (
            &format!("{QUESTION} --guest a"),
            2,
            "nothing in it is sent by a",
        ),
    ] {
        let error = advise(&folder, line).failed(code);
        assert!(error.contains(reason), "{line}: {error}");
    }
}

#[test]
fn the_service_admits_in_a_dry_run_and_has_the_present_guarantee() {
    let folder = log(0);
    let service = Service::open(folder.path());
    service
        .place("create web --owner acme --vms 2 --bandwidth 100Mbit/s --burst 1MB")
        .done();
    let url = format!("--url {}", service.url);
    let document = json(&folder, &format!("{url} --tenant acme/web"));
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
    let answer = advise(&folder, &format!("{QUESTION} --dry-run {url}"));
    let fits = answer.code == Some(0);
    let said = if fits {
        "dry run: the service would place it"
    } else {
        "would refuse it"
    };
    assert!(answer.out.contains(said), "{answer:?}");
    // Nothing was reserved.
    let list = service.place("list").done();
    assert!(!list.contains("advise"), "{list}");
}
