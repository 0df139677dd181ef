//! The load of a port: sums of concave arrival curves, stored as six affine ones.

mod exact;
mod wait;

pub(crate) use exact::Exact;
pub(crate) use wait::{Wait, Waits};

use tailbound_units::{Bursts, Bytes, Nanos, Rate};

/// The times in nanoseconds at which a sum of curves is exact. The first and the last affine curve
/// touch it at zero and in the long run.
///
/// A burst of Silo's class A ends some 100 us after it began, and the buckets of its machines'
/// pairs are empty after some 600 us at the earliest.
const TOUCHES: [u64; 4] = [32_768, 131_072, 524_288, 2_097_152];

/// The number of affine curves of a load.
pub const CURVES: usize = TOUCHES.len() + 2;

const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// An affine arrival curve in whole bits, as a token bucket has it: at most `rate · t + burst` in
/// any time `t`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AffineCurve {
    /// Rate, in bit/s.
    pub rate: u64,
    /// Burst, in bits.
    pub burst: u64,
}

impl AffineCurve {
    #[inline]
    fn plus(self, other: Self) -> Self {
        Self {
            rate: self.rate + other.rate,
            burst: self.burst + other.burst,
        }
    }

    #[inline]
    fn minus(self, other: Self) -> Self {
        Self {
            rate: self.rate - other.rate,
            burst: self.burst - other.burst,
        }
    }

    /// Returns an affine curve that is nowhere above either.
    #[inline]
    pub(crate) fn lower(self, other: Self) -> Self {
        Self {
            rate: self.rate.min(other.rate),
            burst: self.burst.min(other.burst),
        }
    }

    /// Returns the curve behind a queue in which a bit waits up to `time`: bits that were sent
    /// during that time may arrive together. Rounded up to whole bits.
    pub(crate) fn delayed(self, time: Nanos) -> Self {
        Self {
            rate: self.rate,
            burst: self.burst + bits_in(self.rate, time),
        }
    }
}

/// Returns how many bits `rate` sends in `time`, rounded up.
fn bits_in(rate: u64, time: Nanos) -> u64 {
    // A division of 128 bits costs more than all the rest of a check.
    match rate.checked_mul(time.0) {
        Some(nanobits) => nanobits.div_ceil(NANOS_PER_SECOND),
        None => {
            (u128::from(rate) * u128::from(time.0)).div_ceil(u128::from(NANOS_PER_SECOND)) as u64
        }
    }
}

/// An upper bound on what may come to a port: the least of six affine curves.
///
/// A tenant's curve is the least of three affine ones: the burst rate, the average of its senders
/// and that of its receivers. The exact sum of many such curves has two knees for each. Here each
/// curve is replaced, for each of six times, by the affine curve that is lowest at that time, and
/// these are added up for each time. Each of the six sums bounds the exact sum, and touches it at
/// its time, with one exception: tenants whose average is the lowest only between two of the times
/// have it at the later one, so that no tenant's own curve loses one of the three. Adding and
/// subtracting a tenant therefore takes twelve additions, exact in integers, in any order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Load {
    /// Rates fall and bursts grow.
    curves: [AffineCurve; CURVES],
}

impl Load {
    /// Load without traffic.
    pub const NONE: Self = Self {
        curves: [AffineCurve { rate: 0, burst: 0 }; CURVES],
    };

    /// Returns the six affine curves: rates fall, bursts grow.
    pub fn curves(&self) -> &[AffineCurve; CURVES] {
        &self.curves
    }

    /// Returns the rate in the long run, in bits a second.
    pub fn rate(&self) -> u64 {
        self.curves[CURVES - 1].rate
    }

    /// Returns whether nothing ever comes.
    pub fn is_none(&self) -> bool {
        // A machine's burst is at least a frame.
        self.curves[CURVES - 1].burst == 0
    }

    /// Returns the sum of two loads.
    #[must_use]
    #[inline]
    pub fn plus(&self, other: &Self) -> Self {
        self.with(other, AffineCurve::plus)
    }

    /// Returns what is left when `other`, a part of the sum, is subtracted.
    #[must_use]
    pub fn minus(&self, other: &Self) -> Self {
        self.with(other, AffineCurve::minus)
    }

