//! The protection of a container, from all sources that may wish one. Pure.

use super::super::refusal::nearest;
use super::super::request::{Bucket, Request};
use super::error::{CniError, Code};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use tailbound_units::{Bytes, Rate};

/// Bursts from here on are a runtime's constant for "not chosen" (2^31 - 1 or 2^32 - 1 bits).
const NOT_CHOSEN: u64 = i32::MAX as u64;
/// The shortest burst: a full frame on the wire.
const FRAME: Bytes = Bytes(1_538);

/// A limit or a guarantee.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Outward,
    Inward,
    Guarantee,
}

/// The names of each kind, as a key, an annotation and an argument.
const KINDS: [(Kind, &str, &str, &str); 3] = [
    (Kind::Outward, "limitOut", "limit-out", "LIMIT_OUT"),
    (Kind::Inward, "limitIn", "limit-in", "LIMIT_IN"),
    (Kind::Guarantee, "guarantee", "guarantee", "GUARANTEE"),
];
/// The prefixes of annotations and arguments.
const ANNOTATION: &str = "tailbound/";
const ARGUMENT: &str = "TAILBOUND_";

/// Adds a bucket: the tighter one counts.
fn tighten(request: &mut Request, kind: Kind, bucket: Bucket) {
    let slot = match kind {
        Kind::Outward => &mut request.outward,
        Kind::Inward => &mut request.inward,
        Kind::Guarantee => &mut request.guarantee,
    };
    let tighter = slot.map_or(bucket, |known| {
        if (bucket.rate, bucket.burst) < (known.rate, known.burst) {
            bucket
        } else {
            known
        }
    });
    *slot = Some(tighter);
}

fn wrong(source: &str, value: &dyn std::fmt::Display, why: &str) -> CniError {
    let details = format!("{source}: {value}: {why}");
    CniError::new(
        Code::Configuration,
        "invalid network configuration",
        details,
    )
}

/// Adds the guarantee of a pod's claim.
pub(super) fn from_claim(request: &mut Request, guarantee: Bucket) {
    tighten(request, Kind::Guarantee, guarantee);
}

/// Adds the wishes of a configuration's keys.
pub(super) fn from_keys(request: &mut Request, keys: &Map<String, Value>) -> Result<(), CniError> {
    for (kind, key, _, _) in KINDS {
        let Some(value) = keys.get(key) else { continue };
        let bucket = value
            .as_str()
            .ok_or("write for example \"100Mbit/s\"".to_owned());
        let bucket = bucket.and_then(str::parse);
        tighten(
            request,
            kind,
            bucket.map_err(|why| wrong(key, value, &why))?,
        );
    }
    Ok(())
}

/// Adds the wishes of a runtime's configuration (`bandwidth`, in bits).
pub(super) fn from_bandwidth(request: &mut Request, bandwidth: &Value) -> Result<(), CniError> {
    for (kind, rate_key, burst_key) in [
        (Kind::Outward, "egressRate", "egressBurst"),
        (Kind::Inward, "ingressRate", "ingressBurst"),
    ] {
        // containerd writes EgressRate: programs in Go read keys in any case.
        let find = |key: &str| {
            let mut keys = bandwidth.as_object().into_iter().flatten();
            keys.find(|(name, _)| name.eq_ignore_ascii_case(key))
                .map(|(_, value)| value)
        };
        let number = |key: &str| match find(key) {
            None | Some(Value::Null) => Ok(0),
            Some(value) => value
                .as_u64()
                .ok_or_else(|| wrong(key, value, "no number of bits of 0 or more")),
        };
        let (rate, burst) = (number(rate_key)?, number(burst_key)?);
        if rate == 0 {
            continue;
        }
        if rate < 8_000 {
            return Err(wrong(rate_key, &rate, "a rate below 8 kbit/s"));
        }
        let mut bucket = Bucket::of(Rate(rate));
        if burst != 0 && burst < NOT_CHOSEN {
            bucket.burst = Bytes(burst / 8);
            if bucket.burst < FRAME {
                return Err(wrong(
                    burst_key,
                    &burst,
                    "a burst below one frame, 12304 bits",
                ));
            }
        }
        tighten(request, kind, bucket);
    }
    Ok(())
}

/// Adds the wishes of annotations.
pub(super) fn from_annotations(
    request: &mut Request,
    annotations: &Map<String, Value>,
) -> Result<(), CniError> {
    let own = annotations.iter().filter_map(|(key, value)| {
        let name = key.strip_prefix(ANNOTATION)?;
        Some((key, name, value))
    });
    for (key, name, value) in own {
        let kind = KINDS
            .iter()
            .find(|(_, _, annotation, _)| *annotation == name);
        let Some((kind, ..)) = kind else {
            let known = KINDS.map(|(_, _, annotation, _)| annotation);
            return Err(wrong(key, value, &unknown(name, &known)));
        };
        let text = value.as_str().unwrap_or_default();
        let bucket = text
            .parse()
            .map_err(|why: String| wrong(key, value, &why))?;
        tighten(request, *kind, bucket);
    }
    Ok(())
}

/// Adds the wishes of `CNI_ARGS`.
pub(super) fn from_arguments(
    request: &mut Request,
    arguments: &BTreeMap<String, String>,
) -> Result<(), CniError> {
    let wrong = |key: &str, value: &str, why: &str| {
        let details = format!("CNI_ARGS: {key}={value}: {why}");
        CniError::new(Code::Environment, "invalid environment variables", details)
    };
    let own = arguments.iter().filter_map(|(key, value)| {
        let name = key.strip_prefix(ARGUMENT)?;
        Some((key, name, value))
    });
    for (key, name, value) in own {
        let kind = KINDS.iter().find(|(_, _, _, argument)| *argument == name);
        let Some((kind, ..)) = kind else {
            let known = KINDS.map(|(_, _, _, argument)| argument);
            return Err(wrong(key, value, &unknown(name, &known)));
        };
        let bucket = value.parse();
        tighten(
            request,
            *kind,
            bucket.map_err(|why: String| wrong(key, value, &why))?,
        );
    }
    Ok(())
}

/// Returns the reason for a name that is not known.
fn unknown(name: &str, known: &[&str]) -> String {
    match nearest(name, known.iter().copied()) {
        Some(near) => format!("did you mean {near}?"),
        None => format!("known here: {}", known.join(", ")),
    }
}
