//! TCP of two kernels through a daemon that acknowledges early for one of them. Each kernel is a
//! namespace behind its own card: this process takes frames from the card's ring to a TAP in the
//! namespace, and back. On the way it loses, delays, duplicates and corrupts some frames, and
//! sometimes pauses. The faults at the guest's side are those that a guest's own stack may have
//! behind its ring, the faults at its peer's side are those of a bad network. Every byte is
//! compared.

#[path = "../../vhost/tests/support/mod.rs"]
mod machine;
mod support;

use machine::{Build, Machine};
use rustix::net::sockopt::set_socket_recv_buffer_size;
use std::io::{self, IoSliceMut, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use support::{Daemon, Guest, Kind, METRICS, sandboxed};
use tailbound_sys::netns;
use tailbound_sys::probe::required::{Part, skipped};
use tailbound_sys::tap::{Tap, VIRTIO_HEADER_LEN};

/// Not a test of its own: the process of the daemon below.
#[test]
fn daemon_process() {
    support::daemon_process();
}

/// Time limit for progress of a connection: several retransmissions may be lost in a row.
const PROGRESS_TIMEOUT: Duration = Duration::from_mins(1);
/// The longest time for opening a connection: four lost SYNs, and a margin.
const GREETING: Duration = Duration::from_secs(25);
/// The ports of the guest: one with default buffers, and one with buffers of few segments, so that
/// segments are often beyond its window.
const PORTS: [u16; 2] = [7001, 7002];
const SMALL: usize = 12 << 10;
/// The number of parallel connections.
const TOGETHER: u64 = 6;

/// `SplitMix64` (Steele, Lea, Flood: *Fast Splittable Pseudorandom Number Generators*, 2014).
#[derive(Debug, Clone)]
struct Random(u64);

impl Random {
    fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.draw() % end
    }

    /// Returns true with this probability.
    fn happens(&mut self, in_10_000: u64) -> bool {
        self.below(10_000) < in_10_000
    }
}

/// The faults of frames.
#[derive(Debug, Clone, Copy)]
struct Faults {
    /// Probabilities of a frame, in 1/10,000.
    lost: u64,
    twice: u64,
    late: u64,
    broken: u64,
}

impl Faults {
    const OF_THE_NETWORK: Self = Self {
        lost: 40,
        twice: 30,
        late: 60,
        broken: 20,
    };
    /// A guest's frames are in its memory as they were made, so none is broken.
    const OF_THE_GUEST: Self = Self {
        broken: 0,
        ..Self::OF_THE_NETWORK
    };
}

/// One direction of a side: the frames on their way, with their arrival times.
struct LossyLink {
    faults: Faults,
    /// True to flip odd bits of a byte, false for even bits. A frame of the peer passes two ways,
    /// and a checksum does not notice two flipped bits in the same column.
    odd: bool,
    random: Random,
    frames: Vec<(Instant, Vec<u8>)>,
}

impl LossyLink {
    fn new(faults: Faults, odd: bool, seed: u64) -> Self {
        Self {
            faults,
            odd,
            random: Random(seed),
            frames: Vec::new(),
        }
    }

    fn take(&mut self, now: Instant, mut frame: Vec<u8>) {
        let (faults, random) = (self.faults, &mut self.random);
        if random.happens(faults.lost) {
            return;
        }
        // Behind the addresses: one bit.
        if random.happens(faults.broken) && frame.len() > 35 {
            let at = 34 + random.below(frame.len() as u64 - 34) as usize;
            frame[at] ^= 1 << (2 * random.below(4) + u64::from(self.odd));
        }
        if random.happens(faults.twice) {
            let later = now + Duration::from_micros(random.below(3_000));
            self.frames.push((later, frame.clone()));
        }
        let at = if random.happens(faults.late) {
            now + Duration::from_micros(random.below(8_000))
        } else {
            now
        };
        self.frames.push((at, frame));
    }

    /// Returns the next frame whose time has come.
    fn due(&mut self, now: Instant) -> Option<Vec<u8>> {
        let place = self.frames.iter().position(|(at, _)| *at <= now)?;
        Some(self.frames.remove(place).1)
    }
}

