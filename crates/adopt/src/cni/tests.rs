use super::call::{Environment, Target};
use super::claim;
use super::config::{self, Config};
use super::error::{CniError, Code};
use super::run;
use crate::request::Request;
use serde_json::{Value, json};
use tailbound_units::{Bytes, Nanos};

fn environment(variables: &[(&str, &str)]) -> Environment {
    let find = |name: &str| {
        let found = variables.iter().find(|(key, _)| *key == name);
        found.map(|(_, value)| (*value).to_owned())
    };
    Environment::read(find).expect("a runtime called")
}

fn target(args: &str) -> Result<Target, CniError> {
    environment(&[
        ("CNI_COMMAND", "ADD"),
        ("CNI_CONTAINERID", "4fa6-1"),
        ("CNI_IFNAME", "eth0"),
        ("CNI_NETNS", "/run/netns/web"),
        ("CNI_ARGS", args),
    ])
    .target()
}

fn config(more: &Value) -> Result<Config, CniError> {
    let mut document = json!({"cniVersion": "1.1.0", "name": "pods", "type": "tailbound-cni"});
    let more = more.as_object().expect("an object").clone();
    document.as_object_mut().expect("an object").extend(more);
    let (keys, version) = config::document(&document.to_string())?;
    Config::read(keys, &version)
}

fn request_of(more: &Value, args: &str) -> Result<Request, CniError> {
    config(more)?.request_of(&target(args)?, None)
}

fn answer(variables: &[(&str, &str)], input: &Value) -> (Value, bool) {
    let (text, is_done) = run(&environment(variables), &input.to_string());
    (serde_json::from_str(&text).expect("JSON"), is_done)
}

#[test]
fn the_tightest_wish_counts() {
    let all = json!({
        "limitOut": "1Gbit/s,30KB",
        "guarantee": "50Mbit/s",
        "capabilities": {"bandwidth": true},
        "runtimeConfig": {
            "bandwidth": {
                "ingressRate": 20_000_000, "ingressBurst": 4_294_967_295_u64,
                "EgressRate": 80_000_000, "EgressBurst": 4_294_967_295_u64
            },
            "io.kubernetes.cri.pod-annotations": {
                "tailbound/limit-out": "100Mbit/s,20KB", "kubernetes.io/egress-bandwidth": "2G"
            }
        }
    });
    let request = request_of(&all, "IgnoreUnknown=1;TAILBOUND_GUARANTEE=40Mbit/s,16KB").unwrap();
    let texts = [request.outward, request.inward, request.guarantee]
        .map(|bucket| bucket.expect("it was wished").to_string());
    // A burst that no person chose is the default one.
    assert_eq!(
        texts,
        [
            "80Mbit/s with a burst of 15KB",
            "20Mbit/s with a burst of 15KB",
            "40Mbit/s with a burst of 16KB"
        ]
    );
    assert!(request.guard);
    let burst =
        json!({"runtimeConfig": {"bandwidth": {"egressRate": 8_000_000, "egressBurst": 800_000}}});
    let outward = request_of(&burst, "").unwrap().outward.unwrap();
    assert_eq!(outward.burst.0, 100_000);
}

#[test]
fn a_pods_claim_is_its_guarantee_from_the_first_frame() {
    let directory = tempfile::tempdir().unwrap();
    let claims = json!({"claims": directory.path()});
    let config = config(&claims).unwrap();
    assert_eq!(config.claims, directory.path());
    let of = |args: &str| claim::guarantee(&config.claims, &target(args).unwrap());
    let write = |name: &str, text: &str| {
        std::fs::write(directory.path().join(name), text).unwrap();
    };
    // Pods without a claim, other containers, and names that would leave the directory.
    write("x.json", "{}");
    for args in [
        "",
        "K8S_POD_UID=3f0c-1",
        "K8S_POD_UID=../x",
        "K8S_POD_UID=x",
    ] {
        assert_eq!(of(args).unwrap(), None, "{args}");
    }
    let right = r#"{"version":1,"pod":"3f0c-1","namespace":"shop","guarantee":"2Gbit/s,70KB"}"#;
    write("3f0c-1.json", right);
    let bucket = of("K8S_POD_UID=3f0c-1").unwrap();
    let request = config.request_of(&target("").unwrap(), bucket).unwrap();
    let guarantee = request.guarantee.unwrap().to_string();
    assert_eq!(guarantee, "2Gbit/s with a burst of 70KB");
    // The claim's packet counts, and the network's does not.
    let counted = right
        .replace(":1,", ":2,")
        .replace("shop\"", "shop\",\"packet\":\"1538B\"");
    write("3f0c-1.json", &counted);
    let claim = of("K8S_POD_UID=3f0c-1").unwrap();
    let request = config.request_of(&target("").unwrap(), claim).unwrap();
    assert_eq!(request.allowance.packet, Some(Bytes(1_538)));
    for (text, why) in [
        ("", "EOF"),
        (&right[..30], "EOF"),
        (
            &right.replace(":1,", ":3,"),
            "install the plugin of the driver's release",
        ),
        (
            &right.replace("3f0c-1", "3f0c-2"),
            "it is that of pod 3f0c-2",
        ),
        (&right.replace("2Gbit/s", "fast"), "fast"),
        (&counted.replace("1538B", "1KB"), "packet: "),
    ] {
        write("3f0c-1.json", text);
        let error = of("K8S_POD_UID=3f0c-1").expect_err(why).document("1.1.0");
        assert!(
            error.contains(why) && error.contains("3f0c-1.json"),
            "{error}"
        );
    }
}

