//! Tenants with guarantees, and the attribution of messages' times.

use super::*;
use crate::packets::attribution::{NAMES, PARTS, of_slowest};
use crate::packets::tenants::Centre;
use crate::packets::topology::Topology;
use proptest::prelude::*;
use tailbound_placement::Policy;

/// Ten hosts in two racks, with tenants of two classes whose machines all send to one, and some
/// without a guarantee.
fn centre(mean_vms: f64, burst: u64, load: f64, settings: &str) -> Messages {
    messages(&text(mean_vms, burst, load, settings))
}

/// The same hosts, and the machines of all tenants send to each other.
fn shuffles(mean_vms: f64, burst: u64, load: f64) -> Messages {
    messages(&text(mean_vms, burst, load, &silo()).replace("all-to-one", "all-to-all"))
}

fn text(mean_vms: f64, burst: u64, load: f64, settings: &str) -> String {
    format!(
        r#"
[messages]
duration = "40ms"
warm_up = "12ms"
[messages.racks]
racks = 2
hosts = 5
slots = 2
host_link = {{ rate = "10Gbit/s", buffer = "312500B", up_buffer = "62500B" }}
rack_link = {{ rate = "10Gbit/s", buffer = "312500B" }}
delay = "1us"
inside = {{ rate = "40Gbit/s", delay = "2us" }}
[messages.tenants]
mean_vms = {mean_vms:?}
most_vms = 12
occupancy = 90
refusals = 50
[[messages.tenants.class]]
name = "a"
weight = 2
guarantee = {{ bandwidth = "250Mbit/s", burst = "{burst}B", delay = "1ms", burst_rate = "1Gbit/s" }}
varied = true
pattern = "all-to-one"
message = "burst"
load = {load:?}
[[messages.tenants.class]]
name = "b"
guarantee = {{ bandwidth = "1Gbit/s", burst = "1538B" }}
varied = true
pattern = "all-to-one"
message = {{ time = "1ms" }}
load = 0.8
[[messages.tenants.class]]
name = "rest"
guarantee = {{ bandwidth = "1Gbit/s", burst = "1538B" }}
best_effort = true
pattern = "all-to-all"
message = {{ fixed = "30KB" }}
load = 1.0
{settings}
"#
    )
}

const TRANSPORT: &str =
    r#"transport = { least_timeout = "10ms", delayed_ack = "1ms", restarts = false }"#;

fn silo() -> String {
    format!(
        "[[messages.setting]]\nname = \"silo\"\npolicy = \"silo\"\npacer = {{}}\n{TRANSPORT}\n\
         switches = {{ classes = 2, apart = true }}\n"
    )
}

fn outcome(messages: &Messages, seed: u64) -> Outcome {
    messages.simulate(&messages.setting[0], seed).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 6, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn no_guaranteed_frame_passes_its_bound(
        seed in any::<u64>(),
        mean_vms in 3.0..8.0_f64,
        burst in 1_538..40_000_u64,
        load in 0.2..1.0_f64,
    ) {
        let text = text(mean_vms, burst, load, &silo());
        let several = with_links(&inward(&text).replace("racks = 2\nhosts = 5", "racks = 5\nhosts = 2"));
        for messages in [messages(&text), shuffles(mean_vms, burst, load), several] {
            let outcome = outcome(&messages, seed);
            let tenants = outcome.tenants.unwrap();
            let kept = tenants.kept;
            prop_assert_eq!((kept.over_bound, kept.over_delay), (0, 0), "{:?}", kept);
            prop_assert_eq!((tenants.late_hosts, tenants.refused_rates), (0, 0));
        }
    }
}

#[test]
fn guaranteed_frames_arrive_within_but_close_to_their_bounds() {
    let outcome = outcome(&centre(5.0, 15_000, 0.5, &silo()), 8);
    let kept = outcome.tenants.unwrap().kept;
    assert!(kept.frames > 300, "{kept:?}");
    assert!(kept.nearest > 0.2 && kept.nearest <= 1.0, "{kept:?}");
}

