//! Tenants in delay classes: the hosts' pacers mark and order their frames, and switches have a
//! queue for each class.

use super::*;
use tailbound_units::Rate;

const LINK: Rate = Rate::from_mbit(10_000);
/// A full frame on the wire.
const FRAME: u64 = 1_538;

/// One rack of 10 Gbit/s with 800 KB at each port, and one delay class of 50 us.
const RACK: &str = r#"
[messages]
duration = "60ms"
warm_up = "12ms"
[messages.racks]
racks = 1
host_link = { rate = "10Gbit/s", buffer = "800KB", up_buffer = "62500B" }
rack_link = { rate = "10Gbit/s", buffer = "800KB" }
delay = "1us"
inside = { rate = "40Gbit/s", delay = "2us" }
delay_class = [{ queue = "50us", mark = { dscp = 48, pcp = 6 } }]
"#;

/// Silo's class A with a delay below that of the ports' buffers.
const CLASS_A: &str = r#"
[[messages.tenants.class]]
name = "a"
guarantee = { bandwidth = "250Mbit/s", burst = "15KB", delay = "100us", burst_rate = "1Gbit/s", bursts = 1 }
pattern = "all-to-one"
message = "burst"
load = 0.9
"#;

fn setting(name: &str, more: &str) -> String {
    format!(
        "[[messages.setting]]\nname = \"{name}\"\npacer = {{}}\n\
         switches = {{ classes = 3, apart = true }}\n{more}\n"
    )
}

/// A tenant of three machines on three hosts, in an empty rack.
fn three_machines(rack: &str) -> Outcome {
    let any = messages(&format!(
        "{rack}hosts = 3\nslots = 1\n[messages.tenants]\nmean_vms = 10000.0\nmost_vms = 3\n\
         occupancy = 100\nrefusals = 1\n{CLASS_A}{}",
        setting("one", "")
    ));
    any.simulate(&any.setting[0], 1).unwrap()
}

#[test]
fn three_machines_of_class_a_keep_a_delay_of_100_us_in_an_empty_rack() {
    let outcome = three_machines(RACK);
    assert_eq!((outcome.begun, outcome.totals.dropped), (outcome.ended, 0));
    let tenants = outcome.tenants.unwrap();
    let kept = tenants.kept;
    println!("{kept:?}");
    assert!(kept.frames > 500, "{kept:?}");
    assert_eq!((kept.over_bound, kept.over_delay), (0, 0), "{kept:?}");
    assert_eq!((tenants.late_hosts, tenants.lost_in_hosts), (0, 0));
}

/// By the ports' buffers the same delay cannot be promised.
#[test]
fn a_rack_without_delay_classes_refuses_a_delay_below_its_buffers() {
    let (rack, _) = RACK.split_once("delay_class").expect("there is one");
    assert_eq!(three_machines(&format!("{rack}\n")).begun, 0);
}

/// Many tenants of class A, others with a delay of the whole buffers, and best effort. Each tenant of
/// three machines shares a host of two slots with another one.
fn full_rack(settings: &str) -> Messages {
    messages(&format!(
        r#"{RACK}hosts = 40
slots = 2
[messages.tenants]
mean_vms = 10000.0
most_vms = 3
occupancy = 100
refusals = 40
{CLASS_A}
[[messages.tenants.class]]
name = "low"
guarantee = {{ bandwidth = "500Mbit/s", burst = "30KB", delay = "1ms", burst_rate = "10Gbit/s", bursts = 1 }}
pattern = "all-to-one"
message = "burst"
load = 0.9
[[messages.tenants.class]]
name = "rest"
guarantee = {{ bandwidth = "1Gbit/s", burst = "1538B" }}
best_effort = true
pattern = "all-to-all"
message = {{ fixed = "30KB" }}
load = 1.0
{settings}"#
    ))
}

#[test]
fn no_frame_of_tenants_in_several_classes_is_above_its_bound() {
    for (transport, seed) in [("tcp", 1), ("udp", 2), ("tcp", 3)] {
        let transport = format!("transport = {{ protocol = \"{transport}\" }}");
        let any = full_rack(&setting("all", &transport));
        let outcome = any.simulate(&any.setting[0], seed).unwrap();
        let tenants = outcome.tenants.unwrap();
        let kept = tenants.kept;
        println!("{kept:?}");
        assert!(kept.frames > 3_000 && kept.nearest > 0.2, "{kept:?}");
        assert_eq!((kept.over_bound, kept.over_delay), (0, 0), "{kept:?}");
        assert_eq!((tenants.late_hosts, tenants.refused_rates), (0, 0));
    }
}

/// The waits before a host's port of the last frames of class A's messages over wires.
fn waits(outcome: &Outcome) -> Vec<u64> {
    let place = NAMES
        .iter()
        .position(|it| *it == "to_host")
        .expect("a part");
    let records = outcome.records.iter();
    let of_class_a = records.filter(|it| it.size < 20_000 && it.hosts.0 != it.hosts.1);
    of_class_a.map(|it| u64::from(it.parts.0[place])).collect()
}

#[test]
fn lower_classes_delay_a_higher_one_by_a_frame_at_each_port() {
    let udp = "transport = { protocol = \"udp\" }\n";
    let quiet = format!("{udp}quiet = [\"low\", \"rest\"]");
    let any = full_rack(&(setting("all", udp) + &setting("alone", &quiet)));
    let frame = LINK.time_for(tailbound_units::Bytes(FRAME)).0;
    let mut sums = [0, 0];
    for seed in 1..4 {
        let [all, alone] = [0, 1].map(|setting| {
            let outcome = any.simulate(&any.setting[setting], seed).unwrap();
            let waits = waits(&outcome);
            sums[setting] += waits.iter().sum::<u64>();
            assert!(waits.len() > 100, "{}", waits.len());
            waits.into_iter().max().unwrap_or(0)
        });
        println!("longest wait {all} ns, {alone} ns without lower classes");
        // At the sender's uplink and at the port.
        assert!(all <= alone + 2 * frame, "{all} {alone}");
    }
    println!("in all {sums:?}");
    assert!(
        sums[0] > sums[1],
        "no frame waited for a lower class: {sums:?}"
    );
}

#[test]
fn a_switch_without_a_queue_for_each_delay_class_is_refused() {
    let settings = setting("few", "").replace("classes = 3", "classes = 2");
    let told = refused(&format!(
        "{RACK}hosts = 3\nslots = 1\n[messages.tenants]\nmean_vms = 3.0\nmost_vms = 3\n\
         occupancy = 100\nrefusals = 1\n{CLASS_A}{settings}"
    ));
    assert!(told.contains("2 classes for 1 of `delay_class`"), "{told}");
}
