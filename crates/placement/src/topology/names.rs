//! Look-up of a node by name, in constant time.

use super::{Node, NodeId};
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};

/// The numbers of nodes by the hashes of their names, which stay in the nodes:
/// some six bytes a node.
#[derive(Debug, Clone)]
pub(super) struct Names(HashTable<u32>);

fn hash(name: &str) -> u64 {
    BuildHasherDefault::<DefaultHasher>::default().hash_one(name)
}

impl Names {
    /// Makes the index of all names. The error is the first node with the name of an earlier one.
    pub(super) fn new(nodes: &[Node]) -> Result<Self, NodeId> {
        let name = |number: u32| &*nodes[number as usize].name;
        let mut table = HashTable::with_capacity(nodes.len());
        for number in 0..nodes.len() as u32 {
            let same = |other: &u32| name(*other) == name(number);
            match table.entry(hash(name(number)), same, |other| hash(name(*other))) {
                Entry::Occupied(_) => return Err(NodeId(number)),
                Entry::Vacant(place) => {
                    place.insert(number);
                }
            }
        }
        Ok(Self(table))
    }

    pub(super) fn find(&self, nodes: &[Node], name: &str) -> Option<NodeId> {
        let same = |number: &u32| *nodes[*number as usize].name == *name;
        self.0.find(hash(name), same).copied().map(NodeId)
    }
}
