//! Loss recovery with SACK: RACK-TLP (RFC 8985) detects losses, proportional rate reduction (RFC
//! 6937) paces the retransmissions.
//!
//! Not modelled: undoing of needless retransmissions (F-RTO, Eifel), and a probe's own round trip.

use super::{Phase, Recovery, Sender, UNUSED};
use crate::tcp::Segment;
use crate::tcp::congestion::Marks;
use crate::tcp::hystart::RoundTripOf;
use crate::tcp::scoreboard::Scoreboard;
use tailbound_units::Nanos;

/// Probe timeout before the first measured round trip (RFC 8985, 7.2).
const FIRST_PROBE: Nanos = Nanos::from_secs(1);

#[derive(Debug, Clone)]
pub(super) struct Rack {
    pub(super) board: Scoreboard,
    pub(super) reduction: Reduction,
    /// Segments that are sent regardless of the window: a probe.
    pub(super) extra: u32,
    /// DCTCP's window is reduced until all data up to this position is acknowledged.
    pub(super) reducing_until: Option<u64>,
    /// True before the first partial acknowledgement of a recovery ([`Recovery::Ns3`]).
    pub(super) is_first_partial: bool,
    /// Part of a segment by which DCTCP's window is larger ([`Recovery::Ns3`]).
    pub(super) fraction: f64,
    /// The tail loss probe: its end, and whether it was a retransmission.
    probe: Option<(u64, bool)>,
    probe_at: Nanos,
    /// Time at which late segments count as lost.
    look_at: Nanos,
}

/// State of proportional rate reduction during a recovery, in segments.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Reduction {
    pub(super) delivered: u32,
    pub(super) sent: u32,
    /// Segments in flight at the start of the recovery.
    pub(super) flight: u32,
}

impl Reduction {
    /// Returns the number of segments that may be sent after `delivered` more were delivered (RFC
    /// 6937, 3.1), with `flying` in flight; `safe` is an acknowledgement of new data without a
    /// loss.
    fn allow(&mut self, delivered: u32, flying: u32, threshold: u32, safe: bool) -> u32 {
        self.delivered += delivered;
        let allowed = if flying > threshold {
            let due = u64::from(self.delivered) * u64::from(threshold);
            let due = due.div_ceil(u64::from(self.flight.max(1)));
            (due as u32).saturating_sub(self.sent)
        } else {
            let left = self.delivered.saturating_sub(self.sent).max(delivered);
            (left + u32::from(safe)).min(threshold - flying)
        };
        // The first segment is retransmitted immediately.
        allowed.max(u32::from(self.sent == 0))
    }

    /// Same as [`Self::allow`] as in ns-3: a segment more than were delivered is allowed only if a
    /// retransmission was acknowledged.
    pub(super) fn allow_repaired(
        &mut self,
        delivered: u32,
        flying: u32,
        threshold: u32,
        repaired: bool,
    ) -> u32 {
        if repaired || flying > threshold {
            return self.allow(delivered, flying, threshold, repaired);
        }
        self.delivered += delivered;
        let allowed = delivered.min(threshold - flying);
        allowed.max(u32::from(self.sent == 0))
    }
}

impl Rack {
    pub(super) fn new() -> Self {
        Self {
            board: Scoreboard::default(),
            reduction: Reduction::default(),
            extra: 0,
            reducing_until: None,
            is_first_partial: false,
            fraction: 0.0,
            probe: None,
            probe_at: Nanos::MAX,
            look_at: Nanos::MAX,
        }
    }

    pub(super) fn poll_at(&self) -> Nanos {
        self.probe_at.min(self.look_at)
    }

    pub(super) fn is_full(&self, window: u32) -> bool {
        self.board.flying() >= window.saturating_add(self.extra)
    }

    /// Starts a reduction of the window.
    pub(super) fn begin_reduction(&mut self) {
        self.reduction = Reduction {
            flight: self.board.outstanding(),
            ..Reduction::default()
        };
    }
}

impl Sender {
    /// Retransmits a lost segment, if the window allows: returns its begin and end.
    pub(super) fn resend_lost(&mut self, now: Nanos) -> Option<(u64, u64)> {
        if !self.rack.board.has_lost() || self.is_full() {
            return None;
        }
        let again = self.rack.board.resend(now)?;
        self.rack.extra = 0;
        self.rack.reduction.sent += 1;
        self.resent.0 += 1;
        self.last_sent = now;
        // As in Linux, which restarts the timer for the first segment alone.
        let is_head = self.config.recovery == Recovery::Rack && again.0 == self.una;
        if is_head || self.timeout_at == Nanos::MAX {
            self.arm(now);
        }
        Some(again)
    }

