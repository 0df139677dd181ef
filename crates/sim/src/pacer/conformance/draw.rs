//! Random hosts with random guests.

use super::{Arrivals, Conformance};
use crate::pacer::FRAME;
use crate::pacer::host::START;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use tailbound_dataplane::PacketRecord;
use tailbound_dataplane::pacer::{Guarantee, void};
use tailbound_units::{Bytes, Nanos, Rate};

/// One network: guests by host.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct GuestsByHost {
    pub(super) hosts: Vec<Vec<Guest>>,
}

/// One guest.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Guest {
    pub(super) guarantee: Guarantee,
    /// Seed of its traffic.
    seed: u64,
}

impl Conformance {
    /// Returns network `number` of this seed.
    pub(super) fn draw(&self, seed: u64, number: u32) -> GuestsByHost {
        // Consecutive networks have different streams.
        let seed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(number);
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let hosts = random.random_range(self.hosts.0..=self.hosts.1);
        let weights: Vec<Vec<u64>> = (0..hosts)
            .map(|_| {
                let guests = random.random_range(self.guests.0..=self.guests.1);
                (0..guests).map(|_| random.random_range(1..=20)).collect()
            })
            .collect();
        let all: u64 = weights.iter().flatten().sum();
        let mut guest = |weight: u64| {
            let rate = u128::from(self.port.0) * u128::from(self.load * weight);
            let rate = (rate / u128::from(100 * all)) as u64;
            let frames = random.random_range(1..=self.burst_frames);
            let rest = random.random_range(0..FRAME);
            let fast = match random.random_range(0..3) {
                0 => self.link.0,
                // Down to its average, but above it, so that there is a burst.
                _ => random.random_range(rate + 1..=self.link.0),
            };
            Guest {
                guarantee: Guarantee::new(Rate(rate), Bytes(frames * FRAME + rest), Rate(fast)),
                seed: random.random(),
            }
        };
        let hosts = weights.into_iter();
        GuestsByHost {
            hosts: hosts
                .map(|weights| weights.into_iter().map(&mut guest).collect())
                .collect(),
        }
    }
}

impl Guest {
    /// Returns its frames: three bursts and some more.
    pub(super) fn traffic(
        &self,
        arrivals: Arrivals,
    ) -> impl Iterator<Item = PacketRecord> + 'static {
        let mut random = Pcg64Mcg::seed_from_u64(self.seed);
        let frames = 3 * self.guarantee.burst.0 / FRAME + 10;
        let mean = self.guarantee.bandwidth.time_for(Bytes(FRAME)).0;
        let mut came = START;
        let mut together = 0_u64;
        (0..frames).map(move |id| {
            let (wire, pause) = match arrivals {
                Arrivals::Together => (FRAME, 0),
                Arrivals::Random if together > 0 => {
                    together -= 1;
                    (random.random_range(void::SHORTEST.0..=FRAME), 0)
                }
                Arrivals::Random => {
                    together = random.random_range(0..12);
                    (FRAME, random.random_range(0..=together * 2 * mean))
                }
            };
            came += Nanos(pause);
            PacketRecord {
                id,
                came,
                ..PacketRecord::on_wire(wire)
            }
        })
    }
}
