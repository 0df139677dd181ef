//! The running kernel: reads the state of this host, and changes it by [`tailbound_sys::edge`].

mod daemons;
pub mod end;
mod guests;

use super::carry::Here;
use super::lateness::{self, NotReady};
use super::mac::Mac;
use super::plan::MARKS;
use super::request::{Bucket, Request, UplinkQueue};
use super::step::{Port, Rules, Station};
use super::world::{Attached, Guest, Host, HostError, Kernel, PortState, QueueOrigin, World};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use tailbound_sys::bpf_program::LoadError;
use tailbound_sys::edge::{self, Edge, Guarantee, Guard, GuestRules, Lateness, Tag, UplinkRules};
use tailbound_sys::link;
use tailbound_sys::network::{self, Classifier, Device, Qdisc, ROOT, queue};
use tailbound_sys::probe::Capability;
use tailbound_units::Bytes;

/// The longest frame on the wire: 1,500 bytes with Ethernet header, VLAN tag, and 24 bytes of
/// preamble, gap and check sequence.
const FRAME: Bytes = Bytes(1_542);

/// The host that this process runs on, in the network namespace of the calling thread.
#[derive(Debug)]
pub struct Live {
    pins: PathBuf,
    edge: Option<Edge>,
}

impl Live {
    /// Opens the host; programs are pinned below `pins`. Nothing is changed yet.
    pub fn new(pins: &Path) -> Self {
        Self {
            pins: pins.to_owned(),
            edge: None,
        }
    }

    /// Returns the boot and the network namespace of this process.
    ///
    /// # Errors
    /// The kernel is older than Linux 5.14, or `/proc` is not mounted.
    pub fn here() -> Result<Here, HostError> {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id");
        let boot =
            boot.map_err(|error| HostError::new("/proc/sys/kernel/random/boot_id", error))?;
        let namespace = network::namespace();
        let namespace = namespace
            .map_err(|error| HostError::new("the network namespace has no number", error))?;
        Ok(Here {
            boot: boot.trim().to_owned(),
            namespace,
        })
    }

    /// Reads what a plan for `request` depends on. Tries whether the kernel has `fq` if it is
    /// needed.
    ///
    /// # Errors
    /// The kernel or `/proc` cannot be read.
    pub fn world(&mut self, request: &Request) -> Result<World, HostError> {
        let devices = network::devices()?;
        let guests = guests::guests(&devices)?;
        self.read(request, &devices, guests)
    }

    /// Reads what a plan for `request` depends on, with this guest alone: the host's processes are
    /// not searched for others.
    ///
    /// # Errors
    /// As [`Self::world`].
    pub fn world_of(&mut self, request: &Request, guest: Guest) -> Result<World, HostError> {
        self.read(request, &network::devices()?, vec![guest])
    }

    fn read(
        &mut self,
        request: &Request,
        devices: &[Device],
        guests: Vec<Guest>,
    ) -> Result<World, HostError> {
        let Here { boot, namespace } = Self::here()?;
        let ports = self.ports(devices)?;
        let fq = if request.needs_fq() { try_fq() } else { Ok(()) };
        Ok(World {
            boot,
            namespace,
            driven: daemons::driven(devices),
            default_device: network::default_device()?,
            kernel: Kernel {
                tcx: has_tcx(&rustix::system::uname().release().to_string_lossy()),
                fq,
                bpf_qdisc: match request.devices.qdisc {
                    Some(UplinkQueue::Bpf) => try_bpf_qdisc(),
                    Some(UplinkQueue::Fq) | None => Ok(()),
                },
            },
            ports,
            guests,
        })
    }

