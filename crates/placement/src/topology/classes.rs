//! Delay classes: guaranteed classes of higher priority, with shorter queues.
//!
//! A port serves its guaranteed classes in strict order, above best effort. Without delay classes
//! there is one guaranteed class, whose frames wait at most for the whole buffer. Each delay class
//! has a queue of its own and a shorter wait, `queue`, at every port. [`Topology::of_class`] is the
//! tree with these queues: paths, delays and waits before ports are computed there as in a tree
//! without classes. [`crate::Datacentre`] sums the curves of a class and of all higher ones.
//!
//! ```text
//! d of a request ─► class_for: the lowest class that keeps d between two hosts ─► Guarantee::class
//! class ─► of_class: delays, waits before ports      ┐
//! class ─► Datacentre: sums of this and higher ones  ┴─► admission ─► mark on the hosts
//! ```

use super::{Port, Topology, backlog_limit};
use serde::{Deserialize, Serialize};
use tailbound_classes::{Class, Classes, Mark};
use tailbound_units::{Bytes, Nanos, Rate};

/// The largest number of delay classes.
pub const MAX_DELAY_CLASSES: usize = 2;

/// A guaranteed class above the ordinary one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = DelayClass))]
#[serde(deny_unknown_fields)]
pub struct DelayClassSpec {
    /// Longest wait of its frames at a port, at most that of any buffer.
    pub queue: Nanos,
    /// Mark of its frames.
    pub mark: Mark,
}

/// Contradiction of a delay class.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DelayClassError {
    /// There are too many.
    #[error("there are at most {MAX_DELAY_CLASSES} delay classes; remove this one")]
    Number,
    /// The fabric has no guaranteed class.
    #[error("the fabric serves small flows first, so no delay can be promised; remove the class")]
    Fabric,
    /// The mark does not fit its field.
    #[error("its mark is {0}; a DSCP is 0 to 63 and a PCP 0 to 7")]
    Range(Mark),
    /// Another class has an equal DSCP or PCP.
    #[error("its mark is {mark}, and that of {other} is {of_other}; use a different DSCP and PCP")]
    Same {
        /// The mark.
        mark: Mark,
        /// The other class.
        other: String,
        /// The mark of the other class.
        of_other: Mark,
    },
    /// The queue is not longer than that of a higher class.
    #[error(
        "its queue of {queue} is not longer than the {before} of the class before it; order the \
            classes by their queues, the shortest first"
    )]
    Order {
        /// The queue.
        queue: Nanos,
        /// The queue of the class before.
        before: Nanos,
    },
    /// The queue is longer than a port's buffer.
    #[error(
        "its queue of {queue} is longer than {buffer}, the time of the buffer of port {port:?}; \
            shorten the queue or enlarge the buffer"
    )]
    Buffer {
        /// The queue.
        queue: Nanos,
        /// The port.
        port: String,
        /// The time in which the port's link sends its buffer.
        buffer: Nanos,
    },
    /// The queue is too short for a frame.
    #[error(
        "its queue of {queue} is shorter than two frames at port {port:?}, one of its own and one \
            of a lower class on the wire: at least {least}"
    )]
    Short {
        /// The queue.
        queue: Nanos,
        /// The port.
        port: String,
        /// The least queue.
        least: Nanos,
    },
}

/// A limit that a queue breaks at some port.
pub(super) enum QueueLimit {
    Buffer { queue: Nanos, buffer: Nanos },
    Short { queue: Nanos, least: Nanos },
}

impl QueueLimit {
    /// Returns the error of the limit at a port.
    pub(super) fn at(self, port: String) -> DelayClassError {
        match self {
            Self::Buffer { queue, buffer } => DelayClassError::Buffer {
                queue,
                port,
                buffer,
            },
            Self::Short { queue, least } => DelayClassError::Short { queue, port, least },
        }
    }
}

