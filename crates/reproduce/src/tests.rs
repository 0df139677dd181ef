use crate::page::{NOT_RUN, page, without_outcome};
use crate::registry::{By, Checks, Registry, ResultsByExperiment, Run, Size, command};
use crate::runner::Runner;
use crate::saved::SavedResults;
use std::fs;
use std::path::{Path, PathBuf};
use tailbound_report::Provenance;
use tailbound_sim::Threads;
use tailbound_sim::grid::Shard;
use tailbound_sim::placement::Stopwatch;
use tailbound_units::{Bytes, Nanos};

/// A stopwatch that stands: these tests run no placement.
#[derive(Debug)]
struct StoppedStopwatch;

impl Stopwatch for StoppedStopwatch {
    fn now(&self) -> Nanos {
        Nanos::ZERO
    }

    fn reset_peak_memory(&self) {}

    fn peak_memory(&self) -> Option<Bytes> {
        None
    }
}

fn runner(size: Size) -> Runner {
    Runner {
        size,
        seed: 1,
        shard: Shard::WHOLE,
        results: None,
        version: String::new(),
        threads: Threads(1),
        stopwatch: || Box::new(StoppedStopwatch),
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn every_item_names_existing_experiments_and_checks() {
    let registry = Registry::read().unwrap();
    let counts: Vec<usize> = registry
        .paper
        .iter()
        .map(|paper| paper.item.len())
        .collect();
    assert_eq!(counts, [32, 23, 15, 24, 37]);
    let lab: Vec<String> = registry.run.iter().flat_map(of_lab).collect();
    for run in &registry.run {
        assert!(!run.fitted.trim().is_empty(), "{}", run.experiment);
    }
    for (name, _, item) in registry.items() {
        if let By::Test(text) | By::Not(text) | By::Elsewhere(text) = &item.by {
            assert!(!text.trim().is_empty(), "{name}");
        }
        // A row of results without the paper's value compares nothing.
        let is_judged = item.checks().next().is_some();
        assert!(!is_judged || item.value.is_some(), "{name} has no value");
        for checks in item.checks() {
            let planned = registry.planned(&checks.experiment, Size::Full);
            let known = if planned.is_of_lab() {
                lab.clone()
            } else {
                let (experiment, _) = runner(Size::Full).read(&planned).unwrap();
                let known = experiment.checks().into_iter();
                let of_it = |check| format!("{}/{check}", planned.experiment);
                known.map(of_it).collect()
            };
            assert!(!checks.checks.is_empty(), "{name}");
            for check in &checks.checks {
                let check = format!("{}/{check}", planned.experiment);
                assert!(known.contains(&check), "{name}: {check}");
            }
        }
    }
    for run in &registry.run {
        let is_it = |checks: &Checks| checks.experiment == run.experiment;
        let mut items = registry.items();
        let is_used = items.any(|(_, _, item)| item.checks().any(is_it));
        assert!(is_used, "no item rests on {}", run.experiment);
    }
}

/// Checks of items that have one limit: promises, words without a number, and inequalities of the
/// papers. This number only falls.
const ONE_SIDED: usize = 123;

/// Checks of items that compare with a figure of a paper. This number only grows.
const WITH_FIGURE: usize = 125;

#[test]
fn a_check_has_two_limits_unless_its_paper_has_no_figure() {
    let registry = Registry::read().unwrap();
    let (mut one_sided, mut with_figure) = (Vec::new(), 0);
    for run in &registry.run {
        let items = registry.items().flat_map(|(_, _, item)| item.checks());
        let named: Vec<&String> = items
            .filter(|checks| checks.experiment == run.experiment)
            .flat_map(|checks| &checks.checks)
            .collect();
        for check in checks_of(&run.experiment) {
            let name = check["name"].as_str().unwrap().to_owned();
            if !named.contains(&&name) {
                continue;
            }
            with_figure += usize::from(check["source"].get("paper").is_some());
            if !(check.contains_key("at_least") && check.contains_key("at_most")) {
                one_sided.push(format!("{}/{name}", run.experiment));
            }
        }
    }
    assert_eq!(one_sided.len(), ONE_SIDED, "{one_sided:#?}");
    assert_eq!(with_figure, WITH_FIGURE);
}

/// Returns the checks of an experiment as its file has them.
fn checks_of(experiment: &str) -> Vec<toml::Table> {
    let (kind, name) = experiment.split_once('/').unwrap();
    let folder = match kind {
        "lab" => "",
        "vcpu" => "sim/",
        kind => &format!("{kind}/"),
    };
    let path = root().join(format!("experiments/{folder}{name}.toml"));
    let table: toml::Table = fs::read_to_string(path).unwrap().parse().unwrap();
    let checks = table["check"].as_array().unwrap().iter();
    checks
        .map(|check| check.as_table().unwrap().clone())
        .collect()
}

/// Returns the checks of a lab's experiment: `lab/NAME/CHECK`.
fn of_lab(run: &Run) -> Vec<String> {
    let Some(("lab", name)) = run.experiment.split_once('/') else {
        return Vec::new();
    };
    let checks = checks_of(&run.experiment).into_iter();
    let named = |check: &toml::Table| check["name"].as_str().unwrap().to_owned();
    checks
        .map(|check| format!("lab/{name}/{}", named(&check)))
        .collect()
}

#[test]
fn the_page_matches_the_registry_except_for_outcomes() {
    let registry = Registry::read().unwrap();
    let made = Provenance::now(None);
    let text = fs::read_to_string(root().join("docs/reference/reproduction.md")).unwrap();
    let known = page(&registry, Size::Usual, &made, &ResultsByExperiment::new());
    assert_eq!(text.lines().count(), known.lines().count());
    for (line, known) in text.lines().zip(known.lines()) {
        assert_eq!(without_outcome(line), without_outcome(known));
    }
    // The page at the papers' sizes has the items that have a larger size, and these alone.
    let full = page(&registry, Size::Full, &made, &ResultsByExperiment::new());
    let rows = |it: &str| it.lines().filter(|line| line.contains(NOT_RUN)).count();
    assert!(rows(&full) > 0 && rows(&full) < rows(&known), "{full}");
    let quick = registry.plan(&registry.chosen(&["all".to_owned()]).unwrap(), Size::Quick);
    for planned in quick.iter().filter(|planned| !planned.is_of_lab()) {
        let not_run = format!("**{}** ({},", NOT_RUN, planned.size);
        let of_it = format!("`{}`", command(planned.experiment));
        let is_left_out = |line: &&str| line.contains(&of_it) && line.contains(&not_run);
        assert_eq!(text.lines().find(is_left_out), None, "run `make reproduce`");
    }
}

#[test]
fn saved_results_are_reused_unless_outdated_or_damaged() {
    let directory = tempfile::tempdir().unwrap();
    let registry = Registry::read().unwrap();
    let planned = registry.planned("net/silo-figure5", Size::Usual);
    let stored = SavedResults::new(directory.path().to_owned());
    let read = |key| stored.read(&planned, Size::Usual, key, |_| ()).unwrap();
    assert!(read("a").is_none());
    let (experiment, _) = runner(Size::Usual).read(&planned).unwrap();
    let results = experiment.run(1, &mut |_| ()).unwrap();
    stored.write(&planned, Size::Usual, "a", &results).unwrap();
    assert_eq!(read("a"), Some(results));
    assert!(read("b").is_none());
    let file = directory.path().join("net/silo-figure5.row");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace("400000", "400001")).unwrap();
    assert!(read("a").is_none());
}

#[test]
fn a_result_of_the_lab_of_another_commit_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let registry = Registry::read().unwrap();
    let (experiment, _) = runner(Size::Usual)
        .read(&registry.planned("net/silo-figure5", Size::Usual))
        .unwrap();
    let mut results = experiment.run(1, &mut |_| ()).unwrap();
    fs::create_dir(directory.path().join("lab")).unwrap();
    let plan = [registry.planned("lab/burst", Size::Usual)];
    let mut read = |made: Option<&str>, program: &str| {
        results.made = made.map(|commit| Provenance::now(Some(commit)));
        fs::write(directory.path().join("lab/burst.json"), results.to_json()).unwrap();
        let runner = Runner {
            results: Some(directory.path().to_owned()),
            version: program.to_owned(),
            ..runner(Size::Usual)
        };
        runner.run(&plan, &mut |_| ()).map(|ran| ran.len())
    };
    let version = Provenance::now(Some("1f2e")).program();
    assert_eq!(read(Some("1f2e"), &version).unwrap(), 1);
    for made in [Some("3d4c"), None] {
        let error = read(made, &version).unwrap_err().to_string();
        assert!(
            error.contains("results of two commits are not mixed"),
            "{error}"
        );
        assert!(
            error.contains("Run tailbound lab run burst --out"),
            "{error}"
        );
    }
}

#[test]
fn unknown_item_names_are_refused_with_the_known_ones() {
    let registry = Registry::read().unwrap();
    assert_eq!(registry.chosen(&["all".to_owned()]).unwrap().len(), 131);
    assert_eq!(
        registry
            .chosen(&["vsnoop".to_owned(), "silo-3".to_owned()])
            .unwrap()
            .len(),
        16
    );
    let refused = registry.chosen(&["vsnoop-99".to_owned()]).unwrap_err();
    assert!(
        refused
            .to_string()
            .contains("name a paper (small, bobtail, vsnoop, qos, silo)")
    );
}
