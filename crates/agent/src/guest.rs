//! A guest as the host sees it: its processes, its vCPU threads, and its name. Pure;
//! [`super::scan`] reads `/proc`.
//!
//! All of these are claims of a process, and any process may make them. [`Origin`] has the facts
//! that the kernel confirms; rules use those.

use super::identifier::{Uuid, Vmid};
use super::place::Manager;
use super::text::printable;
use serde::Serialize;
use std::ffi::CStr;
use std::fmt;
use std::path::PathBuf;
use tailbound_sys::cgroup::Groups;
use tailbound_sys::thread::ThreadId;

/// The program that runs a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Vmm {
    /// QEMU, with KVM or TCG, on its own or under libvirt.
    Qemu,
    /// The VMM Firecracker.
    Firecracker,
    /// Cloud Hypervisor.
    CloudHypervisor,
    /// A process that a rule names, and no known hypervisor.
    Other,
}

/// Name of the daemon's packet loop thread, at most 15 bytes: no other program in its unit's
/// control group uses this name.
pub const LOOP_THREAD: &CStr = c"tailbound-loop";

/// The role of a guest's thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Runs a vCPU, with this number.
    Vcpu(u32),
    /// Calls itself that vCPU, and has entered no guest: it gets no class.
    Claim(u32),
    /// Any thread of a process that a rule names and that is no hypervisor.
    Task,
    /// Moves the packets of all guests: the first thread of the host's daemon, by its name.
    PacketLoop,
    /// QEMU's iothreads, Cloud Hypervisor's and Firecracker's device threads.
    Io,
    /// Moves packets between the guest and a TAP in the kernel.
    Vhost,
    /// The main loop and its workers.
    Emulator,
}

impl Role {
    /// Returns true if the guest's class applies to it; other threads are helpers.
    pub const fn is_vcpu(self) -> bool {
        matches!(self, Self::Vcpu(_) | Self::Task | Self::PacketLoop)
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Vcpu(number) => write!(f, "vcpu {number}"),
            Self::Claim(number) => write!(f, "claims vcpu {number}"),
            Self::Task => f.pad("task"),
            Self::PacketLoop => f.pad("packet loop"),
            Self::Io => f.pad("io"),
            Self::Vhost => f.pad("vhost"),
            Self::Emulator => f.pad("emulator"),
        }
    }
}

/// A vCPU and the thread that runs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VcpuThread {
    /// The vCPU's number.
    pub number: u32,
    /// The thread's number.
    pub tid: u32,
}

/// A thread as it was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedThread {
    /// Its number and start.
    pub id: ThreadId,
    /// Its name, at most 15 bytes.
    pub name: String,
}

/// The creator of a guest, as confirmed by the kernel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Origin {
    /// Its user; `None` where its ids differ, as those of a set-user-id program do.
    pub uid: Option<u32>,
    /// True if this is the agent's own user.
    pub own: bool,
    /// True if it is in a PID namespace below the agent's, as in a container.
    pub nested: bool,
    /// The manager who made its control group, and that group's path, where only root could
    /// have made it.
    #[serde(skip)]
    pub place: Option<(Manager, String)>,
}

impl Origin {
    /// Returns true if the guest chose its own name, and no manager did.
    pub fn named_itself(&self) -> bool {
        self.place.is_none()
    }
}

/// The bearer of the weight of a guest's class.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum WeightBearer {
    /// Each of its threads, as a nice value: it has no control group of its own.
    #[default]
    Threads,
    /// The outermost group that is its own: at that one it competes with others.
    Group(PathBuf),
    /// No bearer: the group at which the guest competes with others has other members, too.
    Nothing {
        /// Path of the group.
        group: PathBuf,
        /// The other members.
        others: String,
    },
}

impl WeightBearer {
    /// Returns the group that takes the weight.
    pub fn group(&self) -> Option<&PathBuf> {
        match self {
            Self::Group(group) => Some(group),
            _ => None,
        }
    }
}

/// A process as it was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// Its name, at most 15 bytes.
    pub name: String,
    /// Its arguments, the program first.
    pub arguments: Vec<String>,
    /// Its control groups.
    pub groups: Groups,
    /// Its creator.
    pub origin: Origin,
    /// Its threads.
    pub threads: Vec<NamedThread>,
}

/// A thread of a guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct GuestThread {
    /// Its number and start.
    #[serde(flatten)]
    pub id: ThreadId,
    /// Its name, at most 15 bytes.
    pub name: String,
    /// Its role.
    pub role: Role,
}

