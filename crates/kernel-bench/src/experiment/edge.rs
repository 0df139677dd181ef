//! The data path of `tailbound_sys::edge`: its programs on the interfaces of two guests and an
//! uplink, with a bridge between them. Instructions that they add to a frame, and the burst, peak and
//! lateness of the departures.

use crate::Outcome;
use crate::analysis::{effective_burst, lateness, mean_rate};
use crate::experiment::add_quantiles;
use crate::experiment::cost::{PAYLOADS, cost};
use crate::figures::{Figures, Unit};
use crate::load::{now, sleep_until, socket, wait_until};
use crate::network::{Guest, add_bridge, join, run as ip};
use std::net::{IpAddr, UdpSocket};
use std::path::Path;
use std::process::Command;
use tailbound_sys::bpf_program;
use tailbound_sys::departures::{Departure, Log};
use tailbound_sys::edge::{
    Bucket, Edge, Guarantee, Guard, GuestRules, PIN, Prefix, Tag, UplinkRules, Way,
};
use tailbound_sys::udp;
use tailbound_units::{Bytes, Nanos, Rate};

/// Preamble, gap and check sequence of a frame, in bytes.
pub(super) const OVERHEAD: u64 = 24;
/// Payload of a datagram that fills a frame.
const PAYLOAD: [u8; 1472] = [0; 1472];
/// Frames of a burst.
const BURST: usize = 600;
/// Datagrams of a GSO packet.
const SEGMENTS: usize = 43;
/// GSO packets of a burst.
const PACKETS: usize = 12;
/// A frame of 1,500 bytes of IP, on the wire.
const FULL_FRAME: Bytes = Bytes(1538);
/// The guarantee {B, S} of the guest whose departures are measured.
const GUARANTEED: Bucket = Bucket {
    rate: Rate::from_mbit(100),
    burst: Bytes(15_000),
};
/// Bmax of that guest.
const PEAK: Rate = Rate::from_mbit(1000);
/// A guarantee for which no frame waits.
pub(super) const FAST: Bucket = Bucket {
    rate: Rate::from_mbit(90_000),
    burst: Bytes(1_000_000),
};
/// The limit of the traffic to the other guest.
const INWARD: Bucket = Bucket {
    rate: Rate::from_mbit(50),
    burst: Bytes(9_000),
};

/// The host: two guests, and the outside behind the uplink.
pub(super) struct Host {
    pub(super) edge: Edge,
    pub(super) log: Log,
    pub(super) guest: Guest,
    pub(super) other: Guest,
    pub(super) outside: Guest,
}

/// Two guests and the outside, on a bridge that has learned their ports.
pub(super) fn network() -> Outcome<[Guest; 3]> {
    let [guest, other, outside] = [Guest::add(1)?, Guest::add(2)?, Guest::add(3)?];
    let all = [guest, other, outside];
    add_bridge("switch")?;
    for (at, one) in all.iter().enumerate() {
        join("switch", &one.port_name())?;
        all[at + 1..].iter().try_for_each(|it| one.introduce(*it))?;
    }
    // The bridge learns the port of each, and floods no frame later.
    for (one, to) in [(guest, outside), (other, outside), (outside, guest)] {
        let receiver = socket(to, &one.address())?;
        socket(one, &to.address())?.send(&[0])?;
        receiver.recv(&mut [0])?;
    }
    Ok(all)
}

pub(crate) fn run(figures: &mut Figures) -> Outcome<()> {
    let [guest, other, outside] = network()?;
    let mut to_uplink = Costs {
        base: Vec::new(),
        guest,
        outside,
    };
    to_uplink.measure(figures, "bridge")?;
    let mut to_guest = Costs {
        base: Vec::new(),
        guest,
        outside: other,
    };
    to_guest.measure(figures, "inside.bridge")?;
    let before = state()?;
    let mut edge = Edge::open(Path::new(PIN))?;
    to_guest.past_the_bridge(figures, &mut edge)?;
    to_uplink.steps(figures, &mut edge, other)?;
    let mut host = Host {
        edge,
        log: Log::load(4096)?,
        guest,
        other,
        outside,
    };
    host.burst(figures)?;
    host.packets(figures)?;
    host.inward(figures)?;
    let late = host.edge.lateness()?.ok_or("lateness is not measured")?;
    figures.add("late.frames", late.frames(), Unit::Count);
    figures.add("late.host.max", late.max.0, Unit::Nanos);
    host.edge.remove()?;
    if Path::new(PIN).exists() {
        return Err("pins are left".into());
    }
    is_as_before(&before)
}

/// Compares the ports, their qdiscs and filters with those of [`state`] before.
pub(super) fn is_as_before(before: &str) -> Outcome<()> {
    let after = state()?;
    let mut lines = before.lines().zip(after.lines());
    if let Some((before, after)) = lines.find(|(before, after)| before != after) {
        return Err(format!("it was\n{before}\nand is\n{after}").into());
    }
    Ok(())
}

