//! Given networks: bounds of the calculus, measurements, and the sum of bursts alone.

use super::calc::{Calc, Observed, as_f64, data, delay, tightness};
use super::search::{Effort, Search};
use super::{Pattern, Time};
use crate::Threads;
use crate::scenario::Scenario;
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use tailbound_experiment::{
    Catalogue, ExperimentError, Mistakes, Name, Run, RunOutput, Section, catalogue,
};
use tailbound_netcalc::{
    ArrivalCurve, Bound, Flow, Network, NetworkFile, Overflow, Ratio, TokenBucket,
};
use tailbound_report::{Value, Variant};
use tailbound_units::{Bytes, Rate};

/// Nanobits in a byte.
const NANOBITS_PER_BYTE: f64 = 8e9;

/// Networks that embedded experiments name: the same files that `tailbound calc` reads.
const NETWORKS: Catalogue = catalogue!("experiments/networks": "silo-figure-5a", "silo-figure-5b");

/// A network to compare with bounds.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GivenNetwork {
    /// Name of the variant.
    pub name: Name,
    /// A file of `tailbound calc`, relative to the experiment; or an embedded one's name.
    pub file: Name,
    /// Port.
    pub port: Name,
    /// Search for the worst timing.
    pub effort: Effort,
    /// The network in the file and the position of the port in it, once the file was read.
    #[serde(skip)]
    loaded: Option<(Network, usize)>,
}

impl GivenNetwork {
    /// Reads the network. `file` is the path of the experiment.
    pub(super) fn load(&mut self, file: &str, mistakes: &mut Mistakes) {
        let wanted = self.file.get_ref();
        let mut embedded = NETWORKS.embedded.iter();
        let (path, read) = if let Some((name, text)) = embedded.find(|(name, _)| name == wanted) {
            let path = PathBuf::from(format!("{}/{name}.toml", NETWORKS.folder));
            let read = NetworkFile::parse((*text).to_owned(), &path);
            (path, read)
        } else {
            let folder = Path::new(file).parent().unwrap_or(Path::new(""));
            let path = folder.join(wanted);
            let read = NetworkFile::load(&path);
            (path, read)
        };
        let network = match read {
            Ok(read) => read.network().clone(),
            Err(error) => return mistakes.at(&self.file, error.to_string()),
        };
        let port = self.port.get_ref();
        if let Some(place) = network.ports().iter().position(|it| it.name == *port) {
            self.loaded = Some((network, place));
        } else {
            let message = format!("there is no port {port:?} in {}", path.display());
            mistakes.at(&self.port, message);
        }
    }

    /// Returns the network as text.
    pub(super) fn input(&self) -> String {
        format!("{:?}", self.loaded)
    }

    /// Computes the bounds and simulates the network.
    fn measure(&self, seed: u64) -> Result<Variant, ExperimentError> {
        let name = self.name.get_ref();
        let fail = |error: &dyn std::error::Error| ExperimentError::run(name, error);
        let loaded = self.loaded.as_ref();
        let (network, port) = loaded.expect("networks are read when an experiment is checked");
        let calc = Calc::new(network).map_err(|error| fail(&error))?;
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let observed = Search::new(&calc, &|_| {}, &mut random).all(self.effort);
        let starts = vec![Time::ZERO; network.flows().len()];
        // The same run with the buffers of the file.
        let mut lossy = calc.fabric(&starts, Pattern::Greedy, true).start(seed);
        lossy.run(Time::NEVER, &mut ());
        let lost: u64 = lossy.ports().map(|port| port.dropped[0].frames).sum();
        let figures = figures(&calc, &observed, *port).map_err(|error| fail(&error))?;
        Ok(self.variant(&figures, lost))
    }

    fn variant(&self, figures: &Figures, lost: u64) -> Variant {
        let tightness = 100.0 * figures.seen / figures.bound;
        let mut variant = Variant::of_values(
            self.name.get_ref(),
            [
                ("backlog_bursts_only", figures.bursts_only, "B"),
                ("backlog_bound_fluid", figures.fluid, "B"),
                ("backlog_bound", figures.bound, "B"),
                ("backlog_simulated", figures.seen, "B"),
                ("backlog_tightness", tightness, "%"),
                ("over_bursts_only", figures.seen - figures.bursts_only, "B"),
                ("delay_bound", figures.delay_bound, "ns"),
                ("delay_simulated", figures.delay_seen, "ns"),
                ("delay_tightness", 100.0 * figures.delay_tightness, "%"),
                ("violations", figures.violations as f64, ""),
                ("lost_with_buffers", lost as f64, ""),
            ],
        );
        let port = self
            .loaded
            .as_ref()
            .map(|(network, port)| &network.ports()[*port]);
        if let Some(buffer) = port.and_then(|port| port.buffer) {
            let buffer = Value::new("B", buffer.0 as f64);
            variant.values.insert("buffer".to_owned(), buffer);
        }
        variant
    }
}

