//! Congestion windows: growth and reduction, independent of loss detection.
//!
//! Windows are counted in segments, as in Linux. [`Window`] is slow start and common state; the
//! algorithms differ in congestion avoidance and in the reduction after a loss or a mark.

use super::TcpConfig;
use super::hystart::{HyStart, RoundTripOf};
use tailbound_units::Nanos;

/// Algorithm of a congestion window after slow start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Congestion {
    /// One segment a round trip; half after a loss (RFC 5681).
    #[default]
    NewReno,
    /// RFC 9438.
    Cubic,
    /// RFC 8257: as `NewReno`, but in proportion to the marks.
    Dctcp,
    /// pFabric's (Alizadeh et al., SIGCOMM 2013, 4.2): the initial window throughout, which should
    /// equal the capacity of the network. Losses do not change it, except that the fifth timeout in
    /// a row leaves one segment until data is acknowledged. The timeout is always the least
    /// timeout.
    PFabric,
}

/// Criterion for the end of slow start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
pub enum SlowStart {
    /// Growing round trips, before losses; as in Linux.
    #[serde(rename = "hystart")]
    HyStart,
    /// The first loss.
    #[serde(rename = "until-loss")]
    UntilLoss,
}

/// A congestion window.
#[derive(Debug, Clone)]
pub(super) struct Window {
    /// Size of the window, in segments.
    pub(super) size: u32,
    /// Size at which slow start ends.
    pub(super) threshold: u32,
    /// Acknowledged segments that count towards the next segment of the window.
    credit: u32,
    algorithm: Algorithm,
}

#[derive(Debug, Clone)]
enum Algorithm {
    NewReno,
    Cubic(Cubic),
    Dctcp(Dctcp),
    PFabric(PFabric),
}

/// Timeouts in a row after which a pFabric flow falls back to one segment.
const IN_VAIN: u32 = 5;

#[derive(Debug, Clone, Copy)]
struct PFabric {
    window: u32,
    /// Timeouts in a row.
    timeouts: u32,
}

/// CUBIC's constants (RFC 9438, 4.1 and 4.6).
const C: f64 = 0.4;
const CUBIC_BETA: f64 = 0.7;
/// Growth a round trip of a Reno window in congestion avoidance that has the same share.
const AS_RENO: f64 = 3.0 * (1.0 - CUBIC_BETA) / (1.0 + CUBIC_BETA);

#[derive(Debug, Clone, Default)]
struct Cubic {
    /// Size of the window, with its fraction.
    size: f64,
    /// Start of the growth, and the curve from there on.
    epoch: Option<Nanos>,
    plateau: f64,
    /// Time at which the curve reaches its plateau, in seconds of the epoch.
    k: f64,
    /// Window of Reno, and the size from which it grows by a whole segment again: the window before
    /// the last loss; 0 before the first.
    reno: f64,
    prior: f64,
    /// Ends slow start before losses do.
    hystart: Option<HyStart>,
}

/// Smallest growth of a window, as a part of the acknowledged segments, until the first loss since
/// the start or the last reset (`bictcp_update`).
const UNKNOWN: f64 = 1.0 / 20.0;
/// Round trips are ignored for this time after the window has begun to follow its curve, because
/// they include its own queue (`cubictcp_acked`).
const DISTRUST: Nanos = Nanos::from_secs(1);

/// The weight of a new round trip in DCTCP's estimate (RFC 8257, 4.2).
const GAIN: f64 = 1.0 / 16.0;

#[derive(Debug, Clone)]
struct Dctcp {
    /// Estimated part of segments that is marked.
    alpha: f64,
    acked: u64,
    marked: u64,
    /// The estimate is updated beyond this position.
    observed_until: u64,
}

/// Marks of an acknowledgement: segments, whether they were marked, the acknowledged position and
/// the end of the sent data.
#[derive(Debug, Clone, Copy)]
pub(super) struct Marks {
    pub(super) segments: u32,
    pub(super) marked: bool,
    pub(super) una: u64,
    pub(super) next: u64,
}

impl Window {
    pub(super) fn new(config: &TcpConfig) -> Self {
        let algorithm = match config.congestion {
            Congestion::NewReno => Algorithm::NewReno,
            Congestion::Cubic => Algorithm::Cubic(Cubic {
                hystart: (config.slow_start == SlowStart::HyStart).then(HyStart::new),
                ..Cubic::default()
            }),
            Congestion::Dctcp => Algorithm::Dctcp(Dctcp {
                alpha: 1.0,
                acked: 0,
                marked: 0,
                observed_until: 0,
            }),
            Congestion::PFabric => Algorithm::PFabric(PFabric {
                window: config.initial_window,
                timeouts: 0,
            }),
        };
        Self {
            size: config.initial_window,
            threshold: u32::MAX,
            credit: 0,
            algorithm,
        }
    }

