//! Variants that differ in how many neighbours there are.

use super::{LabExperiment, Named, Variant};
use tailbound_experiment::Name;
use toml::Spanned;

impl LabExperiment {
    /// Puts one variant for each count in the place of those that name several:
    /// `default` with `neighbours = [1, 2]` becomes `default-1` and `default-2`.
    /// Those of one count follow each other, so that what is compared also runs
    /// one after the other.
    pub(crate) fn expand(&mut self) {
        let written = std::mem::take(&mut self.variant);
        for mut variant in written {
            let counts = std::mem::take(&mut variant.neighbours);
            if counts.is_empty() {
                self.variant.push(variant);
                continue;
            }
            for count in counts {
                let name = format!("{}-{count}", variant.name.get_ref());
                self.variant.push(Variant {
                    name: Spanned::new(variant.name.span(), name),
                    neighbours: vec![count],
                    ..variant.clone()
                });
            }
        }
        self.variant.sort_by_key(Variant::count);
    }
}

impl Variant {
    /// Whether it has that load.
    pub(crate) fn runs(&self, load: &Name) -> bool {
        let mut loads = self.loads.iter();
        loads.any(|name| name.get_ref() == load.get_ref())
    }

    /// Those of the loads that it has.
    pub(crate) fn running<'l, L: Named>(&self, loads: &'l [L]) -> impl Iterator<Item = &'l L> {
        loads.iter().filter(|load| self.runs(load.name()))
    }

    /// The count of neighbours of one that came from a list of them.
    pub(crate) fn count(&self) -> Option<usize> {
        self.neighbours.first().copied()
    }

    /// The name that it shares with those that have other counts.
    pub(crate) fn family(&self) -> &str {
        let name = self.name.get_ref();
        let suffix = self.count().map(|count| format!("-{count}"));
        suffix
            .and_then(|suffix| name.strip_suffix(&suffix))
            .unwrap_or(name)
    }
}
