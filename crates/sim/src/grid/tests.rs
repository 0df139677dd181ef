use super::*;
use crate::Threads;
use crate::net::NetExperiment;
use crate::packets::PacketsExperiment;
use ::parquet::file::reader::SerializedFileReader;
use ::parquet::record::reader::RowIter;
use ::parquet::record::{Field, Row as ParquetRow};
use proptest::prelude::*;
use std::fs;
use std::path::Path;
use std::str::FromStr as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use tailbound_experiment::{Experiment as _, ExperimentError, Loaded, Source};
use tailbound_report::{LineStyle, Results, Series, Value, Variant, empty_histogram};

fn scenario(text: &str) -> Result<Scenario, ExperimentError> {
    scenario_in(Path::new("."), text, "1.0.0")
}

/// Experiments of packets and networks for this program; files are found in `folder`.
fn scenario_in(folder: &Path, text: &str, version: &str) -> Result<Scenario, ExperimentError> {
    let source = Source {
        text: text.to_owned(),
        file: "grid.toml".to_owned(),
    };
    let find = |name: &str| match name.split_once('/') {
        Some(("packets", name)) => PacketsExperiment::CATALOGUE.source(name),
        Some(("net", name)) => {
            NetExperiment::CATALOGUE.source(&folder.join(name).to_string_lossy())
        }
        _ => Err(ExperimentError::Unknown {
            name: name.to_owned(),
            known: "packets/NAME".to_owned(),
        }),
    };
    let check = |name: &str, source: &Source| {
        if name.starts_with("net/") {
            return Ok(Loaded::<NetExperiment>::parse(source)?.experiment.inputs());
        }
        Ok(Loaded::<PacketsExperiment>::parse(source)?
            .experiment
            .inputs())
    };
    Scenario::parse(&source, version, find, check)
}

fn head(more: &str) -> String {
    format!("name = \"mine\"\ntitle = \"t\"\nexperiment = \"packets/queries\"\n{more}")
}

/// Two values of one key, three of another, twice each.
fn six_twice() -> Scenario {
    six_twice_by("1.0.0")
}

fn six_twice_by(version: &str) -> Scenario {
    let text = head(
        "repetitions = 2\nshow = [\"figure\"]\n\
         [[vary]]\nkey = \"messages.star.hosts\"\nrange = { from = 2, to = 6, step = 2 }\n\
         [[vary]]\nkey = \"messages.queries.question\"\nvalues = [\"100B\", \"1KB\"]\n",
    );
    scenario_in(Path::new("."), &text, version).unwrap()
}

/// Result of a point: its seed and hosts decide it.
fn found(point: &GridPoint) -> Results {
    let hosts: f64 = point.settings[0].parse().unwrap();
    let figure = hosts * 10.0 + point.seed as f64;
    let mut samples = empty_histogram();
    for sample in 1..=100 {
        samples.record(sample * point.seed).unwrap();
    }
    let mut variant = Variant::of_values("one", [("figure", figure, "B"), ("none", f64::NAN, "")]);
    variant
        .series
        .insert("took".to_owned(), Series::of("ns", &samples));
    Results {
        schema: tailbound_report::SCHEMA,
        experiment: "queries".to_owned(),
        title: String::new(),
        source: "s".to_owned(),
        made: None,
        seed: point.seed,
        conditions: std::collections::BTreeMap::new(),
        variants: vec![variant],
        charts: Vec::new(),
        checks: Vec::new(),
        verdict: tailbound_report::Verdict::Pass,
        verdict_reason: String::new(),
        sentence: None,
        words: std::collections::BTreeMap::new(),
    }
}

fn run_shard(scenario: &Scenario, store: &Store, shard: Shard) -> usize {
    let left = MissingPoints::of(store, shard).unwrap();
    let measure = |point: &GridPoint| Ok(found(point));
    run(
        scenario,
        store,
        &left.points,
        Threads(3),
        || false,
        |_| {},
        measure,
    )
    .unwrap()
}

fn store(folder: &Path, scenario: &Scenario) -> Store {
    Store::create(folder, Manifest::new(scenario)).unwrap()
}

