//! Turns of the lines below shared buckets.

use super::super::account::{Departing, Sight};
use super::super::index::{EntryIndex, LineIndex, NodeIndex};
use super::{Front, Presence, Tree, of_deficit};
use tailbound_units::{Position, Rate, WireBytes};

/// Reason why a frame may not leave yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Wait {
    /// The frame conforms to a node at this position: its line goes to the wheel.
    Until(Position),
    /// Another entry has the turn of a node, or the bucket of a node is closed: its line is in the
    /// tree.
    InTree,
    /// The place of the destination is unknown.
    Unplaced,
}

/// A line that the wheel must release at a position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) struct Wake {
    pub(in super::super) line: LineIndex,
    pub(in super::super) at: Position,
}

impl Tree {
    /// Charges a frame of a leaf, below a node, that departs at `departure` to all nodes around it, if
    /// it conforms to them at `at` and no other entry has their turn. Returns whether the leaf holds
    /// the turn of the first node. Otherwise the leaf waits, and nothing is charged.
    #[inline(always)]
    pub(in super::super) fn charge(
        &mut self,
        leaf: EntryIndex,
        node: NodeIndex,
        frame: Departing,
        sight: Sight<'_>,
    ) -> Result<bool, Wait> {
        let mut entry = leaf;
        let mut parent = node;
        let mut has_turn = false;
        while let Some(node) = self.nodes.get_mut(parent) {
            if node.holder.is_some() {
                if node.holder != entry {
                    return Err(self.list(leaf, entry, frame));
                }
                has_turn = true;
            }
            let charged = if node.account.is_open(sight.change) {
                node.account.make_up(sight.lost);
                node.account.charge_conforming(frame)
            } else {
                node.account.charge_if_conforming(frame, sight)
            };
            if let Err(release) = charged {
                return Err(self.hold(leaf, entry, frame, release));
            }
            entry = parent.into();
            parent = node.parent;
        }
        Ok(has_turn)
    }

    /// Reverts the charges of a frame to the nodes around a leaf that are below an entry's parent.
    fn take_back(&mut self, leaf: EntryIndex, entry: EntryIndex, frame: Departing) {
        let Departing {
            departure, wire, ..
        } = frame;
        let mut below = leaf;
        while below != entry {
            let node = self.entries[below].parent;
            let account = &mut self.nodes[node].account;
            account.take_back(departure, wire, departure);
            below = node.into();
        }
    }

    /// Lets a leaf hold the turn of the node around an entry, and of those below, until its frame
    /// conforms at `release`.
    #[inline(never)]
    fn hold(
        &mut self,
        leaf: EntryIndex,
        entry: EntryIndex,
        frame: Departing,
        release: Option<Position>,
    ) -> Wait {
        self.take_back(leaf, entry, frame);
        let parent = self.entries[entry].parent;
        self.claim(leaf, parent.into());
        let front = &mut self.entries[leaf].front;
        (front.wire, front.from) = (frame.wire, frame.at);
        let wake = self.suspend(leaf, release);
        wake.map_or(Wait::InTree, |wake| Wait::Until(wake.at))
    }

    /// Lets a leaf hold the turns of all nodes around it up to the node `top`, or none if that is
    /// the leaf itself.
    fn claim(&mut self, leaf: EntryIndex, top: EntryIndex) {
        let mut entry = leaf;
        while entry != top {
            let parent = self.entries[entry].parent;
            self.nodes[parent].holder = entry;
            entry = parent.into();
        }
    }

    /// Adds an entry, a leaf or a node whose turn that leaf gets, to the round of its parent.
    #[inline(never)]
    fn list(&mut self, leaf: EntryIndex, entry: EntryIndex, frame: Departing) -> Wait {
        self.take_back(leaf, entry, frame);
        self.claim(leaf, entry);
        let front = &mut self.entries[leaf].front;
        (front.wire, front.from) = (frame.wire, frame.at);
        front.presence = Presence::Listed;
        self.push(entry);
        Wait::InTree
    }

    fn push(&mut self, entry: EntryIndex) {
        let Self {
            nodes,
            entries,
            links,
            ..
        } = self;
        let this = &mut entries[entry];
        this.is_listed = true;
        let round = &mut nodes[this.parent].round;
        if this.deficit > 0 {
            round.push_front(links, entry, this.weight);
        } else {
            round.push(links, entry, this.weight);
        }
    }

