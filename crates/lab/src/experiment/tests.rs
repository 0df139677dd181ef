use super::testing::{embedded, parse};
use super::*;
use proptest::prelude::*;
use tailbound_experiment::{Experiment as _, Loaded};

const SMALLEST: &str = r#"
name = "small"
title = "t"
source = "s"
duration = "1s"

[hosts]
A = ["A1"]
B = ["B1"]

[pipeline.plain]
nic_queue = "300us"
config = { segment = true, queue = { kind = "fq-codel" } }

[[ping]]
name = "ping"
from = "A1"
to = "B1"
every = "10ms"
series = "rtt"

[[variant]]
name = "one"
pipeline = "plain"
loads = ["ping"]

[[check]]
name = "fast"
of = "rtt.p99"
at = ["one"]
at_most = 1e6
source = "s"
"#;

fn error(text: &str) -> String {
    match parse(text) {
        Ok(_) => panic!("accepted:\n{text}"),
        Err(error) => error,
    }
}

fn with(from: &str, to: &str) -> String {
    assert!(SMALLEST.contains(from), "{from}");
    SMALLEST.replacen(from, to, 1)
}

#[test]
fn every_embedded_experiment_is_valid_and_named_after_its_file() {
    for name in LabExperiment::CATALOGUE.names() {
        let source = LabExperiment::CATALOGUE.source(name).unwrap();
        let loaded = Loaded::<LabExperiment>::parse(&source).unwrap();
        assert_eq!(loaded.name(), name);
    }
}

/// Names are an interface.
#[test]
fn the_variants_and_series_keep_their_names() {
    let names = |experiment: &str| {
        let experiment = parse(&embedded(experiment)).unwrap();
        let variants = experiment.variant.iter().map(|v| v.name.get_ref().clone());
        variants.collect::<Vec<_>>().join(" ")
    };
    assert_eq!(
        names("traps"),
        "alone unpatched vcpu-only host-only switch-only host-and-switch patched"
    );
    assert_eq!(names("host-queue"), "free fifo fq-codel segmented");
    assert_eq!(names("vcpu"), "default periodic");
    assert_eq!(
        names("vcpu-classes"),
        "default-1 weight-1 slice-1 aperiodic-1 periodic-1 \
         default-2 weight-2 slice-2 aperiodic-2 periodic-2 \
         default-3 weight-3 slice-3 aperiodic-3 periodic-3 \
         default-4 weight-4 slice-4 aperiodic-4 periodic-4 \
         default-5 weight-5 slice-5 aperiodic-5 periodic-5"
    );
    assert_eq!(
        names("probe"),
        "idle bursts-10 busy-85 busy-100 held-10 held-85 process-idle process-held-10"
    );
    assert_eq!(
        names("memcached"),
        "alone bulk-alone unprotected req-1 req-2 req-3 req-1-3kb req-2-3kb req-3-3kb req-3-hose"
    );
    assert_eq!(
        names("switch-queue"),
        "tags-ignored-20 tags-honoured-20 tags-ignored-40 tags-honoured-40 tags-ignored-60 tags-honoured-60"
    );
    assert_eq!(names("workflows"), "random selected");
    assert_eq!(names("path"), "idle hogs unprotected");
    assert_eq!(names("reserved"), "reserved unreserved");
    assert_eq!(names("burst"), "a b");
    assert_eq!(
        names("noisy"),
        "quiet burn flood-guaranteed tiny-guaranteed tags-guaranteed flows-guaranteed \
         unknown-guaranteed flood-best-effort tiny-best-effort tags-best-effort \
         flows-best-effort unknown-best-effort"
    );
    assert_eq!(
        names("limits"),
        "udp-100b-r10 udp-1448b-r10 tso-64kb-r10 tcp-r10 udp-100b-r100 udp-1448b-r100 \
         tso-64kb-r100 tcp-r100 udp-1448b-r200 tso-64kb-r200 tcp-r200 tso-64kb-r500"
    );
}

