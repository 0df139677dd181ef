//! Messages between VMs: times from ring to ring, and the waits of both ends' vCPUs meanwhile.
//!
//! A host's daemon records when it took a frame from a VM's ring, and when it put a frame into one,
//! on a clock that all hosts share. Neither the VMs' kernels nor their vCPUs are between these
//! times. The slowest datagram counts for its message: a sender whose vCPU does not run puts the
//! next datagram into its ring late, and this delay does not belong to the network.

use super::load::Reading;
use crate::LabError;
use crate::experiment::Message;
use crate::guest::{Passage, Passages, Sample, now, passage_of};
use crate::hosts;
use crate::measurement::MeasuredSeries;
use crate::noise::LossTotal;
use pcap_file::pcap::PcapReader;
use std::fs::File;
use std::io;
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;
use tailbound_units::{Bytes, Nanos, Rate};

/// Returns the other series of messages whose latencies are `latencies`: times from ring to ring,
/// and waits of the vCPUs.
pub(super) fn series(
    reading: &Reading<'_>,
    message: &Message,
    latencies: &MeasuredSeries,
) -> Result<Vec<(String, MeasuredSeries)>, LabError> {
    let crew = reading.crew;
    let (experiment, topology) = (crew.experiment(), crew.context.topology);
    let ends = message.from.iter().chain(&message.to);
    let ends: Vec<&str> = ends.map(|name| name.get_ref().as_str()).collect();
    let mut all_series = Vec::new();
    if let Some(name) = &message.ring {
        let mut passages = Passages::new();
        for guest in ends.iter().filter_map(|guest| topology.guest(guest)) {
            let path = hosts::capture(crew.context.session.directory(), &guest.name);
            let read = take(&path, guest.mac, &mut passages);
            read.map_err(LabError::file("reading", &path))?;
        }
        for guest in &topology.guests {
            if let Some(member) = experiment.guarantee_of(crew.variant, &guest.name) {
                conform(guest.ip, member.bandwidth, member.burst, &mut passages);
            }
        }
        all_series.push((name.clone(), summary(&passages, reading.counted)));
    }
    if let Some(name) = &message.vcpu_wait {
        let vcpus = reading.record.vcpus.iter();
        let vcpus = vcpus.filter(|(guest, _)| ends.contains(&guest.as_str()));
        let lost: Vec<&LossTotal> = vcpus.flat_map(|(_, lost)| lost).collect();
        let waited = |sample: &Sample| {
            let waits = lost.iter();
            let waits = waits.map(|lost| lost.between(sample.start, sample.end).0);
            Sample {
                end: sample.start + Nanos(waits.sum()),
                ..*sample
            }
        };
        let series = MeasuredSeries {
            samples: latencies.samples.iter().map(waited).collect(),
            ..MeasuredSeries::default()
        };
        all_series.push((name.clone(), series));
    }
    Ok(all_series)
}

/// Reads the capture of the NIC of the guest with that address. A datagram enters when it is taken
/// from its sender's ring, and leaves when it is put into its receiver's ring.
fn take(capture: &Path, mac: [u8; 6], passages: &mut Passages) -> io::Result<()> {
    let other = |error: pcap_file::PcapError| io::Error::other(error.to_string());
    let mut reader = PcapReader::new(io::BufReader::new(File::open(capture)?)).map_err(other)?;
    let epoch = epoch();
    while let Some(record) = reader.next_packet() {
        let record = record.map_err(other)?;
        let at = Nanos::from(record.timestamp.saturating_sub(epoch));
        see(&record.data, at, mac, passages);
    }
    Ok(())
}

/// Adds a frame that passed the NIC of `mac` at that time.
fn see(frame: &[u8], at: Nanos, mac: [u8; 6], passages: &mut Passages) {
    let Some(passage) = passage_of(frame, passages) else {
        return;
    };
    if frame.get(6..12) == Some(&mac) {
        passage.entered = Some(at);
    } else {
        passage.left = Some(at);
    }
}

