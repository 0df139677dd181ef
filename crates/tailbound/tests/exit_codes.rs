//! The table of exit codes (`docs/exit-codes.md`), command by command, and the one
//! form of errors.
//!
//! Each code of each command is driven here that needs neither a network nor a
//! privilege nor long; what else there is stands in the tests of that command.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

fn tailbound(directory: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tailbound"))
        .args(arguments)
        .current_dir(directory)
        .env_remove("TAILBOUND_URL")
        .output()
        .unwrap()
}

/// A probe that says GOOD: nothing is late below a minute.
const GOOD: [&str; 9] = [
    "probe",
    "--samples",
    "50",
    "--low-mark",
    "0",
    "--high-mark",
    "1",
    "--late",
    "60s",
];

/// Makes the files that [`CASES`] name.
fn files(directory: &Path) {
    let write = |name: &str, text: &str| fs::write(directory.join(name), text).unwrap();
    write(
        "right.toml",
        "[[guest]]\nname = \"a\"\nmac = \"02:00:00:00:00:01\"\n\
         anti_spoofing = false\n\
         port = { kind = \"tap\", interface = \"t1\" }\n",
    );
    write("wrong.toml", "[[guest]]\nname = 1\n");
    let network = |buffer: &str| {
        format!(
            "frame = \"1500B\"\n[[port]]\nname = \"p\"\nrate = \"1Gbit/s\"\nbuffer = \"{buffer}\"\n\
             [[flow]]\nname = \"f\"\nrate = \"1Mbit/s\"\nburst = \"10KB\"\npath = [\"p\"]\n"
        )
    };
    write("holds.toml", &network("100KB"));
    write("over.toml", &network("1KB"));
    for (name, verdict) in [("good.json", "GOOD"), ("bad.json", "BAD")] {
        let document = serde_json::json!({
            "schema": 1, "kind": "probe", "node": name, "verdict": verdict,
            "cpus": [{"samples": 9, "late": 0, "sleep_ns": {"p99_9": 1}}],
        });
        write(name, &document.to_string());
    }
    write("state", "{");
    write("tokens.toml", "");
}