    /// Returns the reason why guests cannot be adopted on this host; `None` if they can. `needs_fq`
    /// is whether frames are limited. Nothing is loaded.
    pub fn lack(&self, needs_fq: bool) -> Option<String> {
        let outcome = Capability::BpfEdge.try_here();
        if !outcome.works {
            return Some(outcome.detail);
        }
        if !edge::is_in_bpffs(&self.pins) {
            let pins = self.pins.display();
            return Some(format!(
                "{pins} is in no BPF file system; mount one: mount -t bpf bpf /sys/fs/bpf"
            ));
        }
        let fq = if needs_fq { try_fq() } else { Ok(()) };
        fq.err().map(|why| format!("this kernel has no fq: {why}"))
    }

    /// Returns the number of frames that a guest's device has dropped, by reason.
    ///
    /// # Errors
    /// The device has no programs of a guest.
    pub fn drops(&mut self, index: u32) -> Result<Vec<(&'static str, u64)>, HostError> {
        if !self.is_pinned() {
            return Ok(Vec::new());
        }
        let counters = self.edge()?.counters(index);
        let counters =
            counters.map_err(|error| HostError::new("the counters cannot be read", error))?;
        let all = edge::DropReason::ALL.iter();
        let all = all.map(|reason| (reason.label(), counters.drops(*reason)));
        Ok(all.filter(|(_, count)| *count > 0).collect())
    }

    /// Returns how late frames leave on this host; `None` if no program is pinned, or the kernel does
    /// not measure it.
    ///
    /// # Errors
    /// The kernel cannot be queried.
    pub fn lateness(&mut self) -> Result<Option<Lateness>, HostError> {
        if !self.is_pinned() {
            return Ok(None);
        }
        let lateness = self.edge()?.lateness();
        lateness.map_err(|error| HostError::new("the lateness cannot be read", error))
    }

    /// Warms the host up by frames of its own, and returns how late they left; `None` if the kernel
    /// does not measure it. The host is as before, without the frames that were counted before.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn warm_up(&mut self) -> Result<Option<Lateness>, HostError> {
        let warm = self.edge()?.warm_up(lateness::WARM);
        let warm = warm.map_err(|error| HostError::new("the host cannot be warmed up", error));
        self.finish()?;
        warm
    }

    /// Makes the host ready for the guarantee of `request`, if it has one: warms the host up unless enough
    /// frames were counted, and checks J. The frames stay counted with the programs that the adoption
    /// attaches.
    ///
    /// # Errors
    /// [`NotReady`]; the host is as before.
    pub fn make_ready(&mut self, request: &Request) -> Result<(), NotReady> {
        if request.guarantee.is_none() {
            return Ok(());
        }
        let warm = self.warm();
        let ready = warm.map_err(NotReady::from);
        let ready =
            ready.and_then(|warm| lateness::check(warm.as_ref(), request.allowance.lateness));
        if ready.is_err() {
            // The programs were loaded for the measurement alone.
            let _ = self.finish();
        }
        ready.map(drop)
    }

    fn warm(&mut self) -> Result<Option<Lateness>, HostError> {
        let counted = self.lateness()?;
        if counted
            .as_ref()
            .is_some_and(|it| it.frames() >= lateness::WARM)
        {
            return Ok(counted);
        }
        let warm = self.edge()?.warm_up(lateness::WARM);
        warm.map_err(|error| HostError::new("the host cannot be warmed up", error))
    }

    fn ports(&mut self, devices: &[Device]) -> Result<BTreeMap<u32, PortState>, HostError> {
        // Without traffic control there is no discipline either.
        let qdiscs = network::qdiscs().unwrap_or_default();
        let attached = self.attached()?;
        let ports = devices.iter().map(|device| {
            let attached = attached.get(&device.index).copied();
            (device.index, port_state(device, &qdiscs, attached))
        });
        Ok(ports.collect())
    }

    /// Returns the devices with programs of tailbound. Opens what is pinned, and pins nothing.
    fn attached(&mut self) -> Result<BTreeMap<u32, Attached>, HostError> {
        if !self.is_pinned() {
            return Ok(BTreeMap::new());
        }
        let failed = |error| HostError::new("the programs cannot be listed", error);
        let edge = self.edge()?;
        let mut found = BTreeMap::new();
        for attachment in edge.attachments().map_err(failed)? {
            // Others belong to devices that are gone.
            if edge.is_attached(attachment.ifindex).map_err(failed)? {
                let role = if attachment.is_uplink {
                    Attached::Uplink
                } else {
                    Attached::Guest
                };
                found.insert(attachment.ifindex, role);
            }
        }
        Ok(found)
    }

    fn is_pinned(&self) -> bool {
        self.edge.is_some() || Edge::is_pinned(&self.pins)
    }

    fn edge(&mut self) -> Result<&mut Edge, HostError> {
        if self.edge.is_none() {
            let opened = Edge::open(&self.pins);
            self.edge =
                Some(opened.map_err(|error| HostError::new("programs in the kernel", error))?);
        }
        Ok(self.edge.as_mut().expect("it was just opened"))
    }
}

