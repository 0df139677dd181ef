//! The stream of changes of tenants' states.

use super::App;
use super::access;
use super::extract::By;
use super::pool::payer;
use super::problem::{ApiError, Busy, Guarded};
use super::tokens::Identity;
use crate::fair::Payer;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tailbound_api::{Code, Event};
use tokio::sync::broadcast::{self, error::RecvError};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

/// The interval of lines without a change, so that silence means an unreachable service.
const HEARTBEAT: Duration = Duration::from_secs(10);
/// The time after which a reader that accepts no data is disconnected.
const STUCK: Duration = Duration::from_secs(30);

/// Limit on the streams of one owner, of all operators, and of all hosts.
const MOST_OF_ONE: usize = 16;
/// Limit on the streams of all owners.
const MOST_OF_OWNERS: usize = 1024;

/// Open streams by payer, so that no owner can use up the streams of other owners or of operators.
#[derive(Debug, Default)]
pub(super) struct Places {
    open: Mutex<HashMap<Payer, usize>>,
}

/// The place of one open stream, until it is dropped.
#[derive(Debug)]
struct Place {
    places: Arc<Places>,
    payer: Payer,
}

impl Places {
    fn take(self: &Arc<Self>, payer: Payer) -> Result<Place, ApiError> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let busy = |detail: String| Err(ApiError::new(Code::Unavailable, detail));
        let own = open.get(&payer).copied().unwrap_or_default();
        if own >= MOST_OF_ONE {
            return busy(format!(
                "there are already {MOST_OF_ONE} streams of events of {payer}, which is the limit"
            ));
        }
        let of_owners = open.iter().filter(|(payer, _)| payer.is_owner());
        if payer.is_owner() && of_owners.map(|(_, open)| open).sum::<usize>() >= MOST_OF_OWNERS {
            return busy(format!(
                "there are already {MOST_OF_OWNERS} streams of events of owners, which is the limit"
            ));
        }
        *open.entry(payer.clone()).or_default() += 1;
        let places = Arc::clone(self);
        Ok(Place { places, payer })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let open = self.places.open.lock();
        let mut open = open.unwrap_or_else(PoisonError::into_inner);
        let left = open.get_mut(&self.payer).expect("it was counted");
        *left -= 1;
        if *left == 0 {
            open.remove(&self.payer);
        }
    }
}

/// Streams changes of tenants' states.
///
/// The first lines are the degraded tenants. Then follow a line for each tenant whose state
/// changes, and a line without a tenant every 10 seconds. Each line is JSON. A tenant's token gets
/// its owner's tenants only.
#[utoipa::path(
    get, path = "/v1/events", tag = "tenants", operation_id = "stream_events",
    responses(
        (status = 200, description = "Lines of JSON", body = Event, content_type = "application/x-ndjson"),
        Guarded, Busy,
    )
)]
pub(super) async fn stream(State(app): State<Arc<App>>, By(by): By) -> Result<Response, ApiError> {
    let place = app.event_streams.take(payer(&by))?;
    // Before the first read, so that no change falls between.
    let events = app.service.events();
    let owner = by.owner().map(str::to_owned);
    let first = app.service.read(|ledger| {
        let revision = ledger.revision();
        let degraded = ledger.degraded(owner.as_deref()).into_iter();
        let degraded = degraded.map(|tenant| Event {
            revision,
            tenant: Some(tenant),
            missed: 0,
        });
        degraded.collect::<Vec<_>>()
    });
    let (lines, body) = mpsc::channel(1);
    let stream = EventStream {
        app,
        by,
        owner,
        lines,
        events,
        _place: place,
    };
    tokio::spawn(stream.run(first));
    let body = Body::from_stream(ReceiverStream::new(body));
    Ok(([(CONTENT_TYPE, "application/x-ndjson")], body).into_response())
}

/// The task behind one open stream.
struct EventStream {
    app: Arc<App>,
    by: Identity,
    /// The owner whose events are sent; `None` sends all events.
    owner: Option<String>,
    lines: mpsc::Sender<Result<Bytes, Infallible>>,
    events: broadcast::Receiver<Arc<Event>>,
    _place: Place,
}

impl EventStream {
    /// Writes events until the reader disconnects, the service stops, or the token is removed.
    async fn run(mut self, first: Vec<Event>) {
        for event in &first {
            if !self.send(event).await {
                return;
            }
        }
        // So that a reader knows that it has heard of all that were degraded.
        let mut next = Some(self.heartbeat(0));
        let mut stopped = self.app.stopped.subscribe();
        let mut beat = tokio::time::interval(HEARTBEAT);
        beat.reset();
        loop {
            if let Some(event) = next.take()
                && !self.send(&event).await
            {
                return;
            }
            tokio::select! {
                () = self.lines.closed() => return,
                _ = stopped.wait_for(|stopped| *stopped) => return,
                () = access::ended(&self.app, &self.by) => return,
                received = self.events.recv() => match received {
                    Ok(event) if self.concerns(&event) => next = Some(Event::clone(&event)),
                    Ok(_) => {}
                    Err(RecvError::Lagged(missed)) => next = Some(self.heartbeat(missed)),
                    Err(RecvError::Closed) => return,
                },
                _ = beat.tick() => next = Some(self.heartbeat(0)),
            }
            // The end of the token, and this line, may have come together.
            if self.app.tokens().is_some_and(|now| !now.have(&self.by)) {
                return;
            }
        }
    }

    fn heartbeat(&self, missed: u64) -> Event {
        Event {
            revision: self.app.service.read(crate::ledger::Ledger::revision),
            tenant: None,
            missed,
        }
    }

    fn concerns(&self, event: &Event) -> bool {
        let owner = event.tenant.as_ref().map(|tenant| &tenant.owner);
        self.owner.is_none() || owner == self.owner.as_ref()
    }

    /// Writes a line. Returns false if the reader has disconnected or the service stops.
    async fn send(&self, event: &Event) -> bool {
        let Ok(mut line) = serde_json::to_vec(event) else {
            return false;
        };
        line.push(b'\n');
        let mut stopped = self.app.stopped.subscribe();
        let delivery = tokio::time::timeout(STUCK, self.lines.send(Ok(line.into())));
        tokio::select! {
            sent = delivery => matches!(sent, Ok(Ok(()))),
            _ = stopped.wait_for(|stopped| *stopped) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_owner_can_use_up_the_streams_of_others_or_of_operators() {
        let places = Arc::new(Places::default());
        let owner = |number: usize| Payer::Owner(format!("owner-{number}"));
        let mut held = Vec::new();
        while let Ok(place) = places.take(owner(0)) {
            held.push(place);
        }
        assert_eq!(held.len(), MOST_OF_ONE);
        for number in 1.. {
            match places.take(owner(number)) {
                Ok(place) => held.push(place),
                Err(_) => break,
            }
        }
        assert_eq!(held.len(), MOST_OF_OWNERS);
        held.push(places.take(Payer::Operators).unwrap());
        held.swap_remove(0);
        held.push(places.take(owner(5_000)).unwrap());
        drop(held);
        assert!(places.open.lock().unwrap().is_empty());
    }
}