    /// Returns a load that is nowhere below what comes within `time` more: each curve at `t + time`.
    /// Rounded up to whole bits.
    #[must_use]
    pub(crate) fn delayed(&self, time: Nanos) -> Self {
        self.with(self, |curve, _| curve.delayed(time))
    }

    /// Returns the most bits that come within `time`, rounded up.
    pub(crate) fn within(&self, time: Nanos) -> u64 {
        let each = self.curves.iter().map(|curve| curve.delayed(time).burst);
        each.min().unwrap_or_default()
    }

    /// Returns a load that is nowhere above either, for a bound on many ports together.
    #[must_use]
    #[inline]
    pub fn lower(&self, other: &Self) -> Self {
        self.with(other, AffineCurve::lower)
    }

    /// Combines the two loads' curves of each time.
    ///
    /// The code has a loop because `std::array::from_fn` is a call for each curve in builds without
    /// link-time optimisation, and decisions spend most of their time here.
    #[inline]
    fn with(&self, other: &Self, each: impl Fn(AffineCurve, AffineCurve) -> AffineCurve) -> Self {
        let mut with = *self;
        for (index, curve) in with.curves.iter_mut().enumerate() {
            *curve = each(*curve, other.curves[index]);
        }
        with
    }

    /// Returns the most bits that can be waiting at a port of `rate`, rounded up, if no more than
    /// `feed` comes over the links before it. Returns None if there is no bound.
    pub fn backlog(&self, rate: u64, feed: Option<AffineCurve>) -> Option<u64> {
        let (before, slow) = self.around(rate)?;
        let first = before.map(|before| crossing(before, slow[0], rate));
        let behind_links = feed.into_iter().flat_map(|feed| {
            let slow = slow.iter();
            slow.map(move |slow| crossing(feed, *slow, rate))
        });
        let bursts = slow.iter().map(|slow| slow.burst);
        first.into_iter().chain(behind_links).chain(bursts).min()
    }

    /// Returns whether at most `limit` bits can be waiting: [`Self::backlog`] by multiplications
    /// alone.
    #[inline]
    pub(crate) fn is_within(&self, rate: u64, limit: u64, feed: Option<AffineCurve>) -> bool {
        let Some((before, slow)) = self.around(rate) else {
            return false;
        };
        let crosses_within = |fast: AffineCurve, slow: AffineCurve| {
            if fast.rate <= rate {
                return fast.burst <= limit;
            }
            fast.burst < slow.burst
                && u128::from(slow.burst - limit) * u128::from(fast.rate - slow.rate)
                    <= u128::from(rate - slow.rate) * u128::from(slow.burst - fast.burst)
        };
        slow.iter().any(|slow| slow.burst <= limit)
            || before.is_some_and(|before| crosses_within(before, slow[0]))
            || feed.is_some_and(|feed| slow.iter().any(|slow| crosses_within(feed, *slow)))
    }

    /// Returns the affine curves that a port of `rate` keeps up with, one at least, and the one
    /// before them.
    ///
    /// The latter meets the first of them at the time of the longest queue. The curve of the links
    /// before the port meets the first of them before the others, because the first has the highest
    /// rate.
    fn around(&self, rate: u64) -> Option<(Option<AffineCurve>, &[AffineCurve])> {
        let index = self.curves.iter().position(|curve| curve.rate <= rate)?;
        let before = index.checked_sub(1).map(|before| self.curves[before]);
        Some((before, &self.curves[index..]))
    }
}

/// Returns the most bits that wait at a port of `rate` if what comes is the least of two affine
/// curves, of which the slow one is no faster than that.
fn crossing(fast: AffineCurve, slow: AffineCurve, rate: u64) -> u64 {
    if fast.rate <= rate {
        return fast.burst.min(slow.burst);
    }
    if fast.burst >= slow.burst {
        return slow.burst;
    }
    // The queue is longest where the curves cross, at
    // (S2 - S1) / (B1 - B2): S2 - (R - B2) times that.
    let drained = u128::from(rate - slow.rate) * u128::from(slow.burst - fast.burst)
        / u128::from(fast.rate - slow.rate);
    slow.burst - drained as u64
}

