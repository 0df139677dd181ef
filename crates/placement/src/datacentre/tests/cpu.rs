//! Reservations of CPU for machines under the limits that hosts report.

use super::check::{DatacentreState, all_promises_hold, state_is_as_recomputed};
use super::random::{Change, apply, changes, trees};
use super::*;
use crate::cpu::{CpuReservation, Message};
use crate::host::HostRule;
use crate::pool::HostCpu;
use proptest::prelude::*;

fn reservation(runtime: u64, deadline: u64, period: u64) -> CpuReservation {
    CpuReservation {
        runtime: Nanos::from_micros(runtime),
        deadline: Nanos::from_micros(deadline),
        period: Nanos::from_micros(period),
        vcpus: 1,
    }
}

fn cpu(reservable: u64, threads: u32) -> HostCpu {
    HostCpu {
        cpus: 2,
        threads,
        largest: 500,
        reservable,
        overrun: Nanos::ZERO,
        interrupts: Nanos::ZERO,
        steal: Nanos::ZERO,
        share: 0,
        unpromised: CpuUse::default(),
    }
}

/// Four hosts of four slots, and requests for machines without a guarantee.
fn four() -> (Datacentre, [NodeId; 4]) {
    let spec = Spec {
        frame: Bytes(1_538),
        packet: None,
        classes: Classes::default().into(),
        delay_classes: Vec::new(),
        groups: vec![group("rack", None, link(40_000, 500_000))],
        hosts: vec![host("a", "rack", 4, 4, link(10_000, 300_000))],
    };
    let dc = Datacentre::new(spec.build().unwrap(), Policy::Silo);
    let hosts = dc.topology().hosts().try_into().unwrap();
    (dc, hosts)
}

fn asked(vms: u32, reservation: CpuReservation) -> Request {
    Request {
        guarantee: None,
        cpu_reservation: Some(reservation),
        ..request(vms, 10, 0)
    }
}

fn refusal(dc: &Datacentre, request: &Request) -> String {
    dc.fit(request).unwrap_err().to_string()
}

#[test]
fn a_refusal_says_which_cpu_is_lacking_on_which_host() {
    let (mut dc, [one, other, third, _]) = four();
    let quarter = reservation(1_000, 4_000, 4_000);
    assert_eq!(
        refusal(&dc, &asked(1, quarter)),
        "1 machine does not fit with the requested CPU reservation: 0 would; of the nearest host, a-1: it keeps no reservation of CPU"
    );
    dc.set_host_cpu(one, Some(cpu(700, 8)));
    dc.set_host_cpu(other, Some(cpu(260, 8)));
    assert_eq!(
        refusal(&dc, &asked(4, quarter)),
        "4 machines do not fit with the requested CPU reservation: 3 would; of the nearest host, a-1: its machines would have 0.750 of a CPU reserved in all, and it keeps 0.700"
    );
    let placement = dc.admit(TenantId(1), &asked(3, quarter)).unwrap();
    assert_eq!(placement.hosts(), [(one, 2), (other, 1)]);
    assert_eq!(
        dc.reserved(one),
        CpuUse {
            cpu: 500,
            threads: 2
        }
    );
    assert_eq!(
        refusal(&dc, &asked(1, quarter)),
        "1 machine does not fit with the requested CPU reservation: 0 would; of the nearest host, a-1: its machines would have 0.750 of a CPU reserved in all, and it keeps 0.700"
    );
    // What would pass, was tried.
    let report = dc.explain(&asked(1, quarter)).unwrap().unwrap();
    assert_eq!(report.overload, None);
    let least = report.nearest.last().unwrap();
    assert_eq!(least.to_string(), "a runtime of 799.8us");
    // Moved machines count on both hosts; without CPU there is no move.
    let why = dc.begin_move(TenantId(1), one, third).unwrap_err();
    assert_eq!(why.to_string(), "it keeps no reservation of CPU");
    dc.resize(TenantId(1), 2).unwrap();
    dc.admit(TenantId(2), &asked(1, quarter)).unwrap();
    // A word that is less tells of those that are there, and moves nobody.
    dc.set_host_cpu(one, Some(cpu(400, 8)));
    let broken = dc.broken_rule(one, &asked(1, quarter)).unwrap();
    assert_eq!(
        broken.to_string(),
        "its machines would have 0.500 of a CPU reserved in all, and it keeps 0.400"
    );
    assert_eq!(dc.broken_rule(one, &request(1, 10, 1_538)), None);
    dc.set_host_cpu(third, Some(cpu(1_000, 1)));
    assert_eq!(dc.relocate(TenantId(1)).map(Placement::vms), Ok(2));
    // Without the tenants all of it is there again.
    dc.release(TenantId(1)).unwrap();
    dc.release(TenantId(2)).unwrap();
    for host in [one, other, third] {
        assert_eq!(dc.reserved(host), CpuUse::default());
    }
}

