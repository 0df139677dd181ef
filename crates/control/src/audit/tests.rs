use super::traffic::{Crossing, follow};
use super::*;
use crate::ledger::testing::{TREE, create};
use crate::ledger::{Call, Command, Hosts, KeyId, KeyRecord, Ledger, ReceivedReport, Reply};
use proptest::prelude::*;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tailbound_api::{HostState, Tenant, TopologyState};
use tailbound_placement::{CpuReservation, NodeId, Policy, PortId, Spec, TenantId, Topology};
use tailbound_units::Nanos;

/// Hosts in a rack, in another one of a pod, and directly below the core; all
/// queues are different.
const UNEVEN: &str = r#"
    frame = "1538B"
    [[group]]
    name = "pod"
    uplink = { rate = "100Gbit/s", buffer = "500KB", up_buffer = "411KB" }
    [[group]]
    name = "left"
    parent = "pod"
    uplink = { rate = "40Gbit/s", links = 2, spread = "frame", buffer = "503KB" }
    [[group]]
    name = "right"
    parent = "pod"
    uplink = { rate = "40Gbit/s", buffer = "307KB", up_buffer = "203KB" }
    [[host]]
    name = "a"
    group = "left"
    count = 2
    slots = 8
    uplink = { rate = "10Gbit/s", buffer = "300KB", up_buffer = "62500B" }
    [[host]]
    name = "b"
    group = "left"
    slots = 8
    lateness = "70us"
    uplink = { rate = "25Gbit/s", buffer = "311KB", up_buffer = "150KB" }
    [[host]]
    name = "c"
    group = "right"
    count = 2
    slots = 8
    lateness = "9us"
    uplink = { rate = "10Gbit/s", buffer = "313KB", up_buffer = "71KB" }
    [[host]]
    name = "d"
    count = 2
    slots = 8
    uplink = { rate = "40Gbit/s", buffer = "617KB", up_buffer = "99KB" }
"#;

fn topology(text: &str) -> Topology {
    Spec::from_toml(text).unwrap().build().unwrap()
}

/// The same as [`follow`], from all pairs of hosts.
fn all_pairs(topology: &Topology, hosts: &[(NodeId, u32)]) -> (Vec<Crossing>, Nanos) {
    let mut found: BTreeMap<PortId, (BTreeSet<NodeId>, Nanos)> = BTreeMap::new();
    let mut longest = Nanos::ZERO;
    for (from, _) in hosts {
        for (to, _) in hosts {
            let path = topology.path(*from, *to);
            let lateness = topology.lateness(*from).filter(|_| !path.is_empty());
            let mut waited = lateness.unwrap_or_default();
            for port in path {
                let entry = found.entry(port).or_default();
                entry.0.insert(*from);
                entry.1 = entry.1.max(waited);
                waited += topology.port(port).capacity;
            }
            longest = longest.max(waited);
        }
    }
    let count = |from: &NodeId| {
        let host = hosts.iter().find(|(host, _)| host == from);
        u64::from(host.unwrap().1)
    };
    let crossings = found.into_iter().map(|(port, (senders, waited))| Crossing {
        port,
        senders: senders.iter().map(count).sum(),
        waited,
        late: senders
            .iter()
            .any(|host| topology.lateness(*host).is_some()),
    });
    (crossings.collect(), longest)
}

/// A ledger with as many tenants of random sizes as there is room for.
fn filled(text: &str, policy: Policy, sizes: &[u32]) -> Ledger {
    let (mut ledger, _) = Ledger::new(Spec::from_toml(text).unwrap(), policy).unwrap();
    for (number, vms) in sizes.iter().enumerate() {
        let call = Call {
            key: Some(format!("key-{number}")),
            ..create("acme", &format!("web-{number}"), *vms)
        };
        let _ = ledger.decide(&call, Nanos(1));
    }
    ledger
}

/// A tree with two delay classes whose queues take these microseconds.
fn in_classes(text: &str, micros: [u64; 2]) -> Spec {
    let [one, two] = micros;
    let text = format!(
        r#"{text}
        [[delay_class]]
        queue = "{one}us"
        mark = {{ dscp = 56, pcp = 7 }}
        [[delay_class]]
        queue = "{two}us"
        mark = {{ dscp = 48, pcp = 6 }}
        "#
    );
    Spec::from_toml(&text).unwrap()
}

fn findings(snapshot: &Snapshot) -> Vec<String> {
    let findings = audit(snapshot).findings;
    findings.iter().map(ToString::to_string).collect()
}

