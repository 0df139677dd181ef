//! The network configuration on a plugin's standard input. Pure.

use super::super::journal::DEFAULT_STATE;
use super::super::refusal::nearest;
use super::super::request::{Request, longest_packet};
use super::call::Target;
use super::claim::{Claim, DEFAULT_CLAIMS};
use super::error::{CniError, Code};
use super::wish;
use serde_json::{Map, Value};
use std::net::IpAddr;
use std::path::PathBuf;

/// The versions of the protocol: those with chains of plugins.
pub(super) const VERSIONS: [&str; 5] = ["0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"];
/// The plugin's own keys.
const OWN: [&str; 11] = [
    "guard",
    "dscp",
    "limitOut",
    "limitIn",
    "guarantee",
    "lateness",
    "packet",
    "uplink",
    "state",
    "pins",
    "claims",
];
/// The specification's keys.
const COMMON: [&str; 14] = [
    "cniVersion",
    "cniVersions",
    "name",
    "type",
    "capabilities",
    "runtimeConfig",
    "args",
    "prevResult",
    "ipam",
    "ipMasq",
    "dns",
    "disableCheck",
    "disableGC",
    "loadOnlyInlinedPlugins",
];
/// The annotations of a pod in the runtime's configuration.
const ANNOTATIONS: &str = "io.kubernetes.cri.pod-annotations";

/// A network configuration.
#[derive(Debug, Clone)]
pub(super) struct Config {
    pub(super) network: String,
    pub(super) state: PathBuf,
    pub(super) pins: PathBuf,
    pub(super) claims: PathBuf,
    keys: Map<String, Value>,
}

fn wrong(details: impl std::fmt::Display) -> CniError {
    CniError::new(
        Code::Configuration,
        "invalid network configuration",
        details,
    )
}

/// Returns the document on standard input, and its version.
pub(super) fn document(input: &str) -> Result<(Map<String, Value>, String), CniError> {
    let keys: Map<String, Value> = serde_json::from_str(input)
        .map_err(|error| CniError::new(Code::Json, "the input is no JSON object", error))?;
    let version = keys.get("cniVersion").and_then(Value::as_str);
    let version = version.unwrap_or("0.1.0").to_owned();
    Ok((keys, version))
}

impl Config {
    /// Reads the parts of a configuration that each call needs.
    pub(super) fn read(keys: Map<String, Value>, version: &str) -> Result<Self, CniError> {
        if !VERSIONS.contains(&version) {
            let details = format!("{version}; known: {}", VERSIONS.join(", "));
            let message = "the version of the configuration is not known";
            return Err(CniError::new(Code::Version, message, details));
        }
        let text = |key: &str| match keys.get(key) {
            None => Ok(None),
            Some(Value::String(text)) if !text.is_empty() => Ok(Some(text.clone())),
            Some(other) => Err(wrong(format!("{key}: {other}: not a text"))),
        };
        let network = text("name")?.ok_or_else(|| wrong("name is missing"))?;
        let path = |key, default: &str| {
            let path = text(key)?.unwrap_or_else(|| default.to_owned());
            Ok::<_, CniError>(PathBuf::from(path))
        };
        Ok(Self {
            state: path("state", DEFAULT_STATE)?,
            pins: path("pins", tailbound_sys::edge::PIN)?,
            claims: path("claims", DEFAULT_CLAIMS)?,
            network,
            keys,
        })
    }

    /// Refuses an unknown key: a protection would be missing.
    fn check_keys(&self) -> Result<(), CniError> {
        let is_known =
            |key: &str| OWN.contains(&key) || COMMON.contains(&key) || key.starts_with("cni.dev/");
        let Some((key, value)) = self.keys.iter().find(|(key, _)| !is_known(key)) else {
            return Ok(());
        };
        let near = nearest(key, OWN.into_iter());
        let near = near.map_or_else(
            || format!("known: {}", OWN.join(", ")),
            |near| format!("did you mean {near}?"),
        );
        let details = format!("{key}: {value}: {near}");
        let message = "a key of the network configuration is not known";
        Err(CniError::new(Code::UnknownKey, message, details))
    }

