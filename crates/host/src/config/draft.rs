//! The sections of a configuration file, each read by itself.

use super::{Config, GuestConfig, LoopClass, UplinkConfig};
use crate::hose::HoseConfig;
use std::net::SocketAddr;
use std::path::PathBuf;
use tailbound_agent::AgentConfig;
use tailbound_dataplane::{Classes, Fabric};
use tailbound_document::{Document, Mistake, unknown_word};
use tailbound_otlp::Endpoint;

const KEYS: &[&str] = &[
    "metrics",
    "otlp",
    "cpu",
    "loop_class",
    "classes",
    "uplink",
    "guest",
    "vcpu",
    "hose",
    "added",
];

/// The sections of a configuration that could be read.
#[derive(Debug, Default)]
pub(super) struct Draft {
    pub(super) metrics: Option<SocketAddr>,
    pub(super) otlp: Option<Endpoint>,
    pub(super) classes: Option<Classes>,
    /// True if the file has a section of classes that could not be read.
    pub(super) unread_classes: bool,
    pub(super) uplink: Option<UplinkConfig>,
    /// True if the file has an uplink that could not be read.
    pub(super) unread_uplink: bool,
    pub(super) cpu: Option<u32>,
    pub(super) loop_class: LoopClass,
    pub(super) vcpu: Option<AgentConfig>,
    pub(super) hose: Option<HoseConfig>,
    pub(super) added: Option<PathBuf>,
    /// The guests, each with the index of its section.
    pub(super) guests: Vec<(usize, GuestConfig)>,
    /// The number of guest sections, unreadable ones included.
    pub(super) sections: usize,
    /// The place of each section, with its file; empty if there is only one file.
    pub(super) places: Vec<String>,
}

impl From<Draft> for Config {
    fn from(draft: Draft) -> Self {
        Self {
            metrics: draft.metrics,
            classes: draft.classes(),
            otlp: draft.otlp,
            uplink: draft.uplink,
            cpu: draft.cpu,
            loop_class: draft.loop_class,
            vcpu: draft.vcpu,
            hose: draft.hose,
            added: draft.added,
            guests: draft.guests.into_iter().map(|(_, guest)| guest).collect(),
        }
    }
}

impl Draft {
    /// Returns the classes of the fabric. If the file does not define them, a pacer implies
    /// guarantees, and a meter implies small flows. With neither, frames get no class.
    pub(super) fn classes(&self) -> Option<Classes> {
        let uplink = self.uplink.as_ref();
        let is_paced = uplink.is_some_and(|uplink| uplink.pacer.is_some());
        let ways = uplink.iter().map(|uplink| &uplink.pipeline);
        let to_guests = self
            .guests
            .iter()
            .filter_map(|(_, guest)| guest.pipeline.as_ref());
        let mut ways = ways.chain(to_guests);
        let is_metered = ways.any(|way| way.meter.is_some());
        let fabric = match (is_paced, is_metered) {
            (true, _) => Some(Fabric::GuaranteesFirst),
            (false, true) => Some(Fabric::SmallFlowsFirst),
            (false, false) => None,
        };
        self.classes.or(fabric.map(Classes::of))
    }

    /// Reads each section by itself, so that a mistake in one does not hide those
    /// in the others.
    pub(super) fn read(document: &Document<'_>) -> (Self, Vec<Mistake>) {
        let mut draft = Self::default();
        let mut mistakes = Vec::new();
        for entry in document.entries() {
            match entry.key() {
                "metrics" => draft.metrics = entry.read(&mut mistakes),
                "otlp" => draft.otlp = entry.read(&mut mistakes),
                "classes" => {
                    draft.classes = entry.read(&mut mistakes);
                    draft.unread_classes = draft.classes.is_none();
                }
                "uplink" => {
                    draft.uplink = entry.read(&mut mistakes);
                    draft.unread_uplink = draft.uplink.is_none();
                }
                "cpu" => draft.cpu = entry.read(&mut mistakes),
                "loop_class" => draft.loop_class = entry.read(&mut mistakes).unwrap_or_default(),
                "vcpu" => draft.vcpu = entry.read(&mut mistakes),
                "hose" => draft.hose = entry.read(&mut mistakes),
                "added" => draft.added = entry.read(&mut mistakes),
                "guest" => {
                    draft.guests = entry.read_list(&mut mistakes);
                    draft.sections = entry.items();
                }
                "host" => mistakes.push(entry.wrong_key(format!(
                    "there is no section `host`: the whole file is the host's, and what is known at \
                     its top is {}",
                    KEYS.join(", ")
                ))),
                unknown => mistakes.push(entry.wrong_key(unknown_word("key", unknown, KEYS))),
            }
        }
        (draft, mistakes)
    }

    /// Adds the guests of a text that has nothing else, but those whose places are in
    /// `except`; returns its mistakes.
    pub(super) fn add_guests(&mut self, document: &Document<'_>, except: &[usize]) -> Vec<Mistake> {
        let mut mistakes = Vec::new();
        let first = self.sections;
        for entry in document.entries() {
            if entry.key() != "guest" {
                mistakes.push(entry.wrong_key(unknown_word("key", entry.key(), &["guest"])));
                continue;
            }
            let guests = entry.read_list(&mut mistakes).into_iter();
            let guests = guests.filter(|(place, _)| !except.contains(place));
            self.guests
                .extend(guests.map(|(place, guest)| (first + place, guest)));
            self.sections += entry.items();
        }
        mistakes
    }

    /// Returns the owner of a value, for mistakes: `web's`, and the place of the guest's section if
    /// there is more than one file.
    pub(super) fn owner(&self, index: usize, guest: &GuestConfig) -> String {
        match self.places.get(index) {
            Some(place) => format!("{}'s ({place})", guest.name),
            None => format!("{}'s", guest.name),
        }
    }
}
