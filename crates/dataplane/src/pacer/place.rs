//! Places of destinations, from which the buckets of subtrees follow (`tree`).

use super::chain::Chain;
use super::config::PacerConfig;
use super::guest::Guest;
use super::guests::{Guests, number_of};
use super::index::LineIndex;
use super::limit::Sharing;
use super::line::Stage;
use super::lines::Lines;
use super::round::weight;
use super::tree::{Home, Leaf, Place, Terms, Tree};
use crate::Frame;
use tailbound_units::{Bursts, Position};

/// Changes the place of a destination.
pub(super) fn set_place(
    guest: &mut Guest,
    lines: &mut Lines,
    destination: u128,
    place: Option<Place>,
) {
    let tree = &mut guest.lines.tree;
    if tree.is_none() && place.is_none() {
        return;
    }
    let of = &mut tree.get_or_insert_with(Tree::boxed).places.of;
    if of.get(&destination) == place.as_ref() {
        return;
    }
    match place {
        Some(place) => of.insert(destination, place),
        None => of.remove(&destination),
    };
    mark_stale(guest, lines);
}

/// Changes the place of a guest.
pub(super) fn set_home(guest: &mut Guest, lines: &mut Lines, home: Option<Home>) {
    let tree = &mut guest.lines.tree;
    if tree.is_none() && home.is_none() {
        return;
    }
    let places = &mut tree.get_or_insert_with(Tree::boxed).places;
    if places.home != home {
        places.home = home;
        mark_stale(guest, lines);
    }
}

/// Sets K of a guest whose guarantee has changed.
pub(super) fn set_bursts(guest: &mut Guest, lines: &mut Lines, bursts: Bursts) {
    if guest.lines.tree.is_some() || bursts.is_per_subtree() {
        let tree = guest.lines.tree.get_or_insert_with(Tree::boxed);
        tree.bursts = bursts;
        // S may have changed, too.
        mark_stale(guest, lines);
    }
}

/// Notes that the tree of a guest must be built anew, if it has one.
pub(super) fn mark_stale(guest: &mut Guest, lines: &mut Lines) {
    if let Some(tree) = &mut guest.lines.tree
        && !tree.is_stale
    {
        tree.is_stale = true;
        lines.note_stale(number_of(guest.id));
    }
}

impl<F: Frame> Chain<F> {
    /// Builds the trees anew whose places, destinations or bursts have changed.
    #[inline(never)]
    pub(super) fn rebuild_trees(
        &mut self,
        guests: &mut Guests,
        lines: &mut Lines,
        config: &PacerConfig,
    ) {
        for number in lines.take_stale() {
            if let Some(guest) = guests.get_mut(number) {
                rebuild_tree(guest, lines, self, config);
            }
        }
    }
}

fn rebuild_tree<F: Frame>(
    guest: &mut Guest,
    lines: &mut Lines,
    chain: &mut Chain<F>,
    config: &PacerConfig,
) {
    let at = chain.wire.start();
    let leaves = take_leaves(guest, lines, chain, at);
    let Some(tree) = guest.lines.tree.as_mut().filter(|it| it.is_stale) else {
        return;
    };
    let terms = Terms {
        link: config.link,
        longest: config.longest_frame(),
        guarantee: guest.guarantee,
        at,
        lost: chain.wire.lost(),
        change: *chain.wire.change(),
    };
    tree.build(&leaves, &terms, |line, sharing| {
        if let Some(limit) = lines.limit_mut(line) {
            limit.sharing = sharing;
            limit.account.share(sharing != Sharing::Alone);
        }
    });
    for leaf in leaves.iter().filter(|leaf| leaf.former != Sharing::Alone) {
        let line = lines.at_mut(leaf.line);
        if line.stage == Stage::Closed {
            chain.set_head((guest, line), leaf.line, at);
        }
    }
}

/// Returns all limited destinations of a guest. Their lines leave the tree.
fn take_leaves<F: Frame>(
    guest: &mut Guest,
    lines: &mut Lines,
    chain: &mut Chain<F>,
    at: Position,
) -> Vec<Leaf> {
    let wire = chain.wire.change().new;
    let mut leaves = Vec::with_capacity(guest.lines.limited as usize);
    let mut index = guest.lines.first;
    while index.is_some() {
        let line = lines.at_mut(index);
        chain.leave_tree(guest, line, index);
        let Some(limit) = &mut line.limit else { break };
        limit.account.translate(chain.wire.change());
        leaves.push(Leaf {
            line: index,
            destination: limit.key.destination,
            rate: limit.account.rate(),
            weight: weight(limit.account.open_rate(), wire),
            lacks: limit.account.lacks(at),
            lent: limit.lent,
            former: limit.sharing,
        });
        index = limit.sibling;
    }
    leaves
}

/// Keeps a new limit of a guest that shares buckets from sending, until its tree is built anew.
pub(super) fn join_tree(guest: &mut Guest, lines: &mut Lines, index: LineIndex) {
    if guest.lines.tree.is_some()
        && let Some(limit) = lines.limit_mut(index)
    {
        limit.sharing = Sharing::Unplaced;
        limit.account.share(true);
        mark_stale(guest, lines);
    }
}
