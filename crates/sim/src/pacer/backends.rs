//! A tenant with machines on hosts of both backends: the user-space pacer itself, and departure times
//! by the buckets with which the programs in the kernel are compared. No frame may be above the
//! bounds of the placement.

use super::FRAME;
use super::host::{Excess, Host, START};
use crate::net::{CLASSES, Frame, Node as _, Port, PortConfig, Time};
use proptest::prelude::*;
use tailbound_dataplane::PacketRecord;
use tailbound_dataplane::pacer::{Guarantee, PacerConfig};
use tailbound_placement::{
    Datacentre, Direction, HostSpec, Policy, PortId, Request, Spec, Spread, TenantId, UplinkSpec,
};
use tailbound_units::exact::{BYTE_IN_NANOS, TokenBucket};
use tailbound_units::{Bytes, Nanos, Position, Rate, WireBytes};

const LINK: Rate = Rate::from_mbit(10_000);
/// A byte of such a link in picoseconds.
const BYTE: u64 = 800;
/// The link of the host of the receiver.
const NARROW: Rate = Rate::from_mbit(1_000);
/// Rounding of the pacer, in bytes: departures, and a gap that is shorter than the shortest void.
const ROUNDING: u64 = 2 + 83;

/// Times at which frames of a guest arrive, in the order of time.
type Arrivals = Vec<Nanos>;

/// A frame behind the link of its host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct WireFrame {
    /// The arrival of its last bit at the switch, in picoseconds.
    at: u64,
    wire: u64,
}

/// A host with departure times.
struct LateHost {
    guarantee: Guarantee,
    lateness: Nanos,
    /// Frames of a packet of segmentation offload, which leave together.
    frames: usize,
    /// Largest excess over the guarantee with and without the lateness, in bytes.
    excess: i128,
    excess_of_exact: i128,
}

impl LateHost {
    /// Sends the frames of all guests. Frames that are due within a stall leave together at its end.
    fn send(&mut self, guests: &[Arrivals]) -> Vec<WireFrame> {
        let mut released = Vec::new();
        for guest in guests {
            let mut buckets = [
                (self.guarantee.bandwidth, self.guarantee.burst),
                (self.guarantee.burst_rate, Bytes(FRAME)),
            ]
            .map(|(rate, burst)| {
                let full = TokenBucket::<Nanos>::new(BYTE_IN_NANOS, rate, WireBytes(burst.0));
                full.expect("a rate")
            });
            let leaves = guest.chunks(self.frames).flat_map(|packet| {
                let came = packet[packet.len() - 1];
                let wire = WireBytes(FRAME * packet.len() as u64);
                let due = buckets.iter_mut().fold(came, |at, bucket| {
                    let full = bucket.full_at().max(at);
                    let leaves = bucket.charge(at, wire).leaves;
                    // A packet that is longer than the bucket is deep leaves once it is full.
                    if wire > bucket.burst() { full } else { leaves }
                });
                // Timers stand still between multiples of the lateness.
                let stall = self.lateness.0.max(1);
                let left = Nanos(due.0.div_ceil(stall) * stall);
                std::iter::repeat_n(left, packet.len())
            });
            let leaves: Vec<Nanos> = leaves.collect();
            self.compare(&leaves);
            released.extend(leaves);
        }
        released.sort_unstable();
        let mut free = 0;
        let sent = released.into_iter().map(|at| {
            free = free.max(at.0 * 1_000) + FRAME * BYTE;
            WireFrame {
                at: free,
                wire: FRAME,
            }
        });
        sent.collect()
    }

