//! Measured figures of an experiment's loads.

use super::{
    Bulk, Duty, Etc, Flood, Hog, Iperf, LabExperiment, Message, Meter, Ping, Probe, Query, Rtp,
    Selection, Shuffle, Transfer, Variant, Wakeup, Watch, Workflow,
};
use tailbound_experiment::Name;
use tailbound_report::{Series, Value};

/// A load with a name for variants.
pub(crate) trait NamedLoad {
    /// Returns the name of the load.
    fn name(&self) -> &Name;
}

macro_rules! named {
    ($($load:ty),*) => {
        $(impl NamedLoad for $load {
            fn name(&self) -> &Name {
                &self.name
            }
        })*
    };
}

named!(
    Query, Bulk, Ping, Etc, Shuffle, Message, Transfer, Rtp, Iperf, Flood, Meter, Watch, Hog, Duty,
    Probe, Wakeup, Selection, Workflow
);

/// A load: its figures and its requirements.
#[derive(Debug)]
pub(crate) struct Load<'e> {
    /// Name of the load, for variants.
    pub(crate) name: &'e Name,
    series: Vec<&'e str>,
    values: Vec<&'e str>,
    /// True if the load needs the network.
    pub(crate) network: bool,
}

impl<'e> Load<'e> {
    fn value(load: &'e impl NamedLoad, value: &'e str) -> Self {
        Self {
            name: load.name(),
            series: Vec::new(),
            values: vec![value],
            network: false,
        }
    }

    fn series(load: &'e impl NamedLoad, series: &'e str) -> Self {
        Self {
            series: vec![series],
            values: Vec::new(),
            ..Self::value(load, series)
        }
    }

    fn and(mut self, values: impl IntoIterator<Item = &'e str>) -> Self {
        self.values.extend(values);
        self
    }

    /// Returns the load's first series, or else its first value.
    pub(crate) fn figure(&self) -> &'e str {
        let mut figures = self.series.iter().chain(&self.values);
        figures.next().copied().unwrap_or_default()
    }
}

impl LabExperiment {
    /// Returns the guests of a variant's first series: a query's client and servers, memcached and
    /// its clients, the ends of messages or of a stream, or nodes and their client.
    pub(crate) fn about<'e>(&'e self, variant: &Variant) -> Vec<&'e Name> {
        if let Some(load) = variant.running(&self.query).next() {
            return std::iter::once(&load.client).chain(&load.servers).collect();
        }
        if let Some(load) = variant.running(&self.etc).next() {
            return std::iter::once(&load.server).chain(&load.clients).collect();
        }
        if let Some(load) = variant.running(&self.ping).next() {
            return vec![&load.from, &load.to];
        }
        if let Some(load) = variant.running(&self.message).next() {
            return load.from.iter().chain(&load.to).collect();
        }
        if let Some(load) = variant.running(&self.transfer).next() {
            return vec![&load.from, &load.to];
        }
        if let Some(load) = variant.running(&self.rtp).next() {
            return vec![&load.from, &load.to];
        }
        let nodes = self.nodes.iter();
        let names = nodes.flat_map(|nodes| std::iter::once(&nodes.client).chain(&nodes.guests));
        names.collect()
    }

    /// Returns all loads.
    pub(crate) fn loads(&self) -> Vec<Load<'_>> {
        let mut all: Vec<Load<'_>> = Vec::new();
        all.extend(self.query.iter().map(|it| Load::series(it, &it.series)));
        for it in &self.bulk {
            all.push(Load::value(it, &it.value).and(it.cpu_value.as_deref()));
        }
        all.extend(self.ping.iter().map(|it| Load::series(it, &it.series)));
        for it in &self.etc {
            all.push(Load::series(it, &it.series).and([it.value.as_str()]));
        }
        all.extend(self.shuffle.iter().map(|it| Load::value(it, &it.value)));
        for it in &self.message {
            let mut load = Load::series(it, &it.series).and(Message::VALUES.iter().copied());
            load.series
                .extend(it.ring.iter().chain(&it.vcpu_wait).map(String::as_str));
            all.push(load);
        }
        for it in &self.transfer {
            let mut load = Load::series(it, &it.series);
            load.series.push(&it.received);
            load.series.extend(it.pause.iter().map(String::as_str));
            all.push(load);
        }
        for it in &self.rtp {
            all.push(Load::series(it, &it.series).and(Rtp::VALUES.iter().copied()));
        }
        all.extend(self.iperf.iter().map(|it| Load::value(it, &it.value)));
        all.extend(self.flood.iter().map(|it| Load::value(it, &it.value)));
        for it in &self.meter {
            all.push(Load::series(it, &it.series).and(Meter::VALUES.iter().copied()));
        }
        for it in &self.watch {
            all.push(Load::series(it, &it.series).and(Watch::VALUES.iter().copied()));
        }
        all.extend(self.workflow.iter().map(|it| Load::series(it, &it.series)));
        for load in &mut all {
            load.network = true;
        }
        for it in &self.hog {
            all.push(Load::value(it, &it.value).and(it.cpu_value.as_deref()));
        }
        all.extend(self.duty.iter().map(|it| Load::value(it, &it.value)));
        for it in &self.probe {
            all.push(Load::series(it, &it.series).and(Probe::VALUES));
        }
        all.extend(self.wakeup.iter().map(|it| Load::series(it, &it.series)));
        let [found, counts @ ..] = Selection::VALUES;
        for it in &self.selection {
            all.push(Load::value(it, found).and(counts));
        }
        all
    }

    /// Returns a variant with the names of all figures that its loads measure.
    pub(crate) fn outline_of(&self, variant: &Variant) -> tailbound_report::Variant {
        let mut outline = tailbound_report::Variant {
            name: variant.name.get_ref().clone(),
            ..tailbound_report::Variant::default()
        };
        for load in self.loads().iter().filter(|load| variant.runs(load.name)) {
            let series = load.series.iter();
            let series = series.map(|name| ((*name).to_owned(), Series::default()));
            outline.series.extend(series);
            let values = load.values.iter();
            let values = values.map(|name| ((*name).to_owned(), Value::default()));
            outline.values.extend(values);
        }
        outline
    }
}
