//! From the service's guarantees and the adopted guests to orders and a report. Pure.

use std::collections::{BTreeMap, BTreeSet};
use tailbound_adopt::step::Station;
use tailbound_adopt::{Action, Allowance, Bucket, Entry, Request, lateness};
use tailbound_api::{
    Class, HostGuarantees, HostLimits, HostReport, Lateness, MoveEnd, RefusedVm, VmGuarantee,
};
use tailbound_host::hose::{KernelGuest, KernelInward};
use tailbound_sys::edge;
use tailbound_units::{Bytes, Nanos, Rate};

/// The longest frame on the wire without a VLAN tag: a burst holds one.
const FRAME: Bytes = Bytes(1_538);
/// The least rate of a bucket in the kernel.
const SLOWEST: Rate = Rate(8_000);
/// The reported lateness is rounded up to whole multiples, so that a report is seldom new.
const STEP: Nanos = Nanos::from_micros(10);

/// The terms of a guarantee in the kernel.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Terms {
    guarantee: Option<Bucket>,
    peak: Option<Rate>,
    /// The longest packet; none without a guarantee.
    packet: Option<Bytes>,
}

impl Terms {
    fn promised(vm: &VmGuarantee, packet: Bytes) -> Self {
        let bucket = vm.guarantee.map(|guarantee| Bucket {
            rate: guarantee.bandwidth,
            burst: guarantee.burst.max(FRAME),
        });
        Self {
            guarantee: bucket,
            peak: vm.guarantee.and_then(|guarantee| guarantee.burst_rate),
            packet: bucket.map(|_| packet),
        }
    }

    fn requested(request: &Request) -> Self {
        Self {
            guarantee: request.guarantee,
            peak: request.peak,
            packet: request.allowance.packet,
        }
    }
}

/// An adopted guest.
#[derive(Debug)]
pub(super) struct AdoptedVm {
    /// The machine of the service that it is, if it is one.
    vm: Option<String>,
    terms: Terms,
    /// True if its programs are attached.
    is_in_force: bool,
    /// The index of its interface.
    ifindex: u32,
    /// Its addresses; none without a guard.
    station: Option<Station>,
}

impl AdoptedVm {
    /// Returns the guest of an entry of the journal, with the terms of its programs.
    pub(super) fn of(entry: &Entry, is_in_force: bool) -> Self {
        let guest = entry.steps.iter().find_map(|step| match &step.action {
            Action::Guest { rules } => Some((step.port.index, rules)),
            Action::Uplink { .. } => None,
        });
        let rules = guest.map(|(_, rules)| rules);
        let terms = rules.map(|rules| Terms {
            guarantee: rules.guarantee,
            peak: rules.peak,
            packet: rules.packet,
        });
        Self {
            vm: entry.request.vm.clone(),
            terms: terms.unwrap_or_default(),
            is_in_force: is_in_force && rules.is_some(),
            ifindex: guest.map_or(0, |(ifindex, _)| ifindex),
            station: rules.and_then(|rules| rules.guard.clone()),
        }
    }
}

/// Returns the entries whose guarantee differs from the service's, with the requests that change it.
/// A guest whose VM the service does not know keeps its own. `packet` is the longest one of all
/// others, in bytes on the wire.
pub(super) fn orders<'e>(
    guarantees: &HostGuarantees,
    entries: &'e [Entry],
    packet: Bytes,
) -> Vec<(&'e Entry, Request)> {
    let changed = entries.iter().filter_map(|entry| {
        let own = entry.request.vm.as_deref()?;
        let vm = guarantees.vms.iter().find(|vm| vm.vm == own)?;
        let terms = Terms::promised(vm, packet);
        // Its frames travel in the class for which the bounds were computed.
        let mark = guarantees.classes.mark(Class::Guaranteed).dscp;
        let dscp = match terms.guarantee {
            Some(_) => Some(mark),
            None => entry.request.dscp.filter(|dscp| *dscp != mark),
        };
        let is_same = Terms::requested(&entry.request) == terms && entry.request.dscp == dscp;
        let request = Request {
            guarantee: terms.guarantee,
            peak: terms.peak,
            allowance: Allowance {
                packet: terms.packet,
                ..entry.request.allowance
            },
            dscp,
            ..entry.request.clone()
        };
        (!is_same).then_some((entry, request))
    });
    changed.collect()
}

/// Returns the lateness of all frames of both.
pub(super) fn both(
    one: Option<edge::Lateness>,
    other: Option<edge::Lateness>,
) -> Option<edge::Lateness> {
    let (Some(mut all), Some(more)) = (one.clone(), other.clone()) else {
        return one.or(other);
    };
    for (count, more) in all.buckets.iter_mut().zip(more.buckets) {
        *count += more;
    }
    all.max = all.max.max(more.max);
    Some(all)
}

