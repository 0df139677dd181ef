//! `tailbound host status`: one screen of everything on this host that is wanted and not in force.

use super::daemon_args::{DaemonArgs, failure};
use crate::command::output::{self, Output};
use crate::exit::{Exit, Failure};
use serde::Serialize;
use std::path::Path;
use tailbound_host::socket::{HostStatus, Link, Outcome, Request, ServiceStatus};
use tailbound_report::{Paint, Table, human};

/// The largest share of the time for which the packet loop may be late, in percent.
const LATE_PERCENT: u64 = 1;

/// Arguments of `tailbound host status`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit code: 0 nothing is wrong; 1 something that is wanted is not in force; 2 no \
    daemon answers."
)]
pub(super) struct Status {
    /// The output format
    #[arg(long, value_enum, default_value_t)]
    output: Output,
    #[command(flatten)]
    daemon: DaemonArgs,
}

/// A fault of this host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct HostFault {
    kind: &'static str,
    /// The guest, VM, port or service that has it.
    name: String,
    why: String,
}

#[derive(Debug, Serialize)]
struct Document<'s> {
    guests: usize,
    service: Option<&'s ServiceStatus>,
    faults: &'s [HostFault],
}

impl Status {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        let host = match self.daemon.ask(&Request::Show {})? {
            Outcome::Shown { host } => host,
            other => return Err(failure(other, Path::new(""))),
        };
        let faults = faults(&host);
        let document = Document {
            guests: host.guests.len(),
            service: host.service.as_ref(),
            faults: &faults,
        };
        output::print(&match self.output {
            Output::Json => output::json("host-status", 1, &document),
            Output::Text => text(&host, &faults, output::paint()),
        });
        Ok(if faults.is_empty() {
            Exit::Holds
        } else {
            Exit::DoesNotHold
        })
    }
}

/// Returns everything that is wanted and not in force.
fn faults(host: &HostStatus) -> Vec<HostFault> {
    let mut faults = Vec::new();
    let mut add = |kind, name: &str, why: String| {
        faults.push(HostFault {
            kind,
            name: name.to_owned(),
            why,
        });
    };
    if let Some(service) = &host.service {
        add_service(service, &mut add);
    }
    if host.reloads_refused > 0 {
        let why = "the configuration before it stays; `tailbound check-config` lists the mistakes";
        let name = format!("{} refused", host.reloads_refused);
        add("reload-refused", &name, why.to_owned());
    }
    if let Some(packet_loop) = &host.packet_loop
        && packet_loop.frozen_ns > host.uptime_ns / 100 * LATE_PERCENT
    {
        let late = human(packet_loop.frozen_ns as f64, "ns");
        let why = format!("due frames waited for it for {late} since the start");
        add("loop-late", "packet loop", why);
    }
    let ports = host
        .uplink
        .iter()
        .chain(host.guests.iter().map(|it| &it.port));
    for port in ports.filter(|port| port.link == Link::Down) {
        let why = format!("{} is missing, or its driver has not started", port.port);
        add("port-down", &port.name, why);
    }
    for guest in &host.guests {
        if guest.guarantee_refused {
            let why = "its new guarantee breaks a rule of the pacer, which the log has; the old one stays";
            add("guarantee-refused", &guest.port.name, why.to_owned());
        }
        if guest.drained {
            let why = "its packets are not read until `host drain --undo`".to_owned();
            add("drained", &guest.port.name, why);
        }
    }
    faults
}

