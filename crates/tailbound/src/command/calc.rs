//! `tailbound calc`: the bounds of a network, as text or JSON.

use super::output::{self, Output};
use crate::exit::{Exit, Failure};
use serde::Serialize;
use std::fmt::Write as _;
use std::path::PathBuf;
use tailbound_netcalc::{
    Bounds, ClassBounds, Flow, FlowBounds, Network, NetworkFile, Overflow, Port, PortBounds, Ratio,
};
use tailbound_report::{NOTHING, Paint, Table};
use tailbound_units::rounded_up::{size, time};

/// Version of the JSON document's format.
const SCHEMA: u32 = 1;

/// Arguments of `tailbound calc`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The bounds hold as long as each flow keeps to its rate and burst and no \
    frame is lost. They are rounded up. Exit code: 0 all buffers and deadlines of the file \
    hold; 1 a buffer or deadline may not hold; 2 there are no bounds: the file is invalid, a \
    port is overloaded, or the flows form a cycle."
)]
pub(crate) struct Args {
    /// The ports and flows (TOML)
    #[arg(value_name = "NETWORK")]
    network: PathBuf,
    /// The output format
    #[arg(long, value_enum, default_value_t)]
    output: Output,
}

/// The document of `--output json`.
#[derive(Debug, Serialize)]
struct Document {
    network: String,
    frame_bytes: u64,
    line_limit: bool,
    holds: bool,
    ports: Vec<PortResult>,
    flows: Vec<FlowResult>,
}

#[derive(Debug, Serialize)]
struct PortResult {
    name: String,
    rate_bit_s: u64,
    latency_ns: u64,
    load_bit_s: u64,
    backlog_bytes: u64,
    buffer_bytes: Option<u64>,
    holds: bool,
    priorities: Vec<PriorityResult>,
}

#[derive(Debug, Serialize)]
struct PriorityResult {
    priority: u8,
    load_bit_s: u64,
    delay_ns: u64,
    backlog_bytes: u64,
}

#[derive(Debug, Serialize)]
struct FlowResult {
    name: String,
    priority: u8,
    path: Vec<String>,
    delay_ns: u64,
    backlog_bytes: u64,
    total: Analysis,
    separated: Analysis,
    concatenated: Analysis,
    deadline_ns: Option<u64>,
    holds: bool,
}

#[derive(Debug, Serialize)]
struct Analysis {
    delay_ns: u64,
    backlog_bytes: u64,
}

impl Args {
    pub(crate) fn run(self) -> Result<Exit, Failure> {
        let file = NetworkFile::load(&self.network)?;
        let bounds = file.bounds()?;
        let name = self.network.display().to_string();
        let document = Document::new(name.clone(), file.network(), &bounds)
            .map_err(|error| Failure::new(format!("{name}: {error}")))?;
        output::print(&match self.output {
            Output::Json => output::json("calc", SCHEMA, &document),
            Output::Text => document.text(output::paint()),
        });
        Ok(Exit::holds(document.holds))
    }
}

impl Document {
    fn new(name: String, network: &Network, bounds: &Bounds) -> Result<Self, Overflow> {
        let ports = network.ports().iter().zip(&bounds.ports);
        let ports: Vec<_> = ports
            .map(|(port, bounds)| PortResult::new(port, bounds))
            .collect::<Result<_, _>>()?;
        let flows = network.flows().iter().zip(&bounds.flows);
        let flows: Vec<_> = flows
            .map(|(flow, bounds)| FlowResult::new(network, flow, bounds))
            .collect::<Result<_, _>>()?;
        Ok(Self {
            network: name,
            frame_bytes: network.frame().0,
            line_limit: network.has_line_limit(),
            holds: ports.iter().all(|port| port.holds) && flows.iter().all(|flow| flow.holds),
            ports,
            flows,
        })
    }

    fn text(&self, paint: Paint) -> String {
        let mut text = self.verdict(paint);
        text.push('\n');
        let head = ["port", "priority", "load", "delay", "backlog", "buffer"];
        let mut table = Table::new(&head, &[]);
        for port in &self.ports {
            port.rows(&mut table);
        }
        text += &table.render(paint);
        text.push('\n');
        let head = [
            "flow",
            "priority",
            "ports",
            "delay TFA",
            "SFA",
            "PMOO",
            "bound",
            "deadline",
            "backlog",
        ];
        let mut table = Table::new(&head, &[]);
        for flow in &self.flows {
            table.row([
                flow.name.clone(),
                flow.priority.to_string(),
                flow.path.len().to_string(),
                time(flow.total.delay_ns),
                time(flow.separated.delay_ns),
                time(flow.concatenated.delay_ns),
                time(flow.delay_ns),
                flow.deadline_ns.map_or(NOTHING.into(), time),
                size(flow.backlog_bytes),
            ]);
        }
        text + &table.render(paint)
    }

