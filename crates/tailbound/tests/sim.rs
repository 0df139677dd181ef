//! `tailbound sim` and `tailbound reproduce` from outside.

mod program;

use program::{Folder, run};
use std::fs;
use std::path::Path;
use tailbound_report::Results;

/// The directory of the sources.
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// Two guests for a second; the longest ping may take `at_most`.
fn experiment(at_most: &str) -> String {
    format!(
        r#"
name = "mine"
title = "Two guests on one core"
source = "nowhere"
duration = "1s"

[[scheduler]]
name = "xen"
credit = {{ version = "4.1" }}

[[guest]]
name = "server"
task = {{ kind = "server", arrivals = {{ kind = "poisson", mean = "5ms" }}, service = "20us" }}
load = {{ kind = "endless" }}
series = "rtt"

[[point]]
name = "two"
guests = ["server", "server"]

[[check]]
name = "fast"
of = "rtt.max"
at = ["two"]
at_most = "{at_most}"
source = "nowhere"
"#
    )
}

/// Replaces a text that is there.
fn replaced(whole: &str, from: &str, to: &str) -> String {
    assert!(whole.contains(from), "{from}");
    whole.replace(from, to)
}

#[test]
fn a_run_prints_its_verdict_first_and_sets_the_exit_code() {
    let folder = Folder::new();
    for (at_most, code, verdict) in [("1s", 0, "PASS  mine: "), ("1us", 1, "FAIL  mine: ")] {
        folder.write("mine.toml", experiment(at_most));
        let run = folder
            .run("sim vcpu run mine.toml --out reports")
            .ended(code);
        assert!(run.out.starts_with(verdict), "{}", run.out);
        assert!(
            run.out.ends_with("\nreport  reports/mine.html\n"),
            "{}",
            run.out
        );
        // Progress is for terminals.
        assert_eq!(run.err, "");
    }
    folder.write("mine.toml", experiment("soon"));
    let error = folder.run("sim vcpu run mine.toml").failed(2);
    assert!(error.starts_with("mine.toml:25:11: "), "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");
}

#[test]
fn a_runs_result_depends_on_the_seed_not_on_threads() {
    let folder = Folder::new();
    folder.write("mine.toml", experiment("1s"));
    let run = |seed: u64, threads: u64| {
        let flags = format!("--seed {seed} --threads {threads} --output json");
        folder
            .run(&format!("sim vcpu run mine.toml {flags}"))
            .done()
    };
    let one = run(1, 1);
    assert_eq!(one, run(1, 3));
    assert_ne!(one, run(2, 1));
    let results: Results = serde_json::from_str(&one).unwrap();
    assert_eq!((results.experiment.as_str(), results.seed), ("mine", 1));
}

#[test]
fn experiments_are_listed_and_a_shown_one_can_be_changed_and_run() {
    let folder = Folder::new();
    insta::assert_snapshot!("list", folder.run("sim vcpu list").done());
    for (kind, names) in [
        (
            "pacer",
            "silo-table1 limits spacing conformance isolation elastic",
        ),
        ("placement", "microbenchmark scale policies"),
    ] {
        let list = folder.run(&format!("sim {kind} list")).done();
        let listed = list.lines().filter_map(|line| line.split(' ').next());
        assert_eq!(listed.collect::<Vec<_>>().join(" "), names);
    }
    for (kind, name, from, to) in [
        (
            "vcpu",
            "qos-fig16",
            "\nduration = \"1000s\"\n",
            "\nduration = \"60s\"\n",
        ),
        ("pacer", "conformance", "networks = 4000", "networks = 20"),
        // It is too long to come with the program.
        ("pacer", "drift", "count = 1000000000", "count = 10000"),
    ] {
        let source = match name {
            "drift" => format!("{ROOT}/experiments/pacer/drift.toml"),
            name => name.to_owned(),
        };
        let shown = folder.run(&format!("sim {kind} show {source}")).done();
        folder.write("mine.toml", replaced(&shown, from, to));
        let run = folder.run(&format!("sim {kind} run mine.toml --out reports"));
        assert!(run.done().starts_with(&format!("PASS  {name}: ")));
        assert!(folder.join(&format!("reports/{name}.html")).exists());
    }
    let results = Results::read(&folder.join("reports/conformance.json")).unwrap();
    assert_eq!(results.conditions["networks"], 20);
    for (kind, name) in [("vcpu", "fig16"), ("placement", "nothing")] {
        let error = folder.run(&format!("sim {kind} show {name}")).failed(2);
        let message = format!("there is no experiment \"{name}\"; name a file, or one of");
        assert!(error.contains(&message), "{error}");
    }
}

