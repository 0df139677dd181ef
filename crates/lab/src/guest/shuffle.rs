//! One end of an all-to-all transfer: endless TCP streams to every peer, and the receiver of the
//! streams to this guest. Its amount is the number of received bytes.

use super::events::{ALARM, Events, is_retry};
use super::stream::{LISTENER, accept, connect, listen};
use super::{Outcome, Starter, now};
use std::io::{self, Read, Write};
use std::net::{SocketAddrV4, TcpStream};

const CHUNK: usize = 64 << 10;

enum Stream {
    Out(TcpStream),
    In(TcpStream),
}

pub(super) fn run(starter: &Starter<'_>, port: u16, peers: &[SocketAddrV4]) -> io::Result<()> {
    let listener = listen(port)?;
    let mut events = Events::new()?;
    events.add(&listener, LISTENER)?;
    // From this point on all peers listen.
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
                // The task continues to send: other tasks still measure.
                ALARM => starter.finish(&outcome)?,
                LISTENER => accept(&listener, |stream| {
                    events.add(&stream, streams.len() as u64)?;
                    streams.push(Stream::In(stream));
                    Ok(())
                })?,
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

/// Writes until it would block; returns 0 received bytes.
fn fill(stream: &mut TcpStream, chunk: &[u8]) -> io::Result<u64> {
    loop {
        match stream.write(chunk) {
            Ok(_) => {}
            Err(error) if is_retry(&error) => return Ok(0),
            Err(error) => return Err(error),
        }
    }
}

/// Reads until it would block; returns the number of received bytes.
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
