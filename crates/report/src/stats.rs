//! One set of samples: its percentiles, and their histogram.
//!
//! The histogram is stored as text in the form of `HdrHistogram` logs (V2, deflated, base64), so
//! that it can be merged with others and pasted into that project's own plotters. A read text comes
//! from a file and may have any content, so this module checks the header and the counts before the
//! library reads them: the library would allocate the size in the header, and negate a count that
//! has no negative.

use crate::error::HistogramError;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer as _, V2DeflateSerializer};
use serde::{Deserialize, Serialize};
use std::io::Read as _;

/// Percentiles, mean and count of one set of samples, in the unit of its series.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stats {
    /// Samples.
    pub count: u64,
    /// Their mean, rounded.
    pub mean: u64,
    /// Half of the samples are at most this.
    pub p50: u64,
    /// 90 % of the samples are at most this.
    pub p90: u64,
    /// 99 % of the samples are at most this.
    pub p99: u64,
    /// 99.9 % of the samples are at most this.
    pub p99_9: u64,
    /// Largest sample.
    pub max: u64,
    /// The whole histogram: V2 `HdrHistogram`, deflated, in base64.
    pub hdr: String,
}

/// A figure of [`Stats`], by name, for tables and comparisons.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Statistic {
    /// The median.
    P50,
    /// The 90th percentile.
    P90,
    /// The 99th percentile.
    P99,
    /// The 99.9th percentile.
    P999,
    /// The largest sample.
    Max,
    /// The mean.
    Mean,
    /// The number of samples.
    Count,
}

impl Statistic {
    /// All of them, in the order of every table.
    pub const ALL: [Self; 7] = [
        Self::P50,
        Self::P90,
        Self::P99,
        Self::P999,
        Self::Max,
        Self::Mean,
        Self::Count,
    ];

    const fn facts(self) -> Facts {
        match self {
            Self::P50 => Facts("p50", "50th", "median", 2, 20, 0.05),
            Self::P90 => Facts("p90", "90th", "90th percentile", 10, 100, 0.01),
            Self::P99 => Facts("p99", "99th", "99th percentile", 100, 1_000, 0.001),
            Self::P999 => Facts(
                "p99_9",
                "99.9th",
                "99.9th percentile",
                1_000,
                10_000,
                0.0001,
            ),
            Self::Max => Facts("max", "max", "largest", 1, 0, 0.01),
            Self::Mean => Facts("mean", "mean", "mean", 1, 30, 0.01),
            Self::Count => Facts("count", "count", "number", 0, 0, 0.01),
        }
    }

    /// Returns the name of the field in the file, and the key in a spread.
    pub const fn key(self) -> &'static str {
        self.facts().0
    }

    /// Returns the statistic of that key.
    pub fn of_key(key: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.key() == key)
    }

    /// Returns its head in a table.
    pub const fn label(self) -> &'static str {
        self.facts().1
    }

    /// Returns its name in a text.
    pub const fn words(self) -> &'static str {
        self.facts().2
    }

    /// Returns whether this number of samples supports the statistic: at least one sample must lie
    /// above a percentile. With fewer samples a percentile would be the largest sample.
    pub const fn is_carried_by(self, count: u64) -> bool {
        count >= self.facts().3
    }

    /// Returns the number of samples that a check on this statistic needs: ten above a percentile,
    /// 30 for a mean. A count and the largest sample need none.
    pub const fn wanted_samples(self) -> u64 {
        self.facts().4
    }

    /// Returns the share of disturbed samples above which a check on this statistic is too
    /// disturbed to fail: a tenth of the tail above a percentile. For the others 1 %, which is less
    /// than any difference that a check of a mean measures.
    pub const fn allowance(self) -> f64 {
        self.facts().5
    }

    /// Returns the furthest percentile that `count` samples support: at least ten lie above it.
    pub fn furthest(count: u64) -> Option<Self> {
        [Self::P999, Self::P99, Self::P90, Self::P50]
            .into_iter()
            .find(|it| count >= it.wanted_samples())
    }
}