#[test]
fn the_help_is_stable() {
    let folder = Folder::new();
    for (name, line) in [
        ("help --help", "sim vcpu --help"),
        ("help run", "sim vcpu run --help"),
        ("help reproduce", "reproduce --help"),
    ] {
        insta::assert_snapshot!(name, folder.run(line).done());
    }
}

#[test]
fn the_items_of_the_papers_are_listed_and_those_of_seconds_are_run() {
    let folder = Folder::new();
    for (line, count) in [("reproduce --list", 131), ("reproduce vsnoop --list", 15)] {
        assert_eq!(folder.run(line).done().lines().count(), count);
    }
    // One that runs, one that takes too long, one that other commands hold.
    let out = folder
        .run("reproduce silo-10 bobtail-16 silo-1 --quick --page page.md")
        .done();
    assert!(out.starts_with("PASS       silo-10"), "{out}");
    assert!(out.contains("bursts alone in a: 400000B (wanted "), "{out}");
    assert!(out.contains("not run    bobtail-16"), "{out}");
    assert!(out.contains("-          silo-1 "), "{out}");
    let page = folder.read("page.md");
    let told = "**PASS** (nine machines, the paper's)<br>bursts alone in a";
    assert!(page.contains(told), "{page}");
    // Nothing runs for a page that cannot be written.
    let refused = folder.run("reproduce silo-10 --page none/page.md").ended(2);
    assert_eq!(refused.out, "");
    let message = "--page none/page.md: none is no directory";
    assert!(refused.err.contains(message), "{}", refused.err);
}

#[test]
fn reproduce_reuses_kept_results_and_prices_full_runs() {
    let folder = Folder::new();
    let run = |line: &str| folder.run(&format!("reproduce {line}"));
    let keep = "silo-10 vsnoop-4 --results kept";
    // The second of two experiments alone, and then both.
    let part = run(&format!("{keep} --shard 2/2")).out;
    assert!(part.starts_with("not run    silo-10"), "{part}");
    assert!(part.contains("PASS       vsnoop-4"), "{part}");
    let row = "kept/vcpu/snoop-sequence.row";
    let written = || fs::metadata(folder.join(row)).unwrap().modified().unwrap();
    let before = written();
    let all = run(keep).out;
    assert!(all.starts_with("PASS       silo-10"), "{all}");
    assert_eq!(written(), before);
    folder.write(row, replaced(&folder.read(row), "\"seed\":1", "\"seed\":2"));
    let again = run(keep);
    assert_eq!(again.out, all);
    assert!(again.err.contains("snoop-sequence.row: its checksum"));
    // A page of full sizes has the items that have one, and says what they would take.
    run("vsnoop-4 --full --results kept --page page.md");
    let page = folder.read("page.md");
    let at = |name: &str| page.lines().find(|line| line.contains(name)).unwrap();
    assert!(!page.contains("bursts of nine VMs"), "{page}");
    let far = "**not run** (50 centres of 10 racks of 40 hosts, 60 ms, takes 10800s)";
    assert!(at("table 4: outliers").contains(far), "{page}");
    let price = run("silo-32 --full --price").out;
    assert!(price.starts_with("packets/silo-fig12 "), "{price}");
    assert!(
        price.contains("50 centres of 10 racks of 40 hosts"),
        "{price}"
    );
}