#[test]
fn a_network_counts_with_a_lateness_and_its_containers_do_not() {
    let counted = json!({"lateness": "100us", "packet": "1538B", "guarantee": "1Gbit/s"});
    let request = request_of(&counted, "").unwrap();
    assert_eq!(request.allowance.packet, Some(Bytes(1_538)));
    assert_eq!(request.allowance.lateness, Some(Nanos::from_micros(100)));
    let args = "TAILBOUND_LATENESS=1s";
    assert!(request_of(&json!({"lateness": "100us"}), args).is_err());
}

#[test]
fn a_wish_that_is_not_understood_is_one_error_with_its_place() {
    let runtime = |key: &str, value: Value| json!({"runtimeConfig": {key: value}});
    let annotations = "io.kubernetes.cri.pod-annotations";
    for (more, args, code, sentence) in [
        (json!({"limitOut": "fast"}), "", 7, "limitOut: \"fast\""),
        (json!({"limitOut": 7}), "", 7, "100Mbit/s"),
        (
            json!({"limitout": "1Mbit/s"}),
            "",
            2,
            "did you mean limitOut?",
        ),
        (json!({"guard": "no"}), "", 7, "true or false"),
        (json!({"lateness": 100}), "", 7, "lateness: 100: write"),
        (json!({"lateness": "100"}), "", 7, "100us"),
        (json!({"packet": "1KB"}), "", 7, "packet: \"1KB\": "),
        (json!({"dscp": 64}), "", 7, "0 to 63"),
        (
            runtime("bandwidth", json!({"egressRate": -1})),
            "",
            7,
            "egressRate: -1",
        ),
        (
            runtime("bandwidth", json!({"egressRate": 7})),
            "",
            7,
            "below 8 kbit/s",
        ),
        (
            runtime(
                "bandwidth",
                json!({"egressRate": 8_000_000, "egressBurst": 8}),
            ),
            "",
            7,
            "below one frame",
        ),
        (
            runtime(annotations, json!({"tailbound/limit_out": "1Gbit/s"})),
            "",
            7,
            "limit-out",
        ),
        (
            runtime(annotations, json!({"tailbound/guarantee": "1Gb"})),
            "",
            7,
            "1Gb",
        ),
        (json!({}), "TAILBOUND_LIMIT=1Mbit/s", 4, "LIMIT_OUT"),
        (json!({}), "TAILBOUND_LIMIT_IN=1Mb", 4, "1Mb"),
        (json!({}), "TAILBOUND", 4, "NAME=VALUE"),
    ] {
        let error = request_of(&more, args).expect_err(sentence);
        assert_eq!(error.code as u16, code, "{more} {args}: {error}");
        assert!(
            error.to_string().contains(sentence),
            "{more} {args}: {error}"
        );
    }
}

#[test]
fn a_container_has_the_key_of_the_hosts_other_commands() {
    let pod = "K8S_POD_UID=3f0c;K8S_POD_NAME=cart-0;K8S_POD_NAMESPACE=shop";
    let pod = target(pod).unwrap();
    assert_eq!(
        (pod.key().as_str(), pod.name().as_str()),
        ("pod/3f0c", "shop/cart-0")
    );
    let second = Target {
        interface: "net1".into(),
        ..pod
    };
    assert_eq!(second.key(), "pod/3f0c/net1");
    let id = "4fa6".repeat(16);
    let plain = Target {
        container: id,
        interface: "eth0".into(),
        ..target("").unwrap()
    };
    assert_eq!(
        (plain.key().as_str(), plain.name().as_str()),
        ("container/4fa64fa64fa6", "4fa64fa64fa6")
    );
    assert_eq!(target("").unwrap().key(), "container/4fa6-1");
}

