//! `tailbound cni`: a chained plugin of container runtimes.

use super::output;
use crate::exit::{Exit, Failure};
use std::ffi::OsStr;
use std::io::{Read as _, stdin};
use std::path::Path;
use tailbound_adopt::cni::{self, Environment};

/// The name by which a runtime starts the plugin: that of a link to this program.
const PLUGIN: &str = "tailbound-cni";
/// Longest network configuration that is read, in bytes.
const MAX_BYTES: u64 = 16 << 20;

/// Arguments of `tailbound cni`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "A container runtime runs this command by a link to this program: `ln -s \
    /usr/bin/tailbound /opt/cni/bin/tailbound-cni`. List it in the network configuration after the plugin \
    that makes the interface: {\"type\": \"tailbound-cni\", \"capabilities\": {\"bandwidth\": true}}. \
    Its keys are guard, dscp, limitOut, limitIn, guarantee, lateness, packet, uplink, state, pins and claims; \
    the tightest of them, of the runtime's bandwidth, of annotations (tailbound/limit-out, tailbound/limit-in, \
    tailbound/guarantee) and of CNI_ARGS (TAILBOUND_LIMIT_OUT, ...) counts. CNI 0.3.0 to 1.1.0: ADD, DEL, \
    CHECK, GC, STATUS, VERSION. Exit code: 0 done; 1 refused or failed, with CNI's JSON error on standard \
    output; 64 no runtime called."
)]
pub(crate) struct Args {}

/// Returns true if a runtime started this program by the plugin's name.
pub(crate) fn is_plugin(program: Option<&OsStr>) -> bool {
    program.and_then(|program| Path::new(program).file_name()) == Some(OsStr::new(PLUGIN))
}

/// Carries out the call in the environment's variables.
pub(crate) fn run() -> Result<Exit, Failure> {
    let variable = |name: &str| std::env::var(name).ok();
    let environment = Environment::read(variable).ok_or_else(|| {
        Failure::wrong_arguments(
            "CNI_COMMAND is not set; a container runtime runs this command (`tailbound help cni`)",
        )
    })?;
    let mut input = String::new();
    let read = stdin().take(MAX_BYTES).read_to_string(&mut input);
    read.map_err(|error| Failure::new(format!("cannot read the network configuration: {error}")))?;
    let (text, is_done) = cni::run(&environment, &input);
    output::print(&text);
    Ok(Exit::holds(is_done))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_runtime_starts_the_plugin_by_the_name_of_a_link() {
        for (name, is_it) in [
            ("/opt/cni/bin/tailbound-cni", true),
            ("tailbound-cni", true),
            ("/usr/bin/tailbound", false),
            ("/opt/tailbound-cni/tailbound", false),
        ] {
            assert_eq!(is_plugin(Some(OsStr::new(name))), is_it, "{name}");
        }
        assert!(!is_plugin(None));
    }
}
