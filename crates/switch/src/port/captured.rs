//! Ports with a capture of their traffic: for a VM's card, which has no interface at which other
//! programs could listen.

use super::pcap::{SNAP_LEN, make_writer};
use super::{Burst, Estate, More, Outgoing, PcapError, Port, Presence, TransmitResult};
use byteorder_slice::NativeEndian;
use pcap_file::TsResolution;
use pcap_file::pcap::PcapPacket;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::time::Duration;
use tailbound_dataplane::Pool;
use tailbound_units::Nanos;

/// Stored bytes of each frame: its headers and the begin of its payload.
const STORED: usize = 256;

/// A port that writes the start of each frame, in both directions, to a capture, with the time at
/// which the frame was received or sent. Lost frames are not written.
pub struct CapturedPort {
    port: Box<dyn Port>,
    capture: Capture,
    /// Starts of the offered frames, to be written if the port takes them.
    offered: Vec<Head>,
}

/// The start of a frame.
struct Head {
    bytes: [u8; STORED],
    stored: usize,
    whole: usize,
}

impl Head {
    fn of(frame: &[u8]) -> Self {
        let stored = frame.len().min(STORED);
        let mut bytes = [0; STORED];
        bytes[..stored].copy_from_slice(&frame[..stored]);
        Self {
            bytes,
            stored,
            whole: frame.len(),
        }
    }
}

struct Capture {
    /// The writer; `None` after a write error.
    writer: Option<BufWriter<File>>,
    epoch: Duration,
}

impl std::fmt::Debug for CapturedPort {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CapturedPort").finish_non_exhaustive()
    }
}

impl CapturedPort {
    /// Starts a new capture at `path`. `epoch` is the time of day at which the clock of `now` was
    /// zero.
    ///
    /// # Errors
    /// The file cannot be created.
    pub fn open(port: Box<dyn Port>, path: &Path, epoch: Duration) -> Result<Self, PcapError> {
        let writer = make_writer(path)?.into_writer();
        let mut capture = Capture {
            writer: Some(writer),
            epoch,
        };
        capture.flush();
        Ok(Self {
            port,
            capture,
            offered: Vec::new(),
        })
    }
}

impl Capture {
    fn write(&mut self, now: Nanos, head: &Head) {
        let Some(writer) = &mut self.writer else {
            return;
        };
        let time = self.epoch.saturating_add(now.into());
        let record = PcapPacket::new(time, head.whole as u32, &head.bytes[..head.stored]);
        // The crate's own writer cannot flush.
        let resolution = TsResolution::NanoSecond;
        let written = record.write_to::<_, NativeEndian>(writer, resolution, SNAP_LEN);
        if let Err(error) = written {
            self.end(&error);
        }
    }

    /// Flushes the writer, so that readers see the frames so far, and a killed daemon has written
    /// them.
    fn flush(&mut self) {
        let flushed = self.writer.as_mut().map(BufWriter::flush);
        if let Some(Err(error)) = flushed {
            self.end(&error);
        }
    }

    /// Ends the capture after an error: a full disk costs the capture, not the guest.
    fn end(&mut self, error: &dyn std::fmt::Display) {
        tracing::error!(%error, "a capture cannot be written; it ends here");
        self.writer = None;
    }
}

impl Port for CapturedPort {
    fn receive(&mut self, now: Nanos, pool: &Pool, burst: &mut Burst) -> io::Result<More> {
        let before = burst.frames.len();
        let more = self.port.receive(now, pool, burst)?;
        for frame in &burst.frames[before..] {
            let bytes = &frame.buffer[frame.start..frame.start + frame.len];
            self.capture.write(now, &Head::of(bytes));
        }
        if burst.frames.len() > before {
            self.capture.flush();
        }
        Ok(more)
    }

    fn transmit(
        &mut self,
        now: Nanos,
        outgoing: &mut VecDeque<Outgoing>,
    ) -> io::Result<TransmitResult> {
        self.offered.clear();
        self.offered
            .extend(outgoing.iter().filter_map(|next| match next {
                Outgoing::Frame { frame, .. } => Some(Head::of(frame.bytes())),
                Outgoing::Void { .. } => None,
            }));
        let sent = self.port.transmit(now, outgoing)?;
        let taken = usize::try_from(sent.packets).unwrap_or(usize::MAX);
        for head in self.offered.iter().take(taken) {
            self.capture.write(now, head);
        }
        if sent.packets > 0 {
            self.capture.flush();
        }
        Ok(sent)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.port.descriptor()
    }

    fn readable_may_be_writable(&self) -> bool {
        self.port.readable_may_be_writable()
    }

    fn note_ready(&mut self) {
        self.port.note_ready();
    }

    fn longest(&self) -> Option<usize> {
        self.port.longest()
    }

    fn progress(&self) -> u64 {
        self.port.progress()
    }

