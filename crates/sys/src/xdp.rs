//! `AF_XDP` sockets: the frames of an interface without the kernel's stack, in
//! memory that both sides share (`Documentation/networking/af_xdp.rst`).
//!
//! [`Xdp::open`] attaches a program to the interface that redirects frames, and makes a [`Queue`]
//! for each of its receive queues. The first of them also sends, so that sent frames keep their
//! order. Frames are at most a chunk of memory long, unfragmented, with finished checksums: there
//! are no offloads.
//!
//! Read `xdp/program.rs` for the redirected frames, `xdp/queue.rs` for a socket, `xdp/ring.rs` for
//! the memory that it shares with the kernel.

mod bpf;
mod chunks;
mod clock;
mod features;
mod metadata;
mod program;
mod queue;
mod ring;

pub use clock::NicClock;
pub use features::Features;
pub use program::Attachment;
pub use queue::{Losses, MAX_FRAME_BYTES, Queue, SendRefusal};

use crate::ethtool::Ethtool;
use program::Program;
use queue::Plan;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Bytes before a packet of one MTU: an Ethernet header and two 802.1Q tags.
const HEADERS: u32 = 14 + 2 * 4;

/// Attempts and pauses for a queue whose socket was just closed: the kernel frees it a moment
/// later.
const BUSY: (u32, Duration) = (40, Duration::from_millis(5));

/// Reason why an interface's frames are not available by `AF_XDP`. The message contains a remedy.
#[derive(Debug, thiserror::Error)]
pub enum XdpError {
    /// `AF_XDP` or its program are not allowed.
    #[error(
        "not allowed to {step} for {interface:?}: {source}; it takes CAP_NET_RAW and \
         CAP_NET_ADMIN in the interface's network namespace and CAP_BPF in the initial user \
         namespace"
    )]
    NotAllowed {
        /// The interface.
        interface: String,
        /// The step that failed.
        step: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
    /// The kernel has no `AF_XDP`.
    #[error("the kernel has no AF_XDP; use one with CONFIG_XDP_SOCKETS, or the kind af-packet")]
    NoXdp,
    /// The interface does not exist.
    #[error("there is no interface {interface:?}; `ip link` lists those there are")]
    NoInterface {
        /// The interface.
        interface: String,
    },
    /// The interface is not up.
    #[error("the interface {interface:?} is down; `ip link set {interface} up` mends that")]
    Down {
        /// The interface.
        interface: String,
    },
    /// Another XDP program or socket is attached.
    #[error(
        "the interface {interface:?} is in use by another XDP program or AF_XDP socket: cannot \
         {step}: {source}; `ip link show {interface}` names the program"
    )]
    Busy {
        /// The interface.
        interface: String,
        /// The step that failed.
        step: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
    /// The interface's packets exceed a chunk.
    #[error(
        "the interface {interface:?} has an MTU of {mtu} bytes, and AF_XDP carries {most}; \
         `ip link set {interface} mtu {most}` mends that, or use the kind af-packet"
    )]
    Mtu {
        /// The interface.
        interface: String,
        /// The MTU of the interface.
        mtu: u32,
        /// The largest possible MTU.
        most: u32,
    },
    /// The interface has fewer queues.
    #[error("the interface {interface:?} has {have} receive queues, not {wanted}")]
    Queues {
        /// The interface.
        interface: String,
        /// The number of queues of the interface.
        have: u32,
        /// The requested number of queues.
        wanted: u32,
    },
    /// The driver has no zero-copy, which was requested.
    #[error(
        "the driver of {interface:?} has no zero-copy AF_XDP; `tailbound doctor` names the \
         interfaces that have it, and mode = \"auto\" does with what there is"
    )]
    NoZeroCopy {
        /// The interface.
        interface: String,
    },
    /// The memory cannot be pinned.
    #[error(
        "the memory of an AF_XDP socket on {interface:?} cannot be pinned: {source}; raise the \
         limit (systemd: LimitMEMLOCK=infinity; shell: ulimit -l unlimited)"
    )]
    Memory {
        /// The interface.
        interface: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// The network namespace cannot be entered.
    #[error("cannot enter the network namespace {}: {source}", path.display())]
    Namespace {
        /// The namespace's file.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// Any other failure.
    #[error("cannot {step} for AF_XDP on {interface:?}: {source}")]
    Other {
        /// The interface.
        interface: String,
        /// The step that failed.
        step: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
}

/// The attach modes to try.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AttachPreference {
    /// All of them; the fastest one that works is used.
    #[default]
    Any,
    /// Zero-copy alone.
    ZeroCopy,
    /// Copy modes; in the driver if possible.
    Copy,
}

/// Mode in which sockets are attached to an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttachMode {
    /// True if the NIC reads and writes the sockets' memory itself.
    pub zero_copy: bool,
    /// The place of the program.
    pub attachment: Attachment,
}

