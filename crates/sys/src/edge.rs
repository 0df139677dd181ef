//! Mechanisms of the data path as BPF programs on the interfaces that a host has.
//!
//! This is a skeleton: types and signatures are there, and every call returns an error.

mod rules;

pub use rules::{
    Attachment, Bucket, Counters, DropReason, Guarantee, Guard, GuestRules, HORIZON, Lateness,
    MAX_HORIZON, Prefix, Queue, Role, Roles, Tag, UplinkRules, Way,
};

use crate::bpf_program::LoadError;
use std::io;
use std::path::{Path, PathBuf};

/// The directory of pins by default.
pub const PIN: &str = "/sys/fs/bpf/tailbound";

/// Reason why the kernel's data path cannot be used or changed. Nothing has changed then.
#[derive(Debug, thiserror::Error)]
pub enum EdgeError {
    /// The programs cannot be loaded.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// Programs of another version are pinned.
    #[error(
        "{path} holds programs of another version of tailbound (layout {found}, this one has \
         {own}); release all guests with that version first"
    )]
    Layout {
        /// The directory.
        path: PathBuf,
        /// The layout that is pinned.
        found: u64,
        /// The layout of this version.
        own: u64,
    },
    /// Another qdisc stands in the way.
    #[error(
        "interface {ifindex} has the qdisc {kind} that its administrator set; remove it, or leave \
         the interface to it"
    )]
    Qdisc {
        /// The interface.
        ifindex: u32,
        /// The kind of that qdisc.
        kind: String,
    },
    /// The interface is not attached, or it is an uplink where a guest's is meant.
    #[error("interface {0} is no guest's interface with programs of tailbound")]
    NoGuest(u32),
    /// A rule is out of range.
    #[error("{0}")]
    Rule(String),
    /// The interface is missing, or a call failed.
    #[error("{doing}: {error}")]
    Io {
        /// The step.
        doing: String,
        /// The error.
        error: io::Error,
    },
}

/// The programs and maps of a host, pinned below a directory of a bpffs.
#[derive(Debug)]
pub struct Edge {
    pin: PathBuf,
}

impl Edge {
    /// Loads programs and maps and pins them below `pin`, or takes up what is pinned there.
    ///
    /// Programs, links and maps outlive this value and the process. Interfaces are those of the
    /// network namespace of the calling thread.
    ///
    /// # Errors
    /// [`EdgeError::Load`], [`EdgeError::Layout`], or `pin` is in no bpffs.
    pub fn open(pin: &Path) -> Result<Self, EdgeError> {
        Ok(Self { pin: pin.into() })
    }

    /// Puts programs on the host's end of a guest's interface (TAP, veth, netkit in l2 mode), and
    /// a queue if a limit needs one. An interface that is attached already gets the new rules.
    ///
    /// # Errors
    /// Another qdisc stands in the way, a rule is out of range, or the kernel refuses; then nothing
    /// has changed.
    pub fn attach_guest(
        &mut self,
        ifindex: u32,
        rules: &GuestRules,
    ) -> Result<Attachment, EdgeError> {
        let _ = (&self.pin, rules);
        Err(EdgeError::NoGuest(ifindex))
    }

    /// Puts a program and a queue on an interface to the outside: a NIC, a bond's or bridge's port,
    /// or a VLAN.
    ///
    /// # Errors
    /// As of [`Self::attach_guest`].
    pub fn attach_uplink(
        &mut self,
        ifindex: u32,
        rules: &UplinkRules,
    ) -> Result<Attachment, EdgeError> {
        let _ = rules;
        Err(EdgeError::NoGuest(ifindex))
    }

    /// Replaces the rules of a guest. Tokens of its buckets stay, so that no change grants a burst
    /// twice.
    ///
    /// # Errors
    /// As of [`Self::attach_guest`]; [`EdgeError::NoGuest`].
    pub fn set(&mut self, ifindex: u32, rules: &GuestRules) -> Result<(), EdgeError> {
        let _ = rules;
        Err(EdgeError::NoGuest(ifindex))
    }

    /// Returns all interfaces with programs, those that have gone away included.
    ///
    /// # Errors
    /// A map cannot be read.
    pub fn attachments(&self) -> Result<Vec<Attachment>, EdgeError> {
        Err(EdgeError::NoGuest(0))
    }

    /// Reads the counters of a guest's interface.
    ///
    /// # Errors
    /// [`EdgeError::NoGuest`].
    pub fn counters(&self, ifindex: u32) -> Result<Counters, EdgeError> {
        Err(EdgeError::NoGuest(ifindex))
    }

    /// Reads how late the host is; `None` if this kernel cannot measure it.
    ///
    /// # Errors
    /// A map cannot be read.
    pub fn lateness(&self) -> Result<Option<Lateness>, EdgeError> {
        Ok(None)
    }

    /// Takes programs and queue off an interface, and forgets its rules. An interface that is not
    /// attached, or has gone away, is no error.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn detach(&mut self, ifindex: u32) -> Result<(), EdgeError> {
        Err(EdgeError::NoGuest(ifindex))
    }

    /// Detaches all interfaces and removes all pins; afterwards nothing is left in the kernel.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn remove(self) -> Result<(), EdgeError> {
        Err(EdgeError::NoGuest(0))
    }
}