/// The ports, their qdiscs and filters.
pub(super) fn state() -> Outcome<String> {
    let mut state = String::new();
    let filters = |device: &str, side: &str| format!("tc filter show dev {device} {side}");
    let mut commands = vec!["tc qdisc show".to_owned()];
    for device in ["port-1", "port-2", "port-3"] {
        commands.push(format!("ip link show dev {device}"));
        commands.extend(["ingress", "egress"].map(|side| filters(device, side)));
    }
    for command in commands {
        let mut words = command.split_ascii_whitespace();
        let program = words.next().ok_or("no command")?;
        let output = Command::new(program).args(words).output()?;
        state += &String::from_utf8_lossy(&output.stdout);
    }
    Ok(state)
}

/// Rules that guard and tag a guest, without a guarantee.
fn guarded(guest: Guest) -> GuestRules {
    let address = IpAddr::from(guest.octets());
    GuestRules {
        guard: Some(Guard::new(guest.mac(), [Prefix::from(address)])),
        tag: Some(Tag {
            dscp: 10,
            pcp: None,
        }),
        ..GuestRules::default()
    }
}

pub(super) fn guaranteed(guest: Guest, bucket: Bucket, peak: Rate) -> GuestRules {
    GuestRules {
        guarantee: Some(Guarantee {
            bucket,
            peak: Some(peak),
            frame: FULL_FRAME,
            packet: None,
        }),
        ..guarded(guest)
    }
}

/// Instructions per datagram from `guest` to `outside`.
pub(super) struct Costs {
    /// Instructions by the bridge alone, for each payload.
    pub(super) base: Vec<u64>,
    pub(super) guest: Guest,
    pub(super) outside: Guest,
}

impl Costs {
    /// Measures each payload. The first call measures the base of the later differences.
    pub(super) fn measure(&mut self, figures: &mut Figures, name: &str) -> Outcome<()> {
        // By then the kernel's workers have finished the last change.
        sleep_until(now().saturating_add(Nanos::from_millis(50)));
        for (at, payload) in PAYLOADS.into_iter().enumerate() {
            let cost = || {
                // An answer teaches the direct path.
                socket(self.outside, &self.guest.address())?.send(&[0])?;
                cost(self.guest, self.outside, payload)
            };
            // The lower cost has no clock tick.
            let instructions = cost()?.min(cost()?);
            let name = format!("{name}.{payload}");
            match self.base.get(at) {
                None => {
                    figures.add(name, instructions, Unit::Instructions);
                    self.base.push(instructions);
                }
                Some(bridge) => {
                    let more = instructions.cast_signed() - bridge.cast_signed();
                    figures.add_signed(name, more, Unit::Instructions);
                }
            }
        }
        Ok(())
    }

    /// Guards and tags at both guests, through the bridge and directly.
    fn past_the_bridge(&mut self, figures: &mut Figures, edge: &mut Edge) -> Outcome<()> {
        let both = [self.guest, self.outside];
        for (name, is_direct) in [("inside.guard-tag", false), ("inside.direct", true)] {
            for one in both {
                let rules = GuestRules {
                    is_direct,
                    ..guarded(one)
                };
                edge.attach_guest(one.port(), &rules)?;
            }
            self.measure(figures, name)?;
        }
        for one in both {
            edge.detach(one.port())?;
        }
        Ok(())
    }

    fn steps(&mut self, figures: &mut Figures, edge: &mut Edge, other: Guest) -> Outcome<()> {
        let guest = self.guest;
        let mut rules = guarded(guest);
        rules.tag = None;
        let attachment = edge.attach_guest(guest.port(), &rules)?;
        let is_clsact = attachment.way == Way::Clsact;
        figures.add("clsact", u64::from(is_clsact), Unit::Count);
        self.measure(figures, "more.guard")?;
        edge.set(guest.port(), &guarded(guest))?;
        self.measure(figures, "more.guard-tag")?;
        edge.attach_guest(other.port(), &guarded(other))?;
        edge.attach_uplink(self.outside.port(), &UplinkRules::default())?;
        self.measure(figures, "more.guard-tag-fq")?;
        let rules = guaranteed(guest, FAST, Rate::from_mbit(100_000));
        edge.set(guest.port(), &rules)?;
        self.measure(figures, "more.guarantee")?;
        edge.set(
            guest.port(),
            &GuestRules {
                is_direct: true,
                ..rules
            },
        )?;
        self.measure(figures, "more.direct")?;
        add_programs(figures, guest, self.outside)
    }
}

/// Adds the instructions of a run of each program that a datagram meets.
pub(super) fn add_programs(figures: &mut Figures, guest: Guest, outside: Guest) -> Outcome<()> {
    let counting = bpf_program::count_cost()?;
    let before = bpf_program::costs()?;
    cost(guest, outside, PAYLOADS[0])?;
    for (before, after) in before.iter().zip(bpf_program::costs()?) {
        let each = after
            .time
            .since(before.time)
            .0
            .checked_div(after.runs - before.runs);
        if let Some(each) = each {
            let name = format!("program.{}", after.name);
            figures.add(name, each, Unit::Instructions);
        }
    }
    drop(counting);
    Ok(())
}

