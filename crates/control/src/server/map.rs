//! The tree as a map: the headroom of every node, down to the requested depth.

use super::App;
use super::extract::{By, Params};
use super::problem::{Absent, ApiError, Guarded};
use crate::ledger::Ledger;
use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tailbound_api::{HostState, MapCounts, MapNode};
use tailbound_placement::{Direction, NodeId, PortId, Topology};
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// The maximum number of nodes of a map, for drawing in a browser and an answer below a megabyte.
const MOST_NODES: usize = 4_000;
/// The maximum number of names in a request for paths.
const MOST_NAMES: usize = 1_000;

#[cfg(test)]
mod tests;

pub(super) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(show))
        .routes(routes!(paths))
}

/// Selects a part of the topology.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct Part {
    /// A host, rack or pod, or `core`.
    #[serde(default = "core")]
    #[param(default = "core", required = false)]
    node: String,
    /// The maximum depth below the node; reduced to list at most 4,000 nodes.
    #[serde(default = "two")]
    #[param(default = 2, maximum = 255, required = false)]
    depth: u8,
}

fn core() -> String {
    "core".to_owned()
}

const fn two() -> u8 {
    2
}

/// Returns the headroom of a node and of all nodes below it.
#[utoipa::path(
    get, path = "/v1/map", tag = "topology", operation_id = "get_map",
    params(Part),
    responses((status = 200, description = "The node and the nodes below it", body = MapNode), Guarded, Absent)
)]
async fn show(
    State(app): State<Arc<App>>,
    By(by): By,
    Params(part): Params<Part>,
) -> Result<Json<MapNode>, ApiError> {
    // All ports below the node are looked at, which is milliseconds for some
    // 100,000 hosts.
    app.ask(&by, move |service| {
        service.question(|ledger| {
            let node = ledger.node(&part.node).ok_or_else(|| {
                ApiError::not_found(format!("there is no host, rack or pod {:?}", part.node))
            })?;
            Ok(Json(map(ledger, node, part.depth)))
        })
    })
    .await?
}

/// The names whose paths are requested.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct Names {
    /// Names of hosts, racks and pods, separated by spaces; 1,000 at most.
    names: String,
}

/// Returns the groups of hosts, racks and pods, from the nearest to the highest.
///
/// Unknown names are left out. The page uses it to find nodes that its map does not list.
#[utoipa::path(
    get, path = "/v1/map/paths", tag = "topology", operation_id = "get_paths",
    params(Names),
    responses((status = 200, description = "The groups by name", body = BTreeMap<String, Vec<String>>), Guarded)
)]
async fn paths(
    State(app): State<Arc<App>>,
    Params(Names { names }): Params<Names>,
) -> Result<Json<BTreeMap<String, Vec<String>>>, ApiError> {
    if names.split_whitespace().nth(MOST_NAMES).is_some() {
        return Err(ApiError::malformed(format!(
            "names: there are more than {MOST_NAMES}"
        )));
    }
    let answer = app.service.read(|ledger| {
        let topology = ledger.datacentre().topology();
        let names = names.split_whitespace();
        names
            .filter_map(|name| Some((name.to_owned(), path(topology, topology.find(name)?))))
            .collect()
    });
    Ok(Json(answer))
}

/// Returns the groups that a node is in, nearest first, without the core, which all are in.
fn path(topology: &Topology, node: NodeId) -> Vec<String> {
    std::iter::successors(topology.parent(node), |above| topology.parent(*above))
        .filter(|above| *above != NodeId::TOP)
        .map(|above| topology.name(above).to_owned())
        .collect()
}

/// Returns a node and the nodes below it, at most `depth` levels and [`MOST_NODES`] nodes. The last
/// level is listed without ports.
pub(crate) fn map(ledger: &Ledger, node: NodeId, depth: u8) -> MapNode {
    let depth = depth.min(affordable(ledger.datacentre().topology(), node));
    let (mut root, _) = draw(ledger, &ledger.troubled(), node, depth);
    if root.ports.is_empty() {
        root.ports = ports(ledger, node);
    }
    root
}