    /// Compares the frames of a guest with its late curve: {B, S + one packet + B·J} and {Bmax, one
    /// packet + Bmax·J}.
    fn compare(&mut self, leaves: &[Nanos]) {
        let Guarantee {
            bandwidth,
            burst,
            burst_rate,
            ..
        } = self.guarantee;
        for (rate, burst) in [
            (bandwidth, Bytes(burst.0 + packet(self.frames).0)),
            (burst_rate, packet(self.frames)),
        ] {
            let within = rate.0 * self.lateness.0;
            let late = Bytes(burst.0 + within.div_ceil(8_000_000_000));
            let mut curves = [late, burst].map(|burst| Excess::new(LINK, rate, burst));
            for at in leaves {
                for curve in &mut curves {
                    curve.add(Position(at.0 * 1_000 / BYTE), WireBytes(FRAME));
                }
            }
            let [late, exact] = curves.map(|curve| curve.bytes());
            self.excess = self.excess.max(late);
            self.excess_of_exact = self.excess_of_exact.max(exact);
        }
    }
}

/// A packet of `frames` frames on the wire.
fn packet(frames: usize) -> Bytes {
    Bytes(FRAME * frames as u64)
}

/// Sends the frames of all guests of a host by the pacer of the data path. Also returns the largest
/// excess over the guarantee, in bytes.
fn pace(guarantee: &Guarantee, guests: &[Arrivals]) -> (Vec<WireFrame>, i128) {
    let mut host = Host::new(&PacerConfig::strict(LINK)).expect("a wire");
    let mut curves = Vec::new();
    for guest in guests {
        let frames = guest.clone().into_iter().zip(0..);
        let frames = frames.map(|(came, id)| PacketRecord {
            id,
            came,
            ..PacketRecord::on_wire(FRAME)
        });
        host.add(Some(guarantee), frames).expect("it keeps it");
        curves.push(Excess::new(LINK, guarantee.bandwidth, guarantee.burst));
    }
    let mut sent = Vec::new();
    host.run(Nanos::MAX, |frame, departure, at| {
        let wire = frame.wire();
        curves[frame.guest as usize].add(departure, wire);
        sent.push(WireFrame {
            at: (at + wire).0 * BYTE,
            wire: wire.0,
        });
    });
    let excess = curves.iter().map(Excess::bytes).max();
    (sent, excess.expect("a guest"))
}

/// Returns the longest delay of all frames in a queue of the narrow link.
fn longest_delay(mut all: Vec<WireFrame>) -> Nanos {
    all.sort_unstable();
    let mut port = Port::new(PortConfig {
        rate: NARROW,
        latency: Nanos::ZERO,
        propagation: Nanos::ZERO,
        buffer: [None; CLASSES],
    });
    let (mut out, mut longest) = (Vec::new(), Time::ZERO);
    let mut until = |port: &mut Port, end: Time| {
        while port.poll_at() <= end && port.poll_at() < Time::NEVER {
            let now = port.poll_at();
            port.poll(now, &mut out);
            for frame in out.drain(..) {
                longest = longest.max(now.since(frame.sent));
            }
        }
    };
    for sent in all {
        let at = Time(sent.at);
        until(&mut port, at);
        let frame = Frame {
            flow: 0,
            number: 0,
            size: Bytes(sent.wire),
            class: 0,
            sent: at,
            next: 0,
        };
        port.receive(at, frame, &mut Vec::new());
    }
    until(&mut port, Time::NEVER);
    Nanos(longest.0.div_ceil(1_000))
}

fn host(name: String, slots: u32, lateness: Option<Nanos>, rate: Rate) -> HostSpec {
    HostSpec {
        name,
        group: None,
        count: 1,
        slots,
        cpu: None,
        memory: None,
        lateness,
        uplink: UplinkSpec {
            rate,
            links: 1,
            spread: Spread::Flow,
            buffer: Bytes(12_000_000),
            up_buffer: None,
            shared_buffer: Bytes::ZERO,
        },
    }
}

/// The senders: for each host its lateness if it has departure times, and the arrivals of its guests.
#[derive(Debug, Clone)]
struct Senders {
    hosts: Vec<(Option<Nanos>, Vec<Arrivals>)>,
}

impl Senders {
    /// Returns the bound of the placement on the delay in front of the receiver's host, if it counts with
    /// packets of `packet` bytes.
    fn bound(&self, guarantee: &Guarantee, packet: Bytes) -> Nanos {
        let bound = self.admit(guarantee, packet);
        bound.expect("there is room")
    }