/// The check that every kind of experiments gets, wrong in the same three ways.
const TYPOS: &str = "\n[[check]]\nname = \"typo\"\nkind = \"reduction\"\nof = \"no_such_value\"\n\
                     at = [\"no-such-variant\"]\nfrom = \"nobody\"\nat_least = 40\nsource = \"s\"\n";

#[test]
fn checks_with_unknown_names_are_refused_before_any_run() {
    let folder = Folder::new();
    for (kind, name) in [
        ("sim vcpu", "bobtail-fig9"),
        ("sim vcpu", "schedulers"),
        ("sim net", "random-networks"),
        ("sim pacer", "limits"),
        ("sim placement", "microbenchmark"),
        ("lab", "traps"),
    ] {
        let whole = folder.run(&format!("{kind} show {name}")).done();
        let first = whole.lines().count() + 2;
        folder.write("typo.toml", whole + TYPOS);
        let error = folder.run(&format!("{kind} run typo.toml")).failed(2);
        let places: Vec<_> = error
            .lines()
            .map(|it| it.split(' ').next().unwrap())
            .collect();
        let expected: Vec<_> = [(3, 6), (4, 7), (5, 8), (6, 12)]
            .map(|(line, column)| format!("typo.toml:{}:{column}:", first + line))
            .into();
        assert_eq!(places, expected, "{name}: {error}");
        let messages = [
            "unknown value",
            "unknown variant",
            "unknown variant",
            "write 0.4 for 40 %",
        ];
        for (line, message) in error.lines().zip(messages) {
            assert!(line.contains(message), "{name}: {error}");
        }
        // Nothing ran.
        assert!(!folder.join("out").exists(), "{name}");
    }
}

/// The page's own example, as printed.
#[test]
fn a_recording_is_replayed_as_the_page_shows() {
    let page = fs::read_to_string(format!("{ROOT}/docs/reference/sim-replay.md")).unwrap();
    let (_, example) = page.split_once("```\n$ tailbound ").unwrap();
    let (example, _) = example.split_once("\n```\n").unwrap();
    let (command, wanted) = example.split_once(".toml\n").unwrap();
    let command = command.replace("\\\n", "") + ".toml";
    let replay = |more: &str| run(Path::new(ROOT), &format!("{command} {more}"));
    assert_eq!(replay("").done().trim_end(), wanted.trim_end());
    let json = replay("--output json").json();
    let head = (&json["schema"], &json["kind"]);
    assert_eq!(head, (&1.into(), &"replay".into()));
    assert_eq!(json["guests"][1]["ways"][0]["way"], "fifo");
    // More than the link has.
    let error = replay("--fit 9").failed(2);
    assert!(error.contains("a smaller --fit than 9"), "{error}");
}

#[test]
fn figure_5_runs_by_its_name_and_from_its_file_with_the_same_result() {
    let folder = Folder::new();
    let file = format!("{ROOT}/experiments/net/silo-figure5.toml");
    let run = |name: &str, out: &str| {
        let run = folder.run(&format!("sim net run {name} --out {out}"));
        assert!(run.done().starts_with("PASS  silo-figure5: "));
        Results::read(&folder.join(out).join("silo-figure5.json")).unwrap()
    };
    let results = run("silo-figure5", "one");
    assert_eq!(results, run(&file, "other"));
    // The files are the calculus's own.
    let network = format!("{ROOT}/experiments/networks/silo-figure-5b.toml");
    let calc = folder.run(&format!("calc --output json {network}")).json();
    let bound = calc["ports"][2]["backlog_bytes"].as_f64().unwrap();
    let simulated = results.variant("b").unwrap().values["backlog_simulated"].value;
    assert!(
        simulated > 0.99 * bound && simulated <= bound,
        "{simulated} of {bound}"
    );
}

