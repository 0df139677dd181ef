//! The frontier of guarantees that meet a question.

use crate::judge::{Judgement, is_judged, judge};
use crate::price::{Fabric, Price, Tuple};
use crate::question::Question;
use crate::sizing::{Choice, rates, round_up};
use crate::traffic::Traffic;
use std::cmp::Ordering;
use tailbound_placement::Request;
use tailbound_units::{Bytes, Nanos, Rate};

/// Bandwidths of the frontier, in percent of the busiest machine's average.
const BANDWIDTHS: [u64; 10] = [110, 130, 160, 200, 300, 400, 600, 1_000, 1_600, 2_500];
/// Delays of the network, in eighths of the time of the question.
const DELAYS: [u64; 4] = [2, 4, 6, 7];
/// Fewest messages of a recording: one to choose on, and one to judge on.
const LEAST_MESSAGES: usize = 2;

/// A guarantee that meets the question, with its price.
#[derive(Debug, Clone, PartialEq)]
pub struct Point {
    /// The guarantee of each machine.
    pub tuple: Tuple,
    /// The request of the tenant, as it was priced: with `S_in` only if that is cheaper.
    pub request: Request,
    /// The judgement of the second half of the messages.
    pub judgement: Judgement,
    /// Its price.
    pub price: Price,
    /// Price of the same {B, S, d} with Silo's rule: (N-1)·S may be on the way to each machine, at
    /// the rate of the links. `None` if no tenant has room with that.
    pub silo: Option<Price>,
}

/// Advice for a tenant.
#[derive(Debug, Clone, PartialEq)]
pub struct Advice {
    /// Number of messages on which the guarantees were chosen.
    pub chosen_on: usize,
    /// End of the part of the recording on which they were chosen.
    pub until: Nanos,
    /// Average rate of the busiest machine in that part.
    pub busiest: Rate,
    /// The guarantees in ascending order of bandwidth; at least one.
    points: Vec<Point>,
    best: usize,
}

/// Reason why there is no advice.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AdviseError {
    /// The recording has too few messages of the question's size.
    #[error(
        "the recording has {0} data messages of at most the size of the question: an advice needs \
         two, and is sure from {needed} on", needed = .1
    )]
    TooFew(usize, usize),
    /// A machine sends or receives more than any link carries.
    #[error("a machine has {mean} on average, and the fastest link {link}")]
    TooBusy {
        /// The average of the busiest machine.
        mean: Rate,
        /// Rate of the fastest link.
        link: Rate,
    },
    /// The data centre has no place for such a tenant.
    #[error("no guarantee for {question} has a place in this data centre: {reason}")]
    NoPlace {
        /// The question.
        question: Question,
        /// Reason of the last refusal.
        reason: String,
    },
}

impl Point {
    /// Compares two guarantees, the better one first: by verdict, price, certainty, and the bytes
    /// that may come to a machine within d.
    fn order(&self, other: &Self) -> Ordering {
        let bytes = |it: &Self| it.tuple.bandwidth.bytes_in(it.tuple.delay) + it.tuple.burst_in;
        let (one, two) = (&self.judgement, &other.judgement);
        (one.verdict.cmp(&two.verdict))
            .then(other.price.tenants.cmp(&self.price.tenants))
            .then(one.at_most.total_cmp(&two.at_most))
            .then(bytes(self).cmp(&bytes(other)))
    }
}

impl Advice {
    /// Returns the guarantees in ascending order of bandwidth.
    pub fn points(&self) -> &[Point] {
        &self.points
    }

    /// Returns the cheapest guarantee of those that are sure, or of those that held if none is
    /// sure; of equal prices the surest one.
    pub fn best(&self) -> &Point {
        &self.points[self.best]
    }
}

