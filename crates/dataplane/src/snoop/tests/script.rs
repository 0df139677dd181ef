//! Scripts in packetdrill's manner.
//!
//! ```text
//! peer > P. 1:1001 ack 1      the peer sends
//! guest > . 1 ack 1001 win 9  the guest sends
//! guest < P. 1:1001           the guest's ring gets
//! peer < . 1 ack 1001         the peer gets from the guest
//! host < . 1 ack 1001         the peer gets from the host in the guest's place
//! +200ms                      time passes
//! full, loses                 what comes next waits before the guest's ring, or is lost there
//! discard                     what the guest's ring got is not looked at
//! ```
//!
//! Numbers count from each end's SYN, which is 0. Windows are as in the header. Each script also
//! runs with frames before segmentation, see [`Frames`]. An expected frame may omit all fields
//! except flags and numbers; any other frame than the expected one is an error.

use super::wire::{GUEST, Tcp, packet, pool};
use crate::snoop::{Origin, RingPlacement, Snoop, SnoopConfig, SnoopMode, TcpFrame};
use crate::{GuestId, Packet, Pool, TcpMaker};
use std::collections::VecDeque;
use std::fmt::Write;
use tailbound_units::Nanos;

/// First sequence numbers of the ends: the peer's wrap soon.
pub(super) const PEER: u32 = 0xffff_f000;
pub(super) const ME: u32 = 5000;

/// The form of a peer's frames with data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Frames {
    /// Frames as in the script.
    Whole,
    /// [`Frames::TIMES`] as long as in the script, before segmentation into segments of
    /// [`Frames::SEGMENT`]. All other numbers are scaled, windows by their shift. A window grows by
    /// its segments, so windows are not compared.
    Segments,
}

impl Frames {
    const TIMES: u32 = 4;
    const SEGMENT: u16 = 1000;
    /// Bytes of a script's usual segment; the number right before its end is its last byte.
    const ROUND: u32 = 1000;
}

/// A connection under early acknowledgement, and the frames that reached each end.
pub(super) struct World {
    pub(super) pool: Pool,
    pub(super) snoop: Snoop<Packet>,
    pub(super) now: Nanos,
    to_ring: VecDeque<Packet>,
    from_guest: VecDeque<Packet>,
    from_host: VecDeque<Packet>,
    placed: RingPlacement,
    v6: bool,
    peer_moved: bool,
    /// True: after each line another process continues.
    moves: bool,
    /// The configuration of its twins, of which one moves and one has other frames; `None` after
    /// they have run a script.
    twin: Option<SnoopConfig>,
    frames: Frames,
    /// The numbers, as the script has them, of the peer's FIN and of the guest's.
    fins: [Option<u32>; 2],
}

const FLAGS: [(char, u16); 9] = [
    ('F', 1),
    ('S', 2),
    ('R', 4),
    ('P', 8),
    ('.', 0x10),
    ('U', 0x20),
    ('E', 0x40),
    ('W', 0x80),
    ('A', 0x100),
];

impl World {
    pub(super) fn new(config: SnoopConfig, v6: bool) -> Self {
        let pool = pool();
        let maker = TcpMaker {
            pool: pool.clone(),
            guest: GUEST,
        };
        Self {
            snoop: Snoop::new(config, maker),
            pool,
            now: Nanos::from_secs(5),
            to_ring: VecDeque::new(),
            from_guest: VecDeque::new(),
            from_host: VecDeque::new(),
            placed: RingPlacement::All,
            v6,
            peer_moved: false,
            moves: false,
            twin: Some(config),
            frames: Frames::Whole,
            fins: [None; 2],
        }
    }

    /// Runs a script; panics on unexpected frames. Twins run its first one, too: one whose host is
    /// another process after each line, and one whose peer's frames are before segmentation.
    pub(super) fn run(&mut self, script: &str) {
        if let Some(config) = self.twin {
            let mut twin = Self::new(config, self.v6);
            twin.frames = Frames::Segments;
            twin.play(script);
        }
        self.run_whole(script);
    }

    /// Runs a script about bytes, memory or segments of a certain size.
    pub(super) fn run_whole(&mut self, script: &str) {
        if let Some(config) = self.twin.take() {
            let mut twin = Self::new(config, self.v6);
            twin.moves = true;
            twin.play(script);
        }
        self.play(script);
    }

