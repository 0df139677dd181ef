//! Messages between VMs: times from ring to ring, and the waits of both ends' vCPUs meanwhile.
//!
//! A host's daemon records when it took a frame from a VM's ring, and when it put a frame into one,
//! on a clock that all hosts share. Neither the VMs' kernels nor their vCPUs are between these
//! times. The slowest datagram counts for its message: a sender whose vCPU does not run puts the
//! next datagram into its ring late, and this delay does not belong to the network.

use super::load::Reading;
use crate::LabError;
use crate::experiment::Message;
use crate::guest::{Header, Sample, now, on_wire, read_frame};
use crate::hosts;
use crate::measurement::MeasuredSeries;
use crate::noise::Lost;
use pcap_file::pcap::PcapReader;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;
use tailbound_units::{Bytes, Nanos, Rate};

/// One message in transit.
#[derive(Debug, Default)]
struct Way {
    /// Scheduled start of the message.
    start: Nanos,
    /// Its datagrams.
    parts: Vec<Part>,
}

/// One datagram of a message.
#[derive(Debug, Default, Clone, Copy)]
struct Part {
    /// Time when it was taken from its sender's ring, or the later time when the sender's guarantee
    /// permitted it.
    taken: Option<Nanos>,
    /// Its bytes on the wire.
    wire: Bytes,
    /// Time when it was put into its receiver's ring.
    given: Option<Nanos>,
}

/// Maximum of a message's datagrams that are evaluated: the number in the longest message.
const PARTS: u32 = 10_000;

/// All messages, by their senders and numbers.
type Ways = BTreeMap<(Ipv4Addr, u32), Way>;

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
    let mut found = Vec::new();
    if let Some(name) = &message.ring {
        let mut ways = Ways::new();
        for guest in ends.iter().filter_map(|guest| topology.guest(guest)) {
            let path = hosts::capture(crew.context.session.directory(), &guest.name);
            let read = take(&path, guest.mac, &mut ways);
            read.map_err(LabError::file("reading", &path))?;
        }
        for guest in &topology.guests {
            if let Some(member) = experiment.guarantee_of(crew.variant, &guest.name) {
                conform(guest.ip, member.bandwidth, member.burst, &mut ways);
            }
        }
        found.push((name.clone(), summary(&ways, reading.counted)));
    }
    if let Some(name) = &message.vcpu_wait {
        let vcpus = reading.record.vcpus.iter();
        let vcpus = vcpus.filter(|(guest, _)| ends.contains(&guest.as_str()));
        let lost: Vec<&Lost> = vcpus.flat_map(|(_, lost)| lost).collect();
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
        found.push((name.clone(), series));
    }
    Ok(found)
}

/// Reads the capture of the NIC of the guest with that address.
fn take(capture: &Path, mac: [u8; 6], ways: &mut Ways) -> io::Result<()> {
    let mut reader = PcapReader::new(io::BufReader::new(File::open(capture)?)).map_err(other)?;
    let epoch = epoch();
    while let Some(record) = reader.next_packet() {
        let record = record.map_err(other)?;
        let at = Nanos::from(record.timestamp.saturating_sub(epoch));
        see(&record.data, at, mac, ways);
    }
    Ok(())
}

fn other(error: impl std::fmt::Display) -> io::Error {
    io::Error::other(error.to_string())
}

/// Adds a frame that passed the NIC of `mac` at that time.
fn see(frame: &[u8], at: Nanos, mac: [u8; 6], ways: &mut Ways) {
    let Some(seen) = read_frame(frame) else {
        return;
    };
    let Some(header) = Header::read(seen.data) else {
        return;
    };
    let way = ways.entry((seen.from, header.message)).or_default();
    way.start = header.start;
    way.parts
        .resize(header.of.min(PARTS) as usize, Part::default());
    let Some(part) = way.parts.get_mut(header.place as usize) else {
        return;
    };
    if frame.get(6..12) == Some(&mac) {
        part.taken = Some(at);
        part.wire = Bytes(on_wire(seen.len));
    } else {
        part.given = Some(at);
    }
}

/// Shifts the start of a sender's datagrams to the time when its own {B, S} permits them: datagrams
/// beyond {B, S}, for example after its vCPU did not run, wait because of the sender itself.
fn conform(sender: Ipv4Addr, bandwidth: Rate, burst: Bytes, ways: &mut Ways) {
    let parts = ways
        .iter_mut()
        .filter(|((from, _), _)| *from == sender)
        .flat_map(|(_, way)| &mut way.parts);
    let mut taken: Vec<&mut Part> = parts.filter(|part| part.taken.is_some()).collect();
    taken.sort_by_key(|part| part.taken);
    // Time at which the bucket will be full again: until then the earned bytes are missing from S.
    let mut full = Nanos::ZERO;
    let whole = bandwidth.time_for(burst);
    for part in taken {
        let at = part.taken.unwrap_or_default();
        full = full.max(at).saturating_add(bandwidth.time_for(part.wire));
        part.taken = Some(at.max(full.saturating_sub(whole)));
    }
}

/// Returns the complete messages with a scheduled start in the counted time, each with its slowest
/// datagram.
fn summary(ways: &Ways, [from, to]: [Nanos; 2]) -> MeasuredSeries {
    let mut series = MeasuredSeries::default();
    for ((_, message), way) in ways {
        if !(from..to).contains(&way.start) {
            continue;
        }
        let parts = way
            .parts
            .iter()
            .map(|part| Some((part.taken?, part.given?)));
        let slowest = parts.collect::<Option<Vec<_>>>().and_then(|parts| {
            let times = parts.into_iter();
            times.max_by_key(|(taken, given)| given.since(*taken))
        });
        match slowest {
            Some((start, end)) => series.samples.push(Sample {
                arrival: *message,
                start,
                end,
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
    use crate::guest::{End, message_frame};

    #[test]
    fn a_message_takes_as_long_as_its_slowest_datagram_from_ring_to_ring() {
        let end = |n: u8| End {
            mac: [2, 0, 0, 0, n, n],
            ip: Ipv4Addr::new(10, 77, n, n),
        };
        let (one, two) = (end(1), end(2));
        let mut ways = Ways::new();
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
                &mut ways,
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
        see(b"no frame at all", Nanos(1), one.mac, &mut ways);
        let series = summary(&ways, [Nanos(100), Nanos(300)]);
        assert_eq!(series.samples.len(), 1);
        assert_eq!(series.samples[0].latency(), Nanos(24));
        assert_eq!(series.unanswered, 1);
    }

    #[test]
    fn what_exceeds_its_senders_guarantee_counts_from_when_that_lets_it_go() {
        let sender = Ipv4Addr::new(10, 77, 1, 1);
        let part = |at| Part {
            taken: Some(Nanos(at)),
            given: None,
            wire: Bytes(1000),
        };
        // 8 Mbit/s: a byte a microsecond; S holds two datagrams.
        let mut ways = Ways::new();
        for (message, at) in [(1, 10_000_000), (2, 10_000_000), (3, 20_000_000)] {
            let parts = vec![part(at), part(at)];
            let way = Way {
                start: Nanos(at),
                parts,
            };
            ways.insert((sender, message), way);
        }
        conform(sender, Rate::from_mbit(8), Bytes(2000), &mut ways);
        let taken = ways.values().flat_map(|way| &way.parts);
        let taken: Vec<u64> = taken
            .map(|part| part.taken.unwrap().0 / 1_000_000)
            .collect();
        assert_eq!(taken, [10, 10, 11, 12, 20, 20]);
    }
}
