//! Acknowledgements that two segments share.
//!
//! A receiver acknowledges at least every second full segment (RFC 9293, 3.8.6.3). The segments of a
//! burst are acknowledged at the same time, when they are in the ring, so the peer needs no
//! acknowledgement of each. A shared one echoes the timestamp of the first segment (RFC 7323, 4.3).
//! It never waits for a segment of the next burst.

use super::frame::{Plain, TcpFrame};
use super::seq::Seq;
use super::table::Place;
use super::{AnswerFields, Snoop, answer};

/// An acknowledgement that is not made yet.
#[derive(Debug, Clone, Copy)]
pub(super) struct Delayed {
    place: Place,
    /// The end of the bytes that it acknowledges.
    ack: Seq,
    /// The timestamp that it echoes.
    echo: u32,
    /// True if it is for one segment, so that the next one may share it.
    may_share: bool,
}

impl Delayed {
    /// The place of its connection.
    #[inline]
    pub(super) const fn place(&self) -> Place {
        self.place
    }
}

/// Delays the acknowledgement of a segment that was taken and ends at `ack`, or shares that of the
/// segment before it; `echo` is its timestamp.
#[inline(always)]
#[expect(clippy::inline_always, reason = "for each segment that is kept")]
pub(super) fn delay<F: TcpFrame>(
    snoop: &mut Snoop<F>,
    place: Place,
    plain: &Plain,
    ack: Seq,
    echo: u32,
) {
    // A packet before segmentation is several segments.
    let is_one = plain.payload == u32::from(plain.largest);
    match snoop.to_peer.delayed_mut() {
        Some(first) if is_one && first.may_share && first.place == place => {
            first.ack = ack;
            first.may_share = false;
        }
        before => {
            if before.is_some() {
                make_delayed(snoop);
            }
            snoop.to_peer.delay(Delayed {
                place,
                ack,
                echo,
                may_share: is_one,
            });
        }
    }
}

/// Makes the acknowledgement that is delayed, if there is one: before all frames to the peer that
/// come later, and before its connection changes in another way.
#[inline]
pub(super) fn make_delayed<F: TcpFrame>(snoop: &mut Snoop<F>) {
    if let Some(Delayed {
        place, ack, echo, ..
    }) = snoop.to_peer.take_delayed()
    {
        make(snoop, place, ack, echo);
    }
}

#[inline(never)]
fn make<F: TcpFrame>(snoop: &mut Snoop<F>, place: Place, ack: Seq, echo: u32) {
    let held = snoop.flows.peek(place).chain.held();
    // The memory of a segment is up to twice its bytes.
    let room = (snoop.room(held) / 2) as u32;
    let (id, hash, flow) = snoop.flows.entry(place);
    let fields = AnswerFields {
        ack,
        window: flow.windows.window.min(room),
        echo,
    };
    let answer = answer(&snoop.maker, id, hash, flow, fields);
    snoop.to_peer.push(answer);
}
