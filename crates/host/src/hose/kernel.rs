//! The exchange of rates for guests whose frames the kernel paces, as `tailbound adopt` arranges it.
//!
//! With [`tailbound_sys::edge`] each frame gets its departure time when it comes, so frames leave at a former rate
//! for up to a horizon after it has fallen. The exchange confirms, returns and pledges that much later
//! ([`tailbound_hose::HoseConfig::commitment`]). The kernel cannot report a frame that waits, so each bucket is
//! read once in an interval. If the process stands still, the kernel itself ends granted rates after
//! [`ALIVE`] intervals.
//!
//! [`KernelRates`] has neither a clock nor a socket, `service` has both.

mod map;
mod service;
#[cfg(test)]
mod tests;

pub use service::{KernelExchange, KernelHoseError, read_section};

use map::{FlowLimit, RateMap};
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use tailbound_hose::{
    self as hose, Address, Change, Destination, FlowKey, GuestId, HoseState, HostId, InwardBurst,
    Machine, Station, TimeOfDay, Usage,
};
use tailbound_sys::edge::{Bucket, GrantedRate, RateUsage};
use tailbound_units::{Bytes, Nanos, Rate};

/// Intervals for which a frame waits for a destination's bucket, at most. Later ones are dropped.
const HORIZON: u64 = 6;
/// Intervals after which the kernel ends granted rates that this process does not renew.
const ALIVE: u64 = 3;
/// Intervals between a lower rate and the last frame that leaves at the former one: the horizon, the rates'
/// time without a renewal, and one for the process and for late frames.
const COMMITMENT: u64 = HORIZON + ALIVE + 1;
/// Intervals of a pledge.
const PLEDGE: u64 = 600;
/// The time after which destinations of a former process are removed unless they are confirmed.
const KEPT: Nanos = Nanos::from_secs(1);
/// The largest number of a host's destinations: one system call reads each in an interval.
const MAX_DESTINATIONS: usize = 1024;
/// The least rate, also of a pair without a grant.
const SLOWEST: Rate = Rate(8_000);
/// The longest frame on the wire.
const FRAME: Bytes = Bytes(1_542);

/// An adopted guest that takes part in the exchange.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelGuest {
    /// The host's interface of the guest, with programs attached.
    pub ifindex: u32,
    /// The VM's name, `OWNER/NAME/NUMBER`.
    pub vm: String,
    /// Its MAC address.
    pub mac: [u8; 6],
    /// Its IP addresses.
    pub ips: Vec<IpAddr>,
    /// B.
    pub bandwidth: Rate,
    /// S, at least one frame.
    pub burst: Bytes,
    /// The inward burst of each VM of its tenant, if that is limited.
    pub inward: Option<KernelInward>,
    /// The number of VMs of its tenant.
    pub tenant_vms: u32,
}

/// An inward burst, as [`tailbound_hose::InwardBurst`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelInward {
    /// `S_in`.
    pub most: Bytes,
    /// The part of it that each other VM always has.
    pub part: Bytes,
}

impl KernelGuest {
    fn machine(&self) -> Machine {
        Machine {
            guest: GuestId(self.ifindex.into()),
            name: self.vm.clone(),
            station: Station::new(self.mac),
            addresses: self.ips.iter().copied().map(Address::from).collect(),
            bandwidth: self.bandwidth,
            burst: self.burst,
            inward: self
                .inward
                .map(|KernelInward { most, part }| InwardBurst { most, part }),
            tenant_machines: self.tenant_vms,
        }
    }
}

/// Counters of the exchange.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Counters {
    /// Rates that the kernel refused, or for which there was no room.
    pub(super) refused: u64,
}

/// The exchange of rates of a host's adopted guests.
pub(super) struct KernelRates<M> {
    pub(super) state: HoseState,
    map: M,
    guests: HashMap<GuestId, KernelGuest>,
    /// The destinations that the map has, with the bytes that were charged so far.
    lines: BTreeMap<FlowKey, Bytes>,
    /// Destinations of a former process that are not confirmed yet.
    former: Vec<FlowKey>,
    /// The time at which no frame leaves by rates of a former process.
    begins: Nanos,
    next_sample: Nanos,
    counters: Counters,
}

impl<M: RateMap> KernelRates<M> {
    /// Begins the exchange. `state` makes the protocol's state with a time and a commitment. Rates of a former
    /// process end now, and the exchange is silent until no frame leaves by them.
    pub(super) fn new(
        now: Nanos,
        interval: Nanos,
        mut map: M,
        state: impl FnOnce(Nanos, Nanos) -> HoseState,
    ) -> Self {
        let commitment = Nanos(interval.0 * COMMITMENT);
        let begins = now + commitment;
        let former = map.former();
        for flow in &former {
            map.silence(*flow);
        }
        Self {
            state: state(begins, commitment),
            map,
            guests: HashMap::new(),
            lines: BTreeMap::new(),
            former,
            begins,
            next_sample: begins,
            counters: Counters::default(),
        }
    }

    /// Returns the counters.
    pub(super) const fn counters(&self) -> Counters {
        self.counters
    }

    /// Replaces the guests that take part.
    pub(super) fn set_guests(&mut self, now: Nanos, guests: Vec<KernelGuest>) {
        let machines: Vec<_> = guests.iter().map(KernelGuest::machine).collect();
        self.state.set_machines(now.max(self.begins), machines);
        let guests = guests.into_iter();
        let guests = guests.map(|guest| (GuestId(guest.ifindex.into()), guest));
        self.guests = guests.collect();
    }

