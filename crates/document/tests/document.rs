//! Reading of files, and locations of their mistakes.

use serde::Deserialize;
use std::path::Path;
use tailbound_document::{Document, DocumentError, Mistake, Problem, Step, unknown_word};

#[derive(Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
struct Pet {
    name: String,
    legs: u8,
}

const FILE: &str = "top = 1\n[[pet]]\nname = \"Kitty\"\nlegs = 4\n[[pet]]\nname = \"Tweety\"\nlegs = 2\n[home.\"my house\"]\nrooms = 3\n";

fn shown(mistakes: &[Mistake]) -> Vec<String> {
    mistakes.iter().map(ToString::to_string).collect()
}

#[test]
fn entries_are_read_one_by_one_and_a_mistake_hides_no_other() {
    let text = FILE
        .replace("legs = 4", "legs = 400")
        .replace("legs = 2", "leg = 2");
    let document = Document::parse(&text).unwrap();
    let mut mistakes = Vec::new();
    let mut top = None;
    for entry in document.entries() {
        match entry.key() {
            "top" => top = entry.read::<u8>(&mut mistakes),
            "pet" => assert_eq!(entry.read_list::<Pet>(&mut mistakes), []),
            other => mistakes.push(entry.wrong_key(unknown_word("key", other, &["homes"]))),
        }
    }
    assert_eq!(top, Some(1));
    let shown = shown(&mistakes);
    assert_eq!(shown.len(), 3, "{shown:?}");
    let says = |start: &str| shown.iter().any(|mistake| mistake.starts_with(start));
    assert!(says("4:8: invalid value"), "{shown:?}");
    assert!(
        says("7:1: unknown key `leg`; did you mean `legs`?"),
        "{shown:?}"
    );
    assert!(
        says("8:2: unknown key `home`; did you mean `homes`?"),
        "{shown:?}"
    );
}

#[test]
fn a_value_in_place_of_a_list_is_an_error_with_a_remedy() {
    let document = Document::parse("pet = 1\n").unwrap();
    let mut mistakes = Vec::new();
    let entry = document.entries().next().unwrap();
    assert_eq!(entry.read_list::<Pet>(&mut mistakes), []);
    assert_eq!(
        shown(&mistakes),
        ["1:1: `pet` is not a list; write `[[pet]]` before each pet"]
    );
}

#[test]
fn problems_are_located_in_the_order_of_the_file() {
    let document = Document::parse(FILE).unwrap();
    let pet = |index, key| [Step::Key("pet"), Step::Index(index), Step::Key(key)];
    let house = [
        Step::Key("home"),
        Step::Name("my house".to_owned()),
        Step::Key("rooms"),
    ];
    let located = document.locate([
        Problem::new(&house, "rooms"),
        Problem::new(&pet(1, "legs"), "second"),
        Problem::new(&pet(0, "name"), "first"),
    ]);
    assert_eq!(shown(&located), ["3:8: first", "7:8: second", "9:9: rooms"]);
    // A missing value has the location where it would have to be.
    let missing = document.locate([Problem::new(&pet(1, "tail"), "no tail")]);
    assert_eq!(missing[0].location.line, 5);
}

#[test]
fn every_mistake_of_syntax_is_shown_with_its_file() {
    let error = DocumentError::load(Path::new("/nowhere/at.toml"), |_| Ok(())).unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("/nowhere/at.toml: cannot be read")
    );
    let mistakes = Document::parse("a = \n[b\n").unwrap_err();
    let error = DocumentError::Mistakes {
        path: "x.toml".into(),
        mistakes,
    };
    let lines: Vec<_> = error.to_string().lines().map(str::to_owned).collect();
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines[0].starts_with("x.toml:1:"), "{lines:?}");
    assert!(lines[1].starts_with("x.toml:2:"), "{lines:?}");
}

#[test]
fn a_key_that_stands_twice_is_named_where_it_stands_again() {
    let text = "[[pet]]\nname = \"Kitty\"\n  name = \"Tweety\"\n";
    assert_eq!(
        shown(&Document::parse(text).unwrap_err()),
        ["3:3: not TOML: the key `name` is set for the second time; leave one of the two"]
    );
}

#[test]
fn the_first_twenty_mistakes_are_shown_and_the_rest_counted() {
    let found = |count: usize| {
        let lines: Vec<_> = (0..count).map(|line| format!("a{line} =\n")).collect();
        let text = lines.concat();
        let mistakes = Document::parse(&text).unwrap_err();
        assert_eq!(mistakes.len(), count);
        let path = "x.toml".into();
        DocumentError::Mistakes { path, mistakes }.to_string()
    };
    assert_eq!(found(20).lines().count(), 20);
    let lines: Vec<_> = found(10_000).lines().map(str::to_owned).collect();
    assert_eq!(lines.len(), 21);
    assert!(lines[19].starts_with("x.toml:20:"), "{}", lines[19]);
    assert_eq!(lines[20], "x.toml: 9980 more mistakes were found");
}
