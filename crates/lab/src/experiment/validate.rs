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
        let mut checker = Checker {
            lab: self,
            mistakes,
        };
        checker.check();
    }
}

/// The checks of an experiment, and their result.
struct Checker<'e, 'm> {
    lab: &'e LabExperiment,
    mistakes: &'m mut Mistakes,
}

impl Checker<'_, '_> {
    fn check(&mut self) {
        let mut top = self.mistakes.top();
        top.range(
            "duration",
            self.lab.duration,
            Nanos::from_millis(100)..=MAX_DURATION,
        );
        top.range("warmup", self.lab.warmup, Nanos::ZERO..=MAX_DURATION);
        top.range("link_rate", self.lab.link_rate, LINK_RATES);
        top.range("switch_buffer", self.lab.switch_buffer, SWITCH_BUFFERS);
        top.count("variant", self.lab.variant.len(), 1..=1_000);
        self.check_guests();
        self.check_shared_core();
        self.check_machines();
        self.check_quota();
        self.check_tenants();
        self.check_loads();
        for (name, pipeline) in &self.lab.pipeline {
            if let Err(message) = check_pipeline(name, pipeline, self.lab.link_rate) {
                self.mistakes.at_span(pipeline.config.span(), message);
            }
        }
        self.mistakes.unique(
            "variant",
            self.lab.variant.iter().map(|variant| &variant.name),
        );
        for variant in &self.lab.variant {
            self.plain(&variant.name, 40);
            self.check_variant(variant);
        }
    }

    fn check_guests(&mut self) {
        for (host, guests) in &self.lab.hosts {
            if !is_plain(host, 8) {
                let rule = "use at most 8 letters and digits";
                let message = format!("host name {host:?}: {rule}");
                self.mistakes.top().at("hosts", message);
            }
            for guest in guests {
                self.plain(guest, 8);
                if self.lab.hosts.contains_key(guest.get_ref()) {
                    let message = format!("{:?} is a host already", guest.get_ref());
                    self.wrong(guest, message);
                }
            }
        }
        let guests = self.lab.hosts.values().flatten();
        self.mistakes
            .top()
            .count("hosts", guests.clone().count(), 1..=MAX_GUESTS);
        self.mistakes.unique("guest", guests);
    }

    fn check_shared_core(&mut self) {
        let Some(shared) = &self.lab.shared_core else {
            return;
        };
        let periodic = &shared.periodic;
        self.check_guest_names(&shared.guests);
        for guest in &periodic.guests {
            if !shared
                .guests
                .iter()
                .any(|it| it.get_ref() == guest.get_ref())
            {
                self.wrong(guest, "is not one of shared_core.guests");
            }
        }
        let ordered = periodic.runtime <= periodic.deadline && periodic.deadline <= periodic.period;
        if !ordered || periodic.runtime < Nanos(1024) {
            let rule = "the kernel wants 1024ns <= runtime <= deadline <= period";
            self.mistakes
                .top()
                .table("shared_core")
                .at("periodic", rule);
        }
    }

    fn check_machines(&mut self) {
        let Some(machines) = &self.lab.machines else {
            return;
        };
        self.check_guest_names(&machines.guests);
        self.mistakes.unique("machine", machines.guests.iter());
        if machines.guests.is_empty() {
            self.mistakes
                .top()
                .table("machines")
                .at("guests", "name at least one guest");
        }
        let floods = self.lab.flood.iter().map(|flood| &flood.from);
        let meters = self.lab.meter.iter().map(|meter| &meter.to);
        for guest in floods.chain(meters) {
            if self.lab.is_machine(guest.get_ref()) {
                let rule = "is a machine: frames of a guest's own making, and meters, need a guest \
                            that is none";
                self.wrong(guest, rule);
            }
        }
    }

