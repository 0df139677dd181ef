//! Lengths of messages.

use crate::distribution;
use rand::RngExt as _;
use rand_pcg::Pcg64Mcg;
use serde::Deserialize;
use tailbound_experiment::Section;
use tailbound_units::Bytes;

/// Kind of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// One-way message.
    Flow,
    /// Question, with the length of its answer.
    Question(u64),
    /// Answer to a question of that time.
    Answer,
}

/// Distribution of lengths, one of three.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sizes {
    /// One fixed length.
    pub fixed: Option<Bytes>,
    /// A Pareto distribution.
    pub pareto: Option<Pareto>,
    /// A measured distribution.
    pub empirical: Option<Empirical>,
}

/// A Pareto distribution.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pareto {
    /// Tail exponent, above 1.
    pub shape: f64,
    /// Mean.
    pub mean: Bytes,
    /// Limit, to which longer messages are cut; none.
    pub most: Option<Bytes>,
}

/// A distribution that was measured in data centres.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Empirical {
    /// Web search (Alizadeh et al., DCTCP, SIGCOMM 2010), as in pFabric's simulations.
    WebSearch,
    /// Data mining (Greenberg et al., VL2, SIGCOMM 2009), as in pFabric's simulations.
    DataMining,
    /// Values of Facebook's key-value store, its pool ETC (Atikoglu et al., SIGMETRICS 2012, 5): a
    /// generalised Pareto distribution from 15 B on, cut to 1 MB.
    KeyValue,
}

/// The values of ETC: the minimum, the scale, both in bytes, and the shape.
const ETC: [f64; 3] = [15.0, 214.476, 0.348_238];
/// The longest value that the store takes, in bytes.
const LONGEST_VALUE: f64 = 1e6;

/// Bytes in a packet of the published distributions.
const PACKET: f64 = 1_460.0;

impl Empirical {
    /// Points of the distribution: packets, and the part of messages that are at most this long;
    /// interpolated linearly.
    const fn points(self) -> &'static [(f64, f64)] {
        match self {
            Self::WebSearch => &[
                (1.0, 0.0),
                (6.0, 0.15),
                (13.0, 0.2),
                (19.0, 0.3),
                (33.0, 0.4),
                (53.0, 0.53),
                (133.0, 0.6),
                (667.0, 0.7),
                (1_333.0, 0.8),
                (3_333.0, 0.9),
                (6_667.0, 0.97),
                (20_000.0, 1.0),
            ],
            Self::DataMining => &[
                (1.0, 0.0),
                (1.0, 0.5),
                (2.0, 0.6),
                (3.0, 0.7),
                (7.0, 0.8),
                (267.0, 0.9),
                (2_107.0, 0.95),
                (66_667.0, 0.99),
                (666_667.0, 1.0),
            ],
            Self::KeyValue => &[],
        }
    }

    /// Returns the length that this part of messages does not exceed, in bytes.
    fn at(self, part: f64) -> f64 {
        if self == Self::KeyValue {
            let [least, scale, shape] = ETC;
            let beyond = scale * ((1.0 - part).powf(-shape) - 1.0) / shape;
            return (least + beyond).min(LONGEST_VALUE);
        }
        let points = self.points();
        let above = points.partition_point(|it| it.1 < part);
        let above = above.clamp(1, points.len() - 1);
        let (low, high) = (points[above - 1], points[above]);
        let along = ((part - low.1) / (high.1 - low.1)).clamp(0.0, 1.0);
        PACKET * (low.0 + along * (high.0 - low.0))
    }

    fn mean(self) -> f64 {
        if self == Self::KeyValue {
            let [least, scale, shape] = ETC;
            return least + scale / (1.0 - shape);
        }
        let pairs = self.points().windows(2);
        let means = pairs.map(|pair| (pair[1].1 - pair[0].1) * f64::midpoint(pair[0].0, pair[1].0));
        PACKET * means.sum::<f64>()
    }
}

impl Sizes {
    /// Checks the lengths at a key.
    pub(super) fn check(&self, key: &'static str, section: &mut Section<'_>) {
        let there = [
            self.fixed.is_some(),
            self.pareto.is_some(),
            self.empirical.is_some(),
        ];
        let number = there.iter().filter(|it| **it).count();
        if number != 1 {
            let message = format!("{number} sizes: write one of `fixed`, `pareto`, `empirical`");
            section.at(key, message);
        }
        let mut section = section.table(key);
        let sizes = Bytes(1)..=Bytes(10_000_000_000);
        if let Some(fixed) = self.fixed {
            section.range("fixed", fixed, sizes.clone());
        }
        if let Some(pareto) = &self.pareto {
            let mut section = section.table("pareto");
            section.range("shape", pareto.shape, 1.01..=100.0);
            section.range("mean", pareto.mean, sizes.clone());
            if let Some(most) = pareto.most {
                section.range("most", most, pareto.mean..=*sizes.end());
            }
        }
    }