/// Shifts the start of a sender's datagrams to the time when its own {B, S} permits them: datagrams
/// beyond {B, S}, for example after its vCPU did not run, wait because of the sender itself.
fn conform(sender: Ipv4Addr, bandwidth: Rate, burst: Bytes, passages: &mut Passages) {
    let own = passages
        .iter_mut()
        .filter(|((from, _, _), _)| *from == sender);
    let own = own.map(|(_, passage)| passage);
    let mut entries: Vec<&mut Passage> = own.filter(|it| it.entered.is_some()).collect();
    entries.sort_by_key(|passage| passage.entered);
    // Time at which the bucket will be full again: until then the earned bytes are missing from S.
    let mut full = Nanos::ZERO;
    let whole = bandwidth.time_for(burst);
    for passage in entries {
        let at = passage.entered.unwrap_or_default();
        full = full
            .max(at)
            .saturating_add(bandwidth.time_for(passage.wire));
        passage.entered = Some(at.max(full.saturating_sub(whole)));
    }
}

/// Returns the complete messages with a scheduled start in the counted time, each with its slowest
/// datagram.
fn summary(passages: &Passages, [from, to]: [Nanos; 2]) -> MeasuredSeries {
    let mut series = MeasuredSeries::default();
    let all: Vec<_> = passages.iter().collect();
    for message in all.chunk_by(|(a, _), (b, _)| (a.0, a.1) == (b.0, b.1)) {
        let ((_, number, _), first) = message[0];
        if !(from..to).contains(&first.start) {
            continue;
        }
        let times = message.iter().map(|(_, it)| Some((it.entered?, it.left?)));
        let times = times.collect::<Option<Vec<_>>>().unwrap_or_default();
        let slowest = times
            .iter()
            .max_by_key(|(entered, left)| left.since(*entered));
        match slowest.filter(|_| times.len() == first.of as usize) {
            Some((start, end)) => series.samples.push(Sample {
                arrival: *number,
                start: *start,
                end: *end,
            }),
            None => series.unanswered += 1,
        }
    }
    series.samples.sort_by_key(|sample| sample.start);
    series
}

/// Returns the time of day at which the clock of the samples was zero.
fn epoch() -> Duration {
    let day = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    day.unwrap_or_default().saturating_sub(now().into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guest::{End, Header, message_frame};

    #[test]
    fn a_message_takes_as_long_as_its_slowest_datagram_from_ring_to_ring() {
        let end = |n: u8| End {
            mac: [2, 0, 0, 0, n, n],
            ip: Ipv4Addr::new(10, 77, n, n),
        };
        let (one, two) = (end(1), end(2));
        let mut passages = Passages::new();
        let mut pass = |message, place, card: End, at| {
            let header = Header {
                message,
                place,
                of: 2,
                start: Nanos(100 * u64::from(message)),
            };
            see(
                &message_frame(one, two, header),
                Nanos(at),
                card.mac,
                &mut passages,
            );
        };
        // Its sender's vCPU did not run for a while.
        for (place, at, for_long) in [(0, 105, 20), (1, 250, 24)] {
            pass(1, place, one, at);
            pass(1, place, two, at + for_long);
        }
        // One of which a part is lost, and one from before.
        pass(2, 0, one, 205);
        pass(2, 0, two, 206);
        pass(0, 0, one, 1);
        see(b"no frame at all", Nanos(1), one.mac, &mut passages);
        let series = summary(&passages, [Nanos(100), Nanos(300)]);
        assert_eq!(series.samples.len(), 1);
        assert_eq!(series.samples[0].latency(), Nanos(24));
        assert_eq!(series.unanswered, 1);
    }

    #[test]
    fn excess_messages_count_from_their_conforming_time() {
        let sender = Ipv4Addr::new(10, 77, 1, 1);
        // 8 Mbit/s: a byte a microsecond; S holds two datagrams.
        let mut passages = Passages::new();
        for (message, at) in [(1, 10_000_000), (2, 10_000_000), (3, 20_000_000)] {
            for place in 0..2 {
                let passage = Passage {
                    entered: Some(Nanos(at)),
                    wire: Bytes(1000),
                    ..Passage::default()
                };
                passages.insert((sender, message, place), passage);
            }
        }
        conform(sender, Rate::from_mbit(8), Bytes(2000), &mut passages);
        let taken = passages.values().filter_map(|it| it.entered);
        let taken: Vec<u64> = taken.map(|at| at.0 / 1_000_000).collect();
        assert_eq!(taken, [10, 10, 11, 12, 20, 20]);
    }
}
