//! The format of JSON output: each command with `--output json` prints one document with `schema`,
//! `kind` and `version`, no duplicate keys, and whole nanoseconds for each time.
//!
//! The commands come from the manual pages, which are generated from the declaration of the command
//! line: a new command without a line here fails the test.

#[allow(dead_code, reason = "other tests use more of it")]
#[path = "place/support.rs"]
mod support;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;
use support::{CommandOutput, Service, TREE, tailbound};
use tailbound_units::Nanos;

/// The tested commands, without `--output json`, in the order of their runs: each uses the results
/// of those before it. OWN is the number of this process.
const LINES: &[&str] = &[
    "adopt | --list --state adopted",
    "release | --all --state adopted",
    "calc | network.toml",
    "check-config | host.toml",
    "doctor | probe",
    "lab list |",
    "sim flows list |",
    "sim net list |",
    "sim packets list |",
    "sim pacer list |",
    "sim placement list |",
    "sim shaper list |",
    "sim vcpu list |",
    "sim net run | silo-figure5",
    "report compare | out/silo-figure5.json out/silo-figure5.json",
    "reproduce | --list silo-10",
    "probe | --samples 50 --low-mark 0 --high-mark 1 --late 60s",
    "probe network | 127.0.0.1:1 --rates 1 --duration 1ms",
    "probe watch | watched --show",
    "probe calibrate | a.json b.json network.json",
    "probe pairs | network.json",
    "select | a.json --keep 1",
    "vcpu list | --interval 1ms --state none",
    "vcpu apply | --dry-run --state none --pid OWN --class aperiodic --slice 1ms",
    "vcpu restore | --state none",
    "place token | --role operator",
    "place token create | ci --role tenant --owner acme --valid-for 1h",
    "place token list |",
    "place token revoke | ci",
    "place create | web --owner acme --vms 3 --bandwidth 10Mbit/s --burst 3076B --delay 1ms --message 10KB",
    "place get | acme/web",
    "place candidates | acme/web --host b-1",
    "place reserve | acme/web --on b-1 --ttl 1h --machine pod",
    "place reservations |",
    "place confirm | 2",
    "place reserve | acme/web --on b-1:2",
    "place cancel | 4",
    "place put | acme/web b-1 --vms 0 --remove pod",
    "place machine | x --owner acme --tenant vms --on b-1 --file machine.toml",
    "place machine | x --owner acme",
    "place machine | x --owner acme --gone-from b-1",
    "place batch | batch.json",
    "place adopt | running.json",
    "place list |",
    "place bound | acme/web 0 1",
    "place resize | acme/web --vms 4",
    "place change | acme/web --bandwidth 20Mbit/s",
    "place limit | acme/web --limit-out 1Gbit/s",
    "place relocate | acme/web",
    "place fit | --vms 2 --bandwidth 1Mbit/s --burst 3076B --delay 1ms",
    "place explain | --vms 2 --bandwidth 1Mbit/s --burst 3076B --delay 1ms",
    "place hosts |",
    "place host | a-1",
    "place move | acme/web/0 --to b-1",
    "place guarantees | a-1",
    "place drain | b-3",
    "place fail | b-3",
    "place restore | b-3",
    "place topology show |",
    "place topology diff | tree.toml",
    "place topology apply | tree.toml",
    "place status |",
    "place backup | backup",
    "place import | backup --store sqlite:imported.db",
    "place audit | --store sqlite:imported.db",
    "place salvage | salvaged --store sqlite:imported.db",
    "place recover | --from-hosts held --topology tree.toml --store sqlite:recovered.db",
    "place delete | acme/web",
];

