//! Limits of segments beyond a guest's window.

/// Limit of the segments in a guest's ring beyond its advertised window. The window opens as the
/// guest takes segments, in some stacks only as far as the application reads, in others without a
/// read.
///
/// A guest does not announce its behaviour. So the host starts with the highest limit, and lowers
/// it for all connections of the guest as soon as one loses a segment beyond its window.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Reach {
    /// No limit.
    #[default]
    All,
    /// The size of the largest unscaled window, together with the segments within the guest's
    /// window: stacks that advertise a small first window have room for this much before their
    /// application reads.
    Unscaled,
    /// No segments beyond the window.
    Window,
}

impl Reach {
    /// Maximum of unacknowledged bytes if some of them are beyond the window.
    #[inline]
    pub(super) const fn most(self) -> u32 {
        match self {
            Self::All => u32::MAX,
            Self::Unscaled => u16::MAX as u32,
            Self::Window => 0,
        }
    }

    /// Returns the next lower limit, for a guest that has lost segments.
    pub(super) const fn less(self) -> Self {
        match self {
            Self::All => Self::Unscaled,
            Self::Unscaled | Self::Window => Self::Window,
        }
    }

    pub(super) const fn number(self) -> u32 {
        self as u32
    }

    pub(super) const fn of_number(number: u32) -> Option<Self> {
        match number {
            0 => Some(Self::All),
            1 => Some(Self::Unscaled),
            2 => Some(Self::Window),
            _ => None,
        }
    }
}
