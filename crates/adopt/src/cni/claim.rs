//! The claim of a pod (Kubernetes' dynamic resource allocation), which the driver of `integrations/kubernetes`
//! writes before the runtime adds the pod to its network.

use super::super::request::{Bucket, longest_packet};
use super::call::Target;
use super::error::{CniError, Code};
use serde::Deserialize;
use std::io::{ErrorKind, Read as _};
use std::path::Path;
use tailbound_units::Bytes;

/// The directory in which the driver has a file for each pod with a claim.
pub(super) const DEFAULT_CLAIMS: &str = "/run/tailbound/claims";
/// The versions of the files; the first one has no packet.
const VERSIONS: std::ops::RangeInclusive<u32> = 1..=2;
/// Longest file that is read, in bytes.
const MAX_BYTES: u64 = 64 << 10;
/// Longest UID of an object, in bytes.
const MAX_UID: usize = 64;

/// The parts of a file that the plugin needs.
#[derive(Deserialize)]
struct Record {
    version: u32,
    pod: String,
    guarantee: String,
    /// The longest packet with which the claim was counted; the network's without one.
    packet: Option<String>,
}

/// The guarantee of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Claim {
    pub(super) guarantee: Bucket,
    /// The longest packet that leaves whole, on the wire.
    pub(super) packet: Option<Bytes>,
}

/// Returns the guarantee of the pod's claim; none for a pod without one, and for other containers.
///
/// # Errors
/// The file is not one of the driver's. The pod must not start then, without its guarantee.
pub(super) fn guarantee(directory: &Path, target: &Target) -> Result<Option<Claim>, CniError> {
    let Some(uid) = target.args.get("K8S_POD_UID") else {
        return Ok(None);
    };
    // A UID is a name of a file.
    let is_plain = |byte: u8| byte.is_ascii_hexdigit() || byte == b'-';
    if uid.is_empty() || uid.len() > MAX_UID || !uid.bytes().all(is_plain) {
        return Ok(None);
    }
    let path = directory.join(format!("{uid}.json"));
    let wrong = |why: &dyn std::fmt::Display| {
        let details = format!("{}: {why}", path.display());
        CniError::new(Code::Failed, "the claim of the pod cannot be read", details)
    };
    let mut text = String::new();
    let read =
        std::fs::File::open(&path).and_then(|file| file.take(MAX_BYTES).read_to_string(&mut text));
    match read {
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(wrong(&error)),
    }
    let record: Record = serde_json::from_str(&text).map_err(|error| wrong(&error))?;
    if !VERSIONS.contains(&record.version) {
        let why = format!(
            "version {}; install the plugin of the driver's release",
            record.version
        );
        return Err(wrong(&why));
    }
    if record.pod != *uid {
        return Err(wrong(&format!("it is that of pod {}", record.pod)));
    }
    let guarantee = record.guarantee.parse();
    let packet = record.packet.as_deref().map(longest_packet).transpose();
    Ok(Some(Claim {
        guarantee: guarantee.map_err(|why| wrong(&why))?,
        packet: packet.map_err(|why| wrong(&format!("packet: {why}")))?,
    }))
}