#[test]
fn a_random_network_is_a_file_for_the_calculus() {
    let folder = Folder::new();
    folder.write("17.toml", folder.run("sim net network 17 --seed 5").done());
    folder.run("calc 17.toml").done();
    assert_eq!(
        folder.run("sim net network 17 --of silo-figure5").failed(2),
        "tailbound: variant silo-figure5: it has no random networks\n"
    );
}

#[test]
fn mistakes_in_networks_are_named_with_their_place() {
    let folder = Folder::new();
    let show = |name: &str| folder.run(&format!("sim net show {name}")).done();
    let (random, figure) = (show("random-networks"), show("silo-figure5"));
    for (whole, right, wrong, message) in [
        (
            &random,
            "load = 100",
            "load = 101",
            "15:8: load 101: choose 1 to 100",
        ),
        (
            &random,
            "\"40Gbit/s\"",
            "\"7Gbit/s\"",
            "14:9: a rate of 7Gbit/s: choose",
        ),
        (
            &random,
            "ports = [2, 6]",
            "ports = [7, 6]",
            "10:9: ports 7: choose 1 to 6",
        ),
        (
            &random,
            "[random]",
            "[admitted]",
            "unknown key `burst_frames`",
        ),
        (
            &figure,
            "name = \"b\"",
            "name = \"a\"",
            "network \"a\" is there twice",
        ),
        (
            &figure,
            "silo-figure-5a",
            "nowhere.toml",
            "nowhere.toml: cannot be read",
        ),
    ] {
        folder.write("mine.toml", replaced(whole, right, wrong));
        let error = folder.run("sim net run mine.toml").failed(2);
        assert!(error.starts_with("mine.toml:"), "{error}");
        assert!(error.contains(message), "{error}");
    }
}

/// The microbenchmark's network and tenants with a pod for 100 requests. A typical decision may
/// examine `at_most` ports.
fn placement(folder: &Folder, at_most: &str) -> String {
    let whole = folder.run("sim placement show microbenchmark").done();
    let tenants = &whole[..whole.find("[[point]]").unwrap()];
    format!(
        r#"{tenants}[[point]]
name = "small"
network = "10G"
pods = 1
mean_vms = 10
requests = 100

[[check]]
name = "ports"
of = "ports.p50"
at = ["small"]
at_most = {at_most}
source = "nowhere"
"#
    )
}

#[test]
fn placements_are_run_with_their_verdict() {
    let folder = Folder::new();
    for (at_most, code, verdict) in [("1000", 0, "PASS  "), ("0", 1, "FAIL  ")] {
        folder.write("mine.toml", placement(&folder, at_most));
        let run = folder
            .run("sim placement run mine.toml --out reports")
            .ended(code);
        assert!(run.out.starts_with(verdict), "{}", run.out);
        let report = "reports/placement-microbenchmark";
        let line = format!("report  {report}.html\n");
        assert!(run.out.contains(&line), "{}", run.out);
        let results = Results::read(&folder.join(&format!("{report}.json"))).unwrap();
        let hosts = results.variant("small").unwrap().values["hosts"].value;
        assert_eq!(hosts as u32, 1_000);
        assert_eq!(run.err, "");
    }
}

#[test]
fn mistakes_in_placements_are_named_with_their_place() {
    let folder = Folder::new();
    let right = placement(&folder, "1000");
    for (from, to, begin, message) in [
        (
            "network = \"10G\"",
            "network = \"1T\"",
            "mine.toml:",
            "`1T`",
        ),
        // More than 4 million slots.
        ("pods = 1\n", "pods = 2000\n", "tailbound: ", "small"),
    ] {
        folder.write("mine.toml", replaced(&right, from, to));
        let error = folder.run("sim placement run mine.toml").failed(2);
        assert_eq!(error.lines().count(), 1, "{error}");
        assert!(
            error.starts_with(begin) && error.contains(message),
            "{error}"
        );
    }
    // Decisions follow one from the other.
    folder
        .run("sim placement run mine.toml --threads 2")
        .failed(64);
}
