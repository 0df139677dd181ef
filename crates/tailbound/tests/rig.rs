//! The scripts around the tests: the ledger of second runs, the session of tests that judge real
//! time, the groups of tests, and golden records.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;
use toml::{Table, Value};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn toml(name: &str) -> Table {
    fs::read_to_string(root().join(name))
        .unwrap()
        .parse()
        .unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8([output.stdout.as_slice(), &output.stderr].concat()).unwrap()
}

/// A report of two tests, the first of which failed and then passed, as cargo-nextest writes it.
const REPORT: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<testsuites name="nextest-run" tests="2" failures="0" errors="0">
  <testsuite name="tailbound-agent::threads" tests="2" failures="0" errors="0">
    <testcase name="shaky" classname="tailbound-agent::threads" time="0.3">
      <flakyFailure message="late" type="test failure with exit code 101">late</flakyFailure>
    </testcase>
    <testcase name="firm" classname="tailbound-agent::threads" time="0.3"/>
  </testsuite>
</testsuites>"#;

/// A ledger and a report in a directory of their own.
struct Ledger(TempDir);

impl Ledger {
    fn new(report: &str) -> Self {
        let ledger = Self(tempfile::tempdir().unwrap());
        fs::copy(root().join("tests/second-runs.toml"), ledger.path()).unwrap();
        // Without the entries of real runs.
        let text = ledger.text();
        let head = text.split("\n[[run]]").next().unwrap().to_owned();
        ledger.write(&head);
        fs::write(ledger.report(), report).unwrap();
        ledger
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("ledger.toml")
    }

    fn report(&self) -> PathBuf {
        self.0.path().join("report.xml")
    }

    fn text(&self) -> String {
        fs::read_to_string(self.path()).unwrap()
    }

    fn write(&self, text: &str) {
        fs::write(self.path(), text).unwrap();
    }

    fn run(&self, command: &mut Command) -> (bool, String) {
        let output = command.arg(self.path()).output().unwrap();
        (output.status.success(), text(&output))
    }

    fn add(&self) -> (bool, String) {
        let mut command = Command::new(root().join("scripts/second-runs"));
        self.run(command.arg("add").arg(self.report()))
    }

    fn check(&self) -> (bool, String) {
        let mut command = Command::new(root().join("scripts/second-runs"));
        self.run(command.arg("check"))
    }
}

#[test]
fn a_second_run_is_entered_and_the_next_one_without_a_cause_fails() {
    let ledger = Ledger::new(REPORT);
    assert_eq!(ledger.check(), (true, String::new()));

    let (is_good, said) = ledger.add();
    assert!(is_good, "{said}");
    assert!(said.contains("Second run: tailbound-agent::threads shaky. Add the cause"));
    assert!(!said.contains("firm"), "{said}");
    let entries: Table = ledger.text().parse().unwrap();
    let [entry] = entries["run"].as_array().unwrap().as_slice() else {
        panic!("{entries}");
    };
    let test = Value::String("tailbound-agent::threads shaky".into());
    assert_eq!(entry["test"], test);
    assert!(entry["date"].is_datetime());
    assert_eq!(ledger.check(), (true, String::new()));

    let (is_good, said) = ledger.add();
    assert!(!is_good && said.contains("FAILED"), "{said}");
    let (is_good, said) = ledger.check();
    let debts = "2 entries of tailbound-agent::threads shaky have no cause";
    assert!(!is_good && said.contains(debts), "{said}");
}

#[test]
fn a_second_run_whose_causes_are_known_passes_and_names_the_fix() {
    let ledger = Ledger::new(REPORT);
    assert!(ledger.add().0);
    let found = ledger
        .text()
        .replace("cause = \"\"", "cause = \"a port was taken\"")
        .replace("fixed_by = \"\"", "fixed_by = \"0123abcd\"");
    ledger.write(&found);
    let (is_good, said) = ledger.add();
    assert!(is_good, "{said}");
    assert!(said.contains("reported as fixed by 0123abcd"), "{said}");
    assert!(ledger.check().0);
}

