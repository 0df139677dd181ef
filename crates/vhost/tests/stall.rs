//! Guests between which a switch forwards, in virtual time: one whose vCPU does not run, and
//! what was cut or marked on the way.

use crate::ports::{self, PLAIN, open, socket};
use crate::support::{Build, Machine, feature, request, until};
use tailbound_dataplane::{EgressConfig, FqCodelConfig, PipelineConfig, QueueConfig};
use tailbound_switch::port::{MemoryPort, Port, Presence, WireEnd};
use tailbound_switch::{GuestConfig, GuestSnapshot, Link, Mac, PortIndex, Switch, SwitchConfig};
use tailbound_units::Nanos;

/// Guests 1, 2, … at a switch.
struct Bench {
    switch: Switch,
    ports: Vec<Option<Box<dyn Port>>>,
    machines: Vec<Machine>,
    now: Nanos,
}

impl Bench {
    fn new(builds: &[Build]) -> Self {
        let guests = (1..=builds.len() as u8).map(|number| GuestConfig {
            pipeline: PipelineConfig {
                queue: QueueConfig::FqCodel(FqCodelConfig::default()),
                ..PipelineConfig::default()
            },
            ..GuestConfig::new(format!("g{number}"), Mac([2, 0, 0, 0, 0, number]))
        });
        let config = SwitchConfig {
            outside: None,
            uplink: None,
            guests: guests.collect(),
            classes: None,
        };
        let (mut ports, mut machines) = (Vec::new(), Vec::new());
        for build in builds {
            let socket = socket();
            let port = open(&socket.path, build.pairs);
            machines.push(Machine::start(&socket.path, *build));
            // Its requests are through when the last of them was acknowledged; the port is
            // not busy with them any more.
            until("a card", || {
                (port.presence() != Presence::Away).then_some(())
            });
            ports.push(Some(Box::new(port) as Box<dyn Port>));
        }
        Self {
            switch: Switch::new(config).expect("no rule is broken"),
            ports,
            machines,
            now: Nanos::from_secs(1),
        }
    }

    /// Sends a frame from a guest, with what is left to the card.
    fn send(&mut self, from: usize, header: [u8; 10], frame: &[u8]) {
        self.machines[from - 1].send(0, header, frame);
        self.switch.handle_readable(PortIndex(from - 1));
    }

    /// Does all that is due now. A ring that was full may have room.
    fn settle(&mut self) {
        for port in 0..self.ports.len() {
            self.switch.handle_writable(PortIndex(port));
        }
        loop {
            let turn = self.switch.poll(self.now, &mut self.ports);
            assert!(turn.gone.is_empty(), "{:?}", turn.gone);
            let is_due = self.switch.poll_at(&self.ports);
            if !turn.busy && is_due.is_none_or(|at| at > self.now) {
                return;
            }
        }
    }

    /// Sees that of what guest 1 has sent to guest 2 each frame is somewhere: it `got` it, or
    /// has it in its ring, it waits, or was dropped. Returns how many were marked, were
    /// dropped and wait.
    fn account(&mut self, sent: u32, got: &[(u32, bool)]) -> (u64, u64, u64) {
        let machine = &self.machines[1];
        let in_ring = machine.used(0).wrapping_sub(machine.rings[0].seen);
        let port = self.guest(2).port;
        let dropped: u64 = port.drops.iter().map(|(_, count)| count).sum();
        let delivered = got.len() as u64 + u64::from(in_ring);
        assert_eq!(port.sent.0, delivered);
        let queued = port.backlog_packets as u64;
        assert_eq!(delivered + queued + dropped, u64::from(sent));
        assert_eq!(self.guest(1).port.received.0, u64::from(sent));
        let marked = got.iter().filter(|(_, marked)| *marked).count() as u64;
        assert!(port.marked >= marked);
        (port.marked, dropped, queued)
    }

    /// Returns the number of counted waits of guest 1's frames, and their mean in seconds.
    fn waits(&mut self) -> (u64, f64) {
        let sojourns = self.guest(1).sojourns;
        let counts = sojourns.iter().map(|sojourn| &sojourn.histogram);
        let count: u64 = counts
            .clone()
            .map(tailbound_metrics::Histogram::count)
            .sum();
        let sum: u64 = counts.map(|histogram| histogram.sum().0).sum();
        (count, sum as f64 / count as f64 / 1e9)
    }

    fn guest(&mut self, number: usize) -> GuestSnapshot {
        let snapshot = self.switch.snapshot(&mut self.ports);
        snapshot.guests[number - 1].clone()
    }
}

