//! Tenants that arrive and leave in a full data centre, with the links and the tenants of the
//! experiment `microbenchmark`: how many of the requested machines are placed, and at what effort.
//!
//! `TAILBOUND_ASKED=100,30000` sets the number of pods and of requests.

use super::*;
use crate::topology::NodeId;

/// A generator of random numbers (`SplitMix64`).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// An exponentially distributed number of machines, rounded up.
    fn machines(&mut self) -> u32 {
        let uniform = ((self.next() >> 11) + 1) as f64 / (1_u64 << 53) as f64;
        (-uniform.ln() * 49.0).ceil().clamp(1.0, 1_000.0) as u32
    }
}

/// 1,000 hosts of four slots in each pod.
fn full_size(pods: u32) -> Datacentre {
    let line = |mbit: u64, links, buffer: u64, up: Option<u64>| UplinkSpec {
        links,
        spread: Spread::Frame,
        up_buffer: up.map(Bytes),
        ..link(mbit, buffer)
    };
    let mut spec = Spec {
        frame: Bytes(1_538),
        packet: None,
        classes: Classes::default().into(),
        delay_classes: Vec::new(),
        groups: Vec::new(),
        hosts: Vec::new(),
    };
    for pod in 0..pods {
        let pod = format!("p{pod}");
        let uplink = line(100_000, 4, 500_000, None);
        spec.groups.push(group(&pod, None, uplink));
        for rack in 0..25 {
            let rack = format!("{pod}r{rack}");
            let uplink = line(40_000, 2, 500_000, None);
            spec.groups.push(group(&rack, Some(&pod), uplink));
            let (name, uplink) = (format!("{rack}h"), line(10_000, 1, 800_000, Some(62_500)));
            spec.hosts.push(host(&name, &rack, 40, 4, uplink));
        }
    }
    Datacentre::new(spec.build().unwrap(), Policy::Silo)
}

/// A tenant of class A or B, with an inward burst of `inward` bursts, or of the least possible.
fn tenant(vms: u32, is_a: bool, inward: Option<u64>) -> Request {
    let mut tenant = if is_a {
        request(vms, 250, 15_000)
    } else {
        request(vms, 2_000, 1_500)
    };
    let least = tenant.least_inward(Bytes(1_538));
    let guarantee = tenant.guarantee.as_mut().expect("a guarantee");
    guarantee.bursts = Some(Bursts::ONE);
    if is_a {
        guarantee.delay = Some(Nanos::from_millis(1));
        guarantee.burst_rate = Some(Rate::from_mbit(1_000));
    }
    let burst = guarantee.burst.0.max(1_538);
    guarantee.burst_in = inward.map(|inward| Bytes(inward * burst).max(least));
    tenant
}

/// Requests of one class, or their machines.
#[derive(Debug, Default, Clone, Copy)]
struct Count {
    asked: u64,
    placed: u64,
}

impl Count {
    fn add(&mut self, number: u32, is_placed: bool) {
        self.asked += u64::from(number);
        self.placed += u64::from(number) * u64::from(is_placed);
    }

    /// The placed part, in per cent.
    fn placed(self) -> f64 {
        self.placed as f64 * 100.0 / self.asked as f64
    }
}

#[derive(Debug, Default)]
struct Outcome {
    machines: Count,
    classes: [Count; 2],
    looks: Vec<u32>,
    gave_up: u64,
}

impl Outcome {
    fn mean_looks(&self) -> u64 {
        let looks = self.looks.iter().map(|looks| u64::from(*looks));
        looks.sum::<u64>() / self.looks.len() as u64
    }
}

/// Keeps the slots at 90 %: before a request random tenants leave.
fn ask(pods: u32, requests: u64, inward: Option<u64>) -> Outcome {
    let mut dc = full_size(pods);
    let (mut random, mut leavers) = (Random(1), Random(2));
    let slots = dc.topology().resources(NodeId::TOP).slots;
    let is_full = |dc: &Datacentre| dc.free(NodeId::TOP).slots * 10 < slots;
    let mut here: Vec<TenantId> = Vec::new();
    let (mut outcome, mut is_measured, mut next) = (Outcome::default(), false, 0);
    while (outcome.looks.len() as u64) < requests {
        is_measured |= is_full(&dc);
        while is_full(&dc) {
            let place = leavers.next() % here.len() as u64;
            dc.release(here.swap_remove(place as usize)).unwrap();
        }
        let (vms, class) = (random.machines(), (random.next() & 1) as usize);
        let id = TenantId(next);
        next += 1;
        let found = dc.admit(id, &tenant(vms, class == 0, inward)).map(drop);
        if found.is_ok() {
            here.push(id);
        }
        if is_measured {
            outcome.machines.add(vms, found.is_ok());
            outcome.classes[class].add(1, found.is_ok());
            outcome.looks.push(dc.last_effort());
            let gave_up = AdmitError::NoPlacement(PlacementError::Effort {
                looks: dc.last_effort(),
            });
            outcome.gave_up += u64::from(found == Err(gave_up));
        }
    }
    outcome.looks.sort_unstable();
    let refused = outcome.classes.map(|class| 100.0 - class.placed());
    println!(
        "inward burst {inward:?}: {:.1} % of the machines, A refused {:.1} %, B {:.1} %; looks {} in \
         the mean, {} at p99; {} gave up",
        outcome.machines.placed(),
        refused[0],
        refused[1],
        outcome.mean_looks(),
        outcome.looks[outcome.looks.len() * 99 / 100],
        outcome.gave_up
    );
    outcome
}

#[test]
fn large_tenants_find_room_in_a_full_data_centre() {
    let set = std::env::var("TAILBOUND_ASKED").ok();
    let set = set.as_deref().and_then(|text| text.split_once(','));
    let (pods, requests) = set.map_or((8, 1_500), |(pods, requests)| {
        (pods.parse().unwrap(), requests.parse().unwrap())
    });
    let limited = ask(pods, requests, Some(16));
    let plain = ask(pods, requests, None);
    // By first fit 57 and 58 %: small tenants leave no rack to large ones.
    assert!(limited.machines.placed() > 68.0);
    assert!(plain.machines.placed() > 60.0);
    // At full size large tenants with an inward burst take more.
    assert!(plain.mean_looks() <= 600);
    assert!(set.is_some() || limited.mean_looks() <= 600);
}
