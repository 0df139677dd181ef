//! Networks in files, and errors with their locations.

use super::{Bounds, Flow, Network, NetworkError, Port, PortId};
use serde::Deserialize;
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::path::{Path, PathBuf};
use tailbound_document::{Document, DocumentError, Location, Mistake, unknown_word};
use tailbound_units::{Bytes, Nanos, Rate};
use toml::Spanned;

/// Highest accepted rate: 1 Pbit/s.
const MAX_RATE: Rate = Rate(1_000_000_000_000_000);
/// Largest accepted burst, buffer or frame: 1 TB.
const MAX_SIZE: Bytes = Bytes(1_000_000_000_000);
/// Longest accepted latency or deadline: an hour.
const MAX_TIME: Nanos = Nanos::from_secs(3_600);
/// The longest name, in bytes.
const MAX_NAME: usize = 64;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PortEntry {
    /// Name in paths of flows.
    name: Spanned<String>,
    /// Rate of the port.
    rate: Spanned<Rate>,
    /// Longest delay before the port sends; 0.
    latency: Option<Spanned<Nanos>>,
    /// Capacity of the queue. The result includes whether it suffices.
    buffer: Option<Spanned<Bytes>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FlowEntry {
    /// Name in results.
    name: Spanned<String>,
    /// Ports, in order.
    path: Spanned<Vec<Spanned<String>>>,
    /// Average rate.
    rate: Spanned<Rate>,
    /// Burst beyond the average rate.
    burst: Spanned<Bytes>,
    /// Rate of the burst; unlimited.
    burst_rate: Option<Spanned<Rate>>,
    /// Strict priority; 0, the highest.
    #[serde(default)]
    priority: u8,
    /// Allowed end-to-end delay. The result includes whether the bound keeps it.
    deadline: Option<Spanned<Nanos>>,
}

/// An error at a range of bytes of the file.
struct Wrong {
    span: Range<usize>,
    message: String,
}

impl Wrong {
    fn at<T>(value: &Spanned<T>, message: String) -> Self {
        Self {
            span: value.span(),
            message,
        }
    }
}

/// Ranges of bytes of each port's rate and each flow's path.
#[derive(Debug, Default)]
struct Spans {
    rates: Vec<Range<usize>>,
    paths: Vec<Range<usize>>,
}

/// A network read from a file, with the location of its parts.
#[derive(Debug)]
pub struct NetworkFile {
    path: PathBuf,
    text: String,
    network: Network,
    spans: Spans,
}

impl NetworkFile {
    /// Reads a network.
    ///
    /// # Errors
    /// The file cannot be read, or it has errors.
    pub fn load(path: &Path) -> Result<Self, DocumentError> {
        let text = std::fs::read_to_string(path).map_err(|source| DocumentError::Read {
            path: path.to_owned(),
            source,
        })?;
        Self::parse(text, path)
    }

    /// Reads a network from the text of a file; its path is for messages alone.
    ///
    /// # Errors
    /// The text has errors; all of them are returned.
    pub fn parse(text: String, path: &Path) -> Result<Self, DocumentError> {
        match Document::parse(&text).and_then(|document| read(&document)) {
            Ok((network, spans)) => Ok(Self {
                path: path.to_owned(),
                text,
                network,
                spans,
            }),
            Err(mistakes) => Err(DocumentError::Mistakes {
                path: path.to_owned(),
                mistakes,
            }),
        }
    }

    /// Returns the network.
    pub fn network(&self) -> &Network {
        &self.network
    }

    /// Returns the network's bounds.
    ///
    /// # Errors
    /// A [`NetworkError`] with its location in the file.
    pub fn bounds(&self) -> Result<Bounds, DocumentError> {
        self.network.bounds().map_err(|error| {
            let span = match &error {
                NetworkError::Cycle { id, .. } => &self.spans.paths[id.0],
                NetworkError::Unstable { id, .. } | NetworkError::Overflow { id, .. } => {
                    &self.spans.rates[id.0]
                }
            };
            DocumentError::Mistakes {
                path: self.path.clone(),
                mistakes: vec![Mistake {
                    location: Location::of(&self.text, span.start),
                    message: error.to_string(),
                }],
            }
        })
    }
}

/// The keys at the top of a file.
const KEYS: [&str; 4] = ["frame", "line_limit", "port", "flow"];

fn read(document: &Document<'_>) -> Result<(Network, Spans), Vec<Mistake>> {
    let mut reader = Reader {
        document,
        mistakes: Vec::new(),
    };
    let (mut frame, mut line_limit) = (None, None);
    let mut ports: Vec<(usize, PortEntry)> = Vec::new();
    let mut flows: Vec<(usize, FlowEntry)> = Vec::new();
    let mut keys = Vec::new();
    for entry in document.entries() {
        keys.push(entry.key().to_owned());
        let mistakes = &mut reader.mistakes;
        match entry.key() {
            "frame" => frame = entry.read(mistakes),
            "line_limit" => line_limit = entry.read(mistakes),
            "port" => ports = entry.read_list(mistakes),
            "flow" => flows = entry.read_list(mistakes),
            other => mistakes.push(entry.wrong_key(unknown_word("key", other, &KEYS))),
        }
    }
    if !keys.iter().any(|key| key == "frame") {
        reader.wrong_top("the key `frame` is missing; add `frame = ...` here");
    }
    if !keys.iter().any(|key| key == "flow") {
        reader.wrong_top("the network has no flow, so nothing has a bound; add `[[flow]]`");
    }
    // What follows would name ports as unknown that could not be read.
    if let (Some(frame), true) = (frame, reader.mistakes.is_empty()) {
        let limit = line_limit.unwrap_or(true);
        if let Some(network) = reader.network(&frame, limit, &ports, &flows) {
            let rates = ports.iter().map(|(_, port)| port.rate.span());
            let paths = flows.iter().map(|(_, flow)| flow.path.span());
            let spans = Spans {
                rates: rates.collect(),
                paths: paths.collect(),
            };
            return Ok((network, spans));
        }
    }
    reader.mistakes.sort_by_key(|mistake| mistake.location);
    Err(reader.mistakes)
}

/// Collector of the errors of a file.
struct Reader<'d, 't> {
    document: &'d Document<'t>,
    mistakes: Vec<Mistake>,
}

impl Reader<'_, '_> {
    fn wrong_top(&mut self, message: &str) {
        self.mistakes.push(self.document.mistake(0..0, message));
    }

    /// Returns the value, or records its error.
    fn accept<T>(&mut self, result: Result<T, Wrong>) -> Option<T> {
        result
            .map_err(|Wrong { span, message }| {
                self.mistakes.push(self.document.mistake(span, message));
            })
            .ok()
    }

    /// Returns the network, or records all errors of its ports and flows.
    fn network(
        &mut self,
        frame: &Spanned<Bytes>,
        line_limit: bool,
        ports: &[(usize, PortEntry)],
        flows: &[(usize, FlowEntry)],
    ) -> Option<Network> {
        let frame = self.accept(at_most(frame, MAX_SIZE, "frame"));
        let mut network = Network::new(frame.unwrap_or_default(), line_limit);
        let mut ids = HashMap::new();
        for (index, (_, entry)) in ports.iter().enumerate() {
            // A port with a mistake keeps its name, so that flows find it.
            if ids
                .insert(entry.name.get_ref().as_str(), PortId(index))
                .is_some()
            {
                let _: Option<()> = self.accept(Err(taken(&entry.name, "port")));
            }
            if let Some(port) = self.accept(port(entry)) {
                network.add_port(port);
            }
        }
        let mut names = HashSet::new();
        for (_, entry) in flows {
            if !names.insert(entry.name.get_ref()) {
                let _: Option<()> = self.accept(Err(taken(&entry.name, "flow")));
            }
            let flow = flow(entry, network.frame(), &ids);
            if let Some(flow) = self.accept(flow)
                && self.mistakes.is_empty()
            {
                network.add_flow(flow);
            }
        }
        self.mistakes.is_empty().then_some(network)
    }
}

fn port(entry: &PortEntry) -> Result<Port, Wrong> {
    Ok(Port {
        name: name(&entry.name, "port")?.to_owned(),
        rate: rate(&entry.rate, "rate")?,
        latency: optional(entry.latency.as_ref(), MAX_TIME, "latency")?.unwrap_or_default(),
        buffer: optional(entry.buffer.as_ref(), MAX_SIZE, "buffer")?,
    })
}

fn flow(entry: &FlowEntry, frame: Bytes, ports: &HashMap<&str, PortId>) -> Result<Flow, Wrong> {
    let name = name(&entry.name, "flow")?;
    let mut path = Vec::with_capacity(entry.path.get_ref().len());
    for port in entry.path.get_ref() {
        let Some(id) = ports.get(port.get_ref().as_str()) else {
            return Err(unknown_port(port, ports));
        };
        path.push(*id);
    }
    if path.is_empty() {
        let message = format!("flow {name:?} passes no port; `path` needs at least one");
        return Err(Wrong::at(&entry.path, message));
    }
    let average = rate(&entry.rate, "rate")?;
    let burst = at_most(&entry.burst, MAX_SIZE, "burst")?;
    if burst < frame {
        let message = format!(
            "flow {name:?} may not send one frame of {frame} with a burst of {burst}; use at \
             least the frame for `burst`"
        );
        return Err(Wrong::at(&entry.burst, message));
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
        return Err(Wrong::at(value, message));
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

fn name<'e>(value: &'e Spanned<String>, what: &str) -> Result<&'e str, Wrong> {
    let name = value.get_ref();
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.is_empty() || name.len() > MAX_NAME || !name.chars().all(plain) {
        let message = format!(
            "{name:?} cannot name a {what}; use 1 to {MAX_NAME} letters, digits, '-', '_' and '.'"
        );
        return Err(Wrong::at(value, message));
    }
    Ok(name)
}

fn taken(value: &Spanned<String>, what: &str) -> Wrong {
    let message = format!(
        "there is a {what} {:?} already; each {what} needs a name of its own",
        value.get_ref()
    );
    Wrong::at(value, message)
}

fn unknown_port(value: &Spanned<String>, ports: &HashMap<&str, PortId>) -> Wrong {
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
    Wrong::at(
        value,
        format!("unknown port {:?}; {known}", value.get_ref()),
    )
}

fn rate(value: &Spanned<Rate>, key: &str) -> Result<Rate, Wrong> {
    if *value.get_ref() == Rate(0) {
        let message = format!("`{key}` is zero, so nothing is ever sent; use a rate above zero");
        return Err(Wrong::at(value, message));
    }
    at_most(value, MAX_RATE, key)
}

fn optional<T: Copy + Ord + std::fmt::Display>(
    value: Option<&Spanned<T>>,
    most: T,
    key: &str,
) -> Result<Option<T>, Wrong> {
    value.map(|value| at_most(value, most, key)).transpose()
}

fn at_most<T: Copy + Ord + std::fmt::Display>(
    value: &Spanned<T>,
    most: T,
    key: &str,
) -> Result<T, Wrong> {
    let read = *value.get_ref();
    if read > most {
        let message = format!("`{key}` is {read}, which cannot be meant; use at most {most}");
        return Err(Wrong::at(value, message));
    }
    Ok(read)
}

#[cfg(test)]
mod tests;
