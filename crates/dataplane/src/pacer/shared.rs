//! Lines that share buckets with others: their charges, and their way through the tree of their
//! guest (`tree`).

use super::account::Departing;
use super::chain::Chain;
use super::guest::Guest;
use super::index::{EntryIndex, LineIndex, Table};
use super::limit::{Limit, Sharing};
use super::line::{Line, Stage, put_back};
use super::tree::{Tree, Wait, Wake};
use crate::Frame;
use tailbound_units::{Position, Rate, WireBytes};

impl<F: Frame> Chain<F> {
    /// Charges a frame of a line that departs at `departure` to its limit, which is closed, was not
    /// used since the wire changed, or shares buckets, and brings the next frame of the line to the
    /// front at `at`. Returns the departure, or `None` if the frame must wait for a subtree: it is
    /// then the first of its line again, as if it had not had its turn.
    #[inline(never)]
    pub(super) fn charge_other(
        &mut self,
        guest: &mut Guest,
        line: &mut Line,
        index: LineIndex,
        frame: Departing,
    ) -> Option<Position> {
        let Departing {
            at,
            departure,
            wire,
        } = frame;
        let limit = line.limit.as_mut()?;
        let mut has_turn = false;
        if limit.sharing != Sharing::Alone {
            let sight = self.wire.sight();
            let tree = guest.lines.tree.as_deref_mut();
            let charged = match (limit.sharing, tree) {
                (Sharing::Below { leaf, node }, Some(tree)) => {
                    tree.charge(leaf, node, frame, sight)
                }
                _ => Err(Wait::Unplaced),
            };
            match charged {
                Ok(turn) => has_turn = turn,
                Err(wait) => {
                    self.wait_in_tree(guest, line, index, at, wait);
                    return None;
                }
            }
        }
        if limit.account.is_open(self.wire.change()) {
            limit.account.charge_open(departure, wire);
        } else {
            limit.account.charge(departure, wire, self.wire.change());
        }
        if has_turn {
            self.pass_turn_on(guest, line, index, frame);
        } else {
            self.follow_up(guest, line, index, at);
        }
        Some(departure)
    }

    /// Takes a line, the first of its guest's round, out of it: its first frame, which has just had
    /// its turn at `at`, must wait for a subtree.
    #[inline(never)]
    fn wait_in_tree(
        &mut self,
        guest: &mut Guest,
        line: &mut Line,
        index: LineIndex,
        at: Position,
        wait: Wait,
    ) {
        guest.round.pop(&self.links, line.weight);
        guest.backlog.released -= line.wire;
        let is_local = self.store.at(guest.stamped).is_local;
        let wire = put_back(line, &self.store, guest.stamped);
        guest.take_back(wire, at, is_local);
        line.held_back = true;
        guest.stats.held_back += 1;
        line.stage = Stage::InTree;
        let Some(limit) = &mut line.limit else { return };
        limit.wait(&mut self.began);
        limit.taken = limit.taken.saturating_sub(wire);
        if let Some(tree) = &guest.lines.tree
            && wait != Wait::Unplaced
            && let Some(leaf) = limit.leaf()
        {
            line.weight = tree.weight_of(leaf);
        }
        match wait {
            Wait::InTree => {}
            Wait::Until(release) => self.wake(Wake {
                line: index,
                at: release,
            }),
            Wait::Unplaced => line.stage = Stage::Closed,
        }
    }

    /// Lets the wheel release a line of a tree.
    fn wake(&mut self, wake: Wake) {
        let floor = self.wire.start();
        self.releases.insert(wake.line, wake.at, floor);
    }

    /// Brings the next frame of a line to the front, after the first one has departed and used turns
    /// in the tree, and passes these on. The line is the first of the guest's round.
    #[inline(never)]
    fn pass_turn_on(
        &mut self,
        guest: &mut Guest,
        line: &mut Line,
        index: LineIndex,
        frame: Departing,
    ) {
        let Departing {
            departure, wire, ..
        } = frame;
        let Some(leaf) = line.limit.as_ref().and_then(Limit::leaf) else {
            return;
        };
        guest.round.pop(&self.links, line.weight);
        if let Some(tree) = &mut guest.lines.tree {
            tree.count(leaf, wire, line.deficit);
            line.weight = tree.weight_of(leaf);
        }
        let next = self.bring_next(guest, line, index, departure);
        let Some(tree) = &mut guest.lines.tree else {
            return;
        };
        let sight = self.wire.sight();
        let floor = self.wire.start();
        let releases = &mut self.releases;
        let mut own = false;
        tree.pass_on(leaf, next, departure, sight, |wake| {
            if wake.line == index && wake.at == departure {
                own = true;
            } else {
                releases.insert(wake.line, wake.at, floor);
            }
        });
        if own {
            self.take_turn(guest, line, index);
        }
    }

    /// Brings the next frame of a line to the front at `at`. Returns its length if it conforms to the
    /// limit of the line; the line then waits in the tree.
    fn bring_next(
        &mut self,
        guest: &mut Guest,
        line: &mut Line,
        index: LineIndex,
        at: Position,
    ) -> Option<WireBytes> {
        if !line.is_empty() || line.advance(&mut self.store) {
            let head = self.store.at(line.head());
            if line.is_late(head, guest.patience, self.wire.now()) {
                self.judge(guest, line);
            }
        }
        if line.is_empty() {
            if line.stage != Stage::Empty {
                line.stage = Stage::Empty;
                guest.lines.busy -= 1;
            }
            return None;
        }
        guest.backlog.released -= line.wire;
        guest.stats.held_back += 1;
        let head = self.store.at(line.head());
        let (arrival, wire) = (head.arrival, head.wire);
        if !self.check_limit(line, index, at.max(arrival), wire) {
            return None;
        }
        line.stage = Stage::InTree;
        line.held_back = true;
        if let Some(limit) = &mut line.limit {
            limit.wait(&mut self.began);
        }
        Some(wire)
    }

