//! A port, its machine, and what goes through them.

#![allow(dead_code)]

use crate::support::{Build, Machine, until};
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use tailbound_dataplane::{Packet, Pool};
use tailbound_switch::port::{Burst, More, Outgoing, Port, Received, TransmitResult};
use tailbound_units::Nanos;
use tailbound_vhost::{Mode, VhostConfig, VhostPort};

pub(crate) struct Socket {
    _directory: tempfile::TempDir,
    pub(crate) path: PathBuf,
}

pub(crate) fn socket() -> Socket {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("card");
    Socket {
        _directory: directory,
        path,
    }
}

pub(crate) fn open(socket: &Path, queues: usize) -> VhostPort {
    let config = VhostConfig {
        allowance: None,
        socket,
        mode: Mode::Server,
        user: None,
        queues,
    };
    VhostPort::open(config).expect("opened")
}

/// A port and the machine at it.
pub(crate) fn started(build: Build) -> (Socket, VhostPort, Machine) {
    let socket = socket();
    let port = open(&socket.path, build.pairs);
    let machine = Machine::start(&socket.path, build);
    (socket, port, machine)
}

/// A frame of `len` bytes that is neither IP nor ARP.
pub(crate) fn frame(len: usize, mark: u8) -> Vec<u8> {
    let mut frame = vec![mark; len];
    frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xb5]);
    frame
}

/// UDP over IPv4 of `payload` bytes, whose checksum is left.
pub(crate) fn udp(payload: usize) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 0x45, 0];
    frame.extend(((28 + payload) as u16).to_be_bytes());
    frame.extend([0, 7, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    frame.extend([0x10, 0, 0x20, 0]);
    frame.extend(((8 + payload) as u16).to_be_bytes());
    frame.extend([0, 0]);
    frame.extend((0..payload).map(|at| at as u8));
    frame
}

/// Has UDP cut to datagrams of `size`.
pub(crate) fn uso(size: u16) -> [u8; 10] {
    let [a, b] = size.to_le_bytes();
    [1, 5, 42, 0, a, b, 34, 0, 6, 0]
}

pub(crate) const PLAIN: [u8; 10] = [0; 10];

pub(crate) fn receive(port: &mut VhostPort, pool: &Pool) -> Vec<Received> {
    let mut burst = Burst::default();
    while port.receive(Nanos(0), pool, &mut burst).expect("a port") == More::Maybe {
        if burst.frames.len() > 10_000 {
            break;
        }
    }
    burst.frames
}

pub(crate) fn bytes(received: &Received) -> &[u8] {
    &received.buffer[received.start..][..received.len]
}

pub(crate) fn outgoing(pool: &Pool, bytes: &[u8], virtio: Option<[u8; 10]>) -> Outgoing {
    let mut buffer = pool.buffer(Packet::HEADROOM + bytes.len());
    buffer[Packet::HEADROOM..][..bytes.len()].copy_from_slice(bytes);
    let packet = Packet::new(buffer, Packet::HEADROOM, bytes.len(), virtio, None);
    Outgoing::frame(packet.expect("well-formed"))
}

pub(crate) fn transmit(port: &mut VhostPort, frames: &mut VecDeque<Outgoing>) -> TransmitResult {
    // A change of the device may be under way.
    until("the device to be free", || {
        let sent = port.transmit(Nanos(0), frames).expect("a port");
        (sent
            != TransmitResult {
                full: true,
                ..TransmitResult::default()
            }
            || frames.is_empty())
        .then_some(sent)
    })
}

/// Sends a frame by a machine's card, and one back.
pub(crate) fn exchange(port: &mut VhostPort, machine: &mut Machine, pool: &Pool, mark: u8) {
    machine.send(0, PLAIN, &frame(60, mark));
    let got = until("a frame", || receive(port, pool).pop());
    assert_eq!(bytes(&got), frame(60, mark));
    let mut frames = VecDeque::from([outgoing(pool, &frame(60, mark), None)]);
    assert_eq!(transmit(port, &mut frames).packets, 1);
    let (_, got) = machine.receive(0, true).expect("a frame");
    assert_eq!(got, frame(60, mark));
}
