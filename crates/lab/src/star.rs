//! Hosts at one switch with the kernel's own TCP between them and no other mechanism of tailbound
//! on the path: the reference for a simulation of the same star.
//!
//! A host is a network namespace with a TAP. One thread executes the links and the switch, which
//! are the module `wires`: a TBF or an HTB would send the first frames after a pause without a gap,
//! like any token bucket, and a link does not. Kernels pass single frames, and offloads are off.

mod wires;

use crate::LabError;
use crate::build::{self, batch, configure, tool};
use crate::guest::events::{ALARM, Events, is_retry};
use crate::guest::{GUEST_INTERFACE, control_congestion, now};
use crate::processes::Rank;
use crate::session::Session;
use crate::topology::{Guest, GuestPort, Topology, namespace_path};
use hdrhistogram::Histogram;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io::{self, IoSliceMut, Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use tailbound_sys::netns::within;
use tailbound_sys::sched::set_policy;
use tailbound_sys::tap::{Tap, VIRTIO_HEADER_LEN};
use tailbound_units::{Bytes, Nanos};
pub use wires::Links;
use wires::{WireFrame, Wires};

/// Bytes of a frame on a wire beside those on a TAP: preamble, FCS and gap; and the smallest total.
const OVERHEAD: u64 = 24;
const SHORTEST: u64 = 84;
/// The longest frame that a TAP passes, in bytes.
const MAX_FRAME: usize = 65_550;
const PORT: u16 = 7_100;
/// Time limit of a star's wait for missing bytes after the last flow has begun.
const MISSING_BYTES_TIMEOUT: Nanos = Nanos::from_secs(10);
/// Interval in which the switch checks for its end.
const END_CHECK_INTERVAL: Nanos = Nanos::from_millis(20);
/// Time from the end of the setup to the beginning of flows.
const HEAD_START: Nanos = Nanos::from_millis(50);

/// Kernel settings beside the lab's own: only the congestion window limits a flow.
const SETTINGS: [(&str, &str); 3] = [
    ("net/ipv4/tcp_no_metrics_save", "1"),
    ("net/ipv4/tcp_rmem", "4096 4194304 33554432"),
    ("net/ipv4/tcp_wmem", "4096 4194304 33554432"),
];

/// A transfer of bytes over a connection of its own, which was opened before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flow {
    /// Time at which it is written, from the start on.
    pub begun: Nanos,
    /// The sending host,
    pub from: usize,
    /// and the receiving host.
    pub to: usize,
    /// Number of bytes.
    pub size: Bytes,
}

/// Result of a run with flows.
#[derive(Debug)]
pub struct StarResult {
    /// Duration of each flow, from its scheduled time until its last byte was read; `None` if its
    /// bytes did not arrive.
    pub took: Vec<Option<Nanos>>,
    /// Frames that were dropped at full ports.
    pub lost: u64,
    /// Delays of frames in nanoseconds beyond those of the links, because this computer was busy.
    pub late: Histogram<u64>,
}

/// Hosts at one switch.
pub struct Star {
    session: Session,
    topology: Topology,
    taps: Vec<Tap>,
}

impl Star {
    /// Builds the star. Moves this process into namespaces of its own, so it must have a single
    /// thread, and cannot return. Connections use CUBIC.
    ///
    /// # Errors
    /// This computer does not allow namespaces, or lacks iproute2 or ethtool.
    pub fn build(hosts: u8) -> Result<Self, LabError> {
        let session = Session::enter(false)?;
        raise_files().map_err(LabError::io("asking for more open files"))?;
        let guests = (1..=hosts).map(Guest::alone).collect();
        let topology = Topology::without_hosts(guests, GuestPort::Tap);
        build::namespaces(&topology)?;
        let mut taps = Vec::new();
        for guest in &topology.guests {
            configure(&guest.name, &build::SETTINGS)?;
            batch("ip", Some(&guest.name), &topology.guest_links(guest))?;
            configure(&guest.name, &SETTINGS)?;
            let tap = Tap::open(GUEST_INTERFACE, Some(&namespace_path(&guest.name)));
            taps.push(tap.map_err(|error| LabError::io("opening a TAP")(io::Error::other(error)))?);
            let queue = format!("link set {GUEST_INTERFACE} txqueuelen 10000\n");
            batch("ip", Some(&guest.name), &queue)?;
            // Single frames, with checksums.
            let off = format!("netns exec {} ethtool -K {GUEST_INTERFACE}", guest.name);
            tool("ip", &format!("{off} tx off tso off gso off gro off"))?;
        }
        Ok(Self {
            session,
            topology,
            taps,
        })
    }

