//! Captures: frames of guests, identified by their MAC addresses.

use super::{MAX_RECORDING, Recording, ReplayError};
use pcap_file::pcap::PcapReader;
use pcap_file::pcapng::blocks::interface_statistics::InterfaceStatisticsOption;
use pcap_file::pcapng::{Block, PcapNgReader};
use pcap_file::{DataLink, PcapError};
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufReader, Read as _};
use std::path::Path;
use std::time::Duration;
use tailbound_dataplane::{Frame as _, GuestId, HashKeys, Packet, PacketRecord, Pool};
use tailbound_units::Nanos;

/// Magic numbers of captures: pcap in both byte orders, with micro- and nanoseconds, and pcapng.
const MAGIC: [[u8; 4]; 5] = [
    [0xa1, 0xb2, 0xc3, 0xd4],
    [0xd4, 0xc3, 0xb2, 0xa1],
    [0xa1, 0xb2, 0x3c, 0x4d],
    [0x4d, 0x3c, 0xb2, 0xa1],
    [0x0a, 0x0d, 0x0d, 0x0a],
];

/// Index of the last: pcapng.
const NEXT_GENERATION: usize = 4;

/// Returns the index in [`MAGIC`] of a file's first bytes.
fn magic(path: &Path) -> io::Result<Option<usize>> {
    let mut first = Vec::new();
    File::open(path)?.take(4).read_to_end(&mut first)?;
    Ok(MAGIC.iter().position(|magic| first == magic))
}

/// Returns true if a file begins like a capture.
pub(crate) fn is_capture(path: &Path) -> io::Result<bool> {
    Ok(magic(path)?.is_some())
}

/// A frame of a capture.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CapturedFrame<'c> {
    /// Time of the capture's clock.
    pub(crate) at: Duration,
    /// First bytes.
    pub(crate) bytes: &'c [u8],
    /// Length of the whole frame.
    pub(crate) len: u32,
}

/// Adds the guests' packets. Their MAC addresses are those of `recording.guests`.
pub(super) fn read(path: &Path, recording: &mut Recording) -> Result<(), ReplayError> {
    let guests = recording.guests.iter().zip(0..);
    let stations = guests.filter_map(|(guest, number)| Some((guest.mac?, number)));
    let stations: HashMap<[u8; 6], u32> = stations.collect();
    if stations.is_empty() {
        let what = "whose frames are a guest's? Name them: --config FILE, or --guest NAME=MAC";
        return Err(ReplayError::Capture {
            path: path.to_owned(),
            what: what.to_owned(),
        });
    }
    let mut frames = Frames {
        recording,
        stations,
        pool: Pool::with_keys(HashKeys::FIXED),
        first: None,
    };
    each(path, |frame| {
        let added = frames.add(frame.at, frame.bytes, frame.len);
        added.ok_or_else(|| "it lasts for more than a month".to_owned())?;
        frames.recording.check_size()
    })?;
    Ok(())
}

