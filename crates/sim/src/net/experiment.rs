//! An experiment as data: what its TOML file says, checked.

use super::admitted::Admitted;
use super::random::RandomNetworks;
use super::search::Effort;
use super::{CLASSES, Wire};
use crate::vcpu::experiment::{Name, Problem, find_text, invalid, plain, problem, unique};
use crate::{Check, ExperimentError};
use serde::Deserialize;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use tailbound_netcalc::NetworkFile;
use tailbound_placement::UplinkSpec;
use tailbound_units::{Bytes, Nanos, Rate};

/// An experiment: one of its three kinds, and what is expected of it.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// Names the result files.
    pub name: Name,
    /// What it shows, in one line.
    pub title: String,
    /// Paper and section.
    pub source: String,
    /// Given networks, each a variant.
    #[serde(default)]
    pub network: Vec<GivenNetwork>,
    /// Random networks, all of them one variant: `networks`.
    pub random: Option<RandomNetworks>,
    /// Data centres with tenants; each policy is a variant.
    pub admitted: Option<Admitted>,
    /// What is expected.
    #[serde(default)]
    pub check: Vec<Check>,
}

/// A network to be simulated and held against its bounds.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GivenNetwork {
    /// The variant.
    pub name: Name,
    /// A file as `tailbound calc` reads it, found from where the experiment is; or
    /// the name of one that comes with the program.
    pub file: Name,
    /// The port that is looked at.
    pub port: Name,
    /// How much is tried to find the worst timing.
    pub effort: Effort,
}

macro_rules! embedded {
    ($folder:literal: $($name:literal),* $(,)?) => {
        &[$((
            $name,
            include_str!(concat!("../../../../experiments/", $folder, "/", $name, ".toml")),
        )),*]
    };
}

/// The experiments that come with the program, name and text.
pub const EMBEDDED: &[(&str, &str)] =
    embedded!["net": "silo-figure5", "admitted-bursts", "random-networks"];

/// The networks that they name: the very files that `tailbound calc` reads.
const NETWORKS: &[(&str, &str)] = embedded!["networks": "silo-figure-5a", "silo-figure-5b"];

/// The text of an experiment: one that comes with the program by its name, else
/// a file. The second of the pair names it in messages.
///
/// # Errors
/// There is neither.
pub fn source_text(name_or_path: &str) -> Result<(String, String), ExperimentError> {
    find_text(EMBEDDED, "experiments/net", name_or_path)
}

impl GivenNetwork {
    /// Reads the network. `file` is that of the experiment.
    pub(super) fn read(&self, file: &str) -> Result<NetworkFile, Problem> {
        let wanted = self.file.get_ref();
        let known = NETWORKS.iter().find(|(name, _)| name == wanted);
        let (path, read) = if let Some((_, text)) = known {
            let path = PathBuf::from(format!("experiments/networks/{wanted}.toml"));
            let read = NetworkFile::parse((*text).to_owned(), &path);
            (path, read)
        } else {
            let folder = Path::new(file).parent().unwrap_or(Path::new(""));
            let path = folder.join(wanted);
            let read = NetworkFile::load(&path);
            (path, read)
        };
        let read = read.map_err(|error| problem(&self.file, error.to_string()))?;
        let mut ports = read.network().ports().iter();
        if ports.any(|port| port.name == *self.port.get_ref()) {
            return Ok(read);
        }
        Err(problem(
            &self.port,
            format!(
                "there is no port {:?} in {}",
                self.port.get_ref(),
                path.display()
            ),
        ))
    }
}

impl Experiment {
    /// Reads and checks an experiment. `file` is for messages, and says where
    /// its networks are.
    ///
    /// # Errors
    /// The first thing that is wrong, with its place.
    pub fn parse(text: &str, file: &str) -> Result<Self, ExperimentError> {
        let experiment: Self =
            toml::from_str(text).map_err(|error| ExperimentError::from_toml(text, file, &error))?;
        experiment
            .validate(file)
            .map_err(|problem| invalid(text, file, problem))?;
        Ok(experiment)
    }

