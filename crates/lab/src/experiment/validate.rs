//! What the types of an experiment cannot say.

mod paced;

use super::{Chart, Check, CheckKind, Experiment, Name, Probe, Variant, VcpuMode};
use std::collections::{BTreeMap, BTreeSet};
use tailbound_units::{Bytes, Nanos, Rate};

mod traffic;

/// Something wrong, and where in the text.
pub(super) struct Problem {
    pub(super) offset: usize,
    pub(super) message: String,
}

fn problem(at: &Name, message: impl Into<String>) -> Problem {
    Problem {
        offset: at.span().start,
        message: message.into(),
    }
}

/// The keys of the statistics a check can name.
const STATISTICS: [&str; 6] = ["mean", "p50", "p90", "p99", "p99_9", "max"];

const MAX_GUESTS: usize = 64;
const MAX_DURATION: Nanos = Nanos::from_secs(3600);
const MAX_ANSWER: Bytes = Bytes(1_000_000_000);
const HOG_BLOCKS: std::ops::RangeInclusive<Bytes> = Bytes(4 << 10)..=Bytes(1 << 30);
const MAX_UNINTERRUPTED: Nanos = Nanos::from_millis(200);
const MIN_GAP: Nanos = Nanos::from_micros(50);
const LINK_RATES: [Rate; 2] = [Rate(1_000_000), Rate(10_000_000_000)];

