//! From an experiment to its figures.

use super::net::{Net, Station};
use super::spec::{HostSpec, NetworkPoint, Networks, Work, variant_name};
use super::xen_host::{Job, Steps, XenHost};
use super::{messages, pings, transfers, web};
use crate::{Threads, parallel};
use std::collections::BTreeMap;
use tailbound_experiment::{ExperimentError, Found, Mistakes, Run};
use tailbound_hypervisor::{
    Domain, Guests, Host, Load, Machine, PcpuId, PcpuSet, SimulationConfig, VcpuId,
};
use tailbound_report::{Chart, ChartAxis, Line, LineStyle, Series, Value, Variant};
use tailbound_units::Nanos;

/// How long what is done may take, in virtual time.
pub(super) const LIMIT: Nanos = Nanos::from_secs(1_000_000);
/// A guest that talks, behind the driver domain.
pub(super) const TALKER: VcpuId = VcpuId(1);

/// What was measured at a point.
#[derive(Debug, Default)]
pub(super) struct Figures {
    pub(super) values: BTreeMap<String, Value>,
    pub(super) series: BTreeMap<String, Series>,
    /// How far a sender was at which time, in bytes and nanoseconds.
    pub(super) sequence: Vec<(f64, f64)>,
}

/// What hosts are made of, and what else a run follows from.
pub(super) struct Bench<'b> {
    pub(super) networks: &'b Networks,
    host: &'b HostSpec,
    point: &'b NetworkPoint,
    pub(super) seed: u64,
}

impl Networks {
    /// The variants with the names of all that will be measured.
    pub(crate) fn outline(&self) -> Vec<Variant> {
        let runs = self.runs();
        let variant = |(host, point): (&HostSpec, &NetworkPoint)| {
            let figures = match &point.work {
                Work::Transfers(_) => transfers::outline(),
                Work::Pings(_) => pings::outline(),
                Work::Web(_) => web::outline(),
                Work::Messages(_) => messages::outline(),
            };
            let mut variant = variant(host, point, figures);
            if host.against.is_some() && point.work.merit().is_some() {
                let times = Value::new("", f64::NAN);
                variant.values.insert("times".to_owned(), times);
            }
            variant
        };
        runs.map(variant).collect()
    }

    /// Finds what schedulers and workloads refuse: they say so when they are made.
    pub(crate) fn try_hosts(&self, mistakes: &mut Mistakes) {
        if !mistakes.is_empty() {
            return;
        }
        for host in &self.host {
            let mut points = self.point.iter();
            let refused = points.find_map(|point| self.bench(host, point, 0).host(0).err());
            if let Some(refused) = refused {
                mistakes.at(&host.name, refused);
            }
        }
    }

    const fn bench<'b>(
        &'b self,
        host: &'b HostSpec,
        point: &'b NetworkPoint,
        seed: u64,
    ) -> Bench<'b> {
        Bench {
            networks: self,
            host,
            point,
            seed,
        }
    }

    /// Runs all of it.
    pub(crate) fn run(&self, run: &mut Run<'_, Threads>) -> Result<Found, ExperimentError> {
        let seed = run.seed;
        let runs: Vec<_> = self.runs().collect();
        let name = |&(host, point): &(&HostSpec, &NetworkPoint)| variant_name(host, point);
        let figures = parallel::map(run, &runs, name, |&(host, point)| {
            self.bench(host, point, seed).measure()
        })?;
        let mut lines = Vec::new();
        let mut variants = Vec::new();
        for ((host, point), mut figures) in runs.into_iter().zip(figures) {
            let sequence = std::mem::take(&mut figures.sequence);
            let variant = variant(host, point, figures);
            if !sequence.is_empty() {
                lines.push(Line::new(&variant.name, LineStyle::Measured, sequence));
            }
            variants.push(variant);
        }
        self.compare(&mut variants);
        let mut found = Found::of(variants);
        if !lines.is_empty() {
            found.charts.push(Chart {
                name: "sequence".to_owned(),
                title: "How far the sender is: the transfer of median length".to_owned(),
                x: ChartAxis::linear("since the connection was opened", "ns"),
                y: ChartAxis::linear("sent", "B"),
                lines,
                note: None,
            });
        }
        let conditions = &self.network;
        found.condition("period_ns", conditions.period.as_nanos());
        found.condition("hears_ns", conditions.hears.as_nanos());
        found.condition("pause_ns", conditions.pause.as_nanos());
        found.condition(
            "context_switch_ns",
            conditions.costs.context_switch.as_nanos(),
        );
        Ok(found)
    }

    /// Adds to each variant how many times more it gets done than that of the host it is held
    /// against.
    fn compare(&self, variants: &mut [Variant]) {
        let done = |variant: &Variant, point: &NetworkPoint| {
            let merit = variant.values.get(point.work.merit()?)?;
            Some((variant.name.clone(), merit.value))
        };
        let runs = self.runs().zip(variants.iter());
        let done: BTreeMap<String, f64> = runs
            .filter_map(|((_, point), variant)| done(variant, point))
            .collect();
        for ((host, point), variant) in self.runs().zip(variants) {
            let Some(against) = &host.against else {
                continue;
            };
            let base = format!("{}/{}", against.get_ref(), point.name.get_ref());
            if let (Some(own), Some(base)) = (done.get(&variant.name), done.get(&base)) {
                let times = Value::new("", own / base);
                variant.values.insert("times".to_owned(), times);
            }
        }
    }
}