/// One machine a host: more hosts are missing than CPU, so the refusal is due to fault domains.
#[test]
fn a_refusal_for_fault_domains_names_no_cpu() {
    let (mut dc, hosts) = four();
    for host in hosts {
        dc.set_host_cpu(host, Some(cpu(400, 8)));
    }
    let mut apart = asked(8, reservation(1_000, 4_000, 4_000));
    apart.domains = Some(FaultDomains {
        height: 0,
        count: 8,
    });
    let refused = dc.fit(&apart).map(drop);
    let domains = AdmitError::NoPlacement(PlacementError::Domains);
    assert_eq!(refused, Err(domains));
}

#[test]
fn a_host_accepts_only_proven_cpu_reservations() {
    let ticks = HostCpu {
        overrun: Nanos::from_millis(4),
        ..cpu(750, 4)
    };
    let short = reservation(1_000, 4_000, 4_000);
    let rule = ticks.keeps(&short).unwrap_err();
    assert_eq!(
        rule.to_string(),
        "it does not keep such a reservation of CPU: others may make it late by 16ms, more than \
         its period leaves beside its runtime"
    );
    let long = reservation(5_000, 25_000, 25_000);
    ticks.keeps(&long).unwrap();
    let wide = reservation(6_000, 10_000, 10_000);
    assert!(matches!(
        cpu(750, 4).keeps(&wide),
        Err(HostRule::Cpu { .. })
    ));
    let many = CpuReservation { vcpus: 5, ..short };
    let few = HostRule::CpuThreads {
        sum: 5,
        most: 4,
        unpromised: 0,
    };
    assert_eq!(cpu(1_500, 4).keeps(&many), Err(few));
    let latency = ticks.latency(&long, Nanos::from_micros(200)).unwrap();
    assert_eq!(latency.blackout, Nanos::from_millis(40));
    assert_eq!(latency.overrun, Nanos::from_millis(4));
    assert_eq!(latency.lateness, Nanos::from_millis(16));
    assert_eq!(latency.total(), Nanos::from_micros(60_200));
}

#[test]
fn unreservable_or_unbounded_requests_are_refused() {
    let (dc, _) = four();
    let good = reservation(1_000, 4_000, 4_000);
    let message = Message {
        size: Bytes(1_000),
        send: Nanos(1),
        receive: Nanos::ZERO,
    };
    let of = |reservation| asked(1, reservation);
    let promised = Request {
        cpu_reservation: None,
        message: Some(message),
        ..request(2, 10, 1_538)
    };
    for (wrong, why) in [
        (of(reservation(0, 1, 100)), "runtime of 0ns is not between"),
        (
            of(reservation(2_000, 1_000, 4_000)),
            "deadline of 1ms is not between 2ms and 4ms",
        ),
        (
            of(reservation(1_000, 5_000, 4_000)),
            "deadline of 5ms is not between 1ms and 4ms",
        ),
        (
            of(CpuReservation { vcpus: 0, ..good }),
            "number of vCPUs of 0 is not between 1",
        ),
        (
            Request {
                message: Some(message),
                ..of(good)
            },
            "a message's delay has no bound without a bandwidth",
        ),
        (
            promised,
            "the delay of a message's CPU time has no bound without",
        ),
    ] {
        let said = refusal(&dc, &wrong);
        assert!(said.contains(why), "{said}");
    }
}

fn reservations() -> impl Strategy<Value = CpuReservation> {
    (200_u64..2_000, 1_u64..4, 1_u32..4).prop_map(|(runtime, times, vcpus)| CpuReservation {
        vcpus,
        ..reservation(runtime, runtime * times + 2_000, 8_000)
    })
}