/// The state of this host.
#[derive(Debug)]
pub(super) struct Situation<'s> {
    pub(super) said: &'s HostGuarantees,
    pub(super) adopted: Vec<AdoptedVm>,
    /// The reason by VM why its guarantee could not be brought into force.
    pub(super) failures: &'s BTreeMap<String, String>,
    pub(super) lateness: Option<edge::Lateness>,
    pub(super) link: Rate,
    /// The longest packet of guests of the service.
    pub(super) packet: Bytes,
    /// True if it exchanges rates with other hosts, which buckets of destinations need.
    pub(super) exchanges: bool,
}

impl Situation<'_> {
    /// Returns the report to the service.
    pub(super) fn report(&self) -> HostReport {
        let refused = self.said.vms.iter().filter_map(|vm| {
            Some(RefusedVm {
                tenant: vm.tenant,
                vm: vm.vm.clone(),
                why: self.lack(vm)?,
            })
        });
        let arrived = self.said.vms.iter().filter(|vm| {
            let is_here = self.guest(vm).is_some_and(|guest| guest.is_in_force);
            vm.moves == Some(MoveEnd::Arrives) && is_here
        });
        let limits = HostLimits {
            link: self.link,
            reserved: self.reserved(),
            frame: FRAME,
            slowest: SLOWEST,
            // One bucket limits all bursts of a guest, so those into any subtree, too.
            subtree_bursts: true,
            inward_bursts: self.exchanges,
            delay_classes: false,
            lateness: self.bound(),
            packet: Some(self.packet),
        };
        HostReport {
            revision: self.said.revision,
            change: self.said.change,
            classes: Some(self.said.classes.into()),
            limits: Some(limits),
            cpu: None,
            refused: refused.collect(),
            unpromised: Vec::new(),
            arrived: arrived.map(|vm| vm.vm.clone()).collect(),
            measured: None,
        }
    }

    /// Returns the guests with a guarantee that take part in an exchange of rates: those whose MAC address the
    /// guard knows.
    pub(super) fn exchanging(&self) -> Vec<KernelGuest> {
        let guests = self.said.vms.iter().filter_map(|vm| {
            let bucket = Terms::promised(vm, self.packet).guarantee?;
            let guest = self.guest(vm).filter(|guest| guest.is_in_force)?;
            let station = guest.station.as_ref()?;
            Some(KernelGuest {
                ifindex: guest.ifindex,
                vm: vm.vm.clone(),
                mac: station.mac.0,
                ips: station.ips.clone(),
                bandwidth: bucket.rate,
                burst: bucket.burst,
                inward: inward(vm),
                tenant_vms: vm.tenant_vms,
            })
        });
        guests.collect()
    }

    fn guest(&self, vm: &VmGuarantee) -> Option<&AdoptedVm> {
        let mut guests = self.adopted.iter();
        guests.find(|guest| guest.vm.as_deref() == Some(&*vm.vm))
    }

    /// Returns why the guarantee of a VM is not in force; `None` if it is.
    fn lack(&self, vm: &VmGuarantee) -> Option<String> {
        vm.guarantee?;
        if let Some(failure) = self.failures.get(&vm.vm) {
            return Some(failure.clone());
        }
        let why = match self.guest(vm) {
            None => "no guest of this host was adopted with this --vm",
            Some(guest) if !guest.is_in_force => {
                "the programs of its guest are not in force (tailbound adopt --again)"
            }
            Some(guest) if guest.terms != Terms::promised(vm, self.packet) => {
                "its guest has another guarantee"
            }
            Some(_) if inward(vm).is_some() && !self.exchanges => {
                "an inward burst needs the exchange of rates (tailbound adopt --control --hose)"
            }
            Some(guest) if inward(vm).is_some() && guest.station.is_none() => {
                "an inward burst needs the MAC address of its guest (adopt it without --no-guard)"
            }
            Some(_) => return None,
        };
        Some(why.to_owned())
    }

    /// Returns the rates of guests that are no VMs of the service.
    fn reserved(&self) -> Rate {
        let known: BTreeSet<&str> = self.said.vms.iter().map(|vm| vm.vm.as_str()).collect();
        let is_known =
            |guest: &&AdoptedVm| guest.vm.as_deref().is_some_and(|vm| known.contains(vm));
        let others = self.adopted.iter().filter(|guest| !is_known(guest));
        let rates = others.filter_map(|guest| Some(guest.terms.guarantee?.rate.0));
        Rate(rates.fold(0, u64::saturating_add))
    }

    /// Returns J with its margin, rounded up.
    fn bound(&self) -> Lateness {
        let bound = self.lateness.as_ref().and_then(lateness::bound);
        bound.map_or(Lateness::WarmingUp, |bound| {
            Lateness::Within(Nanos(bound.0.div_ceil(STEP.0).saturating_mul(STEP.0)))
        })
    }
}

/// Returns the inward burst of a VM, if that is a limit.
fn inward(vm: &VmGuarantee) -> Option<KernelInward> {
    let guarantee = vm.guarantee?;
    let (part, most) = guarantee.credit(vm.tenant_vms).zip(guarantee.burst_in)?;
    Some(KernelInward { most, part })
}

#[cfg(test)]
mod tests;