/// Names and bytes of all rows.
fn rows(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let files = fs::read_dir(folder.join("rows")).unwrap();
    let mut rows: Vec<_> = files
        .map(|file| {
            let path = file.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            (name, fs::read(path).unwrap())
        })
        .collect();
    rows.sort();
    rows
}

#[test]
fn a_grid_repeats_each_combination_with_its_own_seed_and_key() {
    let grid = six_twice();
    let told: Vec<String> = (0..12).map(|point| grid.told(point)).collect();
    assert_eq!(
        told[..3],
        [
            "messages.star.hosts = 2, messages.queries.question = 100B, repetition 0",
            "messages.star.hosts = 2, messages.queries.question = 100B, repetition 1",
            "messages.star.hosts = 2, messages.queries.question = 1KB, repetition 0",
        ]
    );
    assert_eq!(grid.points[11].settings, ["6", "1KB"]);
    assert!(grid.points[11].source.text.contains("hosts = 6"));
    assert_eq!((grid.points[10].seed, grid.points[11].seed), (1, 2));
    let keys: std::collections::BTreeSet<&str> =
        grid.points.iter().map(|point| point.key.as_str()).collect();
    assert_eq!(keys.len(), 12);
    assert_eq!(grid, six_twice());
    let of_a_commit = six_twice_by("1.0.0 (1f2e3d4c5b6a)");
    let mut other = of_a_commit.points.iter().map(|point| point.key.as_str());
    assert!(!other.any(|key| keys.contains(key)));
}

#[test]
fn ranges_are_numbers_or_numbers_with_a_unit() {
    let with = |key: &str, range: &str| {
        let text = head(&format!("[[vary]]\nkey = \"{key}\"\nrange = {range}\n"));
        let points = scenario(&text).unwrap().points;
        points
            .into_iter()
            .map(|it| it.settings[0].clone())
            .collect::<Vec<_>>()
    };
    let hosts = with("messages.star.hosts", "{ from = 4, to = 9, step = 2 }");
    assert_eq!(hosts, ["4", "6", "8"]);
    let question = "{ from = 0.1, to = 0.3, step = 0.1, unit = \"KB\" }";
    assert_eq!(
        with("messages.queries.question", question),
        ["0.1KB", "0.2KB", "0.3KB"]
    );
}

/// A scenario with these values of a key.
fn vary(key: &str, values: &str) -> String {
    head(&format!("[[vary]]\nkey = \"{key}\"\nvalues = {values}\n"))
}

