//! Outcome of tenants, compared with their guarantees.

use super::attribution::{Record, SENDER_VCPU, put_parts};
use super::promises::GuaranteeCounters;
use super::tenants::{AdmittedTenant, Centre, Tenants};
use hdrhistogram::Histogram;
use tailbound_report::{Series, Value, Variant, empty_histogram};

/// Multiples of the estimate beyond which a tenant is an outlier (Silo, table 4).
const TIMES: [u64; 3] = [1, 2, 8];
/// A tenant has timeouts if more than one in this number of its messages has (Silo, figure 13).
const TIMEOUTS: usize = 100;

/// Outcome of the tenants of a class.
#[derive(Debug, Clone)]
struct ClassOutcome {
    name: String,
    /// Number of tenants that sent.
    tenants: u64,
    /// Percentage of them with a 99th percentile above each multiple of the estimate.
    outliers: [f64; 3],
    /// Percentage of them with timeouts.
    timeouts: f64,
    /// Percentage of them whose messages take less than the estimate on average.
    faster: f64,
    /// Times of all messages.
    took: Histogram<u64>,
    /// Mean of each tenant, in thousandths of its estimate.
    of_estimate: Histogram<u64>,
    /// All messages.
    records: Vec<Record>,
    /// Number of messages that took longer than the estimate, and how many of these had timeouts.
    late: (u64, u64),
}

/// Outcome of all tenants.
#[derive(Debug, Clone)]
pub(super) struct TenantsOutcome {
    classes: Vec<ClassOutcome>,
    asked: u64,
    refused: u64,
    /// Number of VMs of all requests.
    asked_vms: u64,
    /// Data centres, and number of those whose tenants the setting's own policy placed.
    centres: u64,
    own_places: u64,
    slots: u64,
    taken: u64,
    /// Frames with a guarantee.
    pub(super) kept: GuaranteeCounters,
    /// Number of hosts that put a frame on their link later than its bound.
    pub(super) late_hosts: u64,
    /// Number of frames that were dropped before hosts' links.
    pub(super) lost_in_hosts: u64,
    /// Number of rates that a pacer refused.
    pub(super) refused_rates: u64,
}

impl ClassOutcome {
    fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            tenants: 0,
            outliers: [0.0; 3],
            timeouts: 0.0,
            faster: 0.0,
            took: empty_histogram(),
            of_estimate: empty_histogram(),
            records: Vec::new(),
            late: (0, 0),
        }
    }

    fn add(&mut self, tenant: &AdmittedTenant, messages: &mut [&Record]) {
        if messages.is_empty() {
            return;
        }
        self.tenants += 1;
        messages.sort_unstable_by_key(|it| it.took);
        let estimate = tenant.estimate.0.max(1);
        // The smallest value that 99 in 100 do not exceed.
        let p99 = messages[(messages.len() * 99).div_ceil(100) - 1].took;
        for (outliers, times) in self.outliers.iter_mut().zip(TIMES) {
            *outliers += f64::from(p99 > times * estimate);
        }
        let timed_out = messages.iter().filter(|it| it.timed_out).count();
        self.timeouts += f64::from(timed_out * TIMEOUTS > messages.len());
        let sum: f64 = messages.iter().map(|it| it.took as f64).sum();
        let of_estimate = sum / messages.len() as f64 / estimate as f64;
        self.faster += f64::from(of_estimate < 1.0);
        self.of_estimate
            .saturating_record((1_000.0 * of_estimate) as u64);
        for message in messages {
            let is_late = message.took > estimate;
            self.late.0 += u64::from(is_late);
            self.late.1 += u64::from(is_late && message.timed_out);
            self.records.push(**message);
            self.took.saturating_record(message.took.max(1));
        }
    }

    fn merge(&mut self, other: &Self) {
        self.tenants += other.tenants;
        for (outliers, other) in self.outliers.iter_mut().zip(other.outliers) {
            *outliers += other;
        }
        self.timeouts += other.timeouts;
        self.faster += other.faster;
        // All histograms have the same bounds.
        let _ = self.took.add(&other.took);
        let _ = self.of_estimate.add(&other.of_estimate);
        self.records.extend_from_slice(&other.records);
        self.late.0 += other.late.0;
        self.late.1 += other.late.1;
    }

    fn put(&self, variant: &mut Variant) {
        let name = &self.name;
        let percent = |count: f64| 100.0 * count / self.tenants.max(1) as f64;
        let mut put = |what: &str, unit: &str, figure: f64| {
            let value = Value::new(unit, figure);
            variant.values.insert(format!("{name}_{what}"), value);
        };
        put("tenants", "", self.tenants as f64);
        for (times, outliers) in TIMES.iter().zip(self.outliers) {
            put(&format!("outliers_{times}x"), "%", percent(outliers));
        }
        put("with_timeouts", "%", percent(self.timeouts));
        put("faster", "%", percent(self.faster));
        put("late_messages", "", self.late.0 as f64);
        put("late_by_timeouts", "", self.late.1 as f64);
        let mut put = |what: &str, unit: &str, histogram| {
            let series = Series::of(unit, histogram);
            variant.series.insert(format!("{name}{what}"), series);
        };
        put("", "ns", &self.took);
        put("_of_estimate", "/1000", &self.of_estimate);
        let mut records = self.records.clone();
        put_parts(variant, &format!("{name}_"), &mut records, SENDER_VCPU);
    }
}

