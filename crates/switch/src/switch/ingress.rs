//! Whether a guest's port is read.

use tailbound_units::Nanos;

/// Whether a guest's port is read. Where it is not, its queue fills, and the guest
/// notices.
#[derive(Debug, Default)]
pub(super) struct Ingress {
    /// The uplink's guarantee is what its frames wait for: until the pacer says that it
    /// is to be read again.
    crowded: bool,
    /// As much waits for the guest's limit as may.
    limited: bool,
    /// Frames of its last burst were dropped, for want of room or as they may not be
    /// sent: until then the next ones stay where they cost little.
    throttled_until: Option<Nanos>,
    /// Nothing more is to be received, until that is undone.
    drained: bool,
}

impl Ingress {
    /// What was received is forwarded, and the port is read unless it is drained.
    pub(super) const fn is_open(&self) -> bool {
        !self.crowded && !self.limited && self.throttled_until.is_none()
    }

    /// When there is something to do; `None` while time alone changes nothing.
    pub(super) const fn poll_at(&self) -> Option<Nanos> {
        self.throttled_until
    }

    /// Ends what ends at `now`.
    pub(super) fn handle_timeout(&mut self, now: Nanos) {
        self.throttled_until = self.throttled_until.filter(|until| *until > now);
    }

    /// Whether it is left unread for the guest's guarantee.
    pub(super) const fn is_crowded(&self) -> bool {
        self.crowded
    }

    /// Whether the guest's guarantee is what its frames wait for.
    pub(super) const fn set_crowded(&mut self, crowded: bool) {
        self.crowded = crowded;
    }

    /// Whether it is left unread for the guest's limit.
    pub(super) const fn is_limited(&self) -> bool {
        self.limited
    }

    /// Whether as much waits for the guest's limit as may.
    pub(super) const fn set_limited(&mut self, limited: bool) {
        self.limited = limited;
    }

    /// Whether nothing more is to be received.
    pub(super) const fn is_drained(&self) -> bool {
        self.drained
    }

    /// Sets whether nothing more is to be received.
    pub(super) const fn set_drained(&mut self, drained: bool) {
        self.drained = drained;
    }

    /// Leaves the port unread until then.
    pub(super) const fn throttle(&mut self, until: Nanos) {
        self.throttled_until = Some(until);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_read_when_no_reason_against_it_is_left() {
        let mut ingress = Ingress::default();
        assert!(ingress.is_open());
        ingress.set_crowded(true);
        ingress.throttle(Nanos(5));
        ingress.set_crowded(false);
        ingress.handle_timeout(Nanos(4));
        assert!(!ingress.is_open());
        assert_eq!(ingress.poll_at(), Some(Nanos(5)));
        ingress.handle_timeout(Nanos(5));
        assert!(ingress.is_open());
    }
}