/// One of a tenant's affine curves, from the fastest to the slowest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Line {
    /// Burst rate of the machines.
    Peak,
    /// Token bucket {B, S} of the senders.
    Senders,
    /// The receivers' rates, with the bursts of each sender's buckets for them.
    Pairs,
}

/// The affine curves of a tenant; its curve is the least of them.
#[derive(Debug, Clone, Copy)]
struct Lines {
    /// Curve of the burst rate; None without one.
    peak: Option<AffineCurve>,
    senders: AffineCurve,
    /// Curve of the pairs; None if there are not more senders than receivers, because it is nowhere
    /// the lowest then.
    pairs: Option<AffineCurve>,
}

impl Lines {
    fn load(&self) -> Load {
        let mut load = Load::NONE;
        for (curve, line) in load.curves.iter_mut().zip(self.lowest()) {
            *curve = self.get(line);
        }
        load
    }

    /// Returns an affine curve that [`Self::lowest`] has named.
    fn get(&self, line: Line) -> AffineCurve {
        match line {
            Line::Peak => self.peak.unwrap_or(self.senders),
            Line::Senders => self.senders,
            Line::Pairs => self.pairs.unwrap_or(self.senders),
        }
    }

    /// Returns the affine curve for each time: the lowest there, and that of the senders at one of
    /// them at least, if it is the lowest at any time at all.
    fn lowest(&self) -> [Line; CURVES] {
        let is_peak = self.peak.map(|peak| touches_fast(self.senders, peak));
        let Some(pairs) = self.pairs else {
            let lower = |is_peak| if is_peak { Line::Peak } else { Line::Senders };
            return is_peak.map_or([Line::Senders; CURVES], |is_peak| is_peak.map(lower));
        };
        let over_pairs = touches_fast(pairs, self.senders);
        let peak_over_pairs = self.peak.map(|peak| touches_fast(pairs, peak));
        let is = |touches: &Option<[bool; CURVES]>, index: usize| {
            touches.as_ref().is_some_and(|touches| touches[index])
        };
        let mut lines = [Line::Pairs; CURVES];
        for (index, line) in lines.iter_mut().enumerate() {
            if is(&is_peak, index) && is(&peak_over_pairs, index) {
                *line = Line::Peak;
            } else if over_pairs[index] && !is(&is_peak, index) {
                *line = Line::Senders;
            }
        }
        if let Some(peak) = self.peak
            && lines[0] == Line::Peak
            && !lines.contains(&Line::Senders)
            && meet_before((peak, self.senders), (self.senders, pairs))
        {
            // Between the last time of the one and the first of the other.
            let after = lines.partition_point(|line| *line == Line::Peak);
            lines[after.min(LAST_TOUCH)] = Line::Senders;
        }
        lines
    }
}

/// The place of the last time that is not the long run.
const LAST_TOUCH: usize = TOUCHES.len();

/// Returns for each time whether the least of the two curves is the fast one there.
fn touches_fast(slow: AffineCurve, fast: AffineCurve) -> [bool; CURVES] {
    if fast.burst >= slow.burst {
        return [false; CURVES];
    }
    if fast.rate <= slow.rate {
        return [true; CURVES];
    }
    let mut is_fast = [false; CURVES];
    is_fast[0] = true;
    for (is_fast, touch) in is_fast[1..].iter_mut().zip(TOUCHES) {
        let gained = u128::from(fast.rate - slow.rate) * u128::from(touch);
        let ahead = u128::from(slow.burst - fast.burst) * u128::from(NANOS_PER_SECOND);
        *is_fast = gained < ahead;
    }
    is_fast
}

/// Returns whether the first two curves meet before the other two do; of both the first is the
/// faster one, and has the smaller burst.
fn meet_before(one: (AffineCurve, AffineCurve), other: (AffineCurve, AffineCurve)) -> bool {
    let ahead = |(fast, slow): (AffineCurve, AffineCurve)| {
        u128::from(slow.burst.saturating_sub(fast.burst))
    };
    let gains =
        |(fast, slow): (AffineCurve, AffineCurve)| u128::from(fast.rate.saturating_sub(slow.rate));
    ahead(one) * gains(other) < ahead(other) * gains(one)
}