    fn validate(&self, file: &str) -> Result<(), Problem> {
        plain(&self.name)?;
        let kinds = usize::from(!self.network.is_empty())
            + usize::from(self.random.is_some())
            + usize::from(self.admitted.is_some());
        let wrong = |message: String| Err(problem(&self.name, message));
        if kinds != 1 {
            return wrong(format!(
                "has {kinds} kinds of networks: write one of [[network]], [random], [admitted]"
            ));
        }
        let mut seen = BTreeSet::new();
        for network in &self.network {
            plain(&network.name)?;
            unique(&mut seen, &network.name, "network")?;
            network.read(file)?;
        }
        let mut seen = BTreeSet::new();
        for check in &self.check {
            plain(&check.name)?;
            unique(&mut seen, &check.name, "check")?;
            if check.at_least.is_none() && check.at_most.is_none() {
                return Err(problem(&check.name, "needs at_least or at_most, or both"));
            }
        }
        let mistake = match (&self.random, &self.admitted) {
            (Some(random), _) => random.mistake(),
            (_, Some(admitted)) => admitted.mistake(),
            _ => None,
        };
        mistake.map_or(Ok(()), wrong)
    }
}

/// The first of these that is not between its bounds.
pub(crate) fn out_of(ranges: &[(&str, u64, u64, u64)]) -> Option<String> {
    let wrong = ranges
        .iter()
        .find(|(_, got, least, most)| !(least..=most).contains(&got));
    wrong.map(|(what, got, least, most)| format!("{what} {got}: choose {least} to {most}"))
}

const LONGEST_FRAME: u64 = 65_536;

impl RandomNetworks {
    fn mistake(&self) -> Option<String> {
        let (ports, flows) = (self.ports, self.flows);
        let wrong = out_of(&[
            ("networks", self.networks.into(), 1, 10_000_000),
            ("ports", ports.0.into(), 1, ports.1.into()),
            ("ports", ports.1.into(), 1, 64),
            ("flows", flows.0.into(), 1, flows.1.into()),
            ("flows", flows.1.into(), 1, 256),
            ("burst_frames", self.burst_frames, 1, 1_000),
            ("load", self.load.into(), 1, 100),
            ("two_priorities", self.two_priorities.into(), 0, 100),
            ("frames: number", self.frames.len() as u64, 1, 100),
            ("rates: number", self.rates.len() as u64, 1, 100),
            ("effort: meetings", self.effort.meetings.into(), 0, 1_000),
            ("effort: chances", self.effort.chances.into(), 0, 1_000),
        ]);
        let frame = |frame: &Bytes| out_of(&[("frames: a length of", frame.0, 1, LONGEST_FRAME)]);
        wrong
            .or_else(|| self.frames.iter().find_map(frame))
            .or_else(|| self.rates.iter().copied().find_map(inexact))
    }
}

/// Why a link's rate cannot be simulated exactly.
fn inexact(rate: Rate) -> Option<String> {
    (!Wire::is_whole(rate) || rate < Rate::from_mbit(1)).then(|| {
        format!("a rate of {rate}: choose one of at least 1Mbit/s that divides 8000Gbit/s")
    })
}

impl Admitted {
    fn mistake(&self) -> Option<String> {
        let hosts = u64::from(self.pods) * u64::from(self.racks) * u64::from(self.hosts);
        let wrong = out_of(&[
            ("centres", self.centres.into(), 1, 10_000),
            ("pods", self.pods.into(), 1, 100),
            ("racks", self.racks.into(), 1, 100),
            ("hosts", self.hosts.into(), 1, 1_000),
            ("hosts in all", hosts, 2, 10_000),
            ("slots", self.slots.into(), 1, 1_000),
            ("mean_vms", self.mean_vms.into(), 1, 10_000),
            ("refusals", self.refusals.into(), 1, 10_000),
            ("aims", self.aims.into(), 0, 10_000),
            ("shuffles", self.shuffles.into(), 0, 10_000),
            ("frame", self.frame.0, 84, LONGEST_FRAME),
            ("time: nanoseconds", self.time.0, 1, Nanos::from_secs(10).0),
            ("class: number", self.class.len() as u64, 1, 100),
        ]);
        let weights: u64 = self.class.iter().map(|class| u64::from(class.weight)).sum();
        let links = [&self.host_link, &self.rack_link, &self.pod_link];
        let parallel = |link: &&UplinkSpec| out_of(&[("links", link.links.into(), 1, 1)]);
        wrong
            .or_else(|| out_of(&[("class: weights in all", weights, 1, u32::MAX.into())]))
            .or_else(|| links.iter().find_map(parallel))
            .or_else(|| links.iter().find_map(|link| inexact(link.rate)))
            .or_else(|| self.topology().err().map(|error| error.to_string()))
    }
}

// Both kinds of experiments tell guarantees and best effort apart.
const _: () = assert!(CLASSES == 2);
