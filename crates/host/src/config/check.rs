//! Checks a parsed configuration for contradictions.

use super::draft::Draft;
use super::unread::GuestKeys;
use super::{GuestConfig, PortConfig, classes, guard, limits, pacing, snoop};
use std::collections::HashMap;
use std::hash::Hash;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use tailbound_api::VmName;
use tailbound_dataplane::{Class, PipelineConfig, QueueConfig, ShaperConfig};
use tailbound_document::{Problem, Step};
use tailbound_switch::Mac;
use tailbound_sys::tap::MAX_INTERFACE_NAME;
use tailbound_units::{Bytes, Nanos};
use tailbound_vhost::VhostConfig;

/// Valid lengths of an interface's transmit queue, in packets: its ring takes 8 bytes for each,
/// used or not.
const QUEUE_LENGTHS: RangeInclusive<u32> = 1..=65_536;

/// The longest name of a guest, in bytes.
const MAX_NAME: usize = 64;

/// The longest name of a socket, in bytes: `sun_path` of unix(7), less the suffix that the name has
/// until the socket listens.
const MAX_SOCKET: usize = 96;

/// Bytes of a full Ethernet frame without FCS.
const FULL_FRAME: Bytes = Bytes(1514);
/// Full frames of all kinds of ports are at least this long.
const SHORTEST_FRAME: Bytes = Bytes(590);
const LONGEST_FRAME: Bytes = Bytes(65_549);

/// Returns all mistakes in `draft`.
pub(super) fn check(draft: &Draft) -> Vec<Problem> {
    let mut checks = Checks::default();
    let metrics = draft.metrics.map(tailbound_metrics::check_address);
    if let Some(Err(error)) = metrics {
        checks.wrong(&[Step::Key("metrics")], error.to_string());
    }
    if let Some(uplink) = &draft.uplink {
        let at = [Step::Key("uplink")];
        checks.uplink_port(&uplink.port);
        checks.pipeline(&at, &uplink.pipeline);
        if let Some((inner, message)) = guard::wrong_budget(uplink.groups) {
            checks.wrong(
                &[Step::Key("uplink"), Step::Key("groups"), Step::Key(inner)],
                message,
            );
        }
        if let Some((place, queue)) = pacing::queue(uplink) {
            checks.queue(&place, queue);
        }
        if uplink.pacer.is_none() {
            checks.whole_frames(&at, &uplink.port, &uplink.pipeline);
        }
    }
    let keys = draft.unread.uplink.as_ref();
    if let Some(port) = keys.and_then(|keys| keys.port.as_ref()) {
        checks.uplink_port(port);
    }
    if let Some(vcpu) = &draft.vcpu {
        if vcpu.metrics.is_some() {
            checks.wrong(
                &[Step::Key("vcpu"), Step::Key("metrics")],
                "the agent's metrics are among the host's own; set `metrics = ...` at the top of \
                    the file instead",
            );
        }
        checks.wrong.extend(vcpu.check(&[Step::Key("vcpu")]));
    }
    if let Some(hose) = &draft.hose {
        checks.wrong.extend(hose.check(&[Step::Key("hose")]));
    }
    for (index, guest) in draft.all_guests() {
        let at = [Step::Key("guest"), Step::Index(index)];
        match guest {
            Ok(guest) => {
                let owner = draft.owner(index, Some(&guest.name));
                checks.guest(&at, guest, &owner);
            }
            Err(keys) => {
                let owner = draft.owner(index, keys.name.as_deref());
                checks.guest_keys(&at, keys, &owner);
            }
        }
    }
    checks.wrong.extend(pacing::check(draft));
    checks.wrong.extend(limits::check(draft));
    checks.wrong.extend(classes::check(draft));
    checks.wrong
}

#[derive(Default)]
struct Checks {
    wrong: Vec<Problem>,
    addresses: guard::Addresses,
    names: HashMap<String, String>,
    macs: HashMap<Mac, String>,
    machines: HashMap<VmName, String>,
    interfaces: HashMap<(String, Option<PathBuf>), String>,
    captures: HashMap<String, String>,
    sockets: HashMap<PathBuf, String>,
}

fn join(at: &[Step], more: &[Step]) -> Vec<Step> {
    [at, more].concat()
}