impl Bench<'_> {
    fn measure(&self) -> Result<Figures, String> {
        match &self.point.work {
            Work::Transfers(spec) => transfers::measure(self, spec),
            Work::Pings(spec) => pings::measure(self, spec),
            Work::Web(spec) => web::measure(self, spec),
            Work::Messages(pattern) => messages::measure(self, *pattern),
        }
    }

    /// So many hosts of the kind, and who talks.
    pub(super) fn net(&self, hosts: u64, stations: Vec<Station>) -> Result<Net, String> {
        let hosts: Result<Vec<XenHost>, String> = (0..hosts).map(|at| self.host(at)).collect();
        Ok(Net::new(self.point.tcp.tcp(), hosts?, stations))
    }

    /// The host of this number; each is busy at other times.
    fn host(&self, number: u64) -> Result<XenHost, String> {
        let (host, point) = (self.host, self.point);
        let conditions = &self.networks.network;
        let mut machine = Host::new(1 + u32::from(point.own_core)).map_err(|it| it.to_string())?;
        let mut kinds = vec!["driver", "guest"];
        kinds.resize(1 + point.machines as usize, "neighbour");
        for index in 0..kinds.len() {
            let domain = machine.add_domain(Domain::default());
            let pcpu = PcpuId(u32::from(point.own_core && index > 0));
            let core: PcpuSet = [pcpu].into_iter().collect();
            let domain = domain.map_err(|it| it.to_string())?;
            machine
                .add_pinned_vcpu(domain, core)
                .map_err(|it| it.to_string())?;
        }
        let scheduler = host.scheduler().build(&machine, &kinds)?;
        let config = SimulationConfig {
            seed: self.seed ^ (number * 0x5eed),
            timer_slop: conditions.timer_slop,
        };
        let machine = Machine::new(&machine, scheduler, conditions.costs);
        let mut guests: Guests<_, Job> = Guests::new(machine, config);
        for guest in (1..=point.machines).map(VcpuId) {
            let load = match point.own_load {
                Some(own) if guest == TALKER => own,
                _ => point.load,
            };
            let work = Nanos(conditions.period.0 * u64::from(load) / 100);
            if load > 0 {
                let load = Load::Bursts {
                    work,
                    sleep: conditions.period - work,
                    jitter: conditions.jitter,
                };
                guests.start_load(guest, load);
            }
        }
        let steps = Steps {
            hears: host.hears.unwrap_or(conditions.hears),
            ..Steps::PAPER
        };
        Ok(XenHost::new(guests, host.netif, host.snoop, steps))
    }
}

fn variant(host: &HostSpec, point: &NetworkPoint, figures: Figures) -> Variant {
    Variant {
        name: variant_name(host, point),
        values: figures.values,
        series: figures.series,
        ..Variant::default()
    }
}

impl Figures {
    /// Single figures: name, figure and unit of each.
    pub(super) fn of<const N: usize>(values: [(&str, f64, &str); N]) -> Self {
        Self {
            values: Variant::of_values("", values).values,
            ..Self::default()
        }
    }
}

/// What was counted on the hosts.
#[derive(Default)]
pub(super) struct Counts {
    pub(super) dropped: u64,
    pub(super) early: u64,
    pub(super) withheld: u64,
    pub(super) resets: u64,
}

impl Counts {
    pub(super) fn of(net: &Net) -> Self {
        let mut counts = Self {
            resets: net.resets(),
            ..Self::default()
        };
        for host in net.hosts() {
            counts.dropped += host.dropped();
            for stats in host.snooped() {
                counts.early += stats.early;
                counts.withheld += stats.withheld;
            }
        }
        counts
    }
}
