use super::*;
use crate::audit::audit;
use crate::ledger::recover::{Finding, Recovery, read_state, recover};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use tailbound_api::{HostGuarantees, MoveEnd, MoveStep, MoveVm, OutLimit, VmGuarantee, VmLimit};
use tailbound_placement::Guarantee;
use tailbound_units::{Bytes, Rate};

/// The state files of all hosts.
fn held(ledger: &Ledger) -> Vec<HostGuarantees> {
    let topology = ledger.datacentre().topology();
    let names = topology.hosts().iter().map(|host| topology.name(*host));
    names.filter_map(|name| ledger.guarantees(name)).collect()
}

fn recovered(held: Vec<HostGuarantees>) -> Recovery {
    recover(Spec::from_toml(TREE).unwrap(), Policy::Silo, held).unwrap()
}

fn decide(ledger: &mut Ledger, command: Command) {
    let _ = ledger.decide(&call(command), Nanos(1)).unwrap();
}

/// A data centre with tenants, gaps in the numbers of machines, a move, a limit and a closed host.
fn lived() -> Ledger {
    let (mut ledger, _) = ledger();
    for (owner, name, vms) in [("acme", "web", 5), ("acme", "db", 9), ("globex", "web", 3)] {
        let _ = ledger.decide(&create(owner, name, vms), Nanos(1)).unwrap();
    }
    decide(&mut ledger, Command::Delete { id: TenantId(1) });
    let _ = ledger.decide(&create("acme", "web", 4), Nanos(1)).unwrap();
    decide(&mut ledger, Command::resize(TenantId(2), 6));
    let limit = VmLimit {
        out: Some(OutLimit {
            kind: tailbound_api::LimitKind::default(),
            rate: Rate::from_mbit(2_000),
        }),
        ..VmLimit::default()
    };
    decide(
        &mut ledger,
        Command::Limit {
            id: TenantId(3),
            limit,
        },
    );
    let drained = Command::SetHosts {
        node: "host-1".to_owned(),
        state: HostState::Drained,
    };
    decide(&mut ledger, drained);
    let step = MoveStep::Begin {
        to: "other-1".to_owned(),
    };
    let vm = ledger.tenants[&TenantId(2)].runs[0].first;
    let step = MoveVm { vm, step };
    decide(
        &mut ledger,
        Command::Move {
            id: TenantId(2),
            step,
        },
    );
    ledger.set_revision(77);
    ledger
}

#[test]
fn the_store_is_recovered_from_the_state_of_all_hosts() {
    let ledger = lived();
    let before = ledger.snapshot();
    let Recovery {
        snapshot,
        hosts,
        findings,
    } = recovered(held(&ledger));
    assert_eq!((hosts, findings), (6, vec![]));
    assert_eq!(snapshot.hosts, before.hosts);
    assert!(snapshot.next_id >= before.next_id && snapshot.revision == 77);
    assert_eq!(snapshot.tenants.len(), before.tenants.len());
    for (id, old) in &before.tenants {
        let new = &snapshot.tenants[id];
        let expected = Tenant {
            change: new.change,
            request: tailbound_placement::Request {
                guarantee: new.request.guarantee,
                ..old.request
            },
            ..Tenant::clone(old)
        };
        assert_eq!(**new, expected);
        let counted = |it: &Tenant| it.request.guarantee.map(|it| it.counted_bursts());
        assert_eq!(counted(new), counted(old));
        assert!(new.change >= old.change && new.change < snapshot.next_id);
    }
    assert_eq!(audit(&snapshot).findings, []);
    // Hosts receive what they hold, under a later revision.
    let again = Ledger::load(snapshot).unwrap();
    for host in held(&ledger) {
        let now = again.guarantees(&host.host).unwrap();
        assert_eq!((now.vms, now.state), (host.vms, host.state));
    }
}

#[test]
fn the_order_of_the_documents_does_not_matter() {
    let ledger = lived();
    let mut held = held(&ledger);
    let first = recovered(held.clone());
    for _ in 0..held.len() {
        held.rotate_left(1);
        let other = recovered(held.clone());
        assert_eq!(other.snapshot, first.snapshot);
    }
}

