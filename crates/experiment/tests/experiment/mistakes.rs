//! Mistakes in the text of an experiment.

use crate::toy::{SOUND, load, with};
use proptest::prelude::*;
use std::cell::Cell;

/// A text in [`SOUND`], its replacement, and the whole message.
#[rustfmt::skip]
const MISTAKES: &[(&str, &str, &str)] = &[
    ("at = [\"after\"]", "at = [\"aftr\"]",
     "x.toml:37:7: unknown variant `aftr`; did you mean `after`?"),
    ("of = \"rtt.p99\"", "of = \"of_nothing\"",
     "x.toml:35:6: unknown value `of_nothing`; known here: rate"),
    ("of = \"rtt.p99\"", "of = \"fct.p99\"", "x.toml:35:6: unknown series `fct`; known here: rtt"),
    ("of = \"rtt.p99\"", "of = \"rtt.p98\"",
     "x.toml:35:6: unknown statistic `p98`; did you mean `p99`?"),
    ("at_least = 0.5", "at_least = 40",
     "x.toml:38:12: at_least 40: a reduction is a fraction, 1 at most; write 0.4 for 40 %"),
    ("at_least = 0.5", "at_least = 0.5\nat_most = 0.4",
     "x.toml:33:8: at_least is more than at_most: nothing is both"),
    ("at_least = 0.5\n", "", "x.toml:33:8: needs at_least or at_most, or both"),
    ("of = \"rtt.p99\"", "of = \"rate\"\nsamples = 100",
     "x.toml:36:11: samples: rate is a single value; leave it out, or name a series"),
    ("from = \"before\"\n", "", "x.toml:33:8: needs a `from` to compare with"),
    ("kind = \"reduction\"\n", "",
     "x.toml:33:8: has a `from`, but its kind compares nothing: use another kind"),
    ("at = [\"after\"]\n", "", "x.toml:33:8: judges no variant: name some in `at`"),
    ("kind = \"reduction\"\nof = \"rtt.p99\"\nfrom = \"before\"",
     "kind = \"of-promise\"\nof = \"rtt.p99\"\ninstead = [\"spare\"]",
     "x.toml:35:6: variant \"spare\" has nothing promised for it"),
    ("kind = \"reduction\"\nof = \"rtt.p99\"", "kind = \"distance\"\nof = \"rate\"",
     "x.toml:35:6: unknown chart `rate`; did you mean `rates`?"),
    ("kind = \"reduction\"\nof = \"rtt.p99\"", "kind = \"distance\"\nof = \"rates\"",
     "x.toml:36:8: unknown line of the paper `before`; known here: paper"),
    ("of = [\"rate\"]", "of = [\"rat\"]", "x.toml:29:7: unknown value `rat`; did you mean `rate`?"),
    ("name = \"one\"", "name = \"../one\"",
     "x.toml:2:8: the name \"../one\": use up to 60 letters, digits, '-', '_' and '.'"),
    ("name = \"spare\"", "name = \"after\"",
     "x.toml:20:8: variant \"after\" is there twice: use another name"),
];

#[test]
fn experiment_mistakes_are_reported_once_with_their_place() {
    let mut wrong = Vec::new();
    for (from, to, message) in MISTAKES {
        let got = load(&with(&[(from, to)])).map(drop).unwrap_err();
        if got != *message {
            wrong.push(format!("{to}\nwanted {message}\ngot    {got}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn all_mistakes_are_reported_together_in_text_order() {
    let error = load(&with(&[
        ("name = \"spare\"", "name = \"a/b\""),
        ("of = [\"rate\"]", "of = []"),
        ("at = [\"after\"]", "at = [\"later\", \"never\"]"),
        ("at_least = 0.5", "at_least = 50"),
    ]));
    let error = error.map(drop).unwrap_err();
    let places: Vec<_> = error
        .lines()
        .map(|line| line.split(' ').next().unwrap())
        .collect();
    let expected = [
        "x.toml:20:8:",
        "x.toml:25:8:",
        "x.toml:37:7:",
        "x.toml:37:16:",
        "x.toml:38:12:",
    ];
    assert_eq!(places, expected, "{error}");
    // Values of the wrong type come first: the rest says nothing before they are right.
    let error = load(&with(&[
        ("title = \"t\"", "titel = \"t\""),
        ("rtt = 1000", "rtt = \"fast\""),
        ("rtt = 250", "wrt = 250"),
        ("at_least = 0.5", "at_least = nan"),
    ]));
    let error = error.map(drop).unwrap_err();
    let told: Vec<_> = error
        .lines()
        .map(|line| line.split(';').next().unwrap())
        .collect();
    assert_eq!(
        told,
        [
            "x.toml:1:1: the key `title` is missing",
            "x.toml:3:1: unknown key `titel`",
            "x.toml:9:7: invalid type: string \"fast\"",
            "x.toml:15:1: unknown key `wrt`",
            "x.toml:38:12: not a number",
        ],
        "{error}"
    );
}

#[test]
fn a_mistake_costs_no_run() {
    let runs = Cell::new(0);
    if let Ok(loaded) = load(&with(&[("at = [\"after\"]", "at = [\"typo\"]")])) {
        loaded.run(1, &runs, &mut |_| {}).unwrap();
    }
    assert_eq!(runs.get(), 0);
    load(SOUND).unwrap().run(1, &runs, &mut |_| {}).unwrap();
    assert_eq!(runs.get(), 1);
}

proptest! {
    #[test]
    fn any_text_is_accepted_or_refused_and_never_panics(text: String) {
        let _ = load(&text);
    }

    #[test]
    fn a_corrupted_sound_experiment_never_panics_the_parser(
        at in 0..SOUND.len(), length in 0usize..20, other in "[ -~\n]{0,10}|.{0,3}",
    ) {
        let end = (at + length).min(SOUND.len());
        let text = format!("{}{other}{}", &SOUND[..at], &SOUND[end..]);
        let _ = load(&text);
    }
}
