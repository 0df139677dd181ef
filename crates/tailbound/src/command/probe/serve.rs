//! Answers the calls of a network test: a thread a connection, a bounded number of
//! them. Whoever sends anything but calls, or nothing for a while, is cut off.

use super::error::ProbeError;
use crate::command::output::print;
use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use std::io::{self, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;
use tailbound_probe::wire::{HEADER, Header, Kind, REQUEST, RESPONSE};
use tailbound_sys::timer;
use tailbound_units::Nanos;

/// Arguments of `tailbound probe serve`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Everybody who reaches the address may call: 37 bytes up, 2029 down. \
    It runs until it is ended."
)]
pub(super) struct Args {
    /// Where to listen; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7413")]
    listen: String,
    /// Serve so many connections at a time, and close those beyond
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=4096))]
    connections: u32,
}

/// A caller that says nothing for so long is gone.
const IDLE: Duration = Duration::from_secs(30);
/// So is one that does not take its answer.
const STUCK: Duration = Duration::from_secs(10);
/// Refusals are said at most once in this time.
const SAY_EVERY: Nanos = Nanos::from_secs(1);

impl Args {
    pub(super) fn run(self) -> Result<ExitCode, ProbeError> {
        let address = self.listen;
        let failed = |source| ProbeError::Listen {
            address: address.clone(),
            source,
        };
        let listener = TcpListener::bind(&address).map_err(failed)?;
        let bound = listener.local_addr().map_err(failed)?;
        print(&format!("serving on {bound}\n"));
        let open = Arc::new(AtomicU32::new(0));
        let refusals = Arc::new(Refusals::default());
        loop {
            let stream = match listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) => {
                    // Out of descriptors, most likely: connections that end give some back.
                    refusals.say(&error);
                    std::thread::sleep(Duration::from_millis(100));
                    continue;
                }
            };
            let slot = Slot(Arc::clone(&open));
            if open.fetch_add(1, Ordering::Relaxed) >= self.connections {
                refusals.say(&"too many connections");
                continue;
            }
            let refused = Arc::clone(&refusals);
            let serve = move || {
                let _slot = slot;
                if let Err(error) = answer(stream) {
                    refused.say(&error);
                }
            };
            if let Err(error) = std::thread::Builder::new().spawn(serve) {
                refusals.say(&error);
            }
        }
    }
}

/// A place for a connection, given back at its end.
struct Slot(Arc<AtomicU32>);

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Says why a connection was refused or cut off, and how many have been.
#[derive(Debug, Default)]
struct Refusals {
    count: AtomicU64,
    /// When something may be said again.
    next: AtomicU64,
}

impl Refusals {
    fn say(&self, why: &dyn std::fmt::Display) {
        let count = self.count.fetch_add(1, Ordering::Relaxed) + 1;
        let (now, next) = (timer::now(), Nanos(self.next.load(Ordering::Relaxed)));
        if now >= next {
            let next = now.saturating_add(SAY_EVERY).as_nanos();
            self.next.store(next, Ordering::Relaxed);
            eprintln!("tailbound probe serve: {why} ({count} connections refused so far)");
        }
    }
}

/// Answers calls until the caller closes the connection.
fn answer(mut stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(IDLE))?;
    stream.set_write_timeout(Some(STUCK))?;
    let mut response = [0; HEADER + RESPONSE];
    // Random, as the paper's, so that nothing on the way makes it smaller; once,
    // because the answer is to cost the network's time and not this node's.
    Pcg64Mcg::seed_from_u64(timer::now().as_nanos()).fill(&mut response[HEADER..]);
    let mut request = [0; HEADER + REQUEST];
    loop {
        match stream.read_exact(&mut request) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) => return Err(error),
        }
        let header = request
            .first_chunk()
            .expect("a request begins with a header");
        let call = Header::decode(header, Kind::Request)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        let header = Header {
            kind: Kind::Response,
            ..call
        };
        response[..HEADER].copy_from_slice(&header.encode());
        stream.write_all(&response)?;
    }
}
