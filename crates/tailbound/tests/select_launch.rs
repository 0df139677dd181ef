//! `tailbound select --launch`, with launchers that do as they should and ones that do not.

mod program;

use program::{CommandOutput, Folder, run_anywhere};
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

const SSH_LIST: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../contrib/launchers/ssh-list"
);

fn select(line: &str) -> CommandOutput {
    run_anywhere(&format!("select {line}"))
}

/// A directory with hosts, what a probe of each finds, and the launcher's state.
struct Cloud(Folder);

impl Cloud {
    fn new(nodes: &[(&str, &str, u64)]) -> Self {
        let folder = Folder::new();
        let names: Vec<_> = nodes.iter().map(|(name, ..)| *name).collect();
        folder.write("hosts", names.join("\n"));
        for (name, verdict, late) in nodes {
            let result = json!({
                "schema": 1, "kind": "probe", "node": "localhost", "verdict": verdict,
                "cpus": [{"samples": 600_000, "late": late, "sleep_ns": {"p99_9": 200_000}}],
            });
            folder.write(&format!("{name}.json"), result.to_string());
        }
        Self(folder)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }

    fn launcher(&self) -> String {
        format!("'{SSH_LIST} {} {}'", self.path("hosts"), self.path("state"))
    }

    /// Selects by `ssh-list`.
    fn select(&self, more: &str) -> CommandOutput {
        let probe = self.path("{address}.json");
        let launcher = self.launcher();
        select(&format!("--launch {launcher} --probe 'cat {probe}' {more}"))
    }

    /// Returns the nodes that are in use.
    fn given(&self) -> Vec<String> {
        let state = std::fs::read_to_string(self.path("state")).unwrap_or_default();
        let state: Value = serde_json::from_str(&state).unwrap_or_default();
        state
            .as_object()
            .map(|given| given.keys().cloned().collect())
            .unwrap_or_default()
    }

    /// A launcher of these lines of a shell, which have the request in `$line` and its number in
    /// `$id`.
    fn shell(&self, answer: &str) -> String {
        let script = format!(
            "cd {}\nwhile read -r line; do\nid=${{line#*'\"id\":'}}\nid=${{id%%,*}}\n{answer}\ndone\n",
            self.0.path().display()
        );
        self.0.write("launcher.sh", script);
        format!("'sh {}'", self.path("launcher.sh"))
    }
}

const FOUR: [(&str, &str, u64); 4] = [
    ("10.0.0.1", "GOOD", 9),
    ("10.0.0.2", "BAD", 100),
    ("10.0.0.3", "GOOD", 0),
    ("10.0.0.4", "GOOD", 3),
];