/// Properties of a statistic: key, head in a table, name in a text, fewest samples of the figure and
/// of a check, and allowance.
struct Facts(&'static str, &'static str, &'static str, u64, u64, f64);

/// An hour in nanoseconds.
const HOUR: u64 = 3_600_000_000_000;

/// Returns a histogram for latencies in nanoseconds: three significant digits, from 1 ns to an hour
/// (270 KB). `record` grows it if needed; `saturating_record` never allocates and cuts longer
/// times.
#[expect(
    clippy::missing_panics_doc,
    reason = "the expected conditions always hold"
)]
pub fn empty_histogram() -> Histogram<u64> {
    let mut histogram =
        Histogram::new_with_bounds(1, HOUR, 3).expect("the bounds are constant and valid");
    histogram.auto(true);
    histogram
}

impl Default for Stats {
    /// Statistics of no samples.
    fn default() -> Self {
        Self::from_histogram(&empty_histogram())
    }
}

impl Stats {
    /// Returns figures and histogram of `samples`; without samples, all figures are zero.
    #[expect(
        clippy::missing_panics_doc,
        reason = "the expected conditions always hold"
    )]
    pub fn from_histogram(samples: &Histogram<u64>) -> Self {
        let mut bytes = Vec::new();
        V2DeflateSerializer::new()
            .serialize(samples, &mut bytes)
            .expect("writing to memory does not fail, and no count exceeds 2^63");
        let at = |quantile| match samples.len() {
            0 => 0,
            _ => samples.value_at_quantile(quantile).min(samples.max()),
        };
        Self {
            count: samples.len(),
            mean: samples.mean().round() as u64,
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p99_9: at(0.999),
            max: samples.max(),
            hdr: BASE64.encode(bytes),
        }
    }

    /// Returns the figures without this share of the samples, the longest ones: no samples from 1
    /// on, or if the histogram is damaged. The number of remaining samples is rounded down.
    #[must_use]
    pub fn without_longest(&self, share: f64) -> Self {
        let Ok(all) = self.histogram() else {
            return Self::default();
        };
        let kept = (1.0 - share.clamp(0.0, 1.0)) * all.len() as f64;
        let mut left = kept as u64;
        let mut rest = all.clone();
        rest.reset();
        for step in all.iter_recorded() {
            if left == 0 {
                break;
            }
            let count = step.count_at_value().min(left);
            rest.saturating_record_n(step.value_iterated_to(), count);
            left -= count;
        }
        Self::from_histogram(&rest)
    }

    /// Returns the share of samples above `value`; `None` without samples, or if the histogram is
    /// damaged.
    pub(crate) fn share_above(&self, value: u64) -> Option<f64> {
        let histogram = self.histogram().ok()?;
        let all = histogram.len();
        let above = value
            .checked_add(1)
            .map_or(0, |least| histogram.count_between(least, u64::MAX));
        (all > 0).then(|| above as f64 / all as f64)
    }

    /// Decodes the histogram in [`Stats::hdr`].
    ///
    /// # Errors
    /// The text is not base64, or its bytes are not a V2 histogram with values up to 2^62. Any text
    /// is safe: no text causes a panic, and at most the size of the largest histogram is
    /// decompressed.
    pub fn histogram(&self) -> Result<Histogram<u64>, HistogramError> {
        let bytes = BASE64.decode(&self.hdr)?;
        let plain = match cookie(&bytes)? {
            COMPRESSED_COOKIE => inflate(&bytes)?,
            _ => bytes,
        };
        check(&plain)?;
        Deserializer::new()
            .deserialize(&mut plain.as_slice())
            .map_err(|error| HistogramError::Encoding(error.to_string()))
    }

    /// Returns one figure.
    pub const fn get(&self, statistic: Statistic) -> u64 {
        match statistic {
            Statistic::P50 => self.p50,
            Statistic::P90 => self.p90,
            Statistic::P99 => self.p99,
            Statistic::P999 => self.p99_9,
            Statistic::Max => self.max,
            Statistic::Mean => self.mean,
            Statistic::Count => self.count,
        }
    }
}