impl DelayClassSpec {
    /// Returns a port with the queue of this class in place of the whole buffer.
    pub(super) fn port(&self, port: &Port, frame: Bytes) -> Result<Port, QueueLimit> {
        let queue = self.queue;
        if queue > port.capacity {
            let buffer = port.capacity;
            return Err(QueueLimit::Buffer { queue, buffer });
        }
        let parts = u64::from(port.parts);
        let link = Rate(port.rate / parts);
        let least = link.time_for(Bytes(2 * frame.0));
        if queue < least {
            return Err(QueueLimit::Short { queue, least });
        }
        Ok(Port {
            capacity: queue,
            backlog_limit: backlog_limit(link, queue, frame) * parts,
            ..*port
        })
    }
}

/// A delay class that contradicts the fabric or another class.
pub(super) struct WrongClass {
    pub(super) number: u8,
    pub(super) error: DelayClassError,
}

/// Checks the delay classes of a fabric by themselves.
pub(super) fn check(all: &[DelayClassSpec], classes: Classes) -> Result<(), WrongClass> {
    for (class, number) in all.iter().zip(1_u8..) {
        let place = usize::from(number) - 1;
        let checked = check_one(class, &all[..place], classes);
        checked.map_err(|error| WrongClass { number, error })?;
    }
    Ok(())
}

fn check_one(
    class: &DelayClassSpec,
    higher: &[DelayClassSpec],
    classes: Classes,
) -> Result<(), DelayClassError> {
    let DelayClassSpec { queue, mark } = *class;
    if higher.len() >= MAX_DELAY_CLASSES {
        return Err(DelayClassError::Number);
    }
    if !classes.fabric().promises_delays() {
        return Err(DelayClassError::Fabric);
    }
    if mark.dscp > 63 || mark.pcp > 7 {
        return Err(DelayClassError::Range(mark));
    }
    let higher_marks = higher.iter().zip(1_u8..);
    let higher_marks = higher_marks.map(|(it, number)| (format!("class {number}"), it.mark));
    let fabrics = Class::ALL.into_iter();
    let fabrics = fabrics.filter(|it| classes.fabric().has(*it));
    let fabrics = fabrics.map(|it| (format!("`{it}`"), classes.mark(it)));
    for (other, of_other) in higher_marks.chain(fabrics) {
        if mark.dscp == of_other.dscp || mark.pcp == of_other.pcp {
            return Err(DelayClassError::Same {
                mark,
                other,
                of_other,
            });
        }
    }
    match higher.last() {
        Some(DelayClassSpec { queue: before, .. }) if queue <= *before => {
            let before = *before;
            Err(DelayClassError::Order { queue, before })
        }
        _ => Ok(()),
    }
}

impl Topology {
    /// Returns the delay classes, the highest first.
    pub fn delay_classes(&self) -> &[DelayClassSpec] {
        &self.delay_classes
    }

    /// Returns this tree with the queues of a class, or itself for the ordinary class (`None`).
    /// `None` if there is no such class.
    pub fn of_class(&self, class: Option<u8>) -> Option<&Self> {
        match class {
            None => Some(self),
            Some(number) => self.urgent.get(usize::from(number).checked_sub(1)?),
        }
    }

    /// Returns the lowest class, which is the least scarce, in which some two hosts are within a
    /// delay of each other: `None` for the ordinary class. If there is none, it is the highest
    /// class.
    pub fn class_for(&self, delay: Nanos) -> Option<u8> {
        if self.urgent.is_empty() || self.shortest <= delay {
            return None;
        }
        let keeps = |tree: &Self| tree.shortest <= delay;
        let place = self.urgent.iter().rposition(keeps).unwrap_or(0);
        Some(place as u8 + 1)
    }

    /// Returns the number of guaranteed classes above that of a guarantee, and of all for a class
    /// that does not exist.
    pub(crate) fn rank(&self, class: Option<u8>) -> usize {
        let lowest = self.urgent.len();
        class.map_or(lowest, |number| {
            usize::from(number).saturating_sub(1).min(lowest)
        })
    }

    /// Returns this tree with the queues of the class with `rank` classes above it.
    #[inline]
    pub(crate) fn of_rank(&self, rank: usize) -> &Self {
        self.urgent.get(rank).unwrap_or(self)
    }
}