#[test]
fn figures_of_guests_on_the_shared_core_depend_on_that_core() {
    // The large answers come from other cores, and bulk is of a guest with one of its own.
    assert_eq!(
        parse(&embedded("traps")).unwrap().on_shared_core(),
        ["hog_ops_s", "small_fct"]
    );
    assert_eq!(
        parse(&embedded("host-queue")).unwrap().on_shared_core(),
        [""; 0]
    );
    let wakeups = parse(&embedded("vcpu")).unwrap().on_shared_core();
    assert!(wakeups.contains(&"wakeup".to_owned()), "{wakeups:?}");
}

#[test]
#[rustfmt::skip]
fn loads_that_cannot_be_sent_or_measured_are_refused_where_they_stand() {
    for (experiment, right, wrong, message) in [
        ("burst", "size = \"105200B\"", "size = \"89B\"", "choose 90B to 10MB"),
        ("burst", "host = \"C\"", "host = \"D\"", "unknown host `D`"),
        ("burst", "to = [\"C1\"]", "to = [\"A2\"]", "its own peer"),
        ("noisy", "packet = \"28B\"", "packet = \"27B\"", "choose 28B to 65521B"),
        ("noisy", "mean_gap = \"2500us\"", "", "either every or mean_gap"),
        ("limits", "duration = \"3s\"", "duration = \"900ms\"", "1s or more"),
        ("limits", "rate = \"10Mbit/s\"", "rate = \"0Mbit/s\"", "above 0"),
        ("workflows", "keep = 40", "keep = 97", "choose 1 to 96"),
        ("workflows", "keep = 40", "keep = 39", "calls 40 nodes where 39 are kept"),
        ("workflows", "group = 20", "group = 0", "choose 1 to 96"),
        ("workflows", "samples = 2500", "samples = 6000", "longer than the warm-up"),
        ("workflows", "low_mark = 1", "low_mark = 501", "5 low_marks"),
        ("workflows", "sleep = \"2ms\"", "sleep = \"20ms\"", "to 10ms"),
        ("workflows", "client = \"C1\"", "client = \"G1\"", "its own peer"),
    ] {
        let text = embedded(experiment);
        assert!(text.contains(right), "{experiment}: {right}");
        let text = text.replace(right, wrong);
        let error = parse(&text).unwrap_err();
        assert!(error.contains(message), "{error}");
    }
}

#[test]
fn a_syntax_error_has_its_place() {
    let text = with("every = \"10ms\"", "every = \"10\"");
    assert_eq!(
        error(&text),
        "x.toml:19:9: \"10\" has no unit: use one of s, ms, us, ns"
    );
}

#[test]
fn an_unknown_key_has_its_place() {
    let message = error(&with("every =", "evry ="));
    assert!(
        message.starts_with("x.toml:19:1: unknown key `evry`; did you mean `every`?"),
        "{message}"
    );
}

#[test]
fn a_guest_that_is_not_there_is_named_with_those_that_are() {
    assert_eq!(
        error(&with("to = \"B1\"", "to = \"B2\"")),
        "x.toml:18:6: unknown guest `B2`; did you mean `B1`? known here: A1, B1"
    );
}

#[test]
#[rustfmt::skip]
fn contradictions_are_found() {
    for (from, to, expected) in [
        ("to = \"B1\"", "to = \"A1\"", "its own peer"),
        ("loads = [\"ping\"]", "loads = [\"pong\"]", "unknown load `pong`"),
        ("loads = [\"ping\"]", "loads = [\"ping\", \"ping\"]", "two loads of this variant"),
        ("pipeline = \"plain\"", "pipeline = \"fancy\"", "unknown pipeline `fancy`"),
        ("pipeline = \"plain\"\n", "", "name its pipeline"),
        ("pipeline = \"plain\"", "pipeline = \"plain\"\nvcpu = \"periodic\"", "needs [shared_core]"),
        ("pipeline = \"plain\"", "pipeline = \"plain\"\nneighbours = [1]",
         "1 neighbours: its [[hog]] has 0 guests"),
        ("[[check]]",
         "[[chart]]\nname = \"c\"\ntitle = \"t\"\nx = { label = \"\" }\ny = { label = \"\" }\nof = [\"rtt.p99\"]\n[[check]]",
         "no variant has a place on the x axis"),
        ("of = \"rtt.p99\"", "of = \"rtt.p98\"", "unknown statistic `p98`"),
        ("of = \"rtt.p99\"", "of = \"fct.p99\"", "unknown series `fct`"),
        ("of = \"rtt", "kind = \"reduction\"\nof = \"rtt", "needs a `from`"),
        ("at_most = 1e6", "", "needs at_least or at_most, or both"),
        ("at = [\"one\"]", "at = [\"two\"]", "unknown variant `two`"),
        ("duration = \"1s\"", "duration = \"1ms\"", "choose 100ms"),
        ("B = [\"B1\"]", "B = [\"A1\"]", "guest \"A1\" is there twice"),
        ("B = [\"B1\"]", "B = [\"A\"]", "is a host already"),
        ("B = [\"B1\"]", "B = [\"../x\"]", "use a letter"),
        ("nic_queue = \"300us\"", "nic_queue = \"0\"", "choose above 0"),
        ("every = \"10ms\"", "every = \"1ns\"", "choose 50us"),
    ] {
        let message = error(&with(from, to));
        assert!(message.contains(expected), "{to}: {message}");
        assert!(message.starts_with("x.toml:"), "{message}");
    }
}

