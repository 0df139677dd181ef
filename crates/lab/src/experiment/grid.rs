//! Variants that differ in the count of neighbours.

use super::{LabExperiment, NamedLoad, Variant};
use tailbound_experiment::Name;
use toml::Spanned;

impl LabExperiment {
    /// Replaces each variant with several counts by one variant for each count: `default` with
    /// `neighbours = [1, 2]` becomes `default-1` and `default-2`. Variants with the same count
    /// follow each other, so that compared variants run in succession.
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
    /// Returns whether the variant has that load.
    pub(crate) fn runs(&self, load: &Name) -> bool {
        let mut loads = self.loads.iter();
        loads.any(|name| name.get_ref() == load.get_ref())
    }

    /// Returns the loads that the variant has.
    pub(crate) fn running<'l, L: NamedLoad>(&self, loads: &'l [L]) -> impl Iterator<Item = &'l L> {
        loads.iter().filter(|load| self.runs(load.name()))
    }

    /// Returns the count of neighbours of a variant that came from a list of counts.
    pub(crate) fn count(&self) -> Option<usize> {
        self.neighbours.first().copied()
    }

    /// Returns the name of all variants that differ in the count of neighbours only.
    pub(crate) fn family(&self) -> &str {
        let name = self.name.get_ref();
        let suffix = self.count().map(|count| format!("-{count}"));
        suffix
            .and_then(|suffix| name.strip_suffix(&suffix))
            .unwrap_or(name)
    }
}
