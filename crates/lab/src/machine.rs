//! This computer's properties, and signals to this process.

use crate::LabError;
use crate::cpus::Cpus;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use tailbound_sys::user_namespace::Privilege;

/// Returns the present conditions of any run on this computer.
pub(crate) fn conditions(privilege: Privilege, cpus: &Cpus) -> BTreeMap<String, Value> {
    let system = rustix::system::uname();
    let kernel = system.release().to_string_lossy().into_owned();
    let privilege = match privilege {
        Privilege::Root => "root",
        Privilege::UserNamespace => "user namespace",
    };
    BTreeMap::from([
        ("tailbound".into(), json!(env!("CARGO_PKG_VERSION"))),
        ("kernel".into(), json!(kernel)),
        ("cpus".into(), json!(cpus.count)),
        ("cpu".into(), json!(cpu_model())),
        ("load_average_before".into(), json!(load_average())),
        ("privilege".into(), json!(privilege)),
    ])
}

/// Records the first signal that requests the end of this process.
pub(crate) fn watch_signals() -> Result<Arc<AtomicUsize>, LabError> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    let noted = Arc::new(AtomicUsize::new(0));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        let number = signal.unsigned_abs() as usize;
        signal_hook::flag::register_usize(signal, Arc::clone(&noted), number)
            .map_err(LabError::io("watching for signals"))?;
    }
    Ok(noted)
}

fn cpu_model() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text
        .lines()
        .find_map(|line| line.strip_prefix("model name"));
    let model = model.and_then(|rest| rest.split_once(':'));
    model.map_or_else(|| "unknown".into(), |(_, name)| name.trim().to_owned())
}

/// Returns this computer's load average over the last minute.
pub(crate) fn load_average() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/loadavg").ok()?;
    text.split_ascii_whitespace().next()?.parse().ok()
}