impl Checks {
    fn wrong(&mut self, place: &[Step], message: impl Into<String>) {
        self.wrong.push(Problem {
            path: place.to_owned(),
            message: message.into(),
        });
    }

    /// Checks the port of the uplink.
    fn uplink_port(&mut self, port: &PortConfig) {
        let at = [Step::Key("uplink")];
        self.port(&at, "the uplink's", port);
        if matches!(port, PortConfig::VhostUser { .. }) {
            self.wrong(
                &join(&at, &[Step::Key("port")]),
                "vhost-user serves a virtual machine, which is a guest; use an interface for the \
                    uplink, of kind \"af-packet\" or \"af-xdp\"",
            );
        }
    }

    /// Checks the keys of a guest whose section has other mistakes.
    fn guest_keys(&mut self, at: &[Step], keys: &GuestKeys, owner: &str) {
        if let Some(name) = &keys.name {
            self.guest_name(&join(at, &[Step::Key("name")]), name, owner);
        }
        if let Some(mac) = keys.mac {
            self.mac(&join(at, &[Step::Key("mac")]), mac, owner);
        }
        if let Some(vm) = &keys.vm {
            self.vm(&join(at, &[Step::Key("vm")]), vm, owner);
        }
        if let Some(port) = &keys.port {
            self.port(at, owner, port);
        }
    }

    /// Checks a guest. `owner` is its name in the possessive: `web's`.
    fn guest(&mut self, at: &[Step], guest: &GuestConfig, owner: &str) {
        self.guest_name(&join(at, &[Step::Key("name")]), &guest.name, owner);
        self.mac(&join(at, &[Step::Key("mac")]), guest.mac, owner);
        if let Some(vm) = &guest.vm {
            self.vm(&join(at, &[Step::Key("vm")]), vm, owner);
        }
        self.wrong.extend(self.addresses.guest(at, guest, owner));
        self.port(at, owner, &guest.port);
        if let Some(mistake) = snoop::mistake(guest) {
            self.wrong(&join(at, &[Step::Key("snoop")]), mistake);
        }
        let pipeline = guest.pipeline.clone().unwrap_or_default();
        self.whole_frames(at, &guest.port, &pipeline);
        self.pipeline(at, &pipeline);
        let limit = guest.limit.as_ref().and_then(|limit| limit.out.as_ref());
        if let Some(ShaperConfig::Bucket(bucket)) = limit {
            let place = ["limit", "out", "queue"].map(Step::Key);
            self.queue(&join(at, &place), &bucket.queue);
        }
    }

    fn guest_name(&mut self, place: &[Step], name: &str, owner: &str) {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if name.is_empty() || name.len() > MAX_NAME || !name.chars().all(plain) {
            self.wrong(
                place,
                format!(
                    "{name:?} cannot name a guest; use 1 to {MAX_NAME} letters, digits, '-', '_' \
                     and '.'"
                ),
            );
        } else if name == tailbound_switch::UPLINK {
            self.wrong(place, "a guest cannot be called uplink; use another name");
        }
        let names = &mut self.names;
        unique(
            &mut self.wrong,
            names,
            place,
            "name",
            name.to_owned(),
            owner,
        );
    }

    fn mac(&mut self, place: &[Step], mac: Mac, owner: &str) {
        if mac.is_multicast() || mac.0 == [0; 6] {
            self.wrong(
                place,
                format!(
                    "{mac} is no single station's address; use one whose first byte is even, for \
                     example \"02:00:00:00:00:01\""
                ),
            );
        }
        let macs = &mut self.macs;
        unique(&mut self.wrong, macs, place, "MAC address", mac, owner);
    }

    fn vm(&mut self, place: &[Step], vm: &VmName, owner: &str) {
        let machines = &mut self.machines;
        let vm = vm.clone();
        unique(&mut self.wrong, machines, place, "machine", vm, owner);
    }

