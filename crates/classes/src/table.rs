//! Table of the classes of traffic.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A class of a fabric, in order of priority.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// Guaranteed traffic: every computed bound is for this class.
    Guaranteed,
    /// Small flows (*Small is Better*, 4.3).
    Small,
    /// All other traffic.
    #[default]
    Lowest,
}

/// The classes of a fabric and their order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Fabric {
    /// Two classes: guaranteed traffic, then the rest.
    #[default]
    GuaranteesFirst,
    /// Two classes: small flows, then the rest. Delays cannot be promised, because the sum of all
    /// hosts' small flows is unbounded.
    SmallFlowsFirst,
    /// Three classes: guaranteed traffic, small flows, then the rest. Switches with more queues
    /// use three of them.
    ThreeClasses,
}

/// Kind of traffic that a frame belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Traffic {
    /// A conforming frame of a guest with a guarantee to a VM of its tenant.
    Guaranteed,
    /// A frame of a small flow, within the flow's token bucket and its guest's budget.
    SmallFlow,
    /// Any other frame of best effort.
    Bulk,
    /// A frame of a guaranteed guest beyond its guarantee, on an idle link.
    Elastic,
    /// A frame to a multicast or broadcast address. No guarantee accounts for the copies that
    /// switches make.
    Group,
    /// A frame of a guaranteed guest to a VM that no host announced. The rates of the senders to
    /// that VM are not coordinated.
    Unannounced,
}

impl Class {
    /// All classes in order of priority.
    pub const ALL: [Self; 3] = [Self::Guaranteed, Self::Small, Self::Lowest];

    /// Returns the name of the class in files and metrics.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Guaranteed => "guaranteed",
            Self::Small => "small",
            Self::Lowest => "lowest",
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl Traffic {
    /// All kinds, in the order of the table.
    pub const ALL: [Self; 6] = [
        Self::Guaranteed,
        Self::SmallFlow,
        Self::Bulk,
        Self::Elastic,
        Self::Group,
        Self::Unannounced,
    ];

    /// Returns a description of the traffic.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Guaranteed => "conforming frames of a guaranteed guest",
            Self::SmallFlow => "small flows of best effort",
            Self::Bulk => "other frames of best effort",
            Self::Elastic => "elastic flows of a guaranteed guest",
            Self::Group => "frames to a group",
            Self::Unannounced => "frames to a machine nobody announced",
        }
    }
}

impl Fabric {
    /// All fabrics, in the order of the table.
    pub const ALL: [Self; 3] = [
        Self::GuaranteesFirst,
        Self::SmallFlowsFirst,
        Self::ThreeClasses,
    ];

    /// Returns the class of `traffic`. `None` means that the fabric has no class for guarantees:
    /// the frame counts as best effort, and the size of its flow decides.
    pub const fn class_of(self, traffic: Traffic) -> Option<Class> {
        match (self, traffic) {
            (Self::GuaranteesFirst | Self::ThreeClasses, Traffic::Guaranteed) => {
                Some(Class::Guaranteed)
            }
            (Self::SmallFlowsFirst, Traffic::Guaranteed) => None,
            (Self::SmallFlowsFirst | Self::ThreeClasses, Traffic::SmallFlow) => Some(Class::Small),
            (Self::GuaranteesFirst, Traffic::SmallFlow)
            | (_, Traffic::Bulk | Traffic::Elastic | Traffic::Group | Traffic::Unannounced) => {
                Some(Class::Lowest)
            }
        }
    }

    /// Returns whether the fabric has this class.
    pub fn has(self, class: Class) -> bool {
        let mut classes = Traffic::ALL.into_iter().filter_map(|it| self.class_of(it));
        classes.any(|other| other == class)
    }

    /// Returns whether delays can be promised, because guarantees have a class of their own.
    pub const fn promises_delays(self) -> bool {
        self.class_of(Traffic::Guaranteed).is_some()
    }

    /// Returns the name of the fabric in files.
    pub const fn word(self) -> &'static str {
        match self {
            Self::GuaranteesFirst => "guarantees-first",
            Self::SmallFlowsFirst => "small-flows-first",
            Self::ThreeClasses => "three-classes",
        }
    }
}

impl fmt::Display for Fabric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guarantees_have_a_class_of_their_own_wherever_delays_are_promised() {
        for fabric in Fabric::ALL {
            let with = Traffic::ALL.map(|traffic| fabric.class_of(traffic));
            let alone = with.iter().filter(|at| **at == Some(Class::Guaranteed));
            assert_eq!(alone.count(), usize::from(fabric.promises_delays()));
            assert_eq!(fabric.has(Class::Guaranteed), fabric.promises_delays());
            assert!(fabric.has(Class::Lowest));
        }
    }

    /// The documentation has this table, row by row.
    #[test]
    fn the_documentation_has_this_table() {
        let documentation = include_str!("../../../docs/reference/classes.md");
        for traffic in Traffic::ALL {
            let classes = Fabric::ALL.map(|fabric| match fabric.class_of(traffic) {
                Some(class) => class.word(),
                None => "by its flow's size",
            });
            let row = format!("| {} | {} |", traffic.words(), classes.join(" | "));
            assert!(
                documentation.contains(&row),
                "docs/reference/classes.md lacks {row}"
            );
        }
    }
}
