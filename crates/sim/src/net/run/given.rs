//! Given networks: what the calculus says, what is seen, and what counting
//! bursts alone would say.

use super::{failed, value, variant};
use crate::SimError;
use crate::net::calc::{Calc, Observed, as_f64, data, delay, tightness};
use crate::net::experiment::GivenNetwork;
use crate::net::search::Search;
use crate::net::{Pattern, Time};
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;
use std::collections::BTreeMap;
use tailbound_netcalc::{ArrivalCurve, Bound, Flow, Network, Overflow, Ratio, TokenBucket};
use tailbound_report::Variant;
use tailbound_units::{Bytes, Rate};

/// Nanobits in a byte.
const NANOBITS_PER_BYTE: f64 = 8e9;

/// A network that is given: computed and simulated.
pub(super) fn given(given: &GivenNetwork, file: &str, seed: u64) -> Result<Variant, SimError> {
    let name = given.name.get_ref();
    let fail = failed(name);
    let read = given.read(file).map_err(|problem| fail(problem.message))?;
    let network = read.network();
    let calc = Calc::new(network).map_err(|error| fail(error.to_string()))?;
    let mut ports = network.ports().iter();
    let port = ports.position(|port| port.name == *given.port.get_ref());
    let port = port.ok_or_else(|| fail("its port is gone".to_owned()))?;
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    let observed = Search::new(&calc, &|_| {}, &mut random).all(given.effort);
    let starts = vec![Time::ZERO; network.flows().len()];
    // The same with the buffers of the file.
    let mut lossy = calc.fabric(&starts, Pattern::Greedy, true).start(seed);
    lossy.run(Time::NEVER, &mut ());
    let lost: u64 = lossy.ports().map(|port| port.dropped[0].frames).sum();
    let figures = figures(&calc, &observed, port).map_err(|error| fail(error.to_string()))?;
    let mut variant = variant(
        name,
        [
            ("backlog_bursts_only", figures.bursts_only, "B"),
            ("backlog_bound_fluid", figures.fluid, "B"),
            ("backlog_bound", figures.bound, "B"),
            ("backlog_simulated", figures.seen, "B"),
            (
                "backlog_tightness",
                100.0 * figures.seen / figures.bound,
                "%",
            ),
            ("over_bursts_only", figures.seen - figures.bursts_only, "B"),
            ("delay_bound", figures.delay_bound, "ns"),
            ("delay_simulated", figures.delay_seen, "ns"),
            ("delay_tightness", 100.0 * figures.delay_tightness, "%"),
            ("violations", figures.violations as f64, ""),
            ("lost_with_buffers", lost as f64, ""),
        ],
    );
    if let Some(buffer) = network.ports()[port].buffer {
        variant
            .values
            .insert("buffer".to_owned(), value(buffer.0 as f64, "B"));
    }
    Ok(variant)
}

/// What is told of a network: bytes, nanoseconds, parts of a bound.
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
    // Traffic as a fluid: what remains are the bursts and the averages.
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
    // It has bounds as the network of frames has them.
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

/// What Silo's example counts (4.2.1): the bursts, as fast as each link before
/// the port brings those that come over it, and nothing of the averages.
fn bursts_only(network: &Network, port: usize) -> Result<Ratio, Overflow> {
    // By the link before the port; of senders at the port itself each for itself.
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
