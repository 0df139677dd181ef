//! CPU that is reserved for machines, and what their messages take with it.

use super::*;
use tailbound_api::{
    Code, CpuReservation, CpuUse, HostCpu, NewTenant, TenantState, UnpromisedGuest,
};
use tailbound_placement::{CpuLatency, Message};
use tailbound_units::Bytes;

const PERIOD: Nanos = Nanos::from_millis(4);

fn cpu(reservable: u64) -> HostCpu {
    HostCpu {
        cpus: 2,
        threads: 8,
        largest: 500,
        reservable,
        overrun: Nanos::ZERO,
        interrupts: Nanos::from_micros(100),
        steal: Nanos::ZERO,
        share: 0,
        unpromised: CpuUse::default(),
    }
}

fn report(ledger: &mut Ledger, host: &str, cpu: Option<HostCpu>) -> Vec<Change> {
    let report = heard(ledger, cpu);
    send_report(ledger, host, report)
}

fn heard(ledger: &Ledger, cpu: Option<HostCpu>) -> HostReport {
    HostReport {
        cpu,
        ..report_of(ledger, limits_of_link(10_000))
    }
}

/// A tenant of two machines on different hosts, with 1 ms in 4 ms each and messages of 15 KB.
fn new(name: &str) -> NewTenant {
    let Command::Create(new) = create("acme", name, 2).command else {
        unreachable!("it creates");
    };
    NewTenant {
        domains: Some(tailbound_placement::FaultDomains {
            height: 0,
            count: 2,
        }),
        cpu_reservation: Some(CpuReservation {
            runtime: Nanos::from_millis(1),
            deadline: PERIOD,
            period: PERIOD,
            vcpus: 1,
        }),
        message: Some(Message {
            size: Bytes(15_000),
            send: Nanos::from_micros(200),
            receive: Nanos::from_micros(300),
        }),
        ..new
    }
}

fn admitted(ledger: &mut Ledger, new: NewTenant) -> Arc<Tenant> {
    let decision = ledger
        .decide(&call(Command::Create(new)), Nanos(1))
        .unwrap();
    tenant(&decision.reply)
}

fn hosts() -> (Ledger, Vec<Change>) {
    let (mut ledger, mut changes) = ledger();
    for host in ["host-1", "host-2"] {
        changes.extend(report(&mut ledger, host, Some(cpu(375))));
    }
    (ledger, changes)
}

#[test]
fn a_message_is_bounded_part_by_part() {
    let (mut ledger, _) = hosts();
    let web = admitted(&mut ledger, new("web"));
    let bound = ledger.bound(web.id, 0, 1).unwrap();
    let message = bound.message.unwrap();
    // Of 2 CPUs 2 - 0.5 - 0.375 are left, of which interrupts take 0.1 ms on each at once.
    let late = Nanos::from_micros(178);
    let end = |micros| CpuLatency {
        demand: Nanos::from_micros(micros),
        blackout: Nanos::from_millis(6),
        overrun: Nanos::ZERO,
        charged: Nanos::from_micros(100),
        lateness: late,
    };
    assert_eq!(
        (message.send, message.receive),
        (Some(end(200)), Some(end(300)))
    );
    // 3 KB at 1 Gbit/s, and 12 KB at 200 Mbit/s.
    assert_eq!(message.burst, Bytes(3_000));
    assert_eq!(message.at_burst_rate, Nanos::from_micros(24));
    assert_eq!(message.at_bandwidth, Nanos::from_micros(480));
    assert_eq!(message.delay, Nanos::from_millis(2));
    let micros = 6_478 + 24 + 480 + 2_000 + 6_578;
    assert_eq!(message.total, Some(Nanos::from_micros(micros)));
    assert_eq!(message.unbounded, None);
    // Without work at the ends only the network counts.
    let plain = NewTenant {
        cpu_reservation: None,
        message: Some(Message {
            size: Bytes(3_000),
            send: Nanos::ZERO,
            receive: Nanos::ZERO,
        }),
        ..new("plain")
    };
    let plain = admitted(&mut ledger, plain);
    let message = ledger.bound(plain.id, 1, 0).unwrap().message.unwrap();
    assert_eq!(message.total, Some(Nanos::from_micros(2_024)));
    // A host that says no more what it keeps bounds nothing.
    report(&mut ledger, "host-2", None);
    let message = ledger.bound(web.id, 0, 1).unwrap().message.unwrap();
    assert_eq!((message.total, message.receive), (None, None));
    assert_eq!(
        message.unbounded.unwrap(),
        "host-2: it keeps no reservation of CPU"
    );
}

