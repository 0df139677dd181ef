//! The document of `--output json`.

use super::Args;
use crate::command::place::flags;
use serde::Serialize;
use tailbound_advise::{Advice, Direction, Judgement, Point, Price, Traffic, Usage, Verdict};
use tailbound_api::Explanation;
use tailbound_placement::Guarantee;
use tailbound_sim::traffic::{Fault, RecordedTraffic};

/// Advice for a tenant.
#[derive(Debug, Serialize)]
pub(super) struct Document {
    pub(super) question: String,
    /// Allowed share of late messages, from 0 to 1.
    pub(super) allowed_late: f64,
    pub(super) recordings: Vec<String>,
    pub(super) machines: u32,
    pub(super) time_ns: u64,
    /// Number of messages on which the guarantees were chosen.
    pub(super) chosen_on: usize,
    pub(super) busiest_bit_s: u64,
    pub(super) faults: Vec<FaultResult>,
    pub(super) best: PointResult,
    pub(super) frontier: Vec<PointResult>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) dry_run: Option<DryRun>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) usage: Option<UsageResult>,
}

#[derive(Debug, Serialize)]
pub(super) struct FaultResult {
    pub(super) message: String,
    /// True if the advice may be wrong because of it.
    pub(super) decisive: bool,
}

/// A guarantee with its price and its judgement.
#[derive(Debug, Clone, Serialize)]
pub(super) struct PointResult {
    pub(super) bandwidth_bit_s: u64,
    pub(super) burst_bytes: u64,
    pub(super) burst_in_bytes: u64,
    pub(super) delay_ns: u64,
    pub(super) burst_rate_bit_s: u64,
    pub(super) price: PriceResult,
    pub(super) judgement: JudgementResult,
    /// True if the request has `S_in`, which only hosts that limit inward bursts keep.
    pub(super) requests_burst_in: bool,
    /// Flags of `tailbound place create`.
    pub(super) flags: String,
}

/// Slots of a full data centre of such tenants, divided by their number.
#[derive(Debug, Clone, Serialize)]
pub(super) struct PriceResult {
    pub(super) slots: f64,
    pub(super) tenants: u32,
    /// The same with (N-1)·S on the way to a machine at the rate of the links; null if no tenant
    /// has room.
    pub(super) silo_slots: Option<f64>,
}

/// Judgement by the messages on which the guarantee was not chosen.
#[derive(Debug, Clone, Serialize)]
pub(super) struct JudgementResult {
    pub(super) messages: usize,
    pub(super) late: usize,
    pub(super) late_for_burst: usize,
    pub(super) late_for_burst_in: usize,
    pub(super) late_for_burst_rate: usize,
    pub(super) episodes: usize,
    /// Largest likely share (95 %), from 0 to 1.
    pub(super) late_at_most: f64,
    /// `sure`, `held` or `missed`.
    pub(super) verdict: &'static str,
}

/// Answer of the service.
#[derive(Debug, Serialize)]
pub(super) struct DryRun {
    pub(super) fits: bool,
    pub(super) hosts: usize,
    pub(super) refusal: Option<String>,
    pub(super) nearest: Vec<String>,
}

/// The used part of a tenant's guarantee.
#[derive(Debug, Serialize)]
pub(super) struct UsageResult {
    pub(super) tenant: String,
    pub(super) bandwidth_bit_s: u64,
    pub(super) burst_bytes: u64,
    /// Least S with which no message would have waited at this bandwidth.
    pub(super) needed_burst_bytes: u64,
    /// Least bandwidth with which no message would have waited with this S; null if messages waited.
    pub(super) needed_bandwidth_bit_s: Option<u64>,
    /// Highest levels of the buckets.
    pub(super) levels: Vec<LevelResult>,
}

#[derive(Debug, Serialize)]
pub(super) struct LevelResult {
    pub(super) machine: String,
    /// `sent` or `received`.
    pub(super) direction: &'static str,
    pub(super) highest_bytes: u64,
    /// Hours since the begin of the recording, each with the highest level in it.
    pub(super) hours: Vec<(u64, u64)>,
}

impl Document {
    pub(super) fn new(
        args: &Args,
        recorded: &RecordedTraffic,
        advice: &Advice,
        machines: u32,
    ) -> Self {
        let fault = |fault: &Fault| FaultResult {
            message: fault.to_string(),
            decisive: fault.is_decisive(args.question),
        };
        let recordings = args
            .recordings
            .iter()
            .map(|path| path.display().to_string());
        Self {
            question: args.question.to_string(),
            allowed_late: args.question.late(),
            recordings: recordings.collect(),
            machines,
            time_ns: recorded.traffic.end().0,
            chosen_on: advice.chosen_on,
            busiest_bit_s: advice.busiest.0,
            faults: recorded.faults.iter().map(fault).collect(),
            best: PointResult::new(advice.best()),
            frontier: advice.points().iter().map(PointResult::new).collect(),
            dry_run: None,
            usage: None,
        }
    }
}

impl PointResult {
    fn new(point: &Point) -> Self {
        let tuple = &point.tuple;
        Self {
            bandwidth_bit_s: tuple.bandwidth.0,
            burst_bytes: tuple.burst.0,
            burst_in_bytes: tuple.burst_in.0,
            delay_ns: tuple.delay.0,
            burst_rate_bit_s: tuple.burst_rate.0,
            price: PriceResult {
                slots: point.price.slots_of_tenant(),
                tenants: point.price.tenants,
                silo_slots: point.silo.map(Price::slots_of_tenant),
            },
            judgement: JudgementResult::new(&point.judgement),
            requests_burst_in: (point.request.guarantee)
                .is_some_and(|guarantee| guarantee.burst_in.is_some()),
            flags: flags(&point.request),
        }
    }
}

impl JudgementResult {
    fn new(judgement: &Judgement) -> Self {
        Self {
            messages: judgement.messages,
            late: judgement.late,
            late_for_burst: judgement.waits.sent,
            late_for_burst_in: judgement.waits.received,
            late_for_burst_rate: judgement.waits.slow,
            episodes: judgement.episodes,
            late_at_most: judgement.at_most,
            verdict: match judgement.verdict {
                Verdict::Sure => "sure",
                Verdict::Held => "held",
                Verdict::Missed => "missed",
            },
        }
    }
}

impl DryRun {
    pub(super) fn new(answer: Explanation) -> Self {
        Self {
            fits: answer.fits,
            hosts: answer.hosts.len(),
            refusal: answer.refusal,
            nearest: answer.nearest.into_iter().map(|near| near.change).collect(),
        }
    }
}

impl UsageResult {
    pub(super) fn new(
        tenant: String,
        guarantee: &Guarantee,
        traffic: &Traffic,
        usage: &Usage,
    ) -> Self {
        let levels = usage.levels.iter().map(|level| LevelResult {
            machine: traffic.machines()[level.machine.index()].clone(),
            direction: match level.direction {
                Direction::Sent => "sent",
                Direction::Received => "received",
            },
            highest_bytes: level.highest().0,
            hours: level
                .hours
                .iter()
                .map(|(hour, level)| (*hour, level.0))
                .collect(),
        });
        Self {
            tenant,
            bandwidth_bit_s: guarantee.bandwidth.0,
            burst_bytes: guarantee.burst.0,
            needed_burst_bytes: usage.burst.0,
            needed_bandwidth_bit_s: usage.bandwidth.map(|rate| rate.0),
            levels: levels.collect(),
        }
    }
}