#[test]
fn a_ledger_or_report_that_cannot_be_read_is_one_error() {
    let ledger = Ledger::new("<testsuites>");
    let (is_good, said) = ledger.add();
    assert!(!is_good && said.contains("report.xml: "), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    for (bad, error) in [
        ("[[run]\n", "ledger.toml: "),
        (
            "[[run]]\ntest = \"a\"\n",
            "entry 1 must have exactly the keys test, date, commit, cause, fixed_by",
        ),
        (
            "[[run]]\ntest = 1\ndate = 2026-01-01\ncommit = \"\"\ncause = \"\"\nfixed_by = \"\"\n",
            "test of entry 1 must be a string",
        ),
    ] {
        ledger.write(bad);
        let (is_good, said) = ledger.check();
        assert!(!is_good && said.contains(error), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        assert_eq!(ledger.text(), bad, "nothing is added");
    }
}

#[test]
fn the_ledger_of_this_repository_has_no_second_entry_without_a_cause() {
    let output = Command::new(root().join("scripts/second-runs"))
        .arg("check")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output));
}

/// `scripts/real-time` with a shell that does this.
fn real_time(does: &str) -> Command {
    let mut command = Command::new(root().join("scripts/real-time"));
    command
        .args(["sh", "-c", does])
        .env_remove("TAILBOUND_LOST");
    command
}

#[test]
fn a_real_time_test_has_its_own_session_and_reports_lost_time() {
    let directory = tempfile::tempdir().unwrap();
    let lost = directory.path().join("lost");
    // Field 6 of the line of a process is its session, field 1 itself.
    let output = real_time("cut -d' ' -f6 /proc/$$/stat; echo $$; exit 3")
        .env("TAILBOUND_LOST", &lost)
        .env("NEXTEST_TEST_NAME", "a_name")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(3));
    let stdout = String::from_utf8(output.stdout).unwrap();
    let [session, process] = stdout.lines().collect::<Vec<_>>()[..] else {
        panic!("{stdout}");
    };
    assert_eq!(session, process);
    let stderr = String::from_utf8(output.stderr).unwrap();
    let is_said = |words| stderr.starts_with("lost: ") && stderr.contains(words);
    assert!(is_said("in sum for a CPU") && is_said("stolen"), "{stderr}");

    let sum = Command::new(root().join("scripts/real-time"))
        .arg("--sum")
        .arg(lost)
        .output()
        .unwrap();
    let sum = text(&sum);
    assert!(sum.starts_with("Real time: 1 runs lost: "), "{sum}");
    assert!(sum.ends_with("in a_name\n"), "{sum}");
}

#[test]
fn signals_pass_to_and_from_a_test_of_real_time() {
    use std::os::unix::process::ExitStatusExt as _;
    let aborted = real_time("kill -ABRT $$").output().unwrap();
    assert_eq!(aborted.status.signal(), Some(6), "{}", text(&aborted));
    // The whole session ends, or reading its output would take a minute.
    let ended = real_time("kill -TERM $PPID; sleep 60").output().unwrap();
    assert_eq!(ended.status.signal(), Some(15), "{}", text(&ended));
}

/// The packages and integration tests that a filter of .config/nextest.toml names whole.
fn named(filter: &str) -> Vec<(String, String)> {
    let lines = filter.lines().filter(|line| !line.trim().is_empty());
    lines
        .filter(|line| !line.contains("& test("))
        .flat_map(|line| {
            let (_, id) = line.split_once("binary_id(/^").expect(line);
            let id = id.strip_suffix("$/)").expect(line);
            let (package, tests) = id.split_once("::").expect(line);
            let tests = tests.trim_matches(['(', ')']).split('|');
            let pairs = tests.map(|test| (package.to_owned(), test.to_owned()));
            pairs.collect::<Vec<_>>()
        })
        .collect()
}

#[test]
fn groups_of_tests_name_tests_that_exist_each_once() {
    let config = toml(".config/nextest.toml");
    let profile = &config["profile"]["default"];
    let overrides = profile["overrides"].as_array().unwrap();
    let filter = |group: &str| {
        let of_group = overrides
            .iter()
            .filter(|it| it.get("test-group").and_then(|it| it.as_str()) == Some(group));
        let filters: Vec<_> = of_group.map(|it| it["filter"].as_str().unwrap()).collect();
        assert!(!filters.is_empty(), "{group}");
        filters.join("\n")
    };
    assert_eq!(
        profile["scripts"][0]["filter"].as_str(),
        Some(filter("real").as_str()),
        "tests that run alone run by scripts/real-time"
    );
    let mut all = [named(&filter("real")), named(&filter("wait"))].concat();
    for (package, test) in &all {
        let folder = package.strip_prefix("tailbound-").unwrap_or("tailbound");
        let tests = root().join("crates").join(folder).join("tests");
        let is_there =
            tests.join(format!("{test}.rs")).exists() || tests.join(test).join("main.rs").exists();
        assert!(is_there, "{package} has no test {test}");
    }
    all.sort();
    let count = all.len();
    all.dedup();
    assert_eq!(all.len(), count, "a test is in two groups");
}