    fn port(&mut self, at: &[Step], owner: &str, port: &PortConfig) {
        let at = join(at, &[Step::Key("port")]);
        match port {
            PortConfig::Tap { interface, netns }
            | PortConfig::AfPacket {
                interface, netns, ..
            }
            | PortConfig::AfXdp {
                interface, netns, ..
            } => {
                let place = join(&at, &[Step::Key("interface")]);
                if interface.is_empty() || interface.len() > MAX_INTERFACE_NAME {
                    self.wrong(
                        &place,
                        format!(
                            "{interface:?} cannot name an interface; use 1 to \
                             {MAX_INTERFACE_NAME} bytes"
                        ),
                    );
                }
                if let PortConfig::AfXdp {
                    queues: Some(0), ..
                } = port
                {
                    let message = "an interface has at least 1 receive queue; leave `queues` out \
                                   to read all it has";
                    self.wrong(&join(&at, &[Step::Key("queues")]), message);
                }
                if let PortConfig::AfPacket {
                    txqueuelen: Some(packets),
                    ..
                } = port
                    && !QUEUE_LENGTHS.contains(packets)
                {
                    let message = format!("{packets} packets: choose 1 to {}", QUEUE_LENGTHS.end());
                    self.wrong(&join(&at, &[Step::Key("txqueuelen")]), message);
                }
                let key = (interface.clone(), netns.clone());
                let known = self.interfaces.insert(key, owner.to_owned());
                if let Some(other) = known {
                    let remedy = "use a different interface for each port";
                    let message = format!("the interface {interface} is {other}; {remedy}");
                    self.wrong(&place, message);
                }
            }
            PortConfig::VhostUser {
                socket,
                queues,
                capture,
                ..
            } => {
                self.vhost_user(&at, owner, socket, *queues);
                if let Some(path) = capture {
                    self.capture(&join(&at, &[Step::Key("capture")]), owner, path);
                }
            }
            PortConfig::Pcap {
                read: None,
                write: None,
            } => self.wrong(
                &at,
                "a capture port without files does nothing; add `read = FILE` or `write = FILE`",
            ),
            PortConfig::Pcap { write: None, .. } => {}
            PortConfig::Pcap {
                write: Some(path), ..
            } => self.capture(&join(&at, &[Step::Key("write")]), owner, path),
        }
    }

    fn capture(&mut self, at: &[Step], owner: &str, path: &Path) {
        let text = path.display().to_string();
        unique(
            &mut self.wrong,
            &mut self.captures,
            at,
            "capture",
            text,
            owner,
        );
    }

    fn vhost_user(&mut self, at: &[Step], owner: &str, socket: &Path, queues: usize) {
        let place = join(at, &[Step::Key("socket")]);
        let text = socket.display().to_string();
        if text.is_empty() || text.len() > MAX_SOCKET {
            self.wrong(
                &place,
                format!("{text:?} cannot name a socket; use 1 to {MAX_SOCKET} bytes"),
            );
        }
        let known = self.sockets.insert(socket.to_owned(), owner.to_owned());
        if let Some(other) = known {
            self.wrong(
                &place,
                format!("the socket {text} is {other}; use a different socket for each port"),
            );
        }
        if !(1..=VhostConfig::MOST_QUEUES).contains(&queues) {
            self.wrong(
                &join(at, &[Step::Key("queues")]),
                format!(
                    "a card has no {queues} pairs of queues; use 1 to {}",
                    VhostConfig::MOST_QUEUES
                ),
            );
        }
    }

    /// Checks that packets to an `AF_XDP` port are segmented: `AF_XDP` has no offloads.
    fn whole_frames(&mut self, at: &[Step], port: &PortConfig, pipeline: &PipelineConfig) {
        if matches!(port, PortConfig::AfXdp { .. }) && !pipeline.segment {
            self.wrong(
                &join(at, &[Step::Key("pipeline")]),
                "guests send packets of up to 64 KiB, and af-xdp carries frames of one MTU; set \
                    `pipeline = { segment = true }`, or add a pacer to the uplink, which also \
                    segments packets",
            );
        }
    }