/// Commands that do not run here, each with its test or the reason.
const ELSEWHERE: &[(&str, &str)] = &[
    ("advise", "advise.rs: its question has spaces"),
    ("host show", "host_socket.rs: needs an interface"),
    ("host status", "prints what `host show` prints, judged"),
    ("host snoop show", "host_socket.rs: needs an interface"),
    ("host verify", "host_verify.rs: needs an interface"),
    ("lab cards", "prints what `sim net run` prints"),
    ("lab clean", "would end other labs of this machine"),
    ("lab forward", "prints what `sim net run` prints"),
    ("lab run", "prints what `sim net run` prints"),
    ("lab shaped", "prints what `sim net run` prints"),
    ("place audit-log", "lines, of place_serve.rs"),
    ("place events", "lines, of place_hosts.rs"),
    ("probe workflows", "probe_workflows.rs: takes servers"),
    ("report merge", "sim_grid.rs"),
    ("sim flows run", "prints what `sim net run` prints"),
    ("sim packets run", "prints what `sim net run` prints"),
    ("sim pacer run", "prints what `sim net run` prints"),
    ("sim placement run", "prints what `sim net run` prints"),
    ("sim replay", "sim.rs"),
    ("sim run", "sim_grid.rs"),
    ("sim shaper run", "prints what `sim net run` prints"),
    ("sim vcpu run", "prints what `sim net run` prints"),
    ("vcpu top", "vcpu.rs: needs BPF"),
    ("watch", "why.rs: needs BPF"),
    ("why", "why.rs: needs BPF"),
];

/// A JSON document in which no key stands twice.
struct Strict(Value);

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(StrictVisitor).map(Self)
    }
}

struct StrictVisitor;

impl<'de> Visitor<'de> for StrictVisitor {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("JSON")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut all = Vec::new();
        while let Some(Strict(item)) = items.next_element()? {
            all.push(item);
        }
        Ok(all.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut all = serde_json::Map::new();
        while let Some((key, Strict(value))) = fields.next_entry::<String, _>()? {
            if all.insert(key.clone(), value).is_some() {
                return Err(serde::de::Error::custom(format!("{key:?} stands twice")));
            }
        }
        Ok(all.into())
    }
}

/// Checks the values below `key`.
fn is_in_dialect(line: &str, key: &str, value: &Value, wrong: &mut Vec<String>) {
    match value {
        Value::Array(items) => {
            for item in items {
                is_in_dialect(line, key, item, wrong);
            }
        }
        Value::Object(fields) => {
            for (key, value) in fields {
                let text = value.as_str().unwrap_or_default();
                let beside = fields.get(&format!("{key}_ns"));
                if text.parse::<Nanos>().is_ok() && !beside.is_some_and(Value::is_u64) {
                    wrong.push(format!("{line}: {key}: {text}"));
                }
                is_in_dialect(line, key, value, wrong);
            }
        }
        Value::Number(number) if key.ends_with("_ns") && !number.is_u64() => {
            wrong.push(format!("{line}: {key}: {number}"));
        }
        _ => {}
    }
}

/// Adds the deviations of a document from the format to `wrong`.
fn check(line: &str, text: &str, wrong: &mut Vec<String>) {
    let document = match serde_json::from_str(text) {
        Ok(Strict(document)) => document,
        Err(error) => return wrong.push(format!("{line}: {error}")),
    };
    let head = [&document["schema"], &document["kind"], &document["version"]];
    let [schema, kind, version] = head;
    if !schema.is_u64() || !kind.is_string() || version != env!("CARGO_PKG_VERSION") {
        wrong.push(format!("{line}: {head:?}"));
    }
    is_in_dialect(line, "", &document, wrong);
}

/// The commands that have `--output json`, by their manual pages.
fn commands(directory: &Path) -> BTreeSet<String> {
    let pages = directory.join("man");
    let pages = pages.to_str().unwrap();
    CommandOutput::new(tailbound().args(["man", "--out", pages]).output().unwrap()).done();
    let mut found = BTreeSet::new();
    for page in std::fs::read_dir(pages).unwrap() {
        let text = std::fs::read_to_string(page.unwrap().path()).unwrap();
        let text = text
            .replace("\\-", "-")
            .replace("\\fB", "")
            .replace("\\fR", "");
        let mut after = text.split(".SH SYNOPSIS\n").nth(1).unwrap().split(" [");
        let name = after
            .next()
            .unwrap()
            .trim()
            .trim_start_matches("tailbound")
            .trim();
        let options = text
            .split("\n.TP\n")
            .find(|it| it.trim_start().starts_with("--output"));
        if options.is_some_and(|it| it.contains("json")) {
            let words = name.split([' ', '\n']);
            let words = words.take_while(|word| !word.starts_with(['<', '-', '[']));
            found.insert(words.collect::<Vec<_>>().join(" "));
        }
    }
    found
}

