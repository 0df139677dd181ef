//! A host in virtual time: guests with rings, the pacer of the data path, a wire.

use super::FRAME;
use crate::distribution::exponential;
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;
use tailbound_dataplane::pacer::{Guarantee, Pacer, PacerConfig, PacerError, WireClock, WireItem};
use tailbound_dataplane::{GuestId, PacketRecord};
use tailbound_units::{Bytes, Nanos, Position, Rate, WireBytes};

/// Start of the traffic. Guests get their guarantees at zero, with empty buckets; by this time all
/// buckets are full, for every depth and rate.
pub(super) const START: Nanos = Nanos::from_secs(10_000);

/// Frames of a guest, in the order of [`PacketRecord::came`].
pub(super) type Traffic = Box<dyn Iterator<Item = PacketRecord>>;

/// A guest's ring: frames that the pacer has not read yet.
struct Ring {
    traffic: Traffic,
    next: Option<PacketRecord>,
}

/// Guests, a pacer, and a packet loop around it.
pub(super) struct Host {
    pub(super) pacer: Pacer<PacketRecord>,
    rings: Vec<Ring>,
    now: Nanos,
    /// Delay of each iteration of the loop.
    pub(super) late: Nanos,
}

impl Host {
    /// Returns a host without guests.
    ///
    /// # Errors
    /// The rule that the configuration breaks.
    pub(super) fn new(config: &PacerConfig) -> Result<Self, PacerError> {
        Ok(Self {
            pacer: Pacer::new(config)?,
            rings: Vec::new(),
            now: START,
            late: Nanos::ZERO,
        })
    }

    /// Adds a guest and its traffic; its number is in the packets. Without a guarantee it is best
    /// effort.
    ///
    /// # Errors
    /// The rule that the guarantee breaks.
    pub(super) fn add(
        &mut self,
        guarantee: Option<&Guarantee>,
        traffic: impl Iterator<Item = PacketRecord> + 'static,
    ) -> Result<GuestId, PacerError> {
        let guest = self.rings.len() as u32;
        if guarantee.is_some() {
            self.pacer
                .set_guest(Nanos::ZERO, GuestId::first(guest), guarantee)?;
        }
        let mut traffic = traffic.map(move |packet| PacketRecord { guest, ..packet });
        let next = traffic.next();
        self.rings.push(Ring {
            traffic: Box::new(traffic),
            next,
        });
        Ok(GuestId::first(guest))
    }

    /// Runs one iteration of the packet loop: rings, then the batch, with one `now`.
    fn turn(&mut self, sink: &mut impl FnMut(WireItem<PacketRecord>)) {
        let now = self.now;
        for (guest, ring) in (0..).map(GuestId::first).zip(&mut self.rings) {
            while self.pacer.is_read(guest)
                && let Some(packet) = ring.next.take_if(|packet| packet.came <= now)
            {
                self.pacer.enqueue(now, packet);
                ring.next = ring.traffic.next();
            }
        }
        self.pacer.batch(now).for_each(sink);
    }

    /// Returns the time of the next event.
    fn wake_at(&self) -> Option<Nanos> {
        let rings = (0..).map(GuestId::first).zip(&self.rings);
        let rings = rings.filter(|(guest, _)| self.pacer.is_read(*guest));
        let comes = rings.filter_map(|(_, ring)| Some(ring.next.as_ref()?.came));
        comes.chain(self.pacer.poll_at()).min()
    }

    /// Runs until there is no event before `end`; `sink` receives each guaranteed frame, its
    /// departure, and its position on the wire.
    pub(super) fn run(
        &mut self,
        end: Nanos,
        mut sink: impl FnMut(PacketRecord, Position, Position),
    ) {
        self.run_paced(end, |paced| {
            if let WireItem::Guaranteed {
                frame,
                departure,
                at,
                ..
            } = paced
            {
                sink(frame, departure, at);
            }
        });
    }