/// Tries whether the kernel has `fq`; the error is the reason in words.
fn try_fq() -> Result<(), String> {
    queue::try_fq().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => "no module sch_fq (CONFIG_NET_SCH_FQ)".to_owned(),
        _ => error.to_string(),
    })
}

/// Tries whether the kernel has BPF qdiscs; the error is the reason in words.
///
/// # Errors
/// The kernel lacks them.
pub fn try_bpf_qdisc() -> Result<(), String> {
    edge::supports_bpf_queue().map_err(|error| match error {
        LoadError::Refused(_) => {
            "no BPF qdiscs (Linux 6.16 and later with CONFIG_NET_SCH_BPF)".to_owned()
        }
        error => error.to_string(),
    })
}

/// Returns true if a kernel of this release has tcx: 6.6 and later.
fn has_tcx(release: &str) -> bool {
    let mut numbers = release.split(['.', '-', '+']);
    let mut next = || numbers.next().and_then(|part| part.parse::<u32>().ok());
    matches!((next(), next()), (Some(major), Some(minor)) if (major, minor) >= (6, 6))
}

fn port_state(device: &Device, qdiscs: &[Qdisc], attached: Option<Attached>) -> PortState {
    let own = || qdiscs.iter().filter(|qdisc| qdisc.index == device.index);
    let root = own().find(|qdisc| qdisc.parent == ROOT);
    let has = |kind: &str| own().any(|qdisc| qdisc.kind == kind);
    let classifiers = if has("clsact") || has("ingress") {
        network::classifiers(device.index).unwrap_or_default()
    } else {
        Vec::new()
    };
    let is_foreign = |classifier: &&Classifier| !is_ours(classifier);
    let foreign = classifiers.iter().filter(is_foreign);
    PortState {
        port: Port {
            index: device.index,
            name: device.name.clone(),
            mac: Mac(device.mac.unwrap_or_default()),
        },
        kind: device.kind.clone(),
        is_loopback: device.is_loopback,
        master: device.master,
        parent: device.other.filter(|_| !device.is_other_elsewhere),
        xdp: device.xdp,
        qdisc: root.map_or_else(|| "noqueue".to_owned(), |root| root.kind.clone()),
        origin: match root.map_or(0, |root| root.handle) {
            0 => QueueOrigin::Kernel,
            queue::HANDLE => QueueOrigin::Tailbound,
            _ => QueueOrigin::Administrator,
        },
        queue_length: device.queue_length,
        clsact: has("clsact"),
        classifiers: foreign.map(|it| it.kind.clone()).collect(),
        attached,
    }
}

/// Returns true for a classifier that tailbound attached.
fn is_ours(classifier: &Classifier) -> bool {
    const PROGRAMS: [&str; 4] = ["from_guest", "to_guest", "to_uplink", "to_queue"];
    let program = classifier.program.as_deref();
    program.is_some_and(|program| PROGRAMS.contains(&program))
}

