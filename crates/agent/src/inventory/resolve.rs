//! From processes to guests: each guest is a slot with its members.

use super::super::cri::{CriError, Pod, PodNames};
use super::super::guest::{GuestThread, Role, Vmm, recognise};
use super::super::place::{self, Manager};
use super::super::text::printable;
use super::identity::{Identity, Runtime};
use super::network::{HostInterface, Network, pairs, taps};
use super::processes::{KnownProcess, Processes, threads};
use super::{Guest, names};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::time::{Duration, Instant};
use tailbound_sys::interfaces::Interface;
use tailbound_sys::root::Root;
use tailbound_sys::thread::ThreadId;

/// A process of a guest.
#[derive(Debug)]
pub(super) struct Member<'s> {
    pub(super) seen: &'s KnownProcess,
    /// The VMM that it is.
    vmm: Option<Vmm>,
}

/// The reason for which processes are one guest.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Ground {
    /// A manager's control group.
    Place(String),
    /// A VMM without one.
    Process(u32, u64),
    /// A network namespace with nothing above.
    Netns(u64),
}

/// The processes of a guest, the oldest first.
#[derive(Debug)]
pub(super) struct Slot<'s> {
    ground: Ground,
    pub(super) members: Vec<Member<'s>>,
}

impl Slot<'_> {
    fn manager(&self) -> Option<&Manager> {
        let place = self.members.first()?.seen.process.origin.place.as_ref();
        place.map(|(manager, _)| manager)
    }

    /// Returns its network namespaces, other than the host's.
    fn namespaces(&self, here: Option<u64>) -> BTreeMap<u64, u32> {
        let own = self.members.iter().filter_map(|member| {
            let netns = member.seen.netns.filter(|it| Some(*it) != here)?;
            Some((netns, member.seen.process.pid))
        });
        own.collect()
    }
}

/// Divides all processes into guests; those of no guest are left out. `here` is the host's network
/// namespace.
pub(super) fn slots(processes: &Processes, here: Option<u64>) -> Vec<Slot<'_>> {
    let mut by_ground: BTreeMap<Ground, Vec<Member<'_>>> = BTreeMap::new();
    let mut rest = Vec::new();
    let mut owned = HashSet::new();
    for seen in processes.by_age() {
        let vmm = recognise(&seen.process).map(|guest| guest.vmm);
        let ground = match (&seen.process.origin.place, vmm) {
            (Some((_, path)), _) => Ground::Place(path.clone()),
            (None, Some(_)) => Ground::Process(seen.process.pid, seen.start),
            (None, None) => {
                rest.push(seen);
                continue;
            }
        };
        owned.extend(seen.netns);
        by_ground
            .entry(ground)
            .or_default()
            .push(Member { seen, vmm });
    }
    for seen in rest {
        // Without the host's own there would be no telling.
        let apart = seen.netns.filter(|it| here.is_some() && Some(*it) != here);
        if let Some(netns) = apart.filter(|it| !owned.contains(it)) {
            let ground = Ground::Netns(netns);
            by_ground
                .entry(ground)
                .or_default()
                .push(Member { seen, vmm: None });
        }
    }
    let slot = |(ground, members)| Slot { ground, members };
    by_ground.into_iter().map(slot).collect()
}

/// Makes guests of slots.
pub(super) struct Resolver<'r> {
    pub(super) root: &'r Root,
    pub(super) network: &'r dyn Network,
    pub(super) interfaces: &'r [Interface],
    pub(super) here: Option<u64>,
    pub(super) names: &'r mut HashMap<String, (Option<String>, Instant)>,
    pub(super) now: Instant,
    pub(super) pause: Duration,
}

