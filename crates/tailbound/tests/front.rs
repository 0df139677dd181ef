//! The first steps of a new user before any build: `make`, the missing tools, the demo's text, and
//! the first table with its picture.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;
use toml::{Table, Value};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn file(name: &str) -> String {
    fs::read_to_string(root().join(name)).unwrap()
}

fn toml(name: &str) -> Table {
    file(name).parse().unwrap()
}

/// The Rust that this is tested with, and the oldest that will do.
fn rust() -> (String, String) {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    (
        text(&toml("rust-toolchain.toml")["toolchain"]["channel"]),
        text(&toml("Cargo.toml")["workspace"]["package"]["rust-version"]),
    )
}

/// A machine that has what the scripts call, nothing to install from, and the Rust of the test.
struct Machine(TempDir);

impl Machine {
    fn new() -> Self {
        let machine = Self(tempfile::tempdir().unwrap());
        let found = std::env::var_os("PATH").unwrap();
        for name in [
            "awk", "basename", "cat", "cut", "date", "df", "dirname", "du", "echo", "env",
            "expand", "git", "grep", "head", "id", "make", "mkdir", "mktemp", "printf", "rm",
            "sed", "sh", "sort", "tee", "test", "tr", "true", "uname",
        ] {
            let mut paths = std::env::split_paths(&found).map(|it| it.join(name));
            if let Some(path) = paths.find(|it| it.exists()) {
                symlink(path, machine.path(name)).unwrap();
            }
        }
        machine
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// With a program that does this.
    fn with(self, name: &str, does: &str) -> Self {
        let path = self.path(name);
        fs::write(&path, format!("#!/bin/sh\n{does}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        self
    }

    fn with_rust(self, version: &str) -> Self {
        self.with(
            "cargo",
            &format!("echo 'cargo {version} (0123456 2026-01-01)'"),
        )
    }

    fn run(&self, words: &[&str]) -> Output {
        // Not what a `make` around this test was told.
        Command::new(words[0])
            .args(&words[1..])
            .current_dir(root())
            .env_clear()
            .env("PATH", self.0.path())
            .output()
            .unwrap()
    }
}

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn a_missing_or_old_rust_error_has_an_install_command() {
    let (pinned, oldest) = rust();
    let line = format!("--default-toolchain {pinned}\n");
    let need = |machine: Machine| {
        let output = machine.run(&["scripts/need", "compile"]);
        (output.status.code(), err(&output))
    };
    let (code, said) = need(Machine::new().with("cc", ""));
    assert_eq!(code, Some(1), "{said}");
    let missing =
        format!("Rust is missing: {pinned} is what this is tested with, {oldest} the oldest");
    assert!(
        said.starts_with(&missing) && said.ends_with(&line),
        "{said}"
    );
    // Those of Debian 12 and 13 at the time of writing.
    for old in ["1.65.0", "1.85.1"] {
        let (code, said) = need(Machine::new().with("cc", "").with_rust(old));
        assert_eq!(code, Some(1), "{said}");
        let is_told = said.starts_with(&format!("Rust {old} is too old: {oldest} is the oldest"));
        assert!(is_told && said.ends_with(&line), "{said}");
    }
    let lacks_the_pinned = Machine::new().with("cc", "").with("cargo", "exit 1");
    let (code, said) = need(lacks_the_pinned);
    assert_eq!(code, Some(1), "{said}");
    let install = format!("rustup toolchain install {pinned} ");
    assert!(said.contains(&install), "{said}");
    for enough in [format!("{oldest}.0"), pinned] {
        let (code, said) = need(Machine::new().with("cc", "").with_rust(&enough));
        assert_eq!((code, said.as_str()), (Some(0), ""), "{enough}");
    }
}

#[test]
fn pages_name_the_rust_that_will_do() {
    let (pinned, oldest) = rust();
    let mut named = 0;
    for page in [
        "README.md",
        "CONTRIBUTING.md",
        "docs/how-to/install.md",
        "docs/tutorials/quick-start.md",
    ] {
        for rest in file(page).split("Rust 1.").skip(1) {
            let version: String = rest.chars().take_while(char::is_ascii_digit).collect();
            let version = format!("1.{version}");
            assert!(
                version == oldest || pinned.starts_with(&version),
                "{page}: Rust {version}"
            );
            named += 1;
        }
    }
    assert!(named > 0);
}

/// The names of the targets that `make` lists, in columns, and the Makefile's with this mark.
fn listed(words: &[&str], marks: &[&str]) -> (Vec<String>, Vec<String>) {
    let listed = out(&Machine::new().run(words));
    let mut names = Vec::new();
    let mut gaps = BTreeSet::new();
    for line in listed.lines() {
        let rest = line.strip_prefix("  make ").expect(&listed);
        let name = rest.split(' ').next().unwrap();
        let gap = rest.len() - rest[name.len()..].trim_start().len();
        assert!(gap > name.len(), "{line}");
        gaps.insert(gap);
        names.push(name.to_owned());
    }
    assert_eq!(gaps.len(), 1, "{listed}");
    let makefile = file("Makefile");
    let marked = makefile
        .lines()
        .filter(|line| marks.iter().any(|mark| line.contains(mark)))
        .filter_map(|line| line.split_once(':'))
        .map(|(name, _)| name.to_owned())
        .filter(|name| {
            name.chars()
                .all(|it| it.is_ascii_alphanumeric() || it == '-')
        });
    (names, marked.collect())
}

#[test]
fn make_alone_lists_six_targets_and_make_help_all() {
    let (six, marked) = listed(&["make"], &[" ##! "]);
    assert_eq!(six, marked);
    assert_eq!(six.len(), 6, "{six:?}");
    let (all, marked) = listed(&["make", "help"], &[" ## ", " ##! "]);
    assert_eq!(all, marked);
    assert!(all.len() > 30, "{all:?}");
}

#[test]
fn the_readme_is_short() {
    let readme = file("README.md");
    assert!(readme.lines().count() <= 120);
    assert!(readme.matches("](").count() <= 15);
}

#[test]
fn the_demo_first_prints_its_duration_and_needs() {
    let (pinned, _) = rust();
    let lab = ["cc", "ethtool", "ip", "tc", "ping"];
    let machine = lab
        .iter()
        .fold(Machine::new().with_rust(&pinned), |it, name| {
            it.with(name, "")
        });
    let program = machine.path("tailbound").display().to_string();
    let make = |machine: &Machine| {
        let program = format!("TAILBOUND={program}");
        let words = [
            "make",
            "--silent",
            "demo",
            "CARGO=echo cargo",
            &program,
            "OUT=reports",
        ];
        let output = machine.run(&words);
        (out(&output), err(&output))
    };
    let (first, build) = make(&machine);
    assert!(
        build.starts_with("cargo build --profile release"),
        "{build}"
    );
    for words in [
        "build: 205 crates, three minutes on two quiet cores, this once",
        "1 GB of disk",
        "run:   two minutes; it needs no root",
        "leaves nothing but reports/",
        "end:   eight lines, the verdict first",
    ] {
        assert!(first.contains(words), "{words}: {first}");
    }
    // What is built already is not announced.
    let machine = machine.with("tailbound", "echo \"ran $*\"");
    let (again, _) = make(&machine);
    assert!(!again.contains("crates"), "{again}");
    assert!(
        again.ends_with("ran lab run traps --out reports\n"),
        "{again}"
    );
}

#[test]
fn the_demos_duration_and_size_match_its_announcement() {
    let traps = toml("experiments/traps.toml");
    let duration = traps["duration"].as_str().unwrap();
    let seconds: usize = duration.strip_suffix('s').unwrap().parse().unwrap();
    let variants = traps["variant"].as_array().unwrap().len();
    // Each begins with some two seconds that do not count.
    let takes = variants * (seconds + 2);
    assert!((75..=125).contains(&takes), "two minutes: {takes} s");
    for (page, words) in [
        (
            "README.md",
            "three for the first build and two of real traffic",
        ),
        (
            "docs/tutorials/quick-start.md",
            "The run takes two minutes; `make demo` builds for three",
        ),
    ] {
        assert!(file(page).contains(words), "{page}: {words}");
    }
    let tree = Command::new(env!("CARGO"))
        .current_dir(root())
        .args([
            "tree",
            "--locked",
            "--offline",
            "--package",
            "tailbound",
            "--edges",
            "normal,build",
        ])
        .args([
            "--no-default-features",
            "--features",
            "lab",
            "--prefix",
            "none",
            "--format",
            "{p}",
        ])
        .output()
        .unwrap();
    let tree = out(&tree);
    let crates: BTreeSet<_> = tree
        .lines()
        .map(|line| line.split(' ').take(2).collect::<Vec<_>>())
        .collect();
    assert!(
        (195..=215).contains(&crates.len()),
        "205 crates: {}",
        crates.len()
    );
}

#[test]
fn make_runs_programs_from_the_cargo_target_directory() {
    for (target, line) in [
        ("demo", "/elsewhere/release/tailbound lab run"),
        ("place", "/elsewhere/release/tailbound place serve"),
        ("golden", "scripts/golden /elsewhere/release/tailbound"),
        ("install", "scripts/stage /elsewhere/release/tailbound"),
    ] {
        let elsewhere = "CARGO_TARGET_DIR=/elsewhere";
        let output = Machine::new().run(&["make", "--dry-run", elsewhere, target]);
        let said = out(&output);
        assert!(said.contains(line), "{target}: {said}{}", err(&output));
    }
}

#[test]
fn the_makefile_counts_the_experiments_correctly() {
    let script = file("scripts/experiments");
    let (_, rest) = script.split_once("for experiment in ").unwrap();
    let run = rest.split(';').next().unwrap().split_whitespace().count();
    let words = ["ten", "eleven", "twelve", "thirteen", "fourteen"];
    let said = format!("Run {} experiments of the lab", words[run - 10]);
    assert!(file("Makefile").contains(&said), "{said}");
}

/// Seconds of a text such as "8.9 ms".
fn seconds(text: &str) -> f64 {
    let (number, unit) = text.trim().split_once(' ').expect(text);
    let unit = match unit {
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        _ => panic!("{text}"),
    };
    number.parse::<f64>().unwrap() * unit
}

/// The rows of the three traps: 50th, 99th, 99.9th percentile, maximum and mean.
fn traps() -> BTreeMap<&'static str, Vec<f64>> {
    let page = file("docs/explanation/results.md");
    let (_, rest) = page
        .split_once("\n| | 50th | 99th | 99.9th | max | mean |\n")
        .unwrap();
    let rows = rest
        .lines()
        .skip(1)
        .take_while(|line| line.starts_with('|'));
    rows.map(|row| {
        let cells: Vec<_> = row.trim_matches('|').split('|').collect();
        let variant = match cells[0].trim().split([':', ',']).next().unwrap() {
            "alone" => "alone",
            "**unpatched**" => "unpatched",
            "vCPU fix alone" => "vcpu-only",
            "host queue fix alone" => "host-only",
            "switch queue fix alone" => "switch-only",
            "**patched**" => "patched",
            other => panic!("{other}"),
        };
        (variant, cells[1..].iter().map(|it| seconds(it)).collect())
    })
    .collect()
}

/// The table's figures are medians of repeats, and those of the picture are of all samples
/// together. They may differ, but less than those of two runs.
#[test]
fn the_readmes_first_table_matches_the_run_of_its_picture() {
    let traps = traps();
    let labels = toml("experiments/traps.toml");
    let labels = labels["words"].as_table().unwrap();
    let title = labels["small_fct"].as_str().unwrap();
    let picture = file("docs/img/traps.svg");
    let texts: Vec<_> = picture
        .lines()
        .filter(|line| !line.starts_with('<'))
        .collect();
    assert!(texts[0].starts_with(title), "{texts:?}");
    assert!(
        texts.contains(&format!("{title} (ms)").as_str()),
        "{texts:?}"
    );
    let rows = traps
        .iter()
        .map(|(name, row)| (labels[*name].as_str().unwrap(), row));
    let rows: BTreeMap<_, _> = rows.collect();
    let variants: Vec<_> = texts.iter().filter(|it| rows.contains_key(**it)).collect();
    assert_eq!(variants.len(), rows.len(), "{texts:?}");
    // Two labels a variant, in their order: the median and the 99th percentile.
    let figures = texts
        .iter()
        .filter(|it| it.ends_with(" us") || it.ends_with(" ms"));
    let figures: Vec<_> = figures.copied().collect();
    assert_eq!(figures.len(), 2 * variants.len(), "{texts:?}");
    for (variant, labels) in variants.iter().zip(figures.chunks(2)) {
        for (figure, label) in rows[**variant].iter().zip(labels) {
            let ratio = seconds(label) / figure;
            assert!(
                (0.8..1.25).contains(&ratio),
                "{variant}: {figure} s, {label} in the picture"
            );
        }
    }
}

#[test]
fn the_readmes_trap_figures_match_the_results_table() {
    let traps = traps();
    let readme = file("README.md");
    let row = readme
        .lines()
        .find(|line| line.contains("small answers beside bulk"))
        .unwrap();
    let (_, rest) = row.split_once('(').unwrap();
    let (figures, all) = rest.split_once(')').unwrap().0.split_once("; ").unwrap();
    let (before, after) = figures.split_once(" to ").unwrap();
    let (unpatched, patched) = (traps["unpatched"][1], traps["patched"][1]);
    assert_eq!(
        (seconds(before), seconds(after)),
        (unpatched, patched),
        "{row}"
    );
    // The small figure stands with the disturbed samples, too, as the page of results has it.
    let all = all.strip_suffix(" with the disturbed samples").expect(row);
    let results = file("docs/explanation/results.md");
    assert!(
        results.contains(&format!("with them its 99th percentile is {all}")),
        "{all}"
    );
    // Above the picture's figures stand in words.
    let words = readme.split_whitespace().collect::<Vec<_>>().join(" ");
    for figure in [
        format!("complete within {before}."),
        format!("**{after}** ({all} with the disturbed samples)"),
    ] {
        assert!(words.contains(&figure), "{figure}");
    }
    let change = (patched / unpatched - 1.0) * 100.0;
    let said = row.split("| -").nth(2).unwrap().split(" %").next().unwrap();
    let said = -said.parse::<f64>().unwrap();
    // The table's figures are rounded.
    assert!((said - change).abs() < 0.1, "{change}: {row}");
}
