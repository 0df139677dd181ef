use super::*;
use proptest::prelude::*;
use std::fs;
use tempfile::TempDir;

/// A configuration with one guest, `web`, whose added guests are kept beside it.
struct Place {
    directory: TempDir,
}

impl Place {
    fn new() -> Self {
        let place = Self {
            directory: tempfile::tempdir().expect("a directory"),
        };
        let text = format!("added = {:?}\n{}", place.added(), guest("web", 1));
        fs::write(place.file(), text).expect("written");
        place
    }

    fn file(&self) -> PathBuf {
        self.directory.path().join("host.toml")
    }

    fn added(&self) -> PathBuf {
        self.directory.path().join("state/added.toml")
    }

    fn files(&self) -> Files {
        Files::read(&self.file()).expect("they can be read")
    }
}

/// A section with an own number in all that has to be unique.
fn guest(name: &str, number: u8) -> String {
    format!(
        "[[guest]]\nname = {name:?}\nmac = \"02:00:00:00:00:{number:02x}\"\n\
         ip = [\"10.77.0.{number}\"]\nport = {{ kind = \"tap\", interface = \"tap{number}\" }}\n"
    )
}

fn add(text: impl Into<String>) -> Change {
    Change::Add {
        text: text.into(),
        before: Before::No,
    }
}

fn remove(name: &str) -> Change {
    Change::Remove {
        name: name.to_owned(),
    }
}

/// Applies and stores `change`, and returns the new files.
fn changed(files: &Files, change: &Change) -> Files {
    let (next, config) = files
        .changed(change)
        .expect("it is right")
        .expect("it changes something");
    assert_eq!(next.parse().expect("it is right"), config);
    next.added().write().expect("written");
    next
}

fn names(files: &Files) -> Vec<String> {
    let config = files.parse().expect("it is right");
    config.guests.into_iter().map(|guest| guest.name).collect()
}

fn refused(files: &Files, change: &Change) -> String {
    files.changed(change).expect_err("it is wrong").to_string()
}

#[test]
fn added_guests_are_loaded_again_from_the_files() {
    let place = Place::new();
    let files = place.files();
    assert_eq!(names(&files), ["web"]);
    let two = format!("# two\n{}{}", guest("db", 2), guest("cache", 3));
    let files = changed(&files, &add(two));
    assert_eq!(names(&files), ["web", "db", "cache"]);
    let config = files.parse().expect("it is right");
    assert_eq!(place.files().parse().expect("it is right"), config);
    assert_eq!(Config::load(&place.file()).expect("it is right"), config);
    assert_eq!(
        Config::load_file(&place.file())
            .expect("it is right")
            .guests
            .len(),
        1
    );
    let files = changed(&place.files(), &remove("db"));
    assert_eq!(names(&files), ["web", "cache"]);
    changed(&files, &remove("cache"));
    assert_eq!(names(&place.files()), ["web"]);
}

#[test]
fn a_repeated_request_changes_nothing() {
    let place = Place::new();
    let files = place.files();
    assert!(files.changed(&remove("db")).expect("no mistake").is_none());
    let files = changed(&files, &add(guest("db", 2)));
    for again in [guest("db", 2), guest("web", 1)] {
        let again = again.replace("ip = ", "# As before\nip = ");
        assert!(files.changed(&add(again)).expect("no mistake").is_none());
    }
    let files = changed(&files, &remove("db"));
    assert!(files.changed(&remove("db")).expect("no mistake").is_none());
}

#[test]
fn adding_a_guest_with_other_values_requires_replace() {
    let place = Place::new();
    let files = changed(&place.files(), &add(guest("db", 2)));
    let other = format!("\n{}{}", guest("cache", 3), guest("db", 4));
    assert_eq!(
        refused(&files, &add(other.clone())),
        "<request>:8:8: db was added before, with other values; use --replace to change it"
    );
    let replace = Change::Add {
        text: other,
        before: Before::Maybe,
    };
    let files = changed(&files, &replace);
    assert_eq!(names(&files), ["web", "cache", "db"]);
    let config = files.parse().expect("it is right");
    assert_eq!(config.guests[2].mac.to_string(), "02:00:00:00:00:04");
}

#[test]
fn a_change_requires_an_added_guest() {
    let place = Place::new();
    let change = |text: String| Change::Add {
        text,
        before: Before::Yes,
    };
    let files = changed(&place.files(), &add(guest("db", 2)));
    for (text, wanted) in [
        (
            guest("cache", 3),
            "2:8: cache is none of the guests that were added; add it by add-guest",
        ),
        (
            guest("db", 4) + &guest("cache", 3),
            "7:8: cache is none of the guests that were added; add it by add-guest",
        ),
    ] {
        let said = refused(&files, &change(text));
        assert!(said.contains(&format!("<request>:{wanted}")), "{said}");
    }
    let in_file = format!(
        "the guest web is in {}; change it there, and send the daemon SIGHUP to reload the file",
        place.file().display()
    );
    assert_eq!(refused(&files, &change(guest("web", 4))), in_file);
    let replace = Change::Add {
        text: guest("web", 4),
        before: Before::Maybe,
    };
    assert_eq!(refused(&files, &replace), in_file);
    let same = files.changed(&change(guest("db", 2)));
    assert!(same.expect("no mistake").is_none());
    let files = changed(&files, &change(guest("db", 4)));
    let config = files.parse().expect("it is right");
    assert_eq!(config.guests[1].mac.to_string(), "02:00:00:00:00:04");
}