/// A kernel behind a card.
struct Side {
    machine: Machine,
    tap: Tap,
    /// The way from the ring to the kernel; the next field is the way back.
    inward: LossyLink,
    outward: LossyLink,
    random: Random,
    /// The end of the side's pause.
    asleep: Option<Instant>,
}

/// Entries of each ring.
const ENTRIES: u16 = 64;

impl Side {
    fn new(card: &Path, guest: &Guest, outward: Faults, seed: u64) -> Option<Self> {
        let tap = match Tap::open("eth0", Some(&guest.netns())) {
            Ok(tap) => tap,
            Err(error) => {
                skipped(Part::Tap, error);
                return None;
            }
        };
        let mac = guest.mac.map(|byte| format!("{byte:02x}")).join(":");
        let address = format!("10.77.0.{}/24", guest.mac[5]);
        for words in [
            "ethtool -K eth0 tx off tso off gso off".to_owned(),
            format!("ip link set eth0 address {mac} up"),
            format!("ip address add {address} dev eth0"),
        ] {
            let words: Vec<&str> = words.split(' ').collect();
            guest.inside(words[0], &words[1..]);
        }
        let build = Build {
            entries: ENTRIES,
            ..Build::default()
        };
        Some(Self {
            machine: Machine::start(card, build),
            tap,
            inward: LossyLink::new(Faults::OF_THE_NETWORK, true, seed),
            outward: LossyLink::new(outward, false, seed + 1),
            random: Random(seed + 2),
            asleep: None,
        })
    }

    /// Moves the available frames in both directions; returns true if there were any.
    fn turn(&mut self) -> bool {
        let now = Instant::now();
        if self.asleep.is_some_and(|until| now < until) {
            return false;
        }
        self.asleep = None;
        let mut moved = false;
        while let Some((_, frame)) = self.machine.receive(0, true) {
            moved = true;
            self.inward.take(now, frame);
            if self.random.happens(4) {
                let time = Duration::from_millis(10 + self.random.below(120));
                self.asleep = Some(now + time);
            }
        }
        while let Some(frame) = self.inward.due(now) {
            let wire = [&[0; VIRTIO_HEADER_LEN][..], &frame].concat();
            // As a kernel does that has no room.
            let _ = self.tap.transmit(&wire);
        }
        let mut wire = [0; 2048];
        while self.has_room()
            && let Ok(len) = self.tap.receive(&mut [IoSliceMut::new(&mut wire)])
        {
            moved = true;
            assert_eq!(wire[0], 0, "a whole frame");
            self.outward
                .take(now, wire[VIRTIO_HEADER_LEN..len].to_vec());
        }
        while self.has_room()
            && let Some(frame) = self.outward.due(now)
        {
            self.machine.send(0, [0; 10], &frame);
        }
        moved
    }

    fn has_room(&self) -> bool {
        let ring = &self.machine.rings[1];
        ring.next.wrapping_sub(self.machine.used(1)) < ENTRIES - 2
    }
}

/// The bytes that a connection carries in each direction, and the pauses of its receiver.
#[derive(Debug, Clone, Copy)]
struct Plan {
    seed: u64,
    lens: [u64; 2],
}

impl Plan {
    const LEN: usize = 24;

    fn new(seed: u64) -> Self {
        let mut random = Random(seed);
        // Some short ones, some that outlast several losses.
        let mut len = || {
            let most = 1 << (8 + random.below(12));
            1 + random.below(most)
        };
        Self {
            seed,
            lens: [len(), len()],
        }
    }

    fn bytes(self) -> [u8; Self::LEN] {
        let words = [self.seed, self.lens[0], self.lens[1]];
        let bytes = words.map(u64::to_be_bytes).concat();
        bytes.try_into().expect("three words")
    }

    fn read(bytes: [u8; Self::LEN]) -> Self {
        let word = |at: usize| u64::from_be_bytes(std::array::from_fn(|i| bytes[at + i]));
        Self {
            seed: word(0),
            lens: [word(8), word(16)],
        }
    }

