//! Parser for the output of `tailbound probe`, `tailbound probe network` and `tailbound select`.

use crate::select::Candidate;
use crate::{NodeVerdict, worst};
use serde::Deserialize;
use std::path::{Path, PathBuf};
use tailbound_units::Nanos;

/// A node that was probed, with the result of its network test, if there was one.
#[derive(Debug)]
pub struct Node {
    /// The file of the probe's result.
    pub file: PathBuf,
    /// The node, with both verdicts.
    pub candidate: Candidate,
    /// Share of a whole run that its sleeps are; `None` if its document does not have it.
    pub part: Option<f64>,
}

/// The relevant parts of both documents.
#[derive(Debug, Deserialize)]
struct Document {
    schema: u32,
    kind: String,
    node: String,
    verdict: NodeVerdict,
    config: Option<Config>,
    #[serde(default)]
    cpus: Vec<Cpu>,
    #[serde(default)]
    nodes: Vec<TestedNode>,
}

#[derive(Debug, Deserialize)]
struct Config {
    samples: u64,
    span_ns: Option<u64>,
}

#[derive(Debug, Deserialize)]
struct Cpu {
    samples: u64,
    late: u64,
    elapsed_ns: Option<u64>,
    sleep_ns: Times,
}

#[derive(Debug, Deserialize)]
struct Times {
    p99_9: u64,
}

/// A node as the network test names it: HOST:PORT.
#[derive(Debug, Deserialize)]
struct TestedNode {
    node: String,
    verdict: NodeVerdict,
    #[serde(default)]
    rates: Vec<Rate>,
}

#[derive(Debug, Deserialize)]
struct Rate {
    time_ns: Times,
}

/// Results of one node for others.
#[derive(Debug)]
pub struct NetworkTest {
    /// Its host name.
    pub caller: String,
    /// Nodes that it called, their verdicts, and the longest 99.9th percentile of all rates in
    /// nanoseconds.
    pub found: Vec<(String, NodeVerdict, Option<u64>)>,
}

/// Reads results of network tests, each of a different caller.
///
/// # Errors
/// A file that is no result of a network test, or two of one caller.
pub fn network_tests(files: &[PathBuf]) -> Result<Vec<NetworkTest>, String> {
    let mut tests: Vec<NetworkTest> = Vec::new();
    for file in files {
        let of_file = |why: String| format!("{}: {why}", file.display());
        let document = document(file).map_err(of_file)?;
        if document.kind != "probe-network" {
            let why = "a probe's result; pass the output of tailbound probe network";
            return Err(of_file(why.to_owned()));
        }
        if tests.iter().any(|test| test.caller == document.node) {
            let why = format!(
                "the second test by {}: pass one test of each caller",
                document.node
            );
            return Err(of_file(why));
        }
        let found = document.nodes.into_iter().map(|tested| {
            let longest = tested.rates.iter().map(|rate| rate.time_ns.p99_9).max();
            (tested.node, tested.verdict, longest)
        });
        tests.push(NetworkTest {
            caller: document.node,
            found: found.collect(),
        });
    }
    Ok(tests)
}

/// Reads the results in `files`: probes, and network tests of the nodes that were probed.
///
/// A network test belongs to the node whose probe ran under that host name, or whose file is named
/// after it (`10.0.0.7.json` for 10.0.0.7:7413).
///
/// # Errors
/// A file that is no result, a test of a node that was not probed, or a test that matches several
/// nodes.
pub fn read(files: &[PathBuf]) -> Result<Vec<Node>, String> {
    let (mut nodes, mut tests) = (Vec::new(), Vec::new());
    for file in files {
        let of_file = |why: String| format!("{}: {why}", file.display());
        let document = document(file).map_err(of_file)?;
        if document.kind == "probe" {
            nodes.push(node(file, document).map_err(of_file)?);
        } else {
            tests.extend(document.nodes.into_iter().map(|test| (file, test)));
        }
    }
    for (file, test) in tests {
        let place =
            place(&nodes, &test.node).map_err(|why| format!("{}: {why}", file.display()))?;
        let network = &mut nodes[place].candidate.network;
        let verdicts = [network.unwrap_or(test.verdict), test.verdict];
        *network = worst(verdicts).map(|place| verdicts[place]);
    }
    Ok(nodes)
}

/// Returns the warning about the first node that has two results, if any. It is no error: VMs that
/// were cloned may have the same host name.
pub fn twice(nodes: &[Node]) -> Option<String> {
    nodes.iter().enumerate().find_map(|(place, node)| {
        let name = &node.candidate.name;
        let first = nodes[..place]
            .iter()
            .find(|it| it.candidate.name == *name)?;
        Some(format!(
            "warning: {} and {} are both of a node {name}, which counts twice; pass one result of \
             each node, and set a host name of its own on each node",
            first.file.display(),
            node.file.display()
        ))
    })
}