#[test]
fn neighbour_counts_must_fit_the_hog_and_be_unique() {
    let text = embedded("vcpu-classes");
    for (counts, expected) in [
        ("[6]", "6 neighbours: its [[hog]] has 5 guests"),
        ("[0]", "0 neighbours"),
        ("[2, 2]", "variant \"default-2\" is there twice"),
    ] {
        let text = text.replacen("[1, 2, 3, 4, 5]", counts, 1);
        let message = parse(&text).unwrap_err();
        assert!(message.contains(expected), "{counts}: {message}");
    }
}

#[test]
fn a_hog_without_memory_to_scan_is_refused() {
    let text = embedded("vcpu-classes");
    let text = text.replace("block = \"256KiB\"", "block = \"0\"");
    let message = parse(&text).unwrap_err();
    assert!(message.contains("choose 4KiB to 1GiB"), "{message}");
}

#[test]
#[rustfmt::skip]
fn a_probe_or_its_neighbour_that_cannot_be_is_refused() {
    let text = embedded("probe");
    for (from, to, expected) in [
        ("samples = 150000", "samples = 0", "needs samples"),
        ("low_mark = 3", "low_mark = 30001", "needs samples"),
        ("time_limit = \"40s\"", "time_limit = \"0\"", "time_limit above 0"),
        ("busy = \"10ms\"", "busy = \"0\"", "a busy above 0"),
        ("busy = \"10ms\"", "busy = \"101ms\"", "at most the period"),
        ("of = \"good\"", "of = \"better\"", "unknown value `better`"),
    ] {
        assert!(text.contains(from), "{from}");
        let text = text.replacen(from, to, 1);
        let message = parse(&text).unwrap_err();
        assert!(message.contains(expected), "{to}: {message}");
    }
}

#[test]
fn an_uninterrupted_neighbour_is_busy_for_200_ms_at_most() {
    let text = embedded("probe");
    let text = text.replace("period = \"100ms\"", "period = \"1s\"");
    parse(&text).unwrap();
    let text = text.replace("busy = \"85ms\"", "busy = \"201ms\"");
    let message = parse(&text).unwrap_err();
    assert!(message.contains("at most 200ms"), "{message}");
}

#[test]
fn the_gap_of_a_query_follows_from_the_share_of_the_link() {
    let text = embedded("traps");
    let experiment = parse(&text).unwrap();
    let gap = |rate| experiment.query[1].gap(Rate::from_mbit(rate));
    // 10 MB take 0.8 s at 100 Mbit/s: 40 % of 2 s. The paper says 210 ms at 1 Gbit/s.
    assert_eq!(gap(100), Nanos::from_secs(2));
    assert_eq!(gap(1000), Nanos::from_millis(200));
}

proptest! {
    #[test]
    fn any_text_is_accepted_or_refused_and_never_panics(text: String) {
        let _ = parse(&text);
    }

    #[test]
    fn a_corrupted_valid_experiment_never_panics_the_parser(
        at in 0..SMALLEST.len(), length in 0usize..20, other in "[ -~\n]{0,10}|.{0,3}",
    ) {
        let end = (at + length).min(SMALLEST.len());
        let text = format!("{}{other}{}", &SMALLEST[..at], &SMALLEST[end..]);
        let _ = parse(&text);
    }
}
