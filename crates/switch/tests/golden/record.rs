//! The text of a run, and its comparison with the stored one.

use pcap_file::pcap::PcapReader;
use std::fmt::Write as _;
use std::fs::File;
use std::path::{Path, PathBuf};
use tailbound_switch::{GuestSnapshot, PortSnapshot, Snapshot, Sojourn, UplinkPacing};
use tailbound_units::Nanos;

/// The key of a line; lines of one moment are in this order.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Line {
    at: Nanos,
    /// The port's name; empty for events of the switch.
    port: String,
    /// The place among the port's lines.
    place: usize,
    text: String,
}

impl Line {
    pub(crate) fn note(at: Nanos, text: String) -> Self {
        Self {
            at,
            port: String::new(),
            place: 0,
            text,
        }
    }
}

/// A run as text.
pub(crate) struct Record {
    lines: Vec<Line>,
    counters: String,
}

impl Record {
    pub(crate) fn new(mut notes: Vec<Line>) -> Self {
        for (place, note) in notes.iter_mut().enumerate() {
            note.place = place;
        }
        Self {
            lines: notes,
            counters: String::new(),
        }
    }

    /// Adds the sent frames of a port: its capture, with the launch times.
    pub(crate) fn add_port(&mut self, name: &str, capture: &Path, launches: &[Option<Nanos>]) {
        let file = File::open(capture).expect("a capture");
        let mut reader = PcapReader::new(file).expect("a capture");
        let mut launches = launches.iter();
        let mut voids: Option<(Nanos, u64, u64)> = None;
        let mut place = 0;
        let mut add = |at, text| {
            place += 1;
            let port = name.to_owned();
            let line = Line {
                at,
                port,
                place,
                text,
            };
            self.lines.push(line);
        };
        while let Some(packet) = reader.next_packet() {
            let packet = packet.expect("a whole frame");
            let at = Nanos::from(packet.timestamp);
            let launch = launches.next().expect("each frame has an entry");
            if packet.data[..6] == packet.data[6..12] {
                let (_, count, bytes) = voids.get_or_insert((at, 0, 0));
                *count += 1;
                *bytes += packet.data.len() as u64;
                continue;
            }
            if let Some((at, count, bytes)) = voids.take() {
                add(at, format!("{count} voids of {bytes} B"));
            }
            add(at, frame(&packet.data, *launch));
        }
        if let Some((at, count, bytes)) = voids {
            add(at, format!("{count} voids of {bytes} B"));
        }
        assert!(launches.next().is_none(), "frames without a capture");
    }

    pub(crate) fn add_counters(&mut self, counters: &str, waiting: usize) {
        self.counters = format!("{counters}waiting {waiting}\n");
    }

    fn text(mut self) -> String {
        self.lines.sort();
        let mut text = String::from(
            "# moment in ns, port, bytes, hash, DSCP, PCP, and the launch time where there is one\n",
        );
        for Line {
            at,
            port,
            text: what,
            ..
        } in &self.lines
        {
            let port = if port.is_empty() { "-" } else { port };
            let _ = writeln!(text, "{} {port} {what}", at.0);
        }
        text.push_str("# counters\n");
        text.push_str(&self.counters);
        text
    }

    /// Compares the run with the record `name`, or writes that record if `TAILBOUND_GOLDEN` is
    /// `write`.
    pub(crate) fn compare(self, name: &str) {
        let text = self.text();
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/records");
        let path: PathBuf = path.join(format!("{name}.txt"));
        if std::env::var_os("TAILBOUND_GOLDEN").is_some_and(|what| what == "write") {
            std::fs::write(&path, text).expect("the record is written");
            return;
        }
        let kept = std::fs::read_to_string(&path).expect("the record is there");
        if kept == text {
            return;
        }
        let mut lines = kept.lines().zip(text.lines()).zip(1..);
        let first = lines.find(|((kept, got), _)| kept != got);
        let difference = first.map_or_else(
            || {
                format!(
                    "{} lines, now {}",
                    kept.lines().count(),
                    text.lines().count()
                )
            },
            |((kept, got), line)| format!("line {line}\n  kept: {kept}\n  now:  {got}"),
        );
        panic!(
            "{}: {difference}\nIf the change is meant, run this test with TAILBOUND_GOLDEN=write \
             and say in the commit why each line changes.",
            path.display()
        );
    }
}