    /// Grows the window by `segments` acknowledged segments. Call it only if the window has limited
    /// the sender.
    pub(super) fn grow(&mut self, now: Nanos, segments: u32, smoothed: Nanos) {
        if let Algorithm::PFabric(fixed) = &mut self.algorithm {
            fixed.timeouts = 0;
            self.size = fixed.window;
            return;
        }
        let slow = segments.min(self.threshold.saturating_sub(self.size));
        self.size += slow;
        let rest = segments - slow;
        if rest == 0 {
            return;
        }
        if let Algorithm::Cubic(cubic) = &mut self.algorithm {
            self.size = cubic.grow(now, self.size, rest, smoothed);
            return;
        }
        self.credit += rest;
        if self.credit >= self.size {
            self.credit = (self.credit - self.size).min(rest - 1);
            self.size += 1;
        }
    }

    /// Handles a loss with `flight` segments in flight: sets the threshold. The recovery sets the
    /// window.
    pub(super) fn lose(&mut self, flight: u32) {
        let left = match &mut self.algorithm {
            Algorithm::Cubic(cubic) => {
                cubic.lose(flight);
                (f64::from(flight) * CUBIC_BETA) as u32
            }
            Algorithm::PFabric(fixed) => fixed.window,
            _ => flight / 2,
        };
        self.threshold = left.max(2);
    }

    /// Restarts the window after a timeout, at this size. CUBIC resets its state (RFC 9438, 4.8,
    /// and `bictcp_reset`).
    pub(super) fn begin(&mut self, size: u32) {
        self.size = size;
        self.credit = 0;
        match &mut self.algorithm {
            Algorithm::Cubic(cubic) => {
                *cubic = Cubic {
                    hystart: cubic.hystart.map(|_| HyStart::new()),
                    ..Cubic::default()
                };
            }
            Algorithm::PFabric(fixed) => {
                fixed.timeouts += 1;
                self.size = if fixed.timeouts < IN_VAIN {
                    fixed.window
                } else {
                    1
                };
            }
            Algorithm::NewReno | Algorithm::Dctcp(_) => {}
        }
    }

    /// Handles the round trip of an acknowledgement: slow start may end.
    pub(super) fn measure(&mut self, now: Nanos, of: &RoundTripOf) {
        let Algorithm::Cubic(cubic) = &mut self.algorithm else {
            return;
        };
        let trusts = cubic.epoch.is_none_or(|epoch| now.since(epoch) >= DISTRUST);
        if let Some(hystart) = &mut cubic.hystart
            && trusts
        {
            hystart.measure(of.delay);
            if self.size < self.threshold && hystart.ends(now, self.size, of) {
                self.threshold = self.size;
            }
        }
    }

    /// Updates DCTCP's estimate by the marks of an acknowledgement. Returns the part of the window
    /// that remains after a mark; 1 for other algorithms.
    pub(super) fn estimate(&mut self, marks: Marks) -> f64 {
        let Algorithm::Dctcp(dctcp) = &mut self.algorithm else {
            return 1.0;
        };
        dctcp.observe(marks);
        1.0 - dctcp.alpha / 2.0
    }

    /// Sets the threshold of a reduction after a mark, at this part of the window (RFC 8257, 3.3).
    /// The reduction sets the window.
    pub(super) fn cut(&mut self, part: f64) {
        self.threshold = ((f64::from(self.size) * part) as u32).max(2);
        self.credit = 0;
    }

    /// Handles an idle time of the sender: CUBIC's curve is shifted by it (RFC 9438, 5.8).
    pub(super) fn idle(&mut self, time: Nanos) {
        if let Algorithm::Cubic(Cubic {
            epoch: Some(epoch), ..
        }) = &mut self.algorithm
        {
            *epoch = epoch.saturating_add(time);
        }
    }

    /// True if the sender requests marks (ECN) instead of losses.
    pub(super) const fn takes_marks(&self) -> bool {
        matches!(self.algorithm, Algorithm::Dctcp(_))
    }