impl Host {
    /// Departures from an interface after `send`, as frames on the wire.
    fn departures(
        &mut self,
        port: u32,
        number: usize,
        send: impl Fn() -> Outcome<()>,
    ) -> Outcome<Vec<Departure>> {
        self.log.watch(port)?;
        // The first burst after a boot runs with cold code and caches.
        for _ in 0..2 {
            // Buckets are full.
            sleep_until(now().saturating_add(Nanos::from_millis(20)));
            self.log.clear()?;
            send()?;
            let left = || -> Outcome<bool> {
                let all = self.log.read()?;
                let all = all.iter().filter(|it| it.interface == port);
                Ok(all.map(|it| it.frames as usize).sum::<usize>() >= number)
            };
            wait_until(&format!("{number} frames leave interface {port}"), left)?;
        }
        let all = self.log.read()?.into_iter();
        let own = all.filter(|it| it.interface == port);
        let on_wire = |it: Departure| Departure {
            len: Bytes(it.len.0 + OVERHEAD * u64::from(it.frames)),
            ..it
        };
        Ok(own.map(on_wire).collect())
    }

    pub(super) fn burst(&mut self, figures: &mut Figures) -> Outcome<()> {
        let (guest, outside) = (self.guest, self.outside);
        let rules = guaranteed(guest, GUARANTEED, PEAK);
        self.edge.set(guest.port(), &rules)?;
        let _receiver = socket(outside, &guest.address())?;
        let sender = socket(guest, &outside.address())?;
        let departures = self.departures(outside.port(), BURST, || send(&sender, BURST))?;
        add_burst(figures, "burst", &departures, GUARANTEED.rate)?;
        let peak = effective_burst(&departures, PEAK);
        figures.add("burst.at-peak", peak.0, Unit::Bytes);
        // The BPF qdisc sets no departure times.
        let late = lateness(&departures);
        if !late.is_empty() {
            add_quantiles(figures, "burst.late", late)?;
        }
        let counters = self.edge.counters(guest.port())?;
        figures.add("burst.drops", counters.dropped(), Unit::Count);
        Ok(())
    }

    /// Packets of 64 KB that the guest leaves to be segmented, whole and by single frames.
    pub(super) fn packets(&mut self, figures: &mut Figures) -> Outcome<()> {
        let (guest, outside) = (self.guest, self.outside);
        let _receiver = socket(outside, &guest.address())?;
        let sender = socket(guest, &outside.address())?;
        udp::segment(&sender, PAYLOAD.len() as u16)?;
        let packet = vec![0; SEGMENTS * PAYLOAD.len()];
        let space = guest.namespace_name();
        for (name, segments) in [("packets", 65_535), ("segments", 1)] {
            ip(&format!(
                "ip -n {space} link set eth0 gso_max_segs {segments}"
            ))?;
            let all = SEGMENTS * PACKETS;
            let departures = self.departures(outside.port(), all, || {
                for _ in 0..PACKETS {
                    sender.send(&packet)?;
                }
                Ok(())
            })?;
            add_burst(figures, name, &departures, GUARANTEED.rate)?;
        }
        Ok(())
    }

    fn inward(&mut self, figures: &mut Figures) -> Outcome<()> {
        let (other, outside) = (self.other, self.outside);
        let rules = GuestRules {
            inward: Some(INWARD),
            ..guarded(other)
        };
        self.edge.set(other.port(), &rules)?;
        let _receiver = socket(other, &outside.address())?;
        let sender = socket(outside, &other.address())?;
        let frames = BURST / 2;
        let departures = self.departures(other.port(), frames, || send(&sender, frames))?;
        add_burst(figures, "inward", &departures, INWARD.rate)?;
        let counters = self.edge.counters(other.port())?;
        figures.add("inward.drops", counters.dropped(), Unit::Count);
        Ok(())
    }
}

fn send(sender: &UdpSocket, number: usize) -> Outcome<()> {
    for _ in 0..number {
        sender.send(&PAYLOAD)?;
    }
    Ok(())
}

fn add_burst(
    figures: &mut Figures,
    name: &str,
    departures: &[Departure],
    rate: Rate,
) -> Outcome<()> {
    let frames = departures.iter().map(|it| u64::from(it.frames)).sum();
    figures.add(format!("{name}.frames"), frames, Unit::Count);
    let mean = mean_rate(departures).ok_or("one frame has no rate")?;
    figures.add(format!("{name}.rate"), mean.as_bit_s(), Unit::BitsPerSecond);
    let burst = effective_burst(departures, rate);
    figures.add(format!("{name}.burst"), burst.0, Unit::Bytes);
    Ok(())
}