    /// Draws a length.
    pub(super) fn draw(&self, random: &mut Pcg64Mcg) -> u64 {
        if let Some(pareto) = &self.pareto {
            let least = pareto.mean.0 as f64 * (pareto.shape - 1.0) / pareto.shape;
            // In (0, 1].
            let part = 1.0 - random.random::<f64>();
            let size = (least * part.powf(-1.0 / pareto.shape)) as u64;
            return size.clamp(1, pareto.most.map_or(u64::MAX, |it| it.0));
        }
        if let Some(empirical) = self.empirical {
            return empirical.at(random.random::<f64>()) as u64;
        }
        self.fixed.map_or(1, |it| it.0)
    }

    /// Mean length, in bytes, before cuts.
    pub(super) fn mean(&self) -> f64 {
        let pareto = self.pareto.map(|it| it.mean.0 as f64);
        let empirical = self.empirical.map(Empirical::mean);
        let fixed = self.fixed.map_or(0.0, |it| it.0 as f64);
        pareto.or(empirical).unwrap_or(fixed)
    }
}

/// Draws an exponential time with this mean, as between independent events.
pub(super) fn pause(random: &mut Pcg64Mcg, mean: f64) -> u64 {
    distribution::exponential(random, mean) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng as _;

    fn drawn(sizes: &Sizes) -> Vec<f64> {
        let mut random = Pcg64Mcg::seed_from_u64(1);
        let draw = |_| sizes.draw(&mut random) as f64;
        distribution::sorted((0..200_000).map(draw))
    }

    #[test]
    fn web_search_is_as_published() {
        let sizes = Sizes {
            empirical: Some(Empirical::WebSearch),
            ..Sizes::default()
        };
        // 1,140.6 packets, from the published points by hand.
        let packets = sizes.mean() / PACKET;
        assert!((packets - 1_140.605).abs() < 1e-6, "{packets}");
        let parts = (0..100_000).map(|it| (f64::from(it) + 0.5) / 100_000.0);
        let mean = parts.map(|it| Empirical::WebSearch.at(it)).sum::<f64>() / 100_000.0;
        assert!((mean / sizes.mean() - 1.0).abs() < 1e-4, "{mean}");
        let drawn = drawn(&sizes);
        let mean = drawn.iter().sum::<f64>() / drawn.len() as f64;
        assert!((mean / sizes.mean() - 1.0).abs() < 0.02, "{mean}");
        for (part, packets) in [(15.0, 6.0), (50.0, 48.4), (90.0, 3_333.0)] {
            let size = distribution::percentile(&drawn, part) / PACKET;
            assert!((size / packets - 1.0).abs() < 0.05, "{size} for {packets}");
        }
    }

    /// The median is 15 + 214.476 (2^0.348238 - 1) / 0.348238 = 183.1 B, the mean
    /// 15 + 214.476 / (1 - 0.348238) = 344.1 B.
    #[test]
    fn values_are_as_atikoglu_and_others_found() {
        let sizes = Sizes {
            empirical: Some(Empirical::KeyValue),
            ..Sizes::default()
        };
        assert!((sizes.mean() - 344.07).abs() < 0.01, "{}", sizes.mean());
        let drawn = drawn(&sizes);
        let mean = drawn.iter().sum::<f64>() / drawn.len() as f64;
        assert!((mean / sizes.mean() - 1.0).abs() < 0.02, "{mean}");
        let median = distribution::percentile(&drawn, 50.0);
        assert!((median / 183.1 - 1.0).abs() < 0.02, "{median}");
        assert!(drawn[0] >= 15.0 && drawn[199_999] <= LONGEST_VALUE);
    }

    #[test]
    fn paretos_median_follows_from_shape_and_mean() {
        let sizes = Sizes {
            pareto: Some(Pareto {
                shape: 1.05,
                mean: Bytes(100_000),
                most: Some(Bytes(1_000_000)),
            }),
            ..Sizes::default()
        };
        let drawn = drawn(&sizes);
        let least = 100_000.0 * 0.05 / 1.05;
        let median = distribution::percentile(&drawn, 50.0);
        assert!((median / (least * 2_f64.powf(1.0 / 1.05)) - 1.0).abs() < 0.02);
        assert!(drawn[0] >= least.floor() && drawn[199_999] <= 1e6);
    }
}