    /// DCTCP's estimate of the marked part.
    #[cfg(test)]
    pub(super) fn alpha(&self) -> Option<f64> {
        match &self.algorithm {
            Algorithm::Dctcp(dctcp) => Some(dctcp.alpha),
            _ => None,
        }
    }
}

impl Cubic {
    /// Grows the window in congestion avoidance (RFC 9438, 4.2 to 4.5).
    fn grow(&mut self, now: Nanos, size: u32, segments: u32, smoothed: Nanos) -> u32 {
        let epoch = *self.epoch.get_or_insert_with(|| {
            self.size = f64::from(size);
            self.reno = self.size;
            self.plateau = self.plateau.max(self.size);
            self.k = ((self.plateau - self.size) / C).cbrt();
            now
        });
        let since = now.since(epoch).as_secs_f64();
        let curve = |at: f64| C * (at - self.k).powi(3) + self.plateau;
        let gain = if self.reno < self.prior { AS_RENO } else { 1.0 };
        self.reno += gain * f64::from(segments) / self.size;
        let least = if self.prior == 0.0 {
            self.size + UNKNOWN * f64::from(segments)
        } else {
            self.size
        };
        if curve(since) < self.reno {
            self.size = self.size.max(self.reno);
        } else {
            let target = curve(since + smoothed.as_secs_f64());
            let target = target.clamp(self.size, 1.5 * self.size);
            self.size += (target - self.size) / self.size * f64::from(segments);
        }
        self.size = self.size.max(least);
        self.size as u32
    }

    /// Makes the previous window the plateau; a part of it, if it was smaller than the one before
    /// (RFC 9438, 4.7).
    fn lose(&mut self, flight: u32) {
        let size = f64::from(flight);
        self.prior = size;
        self.plateau = if size < self.plateau {
            size * (1.0 + CUBIC_BETA) / 2.0
        } else {
            size
        };
        self.epoch = None;
    }
}