    /// The number that stands for one of a script's, of the peer's bytes or the guest's.
    fn number(&self, of_peer: bool, at: u32) -> u32 {
        let scaled = |at: u32| match at {
            0 => 0,
            at => 1 + (at - 1) * Frames::TIMES,
        };
        match (self.frames, self.fins[usize::from(!of_peer)]) {
            (Frames::Whole, _) => at,
            (Frames::Segments, Some(fin)) if at > fin => scaled(fin) + (at - fin),
            (Frames::Segments, _) if at > 0 && at.is_multiple_of(Frames::ROUND) => {
                scaled(at + 1) - 1
            }
            (Frames::Segments, _) => scaled(at),
        }
    }

    /// Continues in another process with the exported state.
    fn hand_over(&mut self) {
        let mut told = Vec::new();
        self.snoop.export(self.now, &mut told);
        let maker = TcpMaker {
            pool: self.pool.clone(),
            guest: GUEST,
        };
        let mut next = Snoop::new(*self.snoop.config(), maker);
        let guest = |slot| Some(GuestId::first(slot as u32));
        let count = next.import(self.now, &told, guest);
        assert_eq!(count, Ok(self.snoop.len()));
        assert_eq!(next.retained(), self.snoop.retained());
        if self.snoop.is_draining() {
            next.begin_drain();
        }
        self.snoop = next;
    }

    fn play(&mut self, script: &str) {
        for line in script.lines().map(str::trim) {
            let line = line.split('#').next().unwrap_or_default().trim();
            if !line.is_empty() {
                self.line(line, script);
            }
        }
        self.assert_no_more_packets("the end", script);
        let owes = !self.snoop.drained().is_done();
        assert_eq!(
            self.snoop.owes(),
            owes,
            "the count of connections:\n{script}"
        );
    }

    fn line(&mut self, line: &str, script: &str) {
        let mut words = line.split_whitespace();
        let who = words.next().expect("a word");
        let direction = words.next();
        if direction == Some("<") {
            return self.expect(who, line, script);
        }
        if who == "discard" {
            self.to_ring.clear();
            return;
        }
        self.assert_no_more_packets(line, script);
        match (who, direction) {
            ("peer" | "guest", Some(">")) => self.send(who == "peer", words),
            ("full", None) => self.placed = RingPlacement::Waits,
            ("loses", None) => self.placed = RingPlacement::Lost,
            ("moved", None) => self.peer_moved = true,
            ("drain", None) => self.snoop.begin_drain(),
            ("drained", None) => assert!(self.snoop.drained().is_done(), "{script}"),
            ("owed", Some(bytes)) => {
                let bytes: u64 = bytes.parse().expect("a number");
                let times = match self.frames {
                    Frames::Whole => 1,
                    Frames::Segments => u64::from(Frames::TIMES),
                };
                assert_eq!(self.snoop.drained().bytes, bytes * times, "{script}");
            }
            ("forgotten", None) => assert_eq!(self.snoop.retained().0, 0, "{script}"),
            ("abort", None) => drop(self.snoop.abort()),
            ("mode", Some(mode)) => {
                let modes: Vec<_> = self.snoop.flows().map(|flow| flow.mode.label()).collect();
                assert_eq!(modes, [mode], "{line}\nof\n{script}");
            }
            ("unknown", None) => assert!(self.snoop.is_empty(), "{script}"),
            ("runs", None) => self.snoop.handle_alive(self.now),
            (time, None) if time.starts_with('+') => {
                let millis = time[1..].trim_end_matches("ms").parse().expect("a time");
                self.now += Nanos::from_millis(millis);
                self.snoop.handle_timeout(self.now);
            }
            _ => panic!("{line}?"),
        }
        while let Some(frame) = self.snoop.poll_to_guest() {
            self.to_ring.push_back(frame);
        }
        while let Some(frame) = self.snoop.poll_to_peer() {
            self.from_host.push_back(frame);
        }
        if self.moves {
            self.hand_over();
        }
    }