/// A guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Guest {
    /// Its name.
    pub name: String,
    /// Its VMM or runtime.
    pub vmm: Vmm,
    /// Its process; the first of several.
    pub pid: u32,
    /// Its creator.
    pub origin: Origin,
    /// The bearer of the weight of its class.
    pub weighed: WeightBearer,
    /// Its threads.
    pub threads: Vec<GuestThread>,
    /// QMP socket of its QEMU, from the command line.
    #[serde(skip)]
    pub qmp: Option<PathBuf>,
    /// The UUID on its QEMU's command line.
    #[serde(skip)]
    pub uuid: Option<Uuid>,
    /// The VMID on its QEMU's command line.
    #[serde(skip)]
    pub vmid: Option<Vmid>,
    /// The indices of the rules that name its process, control group, container or pod.
    #[serde(skip)]
    pub rules: Vec<usize>,
    /// The indices of the rules for another executable than its own.
    #[serde(skip)]
    pub other_executable: Vec<usize>,
    /// The index of the rule that counts for it, once that is known.
    #[serde(skip)]
    pub rule: Option<usize>,
    /// Unknown properties, with the reasons.
    pub notes: Vec<String>,
}

impl Guest {
    /// Returns true if any of its threads is known to run a vCPU.
    pub fn has_vcpus(&self) -> bool {
        self.threads.iter().any(|thread| thread.role.is_vcpu())
    }

    /// Sets the role of the daemon's packet loop: this is the host's own path. Others run in its
    /// unit's control group, too, such as who checks a configuration before a reload.
    pub(crate) fn name_packet_loop(&mut self) {
        for thread in &mut self.threads {
            // Threads of the daemon without a name inherit that of its first.
            if thread.id.tid == thread.id.pid && thread.name.as_bytes() == LOOP_THREAD.to_bytes() {
                thread.role = Role::PacketLoop;
            }
        }
    }

    /// Sets the roles of the threads that run vCPUs, as QMP answered.
    pub fn name_vcpus(&mut self, vcpus: &[VcpuThread]) {
        for vcpu in vcpus {
            let mut threads = self.threads.iter_mut();
            if let Some(thread) = threads.find(|thread| thread.id.tid == vcpu.tid) {
                thread.role = Role::Vcpu(vcpu.number);
            }
        }
    }
}

/// Returns the guest that a process is; `None` when it is none that is known here. A
/// manager's name for it counts before its own.
pub fn recognise(process: &Process) -> Option<Guest> {
    let vmm = vmm(process)?;
    let own = || match vmm {
        Vmm::Qemu => qemu_name(&process.arguments),
        Vmm::Firecracker => option(&process.arguments, "--id").map(str::to_owned),
        Vmm::CloudHypervisor => option(&process.arguments, "--api-socket").and_then(socket_name),
        Vmm::Other => None,
    };
    let place = process.origin.place.as_ref();
    let name = match place.map(|(manager, _)| manager) {
        Some(Manager::Libvirt(name) | Manager::Jailer(name)) => Some(name.clone()),
        Some(Manager::Pod(uid)) => Some(format!("pod-{uid}")),
        Some(Manager::Container(id)) => id.get(..12).map(str::to_owned),
        None => own(),
    };
    let guest = guest(process, vmm, name);
    if vmm != Vmm::Qemu {
        return Some(guest);
    }
    let arguments = &process.arguments;
    let uuid = option(arguments, "-uuid").or_else(|| option(arguments, "--uuid"));
    // An option of Proxmox VE's own QEMU.
    let vmid = option(arguments, "-id").or_else(|| option(arguments, "--id"));
    Some(Guest {
        qmp: qmp_socket(arguments),
        uuid: uuid.and_then(|text| text.parse().ok()),
        vmid: vmid.and_then(|text| text.parse().ok()),
        ..guest
    })
}

/// Returns a guest of a process that a rule names and that is no hypervisor known
/// here: its class is for all its threads.
pub fn plain(process: &Process) -> Guest {
    guest(process, Vmm::Other, None)
}

fn guest(process: &Process, vmm: Vmm, name: Option<String>) -> Guest {
    let threads = process.threads.iter().map(|thread| GuestThread {
        id: thread.id,
        name: printable(&thread.name),
        role: role(vmm, &thread.name),
    });
    let name = name.unwrap_or_else(|| format!("{}-{}", process.name, process.pid));
    Guest {
        name: printable(&name),
        vmm,
        pid: process.pid,
        origin: process.origin.clone(),
        weighed: WeightBearer::Threads,
        threads: threads.collect(),
        qmp: None,
        uuid: None,
        vmid: None,
        rules: Vec::new(),
        other_executable: Vec::new(),
        rule: None,
        notes: Vec::new(),
    }
}