impl fmt::Display for AttachMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match (self.zero_copy, self.attachment) {
            (true, _) => "zero-copy",
            (false, Attachment::Driver) => "copy, program in the driver",
            (false, Attachment::Generic) => "copy, program behind the driver",
        })
    }
}

/// All attach modes, the fastest first.
const ATTACH_MODES: [AttachMode; 3] = [
    AttachMode {
        zero_copy: true,
        attachment: Attachment::Driver,
    },
    AttachMode {
        zero_copy: false,
        attachment: Attachment::Driver,
    },
    AttachMode {
        zero_copy: false,
        attachment: Attachment::Generic,
    },
];

/// The sockets of an interface. When they are dropped, the program is detached.
#[derive(Debug)]
pub struct Xdp {
    /// A socket for each receive queue; the first also sends.
    pub queues: Vec<Queue>,
    /// The mode in which they are attached.
    pub mode: AttachMode,
    /// The faster modes that failed before, with their errors.
    pub failed: Vec<(AttachMode, io::Error)>,
    /// The number of receive queues of the interface.
    pub receive_queues: u32,
    /// The interface's MAC address.
    pub address: [u8; 6],
    /// True if the interface removes tags from received frames: they are lost then.
    pub loses_tags: bool,
    /// The NIC's clock, if the NIC implements launch times.
    pub clock: Option<NicClock>,
    _program: Program,
}

impl Xdp {
    /// Opens sockets for the first `queues` receive queues of `interface`, or for all, in the
    /// network namespace `netns` or the caller's. The descriptors work in any namespace.
    ///
    /// # Errors
    /// See [`XdpError`]. Nothing is left behind.
    pub fn open(
        interface: &str,
        netns: Option<&Path>,
        preference: AttachPreference,
        queues: Option<u32>,
    ) -> Result<Self, XdpError> {
        match netns {
            None => Self::open_here(interface, preference, queues),
            Some(path) => {
                crate::netns::within(path, || Self::open_here(interface, preference, queues))
                    .map_err(|source| XdpError::Namespace {
                        path: path.to_owned(),
                        source,
                    })?
            }
        }
    }

    fn open_here(
        interface: &str,
        preference: AttachPreference,
        queues: Option<u32>,
    ) -> Result<Self, XdpError> {
        let failed = |step| move |source| error(interface, step, source);
        let facts = Facts::gather(interface, queues)?;
        let step = "load the XDP program";
        let mut program = Program::load(facts.address, facts.queues).map_err(failed(step))?;
        let launch_times = facts.features.launch_time && facts.clock.is_some();
        let mut refused = Vec::new();
        let wanted = |mode: &AttachMode| match preference {
            AttachPreference::Any => true,
            AttachPreference::ZeroCopy => mode.zero_copy,
            AttachPreference::Copy => !mode.zero_copy,
        };
        let mut modes = ATTACH_MODES.into_iter().filter(wanted).peekable();
        while let Some(mode) = modes.next() {
            let plan = Plan {
                chunk: facts.chunk,
                sends: true,
                launch_times: launch_times && mode.zero_copy,
            };
            match connect(&mut program, &facts, mode, plan) {
                Ok(queues) => {
                    return Ok(Self {
                        queues,
                        mode,
                        failed: refused,
                        receive_queues: facts.receive_queues,
                        address: facts.address,
                        loses_tags: facts.loses_tags,
                        clock: facts.clock.filter(|_| plan.launch_times),
                        _program: program,
                    });
                }
                Err((_, source))
                    if preference == AttachPreference::ZeroCopy
                        && source.raw_os_error() == Some(libc::EOPNOTSUPP) =>
                {
                    let interface = interface.to_owned();
                    return Err(XdpError::NoZeroCopy { interface });
                }
                // Another mode would fail as well, or there is no other.
                Err((step, source)) if modes.peek().is_none() || is_final(&source) => {
                    return Err(error(interface, step, source));
                }
                Err((_, source)) => refused.push((mode, source)),
            }
        }
        // Each preference has a mode, and the last one returns.
        Err(error(
            interface,
            "find an attach mode",
            io::ErrorKind::Unsupported.into(),
        ))
    }
}

