//! Reading state of a guest's port.

use tailbound_units::Nanos;

/// The reasons for which a guest's port is unread. Then its queue fills, and the guest notices.
#[derive(Debug, Default)]
pub(super) struct Ingress {
    /// The guest's frames wait for its guarantee on the uplink, until the pacer requests more.
    crowded: bool,
    /// The guest's limit holds the maximum.
    limited: bool,
    /// Frames of the last burst were dropped, because a queue was full or they were forbidden:
    /// until this time the next ones stay in the guest's queue, where they cost little.
    throttled_until: Option<Nanos>,
    /// The port is drained, until that is undone.
    drained: bool,
}

impl Ingress {
    /// Returns true if received frames are forwarded, and the port is read unless it is drained.
    pub(super) const fn is_open(&self) -> bool {
        !self.crowded && !self.limited && self.throttled_until.is_none()
    }

    /// Returns the time of the next change; `None` if time alone changes nothing.
    pub(super) const fn poll_at(&self) -> Option<Nanos> {
        self.throttled_until
    }

    /// Ends the throttling that is over at `now`.
    pub(super) fn handle_timeout(&mut self, now: Nanos) {
        self.throttled_until = self.throttled_until.filter(|until| *until > now);
    }

    /// Returns true if the port is unread for the guest's guarantee.
    pub(super) const fn is_crowded(&self) -> bool {
        self.crowded
    }

    /// Sets whether the guest's frames wait for its guarantee.
    pub(super) const fn set_crowded(&mut self, crowded: bool) {
        self.crowded = crowded;
    }

    /// Returns true if the port is unread for the guest's limit.
    pub(super) const fn is_limited(&self) -> bool {
        self.limited
    }

    /// Sets whether the guest's limit holds the maximum.
    pub(super) const fn set_limited(&mut self, limited: bool) {
        self.limited = limited;
    }

    /// Returns true if the port is drained.
    pub(super) const fn is_drained(&self) -> bool {
        self.drained
    }

    /// Sets whether the port is drained.
    pub(super) const fn set_drained(&mut self, drained: bool) {
        self.drained = drained;
    }

    /// Leaves the port unread until this time.
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
