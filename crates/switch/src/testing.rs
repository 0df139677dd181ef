//! The filter against spoofing, for tests of other crates that compare another one with it.

use crate::filter::{AddressBook, Configured, Sender, SpoofFilter};
use crate::forward::Forwarding;
use crate::index::PortIndex;
use crate::mac::Mac;
use crate::reason::Reason;
use tailbound_dataplane::GuestId;
use tailbound_dataplane::testing::packet_from;
use tailbound_units::Nanos;

/// A guest and its neighbour on one host, of which only the guest sends.
#[derive(Debug)]
pub struct FilteredGuest {
    filter: SpoofFilter,
    book: AddressBook,
    forwarding: Forwarding,
}

impl FilteredGuest {
    const PORT: PortIndex = PortIndex(1);

    /// A guest that has sent nothing yet.
    pub fn new(
        mac: Mac,
        filter: SpoofFilter,
        neighbour: Mac,
        neighbour_filter: &SpoofFilter,
    ) -> Self {
        let mut configured = Configured::default();
        configured.add(Self::guest(), &filter);
        configured.add(GuestId::first(0), neighbour_filter);
        let mut book = AddressBook::default();
        book.reconfigure(configured);
        let pinned = [(neighbour, PortIndex(0)), (mac, Self::PORT)];
        Self {
            filter,
            book,
            forwarding: Forwarding::new(2, None, pinned),
        }
    }

    const fn guest() -> GuestId {
        GuestId::first(1)
    }

    /// Checks a frame that the guest sends at `now`.
    ///
    /// # Errors
    /// The reason for which it is dropped.
    pub fn check(&mut self, now: Nanos, frame: &[u8]) -> Result<(), Reason> {
        let packet = packet_from(frame, None, None).map_err(|_| Reason::Malformed)?;
        let mut sender = Sender {
            now,
            guest: Self::guest(),
            port: Self::PORT,
            book: &mut self.book,
            forwarding: &self.forwarding,
        };
        self.filter.check(&packet, &mut sender)
    }
}
