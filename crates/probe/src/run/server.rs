//! Answers the calls of a network test, with a thread for each connection and a limited number of
//! connections. A client that sends anything but calls, or nothing for 30 s, is disconnected.

use crate::wire::{HEADER, Header, Kind, MAX_ANSWER_BYTES, REQUEST, WireError};
use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use std::fmt;
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;
use tailbound_sys::timer;
use tailbound_units::Nanos;

/// Time limit for a silent caller.
const IDLE: Duration = Duration::from_secs(30);
/// Time limit for a caller to take its answer.
const STUCK: Duration = Duration::from_secs(10);
/// Refusals are reported at most once in this time.
const REPORT_EVERY: Nanos = Nanos::from_secs(1);

/// Server that answers the calls of probes.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    connections: u32,
}

/// Connections that were refused or cut off.
#[derive(Debug)]
pub struct Refusal {
    /// Reason of the last refusal.
    pub reason: String,
    /// Number of refused connections since the server began.
    pub so_far: u64,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { reason, so_far } = self;
        write!(f, "{reason} ({so_far} connections refused so far)")
    }
}

impl Server {
    /// Listens on `address`; port 0 takes a free one. At most `connections` are open at
    /// a time.
    ///
    /// # Errors
    /// The address is none of this machine's, or is taken.
    pub fn bind(address: &str, connections: u32) -> io::Result<Self> {
        Ok(Self {
            listener: TcpListener::bind(address)?,
            connections,
        })
    }

    /// Returns its address.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Answers calls for ever. `report` is called with refusals, at most once a second.
    pub fn serve(&self, report: fn(&Refusal)) -> ! {
        let open = Arc::new(AtomicU32::new(0));
        let refusals = Arc::new(Refusals::new(report));
        loop {
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) => {
                    // Out of descriptors, most likely: connections that end give some back.
                    refusals.add(&error);
                    std::thread::sleep(Duration::from_millis(100));
                    continue;
                }
            };
            let slot = Slot(Arc::clone(&open));
            if open.fetch_add(1, Ordering::Relaxed) >= self.connections {
                refusals.add(&"too many connections");
                continue;
            }
            let refused = Arc::clone(&refusals);
            let serve = move || {
                let _slot = slot;
                if let Err(error) = answer(stream) {
                    refused.add(&error);
                }
            };
            if let Err(error) = std::thread::Builder::new().spawn(serve) {
                refusals.add(&error);
            }
        }
    }
}

/// The place of an open connection; another may be opened once it is dropped.
struct Slot(Arc<AtomicU32>);

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Counts refusals, and reports them.
#[derive(Debug)]
struct Refusals {
    report: fn(&Refusal),
    count: AtomicU64,
    /// Time from which on the next refusal may be reported.
    next: AtomicU64,
}

impl Refusals {
    fn new(report: fn(&Refusal)) -> Self {
        Self {
            report,
            count: AtomicU64::new(0),
            next: AtomicU64::new(0),
        }
    }

    fn add(&self, reason: &dyn fmt::Display) {
        let so_far = self.count.fetch_add(1, Ordering::Relaxed) + 1;
        let (now, next) = (timer::now(), Nanos(self.next.load(Ordering::Relaxed)));
        if now >= next {
            let next = now.saturating_add(REPORT_EVERY).as_nanos();
            self.next.store(next, Ordering::Relaxed);
            let reason = reason.to_string();
            (self.report)(&Refusal { reason, so_far });
        }
    }
}

/// Answers calls until the caller closes the connection.
fn answer(mut stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(IDLE))?;
    stream.set_write_timeout(Some(STUCK))?;
    let mut response = [0; HEADER + MAX_ANSWER_BYTES];
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
        let wrong = |error| io::Error::new(io::ErrorKind::InvalidData, error);
        let call = Header::decode(header).map_err(wrong)?;
        let Kind::Request(size) = call.kind else {
            return Err(wrong(WireError::Direction));
        };
        let header = Header {
            kind: Kind::Response(size),
            ..call
        };
        response[..HEADER].copy_from_slice(&header.encode());
        stream.write_all(&response[..HEADER + size.bytes()])?;
    }
}