    /// Returns some bytes of a direction, from an offset on.
    fn chunk(self, way: usize, at: u64) -> Vec<u8> {
        let len = (self.lens[way] - at).min(4096) as usize;
        let words = at / 8..=(at + len as u64) / 8;
        let words = words.map(|n| {
            Random(self.seed ^ (n << 8) ^ way as u64)
                .draw()
                .to_be_bytes()
        });
        let bytes: Vec<u8> = words.flatten().collect();
        bytes[(at % 8) as usize..][..len].to_vec()
    }

    fn send(self, way: usize, mut to: &TcpStream) -> io::Result<()> {
        let mut at = 0;
        while at < self.lens[way] {
            let chunk = self.chunk(way, at);
            to.write_all(&chunk)?;
            at += chunk.len() as u64;
        }
        to.shutdown(Shutdown::Write)
    }

    /// Reads to the end, with occasional pauses.
    fn receive(self, way: usize, mut from: &TcpStream) -> io::Result<()> {
        let mut random = Random(self.seed + 1 + way as u64);
        let mut buffer = [0; 4096];
        let mut at = 0;
        loop {
            if random.happens(40) {
                thread::sleep(Duration::from_millis(random.below(300)));
            }
            let most = 1 + random.below(4096) as usize;
            let got = from.read(&mut buffer[..most])?;
            if got == 0 {
                let is_whole = at == self.lens[way];
                let missing = || io::Error::other(format!("it ended at {at}"));
                return is_whole.then_some(()).ok_or_else(missing);
            }
            assert!(at + got as u64 <= self.lens[way], "no more than was sent");
            let mut expected = Vec::new();
            while expected.len() < got {
                expected.extend(self.chunk(way, at + expected.len() as u64));
            }
            assert!(buffer[..got] == expected[..got], "bytes from {at} on");
            at += got as u64;
        }
    }

    /// Sends and receives at the same time.
    fn exchange(self, sends: usize, stream: &TcpStream) -> io::Result<()> {
        stream.set_read_timeout(Some(PROGRESS_TIMEOUT))?;
        stream.set_write_timeout(Some(PROGRESS_TIMEOUT))?;
        thread::scope(|scope| {
            let sending = scope.spawn(move || self.send(sends, stream));
            self.receive(1 - sends, stream)?;
            sending.join().expect("it sends")
        })
    }
}

/// The state that all ends of connections share.
#[derive(Default)]
struct Ends {
    /// True if frames are no longer carried, for a reason outside of the connections.
    excused: AtomicBool,
    streams: Mutex<Vec<TcpStream>>,
}

