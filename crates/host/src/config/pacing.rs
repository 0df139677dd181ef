//! Checks the pacer and the guarantees of a configuration.

use super::draft::Draft;
use super::{PortConfig, UplinkConfig};
use tailbound_dataplane::pacer::PacerError;
use tailbound_dataplane::{
    Guarantee, GuestId, Pacer, PacerConfig, Packet, PipelineConfig, QueueConfig,
};
use tailbound_document::{Problem, Step};
use tailbound_units::{Bytes, Nanos};

/// A full frame with one VLAN tag, on the wire.
const TAGGED_FRAME: Bytes = Bytes(1538 + Packet::TAG as u64);

/// Returns all mistakes about pacing in `draft`.
pub(super) fn check(draft: &Draft) -> Vec<Problem> {
    let mut wrong = Vec::new();
    let paced = draft.uplink.as_ref().and_then(|uplink| {
        let pacer = uplink.pacer.as_ref()?;
        uplink_rules(uplink, pacer, &mut wrong);
        Some(pacer)
    });
    let unread = draft.unread.uplink.as_ref();
    let paced = paced.or_else(|| {
        let alone = unread?.pacer.as_ref()?;
        wrong.extend(pacer_rule(alone));
        Some(alone)
    });
    match (&draft.uplink, paced) {
        (Some(uplink), None) if uplink.priority_tag => wrong.push(Problem {
            path: vec![Step::Key("uplink"), Step::Key("priority_tag")],
            message: "without a pacer there are no guarantees, so all frames have the same \
                priority; add `pacer = { link = ... }` or remove the tag"
                .to_owned(),
        }),
        _ => {}
    }
    if draft.hose.is_some() && paced.is_none() && unread.is_none() {
        wrong.push(Problem {
            path: vec![Step::Key("hose")],
            message: "rates are exchanged for a pacer, and nothing paces the uplink; add `pacer = \
                      { link = ... }` to `[uplink]`"
                .to_owned(),
        });
    }
    let guaranteed = draft.guarantees().into_iter();
    match paced.map(Pacer::<Packet>::new) {
        Some(Ok(mut trial)) => {
            for (index, terms) in guaranteed {
                wrong.extend(guarantee(&mut trial, index, &terms));
            }
        }
        // What is guaranteed can be judged when the wire is known.
        Some(Err(_)) => {}
        // An uplink that could not be read may well have a pacer.
        None if unread.is_some() => {}
        None => wrong.extend(guaranteed.map(|(index, _)| Problem {
            path: within(index, None),
            message:
                "nothing paces the uplink; add `pacer = { link = ... }` to `[uplink]`".to_owned(),
        })),
    }
    wrong
}

/// The place of a guest's guarantee, or of one of its keys.
fn within(index: usize, key: Option<&'static str>) -> Vec<Step> {
    let place = [
        Step::Key("guest"),
        Step::Index(index),
        Step::Key("guarantee"),
    ];
    place.into_iter().chain(key.map(Step::Key)).collect()
}

fn uplink_rules(uplink: &UplinkConfig, pacer: &PacerConfig, wrong: &mut Vec<Problem>) {
    let at = |key| vec![Step::Key("uplink"), Step::Key(key)];
    let mut say = |place, message: String| {
        wrong.push(Problem {
            path: place,
            message,
        });
    };
    let pipeline = PipelineConfig {
        meter: uplink.pipeline.meter,
        ..PipelineConfig::default()
    };
    if uplink.pipeline != pipeline {
        say(
            at("pipeline"),
            "a pacer segments and queues by itself, and knows what the NIC holds; keep only \
             `meter` here"
                .to_owned(),
        );
    }
    if let PortConfig::Tap { .. } = uplink.port {
        say(
            at("port"),
            "behind a TAP is no wire to pace; use an interface of the host, for example kind \
             \"af-packet\""
                .to_owned(),
        );
    }
    if uplink.priority_tag && pacer.frame < TAGGED_FRAME {
        say(
            at("priority_tag"),
            format!(
                "with a tag a full frame takes {TAGGED_FRAME} of the wire, more than the pacer's \
                 longest frame of {}; add `frame = \"{TAGGED_FRAME}\"` to `pacer`",
                pacer.frame
            ),
        );
    }
    wrong.extend(pacer_rule(pacer));
}

