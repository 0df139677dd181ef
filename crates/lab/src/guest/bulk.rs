//! One endless TCP stream: sender and receiver.

use super::{Outcome, Starter, now};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use std::time::Duration;
use tailbound_units::Nanos;

const CHUNK: usize = 256 << 10;

pub(super) fn send(starter: &Starter<'_>, to: SocketAddrV4) -> io::Result<()> {
    let mut stream = TcpStream::connect_timeout(&to.into(), Duration::from_secs(5))?;
    super::control_congestion(&stream)?;
    let chunk = vec![0x5a; CHUNK];
    let schedule = starter.ready()?;
    super::sleep_until(schedule.start);
    loop {
        stream.write_all(&chunk)?;
    }
}

pub(super) fn receive(starter: &Starter<'_>, port: u16) -> io::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, port))?;
    let schedule = starter.ready()?;
    let (mut stream, _) = listener.accept()?;
    // A stalled stream must not delay the outcome.
    stream.set_read_timeout(Some(Duration::from_millis(100)))?;
    let mut buffer = vec![0; CHUNK];
    let (mut bytes, mut first, mut last) = (0, None, schedule.from);
    let mut windows = schedule.windows();
    let mut done = false;
    loop {
        let length = match stream.read(&mut buffer) {
            Ok(0) if done => return Ok(()),
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(length) => length as u64,
            Err(error) if super::events::is_retry(&error) => 0,
            Err(error) => return Err(error),
        };
        let at = now();
        if schedule.counts(at) {
            windows.add(at, length);
            if first.is_none() {
                // The first bytes of the window arrived over a time before it.
                first = Some(at);
            } else {
                bytes += length;
            }
            last = at;
        } else if at >= schedule.to && !done {
            done = true;
            starter.finish(&Outcome {
                amount: bytes,
                time: first.map_or(Nanos::ZERO, |first| last.since(first)),
                windows: std::mem::take(&mut windows),
                ..Outcome::default()
            })?;
        }
    }
}