fn files(directory: &Path) {
    let write = |name: &str, text: &str| std::fs::write(directory.join(name), text).unwrap();
    write("tree.toml", TREE);
    write("watched", "");
    write(
        "host.toml",
        "[[guest]]\nname = \"a\"\nmac = \"02:00:00:00:00:01\"\nanti_spoofing = false\n\
         port = { kind = \"tap\", interface = \"t1\" }\n",
    );
    write(
        "network.toml",
        "frame = \"1500B\"\n[[port]]\nname = \"p\"\nrate = \"1Gbit/s\"\nbuffer = \"100KB\"\n\
         [[flow]]\nname = \"f\"\nrate = \"1Mbit/s\"\nburst = \"10KB\"\npath = [\"p\"]\n",
    );
    for (node, late) in [("a", 0), ("b", 400)] {
        let result = json!({
            "schema": 1, "kind": "probe", "node": node, "verdict": "UNSURE",
            "config": {"samples": 600_000, "span_ns": 1},
            "cpus": [{"samples": 600_000, "late": late, "elapsed_ns": 1,
                      "sleep_ns": {"p99_9": 1}}],
        });
        write(&format!("{node}.json"), &result.to_string());
    }
    let rates = json!([{"time_ns": {"p99_9": 1}}]);
    let network = json!({
        "schema": 1, "kind": "probe-network", "node": "c", "verdict": "BAD", "nodes": [
            {"node": "a", "verdict": "GOOD", "rates": rates},
            {"node": "b", "verdict": "BAD", "rates": rates},
        ],
    });
    write("network.json", &network.to_string());
    let tenant = |name: &str| {
        json!({"name": name, "owner": "acme", "vms": 1,
               "placement": [{"host": "b-1", "vms": 1}]})
    };
    let batch = json!({"operations": [{"create": tenant("batch")}, {"delete": "acme/batch"}]});
    write("batch.json", &batch.to_string());
    let running = json!({"tenants": [tenant("runs")]});
    write("running.json", &running.to_string());
    write("machine.toml", "vms = 1\n");
    std::fs::create_dir(directory.join("held")).unwrap();
    let held = json!({"schema": 2, "said": {
        "host": "a-1", "state": "open", "revision": 1, "change": 1, "vms": []}});
    write("held/a-1.json", &held.to_string());
}

#[test]
fn every_document_has_its_schema_its_version_and_whole_nanoseconds() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    files(directory);
    let service = Service::open(directory);
    let own = std::process::id().to_string();
    let (mut seen, mut wrong) = (BTreeSet::new(), Vec::new());
    for line in LINES {
        let (command, options) = line.split_once('|').unwrap();
        let mut run = tailbound();
        run.args(command.split_whitespace());
        run.args(
            options
                .split_whitespace()
                .map(|word| if word == "OWN" { &own } else { word }),
        );
        run.args(["--output", "json"])
            .env("TAILBOUND_URL", &service.url);
        let said = CommandOutput::new(run.current_dir(directory).output().unwrap());
        if said.out.is_empty() {
            wrong.push(format!("{line}: {}", said.err));
        } else {
            check(line, &said.out, &mut wrong);
        }
        seen.insert(command.trim().to_owned());
    }
    let refused = service.place("get 99 --output json");
    check("a refusal", &refused.out, &mut wrong);
    assert!(wrong.is_empty(), "{wrong:#?}");
    for (command, _) in ELSEWHERE {
        assert!(seen.insert((*command).to_owned()), "{command}");
    }
    assert_eq!(commands(directory), seen);
}
