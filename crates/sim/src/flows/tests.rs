use super::*;
use crate::Threads;
use crate::testing::{parse, replaced};
use tailbound_document::testing::assert_refused;
use tailbound_experiment::Experiment as _;
use tailbound_report::Results;

/// Two racks of two hosts of two slots; all tenants arrive together at an empty data centre.
const SMALL: &str = r#"
name = "small"
title = "t"
source = "s"

[[network]]
name = "n"
racks = 2
hosts = 4
slots = 2
host_link = { rate = "10Gbit/s", buffer = "800KB", up_buffer = "62500B" }
rack_link = { rate = "10Gbit/s", buffer = "800KB" }
pod_link = { rate = "10Gbit/s", buffer = "800KB" }

[[class]]
name = "A"
guarantee = { bandwidth = "250Mbit/s", burst = "15KB", delay = "2ms", burst_rate = "1Gbit/s" }
traffic = "all-to-one"
compute = "1s"

[[class]]
name = "B"
guarantee = { bandwidth = "2Gbit/s", burst = "1500B" }
traffic = "permutation"
compute = "1s"

[[point]]
name = "p"
network = "n"
pods = 2
policy = "silo"
mean_vms = 4
requests = 400
warmup = 100
occupancy = 80
"#;

fn small(changes: &[(&str, &str)]) -> String {
    replaced(SMALL, changes)
}

fn run(text: &str, seed: u64, threads: usize) -> Results {
    let loaded = parse::<FlowsExperiment>(text).unwrap();
    loaded.run(seed, &Threads(threads), &mut |_| {}).unwrap()
}

fn value(results: &Results, name: &str) -> f64 {
    results.variants[0].values[name].value
}

fn is_close(one: f64, other: f64) -> bool {
    (one - other).abs() <= 1e-3 * other.abs()
}

#[test]
fn flow_results_depend_on_the_seed_not_on_threads() {
    for policy in ["silo", "locality"] {
        let text = small(&[("\"silo\"", &format!("{policy:?}"))]);
        let one = run(&text, 1, 1);
        assert_eq!(one.to_json(), run(&text, 1, 3).to_json());
        assert_ne!(one.to_json(), run(&text, 2, 1).to_json());
    }
}

#[test]
fn guaranteed_jobs_are_never_faster_than_their_guarantee() {
    let results = run(&small(&[]), 1, 1);
    assert!(value(&results, "stretch") >= 1.0 - 1e-6);
    // All to one: the receiver's bandwidth alone decides, and is fully used.
    assert!(is_close(value(&results, "A_stretch_p99"), 1.0));
    let jobs = results.variants[0].series["jobs"].stats.count;
    assert!(jobs > 100, "{jobs}");
}

#[test]
fn occupancy_matches_the_setting_when_no_tenant_is_refused() {
    // Low demand, so that all tenants fit under any policy.
    let changes = [
        ("bandwidth = \"2Gbit/s\"", "bandwidth = \"1Mbit/s\""),
        ("bandwidth = \"250Mbit/s\"", "bandwidth = \"1Mbit/s\""),
        ("pods = 2", "pods = 50"),
        ("occupancy = 80", "occupancy = 50"),
        ("requests = 400", "requests = 3000"),
        ("warmup = 100", "warmup = 1000"),
    ];
    for policy in ["oktopus", "locality"] {
        let text = small(&changes).replacen("\"silo\"", &format!("{policy:?}"), 1);
        let results = run(&text, 1, 1);
        assert!(value(&results, "refused").abs() < f64::EPSILON);
        let occupancy = value(&results, "occupancy");
        assert!((46.0..54.0).contains(&occupancy), "{policy}: {occupancy}");
    }
}

#[test]
fn fair_sharing_speeds_up_lone_flows_and_slows_crowded_ones() {
    let locality = ("\"silo\"", "\"locality\"");
    let compute = "compute = \"1ms\"\ntransfer = 1000.0";
    let no_compute = ("compute = \"1s\"", compute);
    // A nearly empty data centre: links are faster than guarantees.
    let alone = run(
        &small(&[
            locality,
            no_compute,
            no_compute,
            ("occupancy = 80", "occupancy = 1"),
        ]),
        1,
        1,
    );
    assert!(value(&alone, "stretch") < 0.7);
    let thin = "rack_link = { rate = \"100Mbit/s\"";
    let crowded = run(
        &small(&[locality, ("rack_link = { rate = \"10Gbit/s\"", thin)]),
        1,
        1,
    );
    assert!(value(&crowded, "stretch") > 2.0);
    assert!(value(&crowded, "rack_utilization") > 50.0);
}

#[test]
fn every_embedded_experiment_is_right() {
    for (_, text) in FlowsExperiment::CATALOGUE.embedded {
        parse::<FlowsExperiment>(text).unwrap();
    }
}

#[test]
fn mistakes_are_named_with_their_place() {
    assert_refused(
        SMALL,
        parse::<FlowsExperiment>,
        r#"
network = "n" => network = "m"
    unknown network `m`
requests = 400 => requests = 0
    requests 0: choose 1 to
warmup = 100 => warmup = 400
    nothing is left to measure of 400
mean_vms = 4 => mean_vms = 0.5
    mean_vms 0.5: choose 1 to
pods = 2 => pods = 0
    has no slots
pods = 2 => pods = 4000000000
    more than 4000000
"all-to-one" => "one-to-all"
    one-to-all
compute = "1s" => compute = "1 parsec"
    parsec
compute = "1s" => compute = "0s"
    compute 0ns: choose
racks = 2 => racks = 2\ncolour = 1
    unknown key `colour`
occupancy = 80 => occupancy = 101
    occupancy 101: choose 1 to 100
"#,
    );
}
