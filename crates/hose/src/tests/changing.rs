//! Inward bursts of a tenant that changes while bytes are lent: machines come, leave and move, under
//! all faults of the network and restarts of hosts.

use super::inward::{B, BURST, BURST_IN, Excess, HOSTS, LINK, ROUNDED, lent, pacer, send};
use super::net::{Faults, INTERVAL, Net, machine};
use crate::{InwardBurst, Machine};
use proptest::prelude::*;
use tailbound_dataplane::Guarantee;
use tailbound_units::{Bytes, Nanos};

/// A host without a machine at the start.
const SPARE: usize = HOSTS;
/// The machine that moves, or comes and leaves; its address is that of its first host.
const GUEST: usize = 4;
/// Longer than a lease, by any clock.
const LEASE: Nanos = Nanos(22 * INTERVAL.0);

/// The inward burst of each of `count` machines.
fn inward(count: usize) -> InwardBurst {
    InwardBurst {
        most: Bytes(BURST_IN),
        part: Bytes(BURST_IN / 2 / (count as u64 - 1)),
    }
}

/// A tenant of four machines that stay on their hosts, and one that may be on a host or on none.
struct Tenant {
    net: Net,
    excess: Excess,
    /// Host of the fifth machine.
    at: Option<usize>,
    most_lent: u64,
}

impl Tenant {
    fn new(seed: u64, faults: Faults) -> Self {
        let net = Net::new(vec![Vec::new(); HOSTS + 1], Faults::NONE, seed);
        let mut tenant = Self {
            net,
            excess: Excess::new(),
            at: Some(GUEST),
            most_lent: 0,
        };
        tenant.net.slice = Nanos::from_micros(50);
        for host in 0..HOSTS {
            tenant.begin(host, HOSTS);
        }
        // All learn of all, buckets and pools fill.
        tenant.run(Nanos::from_millis(270));
        tenant.net.faults = faults;
        tenant
    }

    /// Number of machines.
    fn count(&self) -> usize {
        HOSTS - usize::from(self.at.is_none())
    }

    /// The number of the machine on a host, which is that of its first host.
    fn on(&self, host: usize) -> Option<usize> {
        if host < GUEST {
            Some(host)
        } else {
            (self.at == Some(host)).then_some(GUEST)
        }
    }

    fn run(&mut self, time: Nanos) {
        let Self { net, most_lent, .. } = self;
        net.run_until(net.now + time, |net| *most_lent = lent(net).max(*most_lent));
        self.take();
    }

    fn take(&mut self) {
        for host in 0..=SPARE {
            self.excess.take(&mut self.net, host);
        }
    }

    /// Begins a machine on a host, with empty buckets, as one of `count`.
    fn begin(&mut self, host: usize, count: usize) {
        self.tell(host, count);
        let clock = self.net.clock(host);
        self.net.pace(host, pacer(clock, Some(inward(count))));
    }

    /// Changes the number of machines that the host of one knows.
    fn tell(&mut self, host: usize, count: usize) {
        let number = self.on(host).expect("it is there");
        let inward = inward(count);
        let machine = Machine {
            burst: BURST,
            inward: Some(inward),
            ..machine(number, 0, B, count as u32)
        };
        self.net.set_machines(host, vec![machine]);
        let clock = self.net.clock(host);
        if let Some(paces) = &mut self.net.hosts[host].paces {
            let guarantee = Guarantee {
                mark: None,
                credit: Some(inward.part),
                ..Guarantee::new(B, BURST, LINK)
            };
            paces.guarantee(clock, &guarantee);
        }
    }

    /// Ends the fifth machine where it is. Frames that wait there are lost.
    fn end(&mut self) {
        self.take();
        if let Some(host) = self.at.take() {
            self.net.set_machines(host, Vec::new());
            self.net.hosts[host].paces = None;
        }
    }

    /// Moves the machine to the other of its hosts, which knows it a moment later.
    fn move_it(&mut self) {
        let to = if self.at == Some(GUEST) { SPARE } else { GUEST };
        self.end();
        self.pause(2_000);
        self.at = Some(to);
        self.begin(to, HOSTS);
    }

    /// Adds or removes the machine. Each host knows of it at another moment.
    fn come_or_leave(&mut self) {
        if self.at.is_some() {
            self.end();
        } else {
            self.at = Some(GUEST);
            self.begin(GUEST, HOSTS);
        }
        for host in 0..GUEST {
            self.pause(2_000);
            self.tell(host, self.count());
        }
    }

    fn pause(&mut self, micros: u64) {
        let time = self.net.random.below(micros);
        self.run(Nanos::from_micros(time));
    }

    fn restart(&mut self, host: usize) {
        self.take();
        self.net.restart(host);
        if self.on(host).is_some() {
            let clock = self.net.clock(host);
            self.net
                .pace(host, pacer(clock, Some(inward(self.count()))));
        }
    }