/// Returns a frame's line, which identifies it.
fn frame(bytes: &[u8], launch: Option<Nanos>) -> String {
    let mut pcp = None;
    let mut network = 12;
    while [0x8100, 0x88a8].contains(&be16(bytes, network)) {
        pcp.get_or_insert(bytes[network + 2] >> 5);
        network += 4;
    }
    let dscp = match be16(bytes, network) {
        0x0800 => Some(bytes[network + 3] >> 2),
        0x86dd => Some((be16(bytes, network + 2) >> 6 & 0x3f) as u8),
        _ => None,
    };
    let word = |value: Option<u8>| value.map_or("-".to_owned(), |value| value.to_string());
    let launch = launch.map_or(String::new(), |at| format!(" at {}", at.0));
    let (len, hash) = (bytes.len(), hash(bytes));
    format!("{len} {hash:08x} {} {}{launch}", word(dscp), word(pcp))
}

fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// FNV-1a, folded to 32 bits.
fn hash(bytes: &[u8]) -> u32 {
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
    });
    (hash ^ hash >> 32) as u32
}

/// Returns all counters, one line for each port, without the names of metrics and reasons: those
/// may change.
pub(crate) fn counters(snapshot: &Snapshot) -> String {
    let mut text = String::new();
    if let Some(uplink) = &snapshot.uplink {
        port(&mut text, &uplink.port, &[]);
        if let Some(pacing) = &uplink.pacing {
            pacer(&mut text, &uplink.port.name, pacing);
        }
    }
    for guest in &snapshot.guests {
        port(&mut text, &guest.port, &guest.sojourns);
        guarantee(&mut text, guest);
    }
    let _ = writeln!(
        text,
        "stations {} refusals {}",
        snapshot.fdb_entries, snapshot.refusals
    );
    text
}

fn port(text: &mut String, port: &PortSnapshot, waits: &[Sojourn]) {
    let drops: Vec<_> = port.drops.iter().map(|(_, count)| count).collect();
    let waits: Vec<_> = waits
        .iter()
        .map(|wait| (wait.histogram.count(), wait.histogram.sum().0))
        .collect();
    let _ = writeln!(
        text,
        "{}: received {:?} sent {:?} drops {drops:?} backlog {} {} segmented {} marked {} \
         metered {} {} waits {waits:?}",
        port.name,
        port.received,
        port.sent,
        port.backlog_packets,
        port.backlog_bytes.0,
        port.segmented,
        port.marked,
        port.meter.small,
        port.meter.bulk,
    );
}

fn pacer(text: &mut String, name: &str, pacing: &UplinkPacing) {
    let stats = pacing.stats;
    let _ = writeln!(
        text,
        "{name}: guaranteed {} {} best effort {} {} voids {} {} handed {:?} collided {} \
         latest {} held {} stopped {} late {} {}",
        stats.guaranteed.packets,
        stats.guaranteed.bytes.0,
        stats.best_effort.packets,
        stats.best_effort.bytes.0,
        stats.voids.packets,
        stats.voids.bytes.0,
        pacing.voids,
        stats.collided,
        pacing.max_lateness.0,
        stats.unread,
        stats.frozen.0,
        pacing.lateness.count(),
        pacing.lateness.sum().0,
    );
}

fn guarantee(text: &mut String, guest: &GuestSnapshot) {
    let Some(pacing) = &guest.pacing else { return };
    let stats = pacing.stats;
    let held = pacing
        .guarantee
        .map(|held| (held.bandwidth.0, held.burst.0));
    let _ = writeln!(
        text,
        "{}: guarantee {held:?} refused {} taken {} {} marked {} held {} dropped {} wait {} \
         unread {}",
        guest.port.name,
        pacing.refused,
        stats.taken.packets,
        stats.taken.bytes.0,
        stats.marked,
        stats.unread,
        stats.dropped,
        stats.sojourn.0,
        pacing.unread,
    );
}
