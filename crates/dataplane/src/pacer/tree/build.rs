//! Construction of a tree from the places of destinations.

use super::super::Guarantee;
use super::super::account::Account;
use super::super::index::{EntryIndex, LineIndex, NodeIndex};
use super::super::limit::Sharing;
use super::super::rate_change::RateChange;
use super::super::round::{Links, Round, weight};
use super::{Entry, Front, Node, Place, Places, Presence, Subtree, Tree};
use std::collections::{BTreeMap, BTreeSet};
use tailbound_units::{Bursts, Bytes, Position, Rate, WireBytes};

/// A destination that has a limit.
#[derive(Debug)]
pub(in super::super) struct Leaf {
    /// Its line.
    pub(in super::super) line: LineIndex,
    pub(in super::super) destination: u128,
    /// Its present rate, and its weight in a round.
    pub(in super::super) rate: Rate,
    pub(in super::super) weight: u32,
    /// Bytes that its bucket lacks to be full.
    pub(in super::super) lacks: WireBytes,
    /// Bytes of its receiver's inward burst that are lent to it.
    pub(in super::super) lent: Bytes,
    /// The buckets around it in the former tree.
    pub(in super::super) former: Sharing,
}

/// The conditions under which a tree is built.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct Terms {
    pub(in super::super) link: Rate,
    pub(in super::super) longest: WireBytes,
    pub(in super::super) guarantee: Guarantee,
    pub(in super::super) at: Position,
    /// Bytes for which virtual time was frozen until now.
    pub(in super::super) lost: WireBytes,
    pub(in super::super) change: RateChange,
}

/// Number of machines in each subtree, or of destinations of a machine.
type Sizes = BTreeMap<Subtree, u32>;

/// The account of a former node, and the lines whose frames were charged to it.
struct Former {
    account: Account,
    members: BTreeSet<LineIndex>,
}

impl Places {
    /// Returns the subtrees around a destination whose ports its guest's frames pass, smallest first.
    /// `None` if they are unknown.
    fn around(&self, destination: u128) -> Option<Vec<Subtree>> {
        let (home, place) = (self.home.as_ref()?, self.of.get(&destination)?);
        let Place { host, machine } = *place;
        let mut around = vec![Subtree::Machine(host, machine)];
        if home.host == host {
            // Its frames pass no port.
            return Some(around);
        }
        around.push(Subtree::Host(host));
        let (theirs, ours) = (home.groups.get(&host)?, home.groups.get(&home.host)?);
        let others = theirs.iter().filter(|group| !ours.contains(group));
        around.extend(others.map(|group| Subtree::Group(*group)));
        let beyond = ours.iter().filter(|group| !theirs.contains(group)).count();
        around.extend((0..=beyond as u32).rev().map(Subtree::Beyond));
        Some(around)
    }

    /// The machine of a destination; `None` if it is unknown.
    fn machine(&self, destination: u128) -> Option<Vec<Subtree>> {
        let Place { host, machine } = *self.of.get(&destination)?;
        Some(vec![Subtree::Machine(host, machine)])
    }
}

impl Tree {
    /// Builds the tree of these destinations. Buckets of the former tree continue. A bucket
    /// also owes the sum of what the destinations that join it owe: at least what it would owe if it
    /// had been charged, too. The call assigns the lines their
    /// buckets by `assign`. No line may wait in the
    /// tree, or have a turn there.
    pub(in super::super) fn build(
        &mut self,
        leaves: &[Leaf],
        terms: &Terms,
        mut assign: impl FnMut(LineIndex, Sharing),
    ) {
        self.is_stale = false;
        (self.link, self.longest) = (terms.link, terms.longest);
        let mut former = self.take_former(leaves);
        let paths = self.paths(leaves);
        for path in paths.iter().flatten() {
            for subtree in path {
                self.add_node(*subtree, &mut former, terms);
            }
        }
        let subtrees = self.nodes.iter().map(|node| node.subtree);
        let numbers: BTreeMap<Subtree, NodeIndex> = subtrees.zip(self.nodes.indices()).collect();
        let mut debts = vec![WireBytes::ZERO; self.nodes.len()];
        let mut lent = vec![Bytes::ZERO; self.nodes.len()];
        for (leaf, path) in leaves.iter().zip(&paths) {
            let Some(path) = path else {
                assign(leaf.line, Sharing::Unplaced);
                continue;
            };
            let Some(first) = path.first() else {
                assign(leaf.line, Sharing::Alone);
                continue;
            };
            let mut below = self.push_entry(leaf.line, leaf.rate, leaf.weight);
            let node = numbers[first];
            assign(leaf.line, Sharing::Below { leaf: below, node });
            for subtree in path {
                let node = numbers[subtree];
                let known = former.get(subtree);
                if !known.is_some_and(|former| former.members.contains(&leaf.line)) {
                    debts[node.number()] += leaf.lacks;
                }
                // Meaningful for the node of a machine: what is lent is lent to all its destinations.
                let most = &mut lent[node.number()];
                *most = leaf.lent.max(*most);
                self.entries[node.into()].rate += leaf.rate;
                self.set_parent(below, node);
                below = node.into();
            }
        }
        for (node, (debt, lent)) in self.nodes.indices().zip(debts.into_iter().zip(lent)) {
            let depth = self.depth(self.nodes[node].subtree, &terms.guarantee, lent);
            self.settle(node, depth, debt, terms);
        }
        self.links = Links::new();
        self.links.reserve(self.entries.len());
    }