    /// Records a new segment.
    pub(super) fn keep(&mut self, now: Nanos, from: u64, to: u64) {
        self.rack.board.send(now, from, (to - from) as u16);
        self.rack.extra = 0;
        self.rack.reduction.sent += 1;
        self.schedule_probe(now);
    }

    pub(super) fn acknowledge_selectively(&mut self, now: Nanos, ack: u64, segment: &Segment) {
        let board = &mut self.rack.board;
        let limited = board.flying().saturating_add(UNUSED) >= self.window.size;
        let advanced = ack > self.una;
        let is_stream = ack > 1;
        let delivered = board.acknowledge(now, ack, segment, self.round_trip.least());
        self.una = ack;
        if advanced {
            self.round_trip.backoff = 0;
        }
        if let Some(took) = delivered.round_trip {
            self.round_trip.measure(took);
        }
        if let Some(delay) = delivered.latest {
            let of = RoundTripOf {
                delay,
                una: self.una,
                next: self.next,
                smoothed: self.round_trip.smoothed().unwrap_or(delay),
            };
            self.window.measure(now, &of);
        }
        self.settle_probe(segment, ack);
        observe(self, segment, delivered.segments);
        let found = self.look(now);
        match self.phase {
            Phase::Recovery(until) if self.una >= until => {
                self.window.size = self.window.threshold;
                self.phase = Phase::Open;
                self.rack.board.recovered();
            }
            Phase::Recovery(_) => self.reduce(delivered.segments, advanced && !found),
            Phase::Loss(until) => {
                if advanced {
                    self.grow(now, delivered.segments);
                }
                if self.una >= until {
                    self.phase = Phase::Open;
                    self.rack.board.recovered();
                }
            }
            Phase::Open if self.rack.reducing_until.is_some() => {
                self.reduce(delivered.segments, advanced && !found);
            }
            // An acknowledgement with SACK alone grows no window (RFC 5681, 2 and 3.1).
            Phase::Open if limited && is_stream && advanced => self.grow(now, delivered.segments),
            Phase::Open => {}
        }
        if self.rack.board.outstanding() == 0 {
            if advanced {
                self.timeout_at = Nanos::MAX;
            }
            (self.rack.probe_at, self.rack.look_at) = (Nanos::MAX, Nanos::MAX);
        } else if delivered.segments > 0 {
            // The timer restarts for data that is acknowledged by position (RFC 6298, 5.3).
            if advanced {
                self.arm(now);
            }
            self.schedule_probe(now);
        }
    }

    /// Detects losses; a first loss begins a recovery. Returns true if there was a new one.
    fn look(&mut self, now: Nanos) -> bool {
        let smoothed = self.round_trip.smoothed().unwrap_or_default();
        let least = self.round_trip.least();
        let recovers = self.phase != Phase::Open;
        let (found, again) = self.rack.board.detect(now, smoothed, least, recovers);
        self.rack.look_at = again;
        if found && !recovers {
            self.phase = Phase::Recovery(self.highest);
            // A loss during a reduction after a mark reduces the window no further.
            if self.rack.reducing_until.take().is_none() {
                let flight = self.rack.board.outstanding();
                self.window.lose(flight.min(self.window.size));
                self.rack.begin_reduction();
            }
            (self.rack.probe, self.rack.probe_at) = (None, Nanos::MAX);
        }
        found
    }

    /// Sets the window of a recovery.
    fn reduce(&mut self, delivered: u32, safe: bool) {
        let flying = self.rack.board.flying();
        let threshold = self.window.threshold;
        let reduction = &mut self.rack.reduction;
        self.window.size = flying + reduction.allow(delivered, flying, threshold, safe);
    }

    /// Sets the time of a tail loss probe (RFC 8985, 7.2).
    fn schedule_probe(&mut self, now: Nanos) {
        let board = &self.rack.board;
        let outstanding = board.outstanding();
        if self.phase != Phase::Open
            || board.has_sacked()
            || self.rack.probe.is_some()
            || !self.config.probes
            || outstanding == 0
        {
            self.rack.probe_at = Nanos::MAX;
            return;
        }
        let smoothed = self.round_trip.smoothed();
        let mut wait = smoothed.map_or(FIRST_PROBE, |it| Nanos(2 * it.0));
        if outstanding == 1 {
            wait = wait.saturating_add(self.config.delayed_ack);
        }
        self.rack.probe_at = now.saturating_add(wait).min(self.timeout_at);
    }

