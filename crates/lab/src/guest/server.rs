//! Answers requests: one thread, any number of connections.

use super::events::{ALARM, Events, is_retry};
use super::protocol::Requests;
use super::stream::{LISTENER, accept, listen};
use super::{Outcome, Schedule, Starter, now};
use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::TcpStream;

/// One connection: the parsed requests, and the number of bytes that remain to be sent.
struct Connection {
    stream: TcpStream,
    requests: Requests,
    owed: u64,
}

/// Filler bytes of one write.
static FILLER: [u8; 256 << 10] = [0x5a; 256 << 10];

pub(super) fn run(starter: &Starter<'_>, port: u16) -> io::Result<()> {
    let listener = listen(port)?;
    let mut events = Events::new()?;
    events.add(&listener, LISTENER)?;
    // Connections are made before the load starts, while this task waits for its start line: they
    // stay in the listener's backlog until then.
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
                LISTENER => accept(&listener, |stream| {
                    stream.set_nodelay(true)?;
                    events.add(&stream, next_key)?;
                    let connection = Connection {
                        stream,
                        requests: Requests::default(),
                        owed: 0,
                    };
                    connections.insert(next_key, connection);
                    next_key += 1;
                    Ok(())
                })?,
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

/// Reads and writes until it would block; returns false when the connection is closed.
fn serve(connection: &mut Connection, schedule: &Schedule, outcome: &mut Outcome) -> bool {
    let mut buffer = [0; 4096];
    loop {
        match connection.stream.read(&mut buffer) {
            Ok(0) => return false,
            Ok(length) => {
                let Ok(batch) = connection.requests.take(&buffer[..length]) else {
                    return false;
                };
                connection.owed += batch.bytes;
                if batch.requests > 0 && schedule.counts(now()) {
                    let cpu = u32::try_from(rustix::thread::sched_getcpu()).unwrap_or(u32::MAX);
                    *outcome.served.entry(cpu).or_default() += batch.requests;
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
