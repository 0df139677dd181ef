//! What a guaranteed guest sends in all, where it has a limit: its cap.
//!
//! All frames of the guest are charged to a bucket of the limit as they leave. Those under
//! its guarantee never wait for it; those of elastic flows leave only while it holds as much
//! as the guest's burst, which it keeps back for what is guaranteed. So the two together
//! stay within the limit: where S is kept back and the limit fills no slower than {B, S}, what
//! is left of the one covers what is left of the other at every moment. Over any time t a
//! guest sends at most `rate · t + depth` bytes of Ethernet frames, and one packet more where
//! the depth is no greater than S.
//!
//! So who sends beyond its guarantee waits while the guest's guaranteed frames take all of the
//! limit, and until what they took of the burst is there again. A sender that notices slows
//! down; then its flow conforms, and is guaranteed like them.

use super::{Guarantee, PacerConfig};
use crate::RateLimit;
use crate::queue::Count;
use tailbound_units::exact::TokenBucket;
use tailbound_units::{Bytes, Nanos, Position, WireBytes};

/// A full frame.
const FRAME: Bytes = Bytes(1514);

/// How many of them the bucket may owe where a flow becomes elastic: what flows that are so
/// already owe in passing.
const NEAR: u64 = 4;

/// From what wait on frames have waited too long for it, as in FQ-CoDel: 5 ms.
const TARGET: Nanos = Nanos::from_millis(5);

/// The cap of a guest. See the module.
#[derive(Debug)]
pub(super) struct Cap {
    limit: RateLimit,
    /// As deep as the limit beyond what is kept back, and less than empty while less of that
    /// is there.
    bucket: TokenBucket<Position>,
    /// When nothing of it is owed any more.
    opens_at: Position,
    /// How long after that frames are waited for, so that several leave at once; and for how
    /// long the bucket may owe where a flow becomes elastic.
    gather: WireBytes,
    near: WireBytes,
    sent: Count,
}

/// What a guest is held to that is guaranteed something, and what it sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CapUse {
    /// The limit.
    pub limit: RateLimit,
    /// Frames that left, and their bytes without FCS.
    pub sent: Count,
    /// The memory of what waits for the cap, or for an idle wire.
    pub held: Bytes,
}

impl Cap {
    /// A full one.
    pub(super) fn new(limit: RateLimit, guarantee: &Guarantee, config: &PacerConfig) -> Self {
        let PacerConfig { link, batch, .. } = *config;
        // What is guaranteed has room in it, whoever sets it; and a wire limits as well.
        let rate = limit.rate.max(guarantee.bandwidth).min(link);
        let kept = guarantee.burst.0 + FRAME.0;
        let depth = Bytes(limit.depth().0.saturating_sub(kept));
        let bucket = TokenBucket::on_wire(link, rate, depth.into());
        let bucket = bucket.or_else(|| TokenBucket::on_wire(link, rate, WireBytes::ZERO));
        let takes = |bytes: Bytes| WireBytes::from(link.bytes_in(rate.time_for(bytes)));
        Self {
            limit,
            bucket: bucket.unwrap_or_else(|| unreachable!("a guarantee has a rate above zero")),
            opens_at: Position::ZERO,
            gather: takes(depth).min(link.bytes_in(batch).into()),
            near: takes(Bytes(NEAR * FRAME.0)),
            sent: Count::default(),
        }
    }

    /// The limit.
    pub(super) const fn limit(&self) -> &RateLimit {
        &self.limit
    }

    /// What it is and what was sent, where elastic frames hold so much memory.
    pub(super) const fn usage(&self, held: Bytes) -> CapUse {
        CapUse {
            limit: self.limit,
            sent: self.sent,
            held,
        }
    }

    /// From what wait on frames have waited too long for it.
    pub(super) fn target(&self) -> Nanos {
        let frame_and_a_half = self.bucket.rate().time_for(Bytes(FRAME.0 * 3 / 2));
        TARGET.max(frame_and_a_half)
    }

    /// Becomes `fresh`. What it holds at `from`, which is `to` on the other wire, stays.
    pub(super) fn reconfigure(&mut self, fresh: &Self, from: Position, to: Position) {
        let mut bucket = self.bucket;
        bucket.reconfigure(&fresh.bucket, from, to);
        *self = Self {
            bucket,
            opens_at: bucket.leaves(to, WireBytes::ZERO),
            sent: self.sent,
            ..*fresh
        };
    }

    /// A frame of the guest leaves at `at`.
    #[inline(never)]
    pub(super) fn charge(&mut self, at: Position, len: usize) {
        self.opens_at = self.bucket.charge(at, WireBytes(len as u64)).leaves;
        self.sent.add(len);
    }

    /// Whether a flow may become elastic.
    pub(super) fn is_near(&self, at: Position) -> bool {
        self.opens_at <= at + self.near
    }

    /// When elastic flows are to be looked at again, which may not leave at `at`; `None`: they
    /// may.
    pub(super) fn holds_up(&self, at: Position) -> Option<Position> {
        (self.opens_at > at).then(|| self.opens_at + self.gather)
    }
}