    fn borrowed(&self) -> u64 {
        self.port.borrowed()
    }

    fn presence(&self) -> Presence {
        self.port.presence()
    }

    fn launch_times(&self) -> bool {
        self.port.launch_times()
    }

    fn receive_at(&self) -> Option<Nanos> {
        self.port.receive_at()
    }

    fn flush(&mut self, now: Nanos) -> io::Result<()> {
        self.port.flush(now)
    }

    fn flush_at(&self) -> Option<Nanos> {
        self.port.flush_at()
    }

    fn pause(&mut self) -> Option<Estate> {
        self.port.pause()
    }

    fn resume(&mut self) {
        // Who was to go on may have begun the capture anew.
        self.capture.writer = None;
        self.port.resume();
    }

    fn take_overruns(&mut self) -> u64 {
        self.port.take_overruns()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::port::{MemoryPort, WireEnd};
    use crate::test_frames::{A4, B4, MAC_A, MAC_B, ethernet, ipv4, packet, udp};
    use pcap_file::pcap::PcapReader;

    fn frame(len: usize) -> Vec<u8> {
        ethernet(
            MAC_B,
            MAC_A,
            0x0800,
            &ipv4(A4, B4, 17, &udp(1, 2, &vec![7; len])),
        )
    }

    fn captured(file: &Path) -> (CapturedPort, WireEnd) {
        let (port, wire) = MemoryPort::new();
        let port = CapturedPort::open(Box::new(port), file, Duration::from_secs(10));
        (port.expect("made"), wire)
    }

    /// Returns the time, the length and the stored bytes of each frame of a capture.
    fn records(file: &Path) -> Vec<(Duration, u32, Vec<u8>)> {
        let file = File::open(file).expect("it is there");
        let mut reader = PcapReader::new(file).expect("a capture");
        let mut records = Vec::new();
        while let Some(record) = reader.next_packet() {
            let record = record.expect("whole");
            records.push((record.timestamp, record.orig_len, record.data.into_owned()));
        }
        records
    }

    fn offer(frames: &[Vec<u8>]) -> VecDeque<Outgoing> {
        let packets = frames.iter().map(|frame| packet(frame, None));
        packets
            .map(|packet| Outgoing::frame(packet.expect("well formed")))
            .collect()
    }

    #[test]
    fn a_capture_records_the_start_and_time_of_each_frame() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let (mut port, wire) = captured(file.path());
        let (short, long) = (frame(50), frame(1000));
        wire.borrow_mut().to_port.push_back((long.clone(), None));
        let mut burst = Burst::default();
        port.receive(Nanos(5), &Pool::new(), &mut burst)
            .expect("it is there");
        assert_eq!(burst.frames.len(), 1);
        let mut outgoing = offer(std::slice::from_ref(&short));
        port.transmit(Nanos(6), &mut outgoing).expect("it is there");
        let at = |nanos| Duration::new(10, nanos);
        let expected = [
            (at(5), long.len() as u32, long[..STORED].to_vec()),
            (at(6), short.len() as u32, short),
        ];
        assert_eq!(records(file.path()), expected);
    }

    #[test]
    fn a_capture_omits_frames_that_the_port_refused() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let (mut port, wire) = captured(file.path());
        wire.borrow_mut().room = Some(2);
        let mut outgoing = offer(&[frame(1), frame(2), frame(3)]);
        let sent = port.transmit(Nanos(1), &mut outgoing).expect("it is there");
        assert!(sent.full);
        let lengths = |records: Vec<(Duration, u32, Vec<u8>)>| {
            let lengths = records.into_iter().map(|(_, len, _)| len as usize);
            lengths.collect::<Vec<_>>()
        };
        assert_eq!(
            lengths(records(file.path())),
            [frame(1).len(), frame(2).len()]
        );
        wire.borrow_mut().room = None;
        port.transmit(Nanos(2), &mut outgoing).expect("it is there");
        assert_eq!(records(file.path()).len(), 3);
    }

    #[test]
    fn a_capture_that_cannot_be_written_costs_no_frame() {
        let (port, wire) = MemoryPort::new();
        // It opens as any file does, and takes nothing.
        let full = CapturedPort::open(Box::new(port), Path::new("/dev/full"), Duration::ZERO);
        let mut port = full.expect("it opens");
        for _ in 0..3 {
            let mut outgoing = offer(&[frame(9)]);
            port.transmit(Nanos(1), &mut outgoing)
                .expect("the port is there");
        }
        assert_eq!(wire.borrow().from_port.len(), 3);
        let nowhere = CapturedPort::open(
            Box::new(MemoryPort::new().0),
            Path::new("/nonexistent/x"),
            Duration::ZERO,
        );
        assert!(matches!(nowhere, Err(PcapError::Open { .. })));
    }
}
