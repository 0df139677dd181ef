//! One end of an all-to-all transfer: TCP streams to every peer that never end, and
//! whoever sends to this one. Its amount is what it received, in bytes.

use super::events::{ALARM, Events, is_retry};
use super::{Outcome, Starter, now};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};

const LISTENER: u64 = u64::MAX - 1;
const CHUNK: usize = 64 << 10;

enum Stream {
    Out(TcpStream),
    In(TcpStream),
}

pub(super) fn run(starter: &Starter<'_>, port: u16, peers: &[SocketAddrV4]) -> io::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, port))?;
    super::control_congestion(&listener)?;
    listener.set_nonblocking(true)?;
    let mut events = Events::new()?;
    events.add(&listener, LISTENER)?;
    // From here on all peers listen.
    let schedule = starter.ready()?;
    super::sleep_until(schedule.start);
    let mut streams = Vec::new();
    for peer in peers {
        let stream = connect(*peer)?;
        events.add(&stream, streams.len() as u64)?;
        streams.push(Stream::Out(stream));
    }
    events.set_alarm(schedule.to)?;
    let mut outcome = Outcome {
        time: schedule.to.since(schedule.from),
        ..Outcome::default()
    };
    let mut buffer = vec![0x5a; CHUNK];
    let mut happened = Vec::new();
    loop {
        events.wait(&mut happened)?;
        for key in &happened {
            match *key {
                // Goes on sending: others still measure.
                ALARM => starter.finish(&outcome)?,
                LISTENER => accept(&listener, &events, &mut streams)?,
                key => {
                    let received = match streams.get_mut(key as usize) {
                        Some(Stream::Out(stream)) => fill(stream, &buffer)?,
                        Some(Stream::In(stream)) => drain(stream, &mut buffer)?,
                        None => 0,
                    };
                    if schedule.counts(now()) {
                        outcome.amount += received;
                    }
                }
            }
        }
    }
}

/// Begins to connect; the socket becomes writable when it is.
fn connect(peer: SocketAddrV4) -> io::Result<TcpStream> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
    super::control_congestion(&socket)?;
    match rustix::net::connect(&socket, &peer) {
        Ok(()) | Err(rustix::io::Errno::INPROGRESS) => Ok(TcpStream::from(socket)),
        Err(error) => Err(error.into()),
    }
}

fn accept(listener: &TcpListener, events: &Events, streams: &mut Vec<Stream>) -> io::Result<()> {
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(true)?;
                events.add(&stream, streams.len() as u64)?;
                streams.push(Stream::In(stream));
            }
            Err(error) if is_retry(&error) => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

/// Writes until it would block; nothing was received by that.
fn fill(stream: &mut TcpStream, chunk: &[u8]) -> io::Result<u64> {
    loop {
        match stream.write(chunk) {
            Ok(_) => {}
            Err(error) if is_retry(&error) || error.kind() == io::ErrorKind::NotConnected => {
                return Ok(0);
            }
            Err(error) => return Err(error),
        }
    }
}

/// Reads until it would block; returns how much there was.
fn drain(stream: &mut TcpStream, buffer: &mut [u8]) -> io::Result<u64> {
    let mut received = 0;
    loop {
        match stream.read(buffer) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(length) => received += length as u64,
            Err(error) if is_retry(&error) => return Ok(received),
            Err(error) => return Err(error),
        }
    }
}
