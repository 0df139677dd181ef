//! The requests to a collector, and spans that it refuses.

#[path = "../../tests/support/mod.rs"]
mod support;

use super::*;
use crate::span::{Context, Kind, Status};
use support::{Request, collector};

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
        status: Status::Failed("it is full".to_owned()),
    }
}

fn names(request: &Request) -> Vec<String> {
    let spans = &request.1["resourceSpans"][0]["scopeSpans"][0]["spans"];
    let spans = spans.as_array().expect("spans").iter();
    spans
        .map(|span| span["name"].as_str().expect("a name").to_owned())
        .collect()
}

#[test]
fn what_is_left_at_the_end_is_told_with_who_tells_it() {
    let (endpoint, requests) = collector(&[]);
    let exporter = exporter(&endpoint, Some("# TYPE a gauge\na 1\n"));
    for name in ["one", "two"] {
        exporter.tell(span(name));
    }
    drop(exporter);
    let spans = requests.recv().expect("traces");
    assert_eq!(
        (spans.0.as_str(), names(&spans)),
        ("/v1/traces", vec!["one".into(), "two".into()])
    );
    let resource = spans.1["resourceSpans"][0]["resource"]["attributes"].clone();
    assert_eq!(resource[0]["value"]["stringValue"], "tailbound-place");
    assert_eq!(resource[2]["value"]["stringValue"], "here");
    let status = &spans.1["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["status"];
    assert_eq!(*status, json!({"code": 2, "message": "it is full"}));
    let metrics = requests.recv().expect("metrics");
    assert_eq!(metrics.0, "/v1/metrics");
    let metrics = &metrics.1["resourceMetrics"][0]["scopeMetrics"][0]["metrics"];
    assert_eq!(metrics[0]["name"], "a");
}

#[test]
fn what_a_collector_cannot_take_now_is_told_again_and_what_it_refuses_is_not() {
    let (endpoint, requests) = collector(&[503, 200, 400]);
    let settings = Settings {
        endpoint: endpoint.parse().expect("an address"),
        service: "tailbound-place",
        instance: String::new(),
    };
    let mut telling = Telling {
        settings,
        agent: ureq::Agent::config_builder()
            .http_status_as_error(false)
            .build()
            .new_agent(),
        metrics: Box::new(|| None),
        begin: "0".to_owned(),
        waiting: vec![span("again")],
        dropped: Arc::default(),
        is_away: false,
    };
    let dropped = Arc::clone(&telling.dropped);
    let dropped = || dropped.load(Ordering::Relaxed);
    telling.tell_spans();
    assert!(telling.is_away);
    assert_eq!((telling.waiting.len(), dropped()), (1, 0));
    telling.tell_spans();
    assert!(!telling.is_away);
    assert_eq!((telling.waiting.len(), dropped()), (0, 0));
    telling.waiting.push(span("refused"));
    telling.tell_spans();
    assert_eq!((telling.waiting.len(), dropped()), (0, 1));
    let told: Vec<_> = requests
        .try_iter()
        .flat_map(|request| names(&request))
        .collect();
    assert_eq!(told, ["again", "again", "refused"]);
    // Nobody is there for long: the oldest go.
    telling.waiting = (0..=KEPT).map(|number| span(&number.to_string())).collect();
    telling.drop_oldest();
    assert_eq!(telling.waiting.len(), KEPT - AT_ONCE);
    assert_eq!(telling.waiting[0].name, (AT_ONCE + 1).to_string());
    assert_eq!(dropped(), 1 + AT_ONCE as u64 + 1);
}