impl Resolver<'_> {
    /// Looks up the names of pods: in the kubelet's log directory, and at the runtime's socket for
    /// the rest. Returns the reasons for missing names.
    pub(super) fn name_pods(
        &mut self,
        slots: &[Slot<'_>],
        pods: &mut PodNames,
        ask: impl FnOnce() -> Result<Vec<Pod>, CriError>,
    ) -> Option<String> {
        let mut unknown = BTreeSet::new();
        for slot in slots {
            if let Some(Manager::Pod(uid)) = slot.manager() {
                let root = self.root;
                let named = self.cached(&format!("pod/{uid}"), || {
                    names::pod(root, uid).map(|(space, name)| format!("{space}/{name}"))
                });
                if named.is_none() {
                    unknown.insert(uid.clone());
                }
            }
        }
        pods.look(&unknown, self.now, ask);
        for uid in &unknown {
            if let Some(name) = pods.of(uid) {
                let entry = (Some(name.to_owned()), self.now);
                self.names.insert(format!("pod/{uid}"), entry);
            }
        }
        pods.missing()
            .filter(|_| !unknown.is_empty())
            .map(str::to_owned)
    }

    /// Returns a name that was found before, or looks for it.
    fn cached(&mut self, key: &str, look: impl FnOnce() -> Option<String>) -> Option<String> {
        let known = self.names.get(key);
        let is_fresh = |(name, at): &(Option<String>, Instant)| {
            name.is_some() || self.now.duration_since(*at) < self.pause
        };
        if let Some(found) = known.filter(|known| is_fresh(known)) {
            return found.0.clone();
        }
        let found = look();
        self.names.insert(key.to_owned(), (found.clone(), self.now));
        found
    }

    /// Returns the guest of a slot; `None` for a network namespace that no person knows.
    pub(super) fn guest(&mut self, slot: &Slot<'_>, processes: &Processes) -> Option<Guest> {
        let mut guest = Guest::new(self.identity(slot)?);
        self.add_interfaces(slot, &mut guest);
        if let Identity::Namespace { name: None, .. } = guest.identity
            && guest.interfaces.is_empty()
        {
            // A sandbox of a service.
            return None;
        }
        if let Identity::Pod { .. } = guest.identity {
            guest.containers = self.containers(slot);
        }
        for member in &slot.members {
            let pid = member.seen.process.pid;
            guest.processes.push(ThreadId {
                pid,
                tid: pid,
                start: member.seen.start,
            });
            self.add_threads(slot, member, &mut guest);
            let vhosts = processes.vhosts.get(&pid).into_iter().flatten();
            guest.threads.extend(vhosts.map(|thread| GuestThread {
                id: thread.id,
                name: printable(&thread.name),
                role: Role::Vhost,
            }));
        }
        Some(guest)
    }

    fn identity(&mut self, slot: &Slot<'_>) -> Option<Identity> {
        let root = self.root;
        let first = slot.members.first()?;
        let pid = first.seen.process.pid;
        let process = ThreadId {
            pid,
            tid: pid,
            start: first.seen.start,
        };
        let program = first.vmm.map_or("vmm", program);
        Some(match (&slot.ground, slot.manager()) {
            (Ground::Netns(inode), _) => Identity::Namespace {
                name: self.network.names().remove(inode),
                inode: *inode,
            },
            (_, Some(Manager::Libvirt(name))) => {
                let state = self.cached(&format!("domain/{pid}.{}", process.start), || {
                    let (name, uuid) = names::domain(root, pid)?;
                    Some(format!("{uuid} {name}"))
                });
                let state = state.as_ref().and_then(|text| text.split_once(' '));
                Identity::Domain {
                    uuid: state.and_then(|(uuid, _)| uuid.parse().ok()),
                    name: state.map_or_else(|| name.clone(), |(_, name)| name.to_owned()),
                }
            }
            (_, Some(Manager::Pod(uid))) => {
                let name = self.names.get(&format!("pod/{uid}"));
                let name = name.and_then(|(name, _)| name.as_ref()?.split_once('/'));
                Identity::Pod {
                    uid: uid.clone(),
                    name: name.map(|(space, name)| (space.to_owned(), name.to_owned())),
                }
            }
            (Ground::Place(path), Some(Manager::Container(id))) => {
                let runtime = Runtime::of(path);
                let name = self.cached(&format!("container/{id}"), || match runtime {
                    Runtime::Podman => names::podman(root, id),
                    _ => names::docker(root, id),
                });
                Identity::Container {
                    runtime,
                    id: id.clone(),
                    name,
                }
            }
            (_, Some(Manager::Jailer(id))) => Identity::Vmm {
                program,
                process,
                jailed: Some(id.clone()),
            },
            _ => Identity::Vmm {
                program,
                process,
                jailed: None,
            },
        })
    }

    /// The containers of a pod, by the control groups of its processes.
    fn containers(&mut self, slot: &Slot<'_>) -> BTreeMap<String, Option<String>> {
        let ids = slot.members.iter().flat_map(|member| {
            let paths = member.seen.process.groups.paths();
            paths.filter_map(|path| Some(place::container(path)?.0.to_owned()))
        });
        let ids: BTreeSet<_> = ids.collect();
        let mut listed = None;
        let root = self.root;
        let mut named = BTreeMap::new();
        for id in ids {
            let name = self.cached(&format!("container/{id}"), || {
                let listed = listed.get_or_insert_with(|| names::pod_containers(root));
                let entry = listed.iter().find(|container| container.id == id)?;
                Some(entry.name.clone())
            });
            named.insert(id, name.map(|name| printable(&name)));
        }
        named
    }

    fn add_interfaces(&self, slot: &Slot<'_>, guest: &mut Guest) {
        let mut interfaces = BTreeSet::new();
        for (_, pid) in slot.namespaces(self.here) {
            if let Ok(number) = self.network.number(pid) {
                interfaces.extend(pairs(self.interfaces, number));
            }
        }
        for member in &slot.members {
            let is_here = self.here.is_some() && member.seen.netns == self.here;
            if member.vmm.is_some() && is_here {
                interfaces.extend(taps(self.root, member.seen.process.pid, self.interfaces));
            }
        }
        guest.interfaces = interfaces.into_iter().collect();
        guest.networks = slot.namespaces(self.here).into_values().collect();
        if guest.interfaces.is_empty() {
            let note = "it has no interface in the host's network namespace";
            guest.notes.push(note.to_owned());
        }
    }

    fn add_threads(&self, slot: &Slot<'_>, member: &Member<'_>, guest: &mut Guest) {
        let mut process = member.seen.process.clone();
        process.threads = threads(self.root, process.pid);
        if let Some(vmm) = recognise(&process) {
            guest.threads.extend(vmm.threads);
            return;
        }
        // Beside a VMM, as a helper of it.
        let has_vmm = slot.members.iter().any(|member| member.vmm.is_some());
        let role = if has_vmm { Role::Emulator } else { Role::Task };
        let threads = process.threads.into_iter().map(|thread| GuestThread {
            id: thread.id,
            name: printable(&thread.name),
            role,
        });
        guest.threads.extend(threads);
    }
}

