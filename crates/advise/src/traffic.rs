//! Recorded messages of a tenant's machines.

use tailbound_units::{Bytes, Nanos, Rate};

/// Index of a machine in [`Traffic`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MachineId(u32);

impl MachineId {
    /// Returns the machine with this index in the list of names.
    pub const fn new(index: u32) -> Self {
        Self(index)
    }

    /// Returns the index in the list of names.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Direction of a message from a machine's point of view.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Direction {
    /// The machine sent it.
    Sent,
    /// The machine received it.
    Received,
}

/// Kind of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Bytes of an application.
    Data,
    /// Acknowledgements and the like: they use the guarantee, but no question is about them.
    Control,
}

/// A message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message {
    /// Time of its first byte since the begin of the recording.
    pub at: Nanos,
    /// Its sender; `None` if it is no machine of the tenant.
    pub from: Option<MachineId>,
    /// Its receiver; `None` if it is no machine of the tenant.
    pub to: Option<MachineId>,
    /// Its length on the wire.
    pub wire: Bytes,
    /// Its kind.
    pub kind: Kind,
}

/// A time in which no machine sent anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Silence {
    /// Begin of the silence.
    pub from: Nanos,
    /// End of the silence.
    pub until: Nanos,
}

/// Messages of a tenant's machines, in the order of time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Traffic {
    machines: Vec<String>,
    messages: Vec<Message>,
}

/// Shortest silence that may be a gap.
const LEAST_SILENCE: Nanos = Nanos::from_secs(1);
/// A silence may be a gap if it is this many times as long as the next one.
const LONGER: u64 = 10;

/// Payload of a segment, and the bytes on the wire beside it: headers of Ethernet, IP and TCP,
/// preamble, FCS and gap.
const SEGMENT: u64 = 1_448;
const BESIDE: u64 = 90;
const LEAST_WIRE: u64 = 84;

/// Returns the length on the wire of a message that TCP sends in full segments.
pub fn wire_size(payload: Bytes) -> Bytes {
    let wire = payload
        .0
        .saturating_add(payload.0.div_ceil(SEGMENT).max(1) * BESIDE);
    Bytes(wire.max(LEAST_WIRE))
}

impl Traffic {
    /// Returns the traffic of these machines; the messages are sorted by time.
    ///
    /// # Panics
    /// A message names a machine that is not in the list.
    pub fn new(machines: Vec<String>, mut messages: Vec<Message>) -> Self {
        let ends = messages
            .iter()
            .flat_map(|message| [message.from, message.to]);
        let known = |id: MachineId| id.index() < machines.len();
        assert!(ends.flatten().all(known), "each machine has a name");
        messages.sort_by_key(|message| message.at);
        Self { machines, messages }
    }

    /// Returns the names of the machines.
    pub fn machines(&self) -> &[String] {
        &self.machines
    }

    /// Returns all messages in the order of time.
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// Returns the time of the last message.
    pub fn end(&self) -> Nanos {
        self.messages.last().map_or(Nanos::ZERO, |last| last.at)
    }

    /// Returns the average rate of the busiest machine in its busier direction until a time, on
    /// the wire; at least one bit a second.
    pub fn busiest(&self, until: Nanos) -> Rate {
        let mut sums = vec![[0_u64; 2]; self.machines.len()];
        for message in self.messages.iter().take_while(|it| it.at <= until) {
            for (end, direction) in [
                (message.from, Direction::Sent),
                (message.to, Direction::Received),
            ] {
                if let Some(machine) = end {
                    sums[machine.index()][direction as usize] += message.wire.0;
                }
            }
        }
        let most = sums.into_iter().flatten().max().unwrap_or(0);
        // Below a millisecond there is no meaningful average.
        let time = u128::from(until.0.max(1_000_000));
        let rate = u128::from(most) * 8_000_000_000 / time;
        Rate(u64::try_from(rate).unwrap_or(u64::MAX).max(1))
    }

    /// Returns the silences that are probably gaps of the recording: at least a second, and at
    /// least ten times as long as the longest one that is not returned. At most three.
    pub fn gaps(&self) -> Vec<Silence> {
        let pairs = self.messages.windows(2);
        let mut silences: Vec<_> = pairs
            .map(|pair| Silence {
                from: pair[0].at,
                until: pair[1].at,
            })
            .collect();
        let length = |silence: &Silence| silence.until.since(silence.from);
        silences.sort_unstable_by_key(|silence| std::cmp::Reverse(length(silence)));
        silences.truncate(4);
        let long = silences.windows(2).rposition(|pair| {
            let (longer, shorter) = (length(&pair[0]), length(&pair[1]));
            longer >= LEAST_SILENCE && longer.0 >= shorter.0.saturating_mul(LONGER)
        });
        silences.truncate(long.map_or(0, |last| last + 1));
        silences.sort_unstable_by_key(|silence| silence.from);
        silences
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(crate) fn message(at: u64, from: u32, to: u32, wire: u64) -> Message {
        Message {
            at: Nanos(at),
            from: Some(MachineId::new(from)),
            to: Some(MachineId::new(to)),
            wire: Bytes(wire),
            kind: Kind::Data,
        }
    }

    fn traffic(times: &[u64]) -> Traffic {
        let messages = times.iter().map(|at| message(at * 1_000_000, 0, 1, 100));
        Traffic::new(vec!["a".into(), "b".into()], messages.collect())
    }

    #[test]
    fn a_gap_stands_out_from_all_other_silences() {
        assert_eq!(traffic(&[0, 5, 9, 700, 705]).gaps(), []);
        assert_eq!(traffic(&[0, 2_000, 4_000, 6_500]).gaps(), []);
        let gap = |from, until| Silence {
            from: Nanos::from_millis(from),
            until: Nanos::from_millis(until),
        };
        assert_eq!(traffic(&[0, 5, 9, 5_000, 5_005]).gaps(), [gap(9, 5_000)]);
        let two = traffic(&[0, 5, 5_000, 5_005, 9_000, 9_003]).gaps();
        assert_eq!(two, [gap(5, 5_000), gap(5_005, 9_000)]);
    }

    #[test]
    fn the_busiest_machine_counts_in_its_busier_direction() {
        let messages = vec![message(0, 0, 1, 500), message(1_000_000_000, 2, 1, 500)];
        let names = ["a", "b", "c"].map(String::from);
        let traffic = Traffic::new(names.into(), messages);
        assert_eq!(traffic.busiest(traffic.end()), Rate(8_000));
        assert_eq!(wire_size(Bytes(8_000)), Bytes(8_540));
        assert_eq!(wire_size(Bytes(0)), Bytes(90));
    }
}