    /// Returns the confirmation that all hold, or all violations with their amounts.
    fn verdict(&self, paint: Paint) -> String {
        let mut text = String::new();
        for port in self.ports.iter().filter(|port| !port.holds) {
            let buffer = port.buffer_bytes.unwrap_or_default();
            let _ = writeln!(
                text,
                "{}  port {} may hold {}, its buffer {}: {} more",
                paint.bad("OVER"),
                port.name,
                size(port.backlog_bytes),
                size(buffer),
                size(port.backlog_bytes - buffer),
            );
        }
        for flow in self.flows.iter().filter(|flow| !flow.holds) {
            let deadline = flow.deadline_ns.unwrap_or_default();
            let _ = writeln!(
                text,
                "{}  flow {} may take {}, its deadline is {}: {} more",
                paint.bad("LATE"),
                flow.name,
                time(flow.delay_ns),
                time(deadline),
                time(flow.delay_ns - deadline),
            );
        }
        if text.is_empty() {
            let buffers = self.ports.iter().filter(|port| port.buffer_bytes.is_some());
            let deadlines = self.flows.iter().filter(|flow| flow.deadline_ns.is_some());
            let _ = writeln!(
                text,
                "{}  {}, {}",
                paint.good("HOLDS"),
                count_text(buffers.count(), "buffer"),
                count_text(deadlines.count(), "deadline"),
            );
        }
        text
    }
}

/// Returns the number of compared values in the file, in words.
fn count_text(count: usize, noun: &str) -> String {
    match count {
        0 => format!("no {noun} is given"),
        1 => format!("the one {noun} that is given"),
        _ => format!("all {count} {noun}s that are given"),
    }
}

impl PortResult {
    fn new(port: &Port, bounds: &PortBounds) -> Result<Self, Overflow> {
        let backlog = bounds.backlog.to_bytes()?;
        let priorities: Vec<_> = bounds
            .classes
            .iter()
            .map(PriorityResult::new)
            .collect::<Result<_, _>>()?;
        Ok(Self {
            name: port.name.clone(),
            rate_bit_s: port.rate.0,
            latency_ns: port.latency.0,
            load_bit_s: priorities.iter().map(|priority| priority.load_bit_s).sum(),
            backlog_bytes: backlog.0,
            buffer_bytes: port.buffer.map(|buffer| buffer.0),
            holds: port.buffer.is_none_or(|buffer| backlog <= buffer),
            priorities,
        })
    }

    /// Adds one row for each priority, and one for the whole port if there are several.
    fn rows(&self, table: &mut Table) {
        let buffer = self.buffer_bytes.map_or(NOTHING.into(), size);
        let several = self.priorities.len() > 1;
        for priority in &self.priorities {
            table.row([
                self.name.clone(),
                priority.priority.to_string(),
                self.share(priority.load_bit_s),
                time(priority.delay_ns),
                size(priority.backlog_bytes),
                if several {
                    String::new()
                } else {
                    buffer.clone()
                },
            ]);
        }
        if several || self.priorities.is_empty() {
            table.row([
                self.name.clone(),
                if several {
                    "all".into()
                } else {
                    NOTHING.into()
                },
                self.share(self.load_bit_s),
                NOTHING.into(),
                size(self.backlog_bytes),
                buffer,
            ]);
        }
    }

    /// Returns a load in tenths of a percent of the link, rounded up.
    fn share(&self, load: u64) -> String {
        let tenths = (u128::from(load) * 1_000).div_ceil(u128::from(self.rate_bit_s));
        format!("{}.{}%", tenths / 10, tenths % 10)
    }
}

impl PriorityResult {
    fn new(bounds: &ClassBounds) -> Result<Self, Overflow> {
        Ok(Self {
            priority: bounds.priority,
            load_bit_s: u64::try_from(bounds.load.ceil()).map_err(|_| Overflow)?,
            delay_ns: bounds.delay.to_nanos()?.0,
            backlog_bytes: bounds.backlog.to_bytes()?.0,
        })
    }
}

impl FlowResult {
    fn new(network: &Network, flow: &Flow, bounds: &FlowBounds) -> Result<Self, Overflow> {
        let delay = bounds.delay().to_nanos()?;
        let path = flow
            .path
            .iter()
            .map(|port| network.port(*port).name.clone());
        Ok(Self {
            name: flow.name.clone(),
            priority: flow.priority,
            path: path.collect(),
            delay_ns: delay.0,
            backlog_bytes: bounds.backlog().to_bytes()?.0,
            total: Analysis::new(bounds.total_delay, bounds.total_backlog)?,
            separated: Analysis::new(bounds.separated_delay, bounds.separated_backlog)?,
            concatenated: Analysis::new(bounds.concatenated_delay, bounds.concatenated_backlog)?,
            deadline_ns: flow.deadline.map(|deadline| deadline.0),
            holds: flow.deadline.is_none_or(|deadline| delay <= deadline),
        })
    }
}

impl Analysis {
    fn new(delay: Ratio, backlog: Ratio) -> Result<Self, Overflow> {
        Ok(Self {
            delay_ns: delay.to_nanos()?.0,
            backlog_bytes: backlog.to_bytes()?.0,
        })
    }
}