/// One host's guarantees: machines with the numbers of their tenants.
fn host(name: &str, change: u64, vms: &[(&str, u64, u32)]) -> HostGuarantees {
    let vms = vms.iter().map(|(vm, tenant, of)| VmGuarantee {
        vm: (*vm).to_owned(),
        tenant: TenantId(*tenant),
        tenant_vms: *of,
        guarantee: Some(Guarantee {
            bandwidth: Rate::from_mbit(100),
            burst: Bytes(3_000),
            delay: None,
            burst_rate: None,
            bursts: None,
            burst_in: None,
            class: None,
        }),
        cpu_reservation: None,
        limit: VmLimit::default(),
        moves: None,
    });
    HostGuarantees {
        host: name.to_owned(),
        state: HostState::Open,
        revision: change,
        change,
        classes: tailbound_api::Classes::default(),
        delay_classes: Vec::new(),
        vms: vms.collect(),
        places: Vec::new(),
    }
}

/// All hosts of the tree; those that are not in `some` have no machine.
fn with_others(some: Vec<HostGuarantees>) -> Vec<HostGuarantees> {
    let mut all: BTreeMap<String, HostGuarantees> = BTreeMap::new();
    for name in [
        "host-1", "host-2", "host-3", "other-1", "other-2", "other-3",
    ] {
        all.insert(name.to_owned(), host(name, 1, &[]));
    }
    let mut twice = Vec::new();
    for one in some {
        let seen = all.insert(one.host.clone(), one);
        twice.extend(seen.filter(|it| !it.vms.is_empty()));
    }
    all.into_values().chain(twice).collect()
}

/// Recovers, and returns the hosts of all machines and the findings as text.
fn outcome(some: Vec<HostGuarantees>) -> (String, Vec<String>) {
    let recovery = recovered(with_others(some));
    assert_eq!(audit(&recovery.snapshot).findings, [], "it is no ledger");
    Ledger::load(recovery.snapshot.clone()).unwrap();
    let mut places = String::new();
    for tenant in recovery.snapshot.tenants.values() {
        write!(places, "{}/{}#{}:", tenant.owner, tenant.name, tenant.id.0).unwrap();
        for run in &tenant.runs {
            write!(places, " {}+{}@{}", run.first, run.count, run.host).unwrap();
        }
        if let Some(moving) = &tenant.moving {
            write!(places, " {}->{}", moving.vm, moving.to).unwrap();
        }
        places.push(';');
    }
    let findings = recovery.findings.iter().map(Finding::to_string);
    (places, findings.collect())
}

#[test]
fn each_contradiction_is_named_and_the_later_change_counts() {
    for (some, places, finding) in [
        // A host that missed the end of a move.
        (
            vec![
                host("host-1", 5, &[("a/w/0", 1, 1)]),
                host("host-2", 9, &[("a/w/0", 1, 1)]),
            ],
            "a/w#1: 0+1@host-2;",
            "a/w/0 is on \"host-2\" and on \"host-1\"",
        ),
        // A host that missed a deletion and a new tenant of the same name.
        (
            vec![
                host("host-1", 9, &[("a/w/0", 1, 2), ("a/w/1", 1, 2)]),
                host("host-2", 5, &[("a/w/0", 3, 1)]),
            ],
            "a/w#3: 0+1@host-2;",
            "host \"host-1\" has a/w/0 of an earlier time; the tenant 3 counts",
        ),
        // Two tenants with one number: one host lies or is of another service.
        (
            vec![
                host("host-1", 5, &[("a/w/0", 1, 1)]),
                host("host-2", 9, &[("b/w/0", 1, 1)]),
            ],
            "b/w#1: 0+1@host-2;",
            "b/w has its number and counts",
        ),
        (
            vec![host("host-1", 5, &[("a/w/1", 1, 3)])],
            "a/w#1: 1+1@host-1;",
            "a/w: 1 machines were found, and it had 3",
        ),
        (
            vec![host("nowhere", 5, &[("a/w/1", 1, 1)])],
            "",
            "host \"nowhere\" is not in the topology; its 1 machines are left out",
        ),
        (
            vec![host("host-1", 5, &[("a w", 1, 1)])],
            "",
            "the machine \"a w\" of the tenant 1 cannot be a service's",
        ),
        (
            vec![host("host-1", u64::MAX, &[("a/w/0", 1, 1)])],
            "",
            "the revision or change 18446744073709551615 cannot be",
        ),
        (
            vec![host("host-1", 5, &[("a/7/0", 1, 1)])],
            "",
            "a/7 is left out: the name \"7\" is a number",
        ),
        (
            vec![
                host("host-1", 5, &[("a/w/0", 1, 1)]),
                host("host-1", 6, &[("a/w/0", 1, 1)]),
            ],
            "a/w#1: 0+1@host-1;",
            "host \"host-1\" is there twice",
        ),
    ] {
        let (found, findings) = outcome(some);
        assert_eq!(found, places, "{findings:?}");
        let named = findings.iter().any(|it| it.contains(finding));
        assert!(named, "{finding}: {findings:?}");
    }
}