/// Returns how deep the tree can be listed.
fn affordable(topology: &Topology, root: NodeId) -> u8 {
    let mut depth = 0;
    let mut listed = 1;
    let mut level = vec![root];
    loop {
        let below = level.iter().flat_map(|node| topology.children(*node));
        level = below.take(MOST_NODES).collect();
        listed += level.len();
        if level.is_empty() || listed > MOST_NODES {
            return depth;
        }
        depth += 1;
    }
}

/// The headroom in thousandths below which a host is tight.
const TIGHT: u16 = 100;

/// The hosts that refuse something or are silent.
type FaultyHosts = BTreeSet<NodeId>;

/// The sum over the hosts below a node.
#[derive(Debug, Clone, Copy)]
struct Sum {
    counts: MapCounts,
    used: u32,
    /// The headroom of the scarcest port.
    least: u16,
    /// The state of all hosts; None if they differ.
    state: Option<HostState>,
}

impl Sum {
    fn plus(self, other: Self) -> Self {
        Self {
            counts: MapCounts {
                hosts: self.counts.hosts + other.counts.hosts,
                troubled: self.counts.troubled + other.counts.troubled,
                tight: self.counts.tight + other.counts.tight,
            },
            used: self.used + other.used,
            least: self.least.min(other.least),
            state: self.state.filter(|state| other.state == Some(*state)),
        }
    }
}

fn draw(ledger: &Ledger, troubled: &FaultyHosts, node: NodeId, depth: u8) -> (MapNode, Sum) {
    let topology = ledger.datacentre().topology();
    let mut drawn = MapNode {
        name: topology.name(node).to_owned(),
        height: topology.height(node),
        state: None,
        counts: MapCounts::default(),
        following: topology
            .is_host(node)
            .then(|| ledger.following(node, troubled.contains(&node))),
        slots: topology.resources(node).slots,
        used: 0,
        headroom: headroom(ledger, node),
        least: 0,
        ports: Vec::new(),
        children: Vec::new(),
    };
    let sum = if depth == 0 || topology.is_host(node) {
        sum(ledger, troubled, node)
    } else {
        drawn.ports = ports(ledger, node);
        let below = topology.children(node).map(|child| {
            let (child, sum) = draw(ledger, troubled, child, depth - 1);
            drawn.children.push(child);
            sum
        });
        all(ledger, node, below)
    };
    drawn.counts = sum.counts;
    drawn.used = sum.used;
    drawn.least = sum.least;
    drawn.state = sum.state;
    (drawn, sum)
}

fn sum(ledger: &Ledger, troubled: &FaultyHosts, node: NodeId) -> Sum {
    let topology = ledger.datacentre().topology();
    if !topology.is_host(node) {
        let below = topology
            .children(node)
            .map(|child| sum(ledger, troubled, child));
        return all(ledger, node, below);
    }
    let state = ledger.state(node);
    let used = match state {
        HostState::Open => topology.resources(node).slots - ledger.datacentre().free(node).slots,
        // Free slots of these hosts are left out: no tenant can get them.
        HostState::Drained | HostState::Failed => ledger.used(node),
    };
    let least = headroom(ledger, node);
    Sum {
        counts: MapCounts {
            hosts: 1,
            troubled: u32::from(troubled.contains(&node)),
            tight: u32::from(least < TIGHT),
        },
        used,
        least,
        state: Some(state),
    }
}

/// Returns the sum of a node that is not a host.
fn all(ledger: &Ledger, node: NodeId, below: impl Iterator<Item = Sum>) -> Sum {
    let sum = below.reduce(Sum::plus);
    let mut sum = sum.expect("a tree's leaves are hosts");
    sum.least = sum.least.min(headroom(ledger, node));
    sum
}

/// Returns the headroom of the scarcer of a node's two ports, in thousandths.
fn headroom(ledger: &Ledger, node: NodeId) -> u16 {
    both(node)
        .map(|port| ledger.datacentre().headroom(port))
        .min()
        .unwrap_or(1_000)
}

fn ports(ledger: &Ledger, node: NodeId) -> Vec<tailbound_api::PortState> {
    both(node).map(|port| ledger.port(port)).collect()
}

/// Returns a node's ports; none for the core.
fn both(node: NodeId) -> impl Iterator<Item = PortId> {
    [Direction::Up, Direction::Down]
        .into_iter()
        .filter(move |_| node != NodeId::TOP)
        .map(move |direction| PortId { node, direction })
}