    /// Runs like [`Self::run`]; `sink` receives all frames of the pacer.
    pub(super) fn run_paced(&mut self, end: Nanos, mut sink: impl FnMut(WireItem<PacketRecord>)) {
        while let Some(at) = self.wake_at().map(|at| at.max(self.now)) {
            if at >= end {
                break;
            }
            self.now = at + self.late;
            self.turn(&mut sink);
        }
    }

    /// Returns the wire's clock.
    pub(super) fn clock(&self) -> WireClock {
        self.pacer.clock()
    }
}

/// Messages that arrive as a Poisson process, as frames.
pub(super) struct PoissonMessages {
    frames: u64,
    mean: f64,
    came: Nanos,
    id: u64,
    random: Pcg64Mcg,
}

impl PoissonMessages {
    /// Returns messages of `frames` full frames, with a mean time between them in nanoseconds.
    pub(super) fn new(frames: u64, mean: u64, seed: u64) -> Self {
        Self {
            frames,
            mean: mean as f64,
            came: START,
            id: 0,
            random: Pcg64Mcg::seed_from_u64(seed),
        }
    }
}

impl Iterator for PoissonMessages {
    type Item = PacketRecord;

    fn next(&mut self) -> Option<PacketRecord> {
        if self.id.is_multiple_of(self.frames) {
            self.came += Nanos(exponential(&mut self.random, self.mean) as u64);
        }
        let id = self.id;
        self.id += 1;
        Some(PacketRecord {
            id,
            came: self.came,
            ..PacketRecord::on_wire(FRAME)
        })
    }
}

/// Largest excess of a guest's frames over `burst + rate · t`, in every interval: an arrival
/// curve's definition with running minima.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Excess {
    rate: i128,
    link: i128,
    burst: i128,
    sent: i128,
    least: i128,
    worst: i128,
}

impl Excess {
    /// Returns the excess over a token bucket, on a wire of `link`.
    pub(crate) fn new(link: Rate, rate: Rate, burst: Bytes) -> Self {
        Self {
            rate: rate.0.into(),
            link: link.0.into(),
            burst: i128::from(burst.0) * i128::from(link.0),
            sent: 0,
            least: i128::MAX,
            worst: i128::MIN,
        }
    }

    /// Adds a frame at `at`, not before the last one.
    pub(crate) fn add(&mut self, at: Position, wire: WireBytes) {
        let earned = i128::from(at.0) * self.rate;
        self.least = self.least.min(self.sent - earned);
        self.sent += i128::from(wire.0) * self.link;
        self.worst = self.worst.max(self.sent - earned - self.least);
    }

    /// Returns the excess in bytes, rounded up; at most zero if all frames conform.
    pub(crate) fn bytes(&self) -> i128 {
        let over = self.worst.saturating_sub(self.burst);
        over.div_euclid(self.link) + i128::from(over.rem_euclid(self.link) > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_excess_is_that_of_the_definition_over_all_pairs(
            rate in 1..20_000_u64,
            burst in 0..5000_u64,
            steps in proptest::collection::vec((0..5000_u64, 84..1538_u64), 1..60),
        ) {
            let link = 10_000;
            let (mut at, mut quick) = (0, Excess::new(Rate(link), Rate(rate), Bytes(burst)));
            let frames: Vec<_> = steps.into_iter().map(|(gap, wire)| { at += gap; (at, wire) }).collect();
            let mut worst = i128::MIN;
            for (first, (from, _)) in frames.iter().enumerate() {
                let mut sent = 0;
                for (at, wire) in &frames[first..] {
                    sent += i128::from(*wire * link);
                    worst = worst.max(sent - i128::from((at - from) * rate + burst * link));
                }
            }
            for (at, wire) in frames {
                quick.add(Position(at), WireBytes(wire));
            }
            let link = i128::from(link);
            prop_assert_eq!(quick.bytes(), (worst + link - 1).div_euclid(link));
        }
    }
}