    /// Returns the same if the tenant is admitted.
    fn admit(&self, guarantee: &Guarantee, packet: Bytes) -> Option<Nanos> {
        let hosts = self
            .hosts
            .iter()
            .enumerate()
            .map(|(number, (lateness, guests))| {
                host(format!("h{number}"), guests.len() as u32, *lateness, LINK)
            });
        let receiver = host("receiver".to_owned(), 1, None, NARROW);
        let toml = "frame = \"1538B\"\n[[host]]\nname = \"x\"\nslots = 1\nuplink = { rate = \"1Gbit/s\", buffer = \"1MB\" }";
        let spec = Spec {
            hosts: hosts.chain([receiver]).collect(),
            packet: Some(packet),
            ..Spec::from_toml(toml).expect("a topology")
        };
        let vms: usize = self.hosts.iter().map(|(_, guests)| guests.len()).sum();
        let request = Request {
            vms: vms as u32 + 1,
            guarantee: Some(tailbound_placement::Guarantee {
                bandwidth: guarantee.bandwidth,
                burst: guarantee.burst,
                delay: None,
                burst_rate: Some(guarantee.burst_rate),
                bursts: None,
                burst_in: None,
                class: None,
            }),
            cpu: 0,
            memory: Bytes::ZERO,
            domains: None,
            cpu_reservation: None,
            message: None,
        };
        let mut all = Datacentre::new(spec.build().expect("a tree"), Policy::Silo);
        all.admit(TenantId(1), &request).ok()?;
        let node = all.topology().find("receiver").expect("it is there");
        let direction = Direction::Down;
        let bound = all.bound(PortId { node, direction });
        Some(bound.expect("a bound").delay)
    }
}

fn arrivals() -> impl Strategy<Value = Arrivals> {
    let pauses = prop_oneof![
        Just(vec![0]),
        proptest::collection::vec(prop_oneof![3 => Just(0_u64), 1 => 0..3_000_000_u64], 1..8),
    ];
    (pauses, 1_usize..60).prop_map(|(pauses, frames)| {
        let mut came = START;
        let pauses = pauses.into_iter().cycle().take(frames);
        pauses
            .map(|pause| {
                came += Nanos(pause);
                came
            })
            .collect()
    })
}

fn senders() -> impl Strategy<Value = Senders> {
    let lateness = prop_oneof![
        Just(None),
        (1_000..400_000_u64).prop_map(|it| Some(Nanos(it)))
    ];
    let host = (lateness, proptest::collection::vec(arrivals(), 1..4));
    proptest::collection::vec(host, 1..5).prop_map(|hosts| Senders { hosts })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn no_frame_of_hosts_of_both_backends_is_above_the_bounds(
        senders in senders(),
        mbit in 5_u64..70,
        burst in FRAME..40_000_u64,
        times in 1_u64..100,
        frames in prop_oneof![Just(1_usize), 2..50_usize],
    ) {
        let bandwidth = Rate::from_mbit(mbit);
        let guarantee = Guarantee::new(bandwidth, Bytes(burst), Rate(bandwidth.0 * times));
        let mut all = Vec::new();
        for (lateness, guests) in &senders.hosts {
            match *lateness {
                None => {
                    let (sent, excess) = pace(&guarantee, guests);
                    prop_assert!(excess <= ROUNDING.into(), "{excess}");
                    all.extend(sent);
                }
                Some(lateness) => {
                    let mut host = LateHost { guarantee, lateness, frames, excess: i128::MIN, excess_of_exact: i128::MIN };
                    all.extend(host.send(guests));
                    // A position is rounded down to a byte.
                    prop_assert!(host.excess <= 1, "{}", host.excess);
                }
            }
        }
        let (longest, bound) = (longest_delay(all), senders.bound(&guarantee, packet(frames)));
        prop_assert!(longest <= bound, "{longest} of {bound}");
    }
}

