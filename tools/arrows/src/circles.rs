//! Circles of imports among siblings.
//!
//! Siblings are modules with the same parent. One imports another when anything in it, or in a
//! module below it, needs anything in or below the other: by a `use`, by a path in the code, in a
//! macro or in an attribute. An item from a re-export counts for the module that defines it. A
//! parent and the modules below it do not count, nor does code for tests. Methods are not followed:
//! they need no name of the other module.

use crate::resolve::needed;
use crate::source::Modules;
use std::collections::{BTreeMap, BTreeSet};

/// Siblings that import each other, and by what.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Circle {
    /// Their names below the root.
    pub(crate) members: BTreeSet<String>,
    /// Lines with the importing module, the imported one, and the place.
    pub(crate) arrows: Vec<String>,
}

/// From one sibling to another: where, for each place.
type Arrows = BTreeMap<(usize, usize), Vec<String>>;

/// All circles of a crate, by the names of their members.
pub(crate) fn circles(modules: &Modules) -> Vec<Circle> {
    let arrows = arrows(modules);
    let mut below: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
    for (from, to) in arrows.keys() {
        below.entry(*from).or_default().insert(*to);
    }
    let reach: BTreeMap<usize, BTreeSet<usize>> = below
        .keys()
        .map(|start| (*start, reached(*start, &below)))
        .collect();
    let leads = |from: &usize, to: &usize| reach.get(from).is_some_and(|all| all.contains(to));
    let mut done: BTreeSet<usize> = BTreeSet::new();
    let mut circles = Vec::new();
    for start in below.keys().filter(|start| leads(start, start)) {
        if done.contains(start) {
            continue;
        }
        let members: BTreeSet<usize> = reach[start]
            .iter()
            .filter(|other| leads(other, start))
            .copied()
            .collect();
        done.extend(&members);
        circles.push(circle(modules, &arrows, &members));
    }
    circles
}

fn circle(modules: &Modules, arrows: &Arrows, members: &BTreeSet<usize>) -> Circle {
    let inside = |((from, to), _): &(&(usize, usize), &Vec<String>)| {
        members.contains(from) && members.contains(to)
    };
    let arrows = arrows.iter().filter(inside).map(|((from, to), places)| {
        let more = match places.len() {
            1 => String::new(),
            count => format!(" and {} more", count - 1),
        };
        format!(
            "{} -> {}: {}{more}",
            modules.path(*from),
            modules.path(*to),
            places[0]
        )
    });
    Circle {
        members: members.iter().map(|i| modules.path(*i)).collect(),
        arrows: arrows.collect(),
    }
}

/// Returns the modules that `start` reaches by one arrow or more.
fn reached(start: usize, below: &BTreeMap<usize, BTreeSet<usize>>) -> BTreeSet<usize> {
    let mut seen = BTreeSet::new();
    let mut open = vec![start];
    while let Some(next) = open.pop() {
        let targets = below.get(&next).into_iter().flatten();
        open.extend(targets.filter(|target| seen.insert(**target)));
    }
    seen
}

fn arrows(modules: &Modules) -> Arrows {
    let lines: Vec<_> = (0..modules.0.len()).map(|i| modules.line(i)).collect();
    let mut arrows = Arrows::new();
    for (from, module) in modules.0.iter().enumerate() {
        for mention in &module.mentions {
            for to in needed(modules, from, mention) {
                let Some(pair) = siblings(&lines[from], &lines[to]) else {
                    continue;
                };
                let place = format!(
                    "{}:{} {}",
                    module.file.display(),
                    mention.line,
                    mention.path.join("::")
                );
                let places = arrows.entry(pair).or_default();
                if !places.contains(&place) {
                    places.push(place);
                }
            }
        }
    }
    arrows
}

/// Returns the siblings at which two paths part; `None` if one path contains the other.
fn siblings(from: &[usize], to: &[usize]) -> Option<(usize, usize)> {
    let mut pairs = from.iter().zip(to);
    pairs
        .find(|(from, to)| from != to)
        .map(|(from, to)| (*from, *to))
}

#[cfg(test)]
mod tests;
