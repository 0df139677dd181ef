//! Experiments for tests: changed ones, and ones with mistakes.

use tailbound_document::testing::assert_refused;
use tailbound_experiment::{Experiment, Loaded, Source};
use tailbound_report::Results;

/// Reads an experiment. The message about a mistake begins with its place.
pub(crate) fn parse<E: Experiment>(text: &str) -> Result<Loaded<E>, String> {
    read("x.toml", text)
}

fn read<E: Experiment>(file: &str, text: &str) -> Result<Loaded<E>, String> {
    let source = Source {
        text: text.to_owned(),
        file: file.to_owned(),
    };
    Loaded::parse(&source).map_err(|error| {
        let error = error.to_string();
        assert!(error.starts_with(&format!("{file}:")), "{error}");
        error
    })
}

/// Returns an experiment of the program.
pub(crate) fn source<E: Experiment>(name: &str) -> Source {
    let source = E::CATALOGUE.source(name);
    source.expect("it comes with the program")
}

/// Replaces texts, each once.
pub(crate) fn replaced(text: &str, changes: &[(&str, &str)]) -> String {
    changes.iter().fold(text.to_owned(), |text, (from, to)| {
        assert!(text.contains(from), "there is no {from}");
        text.replacen(from, to, 1)
    })
}

/// Loads an experiment of the program, with replacements in its text.
pub(crate) fn load<E: Experiment>(name: &str, changes: &[(&str, &str)]) -> Loaded<E> {
    let loaded = read(name, &replaced(&source::<E>(name).text, changes));
    loaded.unwrap_or_else(|error| panic!("{error}"))
}

/// Checks a table of mistakes in an experiment of the program ([`assert_refused`]).
#[track_caller]
pub(crate) fn assert_mistakes<E: Experiment>(name: &str, table: &str) {
    let Source { text, file } = source::<E>(name);
    assert_refused(&text, |text| read::<E>(&file, text), table);
}

/// Checks that measurements have the names of the outline.
pub(crate) fn assert_outlined<E: Experiment>(loaded: &Loaded<E>, results: &Results) {
    for (outline, variant) in loaded.experiment.outline().iter().zip(&results.variants) {
        assert_eq!(outline.name, variant.name);
        assert!(outline.series.keys().eq(variant.series.keys()));
        assert!(outline.values.keys().eq(variant.values.keys()));
    }
}