    /// All machines, or one, send to another.
    fn burst(&mut self) {
        let to = self.net.random.below(HOSTS as u64) as usize;
        let all = self.net.random.chance(60);
        let one = self.net.random.below(HOSTS as u64 + 1) as usize;
        let frames = 1 + self.net.random.below(14);
        for from in 0..=SPARE {
            if self.on(from).is_some_and(|number| number != to) && (all || from == one) {
                send(&mut self.net, from, to, frames);
            }
        }
    }

    /// Bursts, restarts and partitions, with `change` at times.
    fn storm(&mut self, mut change: impl FnMut(&mut Self)) {
        for round in 0..40 {
            let host = self.net.random.below(HOSTS as u64 + 1) as usize;
            match self.net.random.below(24) {
                0 | 1 => self.restart(host),
                2 => self.net.cut[host] = true,
                3..=5 => self.net.cut.fill(false),
                6..=9 => change(self),
                _ => self.burst(),
            }
            let longest = match round % 20 {
                10 => 800_000,
                5 | 15 => 60_000,
                _ => 8_000,
            };
            self.pause(longest);
        }
        self.excess.count();
    }
}

/// Faults of a network.
fn faults() -> impl Strategy<Value = Faults> {
    (0_u64..40, 0_u64..20, 0_u64..4_000).prop_map(|(loss, doubled, jitter)| Faults {
        loss,
        doubled,
        jitter: Nanos::from_micros(jitter),
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4))]

    /// Rates of both hosts may be in force for a lease after a move, loans of both never are.
    #[test]
    fn a_machine_that_moves_is_sent_no_more_than_its_inward_burst(
        seed in 1_u64..,
        faults in faults(),
    ) {
        let mut tenant = Tenant::new(seed, faults);
        tenant.storm(|tenant| {
            tenant.excess.count();
            tenant.excess.double_until(GUEST, tenant.net.now + LEASE + Nanos::from_millis(2));
            tenant.move_it();
        });
        let most = tenant.excess.most;
        prop_assert!(most <= BURST_IN + ROUNDED, "{} of {}", most, BURST_IN);
    }

    /// Until all hosts know of a change, a machine that came or left has a part beside theirs.
    #[test]
    fn machines_that_come_and_leave_add_a_part_each_until_all_hosts_know(
        seed in 1_u64..,
        faults in faults(),
    ) {
        let mut tenant = Tenant::new(seed, faults);
        tenant.storm(Tenant::come_or_leave);
        let (most, part) = (tenant.excess.most, inward(HOSTS - 1).part.0);
        prop_assert!(most <= BURST_IN + part + ROUNDED, "{} of {}", most, BURST_IN);
        prop_assert!(tenant.most_lent <= BURST_IN / 2, "{} lent", tenant.most_lent);
        // Later it is the inward burst again.
        tenant.net.cut.fill(false);
        tenant.net.faults = Faults::NONE;
        tenant.run(Nanos::from_millis(300));
        tenant.net.faults = faults;
        tenant.excess = Excess::new();
        tenant.storm(|_| {});
        let most = tenant.excess.most;
        prop_assert!(most <= BURST_IN + ROUNDED, "{} of {}", most, BURST_IN);
    }
}

/// A partitioned sender may use what the former host has lent it until its lease ends.
#[test]
fn the_host_to_which_a_machine_moved_lends_nothing_before_former_loans_have_ended() {
    let mut tenant = Tenant::new(3, Faults::NONE);
    for from in [0, 1] {
        send(&mut tenant.net, from, GUEST, 9);
    }
    tenant.run(Nanos::from_micros(500));
    assert_eq!(lent(&tenant.net), BURST_IN / 2, "all of the pool");
    // Their buckets are full again when they are cut off.
    tenant.run(Nanos::from_millis(8));
    tenant.net.cut[0] = true;
    tenant.net.cut[1] = true;
    tenant.excess.count();
    tenant
        .excess
        .double_until(GUEST, tenant.net.now + LEASE + Nanos::from_millis(2));
    tenant.move_it();
    tenant.run(Nanos::from_millis(6));
    for from in 0..GUEST {
        send(&mut tenant.net, from, GUEST, 9);
    }
    tenant.run(Nanos::from_millis(100));
    tenant.excess.count();
    let most = tenant.excess.most;
    assert!(most <= BURST_IN + ROUNDED, "{most} of {BURST_IN}");
}

#[test]
fn all_of_the_pool_is_lent_while_machines_come_and_move() {
    let mut tenant = Tenant::new(1, Faults::NONE);
    tenant.storm(Tenant::move_it);
    assert_eq!(tenant.most_lent, BURST_IN / 2);
    assert!(tenant.excess.most > BURST_IN / 2, "{}", tenant.excess.most);
    let mut tenant = Tenant::new(1, Faults::NONE);
    tenant.storm(Tenant::come_or_leave);
    assert_eq!(tenant.most_lent, BURST_IN / 2);
}
