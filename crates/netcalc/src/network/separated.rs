//! Separated flow analysis: the servers of one flow along its path.

use super::total::{Hop, PARTS};
use super::{Flow, FlowBounds, Network};
use crate::bound::Bound;
use crate::ratio::{Overflow, Ratio};
use crate::service::{RateLatency, ServiceCurve};

/// Service of a port for the flow: the rate R - r after θ* = T + b/R, from a server (R, T) with
/// cross traffic (r, b).
struct LeftOver {
    rate: Ratio,
    server: Ratio,
    /// The flow's burst as this server sees it: its excess over the rate.
    burst: Ratio,
}

/// Computes a flow's bounds from each port of its path.
///
/// Servers behind each other are one server, so the flow's burst counts once. The distribution of
/// the burst over the ports is free: at port `i` any θ >= θ*(i) has a service curve that waits
/// until θ, serves R·(θ - θ*) instantly and continues with the rate R - r (see
/// [`ServiceCurve::left_over_fifo`]). A path of them serves a burst within
///
/// `Σ θ*(i) + D + Σ max(0, b(i) - D·(R(i) - r(i))) / R(i)` for every D >= 0,
///
/// with the flow's excess b(i) over R(i) - r(i). D = max b(i) / (R(i) - r(i)) is the textbook's
/// choice of θ = θ* everywhere. D = 0 is the delay of all queues, with the flow's original burst.
/// The optimum is between them, at the D for which the sum of (R(i) - r(i)) / R(i) over the ports
/// with a remaining part passes 1. (The choice of θ by optimisation: Lenzini, Mingozzi, Stea, "A
/// methodology for computing end-to-end delay bounds in FIFO-multiplexing tandems", Performance
/// Evaluation 2008.)
pub(super) fn bounds(network: &Network, flow: &Flow, hops: &[Hop]) -> Result<FlowBounds, Overflow> {
    let source = flow.curve(network.frame)?;
    let mut total_delay = Ratio::ZERO;
    let mut latency = Ratio::ZERO;
    let mut servers = Vec::with_capacity(hops.len());
    for hop in hops {
        total_delay = total_delay.plus(hop.delay)?;
        let theta = (hop.service.offset.plus(hop.cross.burst)?).over(hop.service.rate)?;
        latency = latency.plus(theta.round_up(PARTS)?)?;
        let rate = hop.service.rate.minus(hop.cross.rate)?;
        let Bound::Finite(burst) = source.excess(rate)? else {
            // Not where the ports are stable: what is left is at least the
            // flow's own rate.
            return Err(Overflow);
        };
        servers.push(LeftOver {
            rate,
            server: hop.service.rate,
            burst,
        });
    }
    let separated_delay = latency.plus(burst_delay(&servers)?)?;
    let slowest = servers.iter().map(|server| server.rate).min();
    let whole_path = RateLatency {
        rate: slowest.unwrap_or(Ratio::ZERO),
        offset: slowest.unwrap_or(Ratio::ZERO).times(latency)?,
    };
    let separated_backlog = source.backlog(&ServiceCurve::greatest(vec![whole_path])?)?;
    let total_backlog = source.at(total_delay)?;
    let separated_backlog = separated_backlog.finite().ok_or(Overflow)?;
    Ok(FlowBounds {
        total_delay,
        total_backlog,
        separated_delay,
        separated_backlog,
        concatenated_delay: total_delay.min(separated_delay),
        concatenated_backlog: total_backlog.min(separated_backlog),
    })
}

/// Returns the least over D of `D + Σ max(0, b - D·(R - r)) / R`.
///
/// Every D is a bound, so the search for the least one may round slopes. Both ends are tried as
/// well.
fn burst_delay(servers: &[LeftOver]) -> Result<Ratio, Overflow> {
    /// Slopes are counted in these parts of 1.
    const ONE: i128 = 1 << 32;
    let mut turns = Vec::with_capacity(servers.len());
    for server in servers {
        let slope = (server.rate.times(Ratio::whole(ONE))?.over(server.server)?).ceil();
        let turn = server.burst.over(server.rate)?.round_up(PARTS)?;
        turns.push((turn, slope));
    }
    turns.sort_by(|a, b| b.cmp(a));
    let longest = turns.first().map_or(Ratio::ZERO, |(turn, _)| *turn);
    let mut slope = 0;
    let mut best = Ratio::ZERO;
    for (turn, part) in turns {
        slope += part;
        if slope > ONE {
            best = turn;
            break;
        }
    }
    let mut least = None;
    for choice in [longest, best, Ratio::ZERO] {
        let delay = burst_delay_at(servers, choice)?;
        least = Some(least.map_or(delay, |least: Ratio| least.min(delay)));
    }
    Ok(least.unwrap_or(Ratio::ZERO))
}

fn burst_delay_at(servers: &[LeftOver], choice: Ratio) -> Result<Ratio, Overflow> {
    let mut delay = choice;
    for server in servers {
        let rest = server.burst.minus(choice.times(server.rate)?)?;
        if rest > Ratio::ZERO {
            delay = delay.plus(rest.over(server.server)?.round_up(PARTS)?)?;
        }
    }
    Ok(delay)
}