    /// Returns the subtrees around each leaf that have a bucket, smallest first; `None` if a guest
    /// with a number K may not send to it.
    fn paths(&self, leaves: &[Leaf]) -> Vec<Option<Vec<Subtree>>> {
        let is_limited = self.bursts.is_per_subtree();
        let around = leaves.iter().map(|leaf| {
            if is_limited {
                self.places.around(leaf.destination)
            } else {
                Some(self.places.machine(leaf.destination).unwrap_or_default())
            }
        });
        let around: Vec<_> = around.collect();
        let mut sizes = Sizes::new();
        for path in around.iter().flatten() {
            let machine = path.first().copied();
            let is_new = machine.is_some_and(|machine| !sizes.contains_key(&machine));
            for subtree in path {
                let counts = Some(*subtree) == machine || is_new;
                *sizes.entry(*subtree).or_default() += u32::from(counts);
            }
        }
        let with_bucket = around.into_iter().map(|path| {
            let mut last = 0;
            let mut path = path?;
            path.retain(|subtree| {
                let size = sizes[subtree];
                let needs = self.needs_bucket(*subtree, size) && size != last;
                if needs && !matches!(subtree, Subtree::Machine(..)) {
                    last = size;
                }
                needs
            });
            Some(path)
        });
        with_bucket.collect()
    }

    /// Checks whether a subtree of this size needs a bucket, if no smaller one has the same machines.
    fn needs_bucket(&self, subtree: Subtree, size: u32) -> bool {
        let is_above = self.bursts.into_subtree(size.into()) < size.into();
        match subtree {
            Subtree::Machine(..) => size > 1,
            Subtree::Host(_) | Subtree::Group(_) => is_above,
            Subtree::Beyond(_) => {
                let all = self.places.home.as_ref().map_or(0, |home| home.machines);
                // Machines that are not known yet may be inside, or beyond.
                is_above && (all == 0 || size < all.saturating_sub(size))
            }
        }
    }

    /// Adds the node of a subtree, with its former account, unless it is there.
    fn add_node(
        &mut self,
        subtree: Subtree,
        former: &mut BTreeMap<Subtree, Former>,
        terms: &Terms,
    ) {
        if self.nodes.iter().any(|node| node.subtree == subtree) {
            return;
        }
        let fresh = || Account::full(terms.link, terms.lost);
        let account = former.get_mut(&subtree).map_or_else(fresh, |former| {
            std::mem::replace(&mut former.account, fresh())
        });
        self.nodes.push(Node {
            account,
            parent: NodeIndex::NONE,
            holder: EntryIndex::NONE,
            round: Round::EMPTY,
            subtree,
        });
        self.push_entry(LineIndex::NONE, Rate(0), 0);
    }

    /// Sets rate and depth of a node's account, and charges a debt to it.
    fn settle(&mut self, node: NodeIndex, depth: WireBytes, debt: WireBytes, terms: &Terms) {
        let rate = self.entries[node.into()].rate;
        self.entries[node.into()].weight = weight(rate, terms.link);
        let account = &mut self.nodes[node].account;
        account.translate(&terms.change);
        account.configure(rate, depth, terms.link, terms.at, terms.lost);
        if debt > WireBytes::ZERO {
            account.change(terms.at, |account| {
                let holds = account.holds(terms.at).saturating_sub(debt);
                account.hold(holds, terms.at);
            });
        }
    }

    fn set_parent(&mut self, entry: EntryIndex, parent: NodeIndex) {
        self.entries[entry].parent = parent;
        if let Some(node) = self.node_of(entry) {
            self.nodes[node].parent = parent;
        }
    }

    fn push_entry(&mut self, line: LineIndex, rate: Rate, weight: u32) -> EntryIndex {
        self.entries.push(Entry {
            parent: NodeIndex::NONE,
            rate,
            weight,
            is_listed: false,
            deficit: 0,
            front: Front {
                line,
                wire: WireBytes::ZERO,
                from: Position::ZERO,
                release: Position::ZERO,
                presence: Presence::Absent,
            },
        })
    }

    /// Takes the accounts out of the present tree, and removes all entries.
    fn take_former(&mut self, leaves: &[Leaf]) -> BTreeMap<Subtree, Former> {
        let mut members: BTreeMap<Subtree, BTreeSet<LineIndex>> = BTreeMap::new();
        for leaf in leaves {
            let Sharing::Below { leaf: former, .. } = leaf.former else {
                continue;
            };
            for node in self.path(former) {
                let subtree = self.nodes[node].subtree;
                members.entry(subtree).or_default().insert(leaf.line);
            }
        }
        self.entries.entries_mut().clear();
        let former = self.nodes.entries_mut().drain(..).map(|node| {
            let members = members.remove(&node.subtree).unwrap_or_default();
            let account = node.account;
            (node.subtree, Former { account, members })
        });
        former.collect()
    }

    /// Depth of the bucket of a subtree; `lent` is lent to its destinations if it is a machine.
    fn depth(&self, subtree: Subtree, guarantee: &Guarantee, lent: Bytes) -> WireBytes {
        let (burst, bursts) = match (subtree, self.bursts) {
            (Subtree::Machine(..), _) => (guarantee.to_each(lent), 1),
            (_, Bursts::PerReceiver) => (guarantee.burst, 1),
            (_, Bursts::PerSubtree(bursts)) => (guarantee.burst, bursts),
        };
        WireBytes(burst.0.saturating_mul(bursts.into()))
    }
}