/// Advises on the guarantee of all machines of a tenant for a question. Each bandwidth gets the
/// least bursts, and of several delays the cheapest, on the first half of the messages; the second
/// half judges it.
///
/// `machines` is the number of machines of the tenant in the data centre `fabric`.
///
/// # Errors
/// There are too few messages, or no guarantee has a place.
pub fn advise(
    traffic: &Traffic,
    question: Question,
    machines: u32,
    fabric: &Fabric,
) -> Result<Advice, AdviseError> {
    let judged = traffic
        .messages()
        .iter()
        .filter(|it| is_judged(it, question));
    let times: Vec<Nanos> = judged.map(|message| message.at).collect();
    let needed = 2 * (3.0 * 3.0 / question.late()).ceil() as usize;
    if times.len() < LEAST_MESSAGES {
        return Err(AdviseError::TooFew(times.len(), needed));
    }
    let until = times[times.len() / 2 - 1];
    let chosen_on = times.partition_point(|at| *at <= until);
    let choice = Choice {
        traffic,
        question,
        until,
        messages: chosen_on,
    };
    let (busiest, link) = (traffic.busiest(until), fabric.link());
    if busiest >= link {
        return Err(AdviseError::TooBusy {
            mean: busiest,
            link,
        });
    }
    let mut reason =
        format!("even {link} is too slow for the messages that a machine sends together");
    let mut points: Vec<Point> = Vec::new();
    for bandwidth in bandwidths(busiest, link) {
        match cheapest(&choice, bandwidth, machines, fabric) {
            Ok(point) => points.push(point),
            Err(Some(refusal)) => reason = refusal,
            Err(None) => {}
        }
    }
    let best = (0..points.len()).min_by(|one, other| points[*one].order(&points[*other]));
    let best = best.ok_or(AdviseError::NoPlace { question, reason })?;
    Ok(Advice {
        chosen_on,
        until,
        busiest,
        points,
        best,
    })
}

/// Returns the bandwidths of the frontier.
fn bandwidths(busiest: Rate, link: Rate) -> impl Iterator<Item = Rate> {
    let rates = BANDWIDTHS.map(|percent| Rate(round_up(busiest.percent(percent).0 + 1)));
    rates.into_iter().filter(move |rate| *rate <= link)
}

/// Returns the delays of the network, each with the least Bmax for it.
fn burst_rates(choice: &Choice<'_>, bandwidth: Rate, link: Rate) -> Vec<(Nanos, Rate)> {
    let rates = rates(bandwidth, link);
    let lines = choice.lines(bandwidth);
    let delays = DELAYS.map(|eighths| Nanos(choice.question.within.0 * eighths / 8));
    let found = delays.into_iter().filter_map(|delay| {
        let rest = choice.question.within.saturating_sub(delay);
        Some((delay, choice.burst_rate(&rates, &lines, rest)?))
    });
    found.filter(|(delay, _)| *delay > Nanos::ZERO).collect()
}

/// Returns the cheapest guarantee with a bandwidth, or the reason of the last refusal.
fn cheapest(
    choice: &Choice<'_>,
    bandwidth: Rate,
    machines: u32,
    fabric: &Fabric,
) -> Result<Point, Option<String>> {
    let (mut refusal, mut best) = (None, None::<(Price, Tuple, Request)>);
    for (delay, burst_rate) in burst_rates(choice, bandwidth, fabric.link()) {
        let rest = choice.question.within.saturating_sub(delay);
        let (burst, burst_in) = choice.bursts(bandwidth, rest);
        // Admission counts a frame for each other machine.
        let frames = Bytes(fabric.frame().0 * u64::from(machines.saturating_sub(1)));
        let burst_in = burst_in.max(frames);
        let tuple = Tuple {
            bandwidth,
            burst,
            burst_in,
            delay,
            burst_rate,
        };
        for request in [tuple.request(machines), tuple.inward_request(machines)] {
            match fabric.price(&request) {
                Ok(price) if best.is_none_or(|(least, ..)| price.tenants > least.tenants) => {
                    best = Some((price, tuple, request));
                }
                Ok(_) => {}
                Err(reason) => refusal = Some(reason),
            }
        }
    }
    let (price, tuple, request) = best.ok_or(refusal)?;
    Ok(Point {
        tuple,
        request,
        judgement: judge(choice.traffic, choice.question, &tuple, choice.until),
        price,
        silo: fabric.price(&tuple.silo(machines)).ok(),
    })
}