/// With other rules from now on.
fn under(snapshot: &mut Snapshot, policy: Policy) {
    let state = snapshot.topology.as_ref().unwrap();
    snapshot.topology = Some(Arc::new(TopologyState {
        policy,
        ..TopologyState::clone(state)
    }));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn traffic_is_followed_as_between_all_pairs(
        counts in proptest::collection::vec(0_u32..5, 7),
    ) {
        let topology = topology(UNEVEN);
        let hosts: Vec<(NodeId, u32)> = topology
            .hosts()
            .iter()
            .copied()
            .zip(counts)
            .filter(|(_, count)| *count > 0)
            .collect();
        let (mut crossings, longest) = follow(&topology, &hosts);
        crossings.sort_by_key(|crossing| crossing.port);
        prop_assert_eq!((crossings, longest), all_pairs(&topology, &hosts));
    }

    #[test]
    fn tenants_that_the_ledger_admits_pass_the_audit(
        uneven in any::<bool>(),
        sizes in proptest::collection::vec(1_u32..14, 1..20),
        policy in prop_oneof![
            Just(Policy::Silo), Just(Policy::Oktopus), Just(Policy::OktopusBursts),
        ],
    ) {
        let text = if uneven { UNEVEN } else { TREE };
        let ledger = filled(text, policy, &sizes);
        let report = audit(&ledger.snapshot());
        prop_assert_eq!(&report.findings, &[]);
        prop_assert_eq!(report.tenants, report.keys);
    }

    /// Of all delay classes together, also with queues of the classes that get shorter later.
    #[test]
    fn the_audit_passes_delay_classes_and_finds_shortened_queues(
        uneven in any::<bool>(),
        sizes in proptest::collection::vec((2_u32..9, 20_u64..700), 4..24),
    ) {
        let text = if uneven { UNEVEN } else { TREE };
        let (mut ledger, _) = Ledger::new(in_classes(text, [10, 19]), Policy::Silo).unwrap();
        for (number, (vms, micros)) in sizes.iter().enumerate() {
            let mut call = create("acme", &format!("web-{number}"), *vms);
            if let Command::Create(new) = &mut call.command {
                let guarantee = new.guarantee.as_mut().unwrap();
                guarantee.delay = Some(Nanos::from_micros(*micros));
            }
            let _ = ledger.decide(&call, Nanos(1));
        }
        let mut snapshot = ledger.snapshot();
        prop_assert_eq!(findings(&snapshot), Vec::<String>::new());
        let again = Ledger::load(snapshot.clone()).unwrap();
        prop_assert!(again.over().is_empty());
        let mut state = TopologyState::clone(snapshot.topology.as_ref().unwrap());
        state.spec = in_classes(text, [3, 4]);
        snapshot.topology = Some(Arc::new(state));
        let found = findings(&snapshot);
        let over = Ledger::load(snapshot).unwrap().over();
        for finding in found.iter().filter(|it| it.starts_with("port")) {
            let port = finding.split(": ").next().unwrap();
            prop_assert!(over.iter().any(|it| it.starts_with(port)), "{finding}: {over:?}");
        }
    }

    /// Tenants that were admitted by other rules stay, and overloaded ports admit no others. The
    /// placement's sums are never below the exact ones.
    #[test]
    fn tenants_over_capacity_are_kept_and_their_ports_reported(
        uneven in any::<bool>(),
        sizes in proptest::collection::vec(1_u32..30, 1..20),
    ) {
        let text = if uneven { UNEVEN } else { TREE };
        let mut snapshot = filled(text, Policy::Locality, &sizes).snapshot();
        prop_assert_eq!(findings(&snapshot), Vec::<String>::new());
        under(&mut snapshot, Policy::Silo);
        let (tenants, found) = (snapshot.tenants.clone(), findings(&snapshot));
        let mut ledger = Ledger::load(snapshot).unwrap();
        let over = ledger.over();
        for finding in found {
            let port = finding.split(": ").next().unwrap();
            prop_assert!(over.iter().any(|it| it.starts_with(port)), "{finding}: {over:?}");
        }
        let _ = ledger.decide(&create("acme", "another", 9), Nanos(2));
        prop_assert!(ledger.over().len() <= over.len());
        let after = ledger.snapshot().tenants;
        prop_assert!(tenants.iter().all(|(id, tenant)| after.get(id) == Some(tenant)));
    }
}

