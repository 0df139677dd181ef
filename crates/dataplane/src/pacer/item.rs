//! Items on the wire.

use tailbound_units::{Nanos, Position, WireBytes};

/// Next item on the wire. [`super::Batch::clock`] converts its positions into times.
#[derive(Debug)]
pub enum WireItem<F> {
    /// A frame of a guaranteed guest.
    Guaranteed {
        /// The frame.
        frame: F,
        /// Its departure time: it may not begin earlier.
        departure: Position,
        /// Position at which it begins.
        at: Position,
        /// Time that it waited, up to its batch.
        sojourn: Nanos,
    },
    /// A frame without a guarantee.
    BestEffort {
        /// The frame.
        frame: F,
        /// Position at which it begins.
        at: Position,
        /// Time that it waited, up to its batch.
        sojourn: Nanos,
    },
    /// A frame of a guaranteed guest beyond its guarantee, of a flow that is elastic.
    Elastic {
        /// The frame.
        frame: F,
        /// Position at which it begins.
        at: Position,
        /// Time that it waited, up to its batch.
        sojourn: Nanos,
    },
    /// A frame of a guaranteed guest to another guest of this host: not for the wire.
    Local {
        /// The frame.
        frame: F,
        /// Its departure time, at most a batch from now.
        departure: Position,
        /// Time that it waited, up to its batch.
        sojourn: Nanos,
    },
    /// A void frame: see [`super::VoidFrame`].
    Void {
        /// Its bytes on the wire.
        wire: WireBytes,
        /// Position at which it begins.
        at: Position,
    },
}
