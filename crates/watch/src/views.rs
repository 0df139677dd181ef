//! The views of a host that are served: the page, the document and the metrics.

use crate::metrics;
use crate::page;
use crate::snapshot::Snapshot;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use tailbound_metrics::Format;
use tailbound_serve::{Answer, Content, Lack, NO_ACTIVE_CONTENT, Request, Site};

/// The last snapshot, which the measurement sets and the views read.
#[derive(Debug, Clone, Default)]
pub struct Board(Arc<Mutex<Option<Arc<PublishedSnapshot>>>>);

/// A snapshot with its texts, each of which is written at most once, however often it is read.
#[derive(Debug)]
struct PublishedSnapshot {
    snapshot: Arc<Snapshot>,
    document: OnceLock<Arc<[u8]>>,
    metrics: OnceLock<Arc<[u8]>>,
}

impl Board {
    /// Shows a snapshot instead of the one before.
    pub fn set(&self, snapshot: Arc<Snapshot>) {
        let published = PublishedSnapshot {
            snapshot,
            document: OnceLock::new(),
            metrics: OnceLock::new(),
        };
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(published));
    }

    fn get(&self) -> Option<Arc<PublishedSnapshot>> {
        let last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        last.clone()
    }

    /// The metrics as text; `None` if nothing was measured yet.
    pub fn metrics(&self) -> Option<String> {
        metrics::text(&self.get()?.snapshot).ok()
    }
}

/// The views of a host.
#[derive(Debug)]
pub struct Views {
    board: Board,
    /// The text of a document.
    document: fn(&Snapshot) -> String,
}

impl Views {
    /// Views of what the board shows; `document` writes the document of all guests.
    pub const fn new(board: Board, document: fn(&Snapshot) -> String) -> Self {
        Self { board, document }
    }
}

impl Site for Views {
    fn answer(&self, request: &Request) -> Answer {
        let path = request.path();
        if path == "/" {
            return page::content().map_or_else(early, Answer::Content);
        }
        let (kind, is_metrics) = match path {
            "/api/watch" => ("application/json", false),
            "/metrics" => (Format::Text.content_type(), true),
            _ => {
                let text = "there are /, /api/watch and /metrics\n";
                return Answer::None(Lack::Path, text.into());
            }
        };
        let Some(published) = self.board.get() else {
            return early();
        };
        let PublishedSnapshot {
            snapshot,
            document,
            metrics,
        } = &*published;
        let body = if is_metrics {
            metrics.get_or_init(|| {
                // Labels and numbers are written to memory, which does not fail.
                metrics::text(snapshot)
                    .unwrap_or_default()
                    .into_bytes()
                    .into()
            })
        } else {
            document.get_or_init(|| (self.document)(snapshot).into_bytes().into())
        };
        Answer::Content(Content {
            kind: kind.into(),
            encoding: None,
            policy: NO_ACTIVE_CONTENT.to_owned(),
            body: Arc::clone(body),
        })
    }
}

/// The answer before the first snapshot.
fn early() -> Answer {
    let text = "the first second is measured; try again\n";
    Answer::None(Lack::Source, text.into())
}

#[cfg(test)]
mod tests;
