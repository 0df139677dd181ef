//! What the loads of an experiment measure.

use super::{LabExperiment, Message, Meter, Probe, Variant, Watch};
use tailbound_experiment::Name;
use tailbound_report::{Series, Value};

/// A load: what it measures, and what it needs.
#[derive(Debug)]
pub(crate) struct Load<'e> {
    /// What variants call it.
    pub(crate) name: &'e Name,
    series: Option<&'e str>,
    values: Vec<&'e str>,
    /// Whether it needs the network.
    pub(crate) network: bool,
}

impl<'e> Load<'e> {
    const fn new(name: &'e Name, network: bool) -> Self {
        Self {
            name,
            series: None,
            values: Vec::new(),
            network,
        }
    }

    fn series(self, series: &'e str) -> Self {
        Self {
            series: Some(series),
            ..self
        }
    }

    fn values(mut self, values: impl IntoIterator<Item = &'e str>) -> Self {
        self.values.extend(values);
        self
    }

    fn value(self, value: &'e str) -> Self {
        self.values([value])
    }

    /// The series that the experiment names, or else the value.
    pub(crate) fn figure(&self) -> &'e str {
        let value = self.values.first().copied();
        self.series.or(value).unwrap_or_default()
    }
}

impl LabExperiment {
    /// All loads.
    pub(crate) fn loads(&self) -> Vec<Load<'_>> {
        let on_network = |name| Load::new(name, true);
        let mut all = Vec::new();
        all.extend(
            self.query
                .iter()
                .map(|it| on_network(&it.name).series(&it.series)),
        );
        all.extend(
            self.bulk
                .iter()
                .map(|it| on_network(&it.name).value(&it.value)),
        );
        all.extend(
            self.ping
                .iter()
                .map(|it| on_network(&it.name).series(&it.series)),
        );
        for etc in &self.etc {
            all.push(on_network(&etc.name).series(&etc.series).value(&etc.value));
        }
        all.extend(
            self.shuffle
                .iter()
                .map(|it| on_network(&it.name).value(&it.value)),
        );
        for message in &self.message {
            let load = on_network(&message.name).series(&message.series);
            all.push(load.values(Message::VALUES.iter().copied()));
        }
        all.extend(
            self.flood
                .iter()
                .map(|it| on_network(&it.name).value(&it.value)),
        );
        for meter in &self.meter {
            let load = on_network(&meter.name).series(&meter.series);
            all.push(load.values(Meter::VALUES.iter().copied()));
        }
        for watch in &self.watch {
            let load = on_network(&watch.name).series(&watch.series);
            all.push(load.values(Watch::VALUES.iter().copied()));
        }
        let computing = |name| Load::new(name, false);
        for hog in &self.hog {
            all.push(
                computing(&hog.name)
                    .value(&hog.value)
                    .values(hog.cpu_value.as_deref()),
            );
        }
        all.extend(
            self.duty
                .iter()
                .map(|it| computing(&it.name).value(&it.value)),
        );
        for probe in &self.probe {
            all.push(
                computing(&probe.name)
                    .series(&probe.series)
                    .values(Probe::VALUES),
            );
        }
        all.extend(
            self.wakeup
                .iter()
                .map(|it| computing(&it.name).series(&it.series)),
        );
        all
    }

    /// A variant with the names of all that its loads measure.
    pub(crate) fn outline_of(&self, variant: &Variant) -> tailbound_report::Variant {
        let mut outline = tailbound_report::Variant {
            name: variant.name.get_ref().clone(),
            ..tailbound_report::Variant::default()
        };
        for load in self.loads().iter().filter(|load| variant.runs(load.name)) {
            let series = load.series.map(|name| (name.to_owned(), Series::default()));
            outline.series.extend(series);
            let values = load.values.iter();
            let values = values.map(|name| ((*name).to_owned(), Value::default()));
            outline.values.extend(values);
        }
        outline
    }
}
