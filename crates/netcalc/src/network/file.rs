//! A network in a file: reading it, and saying where it is wrong.

use super::{Bounds, Flow, Network, NetworkError, Port, PortId};
use serde::Deserialize;
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::path::{Path, PathBuf};
use tailbound_units::{Bytes, Nanos, Rate};
use toml::Spanned;

/// The highest rate that is taken for meant: 1 Pbit/s.
const MAX_RATE: Rate = Rate(1_000_000_000_000_000);
/// The largest burst, buffer or frame that is taken for meant: 1 TB.
const MAX_SIZE: Bytes = Bytes(1_000_000_000_000);
/// The longest latency or deadline that is taken for meant: an hour.
const MAX_TIME: Nanos = Nanos::from_secs(3_600);
/// The longest name, in bytes.
const MAX_NAME: usize = 64;

/// What a file may say.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    frame: Spanned<Bytes>,
    #[serde(default = "yes")]
    line_limit: bool,
    #[serde(default)]
    port: Vec<PortEntry>,
    #[serde(default)]
    flow: Vec<FlowEntry>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PortEntry {
    name: Spanned<String>,
    rate: Spanned<Rate>,
    latency: Option<Spanned<Nanos>>,
    buffer: Option<Spanned<Bytes>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FlowEntry {
    name: Spanned<String>,
    path: Spanned<Vec<Spanned<String>>>,
    rate: Spanned<Rate>,
    burst: Spanned<Bytes>,
    burst_rate: Option<Spanned<Rate>>,
    #[serde(default)]
    priority: u8,
    deadline: Option<Spanned<Nanos>>,
}

fn yes() -> bool {
    true
}

/// Why a file gives no bounds.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The file cannot be read.
    #[error("{}: cannot be read: {source}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// Something in it is wrong.
    #[error("{}:{line}:{column}: {message}", .path.display())]
    Wrong {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The column in characters, from 1.
        column: usize,
        /// What is wrong, and what would be right.
        message: String,
    },
}

/// A mistake and the bytes of the file that hold it.
struct Mistake {
    place: Range<usize>,
    message: String,
}

impl Mistake {
    fn at<T>(value: &Spanned<T>, message: String) -> Self {
        Self {
            place: value.span(),
            message,
        }
    }
}

/// A network read from a file, which knows where each of its parts stands.
#[derive(Debug)]
pub struct NetworkFile {
    path: PathBuf,
    text: String,
    network: Network,
    /// Where each port's rate and each flow's path stand.
    ports: Vec<Range<usize>>,
    flows: Vec<Range<usize>>,
}

impl NetworkFile {
    /// Reads a network.
    ///
    /// # Errors
    /// The file cannot be read, or something in it is wrong.
    pub fn load(path: &Path) -> Result<Self, FileError> {
        let text = std::fs::read_to_string(path).map_err(|source| FileError::Read {
            path: path.to_owned(),
            source,
        })?;
        Self::parse(text, path)
    }

    /// Reads a network from the text of a file; its path is for messages alone.
    pub fn parse(text: String, path: &Path) -> Result<Self, FileError> {
        let document = toml::from_str::<Document>(&text).map_err(|error| Mistake {
            place: error.span().unwrap_or_default(),
            message: error.message().trim_end().to_owned(),
        });
        match document.and_then(|document| read(&document)) {
            Ok((network, ports, flows)) => Ok(Self {
                path: path.to_owned(),
                text,
                network,
                ports,
                flows,
            }),
            Err(mistake) => Err(located(path, &text, mistake)),
        }
    }

    /// The network.
    pub fn network(&self) -> &Network {
        &self.network
    }

    /// The network's bounds.
    ///
    /// # Errors
    /// What forbids them ([`NetworkError`]), and where it stands in the file.
    pub fn bounds(&self) -> Result<Bounds, FileError> {
        self.network.bounds().map_err(|error| {
            let place = match &error {
                NetworkError::Cycle { id, .. } => &self.flows[id.0],
                NetworkError::Unstable { id, .. } | NetworkError::Overflow { id, .. } => {
                    &self.ports[id.0]
                }
            };
            let mistake = Mistake {
                place: place.clone(),
                message: error.to_string(),
            };
            located(&self.path, &self.text, mistake)
        })
    }
}

fn located(path: &Path, text: &str, mistake: Mistake) -> FileError {
    let before = text.get(..mistake.place.start).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    FileError::Wrong {
        path: path.to_owned(),
        line: before.matches('\n').count() + 1,
        column: before[line_start..].chars().count() + 1,
        message: mistake.message,
    }
}

type Places = Vec<Range<usize>>;

