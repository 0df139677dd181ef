//! Answers requests: one thread, any number of connections.

use super::events::{ALARM, Events, is_retry};
use super::protocol::Requests;
use super::{Outcome, Schedule, Starter, now};
use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};

const LISTENER: u64 = u64::MAX - 1;

/// One connection: what came in, and how many bytes are still to go out.
struct Connection {
    stream: TcpStream,
    requests: Requests,
    owed: u64,
}

/// Bytes of no meaning, as much as one write takes.
static FILLER: [u8; 256 << 10] = [0x5a; 256 << 10];

pub(super) fn run(starter: &Starter<'_>, port: u16) -> io::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, port))?;
    super::control_congestion(&listener)?;
    listener.set_nonblocking(true)?;
    let mut events = Events::new()?;
    events.add(&listener, LISTENER)?;
    // Connections are made before the load starts, while this waits for its
    // start line: they stay in the listener's backlog until then.
    let schedule = starter.ready()?;
    events.set_alarm(schedule.to)?;

    let mut connections: HashMap<u64, Connection> = HashMap::new();
    let mut next_key = 0;
    let mut outcome = Outcome::default();
    let mut happened = Vec::new();
    loop {
        events.wait(&mut happened)?;
        for key in &happened {
            match *key {
                ALARM => starter.finish(&outcome)?,
                LISTENER => accept(&listener, &events, &mut connections, &mut next_key)?,
                key => {
                    let Some(connection) = connections.get_mut(&key) else {
                        continue;
                    };
                    if !serve(connection, &schedule, &mut outcome) {
                        connections.remove(&key);
                    }
                }
            }
        }
    }
}

fn accept(
    listener: &TcpListener,
    events: &Events,
    connections: &mut HashMap<u64, Connection>,
    next_key: &mut u64,
) -> io::Result<()> {
    loop {
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) if is_retry(&error) => return Ok(()),
            Err(error) => return Err(error),
        };
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        events.add(&stream, *next_key)?;
        connections.insert(
            *next_key,
            Connection {
                stream,
                requests: Requests::default(),
                owed: 0,
            },
        );
        *next_key += 1;
    }
}

/// Reads and writes until it would block; false when the connection is over.
fn serve(connection: &mut Connection, schedule: &Schedule, outcome: &mut Outcome) -> bool {
    let mut buffer = [0; 4096];
    loop {
        match connection.stream.read(&mut buffer) {
            Ok(0) => return false,
            Ok(length) => {
                let Ok(asked) = connection.requests.take(&buffer[..length]) else {
                    return false;
                };
                connection.owed += asked.bytes;
                if asked.requests > 0 && schedule.counts(now()) {
                    let cpu = u32::try_from(rustix::thread::sched_getcpu()).unwrap_or(u32::MAX);
                    *outcome.served.entry(cpu).or_default() += asked.requests;
                }
            }
            Err(error) if is_retry(&error) => break,
            Err(_) => return false,
        }
    }
    while connection.owed > 0 {
        let size = connection.owed.min(FILLER.len() as u64) as usize;
        match connection.stream.write(&FILLER[..size]) {
            Ok(written) => connection.owed -= written as u64,
            Err(error) if is_retry(&error) => break,
            Err(_) => return false,
        }
    }
    true
}