/// Calls `take` with each frame of a capture, and returns the number of frames that the capture
/// itself lost, as far as it has counted them.
///
/// # Errors
/// The file cannot be read, is damaged or of another link than Ethernet; or the error of `take`.
pub(crate) fn each(
    path: &Path,
    mut take: impl FnMut(CapturedFrame<'_>) -> Result<(), String>,
) -> Result<u64, ReplayError> {
    let unreadable = |source| ReplayError::Unreadable {
        path: path.to_owned(),
        source,
    };
    let wrong = |what: String| ReplayError::Capture {
        path: path.to_owned(),
        what,
    };
    let broken = |error: PcapError| wrong(format!("the capture is broken: {error}"));
    let is_next_generation = magic(path).map_err(unreadable)? == Some(NEXT_GENERATION);
    let file = BufReader::new(File::open(path).map_err(unreadable)?);
    let other = |link: DataLink| wrong(format!("it is of {link:?}, and not of Ethernet frames"));
    let mut lost = HashMap::new();
    if is_next_generation {
        let mut reader = PcapNgReader::new(file).map_err(broken)?;
        while let Some(block) = reader.next_block() {
            match block.map_err(broken)? {
                Block::InterfaceDescription(interface)
                    if interface.linktype != DataLink::ETHERNET =>
                {
                    return Err(other(interface.linktype));
                }
                Block::EnhancedPacket(packet) => take(CapturedFrame {
                    at: packet.timestamp,
                    bytes: &packet.data,
                    len: packet.original_len,
                })
                .map_err(wrong)?,
                // Counters run from the begin of the capture: the last block has all.
                Block::InterfaceStatistics(statistics) => {
                    lost.insert(statistics.interface_id, lost_by(&statistics.options));
                }
                _ => {}
            }
        }
    } else {
        let mut reader = PcapReader::new(file).map_err(broken)?;
        let link = reader.header().datalink;
        if link != DataLink::ETHERNET {
            return Err(other(link));
        }
        while let Some(packet) = reader.next_packet() {
            let packet = packet.map_err(broken)?;
            take(CapturedFrame {
                at: packet.timestamp,
                bytes: &packet.data,
                len: packet.orig_len,
            })
            .map_err(wrong)?;
        }
    }
    Ok(lost.values().sum())
}

/// Returns the number of frames that an interface or the system lost.
fn lost_by(options: &[InterfaceStatisticsOption<'_>]) -> u64 {
    let lost = options.iter().map(|option| match option {
        InterfaceStatisticsOption::IsbIfDrop(frames)
        | InterfaceStatisticsOption::IsbOsDrop(frames) => *frames,
        _ => 0,
    });
    lost.fold(0, u64::saturating_add)
}

/// State of reading a capture into a recording.
struct Frames<'r> {
    recording: &'r mut Recording,
    stations: HashMap<[u8; 6], u32>,
    pool: Pool,
    first: Option<Duration>,
}

impl Frames<'_> {
    /// Adds a frame whose first bytes were captured. A time before the last one is replaced by the
    /// last one. Returns `None` after the longest time.
    fn add(&mut self, at: Duration, captured: &[u8], len: u32) -> Option<()> {
        let left_out = &mut self.recording.left_out;
        let Some((to, from)) = captured.first_chunk::<12>().map(stations) else {
            left_out.malformed += 1;
            return Some(());
        };
        let Some(guest) = self.stations.get(&from).copied() else {
            left_out.of_others += 1;
            return Some(());
        };
        if self.stations.contains_key(&to) {
            left_out.local += 1;
            return Some(());
        }
        let Some(packet) = self.packet(captured, len as usize, guest) else {
            self.recording.left_out.malformed += 1;
            return Some(());
        };
        let first = *self.first.get_or_insert(at);
        let came = u64::try_from(at.saturating_sub(first).as_nanos()).ok()?;
        let came = self.recording.time().max(Nanos(came));
        self.recording.add(guest, came, [packet]);
        (came <= MAX_RECORDING).then_some(())
    }

    /// Returns the record of a frame; bytes that were not captured count as zeros.
    fn packet(&self, captured: &[u8], len: usize, guest: u32) -> Option<PacketRecord> {
        if len > Packet::MAX_FRAME || captured.len() > len {
            return None;
        }
        let mut buffer = self.pool.buffer(Packet::HEADROOM + len);
        let bytes = &mut buffer[Packet::HEADROOM..Packet::HEADROOM + len];
        let (front, back) = bytes.split_at_mut(captured.len());
        front.copy_from_slice(captured);
        back.fill(0);
        let source = Some(GuestId::first(guest));
        let packet = Packet::new(buffer, Packet::HEADROOM, len, None, source).ok()?;
        let destination = packet.flow().map(|flow| flow.destination);
        Some(PacketRecord {
            destination: destination.unwrap_or_default(),
            port: packet.connection().0 as u16,
            control: packet.control(),
            ..PacketRecord::new(len)
        })
    }
}

/// Returns the destination and the source address of a frame.
fn stations(start: &[u8; 12]) -> ([u8; 6], [u8; 6]) {
    let (mut to, mut from) = ([0; 6], [0; 6]);
    to.copy_from_slice(&start[..6]);
    from.copy_from_slice(&start[6..]);
    (to, from)
}