fn read(document: &Document) -> Result<(Network, Places, Places), Mistake> {
    let frame = at_most(&document.frame, MAX_SIZE, "frame")?;
    let mut network = Network::new(frame, document.line_limit);
    let mut names = HashMap::new();
    for entry in &document.port {
        let name = name(&entry.name, "port")?;
        let id = network.add_port(Port {
            name: name.to_owned(),
            rate: rate(&entry.rate, "rate")?,
            latency: optional(entry.latency.as_ref(), MAX_TIME, "latency")?.unwrap_or_default(),
            buffer: optional(entry.buffer.as_ref(), MAX_SIZE, "buffer")?,
        });
        if names.insert(name, id).is_some() {
            return Err(taken(&entry.name, "port"));
        }
    }
    let mut flows = HashSet::new();
    for entry in &document.flow {
        let flow = flow(entry, frame, &names)?;
        if !flows.insert(flow.name.clone()) {
            return Err(taken(&entry.name, "flow"));
        }
        network.add_flow(flow);
    }
    if document.flow.is_empty() {
        let message = "the network has no flow, so nothing has a bound; add `[[flow]]`".to_owned();
        return Err(Mistake {
            place: 0..0,
            message,
        });
    }
    Ok((
        network,
        document
            .port
            .iter()
            .map(|entry| entry.rate.span())
            .collect(),
        document
            .flow
            .iter()
            .map(|entry| entry.path.span())
            .collect(),
    ))
}

fn flow(entry: &FlowEntry, frame: Bytes, ports: &HashMap<&str, PortId>) -> Result<Flow, Mistake> {
    let name = name(&entry.name, "flow")?;
    let mut path = Vec::with_capacity(entry.path.get_ref().len());
    for port in entry.path.get_ref() {
        let Some(id) = ports.get(port.get_ref().as_str()) else {
            return Err(unknown_port(port, ports));
        };
        path.push(*id);
    }
    if path.is_empty() {
        let message = format!("flow {name:?} passes no port; give `path` at least one");
        return Err(Mistake::at(&entry.path, message));
    }
    let average = rate(&entry.rate, "rate")?;
    let burst = at_most(&entry.burst, MAX_SIZE, "burst")?;
    if burst < frame {
        let message = format!(
            "flow {name:?} may not send one frame of {frame} with a burst of {burst}; use at \
             least the frame for `burst`"
        );
        return Err(Mistake::at(&entry.burst, message));
    }
    let burst_rate = match &entry.burst_rate {
        Some(fast) => Some((rate(fast, "burst_rate")?, fast)),
        None => None,
    };
    if let Some((fast, value)) = burst_rate
        && fast < average
    {
        let message = format!(
            "flow {name:?} sends bursts at {fast}, slower than its average of {average}; use at \
             least the average for `burst_rate`"
        );
        return Err(Mistake::at(value, message));
    }
    Ok(Flow {
        name: name.to_owned(),
        path,
        rate: average,
        burst,
        burst_rate: burst_rate.map(|(fast, _)| fast),
        priority: entry.priority,
        deadline: optional(entry.deadline.as_ref(), MAX_TIME, "deadline")?,
    })
}

fn name<'e>(value: &'e Spanned<String>, what: &str) -> Result<&'e str, Mistake> {
    let name = value.get_ref();
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.is_empty() || name.len() > MAX_NAME || !name.chars().all(plain) {
        let message = format!(
            "{name:?} cannot name a {what}; use 1 to {MAX_NAME} letters, digits, '-', '_' and '.'"
        );
        return Err(Mistake::at(value, message));
    }
    Ok(name)
}

fn taken(value: &Spanned<String>, what: &str) -> Mistake {
    let message = format!(
        "there is a {what} {:?} already; give each {what} a name of its own",
        value.get_ref()
    );
    Mistake::at(value, message)
}

fn unknown_port(value: &Spanned<String>, ports: &HashMap<&str, PortId>) -> Mistake {
    const SHOWN: usize = 8;
    let mut known: Vec<_> = ports.iter().map(|(name, id)| (*id, *name)).collect();
    known.sort_unstable();
    let mut names: Vec<_> = known.iter().take(SHOWN).map(|(_, name)| *name).collect();
    if known.len() > SHOWN {
        names.push("...");
    }
    let known = if names.is_empty() {
        "there is none; add `[[port]]`".to_owned()
    } else {
        format!("known here: {}", names.join(", "))
    };
    Mistake::at(
        value,
        format!("unknown port {:?}; {known}", value.get_ref()),
    )
}

fn rate(value: &Spanned<Rate>, key: &str) -> Result<Rate, Mistake> {
    if *value.get_ref() == Rate(0) {
        let message = format!("`{key}` is zero, so nothing is ever sent; use a rate above zero");
        return Err(Mistake::at(value, message));
    }
    at_most(value, MAX_RATE, key)
}

fn optional<T: Copy + Ord + std::fmt::Display>(
    value: Option<&Spanned<T>>,
    most: T,
    key: &str,
) -> Result<Option<T>, Mistake> {
    value.map(|value| at_most(value, most, key)).transpose()
}

fn at_most<T: Copy + Ord + std::fmt::Display>(
    value: &Spanned<T>,
    most: T,
    key: &str,
) -> Result<T, Mistake> {
    let read = *value.get_ref();
    if read > most {
        let message = format!("`{key}` is {read}, which cannot be meant; use at most {most}");
        return Err(Mistake::at(value, message));
    }
    Ok(read)
}

#[cfg(test)]
mod tests;
