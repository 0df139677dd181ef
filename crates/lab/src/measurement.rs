//! The measurements of one run of a variant, before they become its part of the result.

use crate::bounds::Promises;
use crate::core_use::CpusTaken;
use crate::guest::Sample;
use crate::noise::SampleClass;
use hdrhistogram::Histogram;
use std::collections::BTreeMap;
use tailbound_units::Nanos;

/// The value of the share of the shared core that programs other than its guests used.
pub(crate) const FOREIGN_SHARE: &str = "foreign_share";

/// Measurements of one run of a variant.
#[derive(Debug, Default)]
pub(crate) struct Measurement {
    pub(crate) series: BTreeMap<String, MeasuredSeries>,
    /// Figures by name, with their units.
    pub(crate) values: BTreeMap<String, (&'static str, f64)>,
    /// Points of lines, by their charts' names.
    pub(crate) lines: BTreeMap<String, Vec<(f64, f64)>>,
    /// Time that the hypervisor took from all CPUs together.
    pub(crate) stolen: Nanos,
    /// CPU time taken by interrupts, as measured by the vCPU agent.
    pub(crate) taken: tailbound_agent::losses::LargestLosses,
    /// Reason why the figures do not show the variant's configuration.
    pub(crate) flaw: Option<String>,
    /// The value that this computer disturbed, and the cause.
    pub(crate) spoiled: Option<(&'static str, String)>,
    /// The shares taken of all CPUs while samples counted.
    pub(crate) cpus_taken: Option<CpusTaken>,
    /// Reason why the run has no figures, if other use of the computer made it too slow.
    pub(crate) lost: Option<String>,
    /// The probe's verdict in a line.
    pub(crate) line: Option<String>,
    /// The placement service's promises, if the variant uses the service.
    pub(crate) promises: Option<Promises>,
}

impl Measurement {
    pub(crate) fn value(&mut self, name: impl Into<String>, unit: &'static str, value: f64) {
        self.values.insert(name.into(), (unit, value));
    }
}

/// The samples of a series and the class of each.
#[derive(Debug, Default)]
pub(crate) struct MeasuredSeries {
    pub(crate) samples: Vec<Sample>,
    pub(crate) classes: Vec<SampleClass>,
    pub(crate) unanswered: u64,
    /// Further samples, of which only the histogram is known.
    pub(crate) counted: Option<Histogram<u64>>,
}