#[test]
fn the_last_recorded_night_names_parts_of_the_night() {
    let script = fs::read_to_string(root().join("scripts/nightly")).unwrap();
    let night = toml("tests/nightly.toml");
    let Some(parts) = night.get("part") else {
        return;
    };
    for part in parts.as_array().unwrap() {
        let name = part["name"].as_str().unwrap();
        let loops = [
            ("bookworm", "$suite"),
            ("trixie", "$suite"),
            ("as root", "as $user"),
            ("as user", "as $user"),
        ];
        let name = loops
            .iter()
            .fold(name.to_owned(), |name, (value, variable)| {
                name.replace(value, variable)
            });
        assert!(script.contains(&format!("run \"{name}\"")), "{name}");
        assert!(matches!(part["verdict"].as_str(), Some("ok" | "FAILED")));
        assert!(
            part["date"].is_datetime() && part["commit"].is_str(),
            "{name}"
        );
    }
}

/// `scripts/golden` over a program with one experiment, whose thirty values are these.
struct Golden(TempDir);

impl Golden {
    fn new() -> Self {
        use std::os::unix::fs::PermissionsExt as _;
        let golden = Self(tempfile::tempdir().unwrap());
        let directory = golden.0.path();
        fs::create_dir(directory.join("scripts")).unwrap();
        let script = directory.join("scripts/golden");
        fs::copy(root().join("scripts/golden"), script).unwrap();
        let program = directory.join("program");
        let does = "#!/bin/sh\ncase \"$2 $3\" in\n'net list') echo one ;;\n\
                    'net run') cat results.json ;;\nesac\n";
        fs::write(&program, does).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        golden
    }

    /// The exit status and the output, after a run that found these values and no other.
    fn run(&self, values: &[u32], options: &[&str]) -> (bool, String) {
        let values = values.iter().enumerate().map(|(at, value)| {
            let value = serde_json::json!({"unit": "ns", "value": value});
            (format!("v{at:02}"), value)
        });
        let values: serde_json::Map<_, _> = values.collect();
        let variant = serde_json::json!({"name": "a", "values": values, "series": {}});
        let check = serde_json::json!({"name": "held", "want": "<= 1", "got": 1, "pass": true});
        let results = serde_json::json!({"seed": 1, "variants": [variant], "checks": [check]});
        fs::write(self.0.path().join("results.json"), results.to_string()).unwrap();
        let output = Command::new(self.0.path().join("scripts/golden"))
            .args(options)
            .arg("./program")
            .current_dir(self.0.path())
            .env_remove("CARGO_TARGET_DIR")
            .output()
            .unwrap();
        (output.status.success(), text(&output))
    }
}

#[test]
fn a_golden_record_keeps_a_hash_and_its_first_lines_and_every_change_fails() {
    let golden = Golden::new();
    let values: Vec<u32> = (0..30).collect();
    let changed = |at: usize| {
        let mut values = values.clone();
        values[at] = 77;
        values
    };
    assert!(golden.run(&values, &["--write"]).0);
    let record = golden.0.path().join("golden/sim/net/one.txt");
    let record = fs::read_to_string(record).unwrap();
    assert_eq!(record.lines().count(), 1 + 20 + 1, "{record}");
    let (is_good, said) = golden.run(&values, &[]);
    assert!(is_good && said.contains("1 of 1 records"), "{said}");

    // With the full record from before the change, each difference has a name.
    let named = "variant a | value v25: value was 25, is 77";
    let (is_good, said) = golden.run(&changed(25), &[]);
    assert!(!is_good && said.contains(named), "{said}");

    fs::remove_dir_all(golden.0.path().join("target")).unwrap();
    let (is_good, said) = golden.run(&changed(5), &[]);
    let early = "variant a | value v05: value was 5, is 77";
    assert!(!is_good && said.contains(early), "{said}");
    let (is_good, said) = golden.run(&changed(25), &[]);
    let late = "a line after the first 20 differs";
    assert!(!is_good && said.contains(late), "{said}");
    let full = golden.0.path().join("target/golden/sim/net/one.new.txt");
    assert!(fs::read_to_string(full).unwrap().contains("value=77"));

    let (is_good, said) = golden.run(&values[..29], &[]);
    let fewer = "the record had 33 lines, and has 32";
    assert!(!is_good && said.contains(fewer), "{said}");
}
