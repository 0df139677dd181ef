//! How far beyond a guest's window segments are placed.

/// What stands in a guest's ring beyond the window that it has shown: that opens as the guest
/// takes what comes, for some as far as its application reads, for some without that.
///
/// Nobody says which, so the host tries, and lowers this for all connections of the guest as soon
/// as one loses what was placed so.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Reach {
    /// Whatever comes.
    #[default]
    All,
    /// As much as the largest window that is not scaled, together with what stands within the
    /// guest's window: stacks that offer little at first have room for that before their
    /// application reads.
    Unscaled,
    /// Nothing.
    Window,
}

impl Reach {
    /// The most bytes that the guest has not acknowledged, of which some stand beyond its window.
    #[inline]
    pub(super) const fn most(self) -> u32 {
        match self {
            Self::All => u32::MAX,
            Self::Unscaled => u16::MAX as u32,
            Self::Window => 0,
        }
    }

    /// What is left where a guest has lost some of it.
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
