//! Parts of the program that are attached and detached together.

use crate::bpf_program::{LoadError, link, load};
use aya::programs::tp_btf::BtfTracePointLink;
use aya::{Btf, Ebpf};

/// A part of the program, and its tracepoint.
pub(super) type Part = (&'static str, &'static str);

/// Parts that measure waits.
pub(super) const WAITS: &[Part] = &[
    ("on_switch", "sched_switch"),
    ("on_waking", "sched_waking"),
    ("on_wakeup_new", "sched_wakeup_new"),
];

/// Parts that time soft interrupts: the begin of one and its end. The begin is attached first and detached
/// last: an end alone would count from a begin that is long ago.
pub(super) const SOFTIRQS: &[Part] = &[
    ("on_softirq", "softirq_entry"),
    ("on_softirq_end", "softirq_exit"),
];

/// Some parts and their links.
pub(super) struct Parts {
    loaded: &'static [Part],
    /// The links, in the order of the parts.
    links: Vec<BtfTracePointLink>,
    refusal: Option<String>,
}

impl Parts {
    /// Parts that are never attached, for a reason, or because they are not wanted.
    pub(super) const fn none(refusal: Option<String>) -> Self {
        Self {
            loaded: &[],
            links: Vec::new(),
            refusal,
        }
    }

    /// Loads the parts and attaches them.
    ///
    /// # Errors
    /// The kernel refuses one of them.
    pub(super) fn load(
        parts: &'static [Part],
        programs: &mut Ebpf,
        types: &Btf,
    ) -> Result<Self, LoadError> {
        for (name, tracepoint) in parts {
            load(programs, name, tracepoint, types)?;
        }
        Ok(Self {
            loaded: parts,
            links: links(parts, programs)?,
            refusal: None,
        })
    }

    /// The parts that are loaded.
    pub(super) const fn loaded(&self) -> &'static [Part] {
        self.loaded
    }

    /// The reason why they are not attached; `None` also if that is not wanted.
    pub(super) fn refusal(&self) -> Option<&str> {
        self.refusal.as_deref()
    }

    /// Returns true while they are attached.
    pub(super) const fn are_attached(&self) -> bool {
        !self.links.is_empty()
    }

    /// Attaches them unless they are.
    pub(super) fn attach(&mut self, programs: &mut Ebpf) {
        if self.are_attached() {
            return;
        }
        match links(self.loaded, programs) {
            Ok(links) => self.links = links,
            Err(error) => self.refusal = Some(error.to_string()),
        }
    }

    pub(super) fn detach(&mut self) {
        while self.links.pop().is_some() {}
    }
}

fn links(parts: &[Part], programs: &mut Ebpf) -> Result<Vec<BtfTracePointLink>, LoadError> {
    parts.iter().map(|(name, _)| link(programs, name)).collect()
}