/// The name of a VMM's program.
const fn program(vmm: Vmm) -> &'static str {
    match vmm {
        Vmm::Qemu => "qemu",
        Vmm::Firecracker => "firecracker",
        Vmm::CloudHypervisor => "cloud-hypervisor",
        Vmm::Other => "vmm",
    }
}

impl Guest {
    pub(super) fn new(identity: Identity) -> Self {
        Self {
            key: identity.key().into(),
            name: identity.name(),
            identity,
            containers: BTreeMap::new(),
            processes: Vec::new(),
            threads: Vec::new(),
            beyond: 0,
            interfaces: Vec::new(),
            networks: Vec::new(),
            limits: Vec::new(),
            quotas: Vec::new(),
            group: None,
            notes: Vec::new(),
        }
    }
}

/// Leaves an interface that several guests have to the one that is older, as containers that share
/// a network namespace have it; a TAP that several VMMs have open belongs to none of them.
pub(super) fn part_shared(built: &mut [(Guest, &Slot<'_>)]) {
    let mut owners: BTreeMap<HostInterface, Vec<usize>> = BTreeMap::new();
    for (index, (guest, _)) in built.iter().enumerate() {
        for interface in &guest.interfaces {
            owners.entry(interface.clone()).or_default().push(index);
        }
    }
    for (interface, mut sharing) in owners {
        if sharing.len() < 2 {
            continue;
        }
        let age = |index: &usize| {
            let (guest, _) = &built[*index];
            guest.processes.first().map(|it| (it.start, it.pid))
        };
        sharing.sort_by_key(age);
        let is_pair = interface.kind == super::InterfaceKind::Pair;
        let kept = is_pair.then(|| sharing.remove(0));
        let with = kept.map(|index| built[index].0.name.clone());
        for index in sharing {
            let guest = &mut built[index].0;
            guest.interfaces.retain(|own| *own != interface);
            guest.notes.push(match &with {
                Some(owner) => format!(
                    "it shares the network of {owner}; {} is counted there",
                    interface.name
                ),
                None => format!(
                    "{} is open in several VMMs, so it is no guest's",
                    interface.name
                ),
            });
        }
    }
}