/// The parts of a message's time sum up to it, also after losses.
#[test]
fn a_messages_latency_parts_sum_to_its_time() {
    let lossy = messages(&format!(
        r#"{STAR}
queries = {{ every = "300us", question = "20KB", answer = {{ empirical = "web-search" }} }}
[[messages.setting]]
name = "one"
transport = {{ least_timeout = "1ms" }}
switches = {{ buffer = "20KB" }}
"#
    ));
    let mut outcome = outcome(&lossy, 1);
    assert!(outcome.totals.timeouts > 0 && outcome.totals.dropped > 100);
    for record in &outcome.records {
        let parts = record.parts.0.iter().map(|part| u64::from(*part));
        assert_eq!(parts.sum::<u64>(), record.took);
    }
    // The slowest messages wait for retransmissions or other messages, and not in a queue of 20 KB:
    // 160 us.
    let parts = of_slowest(&mut outcome.records, 100);
    let part = |name: &str| parts[NAMES.iter().position(|it| *it == name).unwrap()];
    let sum: f64 = parts.iter().sum();
    assert!(part("resending") + part("window") > 0.9 * sum, "{parts:?}");
    assert!(part("to_host") < 330_000.0, "{parts:?}");
    assert_eq!(parts.len(), PARTS);
}

/// Without other messages, all time is the host's queue, which holds the message's own frames, and
/// the wire's.
#[test]
fn a_lone_messages_time_is_its_wire_and_own_queue() {
    let alone = messages(&format!(
        r#"{STAR}
flows = {{ every = "40ms", sizes = {{ fixed = "10000B" }} }}
[[messages.setting]]
name = "one"
"#
    ));
    let outcome = outcome(&alone, 3);
    for record in &outcome.records {
        let [host, .., wire, window, resending, sender, ring, vcpu] = record.parts.0;
        // Six of 1538 B before the last of 1402 B; two wires of it and two links.
        assert_eq!(host, 6 * 12_304);
        assert!(wire.abs_diff(2 * 11_216 + 40_000) < 4, "{wire}");
        assert_eq!((window, resending, sender, ring, vcpu), (0, 0, 0, 0, 0));
    }
}

/// The same messages count, and hosts send no others once these are complete.
#[test]
fn stopped_tenant_rounds_send_only_the_counted_messages() {
    let sent = |stops: bool| {
        let mut any = centre(5.0, 40_000, 1.0, &silo());
        (any.warm_up, any.duration) = (Nanos::ZERO, Nanos::from_millis(14));
        any.stops = stops;
        let outcome = outcome(&any, 8);
        assert_eq!(outcome.begun, outcome.ended);
        let bytes: u64 = outcome.messages().map(|it| it.size.0).sum();
        (outcome.begun, outcome.totals.sent as f64 / bytes as f64)
    };
    let (stopped, went_on) = (sent(true), sent(false));
    assert_eq!(stopped.0, went_on.0);
    assert!(stopped.1 < 0.98 * went_on.1, "{stopped:?}, {went_on:?}");
}

/// All messages are received, with figures that follow from the seed.
#[test]
fn a_seed_is_one_result_of_tenants() {
    let settings = format!(
        "{}[[messages.setting]]\nname = \"tcp\"\npolicy = \"locality\"\n{TRANSPORT}\n",
        silo()
    );
    let messages = centre(5.0, 15_000, 0.5, &settings);
    let figures = |setting: usize| {
        let outcome = messages.simulate(&messages.setting[setting], 7).unwrap();
        assert_eq!(outcome.begun, outcome.ended);
        (
            outcome.begun,
            outcome.totals.packets,
            outcome.totals.dropped,
        )
    };
    assert_eq!((figures(0), figures(1)), (figures(0), figures(1)));
    assert_eq!(figures(0), GOLDEN[0]);
    assert_eq!(figures(1), GOLDEN[1]);
}

/// Messages, packet events and losses of seed 7.
const GOLDEN: [(u64, u64, u64); 2] = [(1_049, 71_833, 6), (1_049, 67_887, 0)];

/// Racks with three links above each, of which a flow takes one.
fn with_links(text: &str) -> Messages {
    messages(&text.replace(
        "rack_link = { rate = \"10Gbit/s\"",
        "rack_link = { links = 3, rate = \"10Gbit/s\"",
    ))
}

/// Messages that are a part of an inward burst of three bursts.
fn inward(text: &str) -> String {
    text.replace("message = \"burst\"", "message = \"inward\"")
        .replace("refusals = 50", "refusals = 50\ninward_bursts = 3")
}

/// The same tenants as Silo admits, for all policies.
fn admitted_by_silo(text: &str) -> String {
    text.replace("refusals = 50", "refusals = 50\nadmitted_by = \"silo\"")
}

fn placed(messages: &Messages, policy: Policy) -> Centre {
    let Topology::Racks(racks) = messages.topology() else {
        panic!("tenants are in racks");
    };
    messages.tenants.as_ref().unwrap().place(&racks, policy, 7)
}