impl TenantsOutcome {
    pub(super) fn nothing(tenants: &Tenants) -> Self {
        let classes = tenants.class.iter();
        Self {
            classes: classes
                .map(|class| ClassOutcome::new(class.name.get_ref()))
                .collect(),
            asked: 0,
            refused: 0,
            asked_vms: 0,
            centres: 0,
            own_places: 0,
            slots: 0,
            taken: 0,
            kept: GuaranteeCounters::default(),
            late_hosts: 0,
            lost_in_hosts: 0,
            refused_rates: 0,
        }
    }

    /// Returns the outcome of the placed tenants, from all messages that count.
    pub(super) fn new(tenants: &Tenants, centre: &Centre, records: &[Record]) -> Self {
        let mut outcome = Self {
            asked: centre.asked,
            refused: centre.refused,
            asked_vms: centre.asked_vms,
            centres: 1,
            own_places: centre.has_own_places.into(),
            slots: centre.slots,
            taken: centre.taken,
            ..Self::nothing(tenants)
        };
        let mut own: Vec<Vec<&Record>> = vec![Vec::new(); centre.tenants.len()];
        for record in records {
            own[record.owner as usize].push(record);
        }
        for (tenant, messages) in centre.tenants.iter().zip(&mut own) {
            outcome.classes[tenant.class].add(tenant, messages);
        }
        outcome
    }

    /// Adds the outcome of another data centre.
    pub(super) fn add(&mut self, other: &Self) {
        for (class, other) in self.classes.iter_mut().zip(&other.classes) {
            class.merge(other);
        }
        self.asked += other.asked;
        self.refused += other.refused;
        self.asked_vms += other.asked_vms;
        self.centres += other.centres;
        self.own_places += other.own_places;
        self.slots += other.slots;
        self.taken += other.taken;
        self.kept.add(&other.kept);
        self.late_hosts += other.late_hosts;
        self.lost_in_hosts += other.lost_in_hosts;
        self.refused_rates += other.refused_rates;
    }

    /// Adds the figures to those of a setting.
    pub(super) fn put(&self, variant: &mut Variant) {
        for class in &self.classes {
            class.put(variant);
        }
        let refused = 100.0 * self.refused as f64 / self.asked.max(1) as f64;
        let taken = 100.0 * self.taken as f64 / self.slots.max(1) as f64;
        let vms_asked = self.asked_vms as f64 / self.asked.max(1) as f64;
        let vms = self.taken as f64 / (self.asked - self.refused).max(1) as f64;
        let own_places = 100.0 * self.own_places as f64 / self.centres.max(1) as f64;
        let figures = [
            ("refused", refused, "%"),
            ("slots_taken", taken, "%"),
            ("mean_vms_requested", vms_asked, ""),
            ("mean_vms", vms, ""),
            ("placed_by_own_policy", own_places, "%"),
            ("guaranteed_frames", self.kept.frames as f64, ""),
            ("frames_over_bound", self.kept.over_bound as f64, ""),
            ("frames_over_delay", self.kept.over_delay as f64, ""),
            ("nearest_to_bound", 100.0 * self.kept.nearest, "%"),
            ("late_hosts", self.late_hosts as f64, ""),
            ("lost_in_hosts", self.lost_in_hosts as f64, ""),
            ("refused_rates", self.refused_rates as f64, ""),
        ];
        for (name, figure, unit) in figures {
            let value = Value::new(unit, figure);
            variant.values.insert(name.to_owned(), value);
        }
    }
}