/// Returns the mistake in a pacer's own settings, if there is one.
fn pacer_rule(pacer: &PacerConfig) -> Option<Problem> {
    let rule = Pacer::<Packet>::new(pacer).err()?;
    let (key, advice) = match rule {
        PacerError::Frame { frame, batch } if frame > batch => {
            let least = pacer.least_batch();
            ("batch", format!("use a batch of at least {least}"))
        }
        _ => advice(&rule),
    };
    Some(Problem {
        path: ["uplink", "pacer", key].map(Step::Key).to_vec(),
        message: format!("{rule}; {advice}"),
    })
}

/// Returns the mistake in a guest's guarantee, given the guests before it, if there is one.
fn guarantee(pacer: &mut Pacer<Packet>, index: usize, terms: &Guarantee) -> Option<Problem> {
    let id = GuestId::first(u32::try_from(index).ok()?);
    let rule = pacer.set_guest(Nanos::ZERO, id, Some(terms)).err()?;
    let (mut key, advice) = advice(&rule);
    if let PacerError::AboveLink { rate, .. } = rule
        && terms.bandwidth != rate
    {
        key = "burst_rate";
    }
    Some(Problem {
        path: within(index, Some(key)),
        message: format!("{rule}; {advice}"),
    })
}

/// Returns the key that a rule is about, and a valid setting.
fn advice(rule: &PacerError) -> (&'static str, String) {
    match rule {
        PacerError::Link(_) => (
            "link",
            "use the rate of the link, including preambles and gaps".to_owned(),
        ),
        PacerError::Frame { .. } => ("frame", "use \"1538B\" for an MTU of 1500".to_owned()),
        PacerError::Guest(_) | PacerError::Occupied { .. } => {
            ("bandwidth", "run fewer guests".to_owned())
        }
        PacerError::NoBandwidth => (
            "bandwidth",
            "leave the guarantee out for a guest of best effort".to_owned(),
        ),
        PacerError::BurstBelowFrame { frame, .. } => ("burst", format!("use at least {frame}")),
        PacerError::CreditBelowFrame { frame, .. } => (
            "burst_in",
            format!("use at least {frame} for each other VM"),
        ),
        PacerError::BurstRateBelowBandwidth { bandwidth, .. } => {
            ("burst_rate", format!("use at least {bandwidth}"))
        }
        PacerError::AboveLink { link, .. } => ("bandwidth", format!("use at most {link}")),
        PacerError::SumAboveLink { .. } => (
            "bandwidth",
            "guarantee less, here or to the guests before".to_owned(),
        ),
        PacerError::TooSlow { .. } => ("bandwidth", "guarantee more, or nothing".to_owned()),
        PacerError::BurstTooLong(_) => ("burst", "use a shorter one".to_owned()),
        PacerError::Horizon { batch, .. } => ("horizon", format!("use at least {batch}")),
        PacerError::Memory(_) => ("memory", "use at least this size".to_owned()),
        PacerError::Drain(_) => (
            "drain",
            "use as long as frames of the lowest class may wait in the network".to_owned(),
        ),
        PacerError::NotGuaranteed(_) => ("bandwidth", "guarantee something".to_owned()),
    }
}

/// The queue of frames without a guarantee, and its place in the configuration.
pub(super) fn queue(uplink: &UplinkConfig) -> Option<(Vec<Step>, &QueueConfig)> {
    let pacer = uplink.pacer.as_ref()?;
    let place = ["uplink", "pacer", "best_effort"].map(Step::Key);
    Some((place.to_vec(), &pacer.best_effort))
}
