//! Reading state of a guest's port.

use tailbound_units::Nanos;

/// A time for which a guest's port is not read.
#[derive(Debug, Clone, Copy)]
struct Pause {
    until: Nanos,
    cause: Cause,
}

/// The cause of a pause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cause {
    /// Frames of its last burst were dropped, for want of room or as they may not be sent: until
    /// then the next ones stay where they cost little.
    Drops,
    /// Its port woke the loop for nothing too often: it is not waited for at all, neither for frames
    /// nor for room.
    Wakes,
}

/// State of reading a guest's port. While the port is not read, the guest's queue fills, and the
/// guest notices.
#[derive(Debug, Default)]
pub(super) struct Ingress {
    /// The guest's frames wait for its guarantee on the uplink, until the pacer requests more.
    crowded: bool,
    /// The guest's limit holds the maximum.
    limited: bool,
    /// Its port is not read for a time.
    pause: Option<Pause>,
    /// True while the port is drained: nothing is received until the drain is undone.
    drained: bool,
}

impl Ingress {
    /// Returns true if received frames are forwarded, and the port is read unless it is drained.
    pub(super) const fn is_open(&self) -> bool {
        !self.crowded && !self.limited && self.pause.is_none()
    }

    /// Returns the time of the next work; `None` if time alone changes nothing.
    pub(super) fn poll_at(&self) -> Option<Nanos> {
        self.pause.map(|pause| pause.until)
    }

    /// Ends the throttling that is over at `now`.
    pub(super) fn handle_timeout(&mut self, now: Nanos) {
        self.pause = self.pause.filter(|pause| pause.until > now);
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

    /// True if the port is not waited for at all.
    pub(super) fn is_resting(&self) -> bool {
        self.pause.is_some_and(|pause| pause.cause == Cause::Wakes)
    }

    /// The port is not waited for until then.
    pub(super) fn rest(&mut self, until: Nanos) {
        self.pause_until(until, Cause::Wakes);
    }

    /// Leaves the port unread until then.
    pub(super) fn throttle(&mut self, until: Nanos) {
        self.pause_until(until, Cause::Drops);
    }

    /// Begins a pause, which does not end before the present one.
    fn pause_until(&mut self, until: Nanos, cause: Cause) {
        let until = self.pause.map_or(until, |pause| pause.until.max(until));
        self.pause = Some(Pause { until, cause });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_pause_does_not_shorten_the_first() {
        let mut ingress = Ingress::default();
        ingress.throttle(Nanos(100));
        ingress.rest(Nanos(5));
        assert_eq!(ingress.poll_at(), Some(Nanos(100)));
        assert!(ingress.is_resting());
    }

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
