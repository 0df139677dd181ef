//! What each guest is promised, and what its frames are paced to.

use super::link::{Link, Way, WayConfig};
use super::{LinkConfig, Promises, Switch};
use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use tailbound_api::{HostGuarantees, VmGuarantee, VmName};
use tailbound_dataplane::pacer::Refused;
use tailbound_dataplane::{Guarantee, GuestId, Pacer, PacerConfig, Packet};
use tailbound_units::{Bytes, Nanos};

/// A guest that may take part in the exchange of rates.
#[derive(Debug, Clone)]
pub struct HoseGuest {
    /// The guest in the pacer.
    pub id: GuestId,
    /// Which machine it is.
    pub vm: VmName,
    /// Its addresses.
    pub ips: Vec<IpAddr>,
    /// What it is guaranteed; it takes no part without.
    pub guarantee: Option<Guarantee>,
    /// How many machines its tenant has, as the placement service says.
    pub tenant_vms: Option<u32>,
}

/// The last word of the placement service, by machine.
type ByName<'w> = HashMap<&'w str, &'w VmGuarantee>;

impl Switch {
    /// Takes what this host's machines are promised; what was promised before
    /// and is not there any more ends.
    ///
    /// On a paced uplink a guest's frames are held to it from `now` on. A machine
    /// that the service does not know keeps what the configuration guarantees. A
    /// promise that the pacer refuses is logged and counted, and its guest keeps
    /// the terms that it had.
    pub fn set_guarantees(&mut self, now: Nanos, guarantees: HostGuarantees) {
        self.guarantees = Some(guarantees);
        self.promise(now);
    }

    /// Gives each guest what its machine is promised, or the configuration
    /// guarantees.
    fn promise(&mut self, now: Nanos) {
        self.take_promises();
        if let Some(wire) = self.links.iter().find_map(Link::paced) {
            let wire = wire.wire().clone();
            self.pace(now, &wire, Pass::Less);
            self.pace(now, &wire, Pass::All);
        }
    }

    fn take_promises(&mut self) {
        let by_name = by_name(self.guarantees.as_ref());
        for link in &mut self.links {
            link.promise = promised(&by_name, link.vm.as_ref()).cloned();
        }
    }

    /// Makes each link's way what it is to be, and the terms with it: first what
    /// becomes less, so that there is room for the rest, and then the wire.
    pub(super) fn change_ways(
        &mut self,
        now: Nanos,
        ways: Vec<(usize, WayConfig)>,
        gone: impl Iterator<Item = GuestId>,
    ) {
        self.take_promises();
        if let Some(paced) = self.links.iter_mut().find_map(Link::paced_mut) {
            for guest in gone {
                // The end of a guarantee breaks no rule.
                let _ = paced.pacer.set_guest(now, guest, None);
            }
        }
        let pacing = ways.iter().find_map(|(_, way)| way.pacing.as_ref());
        if let Some(wire) = pacing.map(|pacing| pacing.pacer.clone()) {
            self.pace(now, &wire, Pass::Less);
        }
        for (index, way) in ways {
            if let Err(rule) = self.links[index].way.reconfigure(now, way) {
                tracing::error!(%rule, "the uplink stays paced as it was");
            }
        }
        self.promise(now);
    }

    /// Sets the pacer's terms where they differ.
    fn pace(&mut self, now: Nanos, wire: &PacerConfig, pass: Pass) {
        let mut uplink = None;
        let mut guests = Vec::with_capacity(self.links.len());
        for link in &mut self.links {
            match (&mut link.way, &mut link.guest) {
                (Way::Paced(way), _) => uplink = Some(&mut way.pacer),
                (_, Some(guest)) => guests.push((&link.name, link.promise.as_ref(), guest)),
                _ => {}
            }
        }
        let Some(pacer) = uplink else { return };
        for (name, promise, guest) in guests {
            let wanted = wanted(wire, promise, guest.guarantee.as_ref());
            let held = pacer.guarantee(guest.id);
            if held == wanted.as_ref() {
                guest.refused = None;
                continue;
            }
            if pass == Pass::Less && !is_less(wanted.as_ref(), held) {
                continue;
            }
            let result = pacer.set_guest(now, guest.id, wanted.as_ref());
            if pass == Pass::Less {
                // What is refused here is tried again.
                continue;
            }
            let refused = result.err().zip(wanted);
            if let Some((rule, wanted)) = refused
                && guest.refused != refused
            {
                self.refusals += 1;
                tracing::error!(
                    guest = name, bandwidth = %wanted.bandwidth, burst = %wanted.burst,
                    burst_rate = %wanted.burst_rate, %rule,
                    "guarantee refused; the guest keeps the terms that it had"
                );
            }
            guest.refused = refused;
        }
    }