    fn pipeline(&mut self, at: &[Step], pipeline: &PipelineConfig) {
        let at = join(at, &[Step::Key("pipeline")]);
        if let Some(meter) = &pipeline.meter {
            let at = join(&at, &[Step::Key("meter")]);
            if meter.rate.0 == 0 {
                let message = "a meter of rate 0 tags everything low; use at least 1bit/s, or no \
                               meter";
                self.wrong(&join(&at, &[Step::Key("rate")]), message);
            }
            if meter.burst < FULL_FRAME {
                self.wrong(
                    &join(&at, &[Step::Key("burst")]),
                    format!(
                        "a burst of {} is less than a full frame; use at least {FULL_FRAME}",
                        meter.burst
                    ),
                );
            }
            self.above_zero(&join(&at, &[Step::Key("flows")]), "flow", meter.flows);
        }
        if let Some(nic) = &pipeline.nic {
            let at = join(&at, &[Step::Key("nic")]);
            if nic.rate.0 == 0 {
                self.wrong(
                    &join(&at, &[Step::Key("rate")]),
                    "a NIC of rate 0 sends nothing; use the link's rate, for example \"1Gbit/s\"",
                );
            }
            if nic.limit() < FULL_FRAME {
                self.wrong(
                    &join(&at, &[Step::Key("limit")]),
                    format!(
                        "a limit of {} holds no full frame; use at least {FULL_FRAME}",
                        nic.limit()
                    ),
                );
            }
        }
        self.queue(&join(&at, &[Step::Key("queue")]), &pipeline.queue);
    }

    fn queue(&mut self, at: &[Step], queue: &QueueConfig) {
        let packets = join(at, &[Step::Key("packets")]);
        match queue {
            QueueConfig::Fifo(fifo) => self.above_zero(&packets, "packet", fifo.packets),
            QueueConfig::Codel(codel) => {
                self.above_zero(&packets, "packet", codel.packets);
                self.codel(at, codel.target, codel.interval);
                self.signals(at, codel.mtu, codel.ce_threshold);
            }
            QueueConfig::FqCodel(fq) => {
                self.above_zero(&packets, "packet", fq.packets);
                self.above_zero(&join(at, &[Step::Key("flows")]), "flow", fq.flows);
                self.codel(at, fq.target, fq.interval);
                self.signals(at, fq.mtu, fq.ce_threshold);
                if fq.quantum.0 == 0 {
                    self.wrong(
                        &join(at, &[Step::Key("quantum")]),
                        format!("a quantum of 0 serves no flow; use at least {FULL_FRAME}"),
                    );
                }
            }
            QueueConfig::Priority(priority) => {
                for class in Class::ALL {
                    let place = join(at, &[Step::Key(class.word())]);
                    self.queue(&place, priority.of(class));
                }
            }
        }
    }

    fn codel(&mut self, at: &[Step], target: Nanos, interval: Nanos) {
        if target >= interval || target.0 == 0 {
            self.wrong(
                &join(at, &[Step::Key("target")]),
                format!(
                    "a target of {target} does not fit an interval of {interval}; use 5 to 10 % of \
                     it (RFC 8289, 4.4)"
                ),
            );
        }
    }

    fn signals(&mut self, at: &[Step], mtu: Bytes, ce_threshold: Option<Nanos>) {
        if !(SHORTEST_FRAME..=LONGEST_FRAME).contains(&mtu) {
            self.wrong(
                &join(at, &[Step::Key("mtu")]),
                format!(
                    "{mtu} is not a full frame of any port; use {FULL_FRAME} for an MTU of 1500,                      and from {SHORTEST_FRAME} to {LONGEST_FRAME}"
                ),
            );
        }
        if ce_threshold == Some(Nanos::ZERO) {
            self.wrong(
                &join(at, &[Step::Key("ce_threshold")]),
                "a threshold of 0 marks every packet; use 1ms, or leave it out to mark none",
            );
        }
    }

    fn above_zero(&mut self, place: &[Step], noun: &str, value: usize) {
        if value == 0 {
            self.wrong(
                place,
                format!("a limit of 0 {noun}s drops everything; use at least 1"),
            );
        }
    }
}

/// Records the owner of `value`; a mistake if it has another owner already.
fn unique<T: Eq + Hash + ToString>(
    wrong: &mut Vec<Problem>,
    known: &mut HashMap<T, String>,
    place: &[Step],
    kind: &str,
    value: T,
    owner: &str,
) {
    let text = value.to_string();
    if let Some(other) = known.insert(value, owner.to_owned()) {
        wrong.push(Problem {
            path: place.to_owned(),
            message: format!(
                "duplicate {kind} {text}, which is {other}; use a different one for \
                each guest"
            ),
        });
    }
}
