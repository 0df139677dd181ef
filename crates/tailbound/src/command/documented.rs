//! Test of the commands in README.md and the pages of docs/: each exists, with all of its flags.

use crate::Cli;
use clap::{ArgAction, Command, CommandFactory as _};
use std::fs;
use std::path::{Path, PathBuf};

/// Texts on pages that begin like a command but are none.
const OTHERS: &[(&str, &str)] = &[
    (
        "tailbound hose, version 3",
        "a label from which keys are derived",
    ),
    ("tailbound probe: ...", "the beginning of an old message"),
    ("tailbound sim: ...", "the beginning of an old message"),
];

fn pages() -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut paths = vec![root.join("README.md")];
    let mut ahead = vec![root.join("docs")];
    while let Some(directory) = ahead.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                ahead.push(path);
            } else if path.extension().is_some_and(|it| it == "md") {
                paths.push(path);
            }
        }
    }
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).unwrap();
        (path, text)
    };
    paths.into_iter().map(read).collect()
}

/// Returns the texts on a page that begin with `tailbound`: in code spans, and in lines of code
/// blocks.
fn named(page: &str) -> Vec<String> {
    let (mut prose, mut commands, mut inside) = (String::new(), Vec::new(), false);
    let mut code = String::new();
    for line in page.lines() {
        if line.trim_start().starts_with("```") {
            inside = !inside;
            // A paragraph ends here, including an unpaired quote.
            prose.push_str("\n\n");
        } else if inside {
            code += line.strip_suffix('\\').unwrap_or(line);
            code.push(if line.ends_with('\\') { ' ' } else { '\n' });
        } else {
            prose.push_str(line);
            prose.push('\n');
        }
    }
    for paragraph in prose.split("\n\n") {
        let spans = paragraph.split('`').skip(1).step_by(2);
        commands.extend(spans.map(|span| span.split_whitespace().collect::<Vec<_>>().join(" ")));
    }
    for line in code.lines() {
        for prompt in ["$ ", "# ", "$ sudo ", "both# ", "h1# ", "h2# "] {
            commands.extend(line.strip_prefix(prompt).map(str::to_owned));
        }
    }
    commands.retain(|text| text.starts_with("tailbound "));
    commands
}

/// Returns the words of a command up to the first metacharacter of the shell.
fn words(command: &str) -> Vec<&str> {
    let ends = ["|", "||", "&", "&&", ";", ">", ">>", "<", "#", "..."];
    let words = command.split_whitespace().skip(1);
    words.take_while(|word| !ends.contains(word)).collect()
}

/// Returns the reason why `command` is invalid; `None` if it is valid.
fn mistake(root: &Command, command: &str) -> Option<String> {
    let (mut at, mut is_value, mut is_placed) = (root, false, false);
    for word in words(command) {
        if let Some(flag) = word.strip_prefix("--") {
            let name = flag.split('=').next().unwrap_or(flag);
            let name = name.trim_end_matches(|c: char| !c.is_ascii_alphanumeric());
            if name.is_empty() || ["help", "version", "color"].contains(&name) {
                is_value = name == "color";
                continue;
            }
            let Some(arg) = at.get_arguments().find(|arg| arg.get_long() == Some(name)) else {
                return Some(format!("no flag --{name}"));
            };
            let takes = matches!(arg.get_action(), ArgAction::Set | ArgAction::Append);
            is_value = takes && !flag.contains('=');
        } else if is_value {
            is_value = false;
        } else if let Some(below) = at.find_subcommand(word).filter(|_| !is_placed) {
            at = below;
        } else if at.get_positionals().next().is_some() {
            is_placed = true;
        } else if word.chars().all(|it| it.is_ascii_uppercase()) {
            // A placeholder of a command, as in `tailbound sim KIND list`.
            break;
        } else if word.starts_with(|first: char| first.is_ascii_lowercase()) {
            return Some(format!("no command {word}"));
        }
    }
    None
}

#[test]
fn every_command_on_a_page_exists_with_its_flags() {
    let root = Cli::command();
    let (mut count, mut mistakes) = (0, Vec::new());
    for (path, text) in pages() {
        for command in named(&text) {
            count += 1;
            let is_other = OTHERS.iter().any(|(other, _)| *other == command);
            if let Some(why) = mistake(&root, &command).filter(|_| !is_other) {
                mistakes.push(format!("{}: `{command}`: {why}", path.display()));
            }
        }
    }
    assert!(count > 300, "only {count} commands were found");
    assert!(mistakes.is_empty(), "{}", mistakes.join("\n"));
}

#[test]
fn a_command_that_does_not_exist_is_found() {
    let root = Cli::command();
    for (command, why) in [
        (
            "tailbound host check-config",
            Some("no command check-config"),
        ),
        ("tailbound plaec list", Some("no command plaec")),
        (
            "tailbound place list --nonsense",
            Some("no flag --nonsense"),
        ),
        ("tailbound place serve --listen 1:1 --store x", None),
        ("tailbound check-config host.toml", None),
        ("tailbound probe network a:1 --rates 5 | head -1", None),
        ("tailbound place list # all of them", None),
    ] {
        assert_eq!(mistake(&root, command).as_deref(), why, "{command}");
    }
}