impl Ends {
    /// Adds a connection that must end if all are excused.
    fn note(&self, stream: &TcpStream) {
        let copy = stream.try_clone().expect("a descriptor");
        let mut streams = self.streams.lock().expect("no thread panicked");
        // What has ended needs its descriptor no more.
        streams.retain(|stream| stream.peer_addr().is_ok());
        streams.push(copy);
        drop(streams);
        if self.excused.load(Ordering::Relaxed) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Runs a plan on a connection, which must succeed unless all are excused.
    fn exchange(&self, plan: Plan, sends: usize, stream: &TcpStream) {
        let ended = plan.exchange(sends, stream);
        self.check(plan, &ended);
    }

    fn check(&self, plan: Plan, ended: &io::Result<()>) {
        let excused = self.excused.load(Ordering::Relaxed);
        assert!(excused || ended.is_ok(), "{plan:?}: {ended:?}");
    }

    /// Ends all connections, as their frames are no longer carried.
    fn excuse(&self) {
        self.excused.store(true, Ordering::Relaxed);
        for stream in self.streams.lock().expect("no thread panicked").drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

/// The listeners in the guest, until they are stopped.
struct Servers(Vec<TcpListener>);

impl Servers {
    fn new(guest: &Guest) -> Self {
        let listen = |port: u16| {
            let listener = TcpListener::bind(("0.0.0.0", port))?;
            if port == PORTS[1] {
                set_socket_recv_buffer_size(&listener, SMALL)?;
            }
            listener.set_nonblocking(true)?;
            Ok(listener)
        };
        let listeners = netns::within(&guest.netns(), || {
            let listeners = PORTS.into_iter().map(listen);
            listeners.collect::<io::Result<_>>()
        });
        Self(listeners.and_then(|all| all).expect("nobody listens there"))
    }

    fn serve<'s>(&self, scope: &'s thread::Scope<'s, '_>, ends: &'s Ends) {
        for listener in &self.0 {
            while let Ok((stream, _)) = listener.accept() {
                scope.spawn(move || {
                    stream.set_nonblocking(false).expect("ours");
                    ends.note(&stream);
                    stream
                        .set_read_timeout(Some(PROGRESS_TIMEOUT))
                        .expect("ours");
                    let mut head = [0; Plan::LEN];
                    let ended = (&stream).read_exact(&mut head);
                    let plan = Plan::read(head);
                    if ended.is_ok() {
                        ends.exchange(plan, 1, &stream);
                    }
                    ends.check(plan, &ended);
                });
            }
        }
    }
}

/// Opens a connection of the peer.
fn connect(peer: &Guest, seed: u64, ends: &Ends) {
    let plan = Plan::new(seed);
    let to = SocketAddr::from(([10, 77, 0, 1], PORTS[(seed % 2) as usize]));
    let stream = netns::within(&peer.netns(), || TcpStream::connect_timeout(&to, GREETING));
    let ended = stream.and_then(|stream| stream).and_then(|stream| {
        ends.note(&stream);
        (&stream).write_all(&plan.bytes())?;
        ends.exchange(plan, 0, &stream);
        Ok(())
    });
    ends.check(plan, &ended);
}

/// Marks the end of the test, also after a panic.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A counter of `/proc/net/netstat` in a namespace.
fn netstat(guest: &Guest, counter: &str) -> u64 {
    let read = || std::fs::read_to_string("/proc/thread-self/net/netstat");
    let text = netns::within(&guest.netns(), read);
    let text = text.and_then(|text| text).expect("there is /proc");
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split(' ').collect()).collect();
    let value = lines.chunks(2).find_map(|two| {
        let place = two[0].iter().position(|name| *name == counter)?;
        two[1][place].parse().ok()
    });
    value.unwrap_or_else(|| panic!("no {counter} in {text}"))
}

fn card(cards: &tempfile::TempDir, number: u8) -> PathBuf {
    cards.path().join(format!("card{number}"))
}

fn config(cards: &tempfile::TempDir, snoop: &str) -> String {
    let card = |number| card(cards, number).display().to_string();
    format!(
        "metrics = {METRICS:?}\n\
         [[guest]]\nname = \"g1\"\nmac = \"02:00:00:00:00:01\"\nip = [\"10.77.0.1\"]\n\
         port = {{ kind = \"vhost-user\", socket = {:?} }}\nsnoop = {snoop}\n\
         [[guest]]\nname = \"g2\"\nmac = \"02:00:00:00:00:02\"\nip = [\"10.77.0.2\"]\n\
         port = {{ kind = \"vhost-user\", socket = {:?} }}\n",
        card(1),
        card(2),
    )
}

/// Runs connections one after the other, several at a time, while `goes_on` returns true for the
/// number of started ones. `meanwhile` is called with the daemon repeatedly, and returns true while
/// frames are carried.
fn converse(
    snoop: &str,
    seed: u64,
    goes_on: impl Fn(u64) -> bool + Sync,
    mut meanwhile: impl FnMut(&mut Daemon) -> bool,
) -> Option<Daemon> {
    let [guest, peer] = [1, 2].map(|number| Guest::new(Kind::Tap, number));
    let cards = tempfile::tempdir().expect("a directory");
    let mut daemon = Daemon::start(&config(&cards, snoop));
    let mut sides = [
        Side::new(&card(&cards, 1), &guest, Faults::OF_THE_GUEST, seed)?,
        Side::new(&card(&cards, 2), &peer, Faults::OF_THE_NETWORK, seed + 10)?,
    ];
    let servers = Servers::new(&guest);
    let (over, ends) = (AtomicBool::new(false), Ends::default());
    thread::scope(|scope| {
        let _over = Over(&over);
        let pump = scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                let moved = sides.iter_mut().map(Side::turn).fold(false, |a, b| a | b);
                if !moved {
                    thread::sleep(Duration::from_micros(200));
                }
            }
        });
        let clients: Vec<_> = (0..TOGETHER)
            .map(|first| {
                let (peer, goes_on, ends) = (&peer, &goes_on, &ends);
                scope.spawn(move || {
                    let mut numbers = (first..).step_by(TOGETHER as usize);
                    while let Some(number) = numbers.next().filter(|number| goes_on(*number)) {
                        if ends.excused.load(Ordering::Relaxed) {
                            return;
                        }
                        connect(peer, seed + number, ends);
                    }
                })
            })
            .collect();
        thread::scope(|served| {
            while clients.iter().any(|client| !client.is_finished()) {
                servers.serve(served, &ends);
                if !meanwhile(&mut daemon) {
                    ends.excuse();
                }
                thread::sleep(Duration::from_millis(2));
                assert!(!pump.is_finished(), "frames are carried");
            }
        });
    });
    if ends.excused.into_inner() {
        return None;
    }
    for side in [&guest, &peer] {
        assert_eq!(netstat(side, "TCPSACKReneging"), 0);
    }
    assert!(netstat(&peer, "TCPTimeouts") > 0, "faults were felt");
    Some(daemon)
}