/// A UDP datagram from guest 1 to guest 2 with its number as payload, and `ecn` in the IP header.
fn datagram(number: u32, ecn: u8) -> Vec<u8> {
    let mut frame = ports::udp(100);
    frame[15] = ecn;
    frame[42..46].copy_from_slice(&number.to_be_bytes());
    frame
}

/// The number of a datagram, and whether it was marked.
fn number_of(frame: &[u8]) -> (u32, bool) {
    let number = frame[42..46].first_chunk().copied();
    (number.map_or(0, u32::from_be_bytes), frame[15] & 3 == 3)
}

#[test]
fn each_frame_for_a_guest_stalled_for_nine_seconds_is_counted() {
    const FRAMES: u32 = 5_000;
    const ENTRIES: u16 = 64;
    let build = Build {
        entries: ENTRIES,
        ..Build::default()
    };
    let mut bench = Bench::new(&[build, build]);
    let start = bench.now;
    // The frames that the guest got, in their order, and whether they were marked.
    let mut got: Vec<(u32, bool)> = Vec::new();
    for number in 0..FRAMES {
        // 9 s in all.
        bench.now = start + Nanos(9_000_000_000 / u64::from(FRAMES) * u64::from(number));
        let ecn = if number % 2 == 0 { 2 } else { 0 };
        bench.send(1, PLAIN, &datagram(number, ecn));
        bench.settle();
        if number % 500 == 0 {
            bench.account(number + 1, &got);
        }
    }
    let (_, dropped, queued) = bench.account(FRAMES, &got);
    assert_eq!(
        (dropped, queued),
        (0, u64::from(FRAMES - u32::from(ENTRIES)))
    );
    // It runs again, and takes 31 frames each 10 ms.
    bench.now = start + Nanos::from_secs(9);
    loop {
        for _ in 0..31 {
            let Some((_, frame)) = bench.machines[1].receive(0, true) else {
                break;
            };
            got.push(number_of(&frame));
        }
        bench.settle();
        let (_, dropped, _) = bench.account(FRAMES, &got);
        if got.len() as u64 + dropped == u64::from(FRAMES) {
            break;
        }
        bench.now += Nanos::from_millis(10);
        assert!(
            bench.now.since(start) < Nanos::from_secs(60),
            "{} of them",
            got.len()
        );
    }
    let (marked, dropped, queued) = bench.account(FRAMES, &got);
    let of_guest = got.iter().filter(|(_, marked)| *marked).count() as u64;
    assert_eq!((of_guest, queued), (marked, 0));
    assert!(
        marked > 0 && dropped > 0,
        "CoDel acts before the guest: {marked}, {dropped}"
    );
    assert!(got.is_sorted_by_key(|(number, _)| *number), "in order");
    // Nobody that takes marks lost anything.
    let of_marking = got.iter().filter(|(number, _)| number % 2 == 0).count();
    assert_eq!(of_marking, FRAMES as usize / 2);
    // The histogram shows the wait, half of the nine seconds and what came behind them.
    let (counted, mean) = bench.waits();
    assert_eq!(counted, got.len() as u64);
    assert!((3.5..6.5).contains(&mean), "{mean} s");
}

