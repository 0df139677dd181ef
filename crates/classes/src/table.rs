//! The table.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A class of a fabric, in the order in which switches serve them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// For what is guaranteed: every bound is that of this class.
    Guaranteed,
    /// For small flows (Small is Better, 4.3).
    Small,
    /// For everything else.
    #[default]
    Lowest,
}

/// What switches serve first, in as many classes as they have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Fabric {
    /// Two classes: what is guaranteed, then the rest.
    #[default]
    GuaranteesFirst,
    /// Two classes: small flows, then the rest. No delay can be promised, since nothing
    /// bounds what small flows of many hosts are together.
    SmallFlowsFirst,
    /// Three classes: what is guaranteed, small flows, then the rest. Switches with more
    /// classes use three of them.
    ThreeClasses,
}

/// What a frame is to the fabric.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Traffic {
    /// A frame of a guest with a guarantee, sent when the guarantee allows it, to a
    /// machine that the guarantee extends to.
    Guaranteed,
    /// A frame of a small flow: within its flow's bucket and its guest's budget.
    SmallFlow,
    /// Any other frame of best effort.
    Bulk,
    /// A frame that a guest with a guarantee sends beyond it, on a link that is idle.
    Elastic,
    /// A frame to a group, broadcast included: switches multiply it, and no guarantee
    /// counts that.
    Group,
    /// A frame of a guest with a guarantee to a machine that nobody announced: it is in
    /// no sum over the senders to that machine.
    Unannounced,
}

impl Class {
    /// All classes, first served first.
    pub const ALL: [Self; 3] = [Self::Guaranteed, Self::Small, Self::Lowest];

    /// Returns the word for it in files and metrics.
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

    /// Returns what it is, in words.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Guaranteed => "conforming frames of a guaranteed guest",
            Self::SmallFlow => "small flows of best effort",
            Self::Bulk => "other frames of best effort",
            Self::Elastic => "elastic flows of a guaranteed guest",
            Self::Group => "frames to a group",
            Self::Unannounced => "frames to a machine that no host announced",
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

    /// Returns the class in which `traffic` travels; `None` where the fabric has no
    /// class for guarantees, so that the frame is treated as one of best effort: its
    /// flow's size decides.
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

    /// Returns whether any traffic travels in this class.
    pub fn has(self, class: Class) -> bool {
        let mut classes = Traffic::ALL.into_iter().filter_map(|it| self.class_of(it));
        classes.any(|other| other == class)
    }

    /// Returns whether a delay can be promised: guarantees have a class of their own.
    pub const fn promises_delays(self) -> bool {
        self.class_of(Traffic::Guaranteed).is_some()
    }

    /// Returns the word for it in files.
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