impl Host for Live {
    fn port(&mut self, index: u32) -> Result<Option<PortState>, HostError> {
        let devices = network::devices()?;
        let Some(device) = devices.iter().find(|device| device.index == index) else {
            return Ok(None);
        };
        let qdiscs = network::qdiscs().unwrap_or_default();
        let attached = self.attached()?.get(&index).copied();
        Ok(Some(port_state(device, &qdiscs, attached)))
    }

    fn attach_uplink(
        &mut self,
        index: u32,
        mark: u32,
        queue: UplinkQueue,
    ) -> Result<(), HostError> {
        let queue = match queue {
            UplinkQueue::Fq => edge::UplinkQueue::Fq,
            UplinkQueue::Bpf => edge::UplinkQueue::Bpf,
        };
        let rules = UplinkRules { mark, queue };
        let attached = self.edge()?.attach_uplink(index, &rules);
        attached
            .map(drop)
            .map_err(|error| HostError::new("the uplink", error))
    }

    fn attach_guest(&mut self, index: u32, rules: &Rules) -> Result<(), HostError> {
        let attached = self.edge()?.attach_guest(index, &kernel_rules(rules));
        attached
            .map(drop)
            .map_err(|error| HostError::new("the guest's interface", error))
    }

    fn detach(&mut self, index: u32) -> Result<(), HostError> {
        if !self.is_pinned() {
            return Ok(());
        }
        let detached = self.edge()?.detach(index);
        detached.map_err(|error| HostError::new("the programs cannot be detached", error))
    }

    fn remove_queue(&mut self, index: u32) -> Result<(), HostError> {
        queue::remove(index).map_err(|error| HostError::new("fq cannot be removed", error))
    }

    fn set_queue_length(&mut self, port: &Port, packets: u32) -> Result<(), HostError> {
        let set = link::set_queue_length(&port.name, None, packets);
        set.map_err(|error| HostError::new("the queue's length cannot be set", error))
    }

    fn remove_clsact(&mut self, index: u32) -> Result<(), HostError> {
        let removed = queue::remove_clsact(index);
        removed.map_err(|error| HostError::new("clsact cannot be removed", error))
    }

    fn finish(&mut self) -> Result<(), HostError> {
        // A load that was interrupted leaves pins without a layout.
        if !self.pins.exists() {
            return Ok(());
        }
        let failed = |error| HostError::new("pins cannot be removed", error);
        let is_used = !self.edge()?.attachments().map_err(failed)?.is_empty();
        match self.edge.take() {
            Some(edge) if !is_used => edge.remove().map_err(failed),
            _ => Ok(()),
        }
    }
}

/// Returns the rules as the programs take them.
fn kernel_rules(rules: &Rules) -> GuestRules {
    let bucket = |bucket: Bucket| edge::Bucket {
        rate: bucket.rate,
        burst: bucket.burst,
    };
    let guard = |station: &Station| {
        let own = station.ips.iter().map(|ip| (*ip).into());
        Guard::new(station.mac.0, own)
    };
    GuestRules {
        guard: rules.guard.as_ref().map(guard),
        tag: rules.dscp.map(|dscp| Tag { dscp, pcp: None }),
        outward: rules.outward.map(bucket),
        inward: rules.inward.map(bucket),
        guarantee: rules.guarantee.map(|guarantee| Guarantee {
            bucket: bucket(guarantee),
            peak: rules.peak,
            frame: FRAME,
            packet: rules.packet,
        }),
        mark: rules
            .mark
            .inspect(|mark| assert!(*mark & !MARKS == 0 && *mark != 0)),
        horizon: None,
        is_direct: rules.direct,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tcx_came_with_6_6() {
        for (release, has) in [
            ("6.1.0-32-amd64", false),
            ("6.6", true),
            ("6.12.117+deb13-cloud-amd64", true),
            ("7.3.4+deb13-cloud-amd64", true),
            ("5.15.0", false),
            ("", false),
        ] {
            assert_eq!(has_tcx(release), has, "{release}");
        }
    }
}
