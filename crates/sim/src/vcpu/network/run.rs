//! From an experiment to its figures.

use super::net::{Net, Station};
use super::spec::{HostSpec, NetworkPoint, Networks, Sender, variant_name};
use super::transfers::{self, Plan, Transfer};
use super::xen_host::{Job, Steps, XenHost};
use crate::{Threads, parallel};
use std::collections::BTreeMap;
use tailbound_experiment::{ExperimentError, Found, Mistakes, Run};
use tailbound_hypervisor::{
    Domain, Guests, Host, Load, Machine, PcpuId, PcpuSet, SimulationConfig, VcpuId,
};
use tailbound_report::{Series, Value, Variant, empty_histogram};
use tailbound_units::Nanos;

/// How long transfers may take, in virtual time.
const LIMIT: Nanos = Nanos::from_secs(1_000_000);
/// A guest that talks, behind the driver domain.
const TALKER: VcpuId = VcpuId(1);

impl Networks {
    /// The variants with the names of all that will be measured.
    pub(crate) fn outline(&self) -> Vec<Variant> {
        let runs = self.runs();
        runs.map(|(host, point)| variant(host, point, &[], &Counts::default()))
            .collect()
    }

    /// Finds what schedulers and workloads refuse: they say so when they are made.
    pub(crate) fn try_hosts(&self, mistakes: &mut Mistakes) {
        if !mistakes.is_empty() {
            return;
        }
        for host in &self.host {
            let mut points = self.point.iter();
            let refused = points.find_map(|point| self.xen_host(host, point, 0).err());
            if let Some(refused) = refused {
                mistakes.at(&host.name, refused);
            }
        }
    }

    /// Runs all of it.
    pub(crate) fn run(&self, run: &mut Run<'_, Threads>) -> Result<Found, ExperimentError> {
        let seed = run.seed;
        let runs: Vec<_> = self.runs().collect();
        let name = |&(host, point): &(&HostSpec, &NetworkPoint)| variant_name(host, point);
        let mut variants = parallel::map(run, &runs, name, |&(host, point)| {
            self.measure(host, point, seed)
        })?;
        self.compare(&mut variants);
        let mut found = Found::of(variants);
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

    fn measure(&self, host: &HostSpec, point: &NetworkPoint, seed: u64) -> Result<Variant, String> {
        let mut hosts = vec![self.xen_host(host, point, seed)?];
        let sender = match point.sender {
            Sender::Bare => Station::Bare,
            Sender::Virtual => {
                hosts.push(self.xen_host(host, point, seed ^ 0x5eed)?);
                Station::Guest(1, TALKER)
            }
        };
        let stations = vec![sender, Station::Guest(0, TALKER)];
        let mut net = Net::new(point.tcp.tcp(), hosts, stations);
        let plan = Plan {
            size: point.size,
            count: point.count,
            parallel: point.connections,
            pause: self.network.pause,
            seed,
        };
        let transfers = transfers::run(&mut net, plan, LIMIT)
            .ok_or_else(|| "its transfers come to no end".to_owned())?;
        Ok(variant(host, point, &transfers, &Counts::of(&net)))
    }

    fn xen_host(
        &self,
        host: &HostSpec,
        point: &NetworkPoint,
        seed: u64,
    ) -> Result<XenHost, String> {
        let conditions = &self.network;
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
            seed,
            timer_slop: conditions.timer_slop,
        };
        let machine = Machine::new(&machine, scheduler, conditions.costs);
        let mut guests: Guests<_, Job> = Guests::new(machine, config);
        let work = Nanos(conditions.period.0 * u64::from(point.load) / 100);
        for guest in (1..=point.machines).map(VcpuId) {
            if point.load > 0 {
                let load = Load::Bursts {
                    work,
                    sleep: conditions.period - work,
                    jitter: conditions.jitter,
                };
                guests.start_load(guest, load);
            }
        }
        let steps = Steps {
            hears: conditions.hears,
            ..Steps::PAPER
        };
        Ok(XenHost::new(guests, host.netif, host.snoop, steps))
    }

    /// Adds to each variant how many times faster it is than that of the host it is held
    /// against.
    fn compare(&self, variants: &mut [Variant]) {
        let medians: BTreeMap<String, f64> = variants
            .iter()
            .map(|variant| (variant.name.clone(), variant.values["median"].value))
            .collect();
        for ((host, point), variant) in self.runs().zip(variants) {
            let Some(against) = &host.against else {
                continue;
            };
            let base = format!("{}/{}", against.get_ref(), point.name.get_ref());
            let times = medians[&variant.name] / medians[&base];
            variant
                .values
                .insert("times".to_owned(), Value::new("", times));
        }
    }
}

const MEGA: f64 = 1e6;

/// What was counted on the hosts.
#[derive(Default)]
struct Counts {
    dropped: u64,
    early: u64,
    withheld: u64,
    resets: u64,
}

impl Counts {
    fn of(net: &Net) -> Self {
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

fn variant(
    host: &HostSpec,
    point: &NetworkPoint,
    transfers: &[Transfer],
    counts: &Counts,
) -> Variant {
    let mut speeds: Vec<u64> = transfers
        .iter()
        .map(|it| it.throughput(point.size))
        .collect();
    speeds.sort_unstable();
    let at = |place: f64| {
        let place = place.clamp(0.0, speeds.len().saturating_sub(1) as f64) as usize;
        speeds
            .get(place)
            .map_or(f64::NAN, |&speed| speed as f64 / MEGA)
    };
    let count = speeds.len() as f64;
    // The 95 % interval of a median, by ranks.
    let off = 1.96 * count.sqrt() / 2.0;
    let above = speeds.iter().filter(|&&speed| speed > 125_000_000).count() as f64;
    let sum = |of: fn(&Transfer) -> u64| transfers.iter().map(of).sum::<u64>() as f64;
    let mut variant = Variant::of_values(
        &variant_name(host, point),
        [
            ("median", at(count / 2.0), "MB/s"),
            ("median_low", at(count / 2.0 - off), "MB/s"),
            ("median_high", at(count / 2.0 + off), "MB/s"),
            ("above_link_rate", 100.0 * above / count, "%"),
            ("resent", sum(|it| it.resent.0) / count, ""),
            ("timeouts", sum(|it| it.resent.1) / count, ""),
            ("dropped", counts.dropped as f64 / count, ""),
            ("early", counts.early as f64 / count, ""),
            ("withheld", counts.withheld as f64 / count, ""),
            ("resets", counts.resets as f64, ""),
        ],
    );
    if host.against.is_some() {
        variant
            .values
            .insert("times".to_owned(), Value::new("", f64::NAN));
    }
    let (mut speed, mut time) = (empty_histogram(), empty_histogram());
    for transfer in transfers {
        // Both grow to the whole of 64 bits.
        let _ = speed.record(transfer.throughput(point.size).max(1));
        let took = transfer.sent.1 - transfer.sent.0;
        let _ = time.record(took.as_nanos().max(1));
    }
    variant.series = BTreeMap::from([
        ("throughput".to_owned(), Series::of("B/s", &speed)),
        ("sender_time".to_owned(), Series::of("ns", &time)),
    ]);
    variant
}
