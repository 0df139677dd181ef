//! Networks of the calculus in the simulator: what happens, against what never
//! should.

use super::{
    CLASSES, Envelope, Fabric, FabricRun, FlowConfig, Pattern, PortConfig, SourceConfig, Time, Wire,
};
use std::fmt;
use tailbound_netcalc::{Bounds, Network, NetworkError, Overflow, Ratio};
use tailbound_units::{Bytes, Nanos};

/// Why a network cannot be simulated and held against its bounds.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CalcError {
    /// It has no bounds.
    #[error(transparent)]
    Network(#[from] NetworkError),
    /// Its bounds are too long to be compared with.
    #[error(transparent)]
    Overflow(#[from] Overflow),
    /// A byte does not take a whole number of picoseconds, so the simulator
    /// would round, and could not say for certain what is too late.
    #[error(
        "port {port:?}: at {rate} a byte takes no whole number of picoseconds; use a rate that \
         divides 8 Tbit/s, as those of Ethernet do"
    )]
    Rate {
        /// The port.
        port: String,
        /// Its rate.
        rate: tailbound_units::Rate,
    },
    /// Traffic is a fluid, or a frame is longer than what the simulator takes.
    #[error("the simulator sends whole frames: `frame` is {0}, use 1B to 1MB")]
    Frame(Bytes),
    /// More priorities than a port has queues.
    #[error("the flows have {0} priorities; the simulator's ports have {CLASSES} queues")]
    Priorities(usize),
}

/// A network with its bounds, ready to be simulated.
#[derive(Debug)]
pub struct Calc<'n> {
    network: &'n Network,
    bounds: Bounds,
    /// Each flow's class: its priority's place among those that are used.
    classes: Vec<u8>,
    priorities: Vec<u8>,
    /// How long a simulation goes on after the last sender has begun.
    horizon: Time,
}

/// The most that was seen, over any number of runs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Observed {
    /// Of each flow the longest delay.
    pub delays: Vec<Time>,
    /// Of each port the largest backlog of all classes, in picobits,
    pub backlogs: Vec<u128>,
    /// and of each class.
    pub class_backlogs: Vec<[u128; CLASSES]>,
    /// Events in all.
    pub events: u64,
}

impl Observed {
    /// Adds what a run saw.
    pub fn add(&mut self, run: &FabricRun) {
        self.delays.resize(run.flows().len(), Time::ZERO);
        for (most, flow) in self.delays.iter_mut().zip(run.flows()) {
            *most = (*most).max(flow.longest);
        }
        self.backlogs.resize(run.ports().count(), 0);
        self.class_backlogs
            .resize(run.ports().count(), [0; CLASSES]);
        for (index, port) in run.ports().enumerate() {
            self.backlogs[index] = self.backlogs[index].max(port.peak_of_all);
            for (most, peak) in self.class_backlogs[index].iter_mut().zip(port.peak) {
                *most = (*most).max(peak);
            }
        }
        self.events += run.events();
    }
}

/// Something that was more than its bound: the bound, or the simulator, is wrong.
#[derive(Debug, Clone, PartialEq)]
pub struct Violation {
    /// What, by name.
    pub what: String,
    /// What was seen: nanoseconds or nanobits.
    pub seen: Ratio,
    /// What should be the most.
    pub bound: Ratio,
}

impl fmt::Display for Violation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seen, bound) = (as_f64(self.seen), as_f64(self.bound));
        write!(formatter, "{}: {seen} is more than {bound}", self.what)
    }
}

/// How much of a bound was reached, 1 being all of it.
pub(crate) fn tightness(seen: Ratio, bound: Ratio) -> f64 {
    as_f64(seen) / as_f64(bound)
}

pub(crate) fn as_f64(ratio: Ratio) -> f64 {
    ratio.numerator() as f64 / ratio.denominator() as f64
}

/// A delay in nanoseconds, exactly.
pub(crate) fn delay(time: Time) -> Result<Ratio, Overflow> {
    Ratio::new(time.0.into(), 1_000)
}

/// An amount of data in nanobits, exactly.
pub(crate) fn data(picobits: u128) -> Result<Ratio, Overflow> {
    Ratio::new(i128::try_from(picobits).map_err(|_| Overflow)?, 1_000)
}

