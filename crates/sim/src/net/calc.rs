//! Networks of the calculus in the simulator, and the comparison of measurements with bounds.

use super::{
    CLASSES, Envelope, Fabric, FabricRun, FlowConfig, Pattern, PortConfig, SourceConfig, Time, Wire,
};
use std::fmt;
use tailbound_netcalc::{Bounds, Network, NetworkError, Overflow, Ratio};
use tailbound_units::{Bytes, Nanos};

/// Reason for which a network cannot be simulated and compared with its bounds.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CalcError {
    /// The network has no bounds.
    #[error(transparent)]
    Network(#[from] NetworkError),
    /// The bounds overflow.
    #[error(transparent)]
    Overflow(#[from] Overflow),
    /// A byte does not take a whole number of picoseconds, so the simulator would round, and the
    /// comparison would not be exact.
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
    /// Traffic is a fluid, or a frame is longer than the simulator supports.
    #[error("the simulator sends whole frames: `frame` is {0}, use 1B to 1MB")]
    Frame(Bytes),
    /// The network has more priorities than a port has queues.
    #[error("the flows have {0} priorities; the simulator's ports have {CLASSES} queues")]
    Priorities(usize),
}

/// A network with its bounds, ready to be simulated.
#[derive(Debug)]
pub struct Calc<'n> {
    network: &'n Network,
    bounds: Bounds,
    /// Class of each flow: the index of its priority among those in use.
    classes: Vec<u8>,
    priorities: Vec<u8>,
    /// Time of a simulation after the last sender has begun.
    horizon: Time,
}

/// Largest measured values of any number of runs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Observed {
    /// Longest delay of each flow.
    pub delays: Vec<Time>,
    /// Largest backlog of each port for all classes, in picobits.
    pub backlogs: Vec<u128>,
    /// Largest backlog of each port and class, in picobits.
    pub class_backlogs: Vec<[u128; CLASSES]>,
    /// Number of events in all runs.
    pub events: u64,
}

impl Observed {
    /// Adds the measurements of a run.
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

/// A measurement above its bound: the bound, or the simulator, is wrong.
#[derive(Debug, Clone, PartialEq)]
pub struct Violation {
    /// Name of the measurement.
    pub what: String,
    /// Measured value, in nanoseconds or nanobits.
    pub seen: Ratio,
    /// The bound that it exceeds.
    pub bound: Ratio,
}

impl fmt::Display for Violation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seen, bound) = (as_f64(self.seen), as_f64(self.bound));
        write!(formatter, "{}: {seen} is more than {bound}", self.what)
    }
}

/// Ratio of a measurement to its bound, 1 being all of it.
pub(crate) fn tightness(seen: Ratio, bound: Ratio) -> f64 {
    as_f64(seen) / as_f64(bound)
}

pub(crate) fn as_f64(ratio: Ratio) -> f64 {
    ratio.numerator() as f64 / ratio.denominator() as f64
}

/// Returns a delay in nanoseconds, exactly.
pub(crate) fn delay(time: Time) -> Result<Ratio, Overflow> {
    Ratio::new(time.0.into(), 1_000)
}

/// Returns an amount of data in nanobits, exactly.
pub(crate) fn data(picobits: u128) -> Result<Ratio, Overflow> {
    Ratio::new(i128::try_from(picobits).map_err(|_| Overflow)?, 1_000)
}

impl<'n> Calc<'n> {
    /// Computes the bounds.
    ///
    /// # Errors
    /// The network has no bounds, or the simulator cannot run it exactly.
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

    /// Returns the sending time of the longest burst plus the longest delay: after that no queue
    /// can become longer than before.
    fn horizon_of_all(&self) -> Result<Time, Overflow> {
        let mut longest = Nanos::ZERO;
        for (flow, bounds) in self.network.flows().iter().zip(&self.bounds.flows) {
            // Without a burst rate above the average there is no burst.
            let fast = flow.burst_rate.filter(|fast| *fast > flow.rate);
            let burst = fast.map_or(Nanos::ZERO, |fast| {
                tailbound_units::Rate(fast.0 - flow.rate.0).time_for(flow.burst)
            });
            longest = longest.max(bounds.delay().to_nanos()?.saturating_add(burst));
        }
        Ok(longest.into())
    }

    /// Returns the network.
    pub fn network(&self) -> &'n Network {
        self.network
    }

    /// Returns its bounds.
    pub fn bounds(&self) -> &Bounds {
        &self.bounds
    }

    /// Time of a simulation after the last sender has begun.
    pub fn horizon(&self) -> Time {
        self.horizon
    }

    /// Returns the network to simulate. `starts` has the time at which each sender begins; without
    /// `buffers` no frame is dropped.
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

    /// Returns all violations: delays compared with the bounds of both analyses, backlogs of each
    /// class and of all classes.
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