/// Properties of an interface.
struct Facts {
    index: u32,
    address: [u8; 6],
    receive_queues: u32,
    /// The number of queues that get a socket.
    queues: u32,
    chunk: u32,
    loses_tags: bool,
    features: Features,
    clock: Option<NicClock>,
}

impl Facts {
    fn gather(interface: &str, queues: Option<u32>) -> Result<Self, XdpError> {
        let failed = |step| move |source| error(interface, step, source);
        let ethtool = Ethtool::open(interface).map_err(failed("open a socket"))?;
        let index = rustix::net::netdevice::name_to_index(ethtool.socket(), interface)
            .map_err(|errno| error(interface, "find the interface", errno.into()))?;
        // A driver that does not say has one queue.
        let have = ethtool.receive_queues().unwrap_or(1).max(1);
        let wanted = queues.unwrap_or(have);
        if wanted == 0 || wanted > have {
            return Err(XdpError::Queues {
                interface: interface.to_owned(),
                have,
                wanted,
            });
        }
        let mtu = ethtool.mtu().map_err(failed("read the MTU"))?;
        let chunk = queue::chunk_for(mtu.saturating_add(HEADERS)).ok_or_else(|| XdpError::Mtu {
            interface: interface.to_owned(),
            mtu,
            most: MAX_FRAME_BYTES - HEADERS,
        })?;
        // An older kernel does not say: then there are no launch times either.
        let features = Features::of_here(interface).unwrap_or_default();
        let clock = ethtool.clock().ok().flatten();
        Ok(Self {
            index,
            address: ethtool.address().map_err(failed("read the MAC address"))?,
            receive_queues: have,
            queues: wanted,
            chunk,
            loses_tags: ethtool.takes_tags_out().unwrap_or(false),
            features,
            clock: clock
                .filter(|_| features.launch_time)
                .and_then(|index| NicClock::open(index).ok()),
        })
    }
}

/// Attaches the program and binds sockets to queues in one mode, or returns the step that failed,
/// with its error.
fn connect(
    program: &mut Program,
    facts: &Facts,
    mode: AttachMode,
    plan: Plan,
) -> Result<Vec<Queue>, (&'static str, io::Error)> {
    let failed = |step| move |source| (step, source);
    program
        .attach(facts.index, mode.attachment)
        .map_err(failed("attach the XDP program"))?;
    let mut queues = Vec::with_capacity(facts.queues as usize);
    for number in 0..facts.queues {
        let plan = Plan {
            sends: number == 0,
            launch_times: plan.launch_times && number == 0,
            ..plan
        };
        let queue = Queue::new(plan).map_err(failed("make the socket"))?;
        bind(&queue, facts.index, number, mode.zero_copy).map_err(failed("bind the socket"))?;
        queues.push(queue);
    }
    for (number, queue) in (0..).zip(&queues) {
        let socket = std::os::fd::AsFd::as_fd(queue);
        program
            .set_socket(number, socket)
            .map_err(failed("set the program's socket"))?;
    }
    Ok(queues)
}

/// Binds a socket; waits for a queue whose socket was just closed.
fn bind(queue: &Queue, interface: u32, number: u32, zero_copy: bool) -> io::Result<()> {
    let (tries, pause) = BUSY;
    let mut result = queue.bind(interface, number, zero_copy);
    for _ in 1..tries {
        match &result {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => std::thread::sleep(pause),
            _ => break,
        }
        result = queue.bind(interface, number, zero_copy);
    }
    result
}

/// Returns true if every other attach mode would fail with this error, too.
fn is_final(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(
            libc::EPERM
                | libc::EACCES
                | libc::EAFNOSUPPORT
                | libc::ENODEV
                | libc::ENETDOWN
                | libc::EBUSY
                | libc::EEXIST
                | libc::ENOMEM
                | libc::ENOBUFS
        )
    )
}

/// Converts the error of a step.
fn error(interface: &str, step: &'static str, source: io::Error) -> XdpError {
    let interface = interface.to_owned();
    match source.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => XdpError::NotAllowed {
            interface,
            step,
            source,
        },
        Some(libc::EAFNOSUPPORT) => XdpError::NoXdp,
        Some(libc::ENODEV | libc::ENXIO) => XdpError::NoInterface { interface },
        Some(libc::ENETDOWN) => XdpError::Down { interface },
        Some(libc::EBUSY | libc::EEXIST) => XdpError::Busy {
            interface,
            step,
            source,
        },
        Some(libc::ENOBUFS | libc::ENOMEM) => XdpError::Memory { interface, source },
        _ => XdpError::Other {
            interface,
            step,
            source,
        },
    }
}