impl<'n> Calc<'n> {
    /// Computes the bounds.
    ///
    /// # Errors
    /// There are none, or the network is not one that the simulator can run
    /// exactly.
    pub fn new(network: &'n Network) -> Result<Self, CalcError> {
        let frame = network.frame();
        if frame == Bytes::ZERO || frame > Bytes(1_000_000) {
            return Err(CalcError::Frame(frame));
        }
        if let Some(port) = network.ports().iter().find(|it| !Wire::is_whole(it.rate)) {
            return Err(CalcError::Rate {
                port: port.name.clone(),
                rate: port.rate,
            });
        }
        let mut priorities: Vec<u8> = network.flows().iter().map(|it| it.priority).collect();
        priorities.sort_unstable();
        priorities.dedup();
        if priorities.len() > CLASSES {
            return Err(CalcError::Priorities(priorities.len()));
        }
        let class = |priority: u8| priorities.partition_point(|it| *it < priority) as u8;
        let classes = network
            .flows()
            .iter()
            .map(|it| class(it.priority))
            .collect();
        let bounds = network.bounds()?;
        let mut calc = Self {
            network,
            bounds,
            classes,
            priorities,
            horizon: Time::ZERO,
        };
        calc.horizon = calc.horizon_of_all()?;
        Ok(calc)
    }

    /// As long as the longest burst takes to be sent, and the longest delay:
    /// after that no queue can become longer than it has been.
    fn horizon_of_all(&self) -> Result<Time, Overflow> {
        let mut longest = Nanos::ZERO;
        for (flow, bounds) in self.network.flows().iter().zip(&self.bounds.flows) {
            // At a burst rate that is the average there is no burst.
            let fast = flow.burst_rate.filter(|fast| *fast > flow.rate);
            let burst = fast.map_or(Nanos::ZERO, |fast| {
                tailbound_units::Rate(fast.0 - flow.rate.0).time_for(flow.burst)
            });
            longest = longest.max(bounds.delay().to_nanos()?.saturating_add(burst));
        }
        Ok(longest.into())
    }

    /// The network.
    pub fn network(&self) -> &'n Network {
        self.network
    }

    /// Its bounds.
    pub fn bounds(&self) -> &Bounds {
        &self.bounds
    }

    /// How long a simulation goes on after the last sender has begun.
    pub fn horizon(&self) -> Time {
        self.horizon
    }

    /// The network to be simulated. `starts` says when each sender begins;
    /// without `buffers` no frame is ever lost.
    pub fn fabric(&self, starts: &[Time], pattern: Pattern, buffers: bool) -> Fabric {
        let last = starts.iter().copied().max().unwrap_or_default();
        let ports = self.network.ports().iter().map(|port| PortConfig {
            rate: port.rate,
            latency: port.latency,
            propagation: Nanos::ZERO,
            buffer: [port.buffer.filter(|_| buffers); CLASSES],
        });
        let flows = self.network.flows().iter().enumerate();
        let flows = flows.map(|(index, flow)| FlowConfig {
            source: SourceConfig {
                envelope: Envelope {
                    rate: flow.rate,
                    burst: flow.burst,
                    burst_rate: flow.burst_rate,
                    frame: self.network.frame(),
                },
                pattern,
                start: starts[index],
                stop: last + self.horizon,
                class: self.classes[index],
            },
            path: flow.path.iter().map(|port| port.index()).collect(),
        });
        Fabric {
            ports: ports.collect(),
            flows: flows.collect(),
        }
    }

    /// All that was more than it should be: delays against the bounds of both
    /// analyses, backlogs of each class and of all.
    pub fn violations(&self, observed: &Observed) -> Result<Vec<Violation>, Overflow> {
        let mut all = Vec::new();
        let mut compare = |seen: Ratio, bound: Ratio, what: &dyn Fn() -> String| {
            if seen > bound {
                all.push(Violation {
                    what: what(),
                    seen,
                    bound,
                });
            }
        };
        for (index, flow) in self.network.flows().iter().enumerate() {
            let seen = delay(observed.delays[index])?;
            let bounds = &self.bounds.flows[index];
            let what = |by: &str| format!("delay of flow {} by {by}, ns", flow.name);
            compare(seen, bounds.total_delay, &|| what("TFA"));
            compare(seen, bounds.separated_delay, &|| what("SFA"));
        }
        for (index, port) in self.network.ports().iter().enumerate() {
            let bounds = &self.bounds.ports[index];
            let name = &port.name;
            let what = || format!("backlog at port {name}, nanobits");
            compare(data(observed.backlogs[index])?, bounds.backlog, &what);
            for class in &bounds.classes {
                let place = self.priorities.partition_point(|it| *it < class.priority);
                let seen = data(observed.class_backlogs[index][place])?;
                let what = || {
                    format!(
                        "backlog of priority {} at port {name}, nanobits",
                        class.priority
                    )
                };
                compare(seen, class.backlog, &what);
            }
        }
        Ok(all)
    }
}
