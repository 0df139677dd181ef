//! The sections of a configuration file, each read by itself.

use super::unread::{GuestKeys, Unread, UplinkKeys};
use super::{Config, GuestConfig, LoopClass, UplinkConfig};
use crate::hose::HoseConfig;
use std::net::SocketAddr;
use std::path::PathBuf;
use tailbound_agent::AgentConfig;
use tailbound_dataplane::{Classes, Fabric, Guarantee};
use tailbound_document::{Document, Entry, Mistake, unknown_word};
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
    pub(super) uplink: Option<UplinkConfig>,
    pub(super) cpu: Option<u32>,
    pub(super) loop_class: LoopClass,
    pub(super) vcpu: Option<AgentConfig>,
    pub(super) hose: Option<HoseConfig>,
    pub(super) added: Option<PathBuf>,
    /// The guests, each with the index of its section.
    pub(super) guests: Vec<(usize, GuestConfig)>,
    /// The sections that could not be read.
    pub(super) unread: Unread,
    /// The sections of guests in all files, unreadable ones included.
    pub(super) sections: GuestSections,
}

/// The sections of guests in all files.
#[derive(Debug, Default)]
pub(super) struct GuestSections {
    pub(super) count: usize,
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
        let pipelines = uplink.iter().map(|uplink| &uplink.pipeline);
        let to_guests = self
            .guests
            .iter()
            .filter_map(|(_, guest)| guest.pipeline.as_ref());
        let mut pipelines = pipelines.chain(to_guests);
        let is_metered = pipelines.any(|pipeline| pipeline.meter.is_some());
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
                    draft.unread.classes = draft.classes.is_none();
                }
                "uplink" => {
                    draft.uplink = entry.read(&mut mistakes);
                    let is_unread = draft.uplink.is_none();
                    draft.unread.uplink = is_unread.then(|| UplinkKeys::of(&entry));
                }
                "cpu" => draft.cpu = entry.read(&mut mistakes),
                "loop_class" => draft.loop_class = entry.read(&mut mistakes).unwrap_or_default(),
                "vcpu" => draft.vcpu = entry.read(&mut mistakes),
                "hose" => draft.hose = entry.read(&mut mistakes),
                "added" => draft.added = entry.read(&mut mistakes),
                "guest" => draft.read_guests(&entry, &[], &mut mistakes),
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
    /// `except`; returns its mistakes. Sections that cannot be read are not judged further: one of a
    /// request may stand for a guest that is there.
    pub(super) fn add_guests(&mut self, document: &Document<'_>, except: &[usize]) -> Vec<Mistake> {
        let mut mistakes = Vec::new();
        let unread = self.unread.guests.len();
        for entry in document.entries() {
            if entry.key() == "guest" {
                self.read_guests(&entry, except, &mut mistakes);
                self.unread.guests.truncate(unread);
            } else {
                mistakes.push(entry.wrong_key(unknown_word("key", entry.key(), &["guest"])));
            }
        }
        mistakes
    }

    /// Adds the guests of a list, except those at the places `except`.
    fn read_guests(
        &mut self,
        entry: &Entry<'_, '_>,
        except: &[usize],
        mistakes: &mut Vec<Mistake>,
    ) {
        let first = self.sections.count;
        self.sections.count += entry.items();
        let mut read = entry.read_list(mistakes).into_iter().peekable();
        for place in 0..entry.items() {
            let guest = read.next_if(|(index, _)| *index == place);
            if except.contains(&place) {
                continue;
            }
            let index = first + place;
            match guest {
                Some((_, guest)) => self.guests.push((index, guest)),
                None => self
                    .unread
                    .guests
                    .push((index, GuestKeys::of(entry, place))),
            }
        }
    }

    /// Returns all guests in the order of their sections: as a whole, or the keys of a section that
    /// could not be read.
    pub(super) fn all_guests(&self) -> Vec<(usize, Result<&GuestConfig, &GuestKeys>)> {
        let whole = self.guests.iter();
        let whole = whole.map(|(index, guest)| (*index, Ok(guest)));
        let unread = self.unread.guests.iter();
        let unread = unread.map(|(index, keys)| (*index, Err(keys)));
        let mut all: Vec<_> = whole.chain(unread).collect();
        all.sort_by_key(|(index, _)| *index);
        all
    }

    /// Returns all guarantees, each with the index of its guest, in the order of their sections.
    pub(super) fn guarantees(&self) -> Vec<(usize, Guarantee)> {
        let all = self.all_guests().into_iter();
        let guaranteed = all.filter_map(|(index, guest)| {
            let guarantee = match guest {
                Ok(guest) => guest.guarantee,
                Err(keys) => keys.guarantee,
            };
            Some((index, guarantee?))
        });
        guaranteed.collect()
    }

    /// Returns the owner of a value, for mistakes: `web's`, and the place of the guest's section if
    /// there is more than one file. A guest whose name could not be read has a number.
    pub(super) fn owner(&self, index: usize, name: Option<&str>) -> String {
        let name = name.map_or_else(|| format!("guest {}", index + 1), str::to_owned);
        match self.sections.places.get(index) {
            Some(place) => format!("{name}'s ({place})"),
            None => format!("{name}'s"),
        }
    }
}
