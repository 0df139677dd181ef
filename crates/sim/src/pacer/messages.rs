//! The share of late messages by burst and bandwidth (Silo, SIGCOMM 2015, 2.3.1, table 1).

use super::FRAME;
use super::host::{Host, PoissonMessages};
use crate::scenario::Scenario;
use crate::{Threads, parallel};
use serde::Deserialize;
use tailbound_dataplane::pacer::{Guarantee, PacerConfig, PacerError};
use tailbound_experiment::{ExperimentError, Run, RunOutput, Section};
use tailbound_report::{Chart, ChartAxis, Line, LineStyle, Value, Variant};
use tailbound_units::{Bytes, Nanos, Position, Rate, WireBytes};

/// Late messages.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Messages {
    /// Rate of the wire, and Bmax.
    pub link: Rate,
    /// B: their average rate.
    pub average: Rate,
    /// M, in full frames.
    pub frames: u64,
    /// Messages per cell of the table.
    pub messages: u64,
    /// Bandwidths, in percent of B.
    pub bandwidths: Vec<u64>,
    /// The paper's table.
    pub paper: Vec<PaperRow>,
}

/// The paper's table.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PaperRow {
    /// The burst, in messages.
    pub burst: u64,
    /// Late messages in percent, per bandwidth.
    pub late: Vec<f64>,
}

impl Scenario for Messages {
    fn check(&self, section: &mut Section<'_>) {
        section.range("frames", self.frames, 1..=1_000);
        section.range("messages", self.messages, 1_000..=1_000_000_000);
        section.count("bandwidths", self.bandwidths.len(), 1..=100);
        section.range("average", self.average, Rate(1_000)..=self.link);
        let most = self.link.0.saturating_mul(100) / self.average.0.max(1);
        for percent in &self.bandwidths {
            section.range("bandwidths", *percent, 100..=most);
        }
        for (index, row) in self.paper.iter().enumerate() {
            let mut section = section.item("paper", index);
            section.range("burst", row.burst, 1..=1_000);
            let (late, bandwidths) = (row.late.len(), self.bandwidths.len());
            if late != bandwidths {
                let message =
                    format!("{late} figures for {bandwidths} bandwidths: write one for each");
                section.at("late", message);
            }
        }
    }

    fn outline(&self) -> Vec<Variant> {
        let nothing = vec![0.0; self.bandwidths.len()];
        let rows = self.paper.iter();
        rows.map(|row| self.variant(row, &nothing)).collect()
    }

    fn run(&self, run: &mut Run<'_, Threads>) -> Result<RunOutput, ExperimentError> {
        let seed = run.seed;
        let bandwidths = |row| self.bandwidths.iter().map(move |percent| (row, *percent));
        let cells: Vec<_> = self.paper.iter().flat_map(bandwidths).collect();
        let name = |_: &_| "table".to_owned();
        let late = parallel::map(run, &cells, name, |(row, percent)| {
            self.late(row.burst, *percent, seed)
        })?;
        let mut found = RunOutput::default();
        let rows = late.chunks(self.bandwidths.len());
        let mut lines = Vec::new();
        for (row, late) in self.paper.iter().zip(rows) {
            found.variants.push(self.variant(row, late));
            let name = format!("{}M", row.burst);
            let paper = format!("{name}, paper");
            lines.push(self.line(name, LineStyle::Measured, late));
            lines.push(self.line(paper, LineStyle::Paper, &row.late));
        }
        found.charts.push(Chart {
            name: "late-messages".to_owned(),
            title: "Messages that take longer than promised, by burst and bandwidth".to_owned(),
            x: ChartAxis::linear("bandwidth, of the average", "%"),
            y: ChartAxis::log("late messages", "%"),
            lines,
            note: Some("Cells without a late message are not drawn.".to_owned()),
        });
        found.condition("messages", self.messages);
        found.condition("message", Bytes(self.frames * FRAME).to_string());
        found.condition("average", self.average.to_string());
        Ok(found)
    }
}

