//! Trace spans for a collector: one for each request, and one in it for the decision. The caller's
//! `traceparent` selects the trace.

use super::App;
use axum::http::HeaderMap;
use std::time::{Duration, SystemTime};
use tailbound_otlp::{Context, Exporter, Kind, Span, Value};

/// Paths that are asked for all the time, and by machines alone.
const UNTOLD: [&str; 3] = ["/healthz", "/readyz", "/metrics"];

tokio::task_local! {
    /// The request that is being answered.
    static CURRENT: Context;
}

/// Request in progress that is traced.
pub(super) struct RequestTrace {
    exporter: Exporter,
    context: Context,
    parent: Option<Context>,
    begin: SystemTime,
}

impl RequestTrace {
    /// Starts the trace of a request. Returns None without a collector, for untraced routes, and if
    /// the caller does not sample its trace.
    pub(super) fn begin(app: &App, route: &str, headers: &HeaderMap) -> Option<Self> {
        let exporter = app.exporter.get()?.clone();
        if UNTOLD.contains(&route) {
            return None;
        }
        let header = headers.get("traceparent");
        let caller = header.and_then(|header| Context::of_header(header.to_str().ok()?));
        let (context, parent) = match caller {
            // Its caller keeps nothing of this trace.
            Some((_, false)) => return None,
            Some((parent, true)) => (parent.child()?, Some(parent)),
            None => (Context::root()?, None),
        };
        Some(Self {
            exporter,
            context,
            parent,
            begin: SystemTime::now(),
        })
    }

    /// Answers it, so that what is decided meanwhile is part of it.
    pub(super) async fn within<F: Future>(&self, answer: F) -> F::Output {
        CURRENT.scope(self.context, answer).await
    }

    /// Sends the request's span to the collector.
    pub(super) fn end(self, method: &str, route: &str, status: u16, took: Duration) {
        self.exporter.tell(Span {
            context: self.context,
            parent: self.parent,
            name: format!("{method} {route}"),
            kind: Kind::Server,
            begin: self.begin,
            took,
            attributes: vec![
                ("http.request.method", Value::StringValue(method.to_owned())),
                ("http.route", Value::StringValue(route.to_owned())),
                ("http.response.status_code", Value::IntValue(status.into())),
            ],
            // A refusal is an answer; what failed here is an error (OpenTelemetry, HTTP spans).
            failure: (status >= 500).then(|| format!("status {status}")),
        });
    }
}

/// Sends the span of a decision, as a child of the request's span.
pub(super) fn decided(app: &App, command: &str, outcome: &str, took: Duration) {
    let (Some(exporter), Ok(parent)) = (app.exporter.get(), CURRENT.try_with(|current| *current))
    else {
        return;
    };
    let Some(context) = parent.child() else {
        return;
    };
    exporter.tell(Span {
        context,
        parent: Some(parent),
        name: format!("decide {command}"),
        kind: Kind::Internal,
        begin: SystemTime::now() - took,
        took,
        attributes: vec![
            ("tailbound.command", Value::StringValue(command.to_owned())),
            ("tailbound.outcome", Value::StringValue(outcome.to_owned())),
        ],
        failure: None,
    });
}
