//! Experiments from their text to their verdict, of a kind whose measurements are in its file.

mod checks;
mod mistakes;
mod noise;
mod toy;

use crate::toy::{SOUND, Toy, load, run, with};
use tailbound_experiment::Experiment as _;
use tailbound_report::Value;

const SENTENCE: &str = "[sentence]\nwhat = \"answers\"\ndid = \"took\"\nseries = \"rtt\"\n\
                        at = \"after\"\nfrom = \"before\"\n\n[[variant]]\nname = \"before\"";

#[test]
#[rustfmt::skip]
fn a_run_ends_with_the_sentence_that_its_experiment_defines() {
    assert_eq!(run(&[]).sentence, None);
    let told = ("[[variant]]\nname = \"before\"", SENTENCE);
    let said = run(&[told]).sentence.unwrap();
    assert_eq!(
        said,
        "99 of 100 answers took 250 ns, and 1 us without tailbound."
    );
    for (from, to, message) in [
        ("series = \"rtt\"", "series = \"rt\"", "unknown series `rt`"),
        ("at = \"after\"\nfrom", "at = \"aftr\"\nfrom", "unknown variant `aftr`"),
    ] {
        let error = load(&with(&[told, (from, to)])).unwrap_err();
        assert!(error.contains(message), "{error}");
    }
}

#[test]
fn labels_are_accepted_only_for_measured_names() {
    let words = |text: &str| {
        let text = format!("[words]\n{text}\n\n[[variant]]\nname = \"before\"");
        load(&with(&[("[[variant]]\nname = \"before\"", &text)]))
    };
    assert!(run(&[]).words.is_empty());
    let error = words("rt = \"Time\"").unwrap_err();
    assert!(
        error.contains("unknown name `rt`; did you mean `rtt`?"),
        "{error}"
    );
    words("rtt = \"Time until the answer\"\nbefore = \"without it\"").unwrap();
}

#[test]
fn charts_are_drawn_from_the_variants_that_have_a_place() {
    let results = run(&[]);
    let lines: Vec<_> = results.charts[0]
        .lines
        .iter()
        .map(|it| it.name.as_str())
        .collect();
    assert_eq!(lines, ["measured", "paper"]);
    let points: Vec<f64> = results.charts[0].lines[0]
        .points
        .iter()
        .map(|it| it.1)
        .collect();
    assert_eq!(points, [200.0, 196.0]);
}

#[test]
fn unknown_experiments_are_refused_with_the_known_names() {
    let source = Toy::CATALOGUE.source("one").unwrap();
    assert_eq!(
        (source.text.as_str(), source.file.as_str()),
        (SOUND, "toys/one.toml")
    );
    let error = Toy::CATALOGUE.source("two").unwrap_err().to_string();
    assert_eq!(
        error,
        "there is no experiment \"two\"; name a file, or one of one"
    );
    let error = Toy::CATALOGUE
        .source("no/such.toml")
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with("no/such.toml: cannot be read: "),
        "{error}"
    );
    let value = Value::new("op/s", 200.0);
    assert_eq!(run(&[]).variants[0].values["rate"], value);
}
