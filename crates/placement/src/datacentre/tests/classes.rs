//! Delay classes: state and promises under random changes, and the least delays.

use super::check::{DatacentreState, all_promises_hold, state_is_as_recomputed};
use super::random::{Change, apply, changes, requests, trees_with};
use super::*;
use crate::topology::{DelayClassSpec, SpecError};
use proptest::prelude::*;
use tailbound_classes::Mark;

fn class(micros: u64, dscp: u8) -> DelayClassSpec {
    DelayClassSpec {
        queue: Nanos::from_micros(micros),
        mark: Mark {
            dscp,
            pcp: dscp >> 3,
        },
    }
}

fn classes() -> impl Strategy<Value = Vec<DelayClassSpec>> {
    let queues = (3_u64..20, 1_u64..12);
    (queues, 1_usize..3).prop_map(|((first, more), count)| {
        let both = [class(first, 56), class(first + more, 48)];
        both[2 - count..].to_vec()
    })
}

fn trees() -> impl Strategy<Value = Topology> {
    trees_with(&[10_000, 25_000], 100_000..600_000, classes())
}

/// The request in a class, with a part of its delay.
fn in_class(mut request: Request, class: Option<u8>) -> Request {
    if let Some(guarantee) = &mut request.guarantee {
        guarantee.class = class;
    }
    request
}

fn of_classes() -> impl Strategy<Value = Option<u8>> {
    proptest::option::weighted(0.6, 1_u8..3)
}

/// A rack of `10G`: links of 10 Gbit/s, 800 KB in switches, 50 us in hosts.
fn rack(classes: &[DelayClassSpec]) -> Result<Topology, SpecError> {
    let spec = Spec {
        frame: Bytes(1_538),
        packet: None,
        classes: Classes::default().into(),
        delay_classes: classes.to_vec(),
        groups: vec![group("r", None, link(10_000, 800_000))],
        hosts: vec![host(
            "h",
            "r",
            10,
            4,
            UplinkSpec {
                up_buffer: Some(Bytes(62_500)),
                ..link(10_000, 800_000)
            },
        )],
    };
    spec.build()
}

/// Silo's class A, with a delay.
fn class_a(vms: u32, micros: u64) -> Request {
    let mut request = request(vms, 250, 15_000);
    let guarantee = request.guarantee.as_mut().expect("it has one");
    guarantee.delay = Some(Nanos::from_micros(micros));
    guarantee.burst_rate = Some(Rate::from_mbit(1_000));
    guarantee.bursts = Some(Bursts::ONE);
    // One machine a host.
    request.domains = Some(FaultDomains {
        height: 0,
        count: vms,
    });
    request
}

fn apply_in(dc: &mut Datacentre, number: u64, change: &Change, class: Option<u8>) -> bool {
    let change = match change {
        Change::Admit(request) => Change::Admit(in_class(*request, class)),
        Change::Replace(which, request) => Change::Replace(*which, in_class(*request, class)),
        other => other.clone(),
    };
    apply(dc, number, &change)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn promises_of_every_class_hold_after_any_changes(
        tree in trees(),
        changes in proptest::collection::vec((changes(), of_classes()), 1..30),
    ) {
        let mut dc = Datacentre::new(tree, Policy::Silo);
        for (number, (change, class)) in changes.iter().enumerate() {
            let before = dc.clone();
            if !apply_in(&mut dc, number as u64, change, *class) {
                prop_assert_eq!(DatacentreState::of(&before), DatacentreState::of(&dc));
            }
            state_is_as_recomputed(&dc);
            all_promises_hold(&dc);
            prop_assert!(dc.ports_over().is_empty());
        }
    }

    #[test]
    fn the_class_of_a_delay_is_the_lowest_that_keeps_it(tree in trees(), micros in 1_u64..400) {
        let delay = Nanos::from_micros(micros);
        let hosts = tree.hosts();
        let pairs = || hosts.iter().flat_map(|one| hosts.iter().map(move |other| (*one, *other)));
        let keeps = |class: Option<u8>| {
            let tree = tree.of_class(class).expect("there is one");
            pairs().any(|(one, other)| one != other && tree.delay(one, other) <= delay)
        };
        let all = (1..=tree.delay_classes().len() as u8).map(Some).chain([None]);
        let lowest = all.rev().find(|class| keeps(*class));
        if hosts.len() > 1 {
            prop_assert_eq!(tree.class_for(delay), lowest.unwrap_or(Some(1)));
        }
    }

    #[test]
    fn the_nearest_request_passes_in_its_class(
        tree in trees(),
        others in proptest::collection::vec((requests(), of_classes()), 0..6),
        request in requests(),
    ) {
        let mut dc = Datacentre::new(tree, Policy::Silo);
        for (number, (other, class)) in others.iter().enumerate() {
            let _ = dc.admit(TenantId(number as u64), &in_class(*other, *class));
        }
        let request = dc.topology().with_class(request);
        let explanation = dc.explain(&request).expect("it makes sense");
        prop_assert_eq!(explanation.is_none(), dc.fit(&request).is_ok());
        for near in explanation.iter().flat_map(|explanation| &explanation.nearest) {
            prop_assert!(dc.fit(&near.apply_in(dc.topology(), &request)).is_ok(), "{:?}", near);
        }
    }
}

