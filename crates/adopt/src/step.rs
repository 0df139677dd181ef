//! The steps of an adoption: a step has the device, the change, and the state before it, so that it
//! can be undone by another process.

use super::mac::Mac;
use super::request::{Bucket, LONGEST_PACKET, Request, UplinkQueue};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::IpAddr;
use tailbound_units::{Bytes, Rate};

/// A device of the host's network namespace, recognised again by its index and its MAC address. An
/// index is not used again while the namespace lives, unless an administrator selects it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Port {
    /// Its index.
    pub index: u32,
    /// Its name when it was adopted.
    pub name: String,
    /// Its MAC address.
    pub mac: Mac,
}

/// The source addresses that a guest may use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Station {
    /// Its MAC address.
    pub mac: Mac,
    /// Its IP addresses; any if empty.
    pub ips: Vec<IpAddr>,
}

/// The rules of the programs on a guest's device.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rules {
    /// The only source addresses; no guard without.
    pub guard: Option<Station>,
    /// The DSCP that the guest's IP packets leave with; unchanged without.
    pub dscp: Option<u8>,
    /// The limit on frames of the guest.
    pub outward: Option<Bucket>,
    /// The limit on frames to the guest.
    pub inward: Option<Bucket>,
    /// The guarantee: its frames leave within {B, S}.
    pub guarantee: Option<Bucket>,
    /// The rate within a burst of the guarantee; that of the uplink without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak: Option<Rate>,
    /// The longest packet of a guest with a guarantee to the uplink, in bytes on the wire.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packet: Option<Bytes>,
    /// The firewall mark that names the guest at the uplink, if its frames are routed there.
    pub mark: Option<u32>,
    /// True if frames pass the bridge directly.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub direct: bool,
}

impl Rules {
    /// Returns true if frames to other hosts need departure times, and with them an uplink.
    pub fn needs_uplink(&self) -> bool {
        self.outward.is_some() || self.guarantee.is_some()
    }
}

impl fmt::Display for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.guard {
            None => f.write_str("no guard")?,
            Some(guard) if guard.ips.is_empty() => {
                write!(f, "source {} with any IP address", guard.mac)?;
            }
            Some(guard) => {
                let ips: Vec<_> = guard.ips.iter().map(ToString::to_string).collect();
                write!(f, "source {} with {}", guard.mac, ips.join(", "))?;
            }
        }
        if let Some(dscp) = self.dscp {
            write!(f, "; DSCP {dscp}")?;
        }
        for (name, bucket) in [
            ("limit out", self.outward),
            ("limit in", self.inward),
            ("guarantee", self.guarantee),
        ] {
            if let Some(bucket) = bucket {
                write!(f, "; {name} {bucket}")?;
            }
        }
        if let Some(peak) = self.peak {
            write!(f, " at {peak}")?;
        }
        if let Some(packet) = self.packet.filter(|packet| *packet != LONGEST_PACKET) {
            write!(f, "; packets of at most {packet}")?;
        }
        if self.direct {
            f.write_str("; directly past the bridge")?;
        }
        Ok(())
    }
}

/// The state of a device before a step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Before {
    /// The kind of its queueing discipline.
    pub qdisc: String,
    /// True if it had a `clsact`.
    pub clsact: bool,
    /// True if it had a queue of the length 0, as a CNI plugin makes it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_unqueued: bool,
}

/// A change of a device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "action", rename_all = "kebab-case")]
pub enum Action {
    /// The programs of an uplink are attached, and it gets a queueing discipline for them.
    Uplink {
        /// The bits of the firewall mark that name a guest whose frames are routed; 0 without.
        mark: u32,
        /// The queueing discipline.
        #[serde(default, skip_serializing_if = "UplinkQueue::is_default")]
        queue: UplinkQueue,
    },
    /// The programs of a guest's device are attached, and `fq` becomes its queueing discipline if
    /// frames are limited.
    Guest {
        /// The rules.
        rules: Rules,
    },
}

