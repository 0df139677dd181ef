//! Streams of changes that continue from a point: of states, tenants, hosts, and the audit.

use super::access;
use super::pool::payer;
use super::problem::ApiError;
use super::tokens::Identity;
use super::{App, revisions};
use crate::fair::Payer;
use crate::ledger::Ledger;
use crate::service::Gap;
use axum::body::{Body, Bytes};
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tailbound_api::Code;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use utoipa::IntoParams;

/// The interval of lines without a change, so that silence means an unreachable service.
pub(super) const HEARTBEAT: Duration = Duration::from_secs(10);
/// The time after which a reader that accepts no data is disconnected.
pub(super) const STUCK: Duration = Duration::from_secs(30);
/// The shortest time between two looks for changes.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// Limit on the streams of one owner, of all operators, and of all hosts.
const MOST_OF_ONE: usize = 16;
/// Limit on the streams of all owners.
const MOST_OF_OWNERS: usize = 1024;

/// The point from which a stream continues.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Since {
    /// Continues after this revision: that of the last line that has only a revision and an age, or of
    /// the answer to a query. Without it, the stream begins now.
    #[param(maximum = 9_007_199_254_740_991_u64)]
    pub(super) since: Option<u64>,
}

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
    /// Returns the payers who have all streams that one may have.
    pub(super) fn full(&self) -> Vec<Payer> {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let full = open.iter().filter(|(_, open)| **open >= MOST_OF_ONE);
        let mut payers: Vec<_> = full.map(|(payer, _)| payer.clone()).collect();
        payers.sort_unstable();
        payers
    }

    fn take(self: &Arc<Self>, payer: Payer) -> Result<Place, ApiError> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let busy = |detail: String| Err(ApiError::new(Code::Unavailable, detail));
        let own = open.get(&payer).copied().unwrap_or_default();
        if own >= MOST_OF_ONE {
            return busy(format!(
                "there are already {MOST_OF_ONE} streams of changes of {payer}, which is the limit"
            ));
        }
        let of_owners = open.iter().filter(|(payer, _)| payer.is_owner());
        if payer.is_owner() && of_owners.map(|(_, open)| open).sum::<usize>() >= MOST_OF_OWNERS {
            return busy(format!(
                "there are already {MOST_OF_OWNERS} streams of changes of owners, which is the limit"
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

/// The lines of one kind of stream.
pub(super) trait Feed: Send + Sync + 'static {
    /// The type of a line.
    type Line: Serialize + Send + Sync;

    /// Returns the lines after those that were returned before. The last one is the heartbeat if
    /// there is any.
    ///
    /// # Errors
    /// The changes are not known any more; the stream ends.
    fn next(&mut self, app: &App) -> Result<Lines<Self::Line>, Gap>;

    /// Returns a line without a change.
    fn heartbeat(&self, app: &App) -> Self::Line;
}

/// Some lines of a stream.
pub(super) struct Lines<L> {
    pub(super) lines: Vec<L>,
    /// True if there are more at this moment.
    pub(super) has_more: bool,
}

/// Checks that a stream can continue from a revision, and returns the revision from which it does.
///
/// # Errors
/// The history does not have the revision.
pub(super) fn begin(app: &App, since: Option<u64>) -> Result<u64, ApiError> {
    let Some(since) = since else {
        return Ok(app.service.read(Ledger::revision));
    };
    match app.service.noted_after(since, |_| false) {
        Ok(_) => Ok(since),
        Err(gap) => Err(gap_error(gap, "revision", since)),
    }
}

/// Makes the error for a stream that cannot continue.
pub(super) fn gap_error(gap: Gap, unit: &str, since: u64) -> ApiError {
    match gap {
        Gap::Past(oldest) => ApiError::new(
            Code::Expired,
            format!(
                "changes after {unit} {since} are forgotten here; read the present state, and \
                 continue from {unit} {oldest} or later"
            ),
        ),
        Gap::Future(last) => ApiError::new(
            Code::Future,
            format!(
                "this replica is at {unit} {last} and does not know {since}; repeat the request, or \
                 read the present state if the store was replaced by an older one"
            ),
        ),
    }
}

/// Answers with a stream.
pub(super) fn answer(app: Arc<App>, by: Identity, feed: impl Feed) -> Result<Response, ApiError> {
    let place = app.event_streams.take(payer(&by))?;
    let (lines, body) = mpsc::channel(1);
    let stream = FeedStream {
        app,
        by,
        lines,
        feed,
        _place: place,
    };
    tokio::spawn(stream.run());
    let body = Body::from_stream(ReceiverStream::new(body));
    Ok(([(CONTENT_TYPE, "application/x-ndjson")], body).into_response())
}

/// The task behind one open stream.
struct FeedStream<F> {
    app: Arc<App>,
    by: Identity,
    lines: mpsc::Sender<Result<Bytes, Infallible>>,
    feed: F,
    _place: Place,
}

impl<F: Feed> FeedStream<F> {
    /// Writes lines until the reader disconnects, the service stops, the token is removed, this
    /// replica is cut off from the store for [`STALE`](crate::replica::STALE), or changes are
    /// forgotten that the reader did not take in time.
    async fn run(mut self) {
        let mut stopped = self.app.stopped.subscribe();
        let mut commits = self.app.service.watch();
        let mut beat = tokio::time::interval(HEARTBEAT);
        beat.reset();
        let mut is_first = true;
        loop {
            let Ok(Lines {
                mut lines,
                has_more,
            }) = self.feed.next(&self.app)
            else {
                return;
            };
            if is_first && lines.is_empty() {
                // So that a reader knows that it has heard of all that was before.
                lines.push(self.feed.heartbeat(&self.app));
            }
            is_first = false;
            for line in lines {
                if !self.send(&line).await {
                    return;
                }
            }
            let beats = !has_more
                && tokio::select! {
                    () = self.lines.closed() => return,
                    _ = stopped.wait_for(|stopped| *stopped) => return,
                    () = access::ended(&self.app, &self.by) => return,
                    () = revisions::stale(&self.app) => return,
                    changed = async {
                        tokio::time::sleep(LOOK_INTERVAL).await;
                        commits.changed().await
                    } => match changed {
                        Ok(()) => false,
                        Err(_) => return,
                    },
                    _ = beat.tick() => true,
                };
            // The end of the token, and these lines, may have come together.
            if !access::is_valid(&self.app, &self.by) {
                return;
            }
            if beats && !self.send(&self.feed.heartbeat(&self.app)).await {
                return;
            }
        }
    }

    async fn send(&self, line: &F::Line) -> bool {
        send_line(&self.app, &self.lines, line).await
    }
}

/// Writes a line of a stream. Returns false if the reader has disconnected or accepts none for
/// [`STUCK`], or the service stops.
pub(super) async fn send_line(
    app: &App,
    lines: &mpsc::Sender<Result<Bytes, Infallible>>,
    line: &(impl Serialize + Sync),
) -> bool {
    let Ok(mut line) = serde_json::to_vec(line) else {
        return false;
    };
    line.push(b'\n');
    let mut stopped = app.stopped.subscribe();
    let delivery = tokio::time::timeout(STUCK, lines.send(Ok(line.into())));
    tokio::select! {
        sent = delivery => matches!(sent, Ok(Ok(()))),
        _ = stopped.wait_for(|stopped| *stopped) => false,
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
