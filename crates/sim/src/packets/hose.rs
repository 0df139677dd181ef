//! The hose model between hosts that pace: each runs the protocol of the data path
//! ([`tailbound_hose`]), which divides a machine's bandwidth among its senders.
//!
//! The protocol runs in steps. A datagram takes one step, and no bandwidth of the links.

use super::paced::PacedHost;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tailbound_dataplane::GuestId;
use tailbound_dataplane::pacer::Place;
use tailbound_hose::{
    self as hose, Address, Change, ClassesCode, Destination, Epoch, FlowKey, HoseConfig, HoseState,
    HostId, InwardBurst, KeyEpoch, Machine, PairKeys, Secret, TimeOfDay,
};
use tailbound_units::{Bytes, Nanos, Rate};

/// Interval between steps.
pub(super) const STEP: Nanos = Nanos::from_micros(100);
/// Interval of the exchange of rates.
const INTERVAL: Nanos = Nanos::from_millis(1);
/// Time by which all hosts know each other's machines.
pub(super) const SETTLED: Nanos = Nanos::from_millis(10);

/// A machine that takes part.
#[derive(Debug, Clone)]
pub(super) struct Member {
    pub(super) host: usize,
    /// Slot on its host.
    pub(super) slot: u32,
    /// Number of the machine among all machines, and number of its tenant.
    pub(super) number: u32,
    pub(super) tenant: u32,
    pub(super) bandwidth: Rate,
    pub(super) burst: Bytes,
    pub(super) inward: Option<InwardBurst>,
    /// Number of machines of its tenant.
    pub(super) machines: u32,
}

/// Protocol state of all hosts.
#[derive(Debug, Default)]
pub(super) struct Hoses {
    hosts: Vec<HoseState>,
    places: BTreeMap<HostId, usize>,
    /// Datagrams in flight, with the receiving host.
    flying: Vec<(usize, Vec<u8>)>,
    next_sample: Nanos,
    /// Number of rates that a pacer refused.
    pub(super) refused: u64,
}

fn name(host: usize) -> String {
    format!("host-{host}")
}

fn id(host: usize) -> HostId {
    HostId::of(&name(host))
}

/// Returns the address of a machine in pacer and protocol.
pub(super) fn address(machine: u32) -> u128 {
    0xffff_0a00_0000 + u128::from(machine)
}

impl Hoses {
    /// Returns the state of `hosts` hosts. Hosts that share a tenant are peers.
    pub(super) fn new(hosts: usize, members: &[Member]) -> Self {
        let mut by_tenant: BTreeMap<u32, BTreeSet<usize>> = BTreeMap::new();
        let mut machines: Vec<Vec<Machine>> = vec![Vec::new(); hosts];
        for member in members {
            by_tenant
                .entry(member.tenant)
                .or_default()
                .insert(member.host);
            machines[member.host].push(Machine {
                guest: hose::GuestId(GuestId::first(member.slot).get().get()),
                name: format!("sim/{}/{}", member.tenant, member.number),
                station: None,
                addresses: vec![Address(address(member.number))],
                bandwidth: member.bandwidth,
                burst: member.burst,
                inward: member.inward,
                tenant_machines: member.machines,
            });
        }
        let mut peers: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); hosts];
        for together in by_tenant.values() {
            for host in together {
                peers[*host].extend(together.iter().filter(|it| *it != host));
            }
        }
        let states = machines.into_iter().zip(&peers).enumerate();
        Self {
            hosts: states
                .map(|(host, (machines, peers))| state(host, peers, machines))
                .collect(),
            places: (0..hosts).map(|host| (id(host), host)).collect(),
            ..Self::default()
        }
    }

    /// Handles all events due at `now`; `change` applies a function to a host's pacer.
    pub(super) fn step(
        &mut self,
        now: Nanos,
        mut change: impl FnMut(usize, &mut dyn FnMut(&mut PacedHost)),
    ) {
        let today = TimeOfDay(1);
        for (to, datagram) in std::mem::take(&mut self.flying) {
            // The state counts refused datagrams.
            let _ = self.hosts[to].handle_datagram(now, today, &datagram);
        }
        let is_sample = now >= self.next_sample;
        if is_sample {
            self.next_sample = now + INTERVAL;
        }
        let Self {
            hosts,
            places,
            flying,
            refused,
            ..
        } = self;
        for (host, state) in hosts.iter_mut().enumerate() {
            change(host, &mut |paced| {
                paced.flows_that_wait(|slot, destination, queued| {
                    state.handle_waiting(now, flow(slot, destination), queued);
                });
            });
            if is_sample {
                change(host, &mut |paced| {
                    paced.destinations_used(now, |slot, destination, usage| {
                        state.handle_usage(now, flow(slot, destination), usage);
                    });
                });
                state.handle_sample_end(now);
            }
            state.poll_datagrams(now, today, |to, datagram| {
                flying.push((places[&to], datagram.to_vec()));
            });
            let changes: Vec<Change> = state.poll_changes().collect();
            if changes.is_empty() {
                continue;
            }
            change(host, &mut |paced| {
                for change in &changes {
                    let Change {
                        flow, rate, lent, ..
                    } = change;
                    let guest = std::num::NonZeroU64::new(flow.guest.0).map(GuestId::from);
                    if let (Some(guest), Destination::Address(to)) = (guest, flow.destination) {
                        let place = Place {
                            host: places[&change.receiver.host] as u64,
                            machine: change.receiver.machine.into(),
                        };
                        paced.set_place(guest, to.0, rate.map(|_| place));
                        let set = paced.set_destination(now, guest, to.0, *rate);
                        paced.lend(now, guest, to.0, *lent);
                        *refused += u64::from(set.is_err());
                    }
                }
            });
        }
    }
}

/// Returns the flow of a guest to a destination.
fn flow(guest: GuestId, destination: u128) -> FlowKey {
    FlowKey {
        guest: hose::GuestId(guest.get().get()),
        destination: Destination::Address(Address(destination)),
    }
}

fn state(host: usize, peers: &BTreeSet<usize>, machines: Vec<Machine>) -> HoseState {
    let config = HoseConfig {
        host: id(host),
        classes: ClassesCode::NONE,
        epoch: Epoch(1),
        interval: INTERVAL,
        commitment: Nanos::ZERO,
        peers: peers.iter().map(|peer| id(*peer)).collect(),
    };
    let mut state = HoseState::new(Nanos::ZERO, config);
    let secret = Secret::new(&[7; 32]).expect("it is long enough");
    let mut keys: BTreeMap<HostId, Arc<PairKeys>> = peers
        .iter()
        .map(|peer| {
            let key = secret.pair_key(KeyEpoch::OWN, &name(host), &name(*peer));
            (id(*peer), Arc::new(PairKeys::own(key)))
        })
        .collect();
    state.set_keys(Nanos::ZERO, |peer| keys.remove(&peer));
    state.set_machines(Nanos::ZERO, machines);
    state
}