#[test]
fn the_best_are_kept_and_the_others_ended() {
    let cloud = Cloud::new(&FOUR);
    let output = cloud.select("--want 2 --overshoot 2").ended(0);
    insta::assert_snapshot!(output.out, @r"
    ENOUGH  3 of 4 nodes are GOOD, 2 wanted

    node      use    verdict  network  late  sleeps  99.9th  file
    10.0.0.3  keep   GOOD     -           0  600000  200 us  10.0.0.3
    10.0.0.4  keep   GOOD     -           3  600000  200 us  10.0.0.4
    10.0.0.1  spare  GOOD     -           9  600000  200 us  10.0.0.1
    10.0.0.2  drop   BAD      -         100  600000  200 us  10.0.0.2
    ");
    assert_eq!(cloud.given(), ["10.0.0.3", "10.0.0.4"]);
    // What has the tag can be ended at once.
    let tag = output.err.split_whitespace().last().unwrap();
    let ended = cloud.select(&format!("--end {tag}")).out;
    assert_eq!(ended, format!("2 nodes of {tag} ended\n"));
    assert!(cloud.given().is_empty());
}

#[test]
fn nodes_of_others_stay() {
    let cloud = Cloud::new(&FOUR);
    cloud.0.write("state", "{\"10.0.0.1\": \"somebody\"}");
    cloud.select("--want 1 --overshoot 3").done();
    assert_eq!(cloud.given(), ["10.0.0.1", "10.0.0.3"]);
    let error = cloud.select("--want 1").failed(2);
    assert!(error.contains("4 are wanted, and only 2 are free"));
    assert_eq!(cloud.given(), ["10.0.0.1", "10.0.0.3"]);
}

#[test]
fn a_dry_run_starts_nothing() {
    let cloud = Cloud::new(&FOUR);
    let output = cloud.select("--want 3 --overshoot 1.2 --dry-run");
    let expected = "would start 4 nodes, keep the best 3 and end the others\n";
    assert_eq!(output.out, expected);
    assert!(cloud.given().is_empty());
}

#[test]
fn nodes_whose_probe_hangs_or_returns_garbage_are_dropped() {
    let cloud = Cloud::new(&FOUR);
    let launcher = cloud.launcher();
    for (probe, why) in [
        ("sleep 600", "no result within 0.2 s"),
        ("echo {address}", "not the result of tailbound probe"),
        ("/nowhere/probe", "/nowhere/probe"),
    ] {
        let flags = "--want 1 --probe-timeout 200ms --parallel 4";
        let output = select(&format!("--launch {launcher} --probe '{probe}' {flags}"));
        let shown = output.ended(1).out;
        assert!(shown.starts_with("SHORT  0 of 4"), "{shown}");
        assert!(shown.contains(why), "{shown}");
        assert!(cloud.given().is_empty());
    }
}

#[test]
fn a_launcher_that_talks_nonsense_is_refused() {
    let cloud = Cloud::new(&[]);
    let named = |name: &str| {
        format!(
            "echo \"{{\\\"id\\\":$id,\\\"nodes\\\":[{{\\\"node\\\":\\\"{name}\\\",\\\"address\\\":\\\"a\\\"}}]}}\""
        )
    };
    let in_create = |answer: &str| {
        format!("case $line in *create*) {answer};; *) echo \"{{\\\"id\\\":$id}}\";; esac")
    };
    let twice = in_create(
        "echo \"{\\\"id\\\":$id,\\\"nodes\\\":[{\\\"node\\\":\\\"a\\\",\\\"address\\\":\\\"a\\\"},{\\\"node\\\":\\\"a\\\",\\\"address\\\":\\\"b\\\"}]}\"",
    );
    for (answer, why) in [
        ("echo nonsense", "the launcher's answer \"nonsense\""),
        ("echo '{\"id\":77}'", "answered 77 where 1 was asked"),
        ("head -c 3000000 /dev/zero", "the launcher's answer"),
        ("exit 3", "the launcher ended"),
        ("sleep 600", "did not answer within 0.3 s"),
        (&named("a"), "it does not go by tags"),
        (
            &in_create(&named("-oProxyCommand=x")),
            "the first no hyphen",
        ),
        (&in_create(&named("a b")), "letters, digits"),
        (&twice, "names node a twice"),
        (
            "echo '{\"id\":1,\"error\":\"no \\u001b[31m\"}'",
            "reports \"no \\u{1b}[31m\"",
        ),
    ] {
        let launcher = cloud.shell(answer);
        let line = format!("--launch {launcher} --want 1 --launch-timeout 300ms");
        let stderr = select(&line).failed(2);
        assert!(stderr.contains(why), "{answer}: {stderr}");
        assert!(!stderr.contains('\u{1b}'));
    }
}

#[test]
fn a_program_that_cannot_start_is_named_with_a_remedy() {
    let cloud = Cloud::new(&[("a", "GOOD", 0)]);
    let plain = cloud.path("hosts");
    let nobodys = cloud.path("nobodys");
    std::fs::write(&nobodys, "#!/nowhere/python\n").unwrap();
    let executable = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(&nobodys, executable).unwrap();
    for (launcher, why) in [
        ("./nope", "there is no such file"),
        (&*nobodys, "what its first line names is not installed"),
        ("nope-nope", "PATH has no such program; use its path"),
        (&plain, "make it executable (chmod +x)"),
    ] {
        let stderr = select(&format!("--launch {launcher} --want 1")).failed(2);
        assert!(
            stderr.contains(&format!("--launch {launcher}: ")),
            "{stderr}"
        );
        assert!(stderr.contains(why), "{stderr}");
        assert!(stderr.contains("/usr/share/tailbound/launchers"));
    }
    let launcher = cloud.launcher();
    let flags = "--want 1 --overshoot 1 --probe nope-nope";
    let output = select(&format!("--launch {launcher} {flags}"));
    let said = output.out + &output.err;
    let why = "--probe nope-nope: No such file or directory";
    assert!(said.contains(why), "{said}");
}

#[test]
fn nodes_from_a_hung_launcher_are_deleted() {
    let cloud = Cloud::new(&[]);
    let launcher = cloud.shell(
        "case $line in\n\
        *create*) touch made; sleep 600;;\n\
        *delete*) rm made; echo \"{\\\"id\\\":$id}\";;\n\
        *) if [ -e made ]; then echo \"{\\\"id\\\":$id,\\\"nodes\\\":[{\\\"node\\\":\\\"a\\\",\\\"address\\\":\\\"a\\\"}]}\"; \
           else echo \"{\\\"id\\\":$id}\"; fi;;\n\
        esac",
    );
    let line = format!("--launch {launcher} --want 1 --launch-timeout 2s");
    let stderr = select(&line).failed(2);
    assert!(
        stderr.contains("did not answer within 2 s; all 1 nodes of"),
        "{stderr}"
    );
    assert!(!Path::new(&cloud.path("made")).exists());
}

#[test]
fn arguments_that_do_not_go_together_are_refused() {
    for line in [
        "--launch true",
        "--want 1",
        "--launch true --want 0",
        "--launch true --want 1 a.json",
        "--launch true --want 1 --overshoot 0.5",
        "--launch true --want 9000",
        "--launch true --want 1 --end x",
    ] {
        select(line).failed(64);
    }
}
