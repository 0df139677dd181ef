//! Loss recovery with SACK by counts (RFC 6675) and proportional rate reduction (RFC 6937), in the
//! way of ns-3 3.37. It serves comparisons with ns-3 alone, which differs from the RFCs and from
//! Linux in these ways:
//! - A segment that was retransmitted and lost again waits for a timeout: no time limit shows its loss.
//! - During a recovery with nothing else to send, the first segment without SACK is retransmitted,
//!   also beyond the highest SACK (RFC 6675, rule 3, without its condition 1.b).
//! - A partial acknowledgement sends a segment regardless of the window, unless its head was
//!   retransmitted.
//! - The first partial acknowledgement of a recovery alone restarts the timer (RFC 6582's impatient
//!   variant), where RFC 6298 restarts it with each.
//! - A retransmitted segment counts as in flight until all data before it has arrived, with a SACK
//!   too.
//! - A loss leaves half of the window, not of the flight.
//! - Reduction grants one segment more only for acknowledged retransmissions.
//! - DCTCP's window has no minimum of two segments. Below one segment it waits for a timeout.
//! - While DCTCP reduces its window, duplicate acknowledgements start no recovery.

use super::{DUPLICATES, Phase, Sender};
use crate::tcp::Segment;
use crate::tcp::congestion::Marks;
use tailbound_units::Nanos;

/// True if nothing more may be sent.
pub(super) fn is_full(sender: &Sender) -> bool {
    let most = sender.window.size.saturating_add(sender.rack.extra);
    sender.rack.board.pipe() >= most
}

/// Handles an acknowledgement.
pub(super) fn acknowledge(sender: &mut Sender, now: Nanos, ack: u64, segment: &Segment) {
    let advanced = ack > sender.una;
    let board = &mut sender.rack.board;
    let repaired = board.is_resent_up_to(ack);
    let before = board.sacked_segments();
    let gone = board.sacked_up_to(ack);
    let delivered = board.acknowledge(now, ack, segment, sender.round_trip.least());
    let sacks = board.sacked_segments() + gone > before;
    let acked = (ack - sender.una).div_ceil(crate::tcp::MSS.into()) as u32;
    sender.una = ack;
    board.settle();
    if advanced {
        sender.round_trip.backoff = 0;
    }
    if let Some(took) = delivered.round_trip {
        sender.round_trip.measure(took);
    }
    let reduces = observe(sender, segment, acked, delivered.segments);
    if sacks {
        sender.rack.board.lose_by_count();
        duplicate(sender, delivered.segments);
    } else if advanced {
        sender.duplicates = 0;
    }
    if !advanced {
        return;
    }
    advance(sender, now, acked, delivered.segments, repaired, reduces);
    if sender.una == sender.end() {
        sender.timeout_at = Nanos::MAX;
    }
}

/// Handles a mark: DCTCP reduces its window during a round trip. Returns true meanwhile.
fn observe(sender: &mut Sender, segment: &Segment, acked: u32, delivered: u32) -> bool {
    let marks = Marks {
        segments: acked,
        marked: segment.echo_mark,
        una: sender.una,
        next: sender.next,
    };
    if acked == 0 {
        return sender.rack.reducing_until.is_some();
    }
    if sender
        .rack
        .reducing_until
        .is_some_and(|until| sender.una > until)
    {
        sender.rack.reducing_until = None;
        sender.window.size = sender.window.threshold;
    }
    let part = sender.window.estimate(marks);
    if segment.echo_mark && sender.rack.reducing_until.is_none() && sender.phase == Phase::Open {
        sender.rack.reducing_until = Some(sender.highest);
        let left = (f64::from(sender.window.size) + sender.rack.fraction) * part;
        sender.window.threshold = left as u32;
        sender.rack.fraction = left.fract();
        sender.rack.begin_reduction();
        reduce(sender, delivered, false);
    }
    if sender.rack.reducing_until.is_some() {
        reduce(sender, delivered, false);
    }
    sender.rack.reducing_until.is_some()
}

/// Handles an acknowledgement with a new SACK.
fn duplicate(sender: &mut Sender, delivered: u32) {
    match sender.phase {
        Phase::Open => {
            sender.duplicates += 1;
            if sender.rack.reducing_until.is_some() {
                return;
            }
            if sender.duplicates >= DUPLICATES || sender.rack.board.is_second_lost() {
                sender.rack.board.lose_head();
                sender.window.lose(sender.window.size);
                sender.phase = Phase::Recovery(sender.highest);
                sender.rack.reducing_until = None;
                sender.rack.is_first_partial = true;
                sender.rack.begin_reduction();
                reduce(sender, delivered, false);
            }
        }
        Phase::Recovery(_) => reduce(sender, delivered, false),
        Phase::Loss(_) => {}
    }
}

fn advance(
    sender: &mut Sender,
    now: Nanos,
    acked: u32,
    delivered: u32,
    repaired: bool,
    reduces: bool,
) {
    match sender.phase {
        Phase::Recovery(until) if sender.una >= until => {
            sender.window.size = sender.window.threshold;
            sender.phase = Phase::Open;
            sender.duplicates = 0;
            sender.grow(now, acked);
        }
        Phase::Recovery(_) => {
            reduce(sender, delivered, repaired);
            if !sender.rack.board.is_head_resent() {
                sender.rack.extra = u32::MAX;
            }
            if !std::mem::take(&mut sender.rack.is_first_partial) {
                return;
            }
        }
        Phase::Loss(until) => {
            sender.grow(now, acked);
            if sender.una >= until {
                sender.phase = Phase::Open;
            }
        }
        Phase::Open if !reduces => sender.grow(now, acked),
        Phase::Open => {}
    }
    sender.arm(now);
}

/// Sets the window of a recovery.
fn reduce(sender: &mut Sender, delivered: u32, repaired: bool) {
    let flying = sender.rack.board.pipe();
    let threshold = sender.window.threshold;
    let reduction = &mut sender.rack.reduction;
    let allowed = reduction.allow_repaired(delivered, flying, threshold, repaired);
    sender.window.size = flying + allowed;
}

/// Retransmits a segment that is neither lost nor acknowledged, if a recovery has nothing else
/// to send: returns its begin and end.
pub(super) fn resend_unsacked(sender: &mut Sender, now: Nanos) -> Option<(u64, u64)> {
    if !matches!(sender.phase, Phase::Recovery(_)) || sender.is_full() {
        return None;
    }
    let forced = sender.rack.extra > 0;
    let again = sender.rack.board.resend_unsacked(now, forced)?;
    sender.rack.extra = 0;
    sender.rack.reduction.sent += 1;
    sender.resent.0 += 1;
    sender.last_sent = now;
    Some(again)
}

/// Handles a timeout. Returns the window to go on with, and the window before.
pub(super) fn lose_all(sender: &mut Sender) -> (u32, u32) {
    sender.rack.board.lose_all();
    sender.rack.extra = 0;
    sender.rack.reducing_until = None;
    sender.rack.fraction = 0.0;
    (1, sender.window.size)
}
