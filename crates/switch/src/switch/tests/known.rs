//! The kept decisions equal new ones.

use super::*;
use crate::port::{Arrival, Presence};
use crate::switch::known::known_way;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const STRANGER: Mac = Mac([2, 7, 7, 7, 7, 7]);
const MACS: [Mac; 5] = [MAC_A, MAC_B, GATEWAY, STRANGER, Mac::BROADCAST];
/// An address that a guest may choose.
const CHOSEN: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0x1234, 0x5678, 0x9abc, 1);

/// A change of the switch, or a frame.
#[derive(Debug, Clone, Copy)]
enum Event {
    Frame {
        port: usize,
        to: usize,
        from: usize,
        ip: usize,
        kind: Kind,
    },
    Time(u64),
    Presence(usize, Presence),
    Reload(Settings),
    Takeover,
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Datagram,
    Tcp,
    DhcpAnswer,
    Arp,
    Tagged,
}

/// Settings that a reload changes.
#[derive(Debug, Clone, Copy, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent changes of one configuration"
)]
struct Settings {
    /// A has B's addresses, and B none.
    moved: bool,
    /// B has no filter.
    unfiltered: bool,
    /// B is called otherwise, so that another guest has its port.
    renamed: bool,
    /// B has the stranger's MAC.
    strange: bool,
    /// The guests' ports are in the other order.
    swapped: bool,
}

impl Settings {
    fn config(self) -> SwitchConfig {
        let mut config = config(&PipelineConfig::default());
        let [a, b] = &mut config.guests[..] else {
            unreachable!("there are two guests");
        };
        if self.strange {
            b.mac = STRANGER;
        }
        let (of_a, of_b) = if self.moved {
            (vec![B4.into(), B6.into()], vec![])
        } else {
            (addresses_of_a(), vec![B4.into(), B6.into()])
        };
        a.filter = Some(SpoofFilter::new(a.mac, of_a));
        b.filter = (!self.unfiltered).then(|| SpoofFilter::new(b.mac, of_b));
        if self.renamed {
            "other".clone_into(&mut b.name);
        }
        if self.swapped {
            config.guests.swap(0, 1);
        }
        config
    }
}

fn frame(to: Mac, from: Mac, ip: usize, kind: Kind) -> Vec<u8> {
    let sources: [IpAddr; 6] = [
        A4.into(),
        B4.into(),
        FAR.into(),
        Ipv4Addr::UNSPECIFIED.into(),
        A6.into(),
        CHOSEN.into(),
    ];
    let (protocol, payload) = match kind {
        Kind::Tcp => (6, vec![0x50; 20]),
        Kind::DhcpAnswer => (17, udp(67, 68, &[0; 8])),
        Kind::Datagram | Kind::Arp | Kind::Tagged => (17, udp(1, 2, &[0; 8])),
    };
    let (ethertype, packet): (u16, _) = match (sources[ip], kind) {
        (IpAddr::V4(source), Kind::Arp) => (0x0806, arp(1, from, source, B4)),
        (IpAddr::V6(source), Kind::Arp) => {
            let message = advertisement(source, from);
            (0x86dd, ipv6(source, B6, 58, &message))
        }
        (IpAddr::V4(source), _) => (0x0800, ipv4(source, B4, protocol, &payload)),
        (IpAddr::V6(source), _) => (0x86dd, ipv6(source, B6, protocol, &payload)),
    };
    if matches!(kind, Kind::Tagged) {
        let tagged = [&[0, 7][..], &ethertype.to_be_bytes(), &packet].concat();
        return ethernet(to, from, 0x8100, &tagged);
    }
    ethernet(to, from, ethertype, &packet)
}

impl Bench {
    /// Handles an event; a bench that forgets decides each frame anew.
    fn handle(&mut self, event: Event, settings: &mut Settings, forgets: bool) {
        match event {
            Event::Frame {
                port,
                to,
                from,
                ip,
                kind,
            } => {
                if forgets {
                    self.switch.parts.forwarding.end_generation();
                }
                self.send(port, &frame(MACS[to], MACS[from], ip, kind));
            }
            Event::Time(seconds) => self.now += Nanos::from_secs(seconds),
            Event::Presence(port, presence) => {
                self.wires[port].borrow_mut().presence = presence;
                self.switch.handle_readable(PortIndex(port));
            }
            Event::Reload(next) => {
                if next.swapped != settings.swapped {
                    self.ports.swap(A, B);
                    self.wires.swap(A, B);
                }
                *settings = next;
                let changed = self.switch.reconfigure(self.now, next.config());
                changed.expect("no rule is broken");
            }
            Event::Takeover => {
                let mut next = Switch::new(settings.config()).expect("no rule is broken");
                next.look_for_guests(self.now, &self.ports);
                next.learn(self.now, self.switch.stations());
                self.switch = next;
            }
        }
        self.settle();
    }

