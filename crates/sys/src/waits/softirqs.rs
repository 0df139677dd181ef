//! The parts of the program that time soft interrupts.

use crate::bpf_program::{LoadError, link, load};
use aya::programs::tp_btf::BtfTracePointLink;
use aya::{Btf, Ebpf};

/// The begin of one and its end. The begin is attached first and detached last: an end alone would
/// count from a begin that is long ago.
pub(super) const PARTS: [(&str, &str); 2] = [
    ("on_softirq", "softirq_entry"),
    ("on_softirq_end", "softirq_exit"),
];

/// The links of the parts.
#[derive(Default)]
pub(super) struct Softirqs {
    is_loaded: bool,
    /// The links, in the order of [`PARTS`].
    links: Vec<BtfTracePointLink>,
    refusal: Option<String>,
}

impl Softirqs {
    /// Loads the parts and attaches them.
    pub(super) fn load(programs: &mut Ebpf, types: &Btf) -> Self {
        let mut parts = PARTS.iter();
        let loaded =
            parts.try_for_each(|(name, tracepoint)| load(programs, name, tracepoint, types));
        let mut softirqs = Self {
            is_loaded: loaded.is_ok(),
            links: Vec::new(),
            refusal: loaded.err().map(|error| error.to_string()),
        };
        softirqs.attach(programs);
        softirqs
    }

    /// The reason why they are not timed; `None` also if that was not asked for.
    pub(super) fn refusal(&self) -> Option<&str> {
        self.refusal.as_deref()
    }

    pub(super) fn attach(&mut self, programs: &mut Ebpf) {
        if !self.is_loaded || !self.links.is_empty() {
            return;
        }
        let links = PARTS.iter().map(|(name, _)| link(programs, name));
        match links.collect::<Result<Vec<_>, LoadError>>() {
            Ok(links) => self.links = links,
            Err(error) => self.refusal = Some(error.to_string()),
        }
    }

    pub(super) fn detach(&mut self) {
        while self.links.pop().is_some() {}
    }
}