/// Checks that each text has a one-line error that begins with the given one.
fn told(cases: &[(String, &str)]) {
    for (text, wanted) in cases {
        let said = scenario(text).unwrap_err().to_string();
        assert!(said.starts_with(wanted), "{said}\n{wanted}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
}

#[test]
fn invalid_grid_values_are_reported_with_their_place() {
    told(&[
        // Wrong units.
        (
            vary("messages.queries.every", "[\"1ms\", \"2 parsecs\"]"),
            "grid.toml:6:18: with messages.queries.every = 2 parsecs: \"2 parsecs\" ",
        ),
        (
            vary("messages.star.link.rate", "[\"1GB\"]"),
            "grid.toml:6:11: with messages.star.link.rate = 1GB: ",
        ),
        // Unknown fields, of the scenario and of the experiment.
        (
            head("repetition = 3\n"),
            "grid.toml:4:1: unknown key `repetition`; did you mean",
        ),
        (
            vary("messages.queries.evry", "[\"1ms\"]"),
            "grid.toml:6:11: with messages.queries.evry = 1ms: unknown key `evry`; did you mean `every`?",
        ),
        (
            vary("mesages.star.hosts", "[2]"),
            "grid.toml:5:7: the experiment has no table `mesages`",
        ),
        // Networks that cannot be.
        (
            vary("messages.star.hosts", "[16, 1]"),
            "grid.toml:6:15: with messages.star.hosts = 1: ",
        ),
        (
            head("").replace("queries", "small-is-better-fig6")
                + "[[vary]]\nkey = \"messages.fat_tree.pods\"\nvalues = [65]\n",
            "grid.toml:6:11: with messages.fat_tree.pods = 65: pods 65: choose 1 to 64",
        ),
        // Distributions of nothing.
        (
            vary("messages.queries.answer", "[{}]"),
            "grid.toml:6:11: with messages.queries.answer = {}: 0 sizes: write one of",
        ),
        (
            vary(
                "messages.queries.answer",
                "[{ pareto = { shape = 1.0, mean = \"1KB\" } }]",
            ),
            "grid.toml:6:11: with messages.queries.answer = ",
        ),
    ]);
}

#[test]
fn invalid_grids_are_reported_with_their_place() {
    told(&[
        // Grids that are none.
        (
            vary("messages.star.hosts", "[]"),
            "grid.toml:5:7: messages.star.hosts has no values; ",
        ),
        (
            head(
                "[[vary]]\nkey = \"messages.star.hosts\"\nrange = { from = 9, to = 2, step = 1 }\n",
            ),
            "grid.toml:6:9: messages.star.hosts: this is no range; ",
        ),
        (
            head(
                "[[vary]]\nkey = \"messages.star.hosts\"\nrange = { from = 2, to = 9, step = 0 }\n",
            ),
            "grid.toml:6:9: messages.star.hosts: this is no range; ",
        ),
        (
            head("repetitions = 0\n"),
            "grid.toml:4:15: repetitions = 0; choose 1 or more",
        ),
        (
            head("repetitions = 100001\n"),
            "grid.toml:1:8: the grid has 100001 points; ",
        ),
        (
            vary("messages.star.hosts", "[2]")
                + "[[vary]]\nkey = \"messages.star.hosts\"\nvalues = [3]\n",
            "grid.toml:8:7: messages.star.hosts is varied twice",
        ),
        (
            head("").replace("mine", "../mine"),
            "grid.toml:1:8: the name \"../mine\"; ",
        ),
        (
            head("").replace("queries", "quests"),
            "grid.toml:3:14: there is no experiment \"quests\"; name a file, or one of web-search",
        ),
        (head("seed = \n"), "grid.toml:4:"),
    ]);
}

#[test]
fn a_host_count_beyond_the_integer_range_is_refused() {
    let text = head("").replace("queries", "small-is-better-fig6")
        + "[[vary]]\nkey = \"messages.fat_tree.pods\"\nvalues = [9000000000000000000]\n";
    let said = scenario(&text).unwrap_err().to_string();
    assert!(
        said.contains(" 18446744073709551615 hosts in all: choose 2 to 16384"),
        "{said}"
    );
}

#[test]
fn all_grid_mistakes_are_reported_at_their_values() {
    let text = head(
        "[[vary]]\nkey = \"messages.star.hosts\"\nvalues = [1, 2, 0]\n\
         [[vary]]\nkey = \"messages.queries.every\"\nvalues = [\"1ms\", \"soon\"]\n",
    );
    let said = scenario(&text).unwrap_err().to_string();
    let places: Vec<&str> = said
        .lines()
        .map(|line| line.split(' ').next().unwrap())
        .collect();
    assert_eq!(
        places,
        ["grid.toml:6:11:", "grid.toml:6:17:", "grid.toml:9:18:"],
        "{said}"
    );
    // A value that is valid by itself, but not with another one.
    let text = head(
        "[[vary]]\nkey = \"messages.warm_up\"\nvalues = [\"500ms\"]\n\
         [[vary]]\nkey = \"messages.duration\"\nvalues = [\"1s\", \"400ms\"]\n",
    );
    let said = scenario(&text).unwrap_err().to_string();
    let wanted = "grid.toml:9:17: with messages.warm_up = 500ms, messages.duration = 400ms: ";
    assert!(said.starts_with(wanted), "{said}");
}

#[test]
fn a_row_follows_from_files_that_its_experiment_names() {
    let folder = tempfile::tempdir().unwrap();
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../experiments");
    let network = fs::read_to_string(format!("{root}/networks/silo-figure-5a.toml")).unwrap();
    let experiment = fs::read_to_string(format!("{root}/net/silo-figure5.toml")).unwrap();
    let experiment = experiment.replace("file = \"silo-figure-5a\"", "file = \"mine.toml\"");
    fs::write(folder.path().join("figure.toml"), experiment).unwrap();
    let key = |network: &str| {
        fs::write(folder.path().join("mine.toml"), network).unwrap();
        let text = head("").replace("packets/queries", "net/figure.toml");
        scenario_in(folder.path(), &text, "1.0.0").unwrap().points[0]
            .key
            .clone()
    };
    let one = key(&network);
    assert_eq!(one, key(&network));
    let other = network.replacen("10Gbit/s", "9Gbit/s", 1);
    assert_ne!(other, network);
    assert_ne!(one, key(&other));
}

#[test]
fn merged_shards_equal_the_whole_run_byte_by_byte() {
    let (grid, folder) = (six_twice(), tempfile::tempdir().unwrap());
    let whole = store(&folder.path().join("whole"), &grid);
    assert_eq!(run_shard(&grid, &whole, Shard::WHOLE), 12);
    let parts: Vec<Store> = (1..=5)
        .map(|number| {
            let part = store(&folder.path().join(format!("part-{number}")), &grid);
            run_shard(
                &grid,
                &part,
                Shard::from_str(&format!("{number}/5")).unwrap(),
            );
            part
        })
        .collect();
    let merged = store(&folder.path().join("merged"), &grid);
    // The last one is missing still.
    for part in &parts[..4] {
        merged.take(part).unwrap();
    }
    let missing = merged.all().unwrap_err().to_string();
    assert!(
        missing.starts_with("2 of 12 rows are missing, point 4 first"),
        "{missing}"
    );
    // A shard that is merged twice changes nothing.
    for part in [&parts[4], &parts[0], &whole] {
        merged.take(part).unwrap();
    }
    assert_eq!(rows(whole.directory()), rows(merged.directory()));
    let report = |store: &Store| {
        let rows = store.all().unwrap();
        let results = summary(store.manifest(), &rows);
        let tables = [
            csv(store.manifest(), &rows),
            parquet(store.manifest(), &rows),
        ];
        (results.to_json(), tables)
    };
    assert_eq!(report(&whole), report(&merged));
    for wrong in ["0/2", "3/2", "2", "1/0", "-1/2", "a/b"] {
        assert!(Shard::from_str(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn a_run_that_ends_early_goes_on_without_a_wrong_or_doubled_row() {
    let (grid, folder) = (six_twice(), tempfile::tempdir().unwrap());
    let whole = store(&folder.path().join("whole"), &grid);
    run_shard(&grid, &whole, Shard::WHOLE);
    let halted = store(&folder.path().join("halted"), &grid);
    let measured = AtomicUsize::new(0);
    let all: Vec<usize> = (0..12).collect();
    // A point that fails ends the run; existing rows stay.
    let no = || ExperimentError::Unknown {
        name: "it".to_owned(),
        known: "none".to_owned(),
    };
    let failing = |point: &GridPoint| {
        if measured.fetch_add(1, Ordering::Relaxed) == 5 {
            return Err(no());
        }
        Ok(found(point))
    };
    let ended = run(&grid, &halted, &all, Threads(1), || false, |_| {}, failing);
    let said = ended.unwrap_err().to_string();
    assert!(
        said.starts_with("point ") && said.contains("): ") && said.ends_with(&no().to_string()),
        "{said}"
    );
    // A caller that requests the end stops the run, too.
    let left = MissingPoints::of(&halted, Shard::WHOLE).unwrap();
    assert_eq!((left.done, left.points.len()), (5, 7));
    let is_over = || measured.load(Ordering::Relaxed) >= 8;
    let some = |point: &GridPoint| {
        measured.fetch_add(1, Ordering::Relaxed);
        Ok(found(point))
    };
    assert_eq!(
        run(
            &grid,
            &halted,
            &left.points,
            Threads(1),
            is_over,
            |_| {},
            some
        )
        .unwrap(),
        2
    );
    assert_eq!(run_shard(&grid, &halted, Shard::WHOLE), 5);
    assert_eq!(run_shard(&grid, &halted, Shard::WHOLE), 0);
    assert_eq!(rows(whole.directory()), rows(halted.directory()));
}

#[test]
fn a_corrupt_row_is_found_and_computed_again_and_never_merged() {
    let (grid, folder) = (six_twice(), tempfile::tempdir().unwrap());
    let here = store(&folder.path().join("here"), &grid);
    run_shard(&grid, &here, Shard::WHOLE);
    let before = rows(here.directory());
    let path = here.path(3);
    let text = fs::read_to_string(&path).unwrap();
    let other = fs::read(here.path(4)).unwrap();
    let damaged: [(Vec<u8>, &str); 5] = [
        (
            text.replace("\"figure\"", "\"figurE\"").into_bytes(),
            "its checksum is not",
        ),
        (
            text.as_bytes()[..text.len() / 2].to_vec(),
            "its checksum is not",
        ),
        (Vec::new(), "it has no head"),
        (vec![0xff; 100], "it is no text"),
        (other, "it is the row of another point, 4"),
    ];
    for (bytes, wanted) in damaged {
        fs::write(&path, bytes).unwrap();
        let left = MissingPoints::of(&here, Shard::WHOLE).unwrap();
        assert_eq!((left.points.clone(), left.corrupt.len()), (vec![3], 1));
        let said = left.corrupt[0].to_string();
        assert!(
            said.contains("000003.row") && said.contains(wanted),
            "{said}"
        );
        let fresh = tempfile::tempdir().unwrap();
        let merged = store(fresh.path(), &grid).take(&here);
        assert!(
            matches!(merged, Err(GridError::Corrupt { .. })),
            "{merged:?}"
        );
        assert_eq!(run_shard(&grid, &here, Shard::WHOLE), 1);
        assert_eq!(rows(here.directory()), before);
    }
}

#[test]
fn rows_of_another_grid_or_of_another_program_are_refused() {
    let (grid, folder) = (six_twice(), tempfile::tempdir().unwrap());
    let here = store(&folder.path().join("here"), &grid);
    run_shard(&grid, &here, Shard::WHOLE);
    // The same with another seed.
    let mut later = grid.clone();
    later.points[0].key = "0".repeat(64);
    let other = Store::create(here.directory(), Manifest::new(&later));
    assert!(matches!(other, Err(GridError::Other { .. })), "{other:?}");
    // A row of the same point with other content and a correct checksum.
    let there = store(&folder.path().join("there"), &grid);
    let mut results = found(&grid.points[0]);
    results.seed += 1;
    there
        .write(&Row::new(0, &grid.points[0].key, results))
        .unwrap();
    let differ = here.take(&there);
    assert!(
        matches!(differ, Err(GridError::Differ { .. })),
        "{differ:?}"
    );
    let none = Store::open(folder.path());
    assert!(matches!(none, Err(GridError::NoGrid { .. })), "{none:?}");
}

proptest! {
    #[test]
    fn a_row_with_any_changed_bit_is_rejected(place in any::<prop::sample::Index>(), bit in 0..8_u8) {
        let point = GridPoint {
            settings: vec!["6".to_owned()],
            repetition: 0,
            seed: 1,
            source: Source { text: String::new(), file: String::new() },
            key: "key".to_owned(),
        };
        let row = Row::new(3, "key", found(&point));
        let mut bytes = row.to_text().into_bytes();
        let whole = Row::from_bytes(&bytes).unwrap();
        prop_assert_eq!(whole.to_text().into_bytes(), bytes.clone());
        let place = place.index(bytes.len());
        bytes[place] ^= 1 << bit;
        prop_assert!(Row::from_bytes(&bytes).is_err());
        bytes[place] ^= 1 << bit;
        bytes.truncate(place);
        prop_assert!(Row::from_bytes(&bytes).is_err());
    }
}

#[test]
fn a_report_has_medians_all_samples_and_bands_by_students_distribution() {
    let text = head(
        "repetitions = 3\nshow = [\"figure\"]\n[[vary]]\nkey = \"messages.star.hosts\"\nvalues = [2, 4]\n",
    );
    let grid = scenario(&text).unwrap();
    let rows: Vec<Row> = (grid.points.iter().enumerate())
        .map(|(number, point)| Row::new(number, &point.key, found(point)))
        .collect();
    let results = summary(&Manifest::new(&grid), &rows);
    let names: Vec<&str> = results.variants.iter().map(|it| it.name.as_str()).collect();
    assert_eq!(names, ["one hosts=2", "one hosts=4"]);
    // 21, 22 and 23.
    let figure = Value {
        spread: Some([21.0, 23.0]),
        ..Value::new("B", 22.0)
    };
    assert_eq!(results.variants[0].values["figure"], figure);
    assert_eq!(results.variants[0].series["took"].stats.count, 300);
    assert_eq!(results.variants[0].series["took"].stats.max, 300);
    let chart = results.chart("figure").unwrap();
    let styles: Vec<LineStyle> = chart.lines.iter().map(|line| line.style).collect();
    assert_eq!(
        styles,
        [LineStyle::Measured, LineStyle::Band, LineStyle::Band]
    );
    let point = |line: usize| (chart.lines[line].points[1].0, chart.lines[line].points[1].1);
    // 41, 42 and 43: a standard deviation of 1, and 4.303 of two degrees of freedom.
    let half = 4.303 / 3.0_f64.sqrt();
    assert_eq!(point(0), (4.0, 42.0));
    assert!((point(1).1 - (42.0 - half)).abs() < 1e-9, "{:?}", point(1));
    assert!((point(2).1 - (42.0 + half)).abs() < 1e-9, "{:?}", point(2));
    // The medians of 50, 100 and 150: the mean, and its band.
    let cdf = results.chart("cdf-took").unwrap();
    let median = |line: usize| {
        let point = cdf.lines[line]
            .points
            .iter()
            .find(|it| it.1.total_cmp(&50.0).is_eq());
        point.unwrap().0
    };
    assert!((median(0) - 100.0).abs() < 1.0, "{}", median(0));
    assert!(
        median(1) < 0.0 && median(2) > 200.0,
        "{} {}",
        median(1),
        median(2)
    );
    tailbound_report::page(&results).unwrap();
}

#[test]
fn a_table_has_each_figure_of_each_row() {
    let grid = six_twice();
    let row = Row::new(2, &grid.points[2].key, found(&grid.points[2]));
    let rows = [row];
    let table = String::from_utf8(csv(&Manifest::new(&grid), &rows)).unwrap();
    let mut lines = table.lines();
    assert_eq!(
        lines.next().unwrap(),
        "point,repetition,seed,messages.star.hosts,messages.queries.question,variant,figure,unit,value"
    );
    assert_eq!(lines.next().unwrap(), "2,0,1,2,1KB,one,figure,B,21");
    // One that could not be computed.
    assert_eq!(lines.next().unwrap(), "2,0,1,2,1KB,one,none,,");
    assert!(
        table.contains("2,0,1,2,1KB,one,took.p99,ns,99\n"),
        "{table}"
    );
    // The same in Parquet, row by row.
    let file = bytes::Bytes::from(parquet(&Manifest::new(&grid), &rows));
    let file = SerializedFileReader::new(file).unwrap();
    let rows = RowIter::from_file_into(Box::new(file)).map(Result::unwrap);
    let fields = |row: ParquetRow| {
        let fields = row
            .into_columns()
            .into_iter()
            .map(|(_, field)| match field {
                Field::Str(text) => text,
                Field::Long(number) => number.to_string(),
                Field::Double(number) => number.to_string(),
                Field::Null => String::new(),
                other => panic!("{other}"),
            });
        fields.collect::<Vec<_>>().join(",")
    };
    let in_csv: Vec<_> = table.lines().skip(1).collect();
    assert_eq!(rows.map(fields).collect::<Vec<_>>(), in_csv);
}