/// Returns the daemon's count of an event of the guest's segments.
fn count(daemon: &Daemon, event: &str) -> u64 {
    let sample = format!("tailbound_snoop_segments_total{{guest=\"g1\",event={event:?}}}");
    daemon.metric(&sample).expect("it counts that") as u64
}

#[test]
fn bytes_acknowledged_early_survive_drops_by_the_guest() {
    let name = "bytes_acknowledged_early_survive_drops_by_the_guest";
    sandboxed(name, || {
        let Some(daemon) = converse("\"retaining\"", 1, |number| number < 60, |_| true) else {
            return;
        };
        for event in ["early", "suppressed", "withheld", "resent"] {
            assert!(count(&daemon, event) > 10, "{event}");
        }
        assert_eq!(count(&daemon, "reset"), 0);
    });
}

#[test]
fn connections_survive_takeovers_without_loss() {
    const TAKEOVERS: usize = 3;
    let name = "connections_survive_takeovers_without_loss";
    sandboxed(name, || {
        if !support::kinds().contains(&Kind::Tap) {
            return;
        }
        // A machine may be so busy that the old one does not answer in time: then it is not
        // asked any longer, and cards are set up anew.
        for seed in 100..110 {
            let mut done = 0;
            // Nobody would connect to its monitor again.
            let is_there = |daemon: &Daemon, guest: &str| {
                let away = format!("tailbound_guest_away{{guest={guest:?}}}");
                daemon.metric(&away) != Some(1.0)
            };
            let take_over = |daemon: &mut Daemon| {
                if done == TAKEOVERS || count(daemon, "early") < 50 {
                    return true;
                }
                daemon.take_over();
                done += 1;
                is_there(daemon, "g1") && is_there(daemon, "g2")
            };
            let daemon = converse("\"retaining\"", seed, |number| number < 60, take_over);
            if let Some(daemon) = daemon {
                assert_eq!((done, count(&daemon, "reset")), (TAKEOVERS, 0));
                return;
            }
        }
        panic!("no daemon handed over in time");
    });
}

/// Runs the test for an hour, with other seeds each time.
#[test]
#[ignore = "takes an hour"]
fn no_byte_is_lost_in_an_hour() {
    sandboxed("no_byte_is_lost_in_an_hour", || {
        let start = Instant::now();
        let seed = u64::from(std::process::id()) << 32;
        eprintln!("{}seed {seed}", support::MEASURED);
        let hour = |_| start.elapsed() < Duration::from_hours(1);
        if let Some(daemon) = converse("\"retaining\"", seed, hour, |_| true) {
            assert_eq!(count(&daemon, "reset"), 0);
            let counts = ["early", "withheld", "resent"].map(|event| count(&daemon, event));
            eprintln!("{}early, withheld, resent: {counts:?}", support::MEASURED);
        }
    });
}