/// First four bytes of a plain V2 histogram: format 3 with 1-byte words.
const COOKIE: u32 = 0x1c84_9303 | 0x10;
/// First four bytes of a deflated one.
const COMPRESSED_COOKIE: u32 = 0x1c84_9304 | 0x10;
/// Cookie, length of the counts, offset, digits, lowest, highest, ratio.
const HEADER: usize = 40;
/// Upper limit of a decompressed histogram in bytes. A histogram of five digits or fewer needs at
/// most 47 buckets of 2^17 counts with 9 bytes each, about 55 MB.
const LARGEST: u64 = 64 << 20;

fn word(bytes: &[u8], at: usize) -> Result<u32, HistogramError> {
    bytes
        .get(at..at + 4)
        .and_then(|four| four.try_into().ok())
        .map(u32::from_be_bytes)
        .ok_or_else(|| short(at + 4, bytes.len()))
}

fn long(bytes: &[u8], at: usize) -> Result<u64, HistogramError> {
    Ok(u64::from(word(bytes, at)?) << 32 | u64::from(word(bytes, at + 4)?))
}

fn short(wanted: usize, found: usize) -> HistogramError {
    HistogramError::Length {
        wanted: wanted as u64,
        found: found as u64,
    }
}

fn cookie(bytes: &[u8]) -> Result<u32, HistogramError> {
    match word(bytes, 0)? {
        known @ (COOKIE | COMPRESSED_COOKIE) => Ok(known),
        other => Err(HistogramError::Encoding(format!(
            "it begins with {other:08x}"
        ))),
    }
}

fn inflate(bytes: &[u8]) -> Result<Vec<u8>, HistogramError> {
    let wanted = word(bytes, 4)? as usize;
    let packed = &bytes[8..];
    if packed.len() != wanted {
        return Err(short(8 + wanted, bytes.len()));
    }
    let mut plain = Vec::new();
    flate2::read::ZlibDecoder::new(packed)
        .take(LARGEST)
        .read_to_end(&mut plain)
        .map_err(HistogramError::Deflate)?;
    Ok(plain)
}

/// Checks a plain histogram: its lengths agree, its bounds are possible, and its counts stay inside
/// the array and add up.
fn check(plain: &[u8]) -> Result<(), HistogramError> {
    if word(plain, 0)? != COOKIE {
        return Err(HistogramError::Encoding("compressed twice".into()));
    }
    let counts = word(plain, 4)? as usize;
    let (digits, low, high) = (word(plain, 12)?, long(plain, 16)?, long(plain, 24)?);
    if plain.len() < HEADER || plain.len() - HEADER != counts {
        return Err(short(HEADER.saturating_add(counts), plain.len()));
    }
    if digits > 5 || low == 0 || high > 1 << 62 || low > high / 2 {
        return Err(HistogramError::Bounds { low, high, digits });
    }
    let mut rest = &plain[HEADER..];
    let mut total = 0_i64;
    while !rest.is_empty() {
        let number = zigzag_varint(&mut rest).ok_or(HistogramError::Counts)?;
        if number == i64::MIN {
            return Err(HistogramError::Counts);
        }
        total = total
            .checked_add(number.max(0))
            .ok_or(HistogramError::Counts)?;
    }
    Ok(())
}

/// Reads the next number of a V2 payload: little end first, 7 bits a byte, a ninth byte whole, the
/// sign in bit 0.
fn zigzag_varint(rest: &mut &[u8]) -> Option<i64> {
    let mut value = 0_u64;
    for place in 0..9 {
        let (&byte, after) = rest.split_first()?;
        *rest = after;
        if place == 8 {
            value |= u64::from(byte) << 56;
            break;
        }
        value |= u64::from(byte & 0x7f) << (7 * place);
        if byte & 0x80 == 0 {
            break;
        }
    }
    Some((value >> 1).cast_signed() ^ -(value & 1).cast_signed())
}
