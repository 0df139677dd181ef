//! The requests to a collector, and spans that it refuses.

use super::*;
use crate::span::{Context, Kind};
use crate::testing::{self, Request, collector, number};
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;

fn exporter(endpoint: &str, page: Option<&'static str>) -> Exporter {
    let settings = Settings {
        endpoint: endpoint.parse().expect("an address"),
        service: "tailbound-place",
        instance: "here".to_owned(),
    };
    let metrics = Box::new(move || page.map(str::to_owned));
    Exporter::start(settings, metrics).expect("a thread")
}

fn span(name: &str) -> Span {
    Span {
        context: Context::root().expect("random numbers"),
        parent: None,
        name: name.to_owned(),
        kind: Kind::Server,
        begin: SystemTime::now(),
        took: Duration::from_millis(1),
        attributes: Vec::new(),
        failure: Some("it is full".to_owned()),
    }
}

fn names(request: &Request) -> Vec<&str> {
    let spans = request.spans.iter();
    spans.map(|span| span.name.as_str()).collect()
}

#[test]
fn remaining_spans_are_exported_at_shutdown_with_their_source() {
    let (endpoint, requests) = collector(&[]);
    let exporter = exporter(&endpoint, Some("# TYPE a gauge\na 1\n"));
    for name in ["one", "two"] {
        exporter.tell(span(name));
    }
    drop(exporter);
    let traces = requests.recv().expect("traces");
    assert_eq!(names(&traces), ["one", "two"]);
    for (name, value) in [
        ("service.name", "tailbound-place"),
        ("service.instance.id", "here"),
    ] {
        let sent = testing::attribute(&traces.resource, name);
        assert_eq!(sent.as_deref(), Some(value));
    }
    let status = traces.spans[0].status.as_ref().expect("a failure");
    assert_eq!(status.code(), StatusCode::Error);
    assert_eq!(status.message, "it is full");
    let metrics = requests.recv().expect("metrics");
    let numbers: Vec<_> = metrics.points("a").iter().map(number).collect();
    assert_eq!(numbers, [1.0]);
}

#[test]
fn spans_are_retried_if_unavailable_and_dropped_if_refused() {
    let (endpoint, requests) = collector(&[503, 200, 400]);
    let settings = Settings {
        endpoint: endpoint.parse().expect("an address"),
        service: "tailbound-place",
        instance: String::new(),
    };
    let mut sender = Sender {
        settings,
        agent: ureq::Agent::config_builder()
            .http_status_as_error(false)
            .build()
            .new_agent(),
        metrics: Box::new(|| None),
        begin: 0,
        waiting: vec![span("again")],
        dropped: Arc::default(),
        is_away: false,
    };
    let dropped = Arc::clone(&sender.dropped);
    let dropped = || dropped.load(Ordering::Relaxed);
    sender.tell_spans();
    assert!(sender.is_away);
    assert_eq!((sender.waiting.len(), dropped()), (1, 0));
    sender.tell_spans();
    assert!(!sender.is_away);
    assert_eq!((sender.waiting.len(), dropped()), (0, 0));
    sender.waiting.push(span("refused"));
    sender.tell_spans();
    assert_eq!((sender.waiting.len(), dropped()), (0, 1));
    // The collector passes a request on after its answer.
    let requests: Vec<_> = requests.iter().take(3).collect();
    let sent: Vec<_> = requests.iter().flat_map(names).collect();
    assert_eq!(sent, ["again", "again", "refused"]);
    // Nobody is there for long: the oldest go.
    sender.waiting = (0..=KEPT).map(|number| span(&number.to_string())).collect();
    sender.drop_oldest();
    assert_eq!(sender.waiting.len(), KEPT - AT_ONCE);
    assert_eq!(sender.waiting[0].name, (AT_ONCE + 1).to_string());
    assert_eq!(dropped(), 1 + AT_ONCE as u64 + 1);
}