#[test]
fn a_port_over_its_capacity_is_found() {
    let mut snapshot = filled(TREE, Policy::Locality, &[30, 8]).snapshot();
    assert_eq!(findings(&snapshot), [""; 0]);
    let (id, tenant) = snapshot.tenants.pop_first().unwrap();
    let mut bursts = Tenant::clone(&tenant);
    let guarantee = bursts.request.guarantee.as_mut().unwrap();
    guarantee.burst = tailbound_units::Bytes(30_000);
    snapshot.tenants.insert(id, Arc::new(bursts));
    under(&mut snapshot, Policy::Silo);
    let found = findings(&snapshot);
    let first = "port \"host-1 down\": a frame may wait longer than 240us, or more comes than \
                 leaves";
    assert!(found.contains(&first.to_owned()), "{found:?}");
    assert!(audit(&snapshot).findings.iter().all(|it| it.is_over));
    let ledger = Ledger::load(snapshot.clone()).unwrap();
    let name = |tenant: &Arc<Tenant>| format!("{}/{}", tenant.owner, tenant.name);
    let over = ledger.tenants_over();
    assert!(over.contains(&name(&snapshot.tenants[&id])), "{over:?}");
    // The rates alone are within the links.
    under(&mut snapshot, Policy::Oktopus);
    assert_eq!(findings(&snapshot), [""; 0]);
}

#[test]
fn reserved_cpu_is_audited_against_each_hosts_last_report() {
    let mut snapshot = filled(TREE, Policy::Silo, &[3]).snapshot();
    assert_eq!(audit(&snapshot).cpu, []);
    let (id, tenant) = snapshot.tenants.pop_first().unwrap();
    let mut tenant = Tenant::clone(&tenant);
    tenant.request.cpu_reservation = Some(CpuReservation {
        runtime: Nanos::from_millis(1),
        deadline: Nanos::from_millis(3),
        period: Nanos::from_millis(4),
        vcpus: 2,
    });
    let host = tenant.runs[0].host.to_string();
    tenant.runs.truncate(1);
    tenant.runs[0].count = 3;
    snapshot.tenants.insert(id, Arc::new(tenant));
    let found = |snapshot: &Snapshot| {
        let [cpu] = audit(snapshot).cpu.try_into().unwrap();
        (cpu.to_string(), cpu.holds())
    };
    let reserved = format!("host {host:?}: 2.004 of a CPU reserved for 6 vCPUs, and it keeps");
    assert_eq!(found(&snapshot), (format!("{reserved} none"), false));
    for (reservable, threads, silent_since, keeps, holds) in [
        (2_004, 6, None, "2.004 for 6", true),
        (2_003, 6, None, "2.003 for 6", false),
        (2_004, 5, None, "2.004 for 5", false),
        (2_004, 6, Some(1), "none", false),
    ] {
        let cpu = json!({
            "cpus": 4, "threads": threads, "largest": 500, "reservable": reservable,
            "overrun": "0ns", "interrupts": "0ns", "steal": "0ns", "share": 0,
        });
        let report = json!({"revision": 1, "change": 1, "cpu": cpu});
        let said = ReceivedReport {
            report: serde_json::from_value(report).unwrap(),
            silent_since,
        };
        snapshot.said.insert(host.clone(), Arc::new(said));
        assert_eq!(found(&snapshot), (format!("{reserved} {keeps}"), holds));
    }
    // What guests have that are not promised it is not kept for those that are.
    for (has, is_promised, holds) in [(996, true, true), (997, true, false), (5, false, true)] {
        let cpu = json!({
            "cpus": 4, "threads": 9, "largest": 500, "reservable": 3_000, "overrun": "0ns",
            "interrupts": "0ns", "steal": "0ns", "share": 0,
            "unpromised": {"cpu": has, "threads": 3},
        });
        let named = json!([{"guest": "own", "what": "it has much"}]);
        let report = json!({"revision": 1, "change": 1, "cpu": cpu, "unpromised": named});
        let said = ReceivedReport {
            report: serde_json::from_value(report).unwrap(),
            silent_since: None,
        };
        snapshot.said.insert(host.clone(), Arc::new(said));
        let beyond = format!(
            "3.000 for 9, of which 3 vCPUs have 0.{has:03} unpromised:\n  own: it has much"
        );
        let expected = if is_promised {
            format!("{reserved} {beyond}")
        } else {
            snapshot.tenants.clear();
            format!("host {host:?}: 0.000 of a CPU reserved for 0 vCPUs, and it keeps {beyond}")
        };
        assert_eq!(found(&snapshot), (expected, holds));
    }
}