/// Parses the output of a probe.
///
/// # Errors
/// The text is no result of a probe.
pub fn candidate(text: &[u8]) -> Result<Candidate, String> {
    let document = parse(text)?;
    node(Path::new(""), document).map(|node| node.candidate)
}

fn document(file: &Path) -> Result<Document, String> {
    parse(&std::fs::read(file).map_err(|error| error.to_string())?)
}

fn parse(text: &[u8]) -> Result<Document, String> {
    let document: Document = serde_json::from_slice(text)
        .map_err(|error| format!("not the result of tailbound probe --output json: {error}"))?;
    if !["probe", "probe-network"].contains(&document.kind.as_str()) {
        return Err(format!(
            "a result of kind {:?}, neither \"probe\" nor \"probe-network\"",
            document.kind
        ));
    }
    if document.schema != 1 {
        return Err(format!(
            "schema {} is not 1: update tailbound",
            document.schema
        ));
    }
    Ok(document)
}

fn node(file: &Path, document: Document) -> Result<Node, String> {
    let share = |cpu: &&Cpu| (u128::from(cpu.late) << 64) / u128::from(cpu.samples.max(1));
    let worst = document
        .cpus
        .iter()
        .max_by_key(share)
        .ok_or("it has no vCPU")?;
    let part = |config: &Config| {
        let by_count = worst.samples as f64 / config.samples.max(1) as f64;
        let by_time = worst.elapsed_ns? as f64 / config.span_ns?.max(1) as f64;
        Some(by_count.max(by_time).min(1.0))
    };
    Ok(Node {
        file: file.into(),
        candidate: Candidate {
            name: document.node,
            outcome: document.verdict,
            network: None,
            samples: worst.samples,
            late: worst.late,
            p99_9: Nanos(worst.sleep_ns.p99_9),
        },
        part: document.config.as_ref().and_then(part),
    })
}

/// Returns the address of a node without its port.
fn host(node: &str) -> &str {
    let host = node.rsplit_once(':').map_or(node, |(host, _)| host);
    host.trim_start_matches('[').trim_end_matches(']')
}

/// Returns true if the node at HOST:PORT is the one whose probe ran under that host name, or whose
/// result is named after it.
fn is_named(node: &str, name: &str, file: &Path) -> bool {
    let host = host(node);
    let stem = file.file_stem().and_then(std::ffi::OsStr::to_str);
    let whole = file.to_str();
    name == host
        || [stem, whole]
            .into_iter()
            .flatten()
            .any(|file| file == host || file == node)
}

/// Output of `tailbound select --output json`.
#[derive(Debug, Deserialize)]
struct Selection {
    schema: u32,
    nodes: Vec<SelectedNode>,
}

#[derive(Debug, Deserialize)]
struct SelectedNode {
    node: String,
    file: PathBuf,
    #[serde(rename = "use")]
    what: String,
}

/// Returns the nodes of `nodes` (HOST:PORT) that a selection keeps.
///
/// # Errors
/// The file is no selection, or keeps a node that is none of these, or that matches several.
pub fn selected(file: &Path, nodes: &[String]) -> Result<Vec<String>, String> {
    let of_file = |why: String| format!("{}: {why}", file.display());
    let text = std::fs::read(file).map_err(|error| of_file(error.to_string()))?;
    let selection: Selection = serde_json::from_slice(&text).map_err(|error| {
        of_file(format!(
            "not what tailbound select --output json prints: {error}"
        ))
    })?;
    if selection.schema != 1 {
        let why = format!("schema {} is not 1: update tailbound", selection.schema);
        return Err(of_file(why));
    }
    let mut found = Vec::new();
    for kept in selection.nodes.iter().filter(|node| node.what == "keep") {
        let mut those = nodes
            .iter()
            .filter(|node| is_named(node, &kept.node, &kept.file));
        match (those.next(), those.next()) {
            (Some(node), None) => found.push(node.clone()),
            (None, _) => {
                let why = "is kept and is none of the called nodes: use its address, or name its \
                    result file after the address before the selection";
                return Err(of_file(format!("{} {why}", kept.node)));
            }
            (Some(_), Some(_)) => {
                let why = "is kept and may be several of the nodes that are called: name its \
                    result after its address and port";
                return Err(of_file(format!("{} {why}", kept.node)));
            }
        }
    }
    Ok(found)
}

/// Returns the index of the node of a network test.
fn place(nodes: &[Node], tested: &str) -> Result<usize, String> {
    let host = host(tested);
    let is_it = |node: &&Node| is_named(tested, &node.candidate.name, &node.file);
    let mut those = nodes.iter().enumerate().filter(|(_, node)| is_it(node));
    match (those.next(), those.next()) {
        (Some((place, _)), None) => Ok(place),
        (None, _) => Err(format!(
            "{tested} was tested and has no probe's result: pass that result, or name its file \
                {host}.json"
        )),
        (Some(_), Some(_)) => Err(format!(
            "{tested} may be several of the probed nodes: name its result {host}.json alone"
        )),
    }
}
