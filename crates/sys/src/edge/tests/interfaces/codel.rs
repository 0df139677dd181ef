//! `CoDel` of the BPF qdisc beside that of the user-space queues, for the same arrivals and departures. `make
//! edge-guest` has a kernel with this qdisc, whose TAPs hold frames back while their reader is slow.

use super::*;
use crate::departures::Log;
use crate::tap::{check, request};
use crate::timer::{now, sleep_until};
use std::collections::VecDeque;
use std::fs::File;
use std::io::Read as _;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use tailbound_dataplane::{CodelConfig, PacketRecord, Queue as UserQueue, QueueConfig, QueueStats};

/// A station behind the slow uplink.
const FAR: &str = "02:00:00:00:00:09";
/// Bytes of a frame without check sequence, and of its headers.
const LEN: usize = 1_514;
const HEADERS: usize = 42;
/// The time of a frame on the slow wire: 10 Mbit/s.
const GAP: Nanos = Nanos(1_230_400);
const TIME: Nanos = Nanos::from_secs(3);
/// The first window of the sender in frames, and its most.
const FIRST_WINDOW: f64 = 60.0;
const MAX_WINDOW: f64 = 75.0;

/// A sender with a window, as TCP has one: more by a frame for each window that arrives, half of it after a loss.
struct Sender {
    socket: UdpSocket,
    window: f64,
    next: u64,
    in_flight: VecDeque<u64>,
    /// Losses of frames before it are those that the window was halved for.
    recovers_at: u64,
    sent: Vec<Nanos>,
}

impl Sender {
    fn fill_window(&mut self) {
        while (self.in_flight.len() as f64) < self.window {
            let mut payload = vec![0; LEN - HEADERS];
            payload[..8].copy_from_slice(&self.next.to_be_bytes());
            let before = now();
            self.socket.send(&payload).expect("a route");
            self.sent.push(before);
            self.in_flight.push_back(self.next);
            self.next += 1;
        }
    }

    /// A frame has arrived; those before it are lost.
    fn handle_arrival(&mut self, number: u64) {
        let mut is_lost = false;
        while self.in_flight.front().is_some_and(|first| *first <= number) {
            let lost = self.in_flight.pop_front().filter(|first| *first < number);
            is_lost |= lost.is_some_and(|lost| lost >= self.recovers_at);
        }
        if is_lost {
            self.window = (self.window / 2.0).max(4.0);
            self.recovers_at = self.next;
        } else {
            self.window = (self.window + 1.0 / self.window).min(MAX_WINDOW);
        }
    }
}

/// The number in a frame of the sender's; `None` for another frame.
fn number_of(frame: &[u8]) -> Option<u64> {
    let number = frame.get(HEADERS..)?.first_chunk()?;
    (frame.len() == LEN).then(|| u64::from_be_bytes(*number))
}

const LOOPBACK: u32 = 1;
const UPLINK: UplinkRules = UplinkRules {
    mark: 0,
    queue: UplinkQueue::Bpf,
};

/// Checks whether an attachment failed because the kernel has no BPF qdiscs.
fn is_without_qdiscs<T, E: ToString>(attached: &Result<T, E>) -> bool {
    let error = attached.as_ref().err().map(E::to_string);
    error.is_some_and(|error| error.contains("this kernel has no bpf_"))
}

impl Net {
    /// A TAP with the BPF qdisc and its index, and a sender to it; `None` without that qdisc.
    fn slow(&self, edge: &mut Edge) -> Option<(File, u32, UdpSocket)> {
        let name = format!("{}h", self.name);
        let tap = match self.host(patient_tap) {
            Ok(tap) => tap,
            Err(error) => {
                // A kernel without BPF qdiscs needs no such TAP.
                let attached = self.host(|| edge.attach_uplink(LOOPBACK, &UPLINK));
                if !is_without_qdiscs(&attached) {
                    skipped(Part::BpfEdge, error);
                }
                return None;
            }
        };
        for command in [
            // The ring of a TAP is as long as this.
            "link set slow txqueuelen 2 up",
            "addr add 10.8.0.1/24 dev slow",
            &format!("neigh replace 10.8.0.9 lladdr {FAR} dev slow"),
        ] {
            let command = format!("ip -n {name} {command}");
            assert!(run(&command), "{command}");
        }
        let socket = self.host(|| UdpSocket::bind(("10.8.0.1", 9)).expect("an address"));
        let index = rustix::net::netdevice::name_to_index(&socket, "slow").expect("a TAP");
        let attached = self.host(|| edge.attach_uplink(index, &UPLINK));
        if is_without_qdiscs(&attached) {
            return None;
        }
        attached.expect("a kernel with BPF qdiscs attaches one");
        socket.connect("10.8.0.9:9").expect("a route");
        Some((tap, index, socket))
    }
}