#[test]
fn reserved_cpu_is_counted_given_back_and_kept() {
    let (mut ledger, mut changes) = hosts();
    let made = ledger
        .decide(&call(Command::Create(new("web"))), Nanos(1))
        .unwrap();
    let web = tenant(&made.reply);
    changes.extend(made.changes);
    let reserved = |ledger: &Ledger| {
        let used = ["host-1", "host-2"].map(|host| ledger.host(host).unwrap().reserved_cpu);
        assert_eq!(used[0], used[1]);
        used[0]
    };
    assert_eq!(
        reserved(&ledger),
        CpuUse {
            cpu: 250,
            threads: 1
        }
    );
    let in_all = |ledger: &Ledger| {
        let hosts = ledger.hosts_by_word();
        (hosts.reserved_cpu, hosts.reservable_cpu, hosts.short_of_cpu)
    };
    assert_eq!(in_all(&ledger), (500, 750, 0));
    let told = ledger.guarantees("host-1").unwrap();
    assert_eq!(told.vms[0].cpu_reservation, web.request.cpu_reservation);
    let refused = ledger.decide(&call(Command::Create(new("more"))), Nanos(1));
    let refused = refused.unwrap_err();
    assert_eq!(refused.code(), Code::Refused);
    assert_eq!(
        refused.to_string(),
        "2 machines do not fit with the requested CPU reservation: 0 would; of the nearest host, host-1: its machines would have 0.500 of a CPU reserved in all, and it keeps 0.375"
    );
    // Another replica, or the service after a restart, knows the same.
    let mut snapshot = crate::ledger::Snapshot::default();
    snapshot.apply(&changes);
    let mut again = Ledger::load(snapshot).unwrap();
    assert_eq!(
        reserved(&again),
        CpuUse {
            cpu: 250,
            threads: 1
        }
    );
    assert_eq!(again.bound(web.id, 0, 1), ledger.bound(web.id, 0, 1));
    assert!(
        again
            .decide(&call(Command::Create(new("more"))), Nanos(1))
            .is_err()
    );
    // Hosts may say less later.
    report(&mut again, "host-1", Some(cpu(249)));
    assert_eq!(in_all(&again), (500, 624, 1));
    report(&mut again, "host-2", None);
    assert_eq!(in_all(&again), (500, 249, 2));
    let delete = call(Command::Delete { id: web.id });
    let _ = ledger.decide(&delete, Nanos(1)).unwrap();
    assert_eq!(reserved(&ledger), CpuUse::default());
    admitted(&mut ledger, new("more"));
}

#[test]
fn a_cpu_only_tenants_state_follows_its_hosts_cpu_reports() {
    let (mut ledger, _) = hosts();
    let alone = NewTenant {
        guarantee: None,
        message: None,
        ..new("alone")
    };
    let id = admitted(&mut ledger, alone).id;
    let state = |ledger: &Ledger| {
        let standing = ledger.standing(id, true).unwrap();
        let why = standing.hosts.iter().find_map(|host| host.why.clone());
        (standing.state, why.unwrap_or_default())
    };
    assert_eq!(state(&ledger).0, TenantState::Pending);
    for host in ["host-1", "host-2"] {
        report(&mut ledger, host, Some(cpu(375)));
    }
    assert_eq!(state(&ledger).0, TenantState::Admitted);
    report(&mut ledger, "host-2", Some(cpu(200)));
    let why = "its machines would have 0.250 of a CPU reserved in all, and it keeps 0.200";
    assert_eq!(state(&ledger), (TenantState::Degraded, why.to_owned()));
    report(&mut ledger, "host-2", Some(cpu(300)));
    assert_eq!(state(&ledger).0, TenantState::Admitted);
    let silence = Command::Silence {
        hosts: vec![("host-2".to_owned(), 5)],
    };
    let _ = ledger.decide(&call(silence), Nanos(1)).unwrap();
    assert_eq!(
        state(&ledger),
        (TenantState::Degraded, "it is silent".to_owned())
    );
}

#[test]
fn cpu_of_unpromised_guests_is_listed_and_never_promised_again() {
    let (mut ledger, _) = hosts();
    let unpromised = CpuUse {
        cpu: 300,
        threads: 2,
    };
    let keeps = HostCpu {
        unpromised,
        ..cpu(500)
    };
    report(&mut ledger, "host-2", Some(cpu(500)));
    let mut said = HostReport {
        unpromised: (0..20)
            .map(|number| UnpromisedGuest {
                guest: format!("g{number}\u{1b}"),
                what: "x".repeat(1_000),
            })
            .collect(),
        ..heard(&ledger, Some(keeps))
    };
    assert!(ledger.is_news("host-1", &said));
    send_report(&mut ledger, "host-1", said.clone());
    assert!(!ledger.is_news("host-1", &said));
    let word = ledger.host("host-1").unwrap().said;
    assert_eq!(word.unpromised.len(), 16);
    assert_eq!(word.unpromised[0].guest, "g0");
    assert_eq!(word.unpromised[0].what.len(), 240);
    let counts = ledger.hosts_by_word();
    assert_eq!((counts.unpromised_cpu, counts.with_unpromised), (300, 1));
    assert_eq!(counts.short_of_cpu, 0);
    let why = ledger
        .decide(&call(Command::Create(new("web"))), Nanos(1))
        .unwrap_err();
    let why = why.to_string();
    assert!(why.contains("keeps 0.200 beside 0.300"), "{why}");
    said.unpromised.clear();
    assert!(ledger.is_news("host-1", &said));
    said.cpu = Some(cpu(500));
    send_report(&mut ledger, "host-1", said);
    admitted(&mut ledger, new("web"));
}
