//! Fetches pages at random times, independently of earlier fetches: an open loop. Each fetch has a
//! connection of its own, as with ab.

use super::{Outcome, Starter, now};
use crate::arrivals::poisson;
use crate::percentile::percentile;
use serde::{Deserialize, Serialize};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, SocketAddrV4, TcpStream};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;
use tailbound_units::Nanos;

/// Stack of a thread that fetches one page.
const STACK: usize = 64 << 10;

/// Configuration of the client, see [`super::Work::Pages`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pages {
    /// The server.
    pub to: SocketAddrV4,
    /// The pages; all have the same probability.
    pub paths: Vec<String>,
    /// The mean time between two fetches.
    pub mean_gap: Nanos,
    /// Seed of the times.
    pub seed: u64,
}

/// Milliseconds until the connection was established, and from then on until the answer began.
type PageTimes = (f64, f64);

pub(super) fn run(starter: &Starter<'_>, span: Nanos, pages: &Pages) -> io::Result<()> {
    let arrivals = poisson(pages.seed, pages.mean_gap, span, pages.paths.len());
    let schedule = starter.ready()?;
    let (sender, receiver) = mpsc::channel();
    let mut begun = 0;
    for arrival in arrivals {
        let due = schedule.start.saturating_add(arrival.at);
        super::sleep_until(due);
        let counts = schedule.counts(due);
        begun += u64::from(counts);
        let (to, path) = (pages.to, pages.paths[arrival.peer].clone());
        let patience: Duration = schedule.give_up.since(due).into();
        let sender = sender.clone();
        let thread = thread::Builder::new().stack_size(STACK);
        thread.spawn(move || {
            let fetched = fetch(to, &path, patience);
            if counts && let Ok(fetched) = fetched {
                // The receiver is gone if this page was too late.
                let _ = sender.send(fetched);
            }
        })?;
    }
    super::sleep_until(schedule.give_up);
    let fetched: Vec<PageTimes> = receiver.try_iter().collect();
    starter.finish(&Outcome {
        amount: fetched.len() as u64,
        unanswered: begun.saturating_sub(fetched.len() as u64),
        figures: figures(&fetched).into(),
        time: schedule.to.since(schedule.from),
        ..Outcome::default()
    })
}

fn fetch(to: SocketAddrV4, path: &str, patience: Duration) -> io::Result<PageTimes> {
    let begun = now();
    let mut stream = TcpStream::connect_timeout(&SocketAddr::V4(to), patience)?;
    let connected = now();
    stream.set_read_timeout(Some(patience))?;
    stream.write_all(format!("GET /{path} HTTP/1.0\r\n\r\n").as_bytes())?;
    let mut first = [0];
    stream.read_exact(&mut first)?;
    let answered = now();
    io::copy(&mut stream, &mut io::sink())?;
    let waited = answered.since(connected);
    Ok((
        connected.since(begun).as_millis_f64(),
        waited.as_millis_f64(),
    ))
}

fn figures(fetched: &[PageTimes]) -> [(String, f64); 4] {
    let (connect, wait): (Vec<_>, Vec<_>) = fetched.iter().copied().unzip();
    [
        ("connect_p50", percentile(&connect, 50.0)),
        ("connect_p99", percentile(&connect, 99.0)),
        ("wait_p50", percentile(&wait, 50.0)),
        ("wait_p99", percentile(&wait, 99.0)),
    ]
    .map(|(name, figure)| (name.to_owned(), figure))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::BufRead as _;
    use std::net::{Ipv4Addr, TcpListener};

    #[test]
    fn a_page_is_fetched_to_its_end_over_a_connection_of_its_own() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let SocketAddr::V4(to) = listener.local_addr().expect("its address") else {
            panic!("it is IPv4");
        };
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a client");
            let mut line = String::new();
            let mut reader = io::BufReader::new(stream.try_clone().expect("a socket"));
            reader.read_line(&mut line).expect("a request");
            stream.write_all(&[b'x'; 10_000]).expect("it reads on");
            line
        });
        let (connected, waited) = fetch(to, "16", Duration::from_secs(10)).expect("a page");
        assert!(connected >= 0.0 && waited >= 0.0);
        assert_eq!(server.join().expect("no panic"), "GET /16 HTTP/1.0\r\n");
        // Nobody listens there any more.
        fetch(to, "16", Duration::from_secs(10)).expect_err("no server");
    }
}
