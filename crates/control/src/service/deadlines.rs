//! The ends of reservations' times to live, by the clock of the leader.
//!
//! A leader counts the time to live of a reservation anew from the moment at which it receives the
//! reservation or becomes the leader. So clocks of replicas are not compared, and a reservation
//! lives no shorter than its time to live.

use crate::ledger::{Ledger, reservations};
use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tailbound_api::ReservationId;
use tokio::time::Instant;

/// Limit on the stored ends of reservations that are gone, beside twice the number of open ones.
const GONE: usize = 1024;

/// The ends of all open reservations.
#[derive(Debug, Default)]
pub(super) struct Deadlines(Mutex<State>);

#[derive(Debug)]
struct State {
    /// The latest reservation that was received.
    last: ReservationId,
    ends: HashMap<ReservationId, Instant>,
    in_order: BTreeSet<(Instant, ReservationId)>,
}

impl Default for State {
    fn default() -> Self {
        Self {
            last: ReservationId(0),
            ends: HashMap::new(),
            in_order: BTreeSet::new(),
        }
    }
}

impl Deadlines {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets everything, as this service does not lead.
    pub(super) fn clear(&self) {
        *self.lock() = State::default();
    }

    /// Receives new reservations, and returns the open ones whose time has passed, in ascending
    /// order of their ends.
    pub(super) fn due(&self, ledger: &Ledger, now: Instant) -> Vec<ReservationId> {
        let mut state = self.lock();
        for open in reservations::open_after(ledger, state.last) {
            let end = now + Duration::from_nanos(open.ttl.0);
            state.last = open.id;
            state.ends.insert(open.id, end);
            state.in_order.insert((end, open.id));
        }
        let is_open = |id| reservations::is_open_reservation(ledger, id);
        let past = state.in_order.iter().take_while(|(end, _)| *end <= now);
        let (due, mut closed_entries): (Vec<_>, Vec<_>) = past.partition(|(_, id)| is_open(*id));
        let open = reservations::open_count(ledger);
        if state.in_order.len() > GONE + 2 * open {
            let all = state.in_order.iter().copied();
            closed_entries = all.filter(|(_, id)| !is_open(*id)).collect();
        }
        for (end, id) in closed_entries {
            state.in_order.remove(&(end, id));
            state.ends.remove(&id);
        }
        due.into_iter().map(|(_, id)| id).collect()
    }

    /// Returns the open reservations whose time passed before `then`, in ascending order of their ends.
    pub(super) fn overdue(&self, ledger: &Ledger, then: Instant) -> Vec<ReservationId> {
        let state = self.lock();
        let past = state.in_order.iter().take_while(|(end, _)| *end <= then);
        past.map(|(_, id)| *id)
            .filter(|id| reservations::is_open_reservation(ledger, *id))
            .collect()
    }

    /// Returns the rest of a reservation's time.
    pub(super) fn left(&self, id: ReservationId, now: Instant) -> Option<Duration> {
        let end = self.lock().ends.get(&id).copied()?;
        Some(end.saturating_duration_since(now))
    }
}
