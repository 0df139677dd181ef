//! From a path as it is written to the modules that it needs.

use crate::source::{Mention, Modules};
use std::collections::BTreeSet;

/// The target of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Target {
    Module(usize),
    /// Something that is defined in this module.
    Item(usize),
}

impl Target {
    const fn module(self) -> usize {
        match self {
            Self::Module(module) | Self::Item(module) => module,
        }
    }
}

/// A walk along one path; it ends where a re-export leads to itself.
struct Walk<'a> {
    modules: &'a Modules,
    /// Names that were looked up, and where.
    seen: BTreeSet<(usize, String)>,
    /// Modules that the path itself names.
    named: Vec<usize>,
    /// The name of the item that was found, in the module that defines it.
    item: Option<String>,
}

/// The module that defines the type that a path in `from` means, and the name of the type there.
/// `None` if it belongs to another crate.
pub(crate) fn definition(
    modules: &Modules,
    from: usize,
    path: &[String],
) -> Option<(usize, String)> {
    let mut walk = Walk::new(modules);
    match walk.path(from, path, false)? {
        Target::Item(module) => Some((module, walk.item?)),
        Target::Module(_) => None,
    }
}

/// The modules that something in `from` needs by this mention: those that its
/// path names, and the one where what it names is defined, however often it was
/// re-exported on the way. Nothing if it belongs to another crate.
pub(crate) fn needed(modules: &Modules, from: usize, mention: &Mention) -> BTreeSet<usize> {
    // A single word in small letters is a variable more often than not; what it
    // was imported by is counted on its own.
    if let [word] = mention.path.as_slice()
        && word.starts_with(|first: char| !first.is_uppercase())
    {
        return BTreeSet::new();
    }
    let mut walk = Walk::new(modules);
    let Some(target) = walk.path(from, &mention.path, true) else {
        return BTreeSet::new();
    };
    walk.named.into_iter().chain([target.module()]).collect()
}

impl<'a> Walk<'a> {
    const fn new(modules: &'a Modules) -> Self {
        Self {
            modules,
            seen: BTreeSet::new(),
            named: Vec::new(),
            item: None,
        }
    }

    fn path(&mut self, from: usize, path: &[String], written: bool) -> Option<Target> {
        let mut words = path.iter().peekable();
        let mut here = match words.peek()?.as_str() {
            "crate" | "self" | "super" => {
                let mut here = from;
                while let Some(word) = words.next_if(|word| is_relative(word)) {
                    here = match word.as_str() {
                        "crate" => 0,
                        "super" => self.modules.0[here].parent?,
                        _ => here,
                    };
                }
                here
            }
            _ => match self.name(from, words.next()?)? {
                Target::Module(module) => module,
                item @ Target::Item(_) => return Some(item),
            },
        };
        for word in words {
            if written {
                self.named.push(here);
            }
            match self.name(here, word) {
                Some(Target::Module(module)) => here = module,
                Some(item @ Target::Item(_)) => return Some(item),
                // A macro of ours may have made it.
                None => return Some(Target::Item(here)),
            }
        }
        Some(Target::Module(here))
    }

    fn name(&mut self, here: usize, name: &str) -> Option<Target> {
        if !self.seen.insert((here, name.to_owned())) {
            return None;
        }
        let module = &self.modules.0[here];
        if let Some(child) = module.children.get(name) {
            return Some(Target::Module(*child));
        }
        if module.items.contains(name) {
            self.item = Some(name.to_owned());
            return Some(Target::Item(here));
        }
        if let Some(path) = module.imports.get(name) {
            return self.path(here, path, false);
        }
        module.globs.iter().find_map(|path| {
            let Target::Module(other) = self.path(here, path, false)? else {
                return None;
            };
            self.name(other, name)
        })
    }
}

fn is_relative(word: &str) -> bool {
    matches!(word, "crate" | "self" | "super")
}
