mod away;
mod churn;
mod early;
mod floods;
mod guarded;
mod inward;
mod known;
mod limited;
mod many;
mod memory;
mod paced;
mod queued;
mod reloads;
mod share;
mod wakes;

use super::*;
use crate::mac::Mac;
use crate::port::{BURST, Burst, MemoryPort, More, Outgoing, TransmitResult, WireEnd};
use crate::test_frames::*;
use crate::{BudgetConfig, Prefix, SpoofFilter};
use proptest::prelude::*;
use std::collections::VecDeque;
use tailbound_dataplane::{
    Classes, EgressConfig, Fabric, FifoConfig, GuestId, MeterConfig, NicConfig, PipelineConfig,
    Pool, QueueConfig,
};
use tailbound_units::{Bytes, Rate};

const UPLINK: usize = 0;
const A: usize = 1;
const B: usize = 2;

/// A switch with an uplink and the guests A and B on memory ports.
struct Bench {
    switch: Switch,
    ports: Vec<Option<Box<dyn Port>>>,
    wires: Vec<WireEnd>,
    now: Nanos,
}

/// An uplink behind `uplink`, and the guests A and B.
fn config(uplink: &PipelineConfig) -> SwitchConfig {
    let guest = |name: &str, mac, addresses: Vec<Prefix>| GuestConfig {
        filter: Some(SpoofFilter::new(mac, addresses)),
        ..GuestConfig::new(name, mac)
    };
    SwitchConfig {
        outside: None,
        uplink: Some(EgressConfig::Pipeline(uplink.clone())),
        guests: vec![
            guest("A", MAC_A, addresses_of_a()),
            guest("B", MAC_B, vec![B4.into(), B6.into()]),
        ],
        classes: Some(Classes::default()),
    }
}

impl Bench {
    fn new(uplink: &PipelineConfig) -> Self {
        let (ports, wires) = (0..3)
            .map(|_| {
                let (port, wire) = MemoryPort::new();
                (Some(Box::new(port) as Box<dyn Port>), wire)
            })
            .unzip();
        Self {
            switch: Switch::new(config(uplink)).expect("no rule is broken"),
            ports,
            wires,
            now: Nanos::from_secs(1),
        }
    }

    fn send(&mut self, port: usize, frame: &[u8]) {
        self.wires[port]
            .borrow_mut()
            .to_port
            .push_back((frame.to_vec(), None));
        self.switch.handle_readable(PortIndex(port));
    }

    /// Runs until nothing is due by `until`.
    fn run(&mut self, until: Nanos) -> Vec<(PortIndex, std::io::Error)> {
        let mut gone = Vec::new();
        for _ in 0..100_000 {
            let turn = self.switch.poll(self.now, &mut self.ports);
            for (port, error) in turn.gone {
                self.ports[port.0] = None;
                gone.push((port, error));
            }
            if turn.busy {
                continue;
            }
            match self.switch.poll_at(&self.ports) {
                Some(at) if at <= until => self.now = self.now.max(at),
                _ => {
                    self.now = until;
                    return gone;
                }
            }
        }
        panic!("the switch is busy for ever");
    }

    fn settle(&mut self) -> Vec<(PortIndex, std::io::Error)> {
        self.run(self.now)
    }

    /// Returns the frames that left by a port since the last call.
    fn sent(&self, port: usize) -> Vec<Vec<u8>> {
        let sent = std::mem::take(&mut self.wires[port].borrow_mut().from_port);
        sent.into_iter().map(|(_, frame)| frame).collect()
    }

    /// Returns the counters of a port.
    fn port(&mut self, port: usize) -> PortSnapshot {
        let snapshot = self.switch.snapshot(&mut self.ports);
        let mut ports = snapshot.ports();
        ports.nth(port).expect("a port").clone()
    }

    /// Returns the counters of the guest at a port.
    fn guest(&mut self, port: usize) -> GuestSnapshot {
        let mut snapshot = self.switch.snapshot(&mut self.ports);
        snapshot.guests.swap_remove(port - A)
    }

    /// Returns true if the caller waits for something to receive from a port.
    fn is_read(&self, port: usize) -> bool {
        self.switch.parts.table[PortIndex(port)].interest.receive
    }

    /// Returns true if the caller waits for room to transmit.
    fn is_full(&self, port: usize) -> bool {
        self.switch.parts.table[PortIndex(port)].interest.transmit
    }

    fn drops(&mut self, port: usize, reason: &str) -> u64 {
        let drops = self.port(port).drops;
        drops
            .iter()
            .find(|(label, _)| *label == reason)
            .map_or(0, |(_, count)| *count)
    }
}

/// Makes a datagram between two guests' addresses, with a unique payload.
fn datagram(
    to: Mac,
    from: Mac,
    addresses: (std::net::Ipv4Addr, std::net::Ipv4Addr),
    n: u16,
) -> Vec<u8> {
    let payload = udp(1, 2, &n.to_be_bytes());
    ethernet(
        to,
        from,
        0x0800,
        &ipv4(addresses.0, addresses.1, 17, &payload),
    )
}

fn a_to_b(n: u16) -> Vec<u8> {
    datagram(MAC_B, MAC_A, (A4, B4), n)
}

const GATEWAY: Mac = Mac([2, 9, 9, 9, 9, 9]);
const FAR: std::net::Ipv4Addr = std::net::Ipv4Addr::new(192, 0, 2, 1);