    /// Adds a line to its guest's round that has the turn of a node, and whose frame conforms to it.
    pub(super) fn take_turn(&mut self, guest: &mut Guest, line: &mut Line, index: LineIndex) {
        let leaf = line.limit.as_ref().and_then(Limit::leaf);
        let (Some(tree), Some(leaf)) = (&mut guest.lines.tree, leaf) else {
            return;
        };
        line.stage = Stage::Released;
        line.release = tree.leave(leaf);
        (line.weight, line.deficit) = tree.terms_of(leaf);
        guest.backlog.released += line.wire;
        if line.deficit > 0 {
            guest.round.push_front(&mut self.links, index, line.weight);
        } else {
            guest.round.push(&mut self.links, index, line.weight);
        }
        if guest.stamped.is_none() {
            self.stamp_first(guest, line, index, line.release);
        }
    }

    /// Lets the lines of a guest's round have their turns, from `at` on, until one of them has a
    /// frame that departs, or none is left.
    #[inline(never)]
    pub(super) fn stamp_next(
        &mut self,
        guest: &mut Guest,
        lines: &mut Table<LineIndex, Line>,
        longest: WireBytes,
        at: Position,
    ) {
        while guest.stamped.is_none()
            && let Some((index, line)) = guest.round.turn(lines, &mut self.links, longest)
        {
            self.stamp_first(guest, line, index, at.max(line.release));
        }
    }

    /// Takes a line that waits in the tree of its guest, or has a turn there, out of all lists.
    /// Other lines continue in its place.
    pub(super) fn retreat(
        &mut self,
        guest: &mut Guest,
        line: &mut Line,
        index: LineIndex,
        at: Position,
    ) {
        let Some((leaf, has_turn)) = self.leave_tree(guest, line, index) else {
            return;
        };
        let sight = self.wire.sight();
        let floor = self.wire.start();
        let releases = &mut self.releases;
        if let Some(tree) = &mut guest.lines.tree
            && has_turn
        {
            tree.pass_on(leaf, None, at, sight, |wake| {
                releases.insert(wake.line, wake.at, floor);
            });
        }
    }

    /// Takes a line out of all lists if it waits in the tree of its guest, or has a turn there. It
    /// keeps its turns: returns its leaf and whether it has any.
    pub(super) fn leave_tree(
        &mut self,
        guest: &mut Guest,
        line: &mut Line,
        index: LineIndex,
    ) -> Option<(EntryIndex, bool)> {
        let (leaf, tree) = shared_of(guest.lines.tree.as_deref_mut(), line)?;
        let has_turn = tree.has_turn(leaf);
        match line.stage {
            Stage::InTree => {
                if tree.withdraw(leaf) {
                    self.releases.remove(index);
                }
            }
            Stage::Released if has_turn => {
                guest.round.remove(&mut self.links, index, line.weight);
                guest.backlog.released -= line.wire;
                line.weight = tree.weight_of(leaf);
            }
            _ => return None,
        }
        line.stage = Stage::Closed;
        Some((leaf, has_turn))
    }

    /// Changes the rate of a line in the tree of its guest at `at`, after its limit has changed.
    pub(super) fn set_rate_in_tree(
        &mut self,
        guest: &mut Guest,
        line: &mut Line,
        rate: Rate,
        weight: u32,
        at: Position,
    ) {
        let Some((leaf, tree)) = shared_of(guest.lines.tree.as_deref_mut(), line) else {
            return;
        };
        let (releases, floor) = (&mut self.releases, self.wire.start());
        let sight = self.wire.sight();
        tree.set_rate(leaf, rate, weight, at, sight, |wake, is_in_wheel| {
            if is_in_wheel {
                releases.remove(wake.line);
            }
            releases.insert(wake.line, wake.at, floor);
        });
        if line.stage == Stage::Released && tree.has_turn(leaf) {
            let before = std::mem::replace(&mut line.weight, tree.terms_of(leaf).0);
            guest.round.reweigh(before, line.weight);
        }
    }

    /// Checks whether the first frame of a line that waits in the tree, or has a turn there, still
    /// conforms to the limit of the line at `at`.
    pub(super) fn conforms_in_tree(&mut self, line: &mut Line, at: Position) -> bool {
        let wire = self.store.at(line.head()).wire;
        let sight = self.wire.sight();
        line.limit.as_mut().is_none_or(|limit| {
            let checked = limit.account.check(at, wire, sight);
            checked.is_ok()
        })
    }
}

/// Returns the tree of a guest and the leaf of a line in it.
fn shared_of<'t>(tree: Option<&'t mut Tree>, line: &Line) -> Option<(EntryIndex, &'t mut Tree)> {
    Some((line.limit.as_ref()?.leaf()?, tree?))
}

/// Checks whether a line waits in the tree of its guest, or has a turn there.
pub(super) fn is_in_tree(guest: &Guest, line: &Line) -> bool {
    let Some(limit) = &line.limit else {
        return false;
    };
    match (line.stage, &guest.lines.tree) {
        (Stage::InTree, _) => true,
        (Stage::Released, Some(tree)) => limit.leaf().is_some_and(|leaf| tree.has_turn(leaf)),
        _ => false,
    }
}