impl Messages {
    fn line(&self, name: String, style: LineStyle, late: &[f64]) -> Line {
        let drawn = |late: f64| if late > 0.0 { late } else { f64::NAN };
        let points = self.bandwidths.iter().zip(late);
        Line::new(name, style, points.map(|(x, y)| (*x as f64, drawn(*y))))
    }

    fn variant(&self, row: &PaperRow, late: &[f64]) -> Variant {
        let mut variant = Variant {
            name: format!("{}M", row.burst),
            ..Variant::default()
        };
        let mut put = |name: String, figure: f64| {
            variant.values.insert(name, Value::new("%", figure));
        };
        let mut furthest = [0.0_f64; 2];
        for ((percent, late), paper) in self.bandwidths.iter().zip(late).zip(&row.late) {
            put(format!("late_{percent}"), *late);
            put(format!("paper_{percent}"), *paper);
            put(format!("difference_{percent}"), late - paper);
            // At the average itself there is no steady state: the longer it runs, the more messages
            // are late.
            if *percent > 100 {
                let exact = 100.0 * self.late_by_erlang(row.burst, *percent);
                put(format!("erlang_{percent}"), exact);
                furthest[0] = furthest[0].max((late - paper).abs());
                furthest[1] = furthest[1].max((late - exact).abs());
            }
        }
        put("furthest_from_paper".to_owned(), furthest[0]);
        put("furthest_from_erlang".to_owned(), furthest[1]);
        variant
    }

    /// Returns the share of late messages in percent, with a burst in messages and a bandwidth in
    /// percent of the average.
    ///
    /// Messages arrive as a Poisson process. A message is late if it takes longer than M / Bmax,
    /// Silo's guarantee within the burst (4.1), plus the same time for another message that is on
    /// the wire already.
    fn late(&self, burst: u64, percent: u64, seed: u64) -> Result<f64, PacerError> {
        let size = self.frames * FRAME;
        let mut host = Host::new(&PacerConfig {
            voids: false,
            ..PacerConfig::strict(self.link)
        })?;
        let guarantee = Guarantee {
            // Late messages wait in the pacer's queue.
            horizon: Nanos::from_secs(3),
            mark: None,
            ..Guarantee::new(
                Rate(self.average.0 * percent / 100),
                Bytes(burst * size),
                self.link,
            )
        };
        let (link, frames) = (self.link, self.frames);
        let mean = self.average.time_for(Bytes(size)).0;
        let traffic = PoissonMessages::new(frames, mean, seed);
        host.add(
            Some(&guarantee),
            traffic.take((self.messages * frames) as usize),
        )?;
        let promised = self.link.bytes_in(self.link.time_for(Bytes(2 * size)));
        let mut late = 0_u64;
        host.run(Nanos::MAX, |frame, departure, _| {
            if frame.id % frames == frames - 1 {
                let came = Position(link.bytes_in(frame.came).0);
                late += u64::from(departure + WireBytes(FRAME) > came + promised.into());
            }
        });
        Ok(100.0 * late as f64 / self.messages as f64)
    }

    /// Returns the theoretical share, as a part of one: a bucket of k messages sends one
    /// immediately if the amount sent beyond the bandwidth is at most k - 1 of them. This is the
    /// wait in a queue with Poisson arrivals and constant service (Erlang 1909); the slack of the
    /// guarantee beside the last frame may be used, too.
    fn late_by_erlang(&self, burst: u64, percent: u64) -> f64 {
        let load = 100.0 / percent as f64;
        let rate = self.average.0 as f64 / load;
        let spare = (2.0 - 1.0 / self.frames as f64) * rate / self.link.0 as f64;
        1.0 - waits_at_most(burst as f64 - 1.0 + spare, load)
    }
}

/// Returns the share of customers that wait no longer than `time` services, at a load below 1.
fn waits_at_most(time: f64, load: f64) -> f64 {
    let mut sum = 0.0;
    let mut factorial = 1.0;
    for i in 0..=time as i32 {
        factorial *= f64::from(i.max(1));
        let x = load * (f64::from(i) - time);
        sum += (-x).exp() * x.powi(i) / factorial;
    }
    (1.0 - load) * sum
}