impl Action {
    /// Returns the queueing discipline in which frames wait.
    pub const fn queue(&self) -> UplinkQueue {
        match self {
            Self::Uplink { queue, .. } => *queue,
            Self::Guest { .. } => UplinkQueue::Fq,
        }
    }

    /// Returns true if frames wait for their departure time in the device's discipline. Without a
    /// limit of its own a guest's device has `fq`, too, while other guests have one.
    pub fn needs_fq(&self) -> bool {
        match self {
            Self::Uplink { .. } => true,
            // Frames from limited guests of the host wait there, too. Those of a guarantee wait at the
            // uplink alone: the kernel puts no `fq` on the guest's device for one.
            Self::Guest { rules } => rules.inward.is_some() || rules.outward.is_some(),
        }
    }
}

/// A step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// The device.
    pub port: Port,
    /// Its state before the first change.
    pub before: Before,
    /// The change.
    #[serde(flatten)]
    pub action: Action,
}

impl Step {
    /// Returns true if both change the same device.
    pub fn is_about_the_same(&self, other: &Self) -> bool {
        self.port.index == other.port.index
    }

    /// Returns the undo in words.
    pub fn undo(&self) -> String {
        let Before { qdisc, clsact, .. } = &self.before;
        let mut text = "programs detached".to_owned();
        if self.action.needs_fq() {
            text = format!("{text}, {qdisc} instead of {}", self.action.queue().name());
        }
        if *clsact {
            text += ", clsact stays";
        }
        text
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.port.name)?;
        match &self.action {
            Action::Uplink { .. } => f.write_str("programs of the uplink")?,
            Action::Guest { rules } => write!(f, "programs of the guest: {rules}")?,
        }
        if self.action.needs_fq() {
            let queue = self.action.queue().name();
            write!(f, "; {queue} instead of {}", self.before.qdisc)?;
        }
        Ok(())
    }
}

/// The connection of a container to a network, as its runtime names it (CNI).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attachment {
    /// The name of the network.
    pub network: String,
    /// The container's id.
    pub container: String,
    /// The name of the interface in the container.
    pub interface: String,
}

/// The party that wants an adoption, and ends it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "by", rename_all = "kebab-case")]
pub enum Origin {
    /// A person, by `tailbound adopt` and `tailbound release`.
    #[default]
    Command,
    /// A policy file, by `tailbound adopt --watch`.
    Policy,
    /// libvirt, by its hook.
    Libvirt,
    /// A container runtime, by the CNI plugin.
    Cni(Attachment),
}

impl Origin {
    /// Returns true for an adoption by a person.
    pub fn is_command(&self) -> bool {
        *self == Self::Command
    }

    /// Returns the origin after a person changed the rules: the end of a domain or a container
    /// remains the end of its adoption.
    #[must_use]
    pub fn after_command(&self) -> Self {
        match self {
            Self::Command | Self::Policy => Self::Command,
            Self::Libvirt | Self::Cni(_) => self.clone(),
        }
    }
}

/// The adoption of one guest: what the journal has of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The guest's key, which is the entry's.
    pub key: String,
    /// The guest's name.
    pub name: String,
    /// The boot in which the steps were taken.
    pub boot: String,
    /// The network namespace in which they were taken.
    pub namespace: u64,
    /// The party that wants it.
    #[serde(default, skip_serializing_if = "Origin::is_command")]
    pub origin: Origin,
    /// The request, to repeat it after a reboot.
    pub request: Request,
    /// The uplink, and how it was found; none if no rule needs one.
    pub uplink: Option<String>,
    /// The steps, in the order in which they are taken.
    pub steps: Vec<Step>,
}

impl Entry {
    /// Returns true if another entry has this step, too.
    pub fn shares(&self, step: &Step) -> bool {
        self.steps.iter().any(|own| own.is_about_the_same(step))
    }
}