impl Dctcp {
    /// Updates the estimate with the marked part, once a round trip (RFC 8257, 3.3).
    fn observe(&mut self, marks: Marks) {
        self.acked += u64::from(marks.segments);
        self.marked += u64::from(marks.segments) * u64::from(marks.marked);
        if marks.una > self.observed_until && self.acked > 0 {
            let part = self.marked as f64 / self.acked as f64;
            self.alpha += GAIN * (part - self.alpha);
            (self.acked, self.marked) = (0, 0);
            self.observed_until = marks.next;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUND_TRIP: Nanos = Nanos::from_millis(100);

    fn window(congestion: Congestion, initial_window: u32) -> Window {
        Window::new(&TcpConfig {
            initial_window,
            congestion,
            ..TcpConfig::RACK
        })
    }

    /// RFC 9438, figure 1: `W(t) = C (t - K)^3 + W_max`. K follows from the window after the loss.
    #[test]
    fn cubics_window_follows_its_curve() {
        let mut window = window(Congestion::Cubic, 1_000);
        window.lose(1_000);
        window.size = window.threshold;
        assert_eq!(window.size, 700);
        let k = (1_000.0 * (1.0 - CUBIC_BETA) / C).cbrt();
        let (start, mut now) = (Nanos::from_secs(5), Nanos::from_secs(5));
        let mut furthest: f64 = 0.0;
        while now.since(start) < Nanos::from_secs(15) {
            // Acknowledgements of a round trip, evenly spaced.
            let size = window.size;
            for _ in 0..size {
                now += Nanos(ROUND_TRIP.0 / u64::from(size));
                window.grow(now, 1, ROUND_TRIP);
            }
            let at = now.since(start).as_secs_f64();
            let curve = C * (at - k).powi(3) + 1_000.0;
            furthest = furthest.max((f64::from(window.size) / curve - 1.0).abs());
        }
        assert!(furthest < 0.02, "off by {furthest}");
        assert!(window.size > 1_000, "beyond the plateau after K = {k} s");
    }

    #[test]
    fn cubic_is_no_slower_than_reno_on_a_short_round_trip() {
        let short = Nanos::from_micros(200);
        let mut window = window(Congestion::Cubic, 40);
        window.lose(40);
        window.size = window.threshold;
        let mut now = Nanos::from_secs(1);
        for _ in 0..23 {
            for _ in 0..window.size {
                window.grow(now, 1, short);
            }
            now += short;
        }
        // 0.53 of a segment a round trip from 28 on until 40.
        assert!((39..=41).contains(&window.size), "{}", window.size);
    }

    #[test]
    fn a_smaller_loss_than_the_one_before_lowers_the_plateau() {
        let mut cubic = Cubic::default();
        cubic.lose(100);
        cubic.lose(80);
        assert!((cubic.plateau - 68.0).abs() < 1e-9);
    }

    /// RFC 9438, 4.8: after a timeout the curve begins at the window with which slow start ends,
    /// and the window grows by a twentieth a round trip at least.
    #[test]
    fn a_timeout_has_cubic_forget_the_plateau() {
        let mut window = window(Congestion::Cubic, 1_000);
        window.lose(1_000);
        window.begin(1);
        // Slow start up to 700, then 701 acknowledgements: 35.05 segments more.
        (0..699).for_each(|_| window.grow(Nanos::from_secs(1), 1, ROUND_TRIP));
        assert_eq!(window.size, 700);
        let short = Nanos::from_millis(50);
        (0..701).for_each(|_| window.grow(Nanos::from_secs(1) + short, 1, short));
        assert_eq!(window.size, 735);
    }

    /// The end of slow start is the window of that moment, and the curve goes on from there.
    #[test]
    fn hystart_makes_the_window_the_threshold() {
        let mut window = window(Congestion::Cubic, 64);
        let measure = |window: &mut Window, now: u64, delay: u64| {
            let of = RoundTripOf {
                delay: Nanos::from_millis(delay),
                una: now,
                next: now + 1_000,
                smoothed: Nanos::from_millis(20),
            };
            window.measure(Nanos::from_millis(5 * now), &of);
        };
        measure(&mut window, 1, 20);
        assert_eq!(window.threshold, u32::MAX);
        (2..12).for_each(|now| measure(&mut window, now, 30));
        assert_eq!(
            window.threshold,
            u32::MAX,
            "the round trip began with 20 ms"
        );
        (1_002..1_011).for_each(|now| measure(&mut window, now, 30));
        assert_eq!((window.threshold, window.size), (64, 64));
    }

    #[test]
    fn pfabrics_window_is_one_segment_after_five_timeouts_alone() {
        let mut window = window(Congestion::PFabric, 12);
        window.grow(Nanos::ZERO, 3, ROUND_TRIP);
        window.lose(12);
        assert_eq!((window.size, window.threshold), (12, 12));
        let mut sizes = Vec::new();
        for _ in 0..6 {
            window.begin(1);
            sizes.push(window.size);
        }
        assert_eq!(sizes, [12, 12, 12, 12, 1, 1]);
        window.grow(Nanos::ZERO, 1, ROUND_TRIP);
        assert_eq!(window.size, 12);
        window.begin(1);
        assert_eq!(window.size, 12);
    }

    #[test]
    fn reno_halves_and_grows_by_one_a_round_trip() {
        let mut window = window(Congestion::NewReno, 40);
        window.lose(40);
        assert_eq!(window.threshold, 20);
        window.size = window.threshold;
        for expected in [21, 22, 23] {
            let size = window.size;
            (0..size).for_each(|_| window.grow(Nanos::ZERO, 1, ROUND_TRIP));
            assert_eq!(window.size, expected);
        }
    }

    /// Every fourth segment is marked: alpha comes to a quarter, and a marked window loses half of
    /// that, once.
    #[test]
    fn dctcps_alpha_follows_the_marks_and_cuts_the_window() {
        let mut window = window(Congestion::Dctcp, 100);
        let marks = |una: u64, marked: bool| Marks {
            segments: 1,
            marked,
            una,
            next: una + 16,
        };
        let alpha = |window: &Window| window.alpha().unwrap();
        window.estimate(marks(1, true));
        assert!(
            (alpha(&window) - 1.0).abs() < 1e-9,
            "all of the first were marked"
        );
        // A round trip of 17: 5 are marked, then 4 three times.
        for una in 2..=18 {
            window.estimate(marks(una, false));
        }
        assert!((alpha(&window) - 15.0 / 16.0).abs() < 1e-9);
        for una in 19..4_000 {
            window.estimate(marks(una, una % 4 == 0));
        }
        let quarter = alpha(&window);
        assert!((quarter - 0.25).abs() < 0.02, "{quarter}");
        window.size = 80;
        let part = window.estimate(marks(5_000, true));
        assert!((part - (1.0 - alpha(&window) / 2.0)).abs() < 1e-9);
        window.cut(part);
        assert_eq!((window.size, window.threshold), (80, (80.0 * part) as u32));
        window.size = 2;
        window.cut(0.5);
        assert_eq!(window.threshold, 2, "the least window");
    }
}
