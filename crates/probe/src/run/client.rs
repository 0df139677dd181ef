//! The network test of one node: calls at random moments over one open connection, each timed from
//! its due moment.
//!
//! No call waits for the answer of another (open loop), so all due calls count against a node that
//! stops answering.

use crate::network::{ANSWER, Calls, LATE_CALL};
use crate::wire::{HEADER, Header, Kind, Size};
use hdrhistogram::Histogram;
use rand::{Rng, RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use std::io::{self, Read as _, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;
use tailbound_sys::timer;
use tailbound_units::Nanos;

/// Time limit for making a connection, and for writing a call.
const CONNECT: Duration = Duration::from_secs(5);
/// Time limit for one read.
const TURN: Duration = Duration::from_millis(100);

/// The size of each answer.
const ANSWERED: Size = Size::Middle;

/// The most calls a second: beyond it a call a thread is no open loop any more.
pub const MAX_RATE: u32 = 10_000;
/// The longest that calls are made at one rate.
pub const MAX_DURATION: Nanos = Nanos::from_secs(3600);

/// The calls of one rate.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// Calls a second.
    pub rate: u32,
    /// Duration of the calls.
    pub duration: Nanos,
    /// Seed of all random moments.
    pub seed: u64,
}

/// Results of the calls to one node.
#[derive(Debug)]
pub struct Answers {
    /// Number of calls that were due, and of late ones.
    pub calls: Calls,
    /// The time from when each answered call was due to its answer.
    pub times: Histogram<u64>,
    /// Error that ended the connection early.
    pub broken: Option<String>,
}

/// A call that was due.
#[derive(Debug, Clone, Copy)]
struct Due {
    at: Nanos,
    /// Moment when it was written.
    sent: Nanos,
}

/// Calls all nodes in parallel, each on its own thread, and returns the results in the order of the
/// nodes: an error if no connection could be made.
pub fn call_all(
    nodes: &[String],
    load: Load,
    histogram: impl Fn() -> Histogram<u64>,
) -> Vec<io::Result<Answers>> {
    std::thread::scope(|scope| {
        let start = |(place, node): (usize, &'_ String)| {
            let load = Load {
                // Different nodes and rates must not be in step.
                seed: load.seed ^ (place as u64) << 32 ^ u64::from(load.rate) << 16,
                ..load
            };
            let (node, times) = (node.clone(), histogram());
            std::thread::Builder::new().spawn_scoped(scope, move || call(&node, load, times))
        };
        let started: Vec<_> = nodes.iter().enumerate().map(start).collect();
        let ended = started.into_iter().map(|thread| match thread?.join() {
            Ok(answers) => answers,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        ended.collect()
    })
}

/// Calls a node. `times` is an empty histogram to record into.
///
/// # Errors
/// No connection could be made. One that breaks later is part of the result.
fn call(node: &str, load: Load, times: Histogram<u64>) -> io::Result<Answers> {
    let mut reader = connect(node)?;
    reader.set_nodelay(true)?;
    reader.set_read_timeout(Some(TURN))?;
    reader.set_write_timeout(Some(CONNECT))?;
    let writer = reader.try_clone()?;
    let mut random = Pcg64Mcg::seed_from_u64(load.seed);
    let token = random.random();
    Ok(std::thread::scope(|scope| {
        let (sender, receiver) = mpsc::channel();
        let sending = scope.spawn(move || send(writer, load, token, random, &sender));
        let mut answers = receive(&mut reader, token, &receiver, times);
        // Calls that the sender still makes fail at once.
        let _ = reader.shutdown(std::net::Shutdown::Both);
        let due = match sending.join() {
            Ok(due) => due,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        answers.calls.unanswered = due.saturating_sub(answers.calls.calls);
        answers.calls.late += answers.calls.unanswered;
        answers.calls.calls = due;
        answers
    }))
}

/// Makes a connection, within five seconds for each address.
pub(crate) fn connect(node: &str) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in node.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, CONNECT) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Sends the calls, or counts them once the connection is broken; returns the number of due calls.
fn send(
    mut stream: TcpStream,
    load: Load,
    token: u64,
    mut random: impl Rng,
    calls: &Sender<Due>,
) -> u64 {
    // Without it calls are up to 50 us later, which is charged to this side.
    let _ = timer::set_least_slack();
    let start = timer::now();
    let end = start.saturating_add(load.duration);
    let mean = Nanos(1_000_000_000 / u64::from(load.rate));
    let (mut at, mut due) = (start, 0);
    let mut open = true;
    loop {
        at = at.saturating_add(gap(mean, &mut random));
        if at >= end {
            return due;
        }
        if open {
            timer::sleep_until(at);
            let header = Header {
                kind: Kind::Request(ANSWERED),
                number: due,
                token,
            };
            let call = Due {
                at,
                sent: timer::now(),
            };
            // Told first: the answer may be there before `write_all` returns.
            open = calls.send(call).is_ok() && stream.write_all(&header.call()).is_ok();
        }
        due += 1;
    }
}

/// The time to the next call of a Poisson process.
pub(crate) fn gap(mean: Nanos, random: &mut impl Rng) -> Nanos {
    let uniform: f64 = random.random();
    // 1 - uniform is never zero.
    Nanos((-(1.0 - uniform).ln() * mean.as_nanos() as f64) as u64)
}

/// Receives answers until the sender is done and all are there, or one is missing for too long.
/// Counts only the answered calls in `calls`.
fn receive(
    stream: &mut TcpStream,
    token: u64,
    calls: &Receiver<Due>,
    times: Histogram<u64>,
) -> Answers {
    let mut answers = Answers {
        calls: Calls::default(),
        times,
        broken: None,
    };
    for (number, call) in (0..).zip(calls) {
        let expected = Header {
            kind: Kind::Response(ANSWERED),
            number,
            token,
        };
        if let Err(error) = read_answer(stream, expected, call.sent.saturating_add(ANSWER)) {
            answers.broken = Some(error.to_string());
            break;
        }
        let time = timer::now().since(call.at);
        answers.times.saturating_record(time.as_nanos());
        answers.calls.calls += 1;
        if time >= LATE_CALL {
            answers.calls.late += 1;
            let lag = call.sent.since(call.at).as_nanos();
            answers.calls.ours += u64::from(lag >= time.as_nanos().div_ceil(2));
        }
    }
    answers
}

fn read_answer(stream: &mut TcpStream, expected: Header, until: Nanos) -> io::Result<()> {
    let mut frame = [0; HEADER + ANSWERED.bytes()];
    let mut length = 0;
    while length < frame.len() {
        match stream.read(&mut frame[length..]) {
            Ok(0) => return Err(io::Error::other("the node closed the connection")),
            Ok(read) => length += read,
            Err(error) => match error.kind() {
                io::ErrorKind::Interrupted => {}
                io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut if timer::now() < until => {}
                io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                    return Err(io::Error::other("no answer for 5 s"));
                }
                _ => return Err(error),
            },
        }
    }
    let header = frame.first_chunk().expect("an answer begins with a header");
    let header = Header::decode(header).map_err(io::Error::other)?;
    if header != expected {
        return Err(io::Error::other("the answer is to another call"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_those_of_a_poisson_process() {
        let mut random = Pcg64Mcg::seed_from_u64(1);
        let gaps: Vec<u64> = (0..100_000)
            .map(|_| gap(Nanos::from_millis(2), &mut random).0)
            .collect();
        let mean = gaps.iter().sum::<u64>() as f64 / 1e5;
        // 2 ms; the standard deviation of the mean is 6.3 us.
        assert!((mean - 2e6).abs() < 4.0 * 6_325.0, "{mean}");
        let long = gaps.iter().filter(|gap| **gap > 2_000_000).count();
        // exp(-1) of them, standard deviation 152.
        assert!((long as f64 - 36_788.0).abs() < 4.0 * 152.0, "{long}");
    }
}
