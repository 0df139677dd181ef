//! The lines of files that differ from a commit.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

/// The changed lines of each file.
pub(crate) type Lines = BTreeMap<String, BTreeSet<usize>>;

/// Returns the changed lines of files below `folder`.
pub(crate) fn lines(commit: &str, folder: &str) -> Result<Lines, String> {
    let mut command = Command::new("git");
    command.args(["diff", "--unified=0", "--no-color", commit, "--", folder]);
    let output = command.output().map_err(|error| format!("git: {error}"))?;
    if !output.status.success() {
        return Err(format!("git: {}", String::from_utf8_lossy(&output.stderr)));
    }
    Ok(parse(&String::from_utf8_lossy(&output.stdout)))
}

fn parse(text: &str) -> Lines {
    let mut lines = Lines::new();
    let mut file = String::new();
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("+++ b/") {
            name.clone_into(&mut file);
        }
        // @@ -3,2 +4,5 @@
        let Some(after) = line.strip_prefix("@@ ").and_then(|it| it.split('+').nth(1)) else {
            continue;
        };
        let range = after.split(' ').next().unwrap_or_default();
        let (begin, count) = range.split_once(',').unwrap_or((range, "1"));
        if let (Ok(begin), Ok(count)) = (begin.parse::<usize>(), count.parse::<usize>()) {
            lines
                .entry(file.clone())
                .or_default()
                .extend(begin..begin + count);
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_names_its_lines() {
        let text =
            "--- a/x.rs\n+++ b/x.rs\n@@ -1 +2 @@ fn f() {\n-a\n+b\n@@ -7,0 +9,2 @@\n+c\n+d\n";
        let lines = parse(text);
        assert_eq!(lines["x.rs"], BTreeSet::from([2, 9, 10]));
    }
}
