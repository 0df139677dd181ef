//! The claim of a pod (Kubernetes' dynamic resource allocation), which the driver of `integrations/kubernetes`
//! writes before the runtime adds the pod to its network.

use super::super::request::Bucket;
use super::call::Target;
use super::error::{CniError, Code};
use serde::Deserialize;
use std::io::{ErrorKind, Read as _};
use std::path::Path;

/// The directory in which the driver has a file for each pod with a claim.
pub(super) const DEFAULT_CLAIMS: &str = "/run/tailbound/claims";
/// The version of the files.
const VERSION: u32 = 1;
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
}

/// Returns the guarantee of the pod's claim; none for a pod without one, and for other containers.
///
/// # Errors
/// The file is not one of the driver's. The pod must not start then, without its guarantee.
pub(super) fn guarantee(directory: &Path, target: &Target) -> Result<Option<Bucket>, CniError> {
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
    if record.version != VERSION {
        let why = format!(
            "version {}; install the plugin of the driver's release",
            record.version
        );
        return Err(wrong(&why));
    }
    if record.pod != *uid {
        return Err(wrong(&format!("it is that of pod {}", record.pod)));
    }
    let bucket = record.guarantee.parse::<Bucket>();
    bucket.map(Some).map_err(|why| wrong(&why))
}
