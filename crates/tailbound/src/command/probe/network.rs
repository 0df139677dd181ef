//! Network test: calls serving nodes, at each rate in turn and all nodes in parallel, and prints
//! their verdicts.

use super::document::{self, SCHEMA};
use super::form::Form;
use super::log::Log;
use super::text;
use crate::command::output::{self, print};
use crate::exit::{Exit, Failure};
use serde::Serialize;
use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::time::SystemTime;
use tailbound_probe::network::{Calls, RATES, judge};
use tailbound_probe::run::client::{self, Answers, Load, MAX_DURATION, MAX_RATE};
use tailbound_probe::{NodeVerdict, worst};
use tailbound_report::{Paint, Stats, Table, empty_histogram, human, one_line};
use tailbound_sys::timer;
use tailbound_units::Nanos;

/// Arguments of `tailbound probe network`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "An instance is GOOD if 99.9 % of the requests at every rate are answered \
    within 10 ms after their due time. Exit code: 0 all instances are GOOD; 1 one is BAD; 2 \
    INCONCLUSIVE (an instance is unreachable, or this side was late), or the test could not \
    run."
)]
pub(super) struct Args {
    /// Instances that run `tailbound probe serve`, as HOST:PORT
    #[arg(required = true, value_name = "NODE", value_parser = node)]
    nodes: Vec<String>,
    /// The request rates per second, tested one after the other
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_values_t = RATES)]
    rates: Vec<u32>,
    /// The duration of each rate's test
    #[arg(long, value_name = "TIME", default_value = "60s")]
    duration: Nanos,
    /// The seed of all random times
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Write the response times as an `HdrHistogram` log, one interval for each instance and rate
    #[arg(long, value_name = "FILE")]
    histogram_log: Option<PathBuf>,
    /// The output format
    #[arg(long, value_enum, default_value_t)]
    output: Form,
}

/// Parses a node with its port.
pub(super) fn node(text: &str) -> Result<String, String> {
    let port = text.rsplit_once(':').map(|(_, port)| port.parse::<u16>());
    match port {
        Some(Ok(1..)) => Ok(text.to_owned()),
        _ => Err("the port is missing; a node is HOST:PORT".to_owned()),
    }
}

/// Results of a whole test.
#[derive(Debug, Serialize)]
struct Document {
    /// Host name of this side.
    node: String,
    /// Verdict of the worst node.
    verdict: NodeVerdict,
    line: String,
    kernel: String,
    start_unix_s: f64,
    seed: u64,
    duration_ns: u64,
    nodes: Vec<NodeDocument>,
}

/// Results of one node.
#[derive(Debug, Serialize)]
struct NodeDocument {
    node: String,
    verdict: NodeVerdict,
    reason: String,
    rates: Vec<RateDocument>,
}

/// Results of one node at one rate.
#[derive(Debug, Clone, Serialize)]
struct RateDocument {
    rate: u32,
    #[serde(flatten)]
    calls: Calls,
    /// Reason for which the connection ended early.
    broken: Option<String>,
    /// Times from the due time of a call to its answer.
    time_ns: Stats,
}

/// A line of `--output jsonl`.
#[derive(Debug, Serialize)]
struct RateLine<'a> {
    node: &'a str,
    #[serde(flatten)]
    rate: &'a RateDocument,
}

/// Checks that the rates and the duration are within the limits of the test.
pub(super) fn check(rates: &[u32], duration: Nanos) -> Result<(), Failure> {
    let wrong = |message: String| Err(Failure::wrong_arguments(message));
    let mut rates = rates.iter();
    if let Some(rate) = rates.find(|rate| !(1..=MAX_RATE).contains(rate)) {
        return wrong(format!(
            "{rate} calls a second: 1 to {MAX_RATE} can be made"
        ));
    }
    if duration == Nanos::ZERO || duration > MAX_DURATION {
        return wrong(format!(
            "{duration} for each rate: more than 0s, at most {MAX_DURATION} can be tested"
        ));
    }
    Ok(())
}

