//! Checks of an experiment beyond its types.

mod paced;
mod traffic;
mod workflow;

use super::{LabExperiment, Pipeline, Query, Variant, VcpuMode};
use std::collections::BTreeSet;
use std::fmt::Display;
use std::ops::RangeInclusive;
use tailbound_experiment::{Mistakes, Name};
use tailbound_units::{Bytes, Nanos, Rate};

/// Each guest has a number of eight bits in its addresses.
const MAX_GUESTS: usize = 200;
const MAX_DURATION: Nanos = Nanos::from_secs(3600);
const ANSWERS: RangeInclusive<Bytes> = Bytes(1)..=Bytes(1_000_000_000);
const HOG_BLOCKS: RangeInclusive<Bytes> = Bytes(4 << 10)..=Bytes(1 << 30);
const MAX_UNINTERRUPTED: Nanos = Nanos::from_millis(200);
const MIN_GAP: Nanos = Nanos::from_micros(50);
const QUOTA_PERIODS: RangeInclusive<Nanos> = Nanos::from_millis(1)..=Nanos::from_secs(1);
const DEADLINES: RangeInclusive<Nanos> = Nanos::from_micros(500)..=Nanos::from_secs(1);
const LINK_RATES: RangeInclusive<Rate> = Rate(1_000_000)..=Rate(10_000_000_000);
const SWITCH_BUFFERS: RangeInclusive<Bytes> = Bytes(3_000)..=Bytes(1 << 30);

impl LabExperiment {
    /// Adds the mistakes of the experiment to `mistakes`.
    pub(crate) fn find_mistakes(&self, mistakes: &mut Mistakes) {
        let mut top = mistakes.top();
        top.range(
            "duration",
            self.duration,
            Nanos::from_millis(100)..=MAX_DURATION,
        );
        top.range("warmup", self.warmup, Nanos::ZERO..=MAX_DURATION);
        top.range("link_rate", self.link_rate, LINK_RATES);
        top.range("switch_buffer", self.switch_buffer, SWITCH_BUFFERS);
        top.count("variant", self.variant.len(), 1..=1_000);
        self.check_guests(mistakes);
        self.check_shared_core(mistakes);
        self.check_machines(mistakes);
        self.check_quota(mistakes);
        self.check_tenants(mistakes);
        self.check_loads(mistakes);
        for (name, pipeline) in &self.pipeline {
            if let Err(message) = check_pipeline(name, pipeline, self.link_rate) {
                mistakes.at_span(pipeline.config.span(), message);
            }
        }
        mistakes.unique("variant", self.variant.iter().map(|variant| &variant.name));
        for variant in &self.variant {
            plain(&variant.name, 40, mistakes);
            self.check_variant(variant, mistakes);
        }
    }

    fn check_guests(&self, mistakes: &mut Mistakes) {
        for (host, guests) in &self.hosts {
            if !is_plain(host, 8) {
                let rule = "use at most 8 letters and digits";
                let message = format!("host name {host:?}: {rule}");
                mistakes.top().at("hosts", message);
            }
            for guest in guests {
                plain(guest, 8, mistakes);
                if self.hosts.contains_key(guest.get_ref()) {
                    let message = format!("{:?} is a host already", guest.get_ref());
                    mistakes.at(guest, message);
                }
            }
        }
        let guests = self.hosts.values().flatten();
        mistakes
            .top()
            .count("hosts", guests.clone().count(), 1..=MAX_GUESTS);
        mistakes.unique("guest", guests);
    }

    fn check_shared_core(&self, mistakes: &mut Mistakes) {
        let Some(shared) = &self.shared_core else {
            return;
        };
        let periodic = &shared.periodic;
        self.check_guest_names(&shared.guests, mistakes);
        for guest in &periodic.guests {
            if !shared
                .guests
                .iter()
                .any(|it| it.get_ref() == guest.get_ref())
            {
                mistakes.at(guest, "is not one of shared_core.guests");
            }
        }
        let ordered = periodic.runtime <= periodic.deadline && periodic.deadline <= periodic.period;
        if !ordered || periodic.runtime < Nanos(1024) {
            let rule = "the kernel wants 1024ns <= runtime <= deadline <= period";
            mistakes.top().table("shared_core").at("periodic", rule);
        }
    }

    fn check_machines(&self, mistakes: &mut Mistakes) {
        let Some(machines) = &self.machines else {
            return;
        };
        self.check_guest_names(&machines.guests, mistakes);
        mistakes.unique("machine", machines.guests.iter());
        if machines.guests.is_empty() {
            mistakes
                .top()
                .table("machines")
                .at("guests", "name at least one guest");
        }
        let floods = self.flood.iter().map(|flood| &flood.from);
        let meters = self.meter.iter().map(|meter| &meter.to);
        for guest in floods.chain(meters) {
            if self.is_machine(guest.get_ref()) {
                let rule = "is a machine: frames of a guest's own making, and meters, need a guest \
                            that is none";
                mistakes.at(guest, rule);
            }
        }
    }

