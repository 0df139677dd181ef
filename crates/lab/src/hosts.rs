//! The configuration of each host's daemon.

use crate::experiment::{GuaranteesBy, LabExperiment, Pipeline, Variant};
use crate::guest::GUEST_INTERFACE;
use crate::topology::{self, GuestKind, GuestPort, Topology, UPLINK, namespace_path};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::SocketAddrV4;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use tailbound_dataplane::{Fabric, Guarantee, NicConfig, PacerConfig, PipelineConfig, SnoopMode};
use tailbound_units::{Bytes, Nanos, Rate};

#[derive(Serialize)]
struct HostFile {
    /// The lab, or the vCPU agent in it, sets the class of daemons.
    loop_class: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    classes: Option<ClassesOf>,
    uplink: Uplink,
    guest: Vec<Guest>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hose: Option<Hose>,
}

#[derive(Serialize)]
struct ClassesOf {
    fabric: Fabric,
}

#[derive(Serialize)]
struct Hose {
    host: String,
    listen: SocketAddrV4,
    key_file: PathBuf,
    interval: Nanos,
    machines: BTreeMap<String, usize>,
    peer: Vec<Peer>,
}

#[derive(Serialize)]
struct Peer {
    host: String,
    address: SocketAddrV4,
}

#[derive(Serialize)]
struct Uplink {
    port: Port,
    /// With a pacer only a meter: the host would refuse the rest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pipeline: Option<PipelineConfig>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pacer: Option<PacerConfig>,
    priority_tag: bool,
}

#[derive(Serialize)]
struct Guest {
    name: String,
    mac: String,
    ip: [String; 1],
    port: Port,
    #[serde(skip_serializing_if = "Option::is_none")]
    vm: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    guarantee: Option<Guarantee>,
    #[serde(skip_serializing_if = "Option::is_none")]
    snoop: Option<SnoopMode>,
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
    VhostUser {
        socket: PathBuf,
        capture: PathBuf,
    },
}

/// Returns the path of the socket of a VM's NIC.
pub(crate) fn card(directory: &Path, guest: &str) -> PathBuf {
    directory.join(format!("{guest}.card"))
}

/// Returns the path of the capture of a VM's NIC.
pub(crate) fn capture(directory: &Path, guest: &str) -> PathBuf {
    directory.join(format!("{guest}.pcap"))
}

/// Returns the bytes that a pipeline's NIC queue holds at `link`; a pacer has no such queue, but
/// passes a batch at a time to the NIC.
pub(crate) fn nic_queue(pipeline: &Pipeline, link: Rate) -> Bytes {
    let batch = pipeline.pacer.as_ref().map(|pacing| pacing.batch);
    let time = pipeline.nic_queue.or(batch).unwrap_or_default();
    link.bytes_in(time).max(Bytes(1))
}

/// Owner of the lab's tenants.
pub(crate) const OWNER: &str = "lab";

/// Returns the configuration of `host` in `variant`, with `pipeline` towards the wire. `directory`
/// contains the hosts' key.
///
/// # Errors
/// The pipeline has no text form.
pub(crate) fn config(
    topology: &Topology,
    host: &str,
    experiment: &LabExperiment,
    variant: &Variant,
    pipeline: &Pipeline,
    directory: &Path,
) -> Result<String, toml::ser::Error> {
    let link = experiment.link_rate;
    let guest = |guest: &topology::Guest| {
        let tenant = experiment.tenant_of(&guest.name);
        Guest {
            name: guest.name.clone(),
            mac: guest.mac_text(),
            ip: [guest.ip.to_string()],
            port: match (guest.kind, topology.guest_port) {
                (GuestKind::Namespace, GuestPort::Tap) => Port::Tap {
                    interface: GUEST_INTERFACE,
                    netns: namespace_path(&guest.name),
                },
                (GuestKind::Namespace, GuestPort::Veth) => Port::AfPacket {
                    interface: guest.host_interface(),
                },
                (GuestKind::Machine, _) => Port::VhostUser {
                    socket: card(directory, &guest.name),
                    capture: capture(directory, &guest.name),
                },
            },
            vm: tenant.map(|(tenant, place)| format!("{OWNER}/{tenant}/{place}")),
            guarantee: guarantee(experiment, variant, &guest.name),
            snoop: variant.snoop.filter(|_| guest.kind == GuestKind::Machine),
        }
    };
    let config = pipeline.config.get_ref();
    let pacing = pipeline.pacer.as_ref();
    let stages = match (pacing, &config.meter) {
        (None, _) => Some(PipelineConfig {
            nic: Some(NicConfig {
                limit: Some(nic_queue(pipeline, link)),
                ..NicConfig::new(link)
            }),
            ..config.clone()
        }),
        (Some(_), Some(_)) => Some(config.clone()),
        (Some(_), None) => None,
    };
    toml::to_string(&HostFile {
        loop_class: "share",
        classes: fabric(pipeline).map(|fabric| ClassesOf { fabric }),
        uplink: Uplink {
            port: Port::AfPacket {
                interface: UPLINK.to_owned(),
            },
            pipeline: stages,
            pacer: pacing.map(|pacing| pacing.config(link)),
            priority_tag: pacing.is_some_and(|pacing| pacing.priority_tag),
        },
        guest: topology.guests_of(host).map(guest).collect(),
        hose: pacing.and_then(|pacing| pacing.hose).map(|interval| Hose {
            machines: match variant.guarantees_by {
                GuaranteesBy::File => tenants(experiment),
                // The service also reports the number of VMs.
                GuaranteesBy::Service => BTreeMap::new(),
            },
            ..hose(topology, host, interval, directory)
        }),
    })
}