impl Args {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        check(&self.rates, self.duration)?;
        let (start, began) = (SystemTime::now(), timer::now());
        let path = self.histogram_log.clone();
        let mut log = path.map(|path| Log::create(path, start)).transpose()?;
        let shown = output::shows_progress();
        let mut tests: Vec<Test> = self.nodes.iter().map(|_| Test::default()).collect();
        for &rate in &self.rates {
            output::progress(shown, &format!("{rate} calls a second"));
            let from = timer::now().since(began);
            let load = Load {
                rate,
                duration: self.duration,
                seed: self.seed,
            };
            let results = client::call_all(&self.nodes, load, empty_histogram);
            let span = from..timer::now().since(began);
            for ((node, test), result) in self.nodes.iter().zip(&mut tests).zip(results) {
                match result {
                    Ok(answers) => {
                        let done = test.add(rate, answers, node, &span, log.as_mut())?;
                        if self.output == Form::Jsonl {
                            output::line("rate", SCHEMA, &RateLine { node, rate: done });
                        }
                    }
                    Err(error) => test.unreachable = Some(error),
                }
            }
        }
        output::progress(shown, "");
        let nodes: Vec<_> = self
            .nodes
            .iter()
            .zip(tests)
            .map(|(node, test)| test.finish(node))
            .collect();
        let (verdict, line) = worst(nodes.iter().map(|node| node.verdict)).map_or(
            // An argument is required.
            (NodeVerdict::Inconclusive, String::new()),
            |place| {
                let NodeDocument {
                    node,
                    verdict,
                    reason,
                    ..
                } = &nodes[place];
                (*verdict, one_line(&format!("{verdict}  {node}: {reason}")))
            },
        );
        let document = Document {
            node: document::node_name(),
            verdict,
            line,
            kernel: document::kernel(),
            start_unix_s: document::unix(start),
            seed: self.seed,
            duration_ns: self.duration.as_nanos(),
            nodes,
        };
        show(&document, self.output);
        Ok(verdict.into())
    }
}

/// Results of one node during the test.
#[derive(Debug, Default)]
struct Test {
    rates: Vec<RateDocument>,
    unreachable: Option<io::Error>,
}

impl Test {
    fn add(
        &mut self,
        rate: u32,
        answers: Answers,
        node: &str,
        span: &Range<Nanos>,
        log: Option<&mut Log>,
    ) -> Result<&RateDocument, Failure> {
        if let Some(log) = log {
            // A tag may hold neither commas nor white space.
            let plain = |c: char| {
                if c == ',' || c.is_whitespace() {
                    '_'
                } else {
                    c
                }
            };
            let name: String = node.chars().map(plain).collect();
            log.write(&format!("{name}@{rate}"), span.clone(), &answers.times)?;
        }
        self.rates.push(RateDocument {
            rate,
            calls: answers.calls,
            broken: answers.broken,
            time_ns: Stats::from_histogram(&answers.times),
        });
        Ok(&self.rates[self.rates.len() - 1])
    }

    fn finish(self, node: &str) -> NodeDocument {
        let rates: Vec<_> = self
            .rates
            .iter()
            .map(|rate| (rate.rate, rate.calls))
            .collect();
        let (mut verdict, reason) = judge(&rates);
        let mut reason = reason.to_string();
        // Late answers before the node became unreachable keep the verdict BAD.
        if let (Some(error), true) = (self.unreachable, verdict != NodeVerdict::Bad) {
            verdict = NodeVerdict::Inconclusive;
            reason = format!("cannot be reached: {error}");
        }
        NodeDocument {
            node: node.into(),
            verdict,
            reason,
            rates: self.rates,
        }
    }
}

fn show(document: &Document, form: Form) {
    match form {
        Form::Json => print(&output::json("probe-network", SCHEMA, document)),
        Form::Jsonl => output::line("probe-network", SCHEMA, document),
        Form::Line => print(&format!("{}\n", document.line)),
        Form::Text => print(&render(document, output::paint().0)),
    }
}

fn render(document: &Document, colour: bool) -> String {
    let mut out = text::painted(&document.line, document.verdict, colour);
    out += "\n\n";
    let head = [
        "node",
        "verdict",
        "rate",
        "calls",
        "late",
        "ours",
        "unanswered",
        "50th",
        "99th",
        "99.9th",
        "max",
        "note",
    ];
    let mut table = Table::new(&head, &[1, 11]);
    let time = |nanos: u64| human(nanos as f64, "ns");
    for node in &document.nodes {
        if node.rates.is_empty() {
            table.remark(&node.node, &format!("{}  {}", node.verdict, node.reason));
        }
        for rate in &node.rates {
            let (calls, times) = (&rate.calls, &rate.time_ns);
            table.row([
                node.node.clone(),
                node.verdict.to_string(),
                format!("{}/s", rate.rate),
                calls.calls.to_string(),
                calls.late.to_string(),
                calls.ours.to_string(),
                calls.unanswered.to_string(),
                time(times.p50),
                time(times.p99),
                time(times.p99_9),
                time(times.max),
                rate.broken.clone().unwrap_or_default(),
            ]);
        }
    }
    out + &table.render(Paint(colour))
}
