//! Captures: frames read from a file at the spacing they were captured with,
//! and what is sent written to another.

use super::{BURST, Burst, More, Port, Received, Sent};
use pcap_file::pcap::{PcapHeader, PcapPacket, PcapReader, PcapWriter};
use pcap_file::{DataLink, Endianness, TsResolution};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufReader, BufWriter};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tailbound_dataplane::{Packet, Pool};
use tailbound_units::Nanos;

/// Longest frame that a capture holds, in bytes: a 64 KiB packet.
const SNAP_LEN: u32 = 256 * 1024;

/// Why a capture cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum PcapError {
    /// The file cannot be opened.
    #[error("cannot open the capture {}: {source}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file is no capture of Ethernet frames.
    #[error("{} is no pcap file of Ethernet frames: {what}", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
}

/// A port that replays one capture and writes another. Both are optional.
///
/// Frames longer than they were captured for are counted as truncated. Once the
/// capture is at its end, or where it is broken, nothing more is received.
pub struct PcapPort {
    reader: Option<PcapReader<BufReader<File>>>,
    /// The frame that comes next, and its capture time.
    next: Option<(Duration, Vec<u8>)>,
    truncated: u64,
    /// When the replay began, and the first frame's capture time.
    began: Option<(Nanos, Duration)>,
    writer: Option<PcapWriter<BufWriter<File>>>,
    epoch: Duration,
}

impl std::fmt::Debug for PcapPort {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PcapPort").finish_non_exhaustive()
    }
}

impl PcapPort {
    /// Opens the capture `read` and makes the capture `write`, with times in
    /// nanoseconds. `epoch` is the time of day at which the clock of `now` was
    /// zero, since 1970.
    pub fn open(
        read: Option<&Path>,
        write: Option<&Path>,
        epoch: Duration,
    ) -> Result<Self, PcapError> {
        let reader = read.map(open_reader).transpose()?;
        let writer = write.map(make_writer).transpose()?;
        let mut port = Self {
            reader,
            next: None,
            truncated: 0,
            began: None,
            writer,
            epoch,
        };
        port.advance();
        Ok(port)
    }

    /// Reads ahead to the next whole frame.
    fn advance(&mut self) {
        self.next = None;
        while let Some(reader) = &mut self.reader {
            match reader.next_packet() {
                Some(Ok(packet)) if packet.data.len() < packet.orig_len as usize => {
                    self.truncated += 1;
                }
                Some(Ok(packet)) => {
                    self.next = Some((packet.timestamp, packet.data.into_owned()));
                    return;
                }
                Some(Err(error)) => {
                    tracing::warn!(%error, "the capture is broken; replay ends here");
                    self.reader = None;
                }
                None => self.reader = None,
            }
        }
    }

    /// When the next frame is due.
    fn due(&self) -> Option<Nanos> {
        let (captured, _) = self.next.as_ref()?;
        let Some((began, first)) = self.began else {
            return Some(Nanos::ZERO);
        };
        Some(began.saturating_add(captured.saturating_sub(first).into()))
    }
}

fn open_reader(path: &Path) -> Result<PcapReader<BufReader<File>>, PcapError> {
    let file = File::open(path).map_err(|source| PcapError::Open {
        path: path.to_owned(),
        source,
    })?;
    let format = |what: String| PcapError::Format {
        path: path.to_owned(),
        what,
    };
    let reader =
        PcapReader::new(BufReader::new(file)).map_err(|error| format(error.to_string()))?;
    match reader.header().datalink {
        DataLink::ETHERNET => Ok(reader),
        other => Err(format(format!("its link type is {other:?}"))),
    }
}

fn make_writer(path: &Path) -> Result<PcapWriter<BufWriter<File>>, PcapError> {
    let file = File::create(path).map_err(|source| PcapError::Open {
        path: path.to_owned(),
        source,
    })?;
    let header = PcapHeader {
        version_major: 2,
        version_minor: 4,
        ts_correction: 0,
        ts_accuracy: 0,
        snaplen: SNAP_LEN,
        datalink: DataLink::ETHERNET,
        ts_resolution: TsResolution::NanoSecond,
        endianness: Endianness::native(),
    };
    PcapWriter::with_header(BufWriter::new(file), header).map_err(|error| PcapError::Format {
        path: path.to_owned(),
        what: error.to_string(),
    })
}

impl Port for PcapPort {
    fn receive(&mut self, now: Nanos, pool: &Pool, burst: &mut Burst) -> io::Result<More> {
        burst.truncated += std::mem::take(&mut self.truncated);
        for _ in 0..BURST {
            if self.due().is_none_or(|due| due > now) {
                return Ok(More::No);
            }
            let Some((captured, bytes)) = self.next.take() else {
                return Ok(More::No);
            };
            self.began.get_or_insert((now, captured));
            let end = Packet::HEADROOM + bytes.len();
            let mut buffer = pool.buffer(end);
            buffer[Packet::HEADROOM..end].copy_from_slice(&bytes);
            burst.frames.push(Received {
                buffer,
                start: Packet::HEADROOM,
                len: bytes.len(),
                virtio: None,
            });
            self.advance();
        }
        Ok(More::Maybe)
    }

    fn transmit(&mut self, now: Nanos, frames: &mut VecDeque<Packet>) -> io::Result<Sent> {
        let mut sent = Sent::default();
        let time = self.epoch.saturating_add(now.into());
        for mut packet in frames.drain(..) {
            packet.complete_checksum();
            let bytes = packet.bytes();
            if let Some(writer) = &mut self.writer {
                let record = PcapPacket::new(time, bytes.len() as u32, bytes);
                writer
                    .write_packet(&record)
                    .map_err(|error| io::Error::other(error.to_string()))?;
            }
            sent.packets += 1;
            sent.bytes += bytes.len() as u64;
        }
        Ok(sent)
    }

    fn poll_at(&self) -> Option<Nanos> {
        self.due()
    }
}