#[test]
fn a_move_is_recovered_if_both_ends_hold_it() {
    let end = |name, change, moves| {
        let mut host = host(name, change, &[("a/w/0", 1, 1)]);
        host.vms[0].moves = moves;
        host
    };
    let (leaves, arrives) = (Some(MoveEnd::Leaves), Some(MoveEnd::Arrives));
    let both = vec![end("host-1", 5, leaves), end("host-2", 5, arrives)];
    assert_eq!(
        outcome(both),
        ("a/w#1: 0+1@host-1 0->host-2;".to_owned(), vec![])
    );
    let begun = vec![end("host-1", 4, None), end("host-2", 5, arrives)];
    assert_eq!(
        outcome(begun),
        ("a/w#1: 0+1@host-1 0->host-2;".to_owned(), vec![])
    );
    for half in [
        vec![end("host-1", 5, leaves)],
        vec![end("host-1", 5, arrives)],
        vec![end("host-1", 6, None), end("host-2", 5, arrives)],
    ] {
        let (places, findings) = outcome(half);
        assert_eq!(places, "a/w#1: 0+1@host-1;");
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert!(
            findings[0].contains("the move is forgotten"),
            "{findings:?}"
        );
    }
}

#[test]
fn other_guarantees_and_hosts_without_any_are_named() {
    let mut later = host("host-2", 9, &[("a/w/1", 1, 2)]);
    later.vms[0].guarantee.as_mut().unwrap().bandwidth = Rate::from_mbit(300);
    let earlier = host("host-1", 5, &[("a/w/0", 1, 2)]);
    let recovery = recovered(with_others(vec![earlier, later.clone()]));
    let tenant = &recovery.snapshot.tenants[&TenantId(1)];
    assert_eq!(
        tenant.request.guarantee.unwrap().bandwidth,
        Rate::from_mbit(300)
    );
    let expected = "a/w: \"host-2\" and \"host-1\" have different guarantees";
    assert!(recovery.findings[0].to_string().starts_with(expected));
    // A host that cannot enforce a guarantee holds none, and contradicts nothing.
    let mut cannot = host("host-1", 12, &[("a/w/0", 1, 2)]);
    cannot.vms[0].guarantee = None;
    let recovery = recovered(with_others(vec![cannot, later]));
    let tenant = &recovery.snapshot.tenants[&TenantId(1)];
    assert_eq!(
        tenant.request.guarantee.unwrap().bandwidth,
        Rate::from_mbit(300)
    );
    assert_eq!(recovery.findings, []);
    let missing = recovered(vec![host("host-1", 5, &[("a/w/0", 1, 1)])]);
    let said = missing.findings[0].to_string();
    let expected = "5 hosts hold nothing: host-2, host-3, other-1, other-2, other-3; tenants";
    assert!(said.starts_with(expected), "{said}");
}

#[test]
fn the_latest_host_of_a_tenant_decides_whose_number_it_is() {
    let (found, findings) = outcome(vec![
        host("host-1", 2, &[("a/w/0", 1, 2)]),
        host("host-2", 9, &[("a/w/1", 1, 2)]),
        host("host-3", 5, &[("b/w/0", 1, 1)]),
    ]);
    assert_eq!(found, "a/w#1: 0+1@host-1 1+1@host-2;");
    let named = "a/w has its number and counts";
    assert!(findings.iter().any(|it| it.contains(named)), "{findings:?}");
}

#[test]
fn numbers_begin_behind_the_last_change_that_a_host_knew() {
    let next_id = |held| recovered(held).snapshot.next_id;
    assert_eq!(next_id(with_others(Vec::new())), 2);
    assert_eq!(next_id(vec![host("host-1", 0, &[])]), 1);
    assert_eq!(next_id(vec![host("host-1", 7, &[("a/w/0", 9, 1)])]), 10);
}