/// The lower and the upper end of a range, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Interval<T> {
    pub(crate) least: T,
    pub(crate) most: T,
}

impl<T: Copy + Ord> Interval<T> {
    /// Returns the interval of one number.
    pub(crate) const fn point(value: T) -> Self {
        Self {
            least: value,
            most: value,
        }
    }

    /// Returns the smallest interval with all of both.
    pub(crate) fn hull(self, other: Self) -> Self {
        Self {
            least: self.least.min(other.least),
            most: self.most.max(other.most),
        }
    }
}

/// Limits on the traffic of each machine of a tenant, in bits: {B, S, Bmax, K, `S_in`}.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Source {
    pub(crate) bandwidth: u64,
    pub(crate) burst: u64,
    pub(crate) burst_rate: Option<u64>,
    /// The number of bursts of a sender into one subtree.
    pub(crate) bursts: Bursts,
    /// `S_in`, the burst that may come to one receiver; at least S.
    pub(crate) burst_in: Option<u64>,
    /// The longest frame.
    pub(crate) frame: u64,
    /// The longest packet that leaves a host with departure times at one time.
    pub(crate) packet: u64,
}

impl Source {
    /// Makes a source. A machine may always send one frame, even with a smaller burst.
    pub(crate) fn new(
        bandwidth: Rate,
        burst: Bytes,
        burst_rate: Option<Rate>,
        bursts: Bursts,
        frame: Bytes,
    ) -> Self {
        Self {
            bandwidth: bandwidth.0,
            burst: burst.max(frame).0 * 8,
            burst_rate: burst_rate.map(|rate| rate.0),
            bursts,
            burst_in: None,
            frame: frame.0 * 8,
            packet: frame.0 * 8,
        }
    }

    /// Returns the source with packets of this length from hosts with departure times.
    #[must_use]
    pub(crate) fn releasing(mut self, packet: Bytes) -> Self {
        self.packet = packet.0 * 8;
        self
    }

    /// Returns the source with a limit on the burst that may come to one receiver.
    #[must_use]
    pub(crate) fn limited_inwards(mut self, burst_in: Option<Bytes>) -> Self {
        self.burst_in = burst_in.map(|bytes| bytes.0 * 8);
        self
    }

    /// Returns the load of `senders` of a tenant's `vms` machines that send to the others, behind
    /// queues of `delay` in all: min(m·Bmax·t + m·frame, m·B·t + m·S,
    /// n·B·t + min(m·min(K, n)·S, n·`S_in`)) of m senders and n receivers, where K is the number of
    /// bursts into a subtree. K = 1 is Silo's curve (4.2.2). Without a limit by subtree it is m·n·S:
    /// each receiver has a burst of each sender.
    ///
    /// `parts` is the number of links over which each machine's frames are spread; the load is the
    /// sum over them. A link may get more than its share by a frame at either end.
    ///
    /// From hosts with departure times ([`Wait::late`]) it is min(m·Bmax·t + m·packet,
    /// m·B·t + m·(S + packet)): a packet of segmentation offload leaves whole, also if it is longer than the
    /// bucket. No rates of receivers are negotiated.
    pub(crate) fn across(&self, senders: u32, vms: u32, wait: impl Into<Wait>, parts: u32) -> Load {
        if senders == 0 || senders >= vms {
            return Load::NONE;
        }
        self.lines(senders, vms, wait.into(), parts).load()
    }

    /// Returns the affine curves of `senders` machines.
    fn lines(&self, senders: u32, vms: u32, wait: Wait, parts: u32) -> Lines {
        let Wait { time: delay, late } = wait;
        let (released, together) = if late {
            (self.packet, self.packet)
        } else {
            (0, self.frame)
        };
        let count = u64::from(senders);
        let line = |rate: u64, burst: u64| {
            let burst = count * (burst + self.spread(parts));
            let rate = count * rate;
            AffineCurve { rate, burst }.delayed(delay)
        };
        Lines {
            peak: self.burst_rate.map(|rate| line(rate, together)),
            senders: line(self.bandwidth, self.burst + released),
            pairs: if late {
                None
            } else {
                self.pairs(Interval::point(senders), vms, delay, parts)
            },
        }
    }