    fn check_quota(&mut self) {
        let Some(quota) = &self.lab.quota else {
            return;
        };
        self.check_guest_names(&quota.guests);
        for guest in &quota.guests {
            if !self.lab.is_machine(guest.get_ref()) {
                self.wrong(
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
            self.mistakes.top().at("quota", rule);
        }
    }

    fn check_guest(&mut self, name: &Name) {
        self.mistakes
            .known("guest", name, self.lab.guests().map(|(_, guest)| guest));
    }

    fn check_guest_names(&mut self, names: &[Name]) {
        for name in names {
            self.check_guest(name);
        }
    }

    fn check_two_guests(&mut self, one: &Name, other: &Name) {
        self.check_guest(one);
        self.check_guest(other);
        if one.get_ref() == other.get_ref() {
            self.wrong(other, "a guest cannot be its own peer");
        }
    }

    fn check_loads(&mut self) {
        for query in &self.lab.query {
            self.check_query(query);
        }
        for bulk in &self.lab.bulk {
            self.check_two_guests(&bulk.from, &bulk.to);
        }
        for ping in &self.lab.ping {
            self.check_two_guests(&ping.from, &ping.to);
            self.gap(&ping.name, ping.every);
        }
        for wakeup in &self.lab.wakeup {
            self.check_guest(&wakeup.guest);
            self.gap(&wakeup.name, wakeup.mean_gap);
        }
        self.check_computing();
        self.check_paced();
        self.check_traffic();
        self.check_workflows();
        let loads = self.lab.loads();
        self.mistakes
            .unique("load", loads.iter().map(|load| load.name));
        for load in &loads {
            self.plain(load.name, 40);
            let figure = load.figure();
            if !is_plain(figure, 40) {
                let message = format!("measures {figure:?}: use letters, digits, - and _");
                self.wrong(load.name, message);
            }
        }
    }

    fn check_computing(&mut self) {
        for hog in &self.lab.hog {
            self.check_guest_names(&hog.guests);
            if hog.guests.is_empty() || hog.scans == 0 || hog.sleep > Nanos::from_secs(1) {
                let rule = "needs a guest, one scan or more, and a sleep of at most 1s";
                self.wrong(&hog.name, rule);
            }
            self.within(&hog.name, "nice", hog.nice, 0..=19);
            if hog.block.is_some_and(|block| !HOG_BLOCKS.contains(&block)) {
                self.wrong(&hog.name, "its block: choose 4KiB to 1GiB");
            }
        }
        for duty in &self.lab.duty {
            self.check_guest_names(&duty.guests);
            self.gap(&duty.name, duty.period);
            let idle = duty.busy == Nanos::ZERO || duty.busy > duty.period;
            // The kernel kills a real-time program that never sleeps.
            let endless = duty.uninterrupted && duty.busy > MAX_UNINTERRUPTED;
            if duty.guests.is_empty() || idle || endless {
                let rule = "needs a guest, and a busy above 0 and at most the period \
                            (uninterrupted: at most 200ms)";
                self.wrong(&duty.name, rule);
            }
        }
        for probe in &self.lab.probe {
            self.check_guest(&probe.guest);
            let marks = probe.samples >= 1 && probe.low_mark <= probe.samples / 5;
            if !marks || probe.time_limit == Nanos::ZERO || probe.time_limit > MAX_DURATION {
                let rule = "needs samples of at least 1 and 5 low_marks, and a time_limit above 0";
                self.wrong(&probe.name, rule);
            }
        }
    }

    fn check_query(&mut self, query: &Query) {
        for server in &query.servers {
            self.check_two_guests(&query.client, server);
        }
        if query.servers.is_empty() {
            self.wrong(&query.name, "has no servers: name at least one");
        }
        self.within(&query.name, "answer", query.answer, ANSWERS);
        self.within(&query.name, "connections", query.connections, 1..=100);
        match (query.mean_gap, query.utilisation) {
            (Some(_), None) => self.gap(&query.name, query.gap(self.lab.link_rate)),
            (None, Some(share)) if share > 0.0 && share <= 1.0 => {
                self.gap(&query.name, query.gap(self.lab.link_rate));
            }
            (None, Some(_)) => self.wrong(&query.name, "utilisation: above 0, at most 1.0"),
            _ => self.wrong(&query.name, "needs either mean_gap or utilisation"),
        }
    }

    fn check_variant(&mut self, variant: &Variant) {
        let loads = self.lab.loads();
        let mut figures = BTreeSet::new();
        let mut network = false;
        for name in &variant.loads {
            let known = loads.iter().map(|load| load.name.get_ref().as_str());
            self.mistakes.known("load", name, known);
            let load = loads
                .iter()
                .find(|load| load.name.get_ref() == name.get_ref());
            let Some(load) = load else { continue };
            network |= load.network;
            if !figures.insert(load.figure()) {
                let message = format!("two loads of this variant measure {:?}", load.figure());
                self.wrong(name, message);
            }
        }
        match &variant.pipeline {
            Some(name) => {
                self.mistakes.known(
                    "pipeline",
                    name,
                    self.lab.pipeline.keys().map(String::as_str),
                );
            }
            None if network => {
                self.wrong(&variant.name, "has load on the network: name its pipeline");
            }
            None => {}
        }
        self.check_guarantees(variant);
        self.check_called(variant);
        self.check_options(variant);
    }

    fn check_options(&mut self, variant: &Variant) {
        if variant.vcpu != VcpuMode::Default && self.lab.shared_core.is_none() {
            self.wrong(&variant.name, "a class in `vcpu` needs [shared_core]");
        }
        if variant.vcpu == VcpuMode::Periodic
            && let Some(guest) = self
                .lab
                .shared_core
                .iter()
                .flat_map(|core| &core.periodic.guests)
                .find(|guest| self.lab.is_machine(guest.get_ref()))
        {
            let rule = "is a machine, and one with a reservation is not kept on the shared core: \
                        choose vcpu = \"aperiodic\"";
            self.wrong(guest, rule);
        }
        if let Some(deadline) = variant.deadline {
            self.within(&variant.name, "deadline", deadline, DEADLINES);
            if variant.vcpu != VcpuMode::Periodic {
                self.wrong(&variant.name, "`deadline` needs vcpu = \"periodic\"");
            }
        }
        if variant.quota && self.lab.quota.is_none() {
            self.wrong(&variant.name, "`quota` needs [quota]");
        }
        if variant.snoop.is_some() && self.lab.machines.is_none() {
            self.wrong(
                &variant.name,
                "`snoop` needs [machines]: it stands at a machine's ring",
            );
        }
        if let Some(count) = variant.count() {
            let mut hogs = self.lab.hog.iter().filter(|hog| variant.runs(&hog.name));
            let most = hogs.next().map_or(0, |hog| hog.guests.len());
            if count == 0 || count > most {
                let message = format!("{count} neighbours: its [[hog]] has {most} guests");
                self.wrong(&variant.name, message);
            }
        }
    }

    /// Adds a mistake at a name.
    fn wrong(&mut self, at: &Name, message: impl Into<String>) {
        self.mistakes.at(at, message);
    }

    fn gap(&mut self, at: &Name, gap: Nanos) {
        self.within(at, "time between two", gap, MIN_GAP..=MAX_DURATION);
    }

    /// Checks that a load's value lies between two bounds.
    fn within<T: Copy + PartialOrd + Display>(
        &mut self,
        at: &Name,
        key: &str,
        value: T,
        range: RangeInclusive<T>,
    ) {
        if !range.contains(&value) {
            let (least, most) = range.into_inner();
            let message = format!("{key} {value}: choose {least} to {most}");
            self.wrong(at, message);
        }
    }

    /// Checks a name: namespaces, interfaces and files contain the lab's names.
    fn plain(&mut self, name: &Name, longest: usize) {
        if !is_plain(name.get_ref(), longest) {
            let text = name.get_ref();
            let rule = "use a letter, then letters, digits, - and _";
            let message = format!("{text:?}: {rule}, {longest} at most");
            self.wrong(name, message);
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

fn is_plain(text: &str, longest: usize) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    !text.is_empty()
        && text.len() <= longest
        && text.chars().all(plain)
        && text.starts_with(|c: char| c.is_ascii_alphabetic())
}