/// TCP over IPv4 with `payload` bytes behind its header, and the flag that answers a mark.
fn tcp(payload: usize, cwr: bool) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 0x45, 2];
    frame.extend(((40 + payload) as u16).to_be_bytes());
    frame.extend([0, 7, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    frame.extend([0x10, 0, 0x20, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0x50]);
    frame.push(if cwr { 0x90 } else { 0x10 });
    frame.extend([0x10, 0, 0, 0, 0, 0]);
    frame.extend((0..payload).map(|at| at as u8));
    frame
}

/// Has TCP cut to segments of `size`; the first alone answers a mark (RFC 3168).
fn tso(size: u16, ecn: bool) -> [u8; 10] {
    let [a, b] = size.to_le_bytes();
    [1, if ecn { 0x81 } else { 1 }, 54, 0, a, b, 34, 0, 16, 0]
}

#[test]
fn only_packets_beyond_the_receivers_features_are_segmented() {
    let able = feature::CSUM
        | feature::HOST_TSO4
        | feature::HOST_ECN
        | feature::GUEST_CSUM
        | feature::GUEST_TSO4
        | feature::HOST_USO
        | feature::GUEST_USO4;
    let whole = Build {
        features: Build::default().features | able,
        entries: 64,
        ..Build::default()
    };
    // The second knows of ECN, of TSO without it, or of nothing.
    for (features, is_whole) in [
        (able | feature::GUEST_ECN, [true, true, true]),
        (able, [true, false, true]),
        (0, [false, false, false]),
    ] {
        let other = Build {
            features: Build::default().features | features,
            ..whole
        };
        let mut bench = Bench::new(&[whole, other]);
        let sent = [
            (tcp(20_000, false), tso(1448, false), 1448),
            (tcp(20_000, true), tso(1448, true), 1448),
            (ports::udp(20_000), ports::uso(1400), 1400),
        ];
        for ((frame, header, size), is_whole) in sent.into_iter().zip(is_whole) {
            bench.send(1, header, &frame);
            bench.settle();
            let mut got = Vec::new();
            while let Some(one) = bench.machines[1].receive(0, true) {
                got.push(one);
            }
            let headers = if frame[23] == 6 { 54 } else { 42 };
            let payload: Vec<u8> = got
                .iter()
                .flat_map(|(_, one)| &one[headers..])
                .copied()
                .collect();
            assert_eq!(payload, frame[headers..], "{features:#x}");
            if is_whole {
                assert_eq!(got.len(), 1, "{features:#x}");
                assert_eq!(got[0].0[..10], header, "what is left to do is said");
            } else {
                let count = (frame.len() - headers).div_ceil(size);
                assert_eq!(got.len(), count, "{features:#x}");
                let answers = got
                    .iter()
                    .filter(|(_, one)| one[23] == 6 && one[47] & 0x80 != 0);
                assert_eq!(
                    answers.count(),
                    usize::from(header[1] == 0x81),
                    "the first alone"
                );
                assert!(
                    got.iter().all(|(header, _)| header[1] == 0),
                    "nothing is left to cut"
                );
            }
        }
    }
}

/// Returns true if the first guest's position is announced once.
fn is_announced(bench: &mut Bench, outside: &WireEnd) -> bool {
    bench.switch.handle_readable(PortIndex(1));
    bench.settle();
    let told = std::mem::take(&mut outside.borrow_mut().from_port);
    assert!(told.len() < 2, "once");
    let Some((_, frame)) = told.first() else {
        return false;
    };
    assert_eq!(frame[..6], [0xff; 6]);
    assert_eq!(frame[6..12], [2, 0, 0, 0, 0, 1]);
    assert_eq!(frame[12..22], [0x80, 0x35, 0, 1, 8, 0, 6, 4, 0, 3]);
    assert_eq!(frame[22..28], frame[32..38]);
    true
}

#[test]
fn a_guest_that_comes_is_announced_and_again_when_its_monitor_asks() {
    let mut bench = Bench::new(&[Build::default()]);
    let (uplink, outside) = MemoryPort::new();
    bench.ports.insert(0, Some(Box::new(uplink)));
    let config = SwitchConfig {
        outside: None,
        uplink: Some(EgressConfig::Pipeline(PipelineConfig::default())),
        guests: vec![GuestConfig::new("g1", Mac([2, 0, 0, 0, 0, 1]))],
        classes: None,
    };
    bench.switch = Switch::new(config).expect("no rule is broken");
    bench.settle();
    assert!(!is_announced(&mut bench, &outside), "it was here");
    let tell = |bench: &mut Bench, request, words: &[u64]| {
        let monitor = &mut bench.machines[0].monitor;
        monitor.tell(request, words, &[]).expect("carried out");
    };
    let station = u64::from_le_bytes([2, 0, 0, 0, 0, 1, 0, 0]);
    tell(&mut bench, request::SEND_RARP, &[station]);
    assert!(is_announced(&mut bench, &outside), "its monitor has asked");

    // It leaves: what comes for it is lost, and counted, and none is in its ring.
    let come = |bench: &mut Bench| {
        let mut frame = datagram(1, 0);
        frame[..12].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 9, 9, 9, 9, 9]);
        outside.borrow_mut().to_port.push_back((frame, None));
        bench.switch.handle_readable(PortIndex(0));
        bench.settle();
        bench.machines[0].receive(0, true).is_some()
    };
    assert!(come(&mut bench));
    tell(&mut bench, request::SET_VRING_ENABLE, &[0]);
    assert!(!is_announced(&mut bench, &outside));
    assert_eq!(bench.guest(1).port.link, Link::Away);
    assert!(!come(&mut bench));
    assert_eq!(bench.guest(1).port.drops, [("away", 1)]);

    tell(&mut bench, request::SET_VRING_ENABLE, &[1 << 32]);
    assert!(is_announced(&mut bench, &outside), "it came");
    assert_eq!(bench.guest(1).port.link, Link::Up);
    assert!(come(&mut bench));
}