    /// Evaluates the answer to a probe (RFC 8985, 7.4.2).
    fn settle_probe(&mut self, segment: &Segment, ack: u64) {
        let Some((end, resent)) = self.rack.probe else {
            return;
        };
        if ack < end {
            return;
        }
        if !resent || segment.sack.duplicate {
            self.rack.probe = None;
        } else if ack > end {
            // The probe has repaired a loss, which counts.
            self.rack.probe = None;
            self.window.lose(self.window.size);
            self.window.size = self.window.threshold;
        }
    }

    /// Handles the timers: detects losses, or sends a probe.
    pub(super) fn poll_rack(&mut self, now: Nanos) {
        if self.rack.look_at <= now {
            if self.look(now) && matches!(self.phase, Phase::Recovery(_)) {
                self.reduce(0, false);
            }
            return;
        }
        self.rack.probe_at = Nanos::MAX;
        self.rack.extra = 1;
        let has_new = self.next < self.end() && self.next < self.edge;
        let end = if has_new { self.next + 1 } else { self.next };
        if !has_new {
            self.rack.board.probe();
        }
        self.rack.probe = Some((end, !has_new));
        self.arm(now);
    }

    /// Handles a timeout. Returns the window to go on with, and the number of segments in flight.
    pub(super) fn lose_all(&mut self, now: Nanos) -> (u32, u32) {
        debug_assert_eq!(self.config.recovery, Recovery::Rack);
        let flight = self.rack.board.outstanding().min(self.window.size);
        self.rack.board.time_out(now);
        (self.rack.probe, self.rack.probe_at) = (None, Nanos::MAX);
        self.rack.look_at = Nanos::MAX;
        self.rack.reducing_until = None;
        (self.rack.board.flying() + 1, flight)
    }
}

/// Handles the marks of an acknowledgement: the first one starts a reduction of the window, which
/// takes a round trip, as in Linux (`tcp_enter_cwr`).
fn observe(sender: &mut Sender, segment: &Segment, segments: u32) {
    if sender
        .rack
        .reducing_until
        .is_some_and(|until| sender.una > until)
    {
        sender.rack.reducing_until = None;
        if sender.phase == Phase::Open {
            sender.window.size = sender.window.threshold;
        }
    }
    let part = sender.window.estimate(Marks {
        segments,
        marked: segment.echo_mark,
        una: sender.una,
        next: sender.next,
    });
    if segment.echo_mark && sender.rack.reducing_until.is_none() && sender.phase == Phase::Open {
        sender.window.cut(part);
        sender.rack.reducing_until = Some(sender.next);
        sender.rack.reduction = Reduction {
            flight: sender.window.size,
            ..Reduction::default()
        };
    }
}

#[cfg(test)]
mod tests {
    use super::Reduction;

    /// RFC 6937, 4: one loss of 20, a threshold of 10: one is sent for two that arrive.
    #[test]
    fn a_window_shrinks_in_proportion() {
        let mut reduction = Reduction {
            flight: 20,
            ..Reduction::default()
        };
        let (mut flying, mut sent) = (16, Vec::new());
        for _ in 0..16 {
            flying -= 1;
            let allowed = reduction.allow(1, flying, 10, false);
            reduction.sent += allowed;
            flying += allowed;
            sent.push(allowed);
        }
        assert_eq!(sent[..10], [1, 0, 1, 0, 1, 0, 1, 0, 1, 0]);
        assert_eq!(flying, 10);
    }

    /// After many losses as many segments are sent as arrive, and one more while no new loss is
    /// found.
    #[test]
    fn after_many_losses_it_starts_slowly_again() {
        let mut reduction = Reduction {
            flight: 20,
            ..Reduction::default()
        };
        assert_eq!(reduction.allow(1, 2, 10, false), 1);
        reduction.sent += 1;
        assert_eq!(reduction.allow(1, 2, 10, true), 2);
        reduction.sent += 2;
        assert_eq!(
            reduction.allow(3, 9, 10, true),
            1,
            "never beyond the threshold"
        );
    }
}