#[test]
fn all_policies_get_the_same_tenants_and_place_them_by_their_own_rules() {
    let messages = messages(&admitted_by_silo(&text(5.0, 15_000, 0.5, &silo())));
    let silo = placed(&messages, Policy::Silo);
    assert!(silo.tenants.len() >= 3, "{}", silo.tenants.len());
    for policy in [Policy::Locality, Policy::Oktopus, Policy::OktopusBursts] {
        let other = placed(&messages, policy);
        assert!(other.has_own_places);
        assert_eq!((other.asked, other.refused), (silo.asked, silo.refused));
        assert_eq!(other.datacentre.policy(), policy);
        let traffic = |centre: &Centre| -> Vec<_> {
            let tenants = centre.tenants.iter();
            tenants
                .map(|it| (it.guarantee, it.pairs.clone(), it.size, it.first))
                .collect()
        };
        assert_eq!(traffic(&other), traffic(&silo));
    }
}

#[test]
fn tenants_that_a_policy_cannot_place_are_where_the_admitting_one_placed_them() {
    // No switch's queue is as short as this delay.
    let text = text(5.0, 15_000, 0.5, &silo()).replace("delay = \"1ms\"", "delay = \"100us\"");
    let text = text.replace("refusals = 50", "refusals = 50\nadmitted_by = \"locality\"");
    let messages = messages(&text);
    let (locality, silo) = (
        placed(&messages, Policy::Locality),
        placed(&messages, Policy::Silo),
    );
    assert!(locality.has_own_places && !silo.has_own_places);
    assert_eq!(silo.tenants.len(), locality.tenants.len());
    for (there, here) in locality.tenants.iter().zip(&silo.tenants) {
        assert_eq!(there.machines, here.machines);
    }
}

/// Each sender's message is its part of the receiver's inward burst.
#[test]
fn a_round_of_inward_messages_is_one_inward_burst() {
    let centre = placed(
        &messages(&inward(&text(8.0, 15_000, 0.5, &silo()))),
        Policy::Silo,
    );
    let of_a = centre.tenants.iter().filter(|tenant| tenant.class == 0);
    let mut divided = 0;
    for tenant in of_a {
        let others = (tenant.machines.len() - 1) as u64;
        let part = tenant.guarantee.burst_in.unwrap().0 / others;
        let whole = tenant.guarantee.burst.0;
        assert!(tenant.size <= part.min(whole), "{tenant:?}");
        divided += u32::from(part < whole);
    }
    assert!(divided > 0, "a part is less than the burst");
}

/// Flows keep their link, and the links together carry the rack's traffic.
#[test]
fn flows_take_each_link_of_a_rack_and_keep_it() {
    let messages = with_links(&text(5.0, 15_000, 0.5, &silo()));
    let topology = messages.topology();
    let (hosts, racks, links) = (10, 2, 3);
    let ports = topology.ports().len();
    assert_eq!(ports, 2 * hosts + 2 * racks * links + hosts);
    let mut used = std::collections::BTreeSet::new();
    for hash in 0..60 {
        let way = |hash| {
            let mut way = Vec::new();
            topology.way(0, 9, hash, &mut way);
            way
        };
        assert_eq!(way(hash), way(hash + links as u64));
        let [own, up, down, last] = way(hash)[..] else {
            panic!("four ports");
        };
        assert_eq!((own, last), (0, hosts + 9));
        assert_eq!(up - 2 * hosts, down - 2 * hosts - racks * links - links);
        used.extend([up, down]);
    }
    assert_eq!(used.len(), 2 * links);
}

#[test]
fn tenant_mistakes_are_reported() {
    let setting = "[[messages.setting]]\nname = \"one\"\npacer = {}\n";
    let load = "flows = { every = \"1ms\", sizes = { fixed = \"1KB\" } }\n";
    let told = refused(&format!("{STAR}{load}{setting}"));
    assert!(told.contains("there are no tenants"), "{told}");
    let tenants = "[messages.tenants]\nmean_vms = 0.5\nmost_vms = 9\noccupancy = 101\n\
                   refusals = 9\nclass = []\n";
    let told = refused(&format!("{STAR}{tenants}{setting}"));
    for part in [
        "tenants are placed in `racks`",
        "mean_vms 0.5",
        "occupancy 101",
    ] {
        assert!(told.contains(part), "{told}");
    }
    let good = text(5.0, 15_000, 0.5, &silo());
    let no_limit = good.replace("message = \"burst\"", "message = \"inward\"");
    let told = refused(&no_limit);
    assert!(told.contains("write `inward_bursts`"), "{told}");
    let by_frame = good.replace(
        "rack_link = { rate",
        "rack_link = { links = 3, spread = \"frame\", rate",
    );
    let told = refused(&by_frame);
    assert!(told.contains("write `spread = \"flow\"`"), "{told}");
}