    fn send<'s>(&mut self, to_guest: bool, words: impl Iterator<Item = &'s str>) {
        let frame = self.frame(to_guest, words);
        if to_guest {
            if let Some(frame) = self.snoop.handle_ingress(self.now, frame) {
                self.to_ring.push_back(frame);
            }
            let placed = std::mem::replace(&mut self.placed, RingPlacement::All);
            self.snoop.handle_placed(placed);
        } else {
            let origin = Origin::OUTSIDE;
            if let Some(frame) = self.snoop.handle_egress(self.now, frame, origin) {
                self.from_guest.push_back(frame);
            }
        }
    }

    #[expect(clippy::too_many_lines, reason = "a word after the other")]
    fn frame<'s>(&mut self, to_guest: bool, mut words: impl Iterator<Item = &'s str>) -> Packet {
        let (own, other) = if to_guest { (PEER, ME) } else { (ME, PEER) };
        let number = |text: &str| text.parse::<u32>().expect("a number");
        let flags = words.next().expect("flags");
        let numbers = words.next().expect("numbers");
        let (from, to) = numbers.split_once(':').unwrap_or((numbers, numbers));
        let (from, to) = (number(from), number(to));
        if flags.contains('F') {
            self.fins[usize::from(!to_guest)].get_or_insert(to);
        }
        let (from, to) = (self.number(to_guest, from), self.number(to_guest, to));
        let is_cut = self.frames == Frames::Segments;
        let more = if is_cut { Frames::TIMES } else { 1 };
        let mut tcp = Tcp {
            to_guest,
            v6: self.v6,
            port: 999,
            hops: 61,
            traffic_class: if to_guest { 0 } else { 0xb8 },
            seq: own.wrapping_add(from),
            window: 2500,
            payload: (from..to).map(|n| n as u8).collect(),
            ..Tcp::default()
        };
        for (letter, flag) in FLAGS {
            tcp.flags |= if flags.contains(letter) { flag } else { 0 };
        }
        let (mut spoilt, mut virtio, mut is_shifted) = (false, None, false);
        let opens = flags.contains('S');
        while let Some(word) = words.next() {
            let mut next = || number(words.next().expect("a value"));
            match word {
                "ack" => tcp.ack = other.wrapping_add(self.number(!to_guest, next())),
                "win" if opens => tcp.window = (next() * more) as u16,
                "win" => tcp.window = next() as u16,
                "mss" => {
                    tcp.options.extend([2, 4]);
                    tcp.options.extend((next() as u16).to_be_bytes());
                }
                "ws" => {
                    is_shifted = true;
                    tcp.options
                        .extend([3, 3, next() as u8 + more.ilog2() as u8]);
                }
                "sackok" => tcp.options.extend([4, 2]),
                "ts" => {
                    tcp.options.extend([1, 1, 8, 10]);
                    tcp.options.extend(next().to_be_bytes());
                    tcp.options.extend(next().to_be_bytes());
                }
                "sack" => {
                    let [left, right] = [next(), next()].map(|at| self.number(!to_guest, at));
                    tcp.options.extend([1, 1, 5, 10]);
                    tcp.options.extend(other.wrapping_add(left).to_be_bytes());
                    tcp.options.extend(other.wrapping_add(right).to_be_bytes());
                }
                "kind" => tcp.options.extend([next() as u8, 2]),
                "tag" => tcp.tag = Some(next() as u16),
                "ce" => tcp.traffic_class |= 3,
                "ect" => tcp.traffic_class |= 2,
                "spoilt" => spoilt = true,
                "gso" => virtio = Some(next() as u16),
                _ => panic!("{word}?"),
            }
        }
        if is_cut && opens && !is_shifted {
            tcp.options.extend([3, 3, more.ilog2() as u8]);
        }
        if is_cut && to_guest && !spoilt && tcp.payload.len() > usize::from(Frames::SEGMENT) {
            virtio = virtio.or(Some(Frames::SEGMENT));
        }
        let mut bytes = tcp.bytes();
        if spoilt && let Some(last) = bytes.last_mut() {
            *last ^= 1;
        }
        let virtio = virtio.map(|size| tcp.virtio(size, bytes.len()));
        let source = match (to_guest, self.peer_moved) {
            (true, false) => None,
            (true, true) => Some(GuestId::first(8)),
            (false, _) => Some(GUEST),
        };
        packet(&self.pool, &bytes, virtio, source)
    }

    fn expect(&mut self, who: &str, line: &str, script: &str) {
        let queue = match who {
            "guest" => &mut self.to_ring,
            "peer" => &mut self.from_guest,
            "host" => &mut self.from_host,
            _ => panic!("{line}?"),
        };
        let packet = queue.pop_front();
        let packet = packet.unwrap_or_else(|| panic!("nothing for\n  {line}\nof\n{script}"));
        let shown = show(packet);
        let mut shown = shown.split_whitespace().collect::<Vec<_>>().into_iter();
        let wanted = self.wanted(who == "guest", line);
        let mut words = wanted.iter().map(String::as_str);
        let flags_and_numbers = [shown.next(), shown.next()];
        assert_eq!(
            [words.next(), words.next()],
            flags_and_numbers,
            "{line}, and {shown:?} ({:?})\nof\n{script}",
            self.frames
        );
        let rest: Vec<_> = shown.collect();
        let wanted: Vec<_> = words.collect();
        let mut wanted = &wanted[..];
        while let [key, after @ ..] = wanted {
            let values = after
                .iter()
                .take_while(|word| word.starts_with(|c: char| c.is_ascii_digit()))
                .count();
            let has = if let Some(no) = key.strip_prefix("no-") {
                !rest.contains(&no)
            } else {
                rest.windows(values + 1)
                    .any(|window| window == &wanted[..=values])
            };
            let has = has || (*key == "win" && self.frames == Frames::Segments);
            assert!(
                has,
                "{line}: got {rest:?} ({:?})\nof\n{script}",
                self.frames
            );
            wanted = &after[values..];
        }
    }

    /// The words of a line with an expected frame, by this world's numbers.
    fn wanted(&self, to_guest: bool, line: &str) -> Vec<String> {
        let mut of_peer = to_guest;
        let mut is_number = true;
        let words = line.split_whitespace().skip(2).map(|word| {
            match word {
                "ack" | "sack" => (of_peer, is_number) = (!to_guest, true),
                word if word.starts_with(|c: char| c.is_ascii_lowercase()) => is_number = false,
                _ => {}
            }
            let is_one = is_number && word.starts_with(|c: char| c.is_ascii_digit());
            let number = |at: &str| self.number(of_peer, at.parse().expect("a number"));
            match word.split_once(':') {
                _ if !is_one => word.to_owned(),
                None => number(word).to_string(),
                Some((from, to)) => format!("{}:{}", number(from), number(to)),
            }
        });
        words.collect()
    }

    fn assert_no_more_packets(&mut self, before: &str, script: &str) {
        for (who, queue) in [
            ("guest", &mut self.to_ring),
            ("peer", &mut self.from_guest),
            ("host", &mut self.from_host),
        ] {
            if let Some(packet) = queue.pop_front() {
                panic!(
                    "not expected before {before}: {who} < {}\nof\n{script}",
                    show(packet)
                );
            }
        }
    }
}