    /// Sends flows, in the order of their beginnings, over these links.
    pub fn run(&self, links: &Links, flows: &[Flow]) -> Result<StarResult, LabError> {
        let is_over = AtomicBool::new(false);
        let (took, carried) = std::thread::scope(|scope| {
            let switch = scope.spawn(|| self.carry(links, &is_over));
            let ends = scope.spawn(|| self.send(flows));
            let took = ends.join();
            is_over.store(true, Ordering::Relaxed);
            (took, switch.join())
        });
        let failed = || io::Error::other("a thread of the star panicked");
        let took = took.unwrap_or_else(|_| Err(failed()));
        let carried = carried.unwrap_or_else(|_| Err(failed()));
        let (lost, late) = carried.map_err(LabError::io("the star's switch"))?;
        Ok(StarResult {
            took: took.map_err(LabError::io("the star's flows"))?,
            lost,
            late,
        })
    }

    /// Sets the class of this thread, which stands for hardware or for separate hosts.
    fn rank(&self, rank: Rank) -> io::Result<()> {
        self.session
            .policy(rank)
            .map_or(Ok(()), |policy| set_policy(0, policy))
    }

    /// Executes the switch and all links until `is_over`.
    fn carry(&self, links: &Links, is_over: &AtomicBool) -> io::Result<(u64, Histogram<u64>)> {
        self.rank(Rank::OnPath)?;
        let mut wires = Wires::new(self.taps.len(), *links);
        let mut late = tailbound_report::empty_histogram();
        let mut events = Events::new()?;
        for (key, tap) in (0..).zip(&self.taps) {
            events.add(tap, key)?;
        }
        let mut happened = Vec::new();
        let mut buffer = vec![0; MAX_FRAME];
        while !is_over.load(Ordering::Relaxed) {
            for (from, tap) in self.taps.iter().enumerate() {
                receive(tap, from, &mut buffer, &mut wires)?;
            }
            while let Some((at, framed)) = wires.next(now()) {
                late.saturating_record(now().since(at).0.max(1));
                transmit(&self.taps[framed.to], &framed.frame)?;
            }
            events.set_alarm(wires.poll_at().min(now() + END_CHECK_INTERVAL))?;
            events.wait(&mut happened)?;
        }
        Ok((wires.lost, late))
    }

    /// Executes the ends of all flows.
    fn send(&self, flows: &[Flow]) -> io::Result<Vec<Option<Nanos>>> {
        self.rank(Rank::Infrastructure)?;
        let mut pairs = self.connect(flows)?;
        let mut events = Events::new()?;
        for (key, pair) in (0..).zip(&pairs) {
            events.add(&pair.sender, 2 * key)?;
            events.add(&pair.receiver, 2 * key + 1)?;
        }
        let start = now() + HEAD_START;
        let give_up =
            start + flows.last().map_or(Nanos::ZERO, |it| it.begun) + MISSING_BYTES_TIMEOUT;
        let mut took = vec![None; flows.len()];
        let (mut begun, mut ended) = (0, 0);
        let mut happened = Vec::new();
        let mut buffer = vec![0x5a; 256 << 10];
        while ended < flows.len() && now() < give_up {
            while let Some(flow) = flows.get(begun)
                && start + flow.begun <= now()
            {
                let pair = &mut pairs[begun];
                pair.unsent = flow.size.0;
                pair.send(&buffer)?;
                begun += 1;
            }
            let next = flows.get(begun).map_or(give_up, |it| start + it.begun);
            events.set_alarm(next)?;
            events.wait(&mut happened)?;
            for key in &happened {
                if *key == ALARM {
                    continue;
                }
                let place = (*key / 2) as usize;
                let pair = &mut pairs[place];
                if *key % 2 == 0 {
                    pair.send(&buffer)?;
                } else if pair.receive(&mut buffer)? {
                    took[place] = Some(now().since(start + flows[place].begun));
                    ended += 1;
                }
            }
        }
        Ok(took)
    }