    /// Returns the protection that the network has for each container.
    pub(super) fn request(&self) -> Result<Request, CniError> {
        self.check_keys()?;
        let mut request = Request::default();
        if let Some(guard) = self.keys.get("guard") {
            let guard = guard.as_bool();
            request.guard = guard.ok_or_else(|| wrong("guard: use true or false"))?;
        }
        if let Some(dscp) = self.keys.get("dscp") {
            let number = dscp.as_u64().filter(|number| *number < 64);
            let number = number.ok_or_else(|| wrong(format!("dscp: {dscp}: use 0 to 63")))?;
            request.dscp = Some(number as u8);
        }
        if let Some(uplink) = self.keys.get("uplink") {
            let name = uplink.as_str();
            let name = name.ok_or_else(|| wrong(format!("uplink: {uplink}: not a name")))?;
            request.devices.uplink = Some(name.to_owned());
        }
        if let Some(lateness) = self.keys.get("lateness") {
            let time = lateness.as_str().unwrap_or_default().parse();
            let why = |_| wrong(format!("lateness: {lateness}: write for example \"100us\""));
            request.allowance.lateness = Some(time.map_err(why)?);
        }
        if let Some(packet) = self.keys.get("packet") {
            let longest = longest_packet(packet.as_str().unwrap_or_default());
            let longest = longest.map_err(|why| wrong(format!("packet: {packet}: {why}")))?;
            request.allowance.packet = Some(longest);
        }
        wish::from_keys(&mut request, &self.keys)?;
        Ok(request)
    }

    /// Returns the protection of one container, which may have a guarantee by a claim.
    pub(super) fn request_of(
        &self,
        target: &Target,
        claim: Option<Claim>,
    ) -> Result<Request, CniError> {
        let mut request = self.request()?;
        if let Some(claim) = claim {
            wish::from_claim(&mut request, claim.guarantee);
            let allowance = &mut request.allowance;
            allowance.packet = claim.packet.or(allowance.packet);
        }
        let runtime = self.keys.get("runtimeConfig");
        let runtime = |key: &str| runtime.and_then(|runtime| runtime.get(key));
        if let Some(bandwidth) = runtime("bandwidth") {
            wish::from_bandwidth(&mut request, bandwidth)?;
        }
        if let Some(annotations) = runtime(ANNOTATIONS).and_then(Value::as_object) {
            wish::from_annotations(&mut request, annotations)?;
        }
        wish::from_arguments(&mut request, &target.args)?;
        Ok(request)
    }

    /// Returns true if containers may wish limits, or the network has one.
    pub(super) fn limits(&self) -> Result<bool, CniError> {
        let capability = self.keys.get("capabilities");
        let capability = capability.and_then(|all| all.get("bandwidth"));
        let is_declared = capability.and_then(Value::as_bool).unwrap_or(false);
        Ok(self.request()?.needs_fq() || is_declared)
    }

    /// Returns the result of the plugin before this one.
    pub(super) fn result(&self) -> Result<&Map<String, Value>, CniError> {
        let result = self.keys.get("prevResult").and_then(Value::as_object);
        result.ok_or_else(|| {
            wrong("prevResult is missing; list this plugin after the one that makes the interface")
        })
    }

    /// Returns the addresses of a container's interface in that result.
    pub(super) fn addresses(&self, interface: &str) -> Vec<IpAddr> {
        let list = |key: &str| {
            let list = self.result().ok().and_then(|it| it.get(key)?.as_array());
            list.map_or(&[][..], Vec::as_slice)
        };
        let text = |value: &Value, key: &str| {
            value
                .get(key)
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned()
        };
        let mut interfaces = list("interfaces").iter();
        let own = interfaces
            .position(|it| text(it, "name") == interface && !text(it, "sandbox").is_empty());
        let is_own = |ip: &&Value| match ip.get("interface").and_then(Value::as_u64) {
            Some(at) => Some(at) == own.map(|own| own as u64),
            None => true,
        };
        let own = list("ips").iter().filter(is_own);
        let own = own.filter_map(|ip| {
            let address = text(ip, "address");
            address.split('/').next()?.parse().ok()
        });
        own.collect()
    }

    /// Returns the connections that are still there: ids of containers and interfaces.
    pub(super) fn valid(&self) -> Result<Vec<(String, String)>, CniError> {
        const KEY: &str = "cni.dev/valid-attachments";
        // An earlier draft of CNI 1.1 has the other key.
        let list = self.keys.get(KEY).or(self.keys.get("cni.dev/attachments"));
        let list = match list {
            Some(Value::Array(list)) => list.as_slice(),
            // Libcni writes an empty list so.
            Some(Value::Null) => &[],
            // Without a list all containers would lose their protection.
            _ => return Err(wrong(format!("{KEY} is missing, or no list"))),
        };
        let read = list.iter().map(|one| {
            let text = |key: &str| one.get(key).and_then(Value::as_str).map(str::to_owned);
            let read = text("containerID").zip(text("ifname"));
            read.ok_or_else(|| wrong(format!("{KEY}: {one}: no containerID and ifname")))
        });
        read.collect()
    }
}