#[test]
fn a_conflict_is_reported_with_the_place_of_the_other_guest() {
    let place = Place::new();
    let files = changed(&place.files(), &add(guest("db", 2)));
    let file = place.file().display().to_string();
    let added = place.added().display().to_string();
    for (text, wanted) in [
        (
            guest("web", 9),
            format!("2:8: duplicate name web, which is web's ({file}:2:1); use a different one for each guest"),
        ),
        (
            guest("x", 9).replace(":09", ":01"),
            format!(
                "3:7: duplicate MAC address 02:00:00:00:00:01, which is web's ({file}:2:1); use a different one for each guest"
            ),
        ),
        (
            guest("x", 9).replace("77.0.9", "77.0.2"),
            format!("4:7: duplicate IP address 10.77.0.2, which is db's ({added}:4:1); use different addresses for each guest"),
        ),
        (
            guest("x", 9).replace("tap9", "tap1"),
            format!("5:36: the interface tap1 is web's ({file}:2:1); use a different interface for each port"),
        ),
        (
            format!("{}{}", guest("x", 9), guest("x", 8)),
            "7:8: duplicate name x, which is x's (<request>:1:1); use a different one for each guest".to_owned(),
        ),
    ] {
        assert_eq!(refused(&files, &add(text)), format!("<request>:{wanted}"));
    }
    assert_eq!(names(&place.files()), ["web", "db"]);
}

#[test]
fn request_mistakes_are_reported_with_their_position() {
    let place = Place::new();
    let files = place.files();
    for (text, wanted) in [
        ("", "there is no guest in it; write `[[guest]]` before each"),
        (
            "[[guest]",
            "<request>:1:9: not TOML: unclosed array table; expected `]`",
        ),
        (
            "metrics = \"127.0.0.1:1\"\n",
            "<request>:1:1: unknown key `metrics`; known here: guest",
        ),
    ] {
        assert_eq!(refused(&files, &add(text)), wanted);
    }
    let text = guest("db", 2).replace("mac", "macs") + &guest("b c", 3);
    assert_eq!(
        refused(&files, &add(text)),
        "<request>:3:1: unknown key `macs`; did you mean `mac`?\n\
         <request>:7:8: \"b c\" cannot name a guest; use 1 to 64 letters, digits, '-', '_' and '.'"
    );
    let error = files.changed(&remove("web")).expect_err("it is the file's");
    assert!(error.to_string().contains("host.toml"), "{error}");
}

#[test]
fn a_file_of_added_guests_that_is_damaged_is_named() {
    let place = Place::new();
    changed(&place.files(), &add(guest("db", 2)));
    let text = fs::read_to_string(place.added()).expect("it is there");
    for (damaged, wanted) in [
        (text.replace("02:00", "zz:00"), "added.toml:"),
        (text.replace("[[guest]]", "[[gest]]"), "unknown key `gest`"),
        (text.replace('"', ""), "added.toml:"),
    ] {
        fs::write(place.added(), damaged).expect("written");
        let error = Config::load(&place.file()).expect_err("it is damaged");
        assert!(!error.is_unread());
        assert!(error.to_string().contains(wanted), "{error}");
        Config::load_file(&place.file()).expect("the file itself is right");
    }
    fs::remove_file(place.added()).expect("it is there");
    fs::create_dir(place.added()).expect("made");
    let error = Config::load(&place.file()).expect_err("it is no file");
    assert!(error.is_unread(), "{error}");
}

#[test]
fn a_place_that_cannot_be_written_is_named_with_the_key_that_chooses_it() {
    let place = Place::new();
    fs::write(place.directory.path().join("state"), "").expect("written");
    let files = place.files();
    let (next, _) = files
        .changed(&add(guest("db", 2)))
        .expect("it is right")
        .expect("it is new");
    let error = next.added().write().expect_err("there is no directory");
    assert!(error.to_string().contains("`added = ...`"), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Random changes: the stored files always contain the configuration in force, every guest
    /// once, and a refused change has no effect.
    #[test]
    fn the_stored_files_match_the_configuration_in_force(
        steps in proptest::collection::vec((0_u8..6, 0_u8..8, any::<bool>(), 0_u8..3), 1..30),
    ) {
        let place = Place::new();
        let mut files = place.files();
        for (name, number, is_added, before) in steps {
            let name = if name == 0 { "web".to_owned() } else { format!("g{name}") };
            let change = if is_added {
                let before = [Before::No, Before::Maybe, Before::Yes][usize::from(before)];
                Change::Add { text: guest(&name, number + 1), before }
            } else {
                remove(&name)
            };
            if let Ok(Some((next, config))) = files.changed(&change) {
                let is_there = config.guests.iter().any(|guest| guest.name == name);
                prop_assert_eq!(is_there, is_added);
                if matches!(change, Change::Add { before: Before::Yes, .. }) {
                    prop_assert!(files.added().has(&name));
                }
                next.added().write().expect("written");
                files = next;
            }
            let again = place.files().parse().expect("it is right");
            let held = files.parse().expect("it is right");
            prop_assert_eq!(again, held);
        }
    }
}
