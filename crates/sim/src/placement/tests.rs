use super::*;
use crate::testing::{parse, replaced};
use std::cell::Cell;
use tailbound_document::testing::assert_refused;
use tailbound_experiment::Experiment as _;
use tailbound_report::Results;
use tailbound_units::{Bytes, Nanos};

/// A clock that advances by a constant step at each reading.
#[derive(Debug)]
struct Clock {
    now: Cell<u64>,
    step: u64,
}

impl Stopwatch for Clock {
    fn now(&self) -> Nanos {
        self.now.set(self.now.get() + self.step);
        Nanos(self.now.get())
    }

    fn reset_peak_memory(&self) {}

    fn peak_memory(&self) -> Option<Bytes> {
        None
    }
}

/// A small data centre, with replacements in its text.
fn small(changes: &[(&str, &str)]) -> String {
    let (_, text) = PlacementExperiment::CATALOGUE.embedded[0];
    let first = text.find("[[point]]").unwrap();
    let text = format!(
        "{}[[point]]\nname = \"small\"\nnetwork = \"10G\"\npods = 1\nmean_vms = 49\n\
         requests = 200\n",
        &text[..first]
    );
    replaced(&text, changes)
}

fn run_text(text: &str, seed: u64, step: u64) -> Results {
    let now = Cell::new(0);
    let clock: Box<dyn Stopwatch> = Box::new(Clock { now, step });
    parse::<PlacementExperiment>(text)
        .unwrap()
        .run(seed, &clock, &mut |_| {})
        .unwrap()
}

fn value(results: &Results, name: &str) -> f64 {
    results.variants[0].values[name].value
}

#[test]
fn admissions_depend_on_the_seed_not_on_the_clock() {
    let text = small(&[]);
    let (one, same, slow) = (
        run_text(&text, 1, 10),
        run_text(&text, 1, 10),
        run_text(&text, 1, 1_000),
    );
    // Compared as text, because values may be NaN.
    assert_eq!(one.to_json(), same.to_json());
    for name in [
        "tenants",
        "occupancy",
        "admitted_vms",
        "refused",
        "A_refused",
    ] {
        let (one, slow) = (value(&one, name), value(&slow, name));
        assert!(one.total_cmp(&slow).is_eq(), "{name}: {one}, {slow}");
    }
    assert_eq!(
        one.variants[0].series["ports"],
        slow.variants[0].series["ports"]
    );
    assert_eq!(one.variants[0].series["all"].stats.max, 10);
    let other = run_text(&text, 2, 10);
    assert!(one.variants[0].series["ports"] != other.variants[0].series["ports"]);
}

#[test]
fn churn_keeps_the_configured_occupancy() {
    // Tenants of a size that there is room for.
    let results = run_text(&small(&[("mean_vms = 49", "mean_vms = 22")]), 1, 1);
    let occupancy = value(&results, "occupancy");
    assert!((85.0..95.0).contains(&occupancy), "{occupancy}");
    let series = &results.variants[0].series;
    assert_eq!(series["all"].stats.count, 200);
    let parts = series["admitted"].stats.count + series["rejected"].stats.count;
    assert_eq!(parts, 200);
    assert!(series["released"].stats.count > 100);
    assert!(value(&results, "queues_used") > 100.0);
    assert!(value(&results, "queues_over").abs() < f64::EPSILON);
}

#[test]
fn a_policy_that_does_not_look_overfills_queues() {
    let locality = ("mean_vms = 49", "mean_vms = 49\npolicy = \"locality\"");
    let results = run_text(&small(&[locality]), 1, 1);
    assert!(value(&results, "refused").abs() < f64::EPSILON);
    assert!(value(&results, "queues_over") > 1.0);
}

#[test]
fn every_embedded_experiment_is_right() {
    for (_, text) in PlacementExperiment::CATALOGUE.embedded {
        parse::<PlacementExperiment>(text).unwrap();
    }
}

#[test]
fn mistakes_are_named_with_their_place() {
    assert_refused(
        &small(&[]),
        parse::<PlacementExperiment>,
        r#"
network = "10G"\npods => network = "1G"\npods
    unknown network `1G`
requests = 200 => requests = 0
    requests 0: choose 1 to
mean_vms = 49 => mean_vms = 0.5
    mean_vms 0.5: choose 1 to
pods = 1 => pods = 0
    has no hosts
pods = 1 => pods = 4000000000
    more than 2000000
explain_every = 100 => explain_every = 0
    explain_every 0
name = "B" => name = "A"
    class "A" is there twice
racks = 25 => racks = 25\ncolour = 1
    unknown key `colour`
requests = 200 => requests = 200\n[[check]]\nname = "x"\nof = "all.p98"\nat = ["small"]\nat_most = 1\nsource = "none"
    unknown statistic `p98`
requests = 200 => requests = 200\n[[check]]\nname = "x"\nof = "C_refused"\nat = ["small"]\nat_most = 1\nsource = "none"
    unknown value `C_refused`
"#,
    );
}