/// Frames of late hosts need the larger burst: without it they would be above the curve.
#[test]
fn lateness_is_needed_in_the_curve() {
    let guarantee = Guarantee::new(
        Rate::from_mbit(1_000),
        Bytes(15_000),
        Rate::from_mbit(5_000),
    );
    let mut host = LateHost {
        guarantee,
        lateness: Nanos::from_micros(100),
        frames: 1,
        excess: i128::MIN,
        excess_of_exact: i128::MIN,
    };
    host.send(&[vec![START; 300]]);
    assert!(host.excess <= 1, "{}", host.excess);
    // 100 us are 62,500 bytes at 5 Gbit/s, of which a burst of 15 KB is left.
    assert!(host.excess_of_exact > 10_000, "{}", host.excess_of_exact);
}

/// Packets of segmentation offload are above the bounds of a placement that counts with frames.
#[test]
fn the_longest_packet_is_needed_in_the_bounds() {
    const FRAMES: usize = 45;
    let bandwidth = Rate::from_mbit(5);
    let guarantee = Guarantee::new(bandwidth, Bytes(15_000), Rate::from_mbit(1_000));
    let lateness = Nanos::from_micros(20);
    let guests = vec![vec![START; FRAMES]; 3];
    let senders = Senders {
        hosts: vec![(Some(lateness), guests.clone()); 4],
    };
    let mut all = Vec::new();
    for _ in &senders.hosts {
        let mut host = LateHost {
            guarantee,
            lateness,
            frames: FRAMES,
            excess: i128::MIN,
            excess_of_exact: i128::MIN,
        };
        all.extend(host.send(&guests));
        assert!(host.excess <= 1, "{}", host.excess);
    }
    let longest = longest_delay(all);
    let of_frames = senders.bound(&guarantee, Bytes(FRAME));
    let of_packets = senders.bound(&guarantee, packet(FRAMES));
    assert!(of_frames < longest, "{longest} is not above {of_frames}");
    assert!(longest <= of_packets, "{longest} of {of_packets}");
}

/// Frames of senders that are always backlogged, and the longest delay of them in front of the receiver's host.
/// Nothing but each sender's own guarantee limits them: adopted hosts without an exchange of rates.
fn backlogged(lateness: &[Option<Nanos>], guarantee: &Guarantee) -> (Senders, Nanos) {
    let guests = vec![vec![START; 600]];
    let mut all = Vec::new();
    for lateness in lateness {
        match *lateness {
            None => all.extend(pace(guarantee, &guests).0),
            Some(lateness) => {
                let mut host = LateHost {
                    guarantee: *guarantee,
                    lateness,
                    frames: 1,
                    excess: i128::MIN,
                    excess_of_exact: i128::MIN,
                };
                all.extend(host.send(&guests));
            }
        }
    }
    let hosts = lateness.iter().map(|it| (*it, guests.clone()));
    let senders = Senders {
        hosts: hosts.collect(),
    };
    (senders, longest_delay(all))
}

/// A tenant with adopted senders counts with B of each, so that no frame is above the bound although nothing
/// divides the receiver's B among them.
#[test]
fn adopted_senders_are_admitted_with_the_sum_of_their_rates() {
    let guarantee = Guarantee::new(Rate::from_mbit(300), Bytes(15_000), Rate::from_mbit(1_000));
    let late = Some(Nanos::from_micros(50));
    for (lateness, fits) in [
        (vec![late; 3], true),
        (vec![late; 5], false),
        (vec![late, None, None], true),
        (vec![late, None, None, None, None], false),
    ] {
        let (senders, longest) = backlogged(&lateness, &guarantee);
        let bound = senders.admit(&guarantee, Bytes(FRAME));
        assert_eq!(bound.is_some(), fits, "{lateness:?}");
        if let Some(bound) = bound {
            assert!(longest <= bound, "{lateness:?}: {longest} of {bound}");
        }
    }
}