#[test]
fn addresses_are_those_of_the_containers_interface() {
    let result = json!({"prevResult": {
        "interfaces": [
            {"name": "eth0"}, {"name": "eth0", "sandbox": "/run/netns/web"}, {"name": "net1", "sandbox": "x"}
        ],
        "ips": [
            {"address": "10.1.0.2/24", "interface": 1},
            {"address": "10.1.0.3/24", "interface": 2},
            {"address": "fd00::2/64"},
            {"address": "nonsense", "interface": 1}
        ]
    }});
    let addresses = config(&result).unwrap().addresses("eth0");
    let texts: Vec<_> = addresses.iter().map(ToString::to_string).collect();
    assert_eq!(texts, ["10.1.0.2", "fd00::2"]);
}

#[test]
fn errors_are_documents_with_the_specifications_numbers() {
    let right = json!({"cniVersion": "1.0.0", "name": "pods", "type": "tailbound-cni"});
    let full = [
        ("CNI_COMMAND", "ADD"),
        ("CNI_CONTAINERID", "a"),
        ("CNI_IFNAME", "eth0"),
        ("CNI_NETNS", "/run/netns/none"),
    ];
    let with = |name: &str, value: &'static str| {
        full.map(|(key, old)| (key, if key == name { value } else { old }))
    };
    let mut unknown = right.clone();
    unknown["cniVersion"] = json!("9.0.0");
    let mut nameless = right.clone();
    nameless["name"] = json!("");
    for (variables, input, code, sentence) in [
        (
            full,
            right.clone(),
            Code::Configuration,
            "prevResult is missing",
        ),
        (full, unknown, Code::Version, "9.0.0"),
        (full, nameless, Code::Configuration, "name"),
        (
            with("CNI_COMMAND", "MOVE"),
            right.clone(),
            Code::Environment,
            "MOVE",
        ),
        (
            with("CNI_CONTAINERID", "../a"),
            right.clone(),
            Code::Environment,
            "CNI_CONTAINERID",
        ),
        (
            with("CNI_CONTAINERID", ""),
            right.clone(),
            Code::Environment,
            "not set",
        ),
        (
            with("CNI_IFNAME", "a/b"),
            right.clone(),
            Code::Environment,
            "CNI_IFNAME",
        ),
        (
            with("CNI_IFNAME", "abcdefghijklmnop"),
            right.clone(),
            Code::Environment,
            "15 bytes",
        ),
        (
            with("CNI_COMMAND", "GC"),
            right,
            Code::Configuration,
            "valid-attachments",
        ),
    ] {
        let (document, is_done) = answer(&variables, &input);
        assert!(!is_done);
        assert_eq!(document["code"], code as u16, "{document}");
        assert_eq!(document["cniVersion"], input["cniVersion"]);
        assert!(
            document["details"].as_str().unwrap().contains(sentence),
            "{document}"
        );
        assert!(document["msg"].is_string());
    }
}

#[test]
fn invalid_json_is_one_cni_error() {
    let called = environment(&[("CNI_COMMAND", "ADD")]);
    let (text, is_done) = run(&called, "{");
    assert!(!is_done && text.contains("\"code\": 6"), "{text}");
}

#[test]
fn the_version_is_answered_without_a_configuration() {
    let variables = [("CNI_COMMAND", "VERSION")];
    let (document, is_done) = answer(&variables, &json!({"cniVersion": "0.4.0"}));
    assert!(is_done);
    assert_eq!(document["cniVersion"], "0.4.0");
    let versions = document["supportedVersions"].as_array().unwrap();
    assert!(versions.contains(&json!("1.1.0")) && versions.contains(&json!("0.3.1")));
}

#[test]
fn del_and_gc_succeed_for_containers_never_added() {
    let directory = tempfile::tempdir().expect("a directory");
    let state = directory.path().join("none");
    let config = json!({
        "cniVersion": "1.1.0", "name": "pods", "type": "tailbound-cni", "state": state,
        "limitOut": "nonsense", "cni.dev/valid-attachments": null
    });
    let full = [("CNI_CONTAINERID", "a"), ("CNI_IFNAME", "eth0")];
    for command in ["DEL", "GC"] {
        let variables = [&full[..], &[("CNI_COMMAND", command)]].concat();
        let done = run(&environment(&variables), &config.to_string());
        assert_eq!(done, (String::new(), true), "{command}");
    }
    assert!(!state.exists(), "nothing is made for nothing");
}
