//! From a request and the state of a host to the steps for each guest. Pure.

use super::refusal::{Refusal, nearest};
use super::request::{LONGEST_PACKET, Request, Selection, fits};
use super::step::{Action, Before, Entry, Origin, Rules, Station, Step};
use super::uplink::{self, Uplink};
use super::world::{Guest, PortState, QueueOrigin, SeenStation, World};
use std::collections::BTreeSet;
use tailbound_units::Bytes;

/// The bits of the firewall mark that name guests whose frames are routed to the uplink.
pub const MARKS: u32 = 0xff;
/// The most addresses of one family in a guard.
const MAX_ADDRESSES: usize = 16;

/// The result of a plan for one guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuestPlan {
    /// The guest's name.
    pub guest: String,
    /// The guest's key.
    pub key: String,
    /// Unknown and unexpected facts, in words.
    pub notes: Vec<String>,
    /// The entry for the journal, or the reason why the guest cannot be adopted.
    pub entry: Result<Entry, Refusal>,
}

/// Selects guests.
///
/// # Errors
/// A pattern selects none, or a name without `*` selects several.
pub fn select<'w>(world: &'w World, selection: &Selection) -> Result<Vec<&'w Guest>, Refusal> {
    let patterns = match selection {
        Selection::All => {
            let guests = world.guests.iter();
            let guests = guests.filter(|guest| !guest.is_plain && !guest.devices.is_empty());
            return Ok(guests.collect());
        }
        Selection::Patterns(patterns) => patterns,
    };
    let mut selected = BTreeSet::new();
    for pattern in patterns {
        let is_meant = |guest: &Guest| {
            let devices = guest.devices.iter();
            let mut ports = devices.filter_map(|(index, _)| world.ports.get(index));
            let is_its_device = ports.any(|port| port.port.name == *pattern);
            let is_named = fits(pattern, &guest.key) || fits(pattern, &guest.name);
            // The journal names a device without a guest by its key.
            is_its_device || guest.key == *pattern || is_named && !guest.is_plain
        };
        let meant = world.guests.iter().enumerate();
        let meant: Vec<_> = meant.filter(|(_, guest)| is_meant(guest)).collect();
        if meant.is_empty() {
            let names = || {
                let guests = world.guests.iter().filter(|guest| !guest.is_plain);
                guests.map(|guest| guest.name.as_str())
            };
            return Err(Refusal::NoGuest {
                asked: pattern.clone(),
                near: nearest(pattern, names()),
                known: names().map(str::to_owned).collect(),
            });
        }
        if meant.len() > 1 && !pattern.contains('*') {
            let keys = meant.iter().map(|(_, guest)| guest.key.clone());
            return Err(Refusal::Several {
                asked: pattern.clone(),
                keys: keys.collect(),
            });
        }
        selected.extend(meant.iter().map(|(at, _)| *at));
    }
    let guests = world.guests.iter().enumerate();
    let selected = guests.filter(|(at, _)| selected.contains(at));
    Ok(selected.map(|(_, guest)| guest).collect())
}

/// Plans the adoption of all selected guests. `known` are the entries that the journal has.
///
/// # Errors
/// The selection is empty or ambiguous. A guest that cannot be adopted does not affect others.
pub fn plan(
    world: &World,
    selection: &Selection,
    request: &Request,
    known: &[Entry],
) -> Result<Vec<GuestPlan>, Refusal> {
    let guests = select(world, selection)?;
    if guests.len() > 1 && request.is_for_one() {
        return Err(Refusal::ForOne(guests.len()));
    }
    let mut entries = known.to_vec();
    let mut planned = Vec::new();
    for guest in guests {
        let mut notes = Vec::new();
        let entry = Planner {
            world,
            request,
            known: &entries,
            guest,
        }
        .entry(&mut notes);
        if let Ok(entry) = &entry {
            entries.retain(|other| other.key != entry.key);
            entries.push(entry.clone());
        }
        planned.push(GuestPlan {
            guest: guest.name.clone(),
            key: guest.key.clone(),
            notes,
            entry,
        });
    }
    Ok(planned)
}

struct Planner<'w> {
    world: &'w World,
    request: &'w Request,
    known: &'w [Entry],
    guest: &'w Guest,
}

