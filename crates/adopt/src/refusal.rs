//! The reasons why a guest cannot be adopted, each in one sentence with a remedy.

use super::request::UplinkQueue;

/// Reason why a guest cannot be adopted. Nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// No guest has the name.
    #[error("there is no guest \"{asked}\" here; {}", suggestion(.near.as_deref(), .known))]
    NoGuest {
        /// The pattern.
        asked: String,
        /// The most similar name.
        near: Option<String>,
        /// All names.
        known: Vec<String>,
    },
    /// Several guests have one name.
    #[error("{} guests are called \"{asked}\"; use a key: {}", .keys.len(), .keys.join(", "))]
    Several {
        /// The name.
        asked: String,
        /// Their keys.
        keys: Vec<String>,
    },
    /// A flag fits one guest only, and several are selected.
    #[error("--mac, --ip and --interface are for one guest, and {0} are selected")]
    ForOne(usize),
    /// The guest has no device on the host.
    #[error(
        "{0} has no interface on this host: a TAP, a veth or a netkit; a guest of the daemon has its \
         limits in the daemon's file"
    )]
    NoDevice(String),
    /// The device that was asked for is not the guest's.
    #[error("{guest} has no interface {asked}; it has {}", .has.join(", "))]
    NoSuchDevice {
        /// The guest.
        guest: String,
        /// The device.
        asked: String,
        /// Its devices.
        has: Vec<String>,
    },
    /// A limit for several devices is ambiguous.
    #[error(
        "{guest} has {} interfaces, and a limit holds for one: select it by --interface, of {}",
        .has.len(), .has.join(", ")
    )]
    SeveralDevices {
        /// The guest.
        guest: String,
        /// Its devices.
        has: Vec<String>,
    },
    /// The kind of the guest's device has no place for programs.
    #[error("{device} is a {kind}: {why}")]
    Kind {
        /// The device.
        device: String,
        /// Its kind.
        kind: String,
        /// The reason and the remedy.
        why: &'static str,
    },
    /// The guest's address is not known.
    #[error(
        "the MAC address of {guest} behind {device} is not known; add --mac ADDRESS, or --no-guard"
    )]
    NoStation {
        /// The guest.
        guest: String,
        /// The device.
        device: String,
    },
    /// The guest has more addresses than a guard holds.
    #[error(
        "{guest} has {count} addresses of one family, and a guard holds {most}; add --no-guard, or \
         name its addresses by --ip"
    )]
    ManyAddresses {
        /// The guest.
        guest: String,
        /// The number of its addresses.
        count: usize,
        /// The largest number.
        most: usize,
    },
    /// A process forwards the device's frames itself.
    #[error("{device} is a port of {by}, which forwards its frames itself; set limits there")]
    Driven {
        /// The device.
        device: String,
        /// The process.
        by: String,
    },
    /// An XDP program sees frames first.
    #[error(
        "{device} has an XDP program (number {program}), which may forward frames before they are \
         examined; `ip link set dev {device} xdp off` removes it"
    )]
    Xdp {
        /// The device.
        device: String,
        /// The program.
        program: u32,
    },
    /// Classifiers of another program are in the way.
    #[error(
        "{device} has classifiers of another program ({}), and this kernel runs them before those \
         of tailbound; Linux 6.6 and later run both (tcx)",
        .kinds.join(", ")
    )]
    Classifiers {
        /// The device.
        device: String,
        /// Their kinds.
        kinds: Vec<String>,
    },
    /// An administrator chose the queueing discipline.
    #[error(
        "{device} has the queueing discipline {kind}, which an administrator or another program set; \
         `tc qdisc del dev {device} root` removes it, or omit the limit"
    )]
    Qdisc {
        /// The device.
        device: String,
        /// The discipline.
        kind: String,
    },
    /// The kernel has no `fq`.
    #[error(
        "this kernel has no fq, which limits and guarantees need: {0}; omit them, or use the \
             daemon (`tailbound host`)"
    )]
    NoFq(String),
    /// The kernel has no BPF qdiscs.
    #[error("this kernel has {0}; omit --qdisc, or use --qdisc fq")]
    NoBpfQdisc(String),
    /// The uplink has another queueing discipline for guests that are adopted.
    #[error(
        "{device} has {} for other guests; omit --qdisc, or release them first", .queue.name()
    )]
    OtherQueue {
        /// The uplink.
        device: String,
        /// Its queueing discipline.
        queue: UplinkQueue,
    },
    /// There is no uplink.
    #[error("no uplink was found: {0}; name it by --uplink")]
    NoUplink(&'static str),
    /// There is no device of that name.
    #[error("there is no interface \"{asked}\" for an uplink; {}", suggestion(.near.as_deref(), .known))]
    NoSuchUplink {
        /// The name.
        asked: String,
        /// The most similar name.
        near: Option<String>,
        /// All names.
        known: Vec<String>,
    },
    /// Several uplinks are possible.
    #[error("{bridge} has several physical ports, {}; name one by --uplink", .ports.join(", "))]
    SeveralUplinks {
        /// The bridge.
        bridge: String,
        /// Its ports.
        ports: Vec<String>,
    },
    /// The uplink's kind keeps no departure times.
    #[error("the uplink {device} is a {kind}: {why}")]
    UplinkKind {
        /// The device.
        device: String,
        /// Its kind.
        kind: String,
        /// The reason and the remedy.
        why: String,
    },
    /// Too many guests are routed.
    #[error("{0} routed guests have limits on this host, the most that firewall marks can name")]
    Marks(usize),
    /// The device is an uplink of other guests, or a guest.
    #[error("{0} cannot be a guest's interface and an uplink at the same time")]
    BothRoles(String),
}

/// Largest number of names in an error.
const MAX_LISTED: usize = 20;

fn suggestion(near: Option<&str>, known: &[String]) -> String {
    if let Some(near) = near {
        return format!("did you mean \"{near}\"?");
    }
    if known.is_empty() {
        return "none is here".to_owned();
    }
    let shown: Vec<_> = known.iter().take(MAX_LISTED).map(String::as_str).collect();
    let more = match known.len().saturating_sub(MAX_LISTED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("here: {}{more}", shown.join(", "))
}

/// Returns the known name for which `asked` is probably a misspelling.
pub(crate) fn nearest<'k>(asked: &str, known: impl Iterator<Item = &'k str>) -> Option<String> {
    let allowed = (asked.chars().count() / 4).max(1);
    let edits = known.map(|name| (strsim::osa_distance(asked, name), name));
    let close = edits.filter(|(edits, _)| *edits <= allowed);
    close.min().map(|(_, name)| name.to_owned())
}
