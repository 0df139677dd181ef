//! The CNI plugin behind the plugins bridge and ptp of the CNI project, called as `libcni` calls them:
//! ADD and CHECK in the order of the list, DEL in the opposite one, with the result of the plugin before.

#[path = "adopt/sandbox.rs"]
mod sandbox;

use sandbox::{isolate, mount_bpf, ping, run, sandboxed, without_timers};
use serde_json::{Value, json};
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tailbound_sys::network::queue;
use tailbound_sys::probe::required::{Part, skipped};

/// A host with a runtime of containers, and the networks of its configuration.
struct Runtime {
    directory: tempfile::TempDir,
    plugins: PathBuf,
}

/// The answer of a plugin: its exit code and its document.
type Answer = (i32, Value);

impl Runtime {
    /// `None` if this computer lacks a part.
    fn start(test: &str) -> Option<Self> {
        let known = ["/usr/lib/cni", "/opt/cni/bin"];
        let plugins = known
            .iter()
            .find(|it| Path::new(it).join("bridge").exists());
        let Some(plugins) = plugins else {
            skipped(Part::CniPlugins, "install containernetworking-plugins");
            return None;
        };
        let directory = tempfile::tempdir().unwrap();
        if !mount_bpf(directory.path(), test) {
            return None;
        }
        isolate();
        let program = directory.path().join("tailbound-cni");
        symlink(env!("CARGO_BIN_EXE_tailbound"), program).unwrap();
        Some(Self {
            directory,
            plugins: plugins.into(),
        })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The configuration of the plugin that makes the interface.
    fn first(&self, kind: &str) -> Value {
        let ipam = json!({
            "type": "host-local", "subnet": "10.88.0.0/24", "dataDir": self.path("ipam"),
            "routes": [{"dst": "0.0.0.0/0"}]
        });
        json!({
            "cniVersion": "1.0.0", "name": "pods", "type": kind, "bridge": "cni0", "isGateway": true,
            "ipam": ipam
        })
    }

    /// The configuration of the plugin under test, with more keys.
    fn own(&self, more: &Value) -> Value {
        let mut own = json!({
            "cniVersion": "1.1.0", "name": "pods", "type": "tailbound-cni", "dscp": 46,
            "state": self.path("state"), "pins": self.path("bpf/tailbound")
        });
        let more = more.as_object().unwrap().clone();
        own.as_object_mut().unwrap().extend(more);
        own
    }

    /// Calls a plugin for a container of this name, which has the namespace of that name.
    fn call(&self, command: &str, container: &str, config: &Value) -> Answer {
        let kind = config["type"].as_str().unwrap();
        let program = match kind {
            "tailbound-cni" => self.path(kind),
            _ => self.plugins.join(kind),
        };
        let pod = format!(
            "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME={container};K8S_POD_UID=uid-{container}"
        );
        let mut child = Command::new(program)
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .env("CNI_COMMAND", command)
            .env("CNI_CONTAINERID", container)
            .env("CNI_NETNS", format!("/run/netns/{container}"))
            .env("CNI_IFNAME", "eth0")
            .env("CNI_ARGS", pod)
            .env("CNI_PATH", &self.plugins)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(config.to_string().as_bytes()).unwrap();
        drop(stdin);
        let output = child.wait_with_output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let document = match text.trim() {
            "" => Value::Null,
            text => serde_json::from_str(text).unwrap_or_else(|_| panic!("no JSON: {text}")),
        };
        (output.status.code().unwrap(), document)
    }

    /// Makes a container's interface by the first plugin, and returns the result of that.
    fn connect(&self, kind: &str, container: &str) -> Value {
        run(&format!("ip netns add {container}"));
        let (code, result) = self.call("ADD", container, &self.first(kind));
        assert_eq!(code, 0, "{result}");
        result
    }

    fn disconnect(&self, kind: &str, container: &str, result: &Value) {
        let mut first = self.first(kind);
        first["prevResult"] = result.clone();
        assert_eq!(self.call("DEL", container, &first), (0, Value::Null));
        run(&format!("ip netns del {container}"));
    }

    fn tailbound(&self, arguments: &str) -> String {
        let output = Command::new(env!("CARGO_BIN_EXE_tailbound"))
            .args(arguments.split(' '))
            .arg("--state")
            .arg(self.path("state"))
            .arg("--pins")
            .arg(self.path("bpf/tailbound"))
            .output()
            .unwrap();
        assert!(output.status.success(), "{arguments}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// All lists that an administrator could look at.
    fn lists(&self) -> String {
        let mut lists: Vec<_> = ["ip -d link", "ip address", "bridge -d link", "tc -d qdisc"]
            .map(|list| without_timers(&run(list)))
            .into();
        if Command::new("nft").arg("--version").output().is_ok() {
            lists.push(run("nft list ruleset"));
        }
        let pins = fs::read_dir(self.path("bpf")).unwrap();
        lists.extend(pins.map(|it| it.unwrap().file_name().into_string().unwrap()));
        lists.join("\n")
    }
}

fn with_result(config: &Value, result: &Value) -> Value {
    let mut config = config.clone();
    // libcni converts the result to the version of the configuration.
    let mut result = result.clone();
    result["cniVersion"] = config["cniVersion"].clone();
    config["prevResult"] = result;
    config
}

#[test]
fn a_pod_on_a_bridge_is_adopted_and_released_by_its_runtime() {
    sandboxed(
        "a_pod_on_a_bridge_is_adopted_and_released_by_its_runtime",
        || {
            if let Some(runtime) = Runtime::start("CNI on a bridge") {
                adopted_and_released(&runtime, "bridge");
            }
        },
    );
}

#[test]
fn a_pod_behind_a_routed_pair_is_adopted_and_released_by_its_runtime() {
    sandboxed(
        "a_pod_behind_a_routed_pair_is_adopted_and_released_by_its_runtime",
        || {
            if let Some(runtime) = Runtime::start("CNI by a routed pair") {
                adopted_and_released(&runtime, "ptp");
            }
        },
    );
}

fn adopted_and_released(runtime: &Runtime, kind: &str) {
    let result = runtime.connect(kind, "web");
    let own = runtime.own(&json!({}));
    let full = with_result(&own, &result);
    // Before ADD there is nothing, and no file is made for it.
    assert_eq!(runtime.call("DEL", "web", &full), (0, Value::Null));
    assert!(!runtime.path("state").exists());
    let (code, document) = runtime.call("CHECK", "web", &full);
    assert_eq!((code, &document["code"]), (1, &json!(101)), "{document}");
    let before = runtime.lists();
    let (code, document) = runtime.call("ADD", "web", &full);
    assert_eq!((code, &document), (0, &full["prevResult"]));
    // Its own addresses, and no others.
    assert_eq!(ping("web", "10.88.0.1", ""), (3, 0));
    run("ip -n web address add 10.88.0.77/24 dev eth0");
    assert_eq!(ping("web", "10.88.0.1", "-I 10.88.0.77"), (0, 0));
    run("ip -n web address del 10.88.0.77/24 dev eth0");
    let list = runtime.tailbound("adopt --list");
    assert!(
        list.starts_with("shop/web\n") && list.contains("DSCP 46"),
        "{list}"
    );
    assert_eq!(runtime.call("CHECK", "web", &full), (0, Value::Null));
    // Another container's end, and another network's, leave it.
    let mut other = full.clone();
    other["name"] = json!("others");
    assert_eq!(runtime.call("DEL", "web", &other), (0, Value::Null));
    assert_eq!(runtime.call("DEL", "db", &full), (0, Value::Null));
    assert_eq!(runtime.call("CHECK", "web", &full), (0, Value::Null));
    for _ in 0..2 {
        assert_eq!(runtime.call("DEL", "web", &full), (0, Value::Null));
    }
    assert_eq!(runtime.lists(), before);
    assert_eq!(runtime.tailbound("adopt --list"), "no guest is adopted\n");
    runtime.disconnect(kind, "web", &result);
}

#[test]
fn cni_check_reports_gaps_and_gc_keeps_valid_attachments() {
    sandboxed(
        "cni_check_reports_gaps_and_gc_keeps_valid_attachments",
        || {
            let Some(runtime) = Runtime::start("CHECK and GC") else {
                return;
            };
            let own = runtime.own(&json!({}));
            let mut all = Vec::new();
            for container in ["web", "db", "cache"] {
                let full = with_result(&own, &runtime.connect("bridge", container));
                let (code, document) = runtime.call("ADD", container, &full);
                assert_eq!(code, 0, "{document}");
                all.push(full);
            }
            // Without tcx the programs are no files.
            let list = runtime.tailbound("adopt --list --output json");
            let list: Value = serde_json::from_str(&list).unwrap();
            let mut guests = list["guests"].as_array().unwrap().iter();
            let web = guests.find(|it| it["name"] == "shop/web").unwrap();
            let index = &web["steps"][0]["port"]["index"];
            let link = runtime.path(&format!("bpf/tailbound/link-{index}-from_guest"));
            if fs::remove_file(link).is_ok() {
                let (code, document) = runtime.call("CHECK", "web", &all[0]);
                assert_eq!((code, &document["code"]), (1, &json!(101)));
                let details = document["details"].as_str().unwrap();
                assert!(
                    details.contains("has no programs of tailbound"),
                    "{details}"
                );
            }
            // Its runtime repairs it by another ADD.
            assert_eq!(runtime.call("ADD", "web", &all[0]).0, 0);
            assert_eq!(runtime.call("CHECK", "web", &all[0]), (0, Value::Null));
            let mut collect = own.clone();
            collect["cni.dev/valid-attachments"] = json!([{"containerID": "db", "ifname": "eth0"}]);
            assert_eq!(runtime.call("GC", "", &collect), (0, Value::Null));
            assert_eq!(runtime.call("CHECK", "web", &all[0]).0, 1);
            assert_eq!(runtime.call("CHECK", "db", &all[1]), (0, Value::Null));
            collect["name"] = json!("others");
            collect["cni.dev/valid-attachments"] = json!([]);
            assert_eq!(runtime.call("GC", "", &collect), (0, Value::Null));
            assert_eq!(runtime.call("CHECK", "db", &all[1]), (0, Value::Null));
            // A namespace that is gone takes its programs along; the end is no error.
            run("ip netns del db");
            assert_eq!(runtime.call("DEL", "db", &all[1]), (0, Value::Null));
            assert!(!runtime.path("bpf/tailbound").exists());
        },
    );
}

#[test]
fn a_pod_that_cannot_be_protected_is_refused_and_stays_as_it_is() {
    sandboxed(
        "a_pod_that_cannot_be_protected_is_refused_and_stays_as_it_is",
        || {
            let Some(runtime) = Runtime::start("refusals of CNI") else {
                return;
            };
            let result = runtime.connect("bridge", "web");
            let before = runtime.lists();
            let refusal = |command: &str, more: &Value, code: u64, sentence: &str| {
                let full = with_result(&runtime.own(more), &result);
                let (exit, document) = runtime.call(command, "web", &full);
                assert_eq!(
                    (exit, document["code"].as_u64()),
                    (1, Some(code)),
                    "{document}"
                );
                let details = document["details"].as_str().unwrap();
                assert!(details.contains(sentence), "{details}");
                assert_eq!(runtime.lists(), before, "{sentence}");
            };
            let annotations = |value: &str| {
                json!({"runtimeConfig": {
                    "io.kubernetes.cri.pod-annotations": {"tailbound/guarantee": value}
                }})
            };
            refusal(
                "ADD",
                &annotations("50Mb"),
                7,
                "tailbound/guarantee: \"50Mb\"",
            );
            refusal(
                "ADD",
                &json!({"limitout": "1Mbit/s"}),
                2,
                "did you mean limitOut?",
            );
            if queue::try_fq().is_err() {
                refusal("ADD", &annotations("50Mbit/s,15KB"), 100, "no fq");
                let bandwidth = json!({"runtimeConfig": {"bandwidth": {"egressRate": 50_000_000}}});
                refusal("ADD", &bandwidth, 100, "no fq");
                refusal(
                    "STATUS",
                    &json!({"capabilities": {"bandwidth": true}}),
                    50,
                    "no fq",
                );
            }
            refusal("STATUS", &json!({"pins": "/tmp"}), 50, "no BPF file system");
            let (code, document) = runtime.call("STATUS", "", &runtime.own(&json!({})));
            assert_eq!((code, document), (0, Value::Null));
            // Its frames pass no interface of the host's own.
            run("ip netns add mac");
            run("ip link add up0 type veth peer name up1");
            run("ip link add link up0 name eth0 netns mac type macvlan");
            let full = with_result(&runtime.own(&json!({})), &json!({}));
            let (code, document) = runtime.call("ADD", "mac", &full);
            assert_eq!((code, &document["code"]), (1, &json!(100)));
            assert!(
                document["details"]
                    .as_str()
                    .unwrap()
                    .contains("is a macvlan"),
                "{document}"
            );
        },
    );
}
