//! The table of exit codes (`docs/reference/exit-codes.md`), command by command, and the one
//! form of errors.
//!
//! Each code of each command is driven here that needs neither a network nor a
//! privilege nor long; what else there is stands in the tests of that command.

mod program;

use program::{CommandOutput, Folder, run_anywhere, tailbound, words};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use tailbound_report::{Results, SCHEMA, Verdict};

/// Makes the files that [`CASES`] name.
fn files() -> Folder {
    let folder = Folder::new();
    let write = |name: &str, text: &str| folder.write(name, text);
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
    let results = Results {
        schema: SCHEMA,
        experiment: "result".into(),
        title: "Round trips".into(),
        source: "a test".into(),
        made: None,
        seed: 1,
        conditions: BTreeMap::new(),
        variants: Vec::new(),
        charts: Vec::new(),
        checks: Vec::new(),
        words: BTreeMap::new(),
        verdict: Verdict::Pass,
        verdict_reason: "nothing was expected".into(),
        sentence: None,
    };
    results.write(folder.path()).unwrap();
    write(
        "messages.csv",
        "time_ns,guest,destination,bytes\n0,a,b,100\n1000000,a,b,100\n2000000,a,b,100\n",
    );
    write("state", "{");
    write("tokens.toml", "");
    folder
}

/// The code, and the arguments that end with it.
const CASES: &str = "
 0 --help
64
64 nonsense
 2 host --config missing.toml
 2 host --config wrong.toml --runtime-dir .
64 host --nonsense
 2 host show --config right.toml --runtime-dir .
 2 host status --config right.toml --runtime-dir .
64 host show --output nonsense
 2 host add-guest missing.toml
64 host add-guest
 2 host remove-guest a --runtime-dir .
64 host remove-guest
 2 host drain a --runtime-dir .
64 host drain a --all
 2 top --once --runtime-dir .
64 top --interval 1ms
 2 adopt --policy missing.toml
 2 adopt --policy wrong.toml
64 adopt --watch
64 cni
 0 advise messages.csv --question '1KB within 2ms at 50%'
 1 advise messages.csv --question '1KB within 20ns at 50%'
 2 advise missing.csv --question '1KB within 2ms at 50%'
64 advise messages.csv
 0 check-config right.toml
 0 check-config right.toml --without-added
 1 check-config wrong.toml
 2 check-config missing.toml
64 check-config
 0 vcpu list --interval 1ms
64 vcpu list --interval soon
 2 vcpu apply --pid 4194304 --level high --dry-run
 2 vcpu apply --config missing.toml --dry-run
64 vcpu apply --level high
64 vcpu apply --pid 1
 2 vcpu watch --config missing.toml
64 vcpu watch
 0 vcpu restore --state missing
 2 vcpu restore --state state
64 vcpu restore --status
 2 why db --at 03:12 missing
 2 why db --at 03:12 good.json
64 why db --at 03:12
64 why db missing
64 why db --at late missing
 2 support-bundle --record missing
 2 support-bundle --record good.json
 2 support-bundle --output good.json
 0 probe --samples 50 --low-mark 0 --high-mark 1 --late 60s
64 probe --samples 0
 2 probe --histogram-log missing/log
 2 probe network 127.0.0.1:1 --rates 1 --duration 1ms
64 probe network
64 probe network localhost
 2 probe calibrate missing.json
64 probe calibrate
 2 probe serve --listen nonsense
64 probe serve --connections 0
 0 select good.json --keep 1
 1 select good.json bad.json --keep 2
 2 select missing.json --keep 1
 2 select --launch missing --want 1
64 select --launch true
64 select good.json
64 select good.json --keep 0
 0 lab list
 0 lab show traps
 2 lab show nothing
 2 lab run nothing
64 lab run
64 lab run traps --duration 0s
64 lab forward --repeat 0
64 lab cards --repeat 0
64 lab shaped
64 lab shaped rtp --repeat 0
64 lab shaped rtp --only nothing
 2 lab shaped rtp --trace /nowhere
 0 sim vcpu list
 0 sim net show silo-figure5
 2 sim pacer show nothing
 2 sim placement run missing.toml
