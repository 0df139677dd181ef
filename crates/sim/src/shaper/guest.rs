//! A guest: a ring of 256 frames, read as far as its limit accepts them.

use std::collections::VecDeque;
use tailbound_dataplane::{PacketRecord, Shaper, ShaperConfig};
use tailbound_units::Nanos;

/// Frames that a ring holds: Xen's netfront and virtio's default.
const RING: usize = 256;

/// A guest before its limit.
#[derive(Debug)]
pub(super) struct Guest {
    /// The limit; `None` for an unlimited guest.
    pub(super) shaper: Option<Shaper<PacketRecord>>,
    ring: VecDeque<PacketRecord>,
    /// Frames that found the ring full.
    pub(super) lost: u64,
}

impl Guest {
    /// Creates a guest with an empty ring.
    ///
    /// # Panics
    /// The limit breaks a rule.
    pub(super) fn new(limit: Option<&ShaperConfig>) -> Self {
        let shaper = limit.map(|limit| Shaper::new(limit).expect("a sound limit"));
        Self {
            shaper,
            ring: VecDeque::new(),
            lost: 0,
        }
    }

    /// True if the ring has room.
    pub(super) fn has_room(&self) -> bool {
        self.ring.len() < RING
    }

    /// Puts a frame into the ring, or drops it if the ring is full.
    pub(super) fn send(&mut self, frame: PacketRecord) {
        if self.has_room() {
            self.ring.push_back(frame);
        } else {
            self.lost += 1;
        }
    }

    /// Sends all frames that may leave at `now`, in order.
    pub(super) fn leave(&mut self, now: Nanos, mut sink: impl FnMut(PacketRecord)) {
        let Some(shaper) = &mut self.shaper else {
            self.ring.drain(..).for_each(sink);
            return;
        };
        loop {
            while shaper.is_read()
                && let Some(frame) = self.ring.pop_front()
            {
                shaper.push(now, frame);
            }
            let mut left = false;
            while let Some(queued) = shaper.pull(now) {
                left = true;
                sink(queued.frame);
            }
            if !left || self.ring.is_empty() {
                return;
            }
        }
    }

    /// Returns the time at which the next frame may leave, unless another arrives before.
    pub(super) fn poll_at(&self) -> Option<Nanos> {
        self.shaper.as_ref()?.poll_at()
    }
}

/// Returns the figure that `percent` of the sorted figures do not exceed.
pub(super) fn percentile(sorted: &[f64], percent: f64) -> f64 {
    let last = sorted.len().saturating_sub(1);
    let place = (percent / 100.0 * last as f64).round() as usize;
    sorted.get(place).copied().unwrap_or(f64::NAN)
}
