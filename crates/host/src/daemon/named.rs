//! Lookup of the guest that a request names.

use crate::socket::{Outcome, Reply};
use tailbound_dataplane::GuestId;
use tailbound_switch::Switch;

/// Returns a guest by its name; if there is none, the request is refused.
pub(super) fn guest_named(switch: &Switch, name: &str, reply: Reply) -> Option<(GuestId, Reply)> {
    let mut guests = switch.guests();
    if let Some((id, _)) = guests.find(|(_, known)| *known == name) {
        return Some((id, reply));
    }
    refuse_unknown(switch, name, reply);
    None
}

/// Refuses a request for a guest that does not exist, with the nearest name.
pub(super) fn refuse_unknown(switch: &Switch, name: &str, reply: Reply) {
    let known: Vec<_> = switch.guests().map(|(_, name)| name).collect();
    let unknown = tailbound_document::unknown_word("guest", name, &known);
    reply.done(Outcome::refused(unknown));
}