fn cpus() -> impl Strategy<Value = Option<HostCpu>> {
    let some = (0_u64..1_500, 0_u32..9).prop_map(|(reservable, threads)| cpu(reservable, threads));
    proptest::option::weighted(0.8, some)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// Admissions, resizes and moves reserve no more of a host than it keeps. A machine is refused
    /// only if each host lacks a slot or CPU for it.
    #[test]
    fn no_host_has_more_reserved_than_it_keeps(
        tree in trees(),
        said in proptest::collection::vec(cpus(), 30),
        changes in proptest::collection::vec((changes(), proptest::option::of(reservations())), 1..24),
        one in reservations(),
    ) {
        let mut dc = Datacentre::new(tree, Policy::Silo);
        let hosts = dc.topology().hosts().to_vec();
        for (host, cpu) in hosts.iter().zip(said.iter().cycle()) {
            dc.set_host_cpu(*host, *cpu);
        }
        for (number, (change, reservation)) in changes.iter().enumerate() {
            let mut change = change.clone();
            if let Change::Admit(request) = &mut change {
                request.cpu_reservation = *reservation;
            }
            let before = dc.clone();
            if !apply(&mut dc, number as u64, &change) {
                prop_assert_eq!(DatacentreState::of(&before), DatacentreState::of(&dc));
            }
            state_is_as_recomputed(&dc);
            all_promises_hold(&dc);
            let mut sums = BTreeMap::<NodeId, CpuUse>::new();
            for (_, tenant) in dc.tenants() {
                for (host, count) in tenant.placement.hosts() {
                    prop_assert_eq!(dc.broken_rule(*host, &tenant.request), None);
                    if let Some(it) = tenant.request.cpu_reservation {
                        let sum = sums.entry(*host).or_default();
                        *sum = sum.plus(it.of_machine().times(*count));
                    }
                }
            }
            for (host, sum) in sums {
                let kept = dc.host_cpu(host).expect("it keeps some");
                prop_assert!(sum.cpu <= kept.reservable && sum.threads <= kept.threads.into());
            }
        }
        let single = asked(1, one);
        let takes = |host: &NodeId| {
            let Some(cpu) = dc.host_cpu(*host) else { return false };
            let sum = dc.reserved(*host).plus(one.of_machine());
            let fits = sum.cpu <= cpu.reservable && sum.threads <= cpu.threads.into();
            dc.free(*host).slots > 0 && fits && cpu.keeps(&one).is_ok()
        };
        prop_assert_eq!(dc.fit(&single).is_ok(), hosts.iter().any(takes));
        if let Err(AdmitError::NoPlacement(error)) = dc.fit(&single) {
            let has_slot = hosts.iter().any(|host| dc.free(*host).slots > 0);
            let says_cpu = matches!(error, PlacementError::Cpu { .. });
            prop_assert_eq!(says_cpu, has_slot, "{}", error);
        }
    }
}

#[test]
fn cpu_that_guests_hold_unpromised_is_not_reserved_again() {
    let (mut dc, [one, ..]) = four();
    let quarter = reservation(1_000, 4_000, 4_000);
    let with = |unpromised, threads| HostCpu {
        unpromised: CpuUse {
            cpu: unpromised,
            threads,
        },
        ..cpu(1_000, 4)
    };
    dc.set_host_cpu(one, Some(with(500, 2)));
    dc.admit(TenantId(1), &asked(2, quarter)).unwrap();
    assert!(dc.fit(&asked(1, quarter)).is_err());
    dc.check_reserved(one).unwrap();
    dc.set_host_cpu(one, Some(with(501, 2)));
    assert_eq!(
        dc.broken_rule(one, &asked(1, quarter)).unwrap().to_string(),
        "its machines would have 0.500 of a CPU reserved in all, and it keeps 0.499 beside 0.501 \
         that guests there have unpromised"
    );
    dc.set_host_cpu(one, Some(with(100, 3)));
    assert_eq!(
        dc.check_reserved(one).unwrap_err().to_string(),
        "2 vCPUs of its machines would have a reservation of CPU, and it keeps 1 beside 3 that \
         guests there have unpromised"
    );
    // What they have beside what it keeps is nobody's promise where there is none.
    dc.release(TenantId(1)).unwrap();
    dc.set_host_cpu(one, Some(with(2_000, 9)));
    dc.check_reserved(one).unwrap();
    assert_eq!(dc.broken_rule(one, &request(1, 10, 1_538)), None);
}
