//! Many ports, of which few have work.

use super::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The number of calls of a port's methods.
type CallCount = Arc<AtomicU64>;

/// A memory port that counts the calls of its methods.
struct Counting {
    port: MemoryPort,
    asked: CallCount,
}

impl Counting {
    fn count(&self) {
        self.asked.fetch_add(1, Ordering::Relaxed);
    }
}

impl Port for Counting {
    fn receive(&mut self, now: Nanos, pool: &Pool, burst: &mut Burst) -> std::io::Result<More> {
        self.count();
        self.port.receive(now, pool, burst)
    }

    fn transmit(
        &mut self,
        now: Nanos,
        out: &mut VecDeque<Outgoing>,
    ) -> std::io::Result<TransmitResult> {
        self.count();
        self.port.transmit(now, out)
    }

    fn take_overruns(&mut self) -> u64 {
        self.count();
        0
    }

    fn flush(&mut self, _: Nanos) -> std::io::Result<()> {
        self.count();
        Ok(())
    }

    fn receive_at(&self) -> Option<Nanos> {
        self.count();
        None
    }

    fn flush_at(&self) -> Option<Nanos> {
        self.count();
        None
    }
}

fn mac(guest: usize) -> Mac {
    let [high, low] = (guest as u16).to_be_bytes();
    Mac([2, 3, 0, 0, high, low])
}

/// Makes `guests` guests behind counting ports; no port is called twice at the start.
fn crowd(guests: usize) -> (Bench, Vec<CallCount>) {
    let asked: Vec<_> = (0..=guests).map(|_| CallCount::default()).collect();
    let (ports, wires) = asked
        .iter()
        .map(|asked| {
            let (port, wire) = MemoryPort::new();
            let asked = Arc::clone(asked);
            (
                Some(Box::new(Counting { port, asked }) as Box<dyn Port>),
                wire,
            )
        })
        .unzip();
    let config = SwitchConfig {
        outside: None,
        uplink: Some(EgressConfig::Pipeline(PipelineConfig::default())),
        guests: (0..guests)
            .map(|guest| GuestConfig::new(format!("g{guest}"), mac(guest)))
            .collect(),
        classes: None,
    };
    let mut bench = Bench {
        switch: Switch::new(config).expect("no rule is broken"),
        ports,
        wires,
        now: Nanos::from_secs(1),
    };
    bench.settle();
    while bench.switch.poll_interest().is_some() {}
    for asked in &asked {
        asked.store(0, Ordering::Relaxed);
    }
    (bench, asked)
}

#[test]
fn idle_ports_are_not_polled() {
    let (mut bench, asked) = crowd(500);
    let (from, to) = (250, 400);
    for n in 0..200 {
        bench.send(1 + from, &datagram(mac(to), mac(from), (A4, B4), n));
        bench.run(bench.now + Nanos::from_micros(10));
        assert_eq!(bench.switch.poll_interest(), None);
    }
    assert_eq!(bench.sent(1 + to).len(), 200);
    let busy = [0, 1 + from, 1 + to];
    let idle = asked.iter().enumerate();
    let idle =
        idle.filter(|(port, asked)| asked.load(Ordering::Relaxed) > 0 && !busy.contains(port));
    assert_eq!(
        idle.map(|(port, _)| port).collect::<Vec<usize>>(),
        [0_usize; 0]
    );
}

#[test]
fn a_caller_waits_for_room_only_at_the_port_that_is_full() {
    let (mut bench, _) = crowd(100);
    let (from, to) = (7, 70);
    bench.wires[1 + to].borrow_mut().room = Some(0);
    bench.send(1 + from, &datagram(mac(to), mac(from), (A4, B4), 0));
    bench.settle();
    let full = Interest {
        receive: true,
        transmit: true,
    };
    assert_eq!(
        bench.switch.poll_interest(),
        Some((PortIndex(1 + to), full))
    );
    assert_eq!(bench.switch.poll_interest(), None);
    bench.wires[1 + to].borrow_mut().room = None;
    bench.switch.handle_writable(PortIndex(1 + to));
    bench.settle();
    let writable = Interest {
        transmit: false,
        ..full
    };
    let told = bench.switch.poll_interest();
    assert_eq!(told, Some((PortIndex(1 + to), writable)));
    assert_eq!(bench.sent(1 + to).len(), 1);
}

