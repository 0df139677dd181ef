//! Captures: frames are read from a file with their original spacing, and sent frames are written
//! to another.

use super::{BURST, Burst, More, Outgoing, Port, Received, TransmitResult};
use pcap_file::pcap::{PcapHeader, PcapPacket, PcapReader, PcapWriter};
use pcap_file::{DataLink, Endianness, TsResolution};
use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, BufWriter};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tailbound_dataplane::{Packet, Pool, VoidFrame};
use tailbound_units::Nanos;

/// Longest frame that a capture holds, in bytes: a 64 KiB packet.
pub(super) const SNAP_LEN: u32 = 256 * 1024;

/// Reason why a capture cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum PcapError {
    /// The file cannot be opened.
    #[error("cannot open the capture {}: {source}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The file is no capture of Ethernet frames.
    #[error("{} is no pcap file of Ethernet frames: {what}", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// The mistake in the file.
        what: String,
    },
}

/// A port that replays one capture and writes another. Both are optional.
///
/// Frames longer than their captured part are counted as truncated. After the end of the capture,
/// or a damaged place, no more frames are received.
pub struct PcapPort {
    reader: Option<PcapReader<BufReader<File>>>,
    /// The next frame, and its capture time.
    next: Option<(Duration, Vec<u8>)>,
    truncated: u64,
    /// The time at which the replay began, and the first frame's capture time.
    began: Option<(Nanos, Duration)>,
    writer: Option<PcapWriter<BufWriter<File>>>,
    voids: VoidFrame,
    epoch: Duration,
}

impl std::fmt::Debug for PcapPort {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PcapPort").finish_non_exhaustive()
    }
}

impl PcapPort {
    /// Opens the capture `read` and creates the capture `write`, with times in nanoseconds. `epoch`
    /// is the time of day at which the clock of `now` was zero, since 1970.
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
            // No station's: locally administered.
            voids: VoidFrame::new([2, 0, 0, 0, 0, 0]),
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

    /// Returns the time at which the next frame is due.
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

/// Creates a capture that only its owner may read: it contains guests' traffic.
pub(super) fn make_writer(path: &Path) -> Result<PcapWriter<BufWriter<File>>, PcapError> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let file = options.open(path).map_err(|source| PcapError::Open {
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

    fn transmit(
        &mut self,
        now: Nanos,
        outgoing: &mut VecDeque<Outgoing>,
    ) -> io::Result<TransmitResult> {
        let mut sent = TransmitResult::default();
        let time = self.epoch.saturating_add(now.into());
        for mut next in outgoing.drain(..) {
            let bytes = match &mut next {
                Outgoing::Frame { frame, .. } => {
                    frame.complete_checksum();
                    frame.bytes()
                }
                Outgoing::Void { wire } => self.voids.bytes(*wire),
            };
            if let Some(writer) = &mut self.writer {
                let record = PcapPacket::new(time, bytes.len() as u32, bytes);
                writer
                    .write_packet(&record)
                    .map_err(|error| io::Error::other(error.to_string()))?;
            }
            sent.add(&next);
        }
        Ok(sent)
    }

    fn receive_at(&self) -> Option<Nanos> {
        self.due()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_frames::{A4, B4, MAC_A, MAC_B, ethernet, ipv4, packet, udp};

    fn frame(n: u8) -> Vec<u8> {
        ethernet(MAC_B, MAC_A, 0x0800, &ipv4(A4, B4, 17, &udp(1, 2, &[n])))
    }

    /// A capture of frames 0, 1, 2, ... at these times.
    fn capture(path: &Path, times: &[Nanos]) {
        let mut writer = PcapPort::open(None, Some(path), Duration::ZERO).expect("made");
        for (n, time) in (0..).zip(times) {
            let packet = packet(&frame(n), None).expect("well formed");
            let mut frames = VecDeque::from([Outgoing::frame(packet)]);
            let sent = writer.transmit(*time, &mut frames).expect("written");
            assert_eq!((sent.packets, sent.bytes), (1, 60));
        }
    }

    fn receive(port: &mut PcapPort, now: Nanos) -> Burst {
        let mut burst = Burst::default();
        port.receive(now, &Pool::new(), &mut burst)
            .expect("it never fails");
        burst
    }

    fn bytes(burst: &Burst) -> Vec<Vec<u8>> {
        let frames = burst.frames.iter();
        frames
            .map(|frame| frame.buffer[frame.start..frame.start + frame.len].to_vec())
            .collect()
    }

    #[test]
    fn a_capture_is_replayed_at_its_own_spacing_to_the_nanosecond() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        capture(
            file.path(),
            &[
                Nanos(1_000_000_007),
                Nanos(1_000_000_008),
                Nanos(3_000_000_000),
            ],
        );
        let mut port = PcapPort::open(Some(file.path()), None, Duration::ZERO).expect("a capture");
        let start = Nanos::from_secs(50);
        assert_eq!(port.receive_at(), Some(Nanos::ZERO));
        assert_eq!(bytes(&receive(&mut port, start)), [frame(0)]);
        assert_eq!(port.receive_at(), Some(start + Nanos(1)));
        assert_eq!(bytes(&receive(&mut port, start + Nanos(1))), [frame(1)]);
        let last = start + Nanos(1_999_999_993);
        assert_eq!(port.receive_at(), Some(last));
        assert!(bytes(&receive(&mut port, last.saturating_sub(Nanos(1)))).is_empty());
        assert_eq!(bytes(&receive(&mut port, last)), [frame(2)]);
        assert_eq!(port.receive_at(), None);
    }

    #[test]
    fn a_file_that_is_no_ethernet_capture_is_refused_by_name() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), b"not a capture at all, whatever").expect("written");
        let error =
            PcapPort::open(Some(file.path()), None, Duration::ZERO).expect_err("no capture");
        assert!(error.to_string().contains("is no pcap file"), "{error}");
        let error = PcapPort::open(Some(Path::new("/nonexistent")), None, Duration::ZERO);
        assert!(matches!(error, Err(PcapError::Open { .. })));
    }

    #[test]
    fn a_truncated_capture_replays_its_whole_frames_only() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        capture(file.path(), &[Nanos(1), Nanos(2)]);
        let bytes = std::fs::read(file.path()).expect("read");
        std::fs::write(file.path(), &bytes[..bytes.len() - 5]).expect("written");
        let mut port = PcapPort::open(Some(file.path()), None, Duration::ZERO).expect("a capture");
        assert_eq!(receive(&mut port, Nanos(0)).frames.len(), 1);
        assert_eq!(port.receive_at(), None);
        assert!(receive(&mut port, Nanos::from_secs(9)).frames.is_empty());
    }
}
