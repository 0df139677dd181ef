//! The sections of a configuration file, each read by itself.

use super::{Config, GuestConfig, UplinkConfig};
use crate::hose::HoseConfig;
use std::net::SocketAddr;
use tailbound_agent::AgentConfig;
use tailbound_document::{Document, Mistake, unknown_word};

const KEYS: &[&str] = &["metrics", "cpu", "uplink", "guest", "vcpu", "hose"];

/// The sections of a configuration that could be read.
#[derive(Debug, Default)]
pub(super) struct Draft {
    pub(super) metrics: Option<SocketAddr>,
    pub(super) uplink: Option<UplinkConfig>,
    /// There is an uplink that could not be read.
    pub(super) unread_uplink: bool,
    pub(super) cpu: Option<u32>,
    pub(super) vcpu: Option<AgentConfig>,
    pub(super) hose: Option<HoseConfig>,
    /// Each with its index in the file's list.
    pub(super) guests: Vec<(usize, GuestConfig)>,
}

impl From<Draft> for Config {
    fn from(draft: Draft) -> Self {
        Self {
            metrics: draft.metrics,
            uplink: draft.uplink,
            cpu: draft.cpu,
            vcpu: draft.vcpu,
            hose: draft.hose,
            guests: draft.guests.into_iter().map(|(_, guest)| guest).collect(),
        }
    }
}

impl Draft {
    /// Reads each section by itself, so that a mistake in one does not hide those
    /// in the others.
    pub(super) fn read(document: &Document<'_>) -> (Self, Vec<Mistake>) {
        let mut draft = Self::default();
        let mut mistakes = Vec::new();
        for entry in document.entries() {
            match entry.key() {
                "metrics" => draft.metrics = entry.read(&mut mistakes),
                "uplink" => {
                    draft.uplink = entry.read(&mut mistakes);
                    draft.unread_uplink = draft.uplink.is_none();
                }
                "cpu" => draft.cpu = entry.read(&mut mistakes),
                "vcpu" => draft.vcpu = entry.read(&mut mistakes),
                "hose" => draft.hose = entry.read(&mut mistakes),
                "guest" => draft.guests = entry.read_list(&mut mistakes),
                unknown => mistakes.push(entry.wrong_key(unknown_word("key", unknown, KEYS))),
            }
        }
        (draft, mistakes)
    }
}
