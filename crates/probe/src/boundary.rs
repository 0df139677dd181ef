//! Sequential test by alpha spending: the numbers of late sleeps at which a node is GOOD before the
//! end of a run.
//!
//! Let M be the sleeps of the whole run, K how many of them are late, and suppose
//! that each set of K places is as likely as any other (the late ones are
//! *exchangeable*). The run may stop at the first n at which at most j were late
//! and `n >= good_at[j]`, for any j up to the low mark L. It must do so with a
//! probability of at most alpha when K > L.
//!
//! - More late sleeps never stop a run sooner: take one late place away at random
//!   from K + 1, and the count of what is left is nowhere higher. So K = L + 1 is
//!   the worst case, and a bound for it holds for every K > L.
//! - With K = L + 1 the count after n sleeps is hypergeometric, and its path a Markov chain.
//!   Between `good_at[j - 1]` and `good_at[j]` nothing stops, so one step for each look computes
//!   the distribution of the paths that have not stopped. These paths counted j or more; the run
//!   stops at `good_at[j]` if it counted exactly j.
//! - Look j has a share of the part of alpha that the looks before it left, and takes place at the
//!   first n at which the probability of stopping there is at most this share. The sum over all
//!   looks is at most alpha, for any number of looks.
//!
//! Nothing is assumed about how many late sleeps nodes have: the bound holds for
//! each node, not on average over nodes.

/// The share of alpha that the first look gets. Most good nodes have no late sleep
/// at all, so nearly all is spent where nearly all stop: with L = 13 and alpha =
/// 0.05 after 19.9 % of M.
const FIRST: f64 = 0.9;
/// Share of the remaining alpha for each later look except the last.
const LATER: f64 = 0.5;

/// The number of sleeps after which j late ones are few enough, for each j up to
/// `low`; `samples` where the run cannot stop early with that many.
///
/// `low < samples` and `0 < alpha < 1`.
pub(crate) fn good_at(samples: u64, low: u64, alpha: f64) -> Vec<u64> {
    let mut paths = Paths::new(samples, low + 1);
    // Sums of a few hundred rounded terms are far closer than this.
    let mut left = alpha * (1.0 - 1e-9);
    let mut moments = Vec::with_capacity(low as usize + 1);
    for count in 0..=low {
        let share = match count {
            last if last == low => 1.0,
            0 => FIRST,
            _ => LATER,
        };
        let Some(at) = paths.first_below(count, left * share) else {
            break;
        };
        paths.advance(at);
        left -= paths.stop(count);
        moments.push(at);
    }
    moments.resize(low as usize + 1, samples);
    moments
}

/// Distribution of the late sleeps counted so far, over the paths that no look has stopped.
struct Paths {
    /// Sleeps in the whole run.
    samples: u64,
    /// Late ones among them.
    late: u64,
    /// Sleeps so far.
    at: u64,
    /// Probability by the count of late ones so far.
    likely: Vec<f64>,
}

impl Paths {
    fn new(samples: u64, late: u64) -> Self {
        let mut likely = vec![0.0; late as usize + 1];
        likely[0] = 1.0;
        Self {
            samples,
            late,
            at: 0,
            likely,
        }
    }

    /// Returns the first moment from now at which exactly `count` were late with a probability of
    /// at most `bound`, provided that no path has counted fewer.
    fn first_below(&self, count: u64, bound: f64) -> Option<u64> {
        let likely_at = |at| self.likely[count as usize] * self.none(self.late - count, at);
        let (mut low, mut high) = (self.at, self.samples - (self.late - count));
        if high < low || likely_at(high) > bound {
            return None;
        }
        while low < high {
            let middle = low.midpoint(high);
            if likely_at(middle) <= bound {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        Some(low)
    }

    /// Returns the probability that none of the `missing` late sleeps lies between now and `at`.
    fn none(&self, missing: u64, at: u64) -> f64 {
        let (before, after) = (self.samples - self.at, self.samples - at);
        (0..missing)
            .map(|taken| (after - taken) as f64 / (before - taken) as f64)
            .product()
    }

    fn advance(&mut self, at: u64) {
        let step = at - self.at;
        let after = (self.samples - at) as f64;
        let mut likely = vec![0.0; self.likely.len()];
        for (count, old) in self
            .likely
            .iter()
            .enumerate()
            .filter(|(_, old)| **old > 0.0)
        {
            let missing = self.late - count as u64;
            // Hypergeometric: of the missing ones, `found` lie in this step.
            let mut chance = self.none(missing, at);
            for found in 0..=missing.min(step) {
                likely[count + found as usize] += old * chance;
                let (rest, found) = ((missing - found) as f64, found as f64);
                chance *= rest * (step as f64 - found) / ((found + 1.0) * (after - rest + 1.0));
            }
        }
        self.likely = likely;
        self.at = at;
    }

    /// Removes the paths that counted `count`, which stop here. Returns their probability.
    fn stop(&mut self, count: u64) -> f64 {
        std::mem::take(&mut self.likely[count as usize])
    }
}

#[cfg(test)]
mod tests;