    /// Opens a connection for each flow.
    fn connect(&self, flows: &[Flow]) -> io::Result<Vec<Pair>> {
        let listen = || {
            let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, PORT))?;
            control_congestion(&listener)?;
            Ok::<_, io::Error>(listener)
        };
        let paths = self.topology.guests.iter();
        let paths: Vec<_> = paths.map(|it| namespace_path(&it.name)).collect();
        let listeners: io::Result<Vec<_>> = paths.iter().map(|it| within(it, listen)?).collect();
        let listeners = listeners?;
        let mut pairs: Vec<Option<Pair>> = flows.iter().map(|_| None).collect();
        for (from, path) in paths.iter().enumerate() {
            let mut open = || -> io::Result<()> {
                let each = flows.iter().zip(&mut pairs);
                for (flow, pair) in each.filter(|it| it.0.from == from) {
                    let sender = connect(self.topology.guests[flow.to].ip)?;
                    let (receiver, _) = listeners[flow.to].accept()?;
                    *pair = Some(Pair::new(sender, receiver, flow.size)?);
                }
                Ok(())
            };
            within(path, &mut open)??;
        }
        Ok(pairs.into_iter().flatten().collect())
    }
}

/// Connects. The congestion control is set first, because another one could leave state on the
/// socket, for example BBR its pacing.
fn connect(ip: Ipv4Addr) -> io::Result<TcpStream> {
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
    control_congestion(&socket)?;
    rustix::net::connect(&socket, &SocketAddrV4::new(ip, PORT))?;
    Ok(socket.into())
}

/// Both ends of a flow.
struct Pair {
    sender: TcpStream,
    receiver: TcpStream,
    /// Bytes that remain to be written, and to be read.
    unsent: u64,
    unread: u64,
}

impl Pair {
    fn new(sender: TcpStream, receiver: TcpStream, size: Bytes) -> io::Result<Self> {
        sender.set_nonblocking(true)?;
        receiver.set_nonblocking(true)?;
        Ok(Self {
            sender,
            receiver,
            unsent: 0,
            unread: size.0,
        })
    }

    /// Writes the bytes that the socket accepts.
    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        while self.unsent > 0 {
            let most = bytes.len().min(self.unsent as usize);
            match self.sender.write(&bytes[..most]) {
                Ok(written) => self.unsent -= written as u64,
                Err(error) if is_retry(&error) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Reads the available bytes. Returns whether the last byte was among them.
    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<bool> {
        while self.unread > 0 {
            match self.receiver.read(buffer) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(read) => self.unread -= (read as u64).min(self.unread),
                Err(error) if is_retry(&error) => return Ok(false),
                Err(error) => return Err(error),
            }
            if self.unread == 0 {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Receives all frames of a TAP.
fn receive(
    tap: &Tap,
    from: usize,
    buffer: &mut [u8],
    wires: &mut Wires<Vec<u8>>,
) -> io::Result<()> {
    loop {
        let length = match tap.receive(&mut [IoSliceMut::new(buffer)]) {
            Ok(length) => length,
            Err(error) if is_retry(&error) => return Ok(()),
            Err(error) => return Err(error),
        };
        // The last byte of the receiver's address is its number from 1; frames have no other
        // destinations.
        let to = buffer[VIRTIO_HEADER_LEN + 5].saturating_sub(1);
        let size = (length - VIRTIO_HEADER_LEN) as u64 + OVERHEAD;
        wires.send(
            now(),
            from,
            WireFrame {
                size: Bytes(size.max(SHORTEST)),
                to: usize::from(to),
                frame: buffer[..length].to_vec(),
            },
        );
    }
}

/// Passes a frame to a host's kernel.
fn transmit(tap: &Tap, frame: &[u8]) -> io::Result<()> {
    match tap.transmit(frame) {
        // The TAP may be full briefly, like a NIC: the frame is lost.
        Err(error) if !is_retry(&error) => Err(error),
        _ => Ok(()),
    }
}

/// Raises the limit of open files: each flow has two.
fn raise_files() -> io::Result<()> {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    Ok(setrlimit(
        Resource::Nofile,
        Rlimit {
            current: maximum,
            maximum,
        },
    )?)
}
