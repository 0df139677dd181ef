//! The call of a runtime, from the variables of the environment.

use super::error::{CniError, Code};
use std::collections::BTreeMap;
use std::path::PathBuf;
use tailbound_agent::text::printable;

/// The longest name of an interface (`IFNAMSIZ` without the end).
const MAX_INTERFACE: usize = 15;

/// The variables of a plugin's environment.
#[derive(Debug, Clone, Default)]
pub struct Environment {
    pub(super) command: String,
    container: Option<String>,
    netns: Option<String>,
    interface: Option<String>,
    args: Option<String>,
}

/// A container's connection that a call is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) container: String,
    pub(super) interface: String,
    pub(super) netns: Option<PathBuf>,
    pub(super) args: BTreeMap<String, String>,
}

impl Environment {
    /// Reads the environment by `variable`. `None` if no runtime called.
    pub fn read(variable: impl Fn(&str) -> Option<String>) -> Option<Self> {
        Some(Self {
            command: variable("CNI_COMMAND")?,
            container: variable("CNI_CONTAINERID"),
            netns: variable("CNI_NETNS"),
            interface: variable("CNI_IFNAME"),
            args: variable("CNI_ARGS"),
        })
    }

    /// Returns the connection that a call is about.
    pub(super) fn target(&self) -> Result<Target, CniError> {
        let container = required("CNI_CONTAINERID", self.container.as_ref())?;
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric();
        let is_id = container
            .bytes()
            .enumerate()
            .all(|(at, byte)| is_plain(byte) || at > 0 && matches!(byte, b'_' | b'.' | b'-'));
        if !is_id {
            return Err(wrong(
                "CNI_CONTAINERID",
                container,
                "letters, digits, _ . -",
            ));
        }
        let interface = required("CNI_IFNAME", self.interface.as_ref())?;
        let is_name = interface.len() <= MAX_INTERFACE
            && !matches!(interface.as_str(), "." | "..")
            && !interface.contains(|it: char| matches!(it, '/' | ':') || it.is_whitespace());
        if !is_name {
            let right = "at most 15 bytes without /, : and white space";
            return Err(wrong("CNI_IFNAME", interface, right));
        }
        let netns = self.netns.as_ref().filter(|path| !path.is_empty());
        Ok(Target {
            container: container.clone(),
            interface: interface.clone(),
            netns: netns.map(PathBuf::from),
            args: arguments(self.args.as_deref().unwrap_or_default())?,
        })
    }
}

fn required<'v>(name: &str, value: Option<&'v String>) -> Result<&'v String, CniError> {
    let value = value.filter(|value| !value.is_empty());
    value.ok_or_else(|| missing(name))
}

/// Returns the error for a variable that is not set.
pub(super) fn missing(name: &str) -> CniError {
    let message = "invalid environment variables";
    CniError::new(Code::Environment, message, format!("{name} is not set"))
}

fn wrong(name: &str, value: &str, right: &str) -> CniError {
    let details = format!("{name} is {:?}; use {right}", printable(value));
    CniError::new(Code::Environment, "invalid environment variables", details)
}

/// Reads `K=V;K=V`.
fn arguments(text: &str) -> Result<BTreeMap<String, String>, CniError> {
    let pairs = text.split(';').filter(|pair| !pair.is_empty());
    let pairs = pairs.map(|pair| {
        let (key, value) = pair
            .split_once('=')
            .ok_or_else(|| wrong("CNI_ARGS", text, "NAME=VALUE;NAME=VALUE"))?;
        Ok((key.to_owned(), value.to_owned()))
    });
    pairs.collect()
}

impl Target {
    /// Returns the key of the container's entry: the one that the host's other commands have for
    /// it, for its first interface.
    pub(super) fn key(&self) -> String {
        let guest = match self.args.get("K8S_POD_UID").filter(|uid| !uid.is_empty()) {
            Some(uid) => format!("pod/{uid}"),
            None => format!("container/{}", self.short()),
        };
        let guest = printable(&guest);
        match self.interface.as_str() {
            "eth0" => guest,
            other => format!("{guest}/{}", printable(other)),
        }
    }

    /// Returns the name that a person types.
    pub(super) fn name(&self) -> String {
        let arg = |name: &str| self.args.get(name).filter(|value| !value.is_empty());
        match (arg("K8S_POD_NAMESPACE"), arg("K8S_POD_NAME")) {
            (Some(space), Some(pod)) => printable(&format!("{space}/{pod}")),
            _ => printable(self.short()),
        }
    }

    /// Returns the kind in one word.
    pub(super) fn kind(&self) -> &'static str {
        if self.args.contains_key("K8S_POD_UID") {
            "pod"
        } else {
            "container"
        }
    }

    /// Returns the first twelve digits of an id of 64, as runtimes print it.
    fn short(&self) -> &str {
        let is_long = self.container.len() == 64
            && self.container.bytes().all(|byte| byte.is_ascii_hexdigit());
        if is_long {
            &self.container[..12]
        } else {
            &self.container
        }
    }
}