    fn check_quota(&self, mistakes: &mut Mistakes) {
        let Some(quota) = &self.quota else {
            return;
        };
        self.check_guest_names(&quota.guests, mistakes);
        for guest in &quota.guests {
            if !self.is_machine(guest.get_ref()) {
                mistakes.at(
                    guest,
                    "is not one of machines.guests: a quota is a machine's",
                );
            }
        }
        // The range that the kernel accepts.
        let fits = QUOTA_PERIODS.contains(&quota.period) && quota.runtime >= *QUOTA_PERIODS.start();
        if quota.guests.is_empty() || !fits {
            let rule =
                "name at least one guest, a period of 1ms to 1s and a runtime of 1ms or more";
            mistakes.top().at("quota", rule);
        }
    }

    fn check_guest(&self, name: &Name, mistakes: &mut Mistakes) {
        mistakes.known("guest", name, self.guests().map(|(_, guest)| guest));
    }

    fn check_guest_names(&self, names: &[Name], mistakes: &mut Mistakes) {
        for name in names {
            self.check_guest(name, mistakes);
        }
    }

    fn check_two_guests(&self, one: &Name, other: &Name, mistakes: &mut Mistakes) {
        self.check_guest(one, mistakes);
        self.check_guest(other, mistakes);
        if one.get_ref() == other.get_ref() {
            mistakes.at(other, "a guest cannot be its own peer");
        }
    }

    fn check_loads(&self, mistakes: &mut Mistakes) {
        for query in &self.query {
            self.check_query(query, mistakes);
        }
        for bulk in &self.bulk {
            self.check_two_guests(&bulk.from, &bulk.to, mistakes);
        }
        for ping in &self.ping {
            self.check_two_guests(&ping.from, &ping.to, mistakes);
            gap(&ping.name, ping.every, mistakes);
        }
        for wakeup in &self.wakeup {
            self.check_guest(&wakeup.guest, mistakes);
            gap(&wakeup.name, wakeup.mean_gap, mistakes);
        }
        self.check_computing(mistakes);
        self.check_paced(mistakes);
        self.check_traffic(mistakes);
        self.check_workflows(mistakes);
        let loads = self.loads();
        mistakes.unique("load", loads.iter().map(|load| load.name));
        for load in &loads {
            plain(load.name, 40, mistakes);
            let figure = load.figure();
            if !is_plain(figure, 40) {
                let message = format!("measures {figure:?}: use letters, digits, - and _");
                mistakes.at(load.name, message);
            }
        }
    }

    fn check_computing(&self, mistakes: &mut Mistakes) {
        for hog in &self.hog {
            self.check_guest_names(&hog.guests, mistakes);
            if hog.guests.is_empty() || hog.scans == 0 || hog.sleep > Nanos::from_secs(1) {
                let rule = "needs a guest, one scan or more, and a sleep of at most 1s";
                mistakes.at(&hog.name, rule);
            }
            within(&hog.name, "nice", hog.nice, 0..=19, mistakes);
            if hog.block.is_some_and(|block| !HOG_BLOCKS.contains(&block)) {
                mistakes.at(&hog.name, "its block: choose 4KiB to 1GiB");
            }
        }
        for duty in &self.duty {
            self.check_guest_names(&duty.guests, mistakes);
            gap(&duty.name, duty.period, mistakes);
            let idle = duty.busy == Nanos::ZERO || duty.busy > duty.period;
            // The kernel kills a real-time program that never sleeps.
            let endless = duty.uninterrupted && duty.busy > MAX_UNINTERRUPTED;
            if duty.guests.is_empty() || idle || endless {
                let rule = "needs a guest, and a busy above 0 and at most the period \
                            (uninterrupted: at most 200ms)";
                mistakes.at(&duty.name, rule);
            }
        }
        for probe in &self.probe {
            self.check_guest(&probe.guest, mistakes);
            let marks = probe.samples >= 1 && probe.low_mark <= probe.samples / 5;
            if !marks || probe.time_limit == Nanos::ZERO || probe.time_limit > MAX_DURATION {
                let rule = "needs samples of at least 1 and 5 low_marks, and a time_limit above 0";
                mistakes.at(&probe.name, rule);
            }
        }
    }