    /// Returns a load that is nowhere above [`Self::across`] for any number of senders and any
    /// wait within these intervals, affine curve by affine curve.
    pub(crate) fn at_least(
        &self,
        senders: Interval<u32>,
        vms: u32,
        waits: impl Into<Waits>,
        parts: u32,
    ) -> Load {
        let waits = waits.into();
        let of = |late| self.at_least_if(late, senders, vms, waits.times, parts);
        let Interval { least, most } = waits.late;
        if least == most {
            of(least)
        } else {
            of(least).lower(&of(most))
        }
    }

    /// Returns the same, with or without departure times.
    fn at_least_if(
        &self,
        late: bool,
        senders: Interval<u32>,
        vms: u32,
        delays: Interval<Nanos>,
        parts: u32,
    ) -> Load {
        if senders.least == 0 || senders.most >= vms {
            return Load::NONE;
        }
        let wait = |time| Wait { time, late };
        if senders.least == senders.most && delays.least == delays.most {
            return self.across(senders.least, vms, wait(delays.least), parts);
        }
        let few = self.lines(senders.least, vms, wait(delays.least), parts);
        let many = self.lines(senders.most, vms, wait(delays.most), parts);
        let (at_few, at_many) = (few.lowest(), many.lowest());
        let least = Lines {
            pairs: if late {
                None
            } else {
                self.pairs(senders, vms, delays.least, parts)
            },
            ..few
        };
        // With more senders and more delay a slower curve is the lowest one at more of the times,
        // so what holds at both ends of the intervals holds between them. At the last time alone
        // the senders' curve may be in place of the peak for some numbers of senders between.
        let is_varied = senders.least < senders.most && many.pairs.is_some();
        let mut load = Load::NONE;
        for (index, curve) in load.curves.iter_mut().enumerate() {
            let (one, other) = (at_few[index], at_many[index]);
            let (mut fastest, mut slowest) = (one.min(other), one.max(other));
            if index == LAST_TOUCH && is_varied && (one != other || one == Line::Peak) {
                (fastest, slowest) = (Line::Peak, slowest.max(Line::Senders));
            }
            *curve = least.get(slowest);
            for line in [Line::Peak, Line::Senders] {
                if (fastest..slowest).contains(&line) {
                    *curve = curve.lower(least.get(line));
                }
            }
        }
        load
    }

    /// Returns an affine curve that is nowhere above that of the pairs of any number of senders,
    /// and is theirs for one number; None where no more send than receive.
    fn pairs(
        &self,
        senders: Interval<u32>,
        vms: u32,
        delay: Nanos,
        parts: u32,
    ) -> Option<AffineCurve> {
        let receivers = u64::from(vms - senders.most);
        if receivers >= u64::from(senders.most) {
            return None;
        }
        // Least at one end of the interval: a minimum of K·m, which grows, and of m·n, which falls
        // where more send than receive.
        let fewest = senders.least.max(vms / 2 + 1);
        let bursts = [fewest, senders.most].map(|count| {
            let receivers = u64::from(vms - count);
            u64::from(count) * self.bursts.into_subtree(receivers)
        });
        let of_senders = bursts[0].min(bursts[1]) * self.burst;
        // Falls with more senders, as the rate does.
        let of_receivers = self.burst_in.map(|burst| receivers.saturating_mul(burst));
        let line = AffineCurve {
            rate: receivers * self.bandwidth,
            burst: of_receivers.map_or(of_senders, |burst| burst.min(of_senders))
                + u64::from(senders.least) * self.spread(parts),
        };
        Some(line.delayed(delay))
    }

    /// Returns how far one of the links over which a machine's frames are spread may be ahead:
    /// links whose totals differ by a frame at most may differ by two over some time.
    fn spread(&self, parts: u32) -> u64 {
        2 * u64::from(parts - 1) * self.frame
    }
}

#[cfg(test)]
mod tests;