/// A frame as a script writes it.
fn show(packet: Packet) -> String {
    let is_cut = packet.offload().gso.map(|gso| gso.size);
    let tcp = Tcp::read(packet);
    let (own, other) = if tcp.to_guest { (PEER, ME) } else { (ME, PEER) };
    let mut text = String::new();
    for letter in "SFRP.UEWA".chars() {
        let flag = FLAGS.iter().find(|(known, _)| *known == letter);
        if flag.is_some_and(|(_, flag)| tcp.flags & flag != 0) {
            text.push(letter);
        }
    }
    let from = tcp.seq.wrapping_sub(own);
    let payload = tcp.payload.iter().zip(from..);
    assert!(
        payload.clone().all(|(byte, n)| *byte == n as u8),
        "each byte stays where it was"
    );
    let _ = match tcp.payload.len() {
        0 => write!(text, " {from}"),
        len => write!(text, " {from}:{}", from as usize + len),
    };
    let _ = write!(text, " ack {}", tcp.ack.wrapping_sub(other));
    let _ = write!(text, " win {}", tcp.window);
    let options = crate::snoop::Options::parse(&tcp.options);
    if let Some(stamps) = options.timestamps {
        let _ = write!(text, " ts {} {}", stamps.value, stamps.echo);
    }
    for (left, right) in options.sacks.iter() {
        let (left, right) = (left.0.wrapping_sub(other), right.0.wrapping_sub(other));
        let _ = write!(text, " sack {left} {right}");
    }
    if let Some(tag) = tcp.tag {
        let _ = write!(text, " tag {tag}");
    }
    if let Some(size) = is_cut {
        let _ = write!(text, " gso {size}");
    }
    let _ = write!(text, " class {} hops {}", tcp.traffic_class, tcp.hops);
    text
}

pub(super) fn config(mode: SnoopMode) -> SnoopConfig {
    SnoopConfig {
        mode,
        flows: 8,
        ..SnoopConfig::default()
    }
}

/// Runs a script over IPv4 and over IPv6.
pub(super) fn run(mode: SnoopMode, script: &str) {
    for v6 in [false, true] {
        World::new(config(mode), v6).run(script);
    }
}

#[test]
fn a_packet_is_written_as_it_is_read() {
    let pool = pool();
    for (v6, tag) in [(false, None), (true, Some(7))] {
        let tcp = Tcp {
            v6,
            tag,
            port: 5,
            hops: 3,
            seq: 9,
            options: vec![1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2],
            payload: vec![1, 2, 3, 4, 5],
            ..Tcp::default()
        };
        assert_eq!(Tcp::read(tcp.packet(&pool)), tcp);
        let part = tcp.packet(&pool).part(1, 3);
        let expected = Tcp {
            seq: 10,
            payload: vec![2, 3, 4],
            ..tcp
        };
        assert_eq!(Tcp::read(part), expected);
    }
}