    /// Returns all that can be seen: sent frames, drops, and learned stations.
    fn seen(&mut self) -> impl PartialEq + std::fmt::Debug + use<> {
        let sent: Vec<_> = (0..3).map(|port| self.sent(port)).collect();
        let ports = (0..3).map(|port| self.port(port));
        let counts: Vec<_> = ports.map(|it| (it.received, it.sent, it.drops)).collect();
        let stations = self.switch.stations();
        let mut stations: Vec<_> = stations.map(|(mac, at)| (mac, at.to_owned())).collect();
        stations.sort();
        (sent, counts, stations)
    }
}

fn event() -> impl Strategy<Value = Event> {
    let kind = prop_oneof![
        6 => Just(Kind::Datagram),
        2 => Just(Kind::Tcp),
        1 => Just(Kind::DhcpAnswer),
        1 => Just(Kind::Arp),
        1 => Just(Kind::Tagged),
    ];
    // Mostly frames that pass, so that much is known.
    let from_own =
        (0usize..3, 0usize..5, 0usize..6, kind.clone()).prop_map(|(port, to, ip, kind)| {
            let from = [2, 0, 1][port];
            let ip = if port == 0 {
                ip
            } else {
                [port - 1, ip][to % 2]
            };
            Event::Frame {
                port,
                to,
                from,
                ip,
                kind,
            }
        });
    let other = (0usize..3, 0usize..5, 0usize..4, 0usize..6, kind).prop_map(
        |(port, to, from, ip, kind)| Event::Frame {
            port,
            to,
            from,
            ip,
            kind,
        },
    );
    let settings = any::<[bool; 5]>().prop_map(|[moved, unfiltered, renamed, strange, swapped]| {
        Event::Reload(Settings {
            moved,
            unfiltered,
            renamed,
            strange,
            swapped,
        })
    });
    let presence = prop_oneof![
        Just(Presence::Away),
        (0u32..3).prop_map(|n| Presence::Here(Arrival(n))),
    ];
    prop_oneof![
        12 => from_own,
        8 => other,
        2 => prop_oneof![Just(1), Just(150), Just(299), Just(300)].prop_map(Event::Time),
        1 => (A..=B, presence).prop_map(|(port, presence)| Event::Presence(port, presence)),
        1 => settings,
        1 => Just(Event::Takeover),
    ]
}

proptest! {
    /// Changes of filters, moves of stations, guests that are away, reloads and takeovers included.
    #[test]
    fn cached_decisions_equal_fresh_decisions(events in prop::collection::vec(event(), 1..120)) {
        let mut benches = [false, true].map(|forgets| {
            let bench = Bench::new(&PipelineConfig::default());
            (bench, Settings::default(), forgets)
        });
        for event in events {
            let seen = benches.each_mut().map(|(bench, settings, forgets)| {
                bench.handle(event, settings, *forgets);
                bench.seen()
            });
            prop_assert_eq!(&seen[0], &seen[1], "after {:?}", event);
        }
    }
}

#[test]
fn the_second_frame_of_a_guest_is_known_until_its_address_is_not_its_own() {
    let mut bench = Bench::new(&PipelineConfig::default());
    let id = |bench: &Bench| {
        bench
            .switch
            .parts
            .table
            .guest(PortIndex(A))
            .expect("A is a guest")
            .id
    };
    let a_to_b = frame(MAC_B, MAC_A, 0, Kind::Datagram);
    let is_known = |bench: &mut Bench, frame: &[u8]| {
        let packet = packet(frame, Some(id(bench))).expect("well formed");
        let source = bench.switch.parts.table.source(PortIndex(A));
        known_way(&mut bench.switch.parts, bench.now, source, &packet).is_some()
    };
    assert!(!is_known(&mut bench, &a_to_b));
    bench.send(A, &a_to_b);
    bench.settle();
    assert!(is_known(&mut bench, &a_to_b));
    assert!(is_known(&mut bench, &frame(MAC_B, MAC_A, 0, Kind::Tcp)));
    for kind in [Kind::DhcpAnswer, Kind::Arp, Kind::Tagged] {
        assert!(
            !is_known(&mut bench, &frame(MAC_B, MAC_A, 0, kind)),
            "{kind:?}"
        );
    }
    assert!(!is_known(
        &mut bench,
        &frame(MAC_B, MAC_A, 1, Kind::Datagram)
    ));
    let moved = Settings {
        moved: true,
        ..Settings::default()
    };
    let changed = bench.switch.reconfigure(bench.now, moved.config());
    changed.expect("no rule is broken");
    assert!(!is_known(&mut bench, &a_to_b));
}
