//! The hose model between hosts that pace: each runs the protocol of the data path
//! ([`tailbound_hose`]), which divides a machine's bandwidth among those that send to it.
//!
//! Hosts are looked at in steps. A datagram takes a step, and nothing of the links.

use super::paced::PacedHost;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tailbound_dataplane::GuestId;
use tailbound_hose::{
    self as hose, Address, Change, ClassesCode, Destination, Epoch, FlowKey, HoseConfig, HoseState,
    HostId, KeyEpoch, Machine, PairKeys, Secret, TimeOfDay,
};
use tailbound_units::{Bytes, Nanos, Rate};

/// How far apart steps are.
pub(super) const STEP: Nanos = Nanos::from_micros(100);
/// How often rates are exchanged.
const INTERVAL: Nanos = Nanos::from_millis(1);
/// Until then all hosts have heard of each other's machines.
pub(super) const SETTLED: Nanos = Nanos::from_millis(10);

/// A machine that takes part.
#[derive(Debug, Clone)]
pub(super) struct Member {
    pub(super) host: usize,
    /// Its slot there.
    pub(super) slot: u32,
    /// Its number, of all that there are, and its tenant's.
    pub(super) number: u32,
    pub(super) tenant: u32,
    pub(super) bandwidth: Rate,
    pub(super) burst: Bytes,
    /// How many its tenant has.
    pub(super) machines: u32,
}

/// All hosts' parts in the exchange of rates.
#[derive(Debug, Default)]
pub(super) struct Hoses {
    hosts: Vec<HoseState>,
    places: BTreeMap<HostId, usize>,
    /// Datagrams, and to whom.
    flying: Vec<(usize, Vec<u8>)>,
    next_sample: Nanos,
    /// Rates that a pacer did not take.
    pub(super) refused: u64,
}

fn name(host: usize) -> String {
    format!("host-{host}")
}

fn id(host: usize) -> HostId {
    HostId::of(&name(host))
}

/// The address of a machine: what pacer and protocol know it by.
pub(super) fn address(machine: u32) -> u128 {
    0xffff_0a00_0000 + u128::from(machine)
}

impl Hoses {
    /// Those of so many hosts. Who shares a tenant hears each other.
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

    /// Does what is due at `now`: `change` gives each host's pacer to what is to be done with it.
    pub(super) fn step(
        &mut self,
        now: Nanos,
        mut change: impl FnMut(usize, &mut dyn FnMut(&mut PacedHost)),
    ) {
        let today = TimeOfDay(1);
        for (to, datagram) in std::mem::take(&mut self.flying) {
            // One that is refused is counted there.
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
                for Change { flow, rate } in &changes {
                    let guest = std::num::NonZeroU64::new(flow.guest.0).map(GuestId::from);
                    if let (Some(guest), Destination::Address(to)) = (guest, flow.destination) {
                        let set = paced.set_destination(now, guest, to.0, *rate);
                        *refused += u64::from(set.is_err());
                    }
                }
            });
        }
    }
}

/// What a guest sends to a destination.
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