    /// Removes an entry from the round of its parent, if it is there.
    fn unlist(&mut self, entry: EntryIndex) {
        let Self {
            nodes,
            entries,
            links,
            ..
        } = self;
        let this = &mut entries[entry];
        if std::mem::take(&mut this.is_listed) {
            let round = &mut nodes[this.parent].round;
            round.remove(links, entry, this.weight);
        }
    }

    /// Checks whether a leaf holds the turn of a node.
    #[inline(always)]
    pub(in super::super) fn has_turn(&self, leaf: EntryIndex) -> bool {
        let parent = self.entries[leaf].parent;
        let node = self.nodes.get(parent);
        node.is_some_and(|node| node.holder == leaf)
    }

    /// Returns the largest node whose turn a leaf holds, or the leaf itself.
    fn top(&self, leaf: EntryIndex) -> EntryIndex {
        let mut entry = leaf;
        loop {
            let parent = self.entries[entry].parent;
            match self.nodes.get(parent) {
                Some(node) if node.holder == entry => entry = parent.into(),
                _ => return entry,
            }
        }
    }

    /// Returns the leaf that holds the turn of a node, or the entry itself if it is a leaf.
    fn leaf_of(&self, mut entry: EntryIndex) -> EntryIndex {
        while let Some(node) = self.node_of(entry) {
            entry = self.nodes[node].holder;
        }
        entry
    }

    /// Weight in the guest's round of a line that holds turns, and its deficit there.
    pub(in super::super) fn terms_of(&self, leaf: EntryIndex) -> (u32, i64) {
        let top = &self.entries[self.top(leaf)];
        (top.weight, top.deficit)
    }

    /// The weight of a leaf itself.
    pub(in super::super) fn weight_of(&self, leaf: EntryIndex) -> u32 {
        self.entries[leaf].weight
    }

    /// Records that the wheel has released a line, and returns the position.
    pub(in super::super) fn leave(&mut self, leaf: EntryIndex) -> Position {
        let front = &mut self.entries[leaf].front;
        front.presence = Presence::Absent;
        front.release
    }

    /// Counts a frame that departs in the deficits of the entries whose turns a leaf has used. Its
    /// deficit in the guest's round is that of the largest.
    pub(in super::super) fn count(&mut self, leaf: EntryIndex, wire: WireBytes, deficit: i64) {
        let top = self.top(leaf);
        let mut entry = leaf;
        while entry != top {
            self.entries[entry].deficit -= of_deficit(wire);
            entry = self.entries[entry].parent.into();
        }
        self.entries[top].deficit = deficit;
    }

    /// Passes the turns that a leaf holds on to the next entries, at `at`. `next` is the length of
    /// the leaf's own next frame, if that conforms to its limit. Calls `wake` with each line that
    /// may have its turn in the round of the guest then, or later.
    pub(in super::super) fn pass_on(
        &mut self,
        leaf: EntryIndex,
        next: Option<WireBytes>,
        at: Position,
        sight: Sight<'_>,
        mut wake: impl FnMut(Wake),
    ) {
        let front = &mut self.entries[leaf].front;
        front.presence = Presence::Absent;
        if let Some(wire) = next {
            (front.wire, front.from) = (wire, at);
            front.presence = Presence::Listed;
        }
        let mut entry = leaf;
        let mut offers = next.is_some();
        loop {
            let parent = self.entries[entry].parent;
            match self.nodes.get_mut(parent) {
                Some(node) if node.holder == entry => node.holder = EntryIndex::NONE,
                _ => break,
            }
            if self.nodes[parent].round.is_empty() {
                // It is alone, so its turns have no limit.
                self.entries[entry].deficit = 0;
            }
            if offers {
                self.push(entry);
            }
            offers = false;
            if let Some((chosen, release)) = self.choose(parent, at, sight) {
                match release {
                    Ok(()) => offers = true,
                    Err(release) => self
                        .suspend(chosen, release)
                        .into_iter()
                        .for_each(&mut wake),
                }
            }
            entry = parent.into();
        }
        if offers {
            let leaf = self.leaf_of(entry);
            self.suspend(leaf, Some(at)).into_iter().for_each(wake);
        }
    }