    fn check_query(&self, query: &Query, mistakes: &mut Mistakes) {
        for server in &query.servers {
            self.check_two_guests(&query.client, server, mistakes);
        }
        if query.servers.is_empty() {
            mistakes.at(&query.name, "has no servers: name at least one");
        }
        within(&query.name, "answer", query.answer, ANSWERS, mistakes);
        within(
            &query.name,
            "connections",
            query.connections,
            1..=100,
            mistakes,
        );
        match (query.mean_gap, query.utilisation) {
            (Some(_), None) => gap(&query.name, query.gap(self.link_rate), mistakes),
            (None, Some(share)) if share > 0.0 && share <= 1.0 => {
                gap(&query.name, query.gap(self.link_rate), mistakes);
            }
            (None, Some(_)) => mistakes.at(&query.name, "utilisation: above 0, at most 1.0"),
            _ => mistakes.at(&query.name, "needs either mean_gap or utilisation"),
        }
    }

    fn check_variant(&self, variant: &Variant, mistakes: &mut Mistakes) {
        let loads = self.loads();
        let mut figures = BTreeSet::new();
        let mut network = false;
        for name in &variant.loads {
            let known = loads.iter().map(|load| load.name.get_ref().as_str());
            mistakes.known("load", name, known);
            let load = loads
                .iter()
                .find(|load| load.name.get_ref() == name.get_ref());
            let Some(load) = load else { continue };
            network |= load.network;
            if !figures.insert(load.figure()) {
                let message = format!("two loads of this variant measure {:?}", load.figure());
                mistakes.at(name, message);
            }
        }
        match &variant.pipeline {
            Some(name) => {
                mistakes.known("pipeline", name, self.pipeline.keys().map(String::as_str));
            }
            None if network => {
                mistakes.at(&variant.name, "has load on the network: name its pipeline");
            }
            None => {}
        }
        self.check_guarantees(variant, mistakes);
        self.check_called(variant, mistakes);
        if variant.vcpu != VcpuMode::Default && self.shared_core.is_none() {
            mistakes.at(&variant.name, "a class in `vcpu` needs [shared_core]");
        }
        if variant.vcpu == VcpuMode::Periodic
            && let Some(guest) = self
                .shared_core
                .iter()
                .flat_map(|core| &core.periodic.guests)
                .find(|guest| self.is_machine(guest.get_ref()))
        {
            let rule = "is a machine, and one with a reservation is not kept on the shared core: \
                        choose vcpu = \"aperiodic\"";
            mistakes.at(guest, rule);
        }
        if let Some(deadline) = variant.deadline {
            within(&variant.name, "deadline", deadline, DEADLINES, mistakes);
            if variant.vcpu != VcpuMode::Periodic {
                mistakes.at(&variant.name, "`deadline` needs vcpu = \"periodic\"");
            }
        }
        if variant.quota && self.quota.is_none() {
            mistakes.at(&variant.name, "`quota` needs [quota]");
        }
        if variant.snoop.is_some() && self.machines.is_none() {
            mistakes.at(
                &variant.name,
                "`snoop` needs [machines]: it stands at a machine's ring",
            );
        }
        if let Some(count) = variant.count() {
            let mut hogs = self.hog.iter().filter(|hog| variant.runs(&hog.name));
            let most = hogs.next().map_or(0, |hog| hog.guests.len());
            if count == 0 || count > most {
                let message = format!("{count} neighbours: its [[hog]] has {most} guests");
                mistakes.at(&variant.name, message);
            }
        }
    }
}

fn check_pipeline(name: &str, pipeline: &Pipeline, link: Rate) -> Result<(), String> {
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

fn gap(at: &Name, gap: Nanos, mistakes: &mut Mistakes) {
    within(
        at,
        "time between two",
        gap,
        MIN_GAP..=MAX_DURATION,
        mistakes,
    );
}

/// Checks that a load's value lies between two bounds.
fn within<T: Copy + PartialOrd + Display>(
    at: &Name,
    key: &str,
    got: T,
    range: RangeInclusive<T>,
    mistakes: &mut Mistakes,
) {
    if !range.contains(&got) {
        let (least, most) = range.into_inner();
        mistakes.at(at, format!("{key} {got}: choose {least} to {most}"));
    }
}

fn is_plain(text: &str, longest: usize) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    !text.is_empty()
        && text.len() <= longest
        && text.chars().all(plain)
        && text.starts_with(|c: char| c.is_ascii_alphabetic())
}

/// Checks a name: namespaces, interfaces and files contain the lab's names.
fn plain(name: &Name, longest: usize, mistakes: &mut Mistakes) {
    if !is_plain(name.get_ref(), longest) {
        let text = name.get_ref();
        let rule = "use a letter, then letters, digits, - and _";
        mistakes.at(name, format!("{text:?}: {rule}, {longest} at most"));
    }
}