impl Scenario for Vec<GivenNetwork> {
    fn check(&self, _: &mut Section<'_>) {}

    fn outline(&self) -> Vec<Variant> {
        let nothing = Figures::default();
        self.iter()
            .map(|network| network.variant(&nothing, 0))
            .collect()
    }

    fn run(&self, run: &mut Run<'_, Threads>) -> Result<RunOutput, ExperimentError> {
        let mut found = RunOutput::default();
        for (done, network) in self.iter().enumerate() {
            (run.progress)(&format!("{done} of {}", self.len()));
            found.variants.push(network.measure(run.seed)?);
        }
        Ok(found)
    }
}

/// Reported values of a network: bytes, nanoseconds, parts of a bound.
#[derive(Default)]
struct Figures {
    bursts_only: f64,
    fluid: f64,
    bound: f64,
    seen: f64,
    delay_bound: f64,
    delay_seen: f64,
    delay_tightness: f64,
    violations: usize,
}

fn figures(calc: &Calc<'_>, observed: &Observed, port: usize) -> Result<Figures, Overflow> {
    let (network, bounds) = (calc.network(), calc.bounds());
    let bytes = |data: Ratio| as_f64(data) / NANOBITS_PER_BYTE;
    let mut longest = (Ratio::ZERO, Ratio::ZERO);
    let mut delay_tightness = 0.0_f64;
    for (seen, bounds) in observed.delays.iter().zip(&bounds.flows) {
        let seen = delay(*seen)?;
        longest = (longest.0.max(bounds.delay()), longest.1.max(seen));
        delay_tightness = delay_tightness.max(tightness(seen, bounds.delay()));
    }
    // Traffic as a fluid: bursts and averages remain.
    let mut fluid = Network::new(Bytes::ZERO, network.has_line_limit());
    let ports: Vec<_> = network
        .ports()
        .iter()
        .map(|it| fluid.add_port(it.clone()))
        .collect();
    for flow in network.flows() {
        let path = flow.path.iter().map(|port| ports[port.index()]).collect();
        fluid.add_flow(Flow {
            path,
            ..flow.clone()
        });
    }
    // The fluid network has bounds because the network of frames has them.
    let fluid = fluid.bounds().map_err(|_| Overflow)?.ports[port].backlog;
    Ok(Figures {
        bursts_only: bytes(bursts_only(network, port)?),
        fluid: bytes(fluid),
        bound: bytes(bounds.ports[port].backlog),
        seen: bytes(data(observed.backlogs[port])?),
        delay_bound: as_f64(longest.0),
        delay_seen: as_f64(longest.1),
        delay_tightness,
        violations: calc.violations(observed)?.len(),
    })
}

/// The sum in Silo's example (4.2.1): the bursts, as fast as each link before the port delivers
/// them, without the averages.
fn bursts_only(network: &Network, port: usize) -> Result<Ratio, Overflow> {
    // By the link before the port; senders at the port itself count separately.
    let mut links: BTreeMap<(Option<usize>, usize), (Option<Rate>, Ratio)> = BTreeMap::new();
    for (index, flow) in network.flows().iter().enumerate() {
        let Some(hop) = flow.path.iter().position(|it| it.index() == port) else {
            continue;
        };
        let (link, rate) = match hop.checked_sub(1).map(|before| flow.path[before]) {
            Some(before) => ((Some(before.index()), 0), Some(network.port(before).rate)),
            None => ((None, index), flow.burst_rate),
        };
        let (_, bursts) = links.entry(link).or_insert((rate, Ratio::ZERO));
        *bursts = bursts.plus(flow.burst.into())?;
    }
    let curve = |(rate, burst): (Option<Rate>, Ratio)| {
        let at_once = TokenBucket {
            rate: Ratio::ZERO,
            burst,
        };
        let link = rate.map(|rate| TokenBucket::new(rate, Bytes::ZERO));
        ArrivalCurve::least([at_once].into_iter().chain(link).collect())
    };
    let curves: Vec<_> = links.into_values().map(curve).collect::<Result<_, _>>()?;
    match ArrivalCurve::total(&curves)?.excess(network.ports()[port].rate.into())? {
        Bound::Finite(most) => Ok(most),
        Bound::Unbounded => Err(Overflow),
    }
}