    /// Samples the buckets if that is due, sends the due datagrams, and sets the resulting rates. Call it after
    /// the datagrams that have come, and at [`Self::poll_at`].
    pub(super) fn poll(&mut self, now: Nanos, today: TimeOfDay, send: impl FnMut(HostId, &[u8])) {
        if now < self.begins {
            return;
        }
        // Grants are in force before they are confirmed.
        self.apply(now);
        if now >= self.next_sample {
            self.next_sample = now + self.state.interval();
            self.sample(now);
        }
        self.state.poll_datagrams(now, today, send);
        self.apply(now);
        // The kernel polices no sender, and knows destinations by their stations alone.
        self.state.poll_stations().for_each(drop);
        self.state.poll_incoming(now).for_each(drop);
        if now >= self.begins + KEPT && !self.former.is_empty() {
            let removed_flows: Vec<_> = self.former.drain(..).collect();
            self.map.remove(&removed_flows);
        }
        let interval = self.state.interval().0;
        let [until, pledged] = [ALIVE, PLEDGE].map(|count| now + Nanos(interval * count));
        self.map.renew(until, pledged);
    }

    /// Returns the time at which [`Self::poll`] must be called next.
    pub(super) fn poll_at(&self) -> Nanos {
        let sample = (!self.lines.is_empty()).then_some(self.next_sample);
        let times = [sample, self.state.poll_at()];
        let next = times.into_iter().flatten().min();
        next.map_or(self.next_sample, |at| at.max(self.begins))
    }

    /// Reads the use of all buckets.
    fn sample(&mut self, now: Nanos) {
        for (flow, charged) in &mut self.lines {
            let Some(usage) = self.map.usage(*flow, now) else {
                continue;
            };
            if usage.charged == *charged && usage.lacks == Bytes::ZERO {
                continue;
            }
            let charged_bytes = usage.charged.saturating_sub(*charged);
            *charged = usage.charged;
            let guest = self.guests.get(&flow.guest);
            let borrower = guest.filter(|guest| guest.inward.is_some());
            let most = borrower.map_or(Bytes::ZERO, |guest| guest.burst);
            let used = used(&usage, charged_bytes, most);
            self.state.handle_usage(now, *flow, used);
        }
        self.state.handle_sample_end(now);
    }

    /// Sets the rates that have changed.
    fn apply(&mut self, now: Nanos) {
        let changes: Vec<_> = self.state.poll_changes().collect();
        let mut removed_flows = Vec::new();
        for change in changes {
            // Frames to a router's station pass the guarantee alone.
            if !matches!(change.flow.destination, Destination::Station(_)) {
                continue;
            }
            match change.rate {
                Some(rate) => self.set(now, &change, rate),
                None if self.lines.remove(&change.flow).is_some() => {
                    removed_flows.push(change.flow);
                }
                None => {}
            }
        }
        if !removed_flows.is_empty() {
            self.map.remove(&removed_flows);
        }
    }

    fn set(&mut self, now: Nanos, change: &Change, rate: Rate) {
        let flow = change.flow;
        let Some(guest) = self.guests.get(&flow.guest) else {
            return;
        };
        let is_new = !self.lines.contains_key(&flow);
        if is_new && self.lines.len() >= MAX_DESTINATIONS {
            self.counters.refused += 1;
            return;
        }
        let (bucket, alone) = buckets(guest, change, rate);
        let granted = GrantedRate {
            bucket,
            alone,
            horizon: Nanos(self.state.interval().0 * HORIZON),
        };
        match self.map.set(now, FlowLimit { flow, granted }) {
            Ok(charged) if is_new => {
                self.lines.insert(flow, charged);
                self.former.retain(|former| *former != flow);
            }
            Ok(_) => {}
            Err(why) => {
                self.counters.refused += 1;
                if self.counters.refused == 1 {
                    tracing::error!("a rate to a destination is not in force: {why}");
                }
                self.lines.remove(&flow);
            }
        }
    }
}

/// Returns the bucket of a destination while its lease lasts, and the one without a grant. Of an inward burst the
/// bucket holds the part and the loan, and after the lease the part. As the kernel keeps the lower rate until
/// the pledge ends, the second one has it already while there is a loan.
fn buckets(guest: &KernelGuest, change: &Change, rate: Rate) -> (Bucket, Bucket) {
    let slowest = slowest(guest.burst);
    let (rate, share) = (rate.max(slowest), change.share.max(slowest));
    let Some(inward) = guest.inward else {
        let of = |rate| Bucket {
            rate,
            burst: guest.burst,
        };
        return (of(rate), of(share));
    };
    let bucket = Bucket {
        rate,
        burst: inward.part.saturating_add(change.lent),
    };
    let is_lent = change.lent > Bytes::ZERO;
    let alone = Bucket {
        rate: if is_lent { share.min(rate) } else { share },
        burst: inward.part,
    };
    (bucket, alone)
}

/// Returns the use of a bucket since the last sample. Frames wait, or were dropped, if the bucket has no
/// room for another one. The kernel does not know dropped ones, so the bucket is requested to hold `most`.
fn used(usage: &RateUsage, charged_bytes: Bytes, most: Bytes) -> Usage {
    let waiting = usage.lacks.saturating_add(FRAME) > usage.burst && charged_bytes > Bytes::ZERO;
    let queued = usage.lacks.saturating_sub(usage.burst);
    let missing = most.saturating_sub(usage.burst);
    Usage {
        taken: charged_bytes,
        lacks: usage.lacks.min(usage.burst),
        waiting,
        queued: if waiting { queued.max(missing) } else { queued },
    }
}

/// Returns the least rate of a bucket that the kernel takes: it fills within 1,000 s.
fn slowest(burst: Bytes) -> Rate {
    SLOWEST.max(Rate(burst.0 * 8 / 1_000 + 1))
}

/// Returns the interface of a guest.
fn ifindex_of(guest: hose::GuestId) -> u32 {
    u32::try_from(guest.0).unwrap_or(0)
}