fn vmm(process: &Process) -> Option<Vmm> {
    let program = process.arguments.first().map_or("", String::as_str);
    let program = program.rsplit('/').next().unwrap_or_default();
    let is = |vmm, names: &[&str]| {
        // A thread's name, and so a process's, is cut after 15 bytes.
        let cut = |name: &str| name.get(..15).unwrap_or(name).to_owned();
        let known =
            |name: &&str| program.starts_with(*name) || process.name.starts_with(&cut(name));
        names.iter().any(known).then_some(vmm)
    };
    // Not qemu-img, qemu-nbd, qemu-ga.
    is(Vmm::Qemu, &["qemu-system-", "qemu-kvm"])
        .or_else(|| is(Vmm::Firecracker, &["firecracker"]))
        .or_else(|| is(Vmm::CloudHypervisor, &["cloud-hypervisor"]))
        .or_else(|| {
            // `-name process=...` changes QEMU's name, and a wrapper its program.
            let threads = &process.threads;
            let named = |vmm| {
                let vcpu = |t: &NamedThread| matches!(role(vmm, &t.name), Role::Vcpu(_));
                threads.iter().any(vcpu).then_some(vmm)
            };
            named(Vmm::Qemu).or_else(|| named(Vmm::Firecracker))
        })
}

/// Returns what a thread does, by its name.
fn role(vmm: Vmm, name: &str) -> Role {
    let number = |text: &str| text.parse::<u32>().ok();
    // As a kernel thread or as one of the process (Linux 6.4): "vhost-PID".
    if name.strip_prefix("vhost-").and_then(number).is_some() {
        return Role::Vhost;
    }
    let vcpu = match vmm {
        // "CPU 0/KVM", "CPU 0/TCG"; with one thread for all, "ALL CPUs/TCG".
        Vmm::Qemu if name == "ALL CPUs/TCG" => Some(0),
        Vmm::Qemu => name
            .strip_prefix("CPU ")
            .and_then(|rest| rest.split_once('/'))
            .and_then(|(digits, _)| number(digits)),
        Vmm::Firecracker => name.strip_prefix("fc_vcpu ").and_then(number),
        Vmm::CloudHypervisor => name.strip_prefix("vcpu").and_then(number),
        Vmm::Other => return Role::Task,
    };
    match (vcpu, vmm) {
        (Some(number), _) => Role::Vcpu(number),
        (None, Vmm::Qemu) if name.starts_with("IO ") => Role::Io,
        // "_disk0_q0", "_net1_qp0": a device's queue.
        (None, Vmm::CloudHypervisor) if name.starts_with('_') => Role::Io,
        _ => Role::Emulator,
    }
}

/// Returns the value of an option, as in `--id x` or `--id=x`.
fn option<'a>(arguments: &'a [String], name: &str) -> Option<&'a str> {
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        if argument == name {
            return arguments.next().map(String::as_str);
        }
        if let Some(value) = argument
            .strip_prefix(name)
            .and_then(|r| r.strip_prefix('='))
        {
            return Some(value);
        }
    }
    None
}

/// `path=/run/vm1.sock` or the path itself: `vm1`.
fn socket_name(value: &str) -> Option<String> {
    let path = value.split(',').find_map(|part| part.strip_prefix("path="));
    let file = path.unwrap_or(value).rsplit('/').next()?;
    let name = file.split('.').next().filter(|name| !name.is_empty())?;
    Some(name.to_owned())
}

/// `-name guest=web,debug-threads=on` or `-name web`. A comma in a name is
/// written twice.
fn qemu_name(arguments: &[String]) -> Option<String> {
    let value = option(arguments, "-name").or_else(|| option(arguments, "--name"))?;
    let value = value.replace(",,", "\0");
    let parts: Vec<_> = value.split(',').collect();
    let named = parts.iter().find_map(|part| part.strip_prefix("guest="));
    let name = named.or_else(|| parts.first().copied().filter(|part| !part.contains('=')))?;
    let name = name.replace('\0', ",");
    (!name.is_empty()).then_some(name)
}

/// Where QEMU listens for QMP: `-qmp unix:PATH,...`, or a control monitor on a
/// character device with a path.
fn qmp_socket(arguments: &[String]) -> Option<PathBuf> {
    let mut controls = Vec::new();
    let mut sockets = Vec::new();
    for pair in arguments.windows(2) {
        let [name, value] = pair else { continue };
        let key = |name: &str| {
            value
                .split(',')
                .find_map(|part| part.strip_prefix(name)?.strip_prefix('='))
        };
        match name.trim_start_matches('-') {
            "qmp" | "qmp-pretty" => {
                let path = value.strip_prefix("unix:")?.split(',').next()?;
                return Some(path.into());
            }
            "mon" if key("mode") == Some("control") => controls.extend(key("chardev")),
            "chardev" if value.starts_with("socket,") => sockets.push((key("id"), key("path"))),
            _ => {}
        }
    }
    let control = |(id, _): &&(Option<&str>, _)| id.is_some_and(|id| controls.contains(&id));
    let (_, path) = sockets.iter().find(control)?;
    path.map(PathBuf::from)
}

/// Returns true if `name` matches `pattern`; `*` matches any text.
pub fn matches(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = name.strip_prefix(first) else {
        return false;
    };
    let Some(last) = parts.next_back() else {
        return rest.is_empty();
    };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests;
