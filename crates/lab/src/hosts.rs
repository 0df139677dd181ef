//! The configuration of each host's daemon.

use crate::experiment::Pipeline;
use crate::topology::{GUEST_INTERFACE, GuestPort, Topology, UPLINK, namespace_path};
use serde::Serialize;
use std::path::PathBuf;
use tailbound_dataplane::{NicConfig, PipelineConfig};
use tailbound_units::{Bytes, Rate};

#[derive(Serialize)]
struct HostFile {
    uplink: Uplink,
    guest: Vec<Guest>,
}

#[derive(Serialize)]
struct Uplink {
    port: Port,
    pipeline: PipelineConfig,
}

#[derive(Serialize)]
struct Guest {
    name: String,
    mac: String,
    ip: [String; 1],
    port: Port,
}

#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
enum Port {
    Tap {
        interface: &'static str,
        netns: PathBuf,
    },
    AfPacket {
        interface: String,
    },
}

/// The bytes that a pipeline's NIC queue holds at `link`.
pub(crate) fn nic_queue(pipeline: &Pipeline, link: Rate) -> Bytes {
    link.bytes_in(pipeline.nic_queue).max(Bytes(1))
}

/// The text of the configuration of `host` with `pipeline` towards the wire.
///
/// # Errors
/// The pipeline has no text form.
pub(crate) fn config(
    topology: &Topology,
    host: &str,
    pipeline: &Pipeline,
    link: Rate,
) -> Result<String, toml::ser::Error> {
    let nic = NicConfig {
        limit: Some(nic_queue(pipeline, link)),
        ..NicConfig::new(link)
    };
    let guest = |guest: &crate::topology::Guest| Guest {
        name: guest.name.clone(),
        mac: guest.mac_text(),
        ip: [guest.ip.to_string()],
        port: match topology.guest_port {
            GuestPort::Tap => Port::Tap {
                interface: GUEST_INTERFACE,
                netns: namespace_path(&guest.name),
            },
            GuestPort::Veth => Port::AfPacket {
                interface: guest.host_interface(),
            },
        },
    };
    toml::to_string(&HostFile {
        uplink: Uplink {
            port: Port::AfPacket {
                interface: UPLINK.to_owned(),
            },
            pipeline: PipelineConfig {
                nic: Some(nic),
                ..pipeline.config.get_ref().clone()
            },
        },
        guest: topology.guests_of(host).map(guest).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{EMBEDDED, Experiment};

    #[test]
    fn the_daemon_accepts_the_configuration_of_every_host_of_every_experiment() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("host.toml");
        for (name, text) in EMBEDDED {
            let experiment = Experiment::parse(text, name).unwrap();
            for guest_port in [GuestPort::Tap, GuestPort::Veth] {
                let topology = Topology::new(&experiment, guest_port);
                for pipeline in experiment.pipeline.values() {
                    for host in &topology.hosts {
                        let text = config(&topology, host, pipeline, experiment.link_rate).unwrap();
                        std::fs::write(&path, &text).unwrap();
                        if let Err(error) = tailbound_host::Config::load(&path) {
                            panic!("{error}\n{text}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn the_nic_queue_follows_the_link_rate() {
        let experiment = Experiment::parse(EMBEDDED[0].1, "traps").unwrap();
        let pipeline = &experiment.pipeline["patched"];
        assert_eq!(nic_queue(pipeline, Rate::from_mbit(100)), Bytes(3_750));
        assert_eq!(nic_queue(pipeline, Rate::from_mbit(1000)), Bytes(37_500));
    }
}
