//! Sections with mistakes of form: those of their keys that can be judged by themselves.

use super::PortConfig;
use tailbound_api::VmName;
use tailbound_dataplane::{Guarantee, PacerConfig};
use tailbound_document::{Entry, Step};
use tailbound_switch::Mac;

/// The sections that could not be read as a whole. A key of such a section counts only if a missing
/// or misspelt key beside it cannot make it valid.
#[derive(Debug, Default)]
pub(super) struct Unread {
    /// True if the file has a section of classes that could not be read.
    pub(super) classes: bool,
    /// Keys of the uplink; `None` if the uplink could be read, or the file has none.
    pub(super) uplink: Option<UplinkKeys>,
    /// Keys of guests, each with the index of its section.
    pub(super) guests: Vec<(usize, GuestKeys)>,
}

/// Keys of an uplink, without those that are missing or have a mistake.
#[derive(Debug)]
pub(super) struct UplinkKeys {
    pub(super) port: Option<PortConfig>,
    pub(super) pacer: Option<PacerConfig>,
}

impl UplinkKeys {
    pub(super) fn of(entry: &Entry<'_, '_>) -> Self {
        Self {
            port: entry.read_at(&[Step::Key("port")]),
            pacer: entry.read_at(&[Step::Key("pacer")]),
        }
    }
}

/// Keys of a guest, without those that are missing or have a mistake.
#[derive(Debug)]
pub(super) struct GuestKeys {
    pub(super) name: Option<String>,
    pub(super) mac: Option<Mac>,
    pub(super) vm: Option<VmName>,
    pub(super) guarantee: Option<Guarantee>,
    pub(super) port: Option<PortConfig>,
}

impl GuestKeys {
    /// Reads the keys of the guest at this index of a list.
    pub(super) fn of(entry: &Entry<'_, '_>, index: usize) -> Self {
        let at = |key| [Step::Index(index), Step::Key(key)];
        Self {
            name: entry.read_at(&at("name")),
            mac: entry.read_at(&at("mac")),
            vm: entry.read_at(&at("vm")),
            guarantee: entry.read_at(&at("guarantee")),
            port: entry.read_at(&at("port")),
        }
    }
}