64 sim vcpu run
 0 reproduce --list
 0 reproduce silo-10
 2 reproduce silo-10 --page missing/page.md
64 reproduce silo-99
64 reproduce
 0 place openapi
 0 place token --role operator
64 place token --role operator --owner acme
64 place token --role nobody
64 place token
64 place token create x
64 place token create x --role viewer --owner acme
 2 place token list --url http://127.0.0.1:1 --patience 0
64 place create acme/x --owner globex --vms 1
 2 place status --url http://127.0.0.1:1 --patience 0
 2 place audit --store sqlite:missing.db
 2 place recover --from-hosts missing --topology missing.toml --store sqlite:new.db
64 place recover --from-hosts . --topology missing.toml --store etcd://127.0.0.1:1/x
64 place audit
64 place fit
64 place create x --vms 0
64 place fit --vms 1 --bandwidth 0bit/s
64 place explain --vms 2 --domains rack:3
64 place create x --vms 1 --bandwidth 2Gbit/s --burst-rate 1Gbit/s
64 place create x --vms 1 --cpu-reservation 0s/4ms/4ms
64 place create x --vms 1 --limit-in 0bit/s
64 place resize x --vms 0
64 place candidates
64 place candidates x --vms 0
64 place reserve x
64 place reserve x --on a-1:0
64 place confirm x
64 place machine
64 place machine x --tenant t
 2 place machine x --tenant y --on a-1 --file missing.toml
64 place put x a-1
 2 place batch missing.json
 2 place adopt missing.json
64 place limit x --limit-out 0bit/s
 0 calc holds.toml
 1 calc over.toml
 2 calc wrong.toml
64 calc
 2 doctor --switch missing0
64 doctor --witness missing0
 2 report show missing.json
 2 report compare missing.json missing.json
64 report show
";

#[test]
fn every_command_ends_with_the_codes_of_the_table() {
    let folder = files();
    for case in CASES.trim().lines() {
        let (code, line) = case.trim().split_once(' ').unwrap_or((case, ""));
        let output = folder.run(line);
        assert_eq!(output.code, code.parse().ok(), "{line}: {output:?}");
        if code == "64" {
            assert_eq!(output.out, "", "{line}");
            assert!(
                output.err.starts_with("tailbound: "),
                "{line}: {}",
                output.err
            );
        }
    }
}

#[test]
fn a_plan_that_the_machine_cannot_keep_is_refused_with_code_1() {
    let line = format!(
        "vcpu apply --dry-run --state state --pid {} --class periodic --runtime 1ms --period 4ms \
         --home 1000",
        std::process::id()
    );
    Folder::new().run(&line).ended(1);
}

#[test]
fn an_error_names_the_program_or_the_place_in_a_file() {
    let folder = files();
    for (line, start) in [
        ("check-config wrong.toml", "wrong.toml:2:"),
        ("check-config missing.toml", "tailbound: missing.toml: "),
        ("calc wrong.toml", "wrong.toml:"),
        ("calc missing.toml", "tailbound: missing.toml: "),
        (
            "calc --nonsense",
            "tailbound: unexpected argument '--nonsense'",
        ),
    ] {
        let stderr = folder.run(line).err;
        assert!(stderr.starts_with(start), "{line}: {stderr}");
    }
}

#[test]
fn the_help_contains_the_table_of_exit_codes() {
    insta::assert_snapshot!("help", run_anywhere("--help").out);
}

/// Commands whose output is printed here: each line of arguments prints something.
const PRINTING: &str = "
adopt --list --state adopted
advise messages.csv --question '1KB within 2ms at 50%'
release --all --state adopted
calc holds.toml
check-config right.toml
completions bash
doctor probe
doctor probe --output json
lab clean
lab list
lab show traps
man place serve
place openapi
place token --role operator
probe --samples 50 --low-mark 0 --high-mark 1 --late 60s
report compare result.json result.json
report export result.json --hlog log.hlog
report show result.json
reproduce --list
select good.json --keep 1
sim flows list
sim flows show silo-32k
sim net list
sim net show silo-figure5
sim pacer list
sim pacer show conformance
sim packets list
sim packets show incast
sim placement list
sim placement show microbenchmark
sim shaper list
sim shaper show http
sim vcpu list
sim vcpu show schedulers
vcpu list --interval 1ms
vcpu restore --state missing
";

