//! Whether a connection is answered for, and why not.

use super::segment::Exotic;

/// Whether the host acknowledges for the guest on a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// It does.
    Active,
    /// It does not, for now.
    Offline(Pause),
    /// It never does again.
    Off(Bar),
}

/// Why a connection is offline for now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Pause {
    /// Nothing came yet that could be acknowledged, or the guest has not spoken since its
    /// SYN-ACK.
    Opening,
    /// What came was not next in order.
    UnexpectedSequence,
    /// What came was next, and the guest may have data behind it already.
    Hole,
    /// The guest's ring was full.
    NoRoom,
    /// As much is kept as may be.
    Retained,
    /// It was beyond the window.
    Window,
    /// The network met congestion, until the peer says that it knows (CWR).
    Congestion,
    /// Its timestamp was old or missing (PAWS, RFC 7323).
    Timestamp,
    /// Its checksum was wrong.
    Checksum,
    /// It acknowledged what the guest has not sent, or was too old (RFC 5961).
    Acknowledgement,
    /// It was urgent.
    Urgent,
    /// Its header could not be understood.
    Unreadable,
    /// An end closes.
    Closing,
    /// The guest is to leave, or early acknowledgement is to end.
    Draining,
}

/// Why a connection is off for good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Bar {
    /// It was there before: its windows' scale is not known.
    Joined,
    /// By an option.
    Option(Exotic),
    /// Data came with SYN.
    DataOnSyn,
}

impl Pause {
    /// All of them, each at its number.
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

    /// One word for it.
    pub const fn label(self) -> &'static str {
        Mode::Offline(self).label()
    }
}

impl Mode {
    /// All words that [`Mode::label`] has.
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

    /// Its place among [`Mode::LABELS`].
    pub const fn index(self) -> usize {
        match self {
            Self::Active => 0,
            Self::Offline(pause) => 1 + pause as usize,
            Self::Off(Bar::Joined) => 15,
            Self::Off(Bar::DataOnSyn) => 16,
            Self::Off(Bar::Option(exotic)) => 17 + exotic as usize,
        }
    }

    /// The one of a place among [`Mode::LABELS`].
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

    /// One word for it.
    pub const fn label(self) -> &'static str {
        Self::LABELS[self.index()]
    }
}
