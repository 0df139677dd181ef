//! The cap of a guaranteed guest: a limit of its total traffic.
//!
//! All frames of the guest are charged to a bucket of the limit as they leave. Frames under its
//! guarantee never wait for it; those of elastic flows leave only while it holds at least the
//! guest's burst, which is reserved for guaranteed frames. So both together stay within the limit:
//! if S is reserved and the limit fills at least as fast as {B, S}, the tokens of the limit cover
//! those of the guarantee at all times. In any time t a guest sends at most `rate · t + depth`
//! bytes of Ethernet frames, plus one packet if the depth is at most S.
//!
//! So a sender beyond its guarantee waits while the guest's guaranteed frames use all of the limit,
//! and until their part of the burst has filled again. A sender that notices slows down; then its
//! flow conforms, and is guaranteed like the others.

use super::{Guarantee, PacerConfig};
use crate::RateLimit;
use crate::queue::Count;
use tailbound_units::exact::TokenBucket;
use tailbound_units::{Bytes, Nanos, Position, WireBytes};

/// A full frame.
const FRAME: Bytes = Bytes(1514);

/// Number of full frames that the bucket may owe when a flow becomes elastic: present elastic flows
/// may owe as much for a short time.
const NEAR: u64 = 4;

/// Waiting time after which frames count as late, as in FQ-CoDel: 5 ms.
const TARGET: Nanos = Nanos::from_millis(5);

/// The cap of a guest. The module describes it.
#[derive(Debug)]
pub(super) struct Cap {
    limit: RateLimit,
    /// Its depth is the limit's less the reserved bytes; its level is negative while part of the
    /// reserve is missing.
    bucket: TokenBucket<Position>,
    /// Position at which no tokens are owed.
    opens_at: Position,
    /// Time after `opens_at` for which frames are gathered, so that several leave together; and the
    /// time for which the bucket may owe when a flow becomes elastic.
    gather: WireBytes,
    near: WireBytes,
    sent: Count,
}

/// Limit of a guaranteed guest, and its use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CapUse {
    /// The limit.
    pub limit: RateLimit,
    /// Frames that left, and their bytes without FCS.
    pub sent: Count,
    /// The memory of the frames that wait for the cap, or for an idle wire.
    pub held: Bytes,
}

impl Cap {
    /// Creates a full cap.
    pub(super) fn new(limit: RateLimit, guarantee: &Guarantee, config: &PacerConfig) -> Self {
        let PacerConfig { link, batch, .. } = *config;
        // The guarantee must fit within any configured limit; and the wire limits, too.
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

    /// Limit and use, with this memory of elastic frames.
    pub(super) const fn usage(&self, held: Bytes) -> CapUse {
        CapUse {
            limit: self.limit,
            sent: self.sent,
            held,
        }
    }

    /// Waiting time after which frames count as late.
    pub(super) fn target(&self) -> Nanos {
        let frame_and_a_half = self.bucket.rate().time_for(Bytes(FRAME.0 * 3 / 2));
        TARGET.max(frame_and_a_half)
    }

    /// Takes over the configuration of `fresh`, and keeps the tokens at `from`, which is `to` on
    /// the other wire.
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

    /// Charges a frame of the guest that leaves at `at`.
    #[inline(never)]
    pub(super) fn charge(&mut self, at: Position, len: usize) {
        self.opens_at = self.bucket.charge(at, WireBytes(len as u64)).leaves;
        self.sent.add(len);
    }

    /// Checks whether a flow may become elastic.
    pub(super) fn is_near(&self, at: Position) -> bool {
        self.opens_at <= at + self.near
    }

    /// Returns the position at which elastic flows that may not leave at `at` must be checked
    /// again; `None` if they may leave.
    pub(super) fn holds_up(&self, at: Position) -> Option<Position> {
        (self.opens_at > at).then(|| self.opens_at + self.gather)
    }
}