#[test]
fn a_draining_switch_reads_no_port_until_the_drain_ends() {
    let (mut bench, _) = crowd(3);
    bench.send(1, &datagram(mac(1), mac(0), (A4, B4), 0));
    let turn = bench.switch.drain(bench.now, &mut bench.ports);
    assert!(!turn.busy);
    let told: Vec<_> = std::iter::from_fn(|| bench.switch.poll_interest()).collect();
    assert_eq!(told.len(), 4);
    assert!(told.iter().all(|(_, interest)| !interest.receive));
    assert_eq!(bench.sent(2).len(), 0);
    bench.settle();
    assert_eq!(bench.sent(2).len(), 1);
}

/// A port that has a frame for the switch every millisecond, and returns that time.
struct Ticking {
    port: MemoryPort,
    next: Nanos,
}

impl Port for Ticking {
    fn receive(&mut self, now: Nanos, pool: &Pool, burst: &mut Burst) -> std::io::Result<More> {
        if self.next > now {
            return Ok(More::No);
        }
        self.next += Nanos::from_millis(1);
        self.port.receive(now, pool, burst)
    }

    fn transmit(
        &mut self,
        now: Nanos,
        out: &mut VecDeque<Outgoing>,
    ) -> std::io::Result<TransmitResult> {
        self.port.transmit(now, out)
    }

    fn receive_at(&self) -> Option<Nanos> {
        Some(self.next)
    }
}

#[test]
fn timed_frames_are_received_without_a_readable_event() {
    let (mut bench, _) = crowd(3);
    let (port, wire) = MemoryPort::new();
    let next = bench.now;
    for n in 0..5 {
        let frame = datagram(mac(1), mac(0), (A4, B4), n);
        wire.borrow_mut().to_port.push_back((frame, None));
    }
    bench.ports[1] = Some(Box::new(Ticking { port, next }));
    bench.switch.handle_opened(PortIndex(1));
    bench.run(bench.now + Nanos::from_micros(4500));
    assert_eq!(bench.sent(2).len(), 5);
    // Frames that are due at a port which is not read are no reason to wake.
    let due = bench.switch.poll_at(&bench.ports);
    assert_eq!(due, Some(next + Nanos::from_millis(5)));
    bench.now += Nanos::from_millis(10);
    assert!(!bench.switch.drain(bench.now, &mut bench.ports).busy);
    assert_eq!(bench.switch.poll_at(&bench.ports), None);
}

#[test]
fn counters_are_copied_a_few_guests_at_a_time() {
    let (mut bench, asked) = crowd(50);
    let mut partial = PartialSnapshot::default();
    let mut copy = |bench: &mut Bench| {
        bench
            .switch
            .continue_snapshot(&mut bench.ports, &mut partial, 16)
    };
    assert!(copy(&mut bench).is_none());
    // A frame between two guests, one copied already and one not.
    bench.send(1, &datagram(mac(40), mac(0), (A4, B4), 0));
    bench.settle();
    for port in &asked {
        port.store(0, Ordering::Relaxed);
    }
    assert!(copy(&mut bench).is_none());
    assert!(copy(&mut bench).is_none());
    assert_eq!(
        asked
            .iter()
            .map(|asked| asked.load(Ordering::Relaxed))
            .sum::<u64>(),
        32
    );
    let snapshot = copy(&mut bench).expect("the last four, and the uplink");
    let whole = bench.switch.snapshot(&mut bench.ports);
    let (copied, all) = (snapshot.ports(), whole.ports());
    assert!(copied.map(|port| &port.name).eq(all.map(|port| &port.name)));
    assert_eq!(snapshot.guests[0].port.received.0, 0);
    assert_eq!(snapshot.guests[40].port.sent.0, 1);
    assert_eq!(whole.guests[0].port.received.0, 1);
}