    /// Whether the guests of `configs` fit on their uplink, each with its new
    /// terms or, where those break a rule, its old ones.
    ///
    /// # Errors
    /// The rule that the uplink's pacing breaks, or the guests' terms with it.
    pub fn check(&self, configs: &[LinkConfig]) -> Result<(), Refused> {
        let uplink = configs.iter().find_map(|config| config.pacing.as_ref());
        let Some(pacing) = uplink else { return Ok(()) };
        let mut trial = Pacer::<Packet>::new(&pacing.pacer)?;
        let by_name = by_name(self.guarantees.as_ref());
        for (index, config) in configs.iter().enumerate() {
            let promise = promised(&by_name, config.vm.as_ref());
            let id = GuestId(index as u32);
            let wanted = wanted(&pacing.pacer, promise, config.guarantee.as_ref());
            if trial.set_guest(Nanos::ZERO, id, wanted.as_ref()).is_err()
                && let Some(link) = self.links.iter().find(|link| link.is(config))
                && let Some(guest) = &link.guest
            {
                trial.set_guest(Nanos::ZERO, id, self.guarantee(guest.id))?;
            }
        }
        Ok(())
    }

    /// What the pacer holds a guest to.
    fn guarantee(&self, guest: GuestId) -> Option<&Guarantee> {
        let paced = self.links.iter().find_map(Link::paced)?;
        paced.pacer.guarantee(guest)
    }

    /// The guests that are machines, with what the pacer holds them to: for the
    /// exchange of rates with other hosts. All of them after each change.
    pub fn hose_guests(&self) -> Vec<HoseGuest> {
        let guests = self.links.iter().filter_map(|link| {
            let guest = link.guest.as_ref()?;
            Some(HoseGuest {
                id: guest.id,
                vm: link.vm.clone()?,
                ips: guest.ips.clone(),
                guarantee: self.guarantee(guest.id).copied(),
                tenant_vms: link.promise.as_ref().map(|promise| promise.tenant_vms),
            })
        });
        guests.collect()
    }

    /// The service's last word, and the machines in it that no guest is.
    pub(super) fn promises(&self) -> Option<Promises> {
        let guarantees = self.guarantees.as_ref()?;
        let here: HashSet<_> = self
            .links
            .iter()
            .filter_map(|link| Some(link.promise.as_ref()?.vm.as_str()))
            .collect();
        let vms = guarantees.vms.iter().map(|vm| &vm.vm);
        Some(Promises {
            revision: guarantees.revision,
            state: guarantees.state,
            without_guest: vms
                .filter(|vm| !here.contains(vm.as_str()))
                .cloned()
                .collect(),
        })
    }
}

/// Which terms to set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pass {
    /// Those that take no more of the wire than what is held.
    Less,
    /// All.
    All,
}

fn is_less(wanted: Option<&Guarantee>, held: Option<&Guarantee>) -> bool {
    let (Some(wanted), Some(held)) = (wanted, held) else {
        return wanted.is_none();
    };
    wanted.bandwidth <= held.bandwidth
}

fn by_name(word: Option<&HostGuarantees>) -> ByName<'_> {
    let vms = word.into_iter().flat_map(|all| &all.vms);
    vms.map(|vm| (vm.vm.as_str(), vm)).collect()
}

fn promised<'w>(by_name: &ByName<'w>, vm: Option<&VmName>) -> Option<&'w VmGuarantee> {
    by_name.get(vm?.to_string().as_str()).copied()
}

/// The terms of a guest: what the service promises to its machine, or else what
/// the configuration guarantees. Of what the service does not speak of, the
/// configuration's word counts in both.
fn wanted(
    wire: &PacerConfig,
    promise: Option<&VmGuarantee>,
    configured: Option<&Guarantee>,
) -> Option<Guarantee> {
    let Some(promise) = promise else {
        return configured.copied();
    };
    let promise = promise.guarantee?;
    let burst = match promise.burst {
        // One frame, to placement.
        Bytes(0) => wire.frame,
        burst => burst,
    };
    let mut terms = Guarantee::new(
        promise.bandwidth,
        burst,
        promise.burst_rate.unwrap_or(wire.link),
    );
    terms.horizon = terms.horizon.max(wire.batch);
    if let Some(configured) = configured {
        terms.horizon = configured.horizon;
        terms.mark = configured.mark;
    }
    Some(terms)
}
