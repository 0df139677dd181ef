//! Bursts by subtree of the data centre.
//!
//! The buckets {`B_i`, S} of a guest's destinations permit n bursts to n machines behind one
//! port without a pause. Silo counts one burst of each sender there (4.2, m·S). So a guest has a
//! bucket {sum of `B_i`, K·S} for each *subtree*, a host, a rack or a pod, that holds more than K
//! of its destinations' machines, beside the buckets of the destinations. K is
//! [`super::Guarantee::bursts`].
//!
//! For any senders, and the receivers R of a subtree, a sender j passes at most
//! `K·S + ∫ r_j dt` to R over every interval, where `r_j` is the sum of its rates to R. If the
//! rates to each of n receivers add up to at most B, m senders pass `m·K·S + n·B·t`.
//!
//! The same applies to the port that leads out of the guest's own host, rack or pod: *beyond* it
//! there may be fewer machines than inside, and then n·B of those limits the port. With at least
//! as many beyond, the senders' {B, S} is the lower limit, and no bucket is necessary.
//!
//! Destinations of one machine, several addresses, share {sum of `B_i`, S}: the limit of a pair
//! ([`Place::machine`]). A subtree whose machines are all in a smaller one needs no bucket.
//!
//! # Unknown places
//!
//! A guest with a number K sends nothing to a destination of which the place is unknown: its line
//! is *unplaced*, and waits for its place as for the opening of a limit. A bucket for all of them
//! would not be safe. Let R be some of its members, below one port with others: it passes
//! `K·S + ∫ r dt` to R, with the rates r of all members, and the rates to R may be far lower. With
//! rates of R alone, nothing is known of a member that may be in several R. An unplaced line adds
//! 0 to every R, so the proof above holds for the lines that have a place.
//!
//! # Turns
//!
//! All buckets on a line's path are checked when the line has its turn in the round of its guest,
//! and charged in the same step. Only one frame of a guest has a departure, so no two frames leave
//! for the same tokens, and a frame that conforms to all buckets costs a check and a charge of each.
//!
//! ```text
//! line ► {B_i, S} ► round ► {sum, K·S} of host, rack, pod ► {B, S} ► {Bmax, frame}
//!                     ▲            │ lacks tokens
//!                     └── wheel ◄──┴── node: one line holds its turn, the others wait in its round
//! ```
//!
//! A line that lacks tokens of a node *holds the turn* of that node and of those below it, and waits
//! in the wheel of releases until its frame conforms. Other lines of these nodes wait in the round
//! of the smallest one whose turn is held, as entries of a deficit round robin weighted by rate: a
//! node that waits for a larger one is an entry there. When the frame departs, each node passes its
//! turn on to one entry. So one line at most waits for a node's tokens, no line waits for a subtree
//! that it is not in, and nothing is woken in vain. A bucket fills at the sum of the rates below it,
//! so a destination gets its rate.
//!
//! A tree is built anew when places or destinations change ([`Tree::build`]); the buckets of its
//! subtrees continue.

mod build;
mod turns;

pub(super) use build::{Leaf, Terms};
pub(super) use turns::{Wait, Wake};

use super::account::Account;
use super::index::{EntryIndex, LineIndex, NodeIndex, Table};
use super::rate_change::RateChange;
use super::round::{Links, Member, Round, of_deficit};
use std::collections::BTreeMap;
use std::sync::Arc;
use tailbound_units::{Bursts, Position, Rate, WireBytes};

/// Location of a destination, by numbers that the caller chooses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The host.
    pub host: u64,
    /// The machine on its host: destinations of one machine share {`B_i`, S}.
    pub machine: u64,
}

/// The groups that each host is in, from the nearest to the largest: rack, pod. Hosts in one group
/// are in all larger ones of it, too.
pub type HostGroups = BTreeMap<u64, Vec<u64>>;

/// Location of a guest, and the network around it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Home {
    /// The guest's host.
    pub host: u64,
    /// Number of the tenant's machines, the guest included; 0 if unknown.
    pub machines: u32,
    /// Groups of the hosts of the tenant, this one included. Destinations on other hosts have no
    /// place.
    pub groups: Arc<HostGroups>,
}

/// Destinations that may share a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Subtree {
    /// All destinations of a machine, by host and machine.
    Machine(u64, u64),
    Host(u64),
    Group(u64),
    /// All destinations outside of the guest's own host (0), or of the group of this number, from 1
    /// on, that the host is in.
    Beyond(u32),
}

/// Known places of a guest and its destinations.
#[derive(Debug, Default)]
pub(super) struct Places {
    pub(super) home: Option<Home>,
    pub(super) of: BTreeMap<u128, Place>,
}

/// Presence of a line in the tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Presence {
    /// None: it is in another list, or in none.
    Absent,
    /// It, or the largest node whose turn it holds, is in a round of the tree.
    Listed,
    /// The line holds the turn of a node, and is in the wheel of releases.
    InWheel,
    /// The line holds the turn of a node whose bucket is closed.
    Parked,
}

