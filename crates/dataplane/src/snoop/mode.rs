//! Modes of connections: early acknowledgement, or the reason against it.

use super::segment::Exotic;

/// Early acknowledgement of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// The host acknowledges for the guest.
    Active,
    /// The host does not acknowledge at present.
    Offline(Pause),
    /// The host never acknowledges again.
    Off(Bar),
}

/// Reason why a connection is offline at present.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Pause {
    /// No data has arrived yet, or the guest has sent no segment since its SYN-ACK.
    Opening,
    /// A segment was not next in order.
    UnexpectedSequence,
    /// A segment was next in order, and the guest may have data behind it.
    Hole,
    /// The guest's ring was full.
    NoRoom,
    /// The memory limit of retained data was reached.
    Retained,
    /// A segment was beyond the window.
    Window,
    /// A segment was marked for congestion, until the peer confirms with CWR.
    Congestion,
    /// A timestamp was old or missing (PAWS, RFC 7323).
    Timestamp,
    /// A checksum was wrong.
    Checksum,
    /// A segment acknowledged bytes that the guest has not sent, or was too old (RFC 5961).
    Acknowledgement,
    /// A segment had URG.
    Urgent,
    /// A TCP header could not be parsed.
    Unreadable,
    /// An end is closing.
    Closing,
    /// Early acknowledgement of the guest is draining.
    Draining,
}

/// Reason why a connection is off for good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Bar {
    /// The connection existed before: the scale of its windows is not known.
    Joined,
    /// A segment had this option.
    Option(Exotic),
    /// Data came with the SYN.
    DataOnSyn,
}

impl Pause {
    /// All reasons, each at its number.
    pub const ALL: [Self; 14] = [
        Self::Opening,
        Self::UnexpectedSequence,
        Self::Hole,
        Self::NoRoom,
        Self::Retained,
        Self::Window,
        Self::Congestion,
        Self::Timestamp,
        Self::Checksum,
        Self::Acknowledgement,
        Self::Urgent,
        Self::Unreadable,
        Self::Closing,
        Self::Draining,
    ];

    /// Label of the reason.
    pub const fn label(self) -> &'static str {
        Mode::Offline(self).label()
    }
}

impl Mode {
    /// All labels of [`Mode::label`].
    pub const LABELS: [&'static str; 22] = [
        "active",
        "opening",
        "unexpected_sequence",
        "hole",
        "no_room",
        "retained",
        "window",
        "congestion",
        "timestamp",
        "checksum",
        "acknowledgement",
        "urgent",
        "unreadable",
        "closing",
        "draining",
        "joined",
        "data_on_syn",
        "md5",
        "authentication_option",
        "multipath",
        "fast_open",
        "unknown_option",
    ];

    /// Index in [`Mode::LABELS`].
    pub const fn index(self) -> usize {
        match self {
            Self::Active => 0,
            Self::Offline(pause) => 1 + pause as usize,
            Self::Off(Bar::Joined) => 15,
            Self::Off(Bar::DataOnSyn) => 16,
            Self::Off(Bar::Option(exotic)) => 17 + exotic as usize,
        }
    }

    /// Returns the mode of an index in [`Mode::LABELS`].
    pub(super) fn of_index(index: usize) -> Option<Self> {
        const EXOTIC: [Exotic; 5] = [
            Exotic::Md5,
            Exotic::AuthenticationOption,
            Exotic::Multipath,
            Exotic::FastOpen,
            Exotic::Unknown,
        ];
        let pauses = Pause::ALL.into_iter().map(Self::Offline);
        let bars = [Bar::Joined, Bar::DataOnSyn].into_iter();
        let bars = bars
            .chain(EXOTIC.into_iter().map(Bar::Option))
            .map(Self::Off);
        let mut all = std::iter::once(Self::Active).chain(pauses).chain(bars);
        all.find(|mode| mode.index() == index)
    }

    /// Label of the mode.
    pub const fn label(self) -> &'static str {
        Self::LABELS[self.index()]
    }
}