impl Planner<'_> {
    fn entry(&self, notes: &mut Vec<String>) -> Result<Entry, Refusal> {
        if self.request.needs_fq()
            && let Err(why) = &self.world.kernel.fq
        {
            return Err(Refusal::NoFq(why.clone()));
        }
        if let Err(why) = &self.world.kernel.bpf_qdisc {
            return Err(Refusal::NoBpfQdisc(why.clone()));
        }
        let devices = self.devices()?;
        let mut steps = Vec::new();
        let mut uplink_name = None;
        for (device, station) in devices {
            self.check(device)?;
            let mut rules = self.rules(device, station, notes)?;
            if rules.needs_uplink() {
                let uplink =
                    uplink::find(self.world, device, self.request.devices.uplink.as_deref())?;
                let port = &self.world.ports[&uplink.index];
                uplink_name = Some(format!("{} ({})", port.port.name, uplink.why));
                rules.mark = uplink.is_routed.then(|| self.mark()).transpose()?;
                steps.push(self.uplink_step(&uplink, port)?);
            }
            steps.push(self.step(device, Action::Guest { rules })?);
        }
        Ok(Entry {
            key: self.guest.key.clone(),
            name: self.guest.name.clone(),
            boot: self.world.boot.clone(),
            namespace: self.world.namespace,
            origin: self.origin(),
            request: self.request.clone(),
            uplink: uplink_name,
            steps,
        })
    }

    fn origin(&self) -> Origin {
        let own = self.known.iter().find(|entry| entry.key == self.guest.key);
        own.map_or(Origin::Command, |own| own.origin.after_command())
    }

    /// Returns the guest's devices to adopt, with their stations.
    fn devices(&self) -> Result<Vec<(&PortState, Option<&SeenStation>)>, Refusal> {
        let guest = self.guest;
        let ports = guest
            .devices
            .iter()
            .filter_map(|(index, station)| Some((self.world.ports.get(index)?, station.as_ref())));
        let mut ports: Vec<_> = ports.collect();
        let names = || -> Vec<_> {
            let devices = guest.devices.iter();
            let ports = devices.filter_map(|(index, _)| self.world.ports.get(index));
            ports.map(|port| port.port.name.clone()).collect()
        };
        if ports.is_empty() {
            return Err(Refusal::NoDevice(guest.name.clone()));
        }
        if let Some(asked) = &self.request.devices.interface {
            ports.retain(|(port, _)| port.port.name == *asked);
            if ports.is_empty() {
                return Err(Refusal::NoSuchDevice {
                    guest: guest.name.clone(),
                    asked: asked.clone(),
                    has: names(),
                });
            }
        }
        let is_ambiguous = self.request.needs_fq() || self.request.mac.is_some();
        if ports.len() > 1 && is_ambiguous {
            return Err(Refusal::SeveralDevices {
                guest: guest.name.clone(),
                has: names(),
            });
        }
        Ok(ports)
    }

    /// Checks that programs on a guest's device see all of its frames, once.
    fn check(&self, device: &PortState) -> Result<(), Refusal> {
        let name = || device.port.name.clone();
        let why = match device.kind.as_deref() {
            Some("veth" | "tun") => None,
            // Without the l2 mode it has no addresses.
            Some("netkit") if device.port.mac.is_station() => None,
            Some("netkit") => Some("it has the mode l3, without MAC addresses; use the mode l2"),
            Some("macvtap" | "ipvtap") => {
                Some("its frames pass no device of the host's own; use a TAP in a bridge")
            }
            _ => Some("use a TAP, a veth or a netkit"),
        };
        if let Some(why) = why {
            return Err(Refusal::Kind {
                device: name(),
                kind: device
                    .kind
                    .clone()
                    .unwrap_or_else(|| "physical device".into()),
                why,
            });
        }
        if let Some(by) = self.world.driven.get(&device.port.index) {
            return Err(Refusal::Driven {
                device: name(),
                by: by.clone(),
            });
        }
        if let Some(program) = device.xdp {
            return Err(Refusal::Xdp {
                device: name(),
                program,
            });
        }
        Ok(())
    }

    fn rules(
        &self,
        device: &PortState,
        station: Option<&SeenStation>,
        notes: &mut Vec<String>,
    ) -> Result<Rules, Refusal> {
        let request = self.request;
        let packet = request.guarantee.and(request.allowance.packet);
        let is_short = |packet: &Bytes| *packet < LONGEST_PACKET;
        if let Some(packet) = packet.filter(is_short)
            && device.kind.as_deref() == Some("tun")
        {
            notes.push(format!(
                "packets above {packet} are dropped; switch its segmentation offload off (host_tso4=off)"
            ));
        }
        let guard = if request.guard {
            Some(self.guard(device, station, notes)?)
        } else {
            None
        };
        Ok(Rules {
            guard,
            dscp: request.dscp,
            outward: request.outward,
            inward: request.inward,
            guarantee: request.guarantee,
            peak: request.peak.filter(|_| request.guarantee.is_some()),
            packet: request
                .guarantee
                .map(|_| request.allowance.packet.unwrap_or(LONGEST_PACKET)),
            mark: None,
            direct: request.direct,
        })
    }

    fn guard(
        &self,
        device: &PortState,
        station: Option<&SeenStation>,
        notes: &mut Vec<String>,
    ) -> Result<Station, Refusal> {
        let (request, guest) = (self.request, &self.guest.name);
        let mut guard = match (request.mac, station) {
            (Some(mac), _) => Station {
                mac,
                ips: Vec::new(),
            },
            (None, Some(seen)) => {
                notes.push(format!("its addresses are those of {}", seen.source));
                Station {
                    mac: seen.mac,
                    ips: seen.ips.clone(),
                }
            }
            (None, None) => {
                return Err(Refusal::NoStation {
                    guest: guest.clone(),
                    device: device.port.name.clone(),
                });
            }
        };
        if !request.ips.is_empty() {
            guard.ips.clone_from(&request.ips);
        }
        let of_v4 = guard.ips.iter().filter(|ip| ip.is_ipv4()).count();
        let count = of_v4.max(guard.ips.len() - of_v4);
        if count > MAX_ADDRESSES {
            return Err(Refusal::ManyAddresses {
                guest: guest.clone(),
                count,
                most: MAX_ADDRESSES,
            });
        }
        if guard.ips.is_empty() {
            notes.push(
                "its IP addresses are not known, so it may use any; add --ip to name them".into(),
            );
        }
        Ok(guard)
    }

    /// Returns the guest's own firewall mark, or the first free one.
    fn mark(&self) -> Result<u32, Refusal> {
        let marks = |entry: &Entry| {
            let steps = entry.steps.iter();
            let mut marks = steps.filter_map(|step| match &step.action {
                Action::Guest { rules } => rules.mark,
                Action::Uplink { .. } => None,
            });
            marks.next()
        };
        let own = self.known.iter().find(|entry| entry.key == self.guest.key);
        if let Some(mark) = own.and_then(marks) {
            return Ok(mark);
        }
        let used: BTreeSet<_> = self.known.iter().filter_map(marks).collect();
        let free = (1..=MARKS).find(|mark| !used.contains(mark));
        free.ok_or(Refusal::Marks(MARKS as usize))
    }

    fn uplink_step(&self, uplink: &Uplink, port: &PortState) -> Result<Step, Refusal> {
        let index = port.port.index;
        let before = self.known_steps(index).next();
        let former = before.and_then(|step| match step.action {
            Action::Uplink { mark, queue } => Some((mark, queue)),
            Action::Guest { .. } => None,
        });
        let wanted = self.request.devices.qdisc;
        let queue = former.map_or(wanted.unwrap_or_default(), |(_, queue)| queue);
        if wanted.is_some_and(|wanted| wanted != queue) {
            return Err(Refusal::OtherQueue {
                device: port.port.name.clone(),
                queue,
            });
        }
        // One guest that is routed is enough.
        let mark = former.map_or(0, |(mark, _)| mark) | if uplink.is_routed { MARKS } else { 0 };
        self.step(port, Action::Uplink { mark, queue })
    }

    /// Returns the steps that the journal has for a device in this boot and namespace.
    fn known_steps(&self, index: u32) -> impl Iterator<Item = &Step> {
        let World {
            boot, namespace, ..
        } = self.world;
        let alive = self
            .known
            .iter()
            .filter(move |entry| entry.boot == *boot && entry.namespace == *namespace);
        alive
            .flat_map(|entry| &entry.steps)
            .filter(move |step| step.port.index == index)
    }

    /// Returns the step for a device, with the state before tailbound's first one.
    fn step(&self, device: &PortState, action: Action) -> Result<Step, Refusal> {
        let known = self.known_steps(device.port.index).next();
        let is_same_role = known.is_none_or(|known| {
            std::mem::discriminant(&known.action) == std::mem::discriminant(&action)
        });
        if !is_same_role {
            return Err(Refusal::BothRoles(device.port.name.clone()));
        }
        let is_ours = device.attached.is_some();
        if !self.world.kernel.tcx && !is_ours && !device.classifiers.is_empty() {
            return Err(Refusal::Classifiers {
                device: device.port.name.clone(),
                kinds: device.classifiers.clone(),
            });
        }
        if action.needs_fq() && device.origin == QueueOrigin::Administrator {
            return Err(Refusal::Qdisc {
                device: device.port.name.clone(),
                kind: device.qdisc.clone(),
            });
        }
        // A device that took its number has a state of its own.
        let is_known =
            |known: &&Step| known.port.mac == device.port.mac || is_ours || device.is_queue_ours();
        let before = known.filter(is_known).map(|known| known.before.clone());
        Ok(Step {
            port: device.port.clone(),
            before: before.unwrap_or_else(|| Before {
                qdisc: device.qdisc.clone(),
                clsact: device.clsact,
                is_unqueued: device.queue_length == 0,
            }),
            action,
        })
    }
}

/// Returns the keys of entries for an earlier run of the guest: they have its name and another key,
/// and none of their devices that were the guest's is there any more.
pub fn superseded(world: &World, known: &[Entry], entry: &Entry) -> Vec<String> {
    let is_here = |step: &Step| {
        let port = world.ports.get(&step.port.index);
        port.is_some_and(|port| port.port.mac == step.port.mac)
    };
    let is_running = |other: &Entry| {
        let mut own = other.steps.iter().filter(|step| match step.action {
            Action::Guest { .. } => true,
            Action::Uplink { .. } => false,
        });
        let is_current = other.boot == world.boot && other.namespace == world.namespace;
        is_current && own.any(is_here)
    };
    let is_elsewhere =
        |other: &Entry| other.boot == world.boot && other.namespace != world.namespace;
    let former = known.iter().filter(|other| {
        let is_same_guest = other.name == entry.name && other.key != entry.key;
        is_same_guest && !is_elsewhere(other) && !is_running(other)
    });
    former.map(|other| other.key.clone()).collect()
}

#[cfg(test)]
mod tests;