/// The first frame of a line that waits in the tree.
#[derive(Debug, Clone, Copy)]
struct Front {
    line: LineIndex,
    wire: WireBytes,
    /// Position from which it conforms to the limit of the line.
    from: Position,
    /// Position at which the wheel releases the line.
    release: Position,
    presence: Presence,
}

/// The entry of a node.
impl From<NodeIndex> for EntryIndex {
    #[inline(always)]
    fn from(node: NodeIndex) -> Self {
        Self::new(node.number())
    }
}

/// A node, or a line, as a member of the round of its parent. Nodes have the first numbers, which
/// are those of the table of nodes.
#[derive(Debug)]
struct Entry {
    /// The smallest node around it; `NONE` without one.
    parent: NodeIndex,
    /// Its rate, or the sum of those below, and its weight in the round of its parent.
    rate: Rate,
    weight: u32,
    /// True if it waits in the round of its parent.
    is_listed: bool,
    /// Bytes that it may send in its turn: see `Line::deficit`.
    deficit: i64,
    /// Meaningless for a node.
    front: Front,
}

impl Member for Entry {
    fn weight(&self) -> u32 {
        self.weight
    }

    fn deficit(&mut self) -> &mut i64 {
        &mut self.deficit
    }

    fn has_one(&self) -> bool {
        false
    }
}

/// The bucket of a subtree, and the entries that wait for it.
#[derive(Debug)]
struct Node {
    account: Account,
    /// The same node's parent as in its entry.
    parent: NodeIndex,
    /// The entry that holds its turn: others wait. `NONE` if frames pass freely.
    holder: EntryIndex,
    round: Round<EntryIndex>,
    subtree: Subtree,
}

/// The destinations of a guest that share buckets, and these buckets. The module describes it.
#[derive(Debug)]
pub(super) struct Tree {
    nodes: Table<NodeIndex, Node>,
    entries: Table<EntryIndex, Entry>,
    links: Links<EntryIndex>,
    /// The longest frame, and the rate of the wire.
    longest: WireBytes,
    link: Rate,
    pub(super) places: Places,
    /// K.
    pub(super) bursts: Bursts,
    /// True if places, destinations or K have changed, so that the tree must be built anew.
    pub(super) is_stale: bool,
}

impl Tree {
    /// Creates a tree without destinations.
    pub(super) fn boxed() -> Box<Self> {
        Box::new(Self {
            nodes: Table::new(),
            entries: Table::new(),
            links: Links::new(),
            longest: WireBytes::ZERO,
            link: Rate(0),
            places: Places::default(),
            bursts: Bursts::PerReceiver,
            is_stale: false,
        })
    }

    /// Returns the place of a destination.
    pub(super) fn place(&self, destination: u128) -> Option<Place> {
        self.places.of.get(&destination).copied()
    }

    /// The node of an entry; `None` for a leaf.
    const fn node_of(&self, entry: EntryIndex) -> Option<NodeIndex> {
        if entry.number() < self.nodes.len() {
            Some(NodeIndex::new(entry.number()))
        } else {
            None
        }
    }

    /// Returns the nodes around an entry, smallest first.
    fn path(&self, entry: EntryIndex) -> impl Iterator<Item = NodeIndex> + '_ {
        let known = |node: NodeIndex| node.is_some().then_some(node);
        let first = known(self.entries[entry].parent);
        std::iter::successors(first, move |node| known(self.nodes[*node].parent))
    }

    /// The accounts of all nodes.
    pub(super) fn accounts_mut(&mut self) -> impl Iterator<Item = &mut Account> {
        self.nodes.iter_mut().map(|node| &mut node.account)
    }

    /// Calls `sink` with each line below the bucket of a host that is not full, and with the bytes
    /// that this bucket lacks.
    pub(super) fn for_lacking(
        &mut self,
        at: Position,
        change: &RateChange,
        mut sink: impl FnMut(LineIndex, WireBytes),
    ) {
        let mut is_any = false;
        for node in self.nodes.iter_mut() {
            if matches!(node.subtree, Subtree::Host(_)) {
                node.account.translate(change);
                is_any |= node.account.lacks(at) > WireBytes::ZERO;
            }
        }
        if !is_any {
            return;
        }
        for entry in self.entries.iter().skip(self.nodes.len()) {
            let mut parent = entry.parent;
            while let Some(node) = self.nodes.get(parent) {
                if matches!(node.subtree, Subtree::Host(_)) {
                    let lacks = node.account.lacks(at);
                    if lacks > WireBytes::ZERO {
                        sink(entry.front.line, lacks);
                    }
                    break;
                }
                parent = node.parent;
            }
        }
    }

    /// Calls `change` with the account of each node around a leaf.
    pub(super) fn for_accounts_of(
        &mut self,
        leaf: EntryIndex,
        mut change: impl FnMut(&mut Account),
    ) {
        let mut parent = self.entries[leaf].parent;
        while let Some(node) = self.nodes.get_mut(parent) {
            change(&mut node.account);
            parent = node.parent;
        }
    }
}