#[test]
fn recovery_keeps_and_reports_tenants_that_do_not_fit() {
    let names: Vec<_> = (0..12).map(|number| format!("a/w/{number}")).collect();
    let vms: Vec<_> = names.iter().map(|name| (name.as_str(), 1, 12)).collect();
    let recovery = recovered(with_others(vec![host("host-1", 5, &vms)]));
    let tenant = &recovery.snapshot.tenants[&TenantId(1)];
    assert!(tenant.misfit && tenant.request.vms == 12);
    let said = recovery.findings[0].to_string();
    assert!(
        said.starts_with("a/w does not fit where it runs, and is kept:"),
        "{said}"
    );
    Ledger::load(recovery.snapshot).unwrap();
}

#[test]
fn only_state_files_of_this_version_are_read() {
    let held = host("host-1", 5, &[("a/w/0", 1, 1)]);
    let text = |schema| serde_json::json!({"schema": schema, "said": held}).to_string();
    assert_eq!(read_state(text(2).as_bytes()), Ok(held.clone()));
    let other = read_state(text(1).as_bytes()).unwrap_err();
    assert!(other.contains("version 1"), "{other}");
    let bare = serde_json::to_vec(&held).unwrap();
    for wrong in [&b""[..], b"{}", &bare] {
        let why = read_state(wrong).unwrap_err();
        assert!(
            why.starts_with("this is no state file of `tailbound host`"),
            "{why}"
        );
    }
}

/// Hosts in racks of 40, each with 8 machines of four tenants.
fn large(hosts: usize) -> (Spec, Vec<HostGuarantees>) {
    let mut tree = "frame = \"1538B\"\n".to_owned();
    let racks = hosts / 40;
    for rack in 0..racks {
        write!(
            tree,
            "[[group]]\nname = \"rack{rack}\"\nuplink = {{ rate = \"400Gbit/s\", buffer = \"5MB\" }}\n\
             [[host]]\nname = \"rack{rack}-host\"\ngroup = \"rack{rack}\"\ncount = 40\nslots = 16\n\
             uplink = {{ rate = \"10Gbit/s\", buffer = \"300KB\" }}\n"
        )
        .unwrap();
    }
    let of_tenant = |tenant: usize| -> Vec<(String, u64, u32)> {
        // Two machines on this host, and two on the next one of its rack.
        let first = (0..2).map(|number| {
            (
                format!("owner-{}/t{tenant}/{number}", tenant % 100),
                tenant as u64 + 1,
                4,
            )
        });
        first.collect()
    };
    let mut all = Vec::new();
    for index in 0..hosts {
        let (rack, place) = (index / 40, index % 40);
        let before = rack * 40 + (place + 39) % 40;
        let mut vms = Vec::new();
        for tenant in [2 * index, 2 * index + 1] {
            vms.extend(of_tenant(tenant));
        }
        for tenant in [2 * before, 2 * before + 1] {
            let later = of_tenant(tenant).into_iter().enumerate();
            vms.extend(later.map(|(at, (_, id, of))| {
                (
                    format!("owner-{}/t{tenant}/{}", tenant % 100, at + 2),
                    id,
                    of,
                )
            }));
        }
        let vms: Vec<_> = vms
            .iter()
            .map(|(name, id, of)| (name.as_str(), *id, *of))
            .collect();
        all.push(host(
            &format!("rack{rack}-host-{}", place + 1),
            2 * hosts as u64,
            &vms,
        ));
    }
    (Spec::from_toml(&tree).unwrap(), all)
}

fn recover_large(hosts: usize) {
    let (spec, held) = large(hosts);
    let begin = std::time::Instant::now();
    let recovery = recover(spec, Policy::Silo, held).unwrap();
    let took = begin.elapsed();
    println!(
        "{hosts} hosts, {} tenants: {took:?}",
        recovery.snapshot.tenants.len()
    );
    assert_eq!(recovery.findings, []);
    assert_eq!(recovery.snapshot.tenants.len(), 2 * hosts);
    assert!(took.as_secs() < 60, "{took:?}");
    Ledger::load(recovery.snapshot).unwrap();
}

#[test]
fn a_thousand_hosts_are_recovered() {
    recover_large(1_000);
}

#[test]
#[ignore = "takes ten seconds: make nightly"]
fn ten_thousand_hosts_are_recovered_in_a_minute() {
    recover_large(10_000);
}