/// Returns the classes of a host with that pipeline; `None` if the pipeline alone implies them.
pub(crate) fn fabric(pipeline: &Pipeline) -> Option<Fabric> {
    // A meter beside a pacer is for traffic without a guarantee.
    let both = pipeline.pacer.is_some() && pipeline.config.get_ref().meter.is_some();
    both.then_some(Fabric::ThreeClasses)
}

/// Returns the number of VMs of each tenant whose rates hosts negotiate.
fn tenants(experiment: &LabExperiment) -> BTreeMap<String, usize> {
    // A single VM needs no negotiation.
    let tenants = experiment.tenant.iter();
    tenants
        .filter(|(_, guests)| guests.len() > 1)
        .map(|(tenant, guests)| (format!("{OWNER}/{tenant}"), guests.len()))
        .collect()
}

/// UDP port of hosts for the exchange of rates.
const HOSE_PORT: u16 = 4785;
/// File of the key of this exchange, in the run's directory.
const HOSE_KEY: &str = "hose.key";

/// Makes the key that the hosts share.
///
/// # Errors
/// The directory accepts no file, or the kernel returns no random bytes.
pub(crate) fn make_key(directory: &Path) -> io::Result<()> {
    let mut random = [0; 32];
    File::open("/dev/urandom")?.read_exact(&mut random)?;
    let path = directory.join(HOSE_KEY);
    let mut options = File::options();
    let mut file = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    random
        .iter()
        .try_for_each(|byte| write!(file, "{byte:02x}"))
}

/// Returns a host's configuration of the exchange, without VMs.
fn hose(topology: &Topology, host: &str, interval: Nanos, directory: &Path) -> Hose {
    let address = |host: &str| SocketAddrV4::new(topology.station(host).0, HOSE_PORT);
    let others = topology.hosts.iter().filter(|other| *other != host);
    Hose {
        host: host.to_owned(),
        listen: address(host),
        key_file: directory.join(HOSE_KEY),
        interval,
        machines: BTreeMap::new(),
        peer: others
            .map(|other| Peer {
                host: other.clone(),
                address: address(other),
            })
            .collect(),
    }
}

/// Returns the guarantee of a guest in `variant`, for its host's own file.
fn guarantee(experiment: &LabExperiment, variant: &Variant, guest: &str) -> Option<Guarantee> {
    if variant.guarantees_by == GuaranteesBy::Service {
        return None;
    }
    let pacing = experiment.pacing(variant)?;
    let member = experiment.guarantee_of(variant, guest)?;
    Some(member.config(pacing, experiment.link_rate))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::testing::{all, embedded, parse};

    #[test]
    fn the_daemon_accepts_the_configuration_of_every_host_of_every_experiment() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("host.toml");
        for experiment in all() {
            for guest_port in [GuestPort::Tap, GuestPort::Veth] {
                let topology = Topology::new(&experiment, guest_port);
                for variant in &experiment.variant {
                    let Some(name) = &variant.pipeline else {
                        continue;
                    };
                    let pipeline = &experiment.pipeline[name.get_ref()];
                    for host in &topology.hosts {
                        let text = config(
                            &topology,
                            host,
                            &experiment,
                            variant,
                            pipeline,
                            directory.path(),
                        )
                        .unwrap();
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
    fn the_daemon_accepts_hosts_that_agree_on_rates() {
        let text = embedded("memcached");
        let text = text.replace("pacer = { ", "pacer = { hose = \"1ms\", ");
        let experiment = parse(&text).unwrap();
        let topology = Topology::new(&experiment, GuestPort::Tap);
        let variant = experiment.variant.last().unwrap();
        let pipeline = &experiment.pipeline[variant.pipeline.as_ref().unwrap().get_ref()];
        let directory = tempfile::tempdir().unwrap();
        make_key(directory.path()).unwrap();
        let path = directory.path().join("host.toml");
        for host in &topology.hosts {
            let place = directory.path();
            let text = config(&topology, host, &experiment, variant, pipeline, place).unwrap();
            std::fs::write(&path, &text).unwrap();
            let loaded = tailbound_host::Config::load(&path).unwrap();
            let hose = loaded.hose.unwrap();
            assert_eq!((hose.host.as_str(), hose.peers.len()), (host.as_str(), 3));
            assert_eq!(hose.machines["lab/bulk"], 12);
        }
    }

    #[test]
    fn the_nic_queue_follows_the_link_rate() {
        let experiment = parse(&embedded("traps")).unwrap();
        let pipeline = &experiment.pipeline["patched"];
        assert_eq!(nic_queue(pipeline, Rate::from_mbit(100)), Bytes(3_750));
        assert_eq!(nic_queue(pipeline, Rate::from_mbit(1000)), Bytes(37_500));
    }
}