/// A TAP that refuses frames while its ring is full, as NICs do: those wait in its qdisc.
fn patient_tap() -> std::io::Result<File> {
    /// `IFF_BACKPRESSURE`, which Linux 7.3 has.
    const BACKPRESSURE: libc::c_int = 0x80;
    const GET_FEATURES: libc::c_ulong = 0x8004_54cf;
    let tap = File::options()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK)
        .open("/dev/net/tun")?;
    let mut features: libc::c_uint = 0;
    // SAFETY: TUNGETFEATURES writes one `unsigned int`.
    check(unsafe { libc::ioctl(tap.as_raw_fd(), GET_FEATURES, &raw mut features) })?;
    if features.cast_signed() & BACKPRESSURE == 0 {
        return Err(std::io::Error::other(
            "TAPs of this kernel drop what their readers are too slow for",
        ));
    }
    let mut request = request("slow").expect("a short name");
    request.ifr_ifru.ifru_flags = (libc::IFF_TAP | libc::IFF_NO_PI | BACKPRESSURE) as libc::c_short;
    // SAFETY: TUNSETIFF reads and writes one `ifreq`, which `request` is.
    check(unsafe { libc::ioctl(tap.as_raw_fd(), libc::TUNSETIFF, &raw mut request) })?;
    Ok(tap)
}

/// Reads a frame each [`GAP`] for [`TIME`], and returns the numbers of the sender's frames.
fn read_slowly(mut tap: &File, sender: &mut Sender) -> Vec<u64> {
    let mut arrived = Vec::new();
    let mut next = now();
    let end = next + TIME;
    while next < end {
        sender.fill_window();
        sleep_until(next);
        let mut frame = [0; 2_048];
        if let Ok(len) = tap.read(&mut frame)
            && let Some(number) = number_of(&frame[..len])
        {
            sender.handle_arrival(number);
            arrived.push(number);
        }
        next += GAP;
    }
    arrived
}

/// Passes frames that come and leave at these times through a user-space queue. Returns the numbers of those that leave, and their
/// waits.
fn of_user_space(came: &[Nanos], left: &[Nanos]) -> (Vec<u64>, Vec<Nanos>, QueueStats) {
    let mut queue = UserQueue::new(&QueueConfig::Codel(CodelConfig::default()));
    let mut stats = QueueStats::default();
    let (mut numbers, mut waits) = (Vec::new(), Vec::new());
    let mut coming = came.iter().zip(0..).peekable();
    for at in left {
        while let Some((time, number)) = coming.next_if(|(time, _)| *time <= at) {
            let frame = PacketRecord {
                id: number,
                came: *time,
                ..PacketRecord::new(LEN)
            };
            queue.push(*time, frame, &mut stats);
        }
        let queued = queue.pull(*at, &mut stats).expect("a frame");
        numbers.push(queued.frame.id);
        waits.push(at.since(queued.frame.came));
    }
    (numbers, waits, stats)
}

#[test]
fn codel_of_the_bpf_qdisc_drops_the_frames_that_the_user_space_queue_drops() {
    let Some(net) = Net::new() else { return };
    let Some(mut edge) = net.open() else { return };
    let Some((tap, index, socket)) = net.slow(&mut edge) else {
        return;
    };
    let mut log = Log::load(8_192).expect("a tracepoint");
    log.watch(index).expect("room");
    let mut sender = Sender {
        socket,
        window: FIRST_WINDOW,
        next: 0,
        in_flight: VecDeque::new(),
        recovers_at: 0,
        sent: Vec::new(),
    };
    let arrived = read_slowly(&tap, &mut sender);
    let left = log.read().expect("a map");
    let left = left
        .iter()
        .filter(|it| it.interface == index && it.len.0 == LEN as u64);
    let left: Vec<_> = left.map(|it| it.time).collect();
    // Some frames are in the ring of the TAP.
    assert!(
        left.len() >= arrived.len(),
        "{} {}",
        left.len(),
        arrived.len()
    );
    let (numbers, mut waits, stats) = of_user_space(&sender.sent, &left);
    let same = numbers
        .iter()
        .zip(&arrived)
        .take_while(|(one, other)| one == other);
    let last = arrived.last().copied().unwrap_or_default();
    let dropped = last + 1 - (arrived.len() as u64).min(last + 1);
    waits.sort_unstable();
    println!(
        "{} frames sent, {} arrived, {dropped} dropped, {} by the user-space queue, the same {} first; waits {} in \
         the middle, {} at most",
        sender.sent.len(),
        arrived.len(),
        stats.drops.codel,
        same.clone().count(),
        waits[waits.len() / 2],
        waits[waits.len() - 1],
    );
    assert!(
        dropped >= 5,
        "{dropped} {} {}",
        left.len(),
        sender.sent.len()
    );
    assert_eq!(same.count(), arrived.len(), "the same frames are dropped");
}