    /// Passes the turn of a node to the next entry. Returns the leaf below it, and whether its frame
    /// conforms to the node.
    fn choose(
        &mut self,
        node: NodeIndex,
        at: Position,
        sight: Sight<'_>,
    ) -> Option<(EntryIndex, Result<(), Option<Position>>)> {
        let Self {
            nodes,
            entries,
            links,
            longest,
            ..
        } = self;
        let this = &mut nodes[node];
        let (chosen, entry) = this.round.turn(entries, links, *longest)?;
        this.round.pop(links, entry.weight);
        entry.is_listed = false;
        this.holder = chosen;
        let leaf = self.leaf_of(chosen);
        let Front { wire, from, .. } = self.entries[leaf].front;
        let account = &mut self.nodes[node].account;
        let checked = account.check(at.max(from), wire, sight);
        Some((leaf, checked.map(drop)))
    }

    /// Suspends a leaf until `release`, or until the bucket of the node opens.
    fn suspend(&mut self, leaf: EntryIndex, release: Option<Position>) -> Option<Wake> {
        let front = &mut self.entries[leaf].front;
        let line = front.line;
        let Some(at) = release else {
            front.presence = Presence::Parked;
            return None;
        };
        let at = at.max(front.from);
        (front.presence, front.release) = (Presence::InWheel, at);
        Some(Wake { line, at })
    }

    /// Takes a leaf out of the rounds of the tree. Returns true if its line must leave the wheel.
    /// The turns that it holds remain: see [`Tree::pass_on`].
    pub(in super::super) fn withdraw(&mut self, leaf: EntryIndex) -> bool {
        let top = self.top(leaf);
        self.unlist(top);
        let front = &mut self.entries[leaf].front;
        std::mem::replace(&mut front.presence, Presence::Absent) == Presence::InWheel
    }

    /// Calls `sink` with the lines that are in the wheel of releases for a node.
    pub(in super::super) fn for_wheel(&self, mut sink: impl FnMut(LineIndex)) {
        let leaves = self.entries.iter().skip(self.nodes.len());
        let waiting = leaves.filter(|leaf| leaf.front.presence == Presence::InWheel);
        waiting.for_each(|leaf| sink(leaf.front.line));
    }

    /// Changes the rate of a leaf at `at`, and the sums of the nodes around it. Calls `again` with
    /// each line that waits for one of these nodes, and whether it is in the wheel: it must be
    /// released at that position, and is checked again then.
    pub(in super::super) fn set_rate(
        &mut self,
        leaf: EntryIndex,
        rate: Rate,
        weight: u32,
        at: Position,
        Sight { lost, change }: Sight<'_>,
        mut again: impl FnMut(Wake, bool),
    ) {
        let before = self.entries[leaf].rate;
        if before == rate && self.entries[leaf].weight == weight {
            return;
        }
        let link = self.link;
        let mut entry = leaf;
        loop {
            let this = &mut self.entries[entry];
            this.rate = Rate(this.rate.0 - before.0 + rate.0);
            let weight = if entry == leaf {
                weight
            } else {
                super::super::round::weight(this.rate, link)
            };
            let former = std::mem::replace(&mut this.weight, weight);
            let parent = this.parent;
            if this.is_listed {
                let round = &mut self.nodes[parent].round;
                round.reweigh(former, weight);
            }
            let sum = this.rate;
            if let Some(node) = self.node_of(entry) {
                let node = &mut self.nodes[node];
                node.account.translate(change);
                node.account.set_rate(sum, link, at, lost);
                if node.holder.is_some() {
                    let leaf = self.leaf_of(entry);
                    let front = &mut self.entries[leaf].front;
                    let is_in_wheel = front.presence == Presence::InWheel;
                    let waits = is_in_wheel || front.presence == Presence::Parked;
                    if waits && let Some(wake) = self.suspend(leaf, Some(at)) {
                        again(wake, is_in_wheel);
                    }
                }
            }
            if parent.is_none() {
                return;
            }
            entry = parent.into();
        }
    }
}