#[test]
fn a_tenth_of_a_millisecond_is_promised_with_a_class_and_not_without() {
    let mut dc = Datacentre::new(rack(&[]).expect("no rule is broken"), Policy::Silo);
    let wanted = class_a(3, 100);
    assert_eq!(dc.topology().with_class(wanted), wanted);
    let refused = dc.admit(TenantId(1), &wanted).expect_err("690 us");
    assert!(refused.to_string().contains("at least 690us"), "{refused}");

    let mut dc = Datacentre::new(rack(&[class(50, 48)]).expect("it fits"), Policy::Silo);
    let wanted = dc.topology().with_class(wanted);
    assert_eq!(wanted.class(), Some(1));
    let mut admitted = 0;
    while dc.admit(TenantId(admitted), &wanted).is_ok() {
        admitted += 1;
    }
    assert!(admitted >= 1, "three machines in an empty rack");
    all_promises_hold(&dc);
    let usual = dc.topology().with_class(class_a(3, 690));
    assert_eq!(usual.class(), None, "690 us are kept without a class");
    println!("{admitted} tenants of the class");
}

#[test]
fn a_class_that_contradicts_the_fabric_or_a_queue_is_refused_in_words() {
    for (classes, wrong) in [
        (vec![class(60, 48)], "port \"h-1 up\""),
        (vec![class(2, 48)], "shorter than two frames"),
        (
            vec![class(20, 48), class(20, 56)],
            "not longer than the 20us",
        ),
        (vec![class(20, 46)], "`guaranteed`"),
        (vec![class(20, 64)], "0 to 63"),
        (
            vec![class(20, 48), class(30, 56), class(40, 32)],
            "at most 2",
        ),
    ] {
        let refused = rack(&classes).expect_err(wrong).to_string();
        assert!(refused.contains(wrong), "{refused}");
    }
    let dc = Datacentre::new(rack(&[]).expect("no rule is broken"), Policy::Silo);
    let refused = dc
        .fit(&in_class(class_a(3, 1_000), Some(1)))
        .expect_err("no class");
    assert!(
        refused.to_string().contains("no delay class 1"),
        "{refused}"
    );
}

/// The queues of a class are at all ports: those of hosts as those of racks.
#[test]
fn every_port_has_the_queue_of_a_class() {
    let topology = rack(&[class(50, 48)]).expect("it fits");
    for node in (1..topology.len() as u32).map(NodeId) {
        for direction in [Direction::Up, Direction::Down] {
            let port = topology.of_rank(0).port(PortId { node, direction });
            assert_eq!(
                port.capacity,
                Nanos::from_micros(50),
                "{node:?} {direction:?}"
            );
        }
    }
}

/// An exact proof of a refusal counts the tenants of one class.
#[test]
fn a_refusal_beside_tenants_of_a_class_is_not_proved() {
    let mut dc = Datacentre::new(rack(&[class(50, 48)]).expect("it fits"), Policy::Silo);
    // Ten hosts have room for four machines each, and their links for one.
    let greedy = request(40, 9_000, 15_000);
    let refused = |dc: &Datacentre| dc.fit(&greedy).map(drop);
    let because = |why| Err(AdmitError::NoPlacement(why));
    assert_eq!(refused(&dc), because(PlacementError::Ports));
    let urgent = dc.topology().with_class(class_a(3, 100));
    dc.admit(TenantId(1), &urgent).expect("it fits");
    let fewer = Request { vms: 37, ..greedy };
    assert_eq!(dc.fit(&fewer).map(drop), because(PlacementError::Unproved));
}