/// What a load measures.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Output<'a> {
    Series(&'a str),
    Value(&'a str),
    /// A series and values of fixed names.
    SeriesAnd(&'a str, &'static [&'static str]),
    /// A series and [`Probe::VALUES`].
    Probe(&'a str),
    /// A series and a value.
    Both(&'a str, &'a str),
    /// A value, and that of the CPU time used.
    Hog(&'a str, Option<&'a str>),
}

impl Output<'_> {
    /// Whether a figure of that is among what the load measures.
    fn has(self, wanted: Self) -> bool {
        match (self, wanted) {
            (
                Self::Probe(own) | Self::Both(own, _) | Self::SeriesAnd(own, _),
                Self::Series(series),
            ) => own == series,
            (Self::SeriesAnd(_, values), Self::Value(value)) => values.contains(&value),
            (Self::Probe(_), Self::Value(value)) => Probe::VALUES.contains(&value),
            (Self::Both(_, own), Self::Value(value)) => own == value,
            (Self::Hog(own, cpu), Self::Value(value)) => own == value || cpu == Some(value),
            _ => self == wanted,
        }
    }
}

impl Experiment {
    pub(super) fn validate(&self) -> Result<(), Problem> {
        self.check_scalars()?;
        self.check_guests()?;
        self.check_tenants()?;
        let loads = self.check_loads()?;
        for (name, pipeline) in &self.pipeline {
            let at = pipeline.config.span().start;
            check_pipeline(name, pipeline, self.link_rate).map_err(|message| Problem {
                offset: at,
                message,
            })?;
        }
        let mut seen = BTreeSet::new();
        for variant in &self.variant {
            plain(&variant.name, 40)?;
            unique(&mut seen, &variant.name, "variant")?;
            self.check_variant(variant, &loads)?;
        }
        if self.variant.is_empty() {
            return Err(problem(&self.name, "has no [[variant]]: name at least one"));
        }
        let mut seen = BTreeSet::new();
        for check in &self.check {
            plain(&check.name, 60)?;
            unique(&mut seen, &check.name, "check")?;
            self.check_check(check, &loads)?;
        }
        let mut seen = BTreeSet::new();
        for chart in &self.chart {
            plain(&chart.name, 60)?;
            unique(&mut seen, &chart.name, "chart")?;
            self.check_chart(chart, &loads)?;
        }
        Ok(())
    }

    fn check_scalars(&self) -> Result<(), Problem> {
        plain(&self.name, 40)?;
        let at = |message: String| Err(problem(&self.name, message));
        if self.duration < Nanos::from_millis(100) || self.duration > MAX_DURATION {
            return at(format!(
                "duration {}: choose 100ms to {MAX_DURATION}",
                self.duration
            ));
        }
        if self.warmup > MAX_DURATION {
            return at(format!("warmup {}: at most {MAX_DURATION}", self.warmup));
        }
        if self.link_rate < LINK_RATES[0] || self.link_rate > LINK_RATES[1] {
            let [low, high] = LINK_RATES;
            return at(format!(
                "link_rate {}: choose {low} to {high}",
                self.link_rate
            ));
        }
        if self.switch_buffer < Bytes(3_000) || self.switch_buffer > Bytes(1 << 30) {
            return at(format!(
                "switch_buffer {}: choose 3KB to 1GiB",
                self.switch_buffer
            ));
        }
        Ok(())
    }

    fn check_guests(&self) -> Result<(), Problem> {
        let mut seen = BTreeSet::new();
        for (host, guests) in &self.hosts {
            if !is_plain(host, 8) {
                let at = guests.first().unwrap_or(&self.name);
                let rule = "use at most 8 letters and digits";
                return Err(problem(at, format!("host name {host:?}: {rule}")));
            }
            for guest in guests {
                plain(guest, 8)?;
                unique(&mut seen, guest, "guest")?;
                if self.hosts.contains_key(guest.get_ref()) {
                    let message = format!("{:?} is a host already", guest.get_ref());
                    return Err(problem(guest, message));
                }
            }
        }
        if seen.is_empty() || seen.len() > MAX_GUESTS {
            let message = format!("has {} guests: 1 to {MAX_GUESTS} can be built", seen.len());
            return Err(problem(&self.name, message));
        }
        let Some(shared) = &self.shared_core else {
            return Ok(());
        };
        for guest in &shared.guests {
            self.guest(guest)?;
        }
        for guest in &shared.periodic.guests {
            if !shared.guests.iter().any(|g| g.get_ref() == guest.get_ref()) {
                return Err(problem(guest, "is not one of shared_core.guests"));
            }
        }
        let periodic = &shared.periodic;
        let ordered = periodic.runtime <= periodic.deadline && periodic.deadline <= periodic.period;
        if !ordered || periodic.runtime < Nanos(1024) {
            let at = periodic.guests.first().unwrap_or(&self.name);
            let rule = "the kernel wants 1024ns <= runtime <= deadline <= period";
            return Err(problem(at, rule));
        }
        Ok(())
    }

    fn guest(&self, name: &Name) -> Result<(), Problem> {
        if self.guests().any(|(_, guest)| guest == name.get_ref()) {
            return Ok(());
        }
        let known: Vec<_> = self.guests().map(|(_, guest)| guest).collect();
        Err(problem(
            name,
            format!(
                "there is no guest {:?}: hosts has {}",
                name.get_ref(),
                known.join(", ")
            ),
        ))
    }

    fn two_guests(&self, one: &Name, other: &Name) -> Result<(), Problem> {
        self.guest(one)?;
        self.guest(other)?;
        if one.get_ref() == other.get_ref() {
            return Err(problem(other, "a guest cannot be its own peer"));
        }
        Ok(())
    }

    /// Checks each load and says what it measures, and whether it needs the
    /// network.
    fn check_loads(&self) -> Result<BTreeMap<&str, (Output<'_>, bool)>, Problem> {
        let mut all: Vec<(&Name, Output<'_>, bool)> = Vec::new();
        for query in &self.query {
            self.check_query(query)?;
            all.push((&query.name, Output::Series(&query.series), true));
        }
        for bulk in &self.bulk {
            self.two_guests(&bulk.from, &bulk.to)?;
            all.push((&bulk.name, Output::Value(&bulk.value), true));
        }
        for ping in &self.ping {
            self.two_guests(&ping.from, &ping.to)?;
            gap(&ping.name, ping.every)?;
            all.push((&ping.name, Output::Series(&ping.series), true));
        }
        for etc in &self.etc {
            self.check_etc(etc)?;
            all.push((&etc.name, Output::Both(&etc.series, &etc.value), true));
        }
        for shuffle in &self.shuffle {
            self.check_shuffle(shuffle)?;
            all.push((&shuffle.name, Output::Value(&shuffle.value), true));
        }
        for hog in &self.hog {
            for guest in &hog.guests {
                self.guest(guest)?;
            }
            if hog.guests.is_empty() || hog.scans == 0 || hog.sleep > Nanos::from_secs(1) {
                let rule = "needs a guest, one scan or more, and a sleep of at most 1s";
                return Err(problem(&hog.name, rule));
            }
            if hog.block.is_some_and(|block| !HOG_BLOCKS.contains(&block)) {
                let rule = "its block: choose 4KiB to 1GiB";
                return Err(problem(&hog.name, rule));
            }
            let output = Output::Hog(&hog.value, hog.cpu_value.as_deref());
            all.push((&hog.name, output, false));
        }
        for duty in &self.duty {
            for guest in &duty.guests {
                self.guest(guest)?;
            }
            gap(&duty.name, duty.period)?;
            let idle = duty.busy == Nanos::ZERO || duty.busy > duty.period;
            // The kernel kills a real-time program that never sleeps.
            let endless = duty.uninterrupted && duty.busy > MAX_UNINTERRUPTED;
            if duty.guests.is_empty() || idle || endless {
                let rule = "needs a guest, and a busy above 0 and at most the period (uninterrupted: \
                            at most 200ms)";
                return Err(problem(&duty.name, rule));
            }
            all.push((&duty.name, Output::Value(&duty.value), false));
        }
        for probe in &self.probe {
            self.guest(&probe.guest)?;
            let marks = probe.samples >= 1 && probe.low_mark <= probe.samples / 5;
            if !marks || probe.time_limit == Nanos::ZERO || probe.time_limit > MAX_DURATION {
                let rule = "needs samples of at least 1 and 5 low_marks, and a time_limit above 0";
                return Err(problem(&probe.name, rule));
            }
            all.push((&probe.name, Output::Probe(&probe.series), false));
        }
        for wakeup in &self.wakeup {
            self.guest(&wakeup.guest)?;
            gap(&wakeup.name, wakeup.mean_gap)?;
            all.push((&wakeup.name, Output::Series(&wakeup.series), false));
        }
        self.check_traffic(&mut all)?;
        let mut loads = BTreeMap::new();
        for (name, output, network) in all {
            plain(name, 40)?;
            let (Output::Series(out)
            | Output::Value(out)
            | Output::Probe(out)
            | Output::Both(out, _)
            | Output::SeriesAnd(out, _)
            | Output::Hog(out, _)) = output;
            if !is_plain(out, 40) {
                let message = format!("measures {out:?}: use letters, digits, - and _");
                return Err(problem(name, message));
            }
            if loads
                .insert(name.get_ref().as_str(), (output, network))
                .is_some()
            {
                let message = format!("there are two loads {:?}", name.get_ref());
                return Err(problem(name, message));
            }
        }
        Ok(loads)
    }

    fn check_query(&self, query: &super::Query) -> Result<(), Problem> {
        for server in &query.servers {
            self.two_guests(&query.client, server)?;
        }
        if query.servers.is_empty() {
            return Err(problem(&query.name, "has no servers: name at least one"));
        }
        if query.answer == Bytes::ZERO || query.answer > MAX_ANSWER {
            let message = format!("answer {}: choose 1B to {MAX_ANSWER}", query.answer);
            return Err(problem(&query.name, message));
        }
        if !(1..=100).contains(&query.connections) {
            return Err(problem(&query.name, "connections: choose 1 to 100"));
        }
        match (query.mean_gap, query.utilisation) {
            (Some(_), None) => {}
            (None, Some(share)) if share > 0.0 && share <= 1.0 => {}
            (None, Some(_)) => {
                let rule = "utilisation: above 0, at most 1.0";
                return Err(problem(&query.name, rule));
            }
            _ => {
                let rule = "needs either mean_gap or utilisation";
                return Err(problem(&query.name, rule));
            }
        }
        gap(&query.name, query.gap(self.link_rate))
    }

    fn check_variant(
        &self,
        variant: &Variant,
        loads: &BTreeMap<&str, (Output<'_>, bool)>,
    ) -> Result<(), Problem> {
        let mut outputs = BTreeSet::new();
        let mut network = false;
        for load in &variant.loads {
            let Some((output, uses_network)) = loads.get(load.get_ref().as_str()) else {
                let known: Vec<_> = loads.keys().copied().collect();
                return Err(problem(
                    load,
                    format!(
                        "there is no load {:?}: there are {}",
                        load.get_ref(),
                        known.join(", ")
                    ),
                ));
            };
            network |= uses_network;
            let (Output::Series(name)
            | Output::Value(name)
            | Output::Probe(name)
            | Output::Both(name, _)
            | Output::SeriesAnd(name, _)
            | Output::Hog(name, _)) = output;
            if !outputs.insert(*name) {
                let message = format!("two loads of this variant measure {name:?}");
                return Err(problem(load, message));
            }
        }
        match &variant.pipeline {
            Some(name) if !self.pipeline.contains_key(name.get_ref()) => {
                let known: Vec<_> = self.pipeline.keys().map(String::as_str).collect();
                return Err(problem(
                    name,
                    format!(
                        "there is no pipeline {:?}: there are {}",
                        name.get_ref(),
                        known.join(", ")
                    ),
                ));
            }
            None if network => {
                let rule = "has load on the network: name its pipeline";
                return Err(problem(&variant.name, rule));
            }
            _ => {}
        }
        self.check_guarantees(variant)?;
        if variant.vcpu != VcpuMode::Default && self.shared_core.is_none() {
            let rule = "a class in `vcpu` needs [shared_core]";
            return Err(problem(&variant.name, rule));
        }
        let Some(count) = variant.count() else {
            return Ok(());
        };
        let mut hogs = self.hog.iter().filter(|hog| variant.runs(&hog.name));
        let most = hogs.next().map_or(0, |hog| hog.guests.len());
        if count == 0 || count > most {
            let message = format!("{count} neighbours: its [[hog]] has {most} guests");
            return Err(problem(&variant.name, message));
        }
        Ok(())
    }

    fn check_check(
        &self,
        check: &Check,
        loads: &BTreeMap<&str, (Output<'_>, bool)>,
    ) -> Result<(), Problem> {
        if check.at_least.is_some() == check.at_most.is_some() {
            return Err(problem(&check.name, "needs either at_least or at_most"));
        }
        let wants_from = !matches!(check.kind, CheckKind::Value | CheckKind::OfPromise);
        if wants_from != check.from.is_some() {
            let rule = "needs `from`, except a check of kind \"value\" or \"of-promise\"";
            return Err(problem(&check.name, rule));
        }
        if check.to.is_empty() {
            return Err(problem(&check.name, "needs a variant in `to`"));
        }
        let output = measured_by(&check.of)?;
        for name in check.from.iter().chain(&check.to) {
            let Some(variant) = self
                .variant
                .iter()
                .find(|v| v.name.get_ref() == name.get_ref())
            else {
                let message = format!("there is no variant {:?}", name.get_ref());
                return Err(problem(name, message));
            };
            if !measures(variant, output, loads) {
                let message = format!("variant {:?} does not measure it", name.get_ref());
                return Err(problem(&check.of, message));
            }
        }
        Ok(())
    }

    fn check_chart(
        &self,
        chart: &Chart,
        loads: &BTreeMap<&str, (Output<'_>, bool)>,
    ) -> Result<(), Problem> {
        let output = measured_by(&chart.of)?;
        let mut counted = self.variant.iter().filter(|v| v.count().is_some());
        if !counted.any(|variant| measures(variant, output, loads)) {
            let rule = "no variant with `neighbours` measures it";
            return Err(problem(&chart.of, rule));
        }
        Ok(())
    }
}

/// What the figure of a check or chart is a figure of.
fn measured_by(of: &Name) -> Result<Output<'_>, Problem> {
    let figure = of.get_ref();
    match figure.split_once('.') {
        Some((series, statistic)) if STATISTICS.contains(&statistic) => Ok(Output::Series(series)),
        Some(_) => {
            let message = format!("{figure:?}: the statistics are {}", STATISTICS.join(", "));
            Err(problem(of, message))
        }
        None => Ok(Output::Value(figure)),
    }
}

fn measures(
    variant: &Variant,
    output: Output<'_>,
    loads: &BTreeMap<&str, (Output<'_>, bool)>,
) -> bool {
    let of_variant = variant.loads.iter();
    let mut measured = of_variant.filter_map(|load| loads.get(load.get_ref().as_str()));
    measured.any(|(measures, _)| measures.has(output))
}

fn check_pipeline(name: &str, pipeline: &super::Pipeline, link: Rate) -> Result<(), String> {
    if !is_plain(name, 40) {
        return Err(format!("pipeline {name:?}: use letters, digits, - and _"));
    }
    if let Some(pacing) = &pipeline.pacer {
        return paced::check_pacer(pipeline, pacing, link);
    }
    let Some(nic_queue) = pipeline.nic_queue else {
        return Err(format!("pipeline {name:?} needs a nic_queue, or a pacer"));
    };
    if nic_queue == Nanos::ZERO || nic_queue > Nanos::from_secs(1) {
        return Err(format!("nic_queue {nic_queue}: choose above 0, at most 1s"));
    }
    if pipeline.config.get_ref().nic.is_some() {
        return Err("nic follows from nic_queue and the link rate: leave it out".into());
    }
    Ok(())
}

fn gap(at: &Name, gap: Nanos) -> Result<(), Problem> {
    if gap < MIN_GAP || gap > MAX_DURATION {
        let message = format!("{gap} between two: choose {MIN_GAP} to {MAX_DURATION}");
        return Err(problem(at, message));
    }
    Ok(())
}

fn is_plain(text: &str, longest: usize) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    !text.is_empty()
        && text.len() <= longest
        && text.chars().all(plain)
        && text.starts_with(|c: char| c.is_ascii_alphabetic())
}

fn plain(name: &Name, longest: usize) -> Result<(), Problem> {
    if is_plain(name.get_ref(), longest) {
        return Ok(());
    }
    Err(problem(
        name,
        format!(
            "{:?}: use a letter, then letters, digits, - and _, {longest} at most",
            name.get_ref()
        ),
    ))
}

fn unique<'a>(seen: &mut BTreeSet<&'a str>, name: &'a Name, what: &str) -> Result<(), Problem> {
    if seen.insert(name.get_ref()) {
        return Ok(());
    }
    let message = format!("there are two {what}s {:?}", name.get_ref());
    Err(problem(name, message))
}