/// The code, and the arguments that end with it.
const CASES: &[(i32, &[&str])] = &[
    (0, &["--help"]),
    (64, &[]),
    (64, &["nonsense"]),
    (2, &["host", "--config", "missing.toml"]),
    (2, &["host", "--config", "wrong.toml", "--runtime-dir", "."]),
    (64, &["host", "--nonsense"]),
    (
        2,
        &[
            "host",
            "show",
            "--config",
            "right.toml",
            "--runtime-dir",
            ".",
        ],
    ),
    (64, &["host", "show", "--output", "nonsense"]),
    (2, &["host", "add-guest", "missing.toml"]),
    (64, &["host", "add-guest"]),
    (2, &["host", "remove-guest", "a", "--runtime-dir", "."]),
    (64, &["host", "remove-guest"]),
    (2, &["host", "drain", "a", "--runtime-dir", "."]),
    (64, &["host", "drain", "a", "--all"]),
    (2, &["top", "--once", "--runtime-dir", "."]),
    (64, &["top", "--interval", "1ms"]),
    (0, &["check-config", "right.toml"]),
    (0, &["check-config", "right.toml", "--without-added"]),
    (1, &["check-config", "wrong.toml"]),
    (2, &["check-config", "missing.toml"]),
    (64, &["check-config"]),
    (0, &["vcpu", "list", "--interval", "1ms"]),
    (64, &["vcpu", "list", "--interval", "soon"]),
    (
        2,
        &[
            "vcpu",
            "apply",
            "--pid",
            "4194304",
            "--level",
            "high",
            "--dry-run",
        ],
    ),
    (
        2,
        &["vcpu", "apply", "--config", "missing.toml", "--dry-run"],
    ),
    (64, &["vcpu", "apply", "--level", "high"]),
    (64, &["vcpu", "apply", "--pid", "1"]),
    (2, &["vcpu", "watch", "--config", "missing.toml"]),
    (64, &["vcpu", "watch"]),
    (0, &["vcpu", "restore", "--state", "missing"]),
    (2, &["vcpu", "restore", "--state", "state"]),
    (64, &["vcpu", "restore", "--status"]),
    (0, &GOOD),
    (64, &["probe", "--samples", "0"]),
    (2, &["probe", "--histogram-log", "missing/log"]),
    (
        2,
        &[
            "probe",
            "network",
            "127.0.0.1:1",
            "--rates",
            "1",
            "--duration",
            "1ms",
        ],
    ),
    (64, &["probe", "network"]),
    (64, &["probe", "network", "localhost"]),
    (2, &["probe", "calibrate", "missing.json"]),
    (64, &["probe", "calibrate"]),
    (2, &["probe", "serve", "--listen", "nonsense"]),
    (64, &["probe", "serve", "--connections", "0"]),
    (0, &["select", "good.json", "--keep", "1"]),
    (1, &["select", "good.json", "bad.json", "--keep", "2"]),
    (2, &["select", "missing.json", "--keep", "1"]),
    (2, &["select", "--launch", "missing", "--want", "1"]),
    (64, &["select", "--launch", "true"]),
    (64, &["select", "good.json"]),
    (64, &["select", "good.json", "--keep", "0"]),
    (0, &["lab", "list"]),
    (0, &["lab", "show", "traps"]),
    (2, &["lab", "show", "nothing"]),
    (2, &["lab", "run", "nothing"]),
    (64, &["lab", "run"]),
    (64, &["lab", "run", "traps", "--duration", "0s"]),
    (64, &["lab", "forward", "--repeat", "0"]),
    (64, &["lab", "cards", "--repeat", "0"]),
    (64, &["lab", "shaped"]),
    (64, &["lab", "shaped", "rtp", "--repeat", "0"]),
    (64, &["lab", "shaped", "rtp", "--only", "nothing"]),
    (2, &["lab", "shaped", "rtp", "--trace", "/nowhere"]),
    (0, &["sim", "vcpu", "list"]),
    (0, &["sim", "net", "show", "silo-figure5"]),
    (2, &["sim", "pacer", "show", "nothing"]),
    (2, &["sim", "placement", "run", "missing.toml"]),
    (64, &["sim", "vcpu", "run"]),
    (0, &["reproduce", "--list"]),
    (0, &["reproduce", "silo-10"]),
    (2, &["reproduce", "silo-10", "--page", "missing/page.md"]),
    (64, &["reproduce", "silo-99"]),
    (64, &["reproduce"]),
    (0, &["place", "openapi"]),
    (0, &["place", "token", "--role", "operator"]),
    (
        64,
        &["place", "token", "--role", "operator", "--owner", "acme"],
    ),
    (64, &["place", "token", "--role", "nobody"]),
    (
        2,
        &[
            "place",
            "status",
            "--url",
            "http://127.0.0.1:1",
            "--patience",
            "0",
        ],
    ),
    (2, &["place", "audit", "--store", "sqlite:missing.db"]),
    (64, &["place", "audit"]),
    (64, &["place", "fit"]),
    (0, &["calc", "holds.toml"]),
    (1, &["calc", "over.toml"]),
    (2, &["calc", "wrong.toml"]),
    (64, &["calc"]),
    (2, &["doctor", "--switch", "missing0"]),
    (64, &["doctor", "--witness", "missing0"]),
    (2, &["report", "show", "missing.json"]),
    (2, &["report", "compare", "missing.json", "missing.json"]),
    (64, &["report", "show"]),
];

#[test]
fn every_command_ends_with_the_codes_of_the_table() {
    let directory = tempfile::tempdir().unwrap();
    files(directory.path());
    for (code, arguments) in CASES {
        let output = tailbound(directory.path(), arguments);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(*code), "{arguments:?}: {stderr}");
        if *code == 64 {
            assert!(output.stdout.is_empty(), "{arguments:?}");
            assert!(stderr.starts_with("tailbound: "), "{arguments:?}: {stderr}");
        }
    }
}

#[test]
fn a_plan_that_the_machine_cannot_keep_is_refused_with_code_1() {
    let directory = tempfile::tempdir().unwrap();
    let own = std::process::id().to_string();
    let home = [
        "--class",
        "periodic",
        "--runtime",
        "1ms",
        "--period",
        "4ms",
        "--home",
        "1000",
    ];
    let base = [
        "vcpu",
        "apply",
        "--dry-run",
        "--state",
        "state",
        "--pid",
        &own,
    ];
    let output = tailbound(directory.path(), &[&base[..], &home].concat());
    assert_eq!(output.status.code(), Some(1), "{output:?}");
}

#[test]
fn an_error_names_the_program_or_the_place_in_a_file() {
    let directory = tempfile::tempdir().unwrap();
    files(directory.path());
    for (arguments, start) in [
        (["check-config", "wrong.toml"], "wrong.toml:2:"),
        (
            ["check-config", "missing.toml"],
            "tailbound: missing.toml: ",
        ),
        (["calc", "wrong.toml"], "wrong.toml:"),
        (["calc", "missing.toml"], "tailbound: missing.toml: "),
        (
            ["calc", "--nonsense"],
            "tailbound: unexpected argument '--nonsense'",
        ),
    ] {
        let output = tailbound(directory.path(), &arguments);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(stderr.starts_with(start), "{arguments:?}: {stderr}");
    }
}

#[test]
fn the_help_says_the_table() {
    let help = tailbound(Path::new("."), &["--help"]);
    insta::assert_snapshot!("help", String::from_utf8(help.stdout).unwrap());
}
