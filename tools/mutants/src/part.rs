//! The parts of the code whose tests are tried.

/// A part of a crate, and the tests that should notice a mistake in it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Part {
    /// Its name on the command line and in the record.
    pub(crate) name: &'static str,
    /// The folder of its crate below `crates`.
    pub(crate) folder: &'static str,
    /// A path below the crate's `src` without `.rs`: the module and the modules in it; the whole crate
    /// if it is empty.
    pub(crate) module: &'static str,
    /// The integration tests that try it, beside the unit tests of its crate.
    pub(crate) tests: &'static [&'static str],
    /// The folders of crates on top of it whose unit tests try it, too.
    pub(crate) users: &'static [&'static str],
    /// The greatest number of mutants.
    pub(crate) most: usize,
}

const fn part(
    name: &'static str,
    folder: &'static str,
    module: &'static str,
    tests: &'static [&'static str],
) -> Part {
    Part {
        name,
        folder,
        module,
        tests,
        users: &[],
        most: 30,
    }
}

/// All parts: the crates whose tests take the least time to build come first, as the time may be limited.
pub(crate) const PARTS: [Part; 12] = [
    part("netcalc", "netcalc", "", &["pairs"]),
    part("hypervisor", "hypervisor", "", &["allocation"]),
    part("hose", "hose", "", &[]),
    part("placement", "placement", "", &[]),
    part("queue", "dataplane", "queue", &[]),
    part("meter", "dataplane", "meter", &[]),
    part("shaper", "dataplane", "shaper", &[]),
    part("pacer", "dataplane", "pacer", &[]),
    part("snoop", "dataplane", "snoop", &[]),
    Part {
        users: &["dataplane"],
        ..part("units", "units", "", &["units"])
    },
    part("filter", "switch", "filter", &[]),
    part("ledger", "control", "ledger", &[]),
];

impl Part {
    /// Returns the part of a name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        PARTS.into_iter().find(|part| part.name == name)
    }

    /// Checks whether it has a file, as a path below the crate's `src`.
    pub(crate) fn has(&self, file: &str) -> bool {
        let Some(rest) = file.strip_prefix(self.module) else {
            return false;
        };
        self.module.is_empty() || rest == ".rs" || rest.starts_with('/')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_a_module_and_all_below_it() {
        let queue = Part::named("queue").expect("it is a part");
        assert!(queue.has("queue.rs") && queue.has("queue/codel.rs"));
        assert!(!queue.has("queues.rs") && !queue.has("pacer/queue.rs"));
        assert!(Part::named("units").is_some_and(|units| units.has("exact/bucket.rs")));
    }
}