fn add_service(service: &ServiceStatus, add: &mut impl FnMut(&'static str, &str, String)) {
    if !service.connected {
        let since = match service.silent_ns {
            Some(silent) => format!("silent for {}", human(silent as f64, "ns")),
            None => "it has never answered".to_owned(),
        };
        let why = format!("{since}; the guarantees before stay, and the log has the error");
        add("service-away", "placement service", why);
    }
    if service.classes_differ {
        let why = "the topology has other classes than this host, so guarantees are refused";
        add("classes-differ", "placement service", why.to_owned());
    }
    for vm in &service.without_guest {
        let why = "the service placed it here, and no guest has it as its `vm`".to_owned();
        add("machine-without-guest", vm, why);
    }
    for guest in &service.unplaced {
        let why = "its `vm` is not placed here, so it has no guarantee of the service".to_owned();
        add("guest-not-placed", guest, why);
    }
}

fn text(host: &HostStatus, faults: &[HostFault], paint: Paint) -> String {
    let service = match &host.service {
        None => "no placement service".to_owned(),
        Some(ServiceStatus {
            connected: true,
            revision: Some(revision),
            ..
        }) => {
            format!("guarantees of revision {revision}")
        }
        Some(ServiceStatus {
            connected: true, ..
        }) => "no guarantees yet".to_owned(),
        Some(_) => "the placement service is away".to_owned(),
    };
    let head = format!(
        "{} guests, up for {}, {service}\n",
        host.guests.len(),
        human(host.uptime_ns as f64, "ns")
    );
    if faults.is_empty() {
        return head + "no faults\n";
    }
    let mut table = Table::new(&["fault", "of", "why"], &[]);
    for fault in faults {
        table.row([paint.bad(fault.kind), fault.name.clone(), fault.why.clone()]);
    }
    format!("{head}\n{}", table.render(paint))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// A status without faults, with `change` merged into it.
    fn status(change: &Value) -> HostStatus {
        let guest = json!({
            "name": "web", "port": "tap web", "link": "up", "received": {"packets": 0, "bytes": 0},
            "sent": {"packets": 0, "bytes": 0}, "drops": {}, "backlog": {"packets": 0, "bytes": 0},
            "kept": "file", "drained": false, "guarantee_refused": false, "paced_bytes": 0, "waits": []
        });
        let mut host = json!({
            "pid": 1, "uptime_ns": 1_000_000_000_000_u64, "config": "h.toml", "added": "a.toml",
            "packet_loop": {"real_time": true, "frozen_ns": 0}, "guests": [guest],
            "service": {"connected": true, "silent_ns": 1, "revision": 9, "classes_differ": false}
        });
        for (path, value) in change.as_object().expect("an object") {
            let (parent, key) = path.rsplit_once('/').expect("a path");
            host.pointer_mut(parent).expect("it is there")[key] = value.clone();
        }
        serde_json::from_value(host).expect("a status")
    }

    #[test]
    fn each_fault_of_a_host_is_named_alone() {
        assert_eq!(faults(&status(&json!({}))), []);
        for (kind, name, change) in [
            (
                "service-away",
                "placement service",
                json!({"/service/connected": false}),
            ),
            (
                "classes-differ",
                "placement service",
                json!({"/service/classes_differ": true}),
            ),
            (
                "machine-without-guest",
                "acme/db/0",
                json!({"/service/without_guest": ["acme/db/0"]}),
            ),
            (
                "guest-not-placed",
                "web",
                json!({"/service/unplaced": ["web"]}),
            ),
            (
                "reload-refused",
                "1 refused",
                json!({"/reloads_refused": 1}),
            ),
            (
                "loop-late",
                "packet loop",
                json!({"/packet_loop/frozen_ns": 20_000_000_000_u64}),
            ),
            ("port-down", "web", json!({"/guests/0/link": "down"})),
            (
                "guarantee-refused",
                "web",
                json!({"/guests/0/guarantee_refused": true}),
            ),
            ("drained", "web", json!({"/guests/0/drained": true})),
        ] {
            let host = status(&change);
            let found = faults(&host);
            let named: Vec<_> = found.iter().map(|it| (it.kind, it.name.as_str())).collect();
            assert_eq!(named, [(kind, name)]);
            assert!(text(&host, &found, Paint(false)).contains(kind));
        }
    }
}