#[test]
fn each_kind_of_damage_to_a_tenant_is_found() {
    let sound = filled(TREE, Policy::Silo, &[3, 9, 2]).snapshot();
    assert_eq!(findings(&sound), [""; 0]);
    let id = TenantId(2);
    let tenant = |change: &dyn Fn(&mut Tenant)| {
        let mut snapshot = sound.clone();
        let mut tenant = Tenant::clone(&snapshot.tenants[&id]);
        change(&mut tenant);
        snapshot.tenants.insert(id, Arc::new(tenant));
        snapshot
    };
    for (snapshot, expected) in [
        (
            tenant(&|it| it.runs.last_mut().unwrap().count = 20),
            "it asked for 9 machines and has 2",
        ),
        (
            tenant(&|it| it.runs[0].host = "gone".into()),
            "there is no host \"gone\"",
        ),
        (
            tenant(&|it| it.runs[0].host = "left".into()),
            "there is no host \"left\"",
        ),
        (tenant(&|it| it.id = TenantId(1)), "has the number 1"),
        (
            tenant(&|it| it.name = "web-0".to_owned()),
            "the tenant 1 has the same name",
        ),
        (
            tenant(&|it| it.name = "web 0".to_owned()),
            "its owner or its name is none",
        ),
        (
            tenant(&|it| it.request.cpu = 1 << 41),
            "thousandths of a CPU are taken",
        ),
        (
            tenant(&|it| {
                it.request.guarantee.as_mut().unwrap().delay = Some(Nanos::from_micros(1));
            }),
            "a delay of 1us was promised, and a frame may take",
        ),
        (
            tenant(&|it| {
                let domains = tailbound_placement::FaultDomains {
                    height: 0,
                    count: 9,
                };
                it.request.domains = Some(domains);
            }),
            "of its machines, and may have 1",
        ),
        (
            tenant(&|it| {
                it.request.vms = 40;
                it.runs.truncate(1);
                it.runs[0].count = 40;
            }),
            "slots are taken of 8",
        ),
        (
            tenant(&|it| {
                let again = it.runs[0].clone();
                it.runs.insert(0, again);
            }),
            "is there twice",
        ),
    ] {
        is_found(&snapshot, expected);
    }
}

fn is_found(snapshot: &Snapshot, expected: &str) {
    let found = findings(snapshot);
    assert!(
        found.iter().any(|what| what.contains(expected)),
        "{expected}: {found:?}"
    );
}

#[test]
fn damage_beside_the_tenants_is_found() {
    let sound = filled(TREE, Policy::Silo, &[3, 9, 2]).snapshot();
    let other = |change: &dyn Fn(&mut Snapshot)| {
        let mut snapshot = sound.clone();
        change(&mut snapshot);
        snapshot
    };
    let answer = |snapshot: &mut Snapshot, id: u64, name: &str| {
        let mut tenant = Tenant::clone(&sound.tenants[&TenantId(2)]);
        tenant.id = TenantId(id);
        tenant.name = name.to_owned();
        let key = KeyId {
            owner: Some("globex".to_owned()),
            key: "new".to_owned(),
        };
        let record = KeyRecord {
            fingerprint: [0; 32],
            at: Nanos(1),
            reply: Reply::Tenant(Arc::new(tenant)),
        };
        snapshot.keys.insert(key, Arc::new(record));
    };
    for (snapshot, expected) in [
        (other(&|it| it.next_id = 3), "the next number is 3"),
        (other(&|it| it.topology = None), "topology: there is none"),
        (
            other(&|it| {
                it.hosts = Arc::new(Hosts::from([("gone".to_owned(), HostState::Failed)]));
            }),
            "it is recorded as closed, but there is no such host",
        ),
        (other(&|it| answer(it, 99, "web")), "the next number is 4"),
        (
            other(&|it| answer(it, 2, "other")),
            "was answered as acme/other and is acme/web-1",
        ),
        (
            other(&|it| answer(it, 2, "web-1")),
            "globex was answered acme/web-1",
        ),
    ] {
        is_found(&snapshot, expected);
    }
}

#[test]
fn open_reservations_are_counted_and_those_without_their_machine_are_found() {
    let (mut ledger, _) = crate::ledger::testing::ledger();
    let new = tailbound_api::NewReservation {
        tenant: "web".to_owned(),
        owner: Some("acme".to_owned()),
        request: Some(tailbound_api::MachineRequest::default()),
        placement: vec![tailbound_api::PinnedHost {
            host: "host-1".to_owned(),
            vms: 2,
        }],
        ttl: Nanos::from_secs(30),
        machines: Vec::new(),
        replace: false,
    };
    let command = crate::ledger::Command::Reserve(Box::new(new));
    let call = crate::ledger::testing::call(command);
    let _ = ledger.decide(&call, Nanos(1)).unwrap();
    let mut snapshot = ledger.snapshot();
    let report = audit(&snapshot);
    assert_eq!((report.reservations, report.findings), (1, Vec::new()));
    let tenant = snapshot.tenants.values_mut().next().unwrap();
    let tenant = Arc::make_mut(tenant);
    let mut other = tenant.reservations[0].clone();
    other.machines[1].number = 7;
    tenant.reservations.push(other);
    let found = audit(&snapshot).findings;
    let found: Vec<_> = found.iter().map(|it| &*it.what).collect();
    let expected = [
        "another reservation has the same number",
        "the machine 0 is reserved twice",
        "the tenant has no machine 7",
    ];
    assert_eq!(found, expected);
}