/// Commands that print only with a daemon, a service, a terminal, privileges or minutes of work, and
/// those that print nothing. All of them print as the others (see `the_program_prints_in_one_place`).
const ELSEWHERE: &str = "
cni host-add-guest host-change-guest host-drain host-libvirt-hook host-libvirt-watch
host-migrate-prepare host-remove-guest host-show host-snoop-show host-status host-verify lab-cards
lab-forward lab-run lab-shaped place-adopt place-audit place-audit-log place-backup place-batch place-bound
place-cancel place-candidates place-change place-confirm place-create place-delete
place-drain place-events place-explain place-fail place-fit place-get place-guarantees
place-host place-hosts place-import place-limit place-list place-machine place-move
place-put place-recover place-relocate place-reservations place-reserve place-resize place-restore
place-salvage place-serve place-status place-topology-apply place-topology-diff
place-token-create place-token-list place-token-revoke
place-topology-show probe-calibrate probe-network probe-pairs probe-serve probe-watch
probe-workflows report-merge sim-flows-run sim-net-network sim-net-run sim-pacer-run
sim-packets-run sim-placement-run sim-plan sim-replay sim-run sim-shaper-run sim-vcpu-run
support-bundle top trace vcpu-apply vcpu-top vcpu-watch watch why
";

/// The commands that have a manual page and no command below them.
fn leaves(folder: &Folder) -> Vec<String> {
    let pages = folder.join("man");
    folder.run("man --out man").done();
    let names = fs::read_dir(&pages).unwrap().map(|entry| {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let words = name.trim_end_matches(".1").trim_start_matches("tailbound");
        words.trim_start_matches('-').to_owned()
    });
    let names: Vec<_> = names.filter(|name| !name.is_empty()).collect();
    let is_leaf = |name: &&String| {
        let below = format!("{name}-");
        !names.iter().any(|other| other.starts_with(&below))
    };
    names.iter().filter(is_leaf).cloned().collect()
}

const LOST: &str = "tailbound: cannot write the output: No space left on device\n";

#[test]
fn lost_output_is_a_failure_of_every_command() {
    let folder = files();
    let printing = || PRINTING.trim().lines();
    for leaf in leaves(&folder) {
        let is_printed = printing().any(|line| {
            let line = format!("{}-", line.replace(' ', "-"));
            line.starts_with(&format!("{leaf}-"))
        });
        let is_elsewhere = ELSEWHERE.split_whitespace().any(|it| it == leaf);
        assert_ne!(
            is_printed, is_elsewhere,
            "{leaf}: list it in one of the two"
        );
    }
    for line in ["--help", "--version", "host show --help"]
        .into_iter()
        .chain(printing())
    {
        let full = fs::File::create("/dev/full").unwrap();
        let mut command = tailbound();
        command
            .args(words(line))
            .current_dir(folder.path())
            .stdout(full);
        // It prints something, else it would end with another code.
        let said = CommandOutput::new(command.output().unwrap()).failed(74);
        assert!(said.ends_with(LOST), "{line}: {said}");
    }
}

#[test]
fn a_reader_that_has_enough_is_no_failure() {
    for line in ["lab list", "man place serve", "place openapi", "--help"] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = tailbound().args(words(line)).stdout(writer).output();
        let output = CommandOutput::new(output.unwrap()).ended(0);
        assert_eq!(output.err, "", "{line}");
    }
}

#[test]
fn the_program_prints_in_one_place() {
    let mut ahead = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src")];
    while let Some(directory) = ahead.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                ahead.push(path);
                continue;
            }
            let text = fs::read_to_string(&path).unwrap();
            let asked = text.replace("stdout().is_terminal()", "");
            let is_the_place = path.ends_with("command/output.rs");
            let is_used = asked.contains("stdout()") || asked.contains("io::Stdout");
            assert!(
                is_the_place || !is_used,
                "{}: print by `command::output::print`, which notices lost output",
                path.display()
            );
        }
    }
}
