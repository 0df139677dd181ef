//! SPECIFICATION.md names tests that exist, and CI or the nightly run executes each of them. ARCHITECTURE.md
//! names tests and files that exist.

use std::path::Path;

/// The texts between backquotes.
fn quoted(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

/// The rows of promises in SPECIFICATION.md.
fn promises(specification: &str) -> impl Iterator<Item = &str> {
    let (promises, _) = specification.split_once("## Wanted, and not met").unwrap();
    promises
        .lines()
        .filter(|line| line.starts_with("| ") && !line.starts_with("| promise "))
}

/// The attributes and comments of a test function, up to the item before it.
fn head<'c>(code: &'c str, test: &str) -> Result<&'c str, String> {
    let begin = code
        .find(&format!("fn {test}("))
        .ok_or_else(|| format!("no test {test}"))?;
    let head = &code[..begin];
    let head = &head[head.rfind("\n}").unwrap_or(0)..];
    let is_test =
        head.contains("#[test]") || head.contains("proptest!") || head.contains("::test]");
    if is_test {
        Ok(head)
    } else {
        Err(format!("{test} is no test"))
    }
}

/// The text of all sources below a directory.
fn sources(directory: &Path) -> String {
    let mut all = String::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            all += &sources(&path);
        } else if path.extension().is_some_and(|it| it == "rs") {
            all += &std::fs::read_to_string(path).unwrap();
        }
    }
    all
}

#[test]
fn the_architecture_names_tests_and_files_that_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let architecture = std::fs::read_to_string(root.join("ARCHITECTURE.md")).unwrap();
    let code = sources(&root.join("crates"));
    let spans = architecture.lines().flat_map(quoted);
    let (mut tests, mut files) = (0, 0);
    for span in spans {
        let is_word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        if span.matches('_').count() >= 3 && span.chars().all(is_word) {
            assert!(code.contains(&format!("fn {span}(")), "no test {span}");
            tests += 1;
        } else if span.starts_with("crates/") && !span.contains("NAME") {
            assert!(root.join(span).exists(), "no file {span}");
            files += 1;
        }
    }
    assert!(tests > 30 && files > 20, "{tests} tests, {files} files");
}

/// Checks for a date such as 2026-11-28.
fn is_date(text: &str) -> bool {
    let parts: Vec<_> = text.split('-').map(str::len).collect();
    parts == [4, 2, 2] && text.chars().all(|c| c.is_ascii_digit() || c == '-')
}

/// The result of the last nightly run in a row: `*night: passed 2026-11-28, 0123abcd*`.
fn night(row: &str) -> Result<Option<&str>, String> {
    let Some((_, rest)) = row.split_once("*night") else {
        return Ok(None);
    };
    let wanted = || format!("write `*night: passed DATE, COMMIT*` in {row}");
    let (result, _) = rest.split_once('*').ok_or_else(wanted)?;
    let words: Vec<_> = result
        .split([':', ' ', ','])
        .filter(|it| !it.is_empty())
        .collect();
    let [verdict, date, commit] = words[..] else {
        return Err(wanted());
    };
    let is_commit = commit.len() >= 8 && commit.chars().all(|c| c.is_ascii_hexdigit());
    if !matches!(verdict, "passed" | "failed") || !is_date(date) || !is_commit {
        return Err(wanted());
    }
    Ok(Some(verdict))
}

/// Checks a row against the code of its test: `make test` runs the test, or the row has the
/// result of the last nightly run.
fn check(row: &str, code: &str) -> Result<(), String> {
    let test = quoted(row)
        .last()
        .ok_or_else(|| format!("no test in {row}"))?;
    let head = head(code, test)?;
    let is_ignored = head.contains("#[ignore");
    match night(row)? {
        None if is_ignored => Err(format!(
            "{test} is ignored by make test; mark its row *night* with the last result"
        )),
        Some(_) if !is_ignored => Err(format!("make test runs {test}; its row is not *night*")),
        Some("failed") => Err(format!("{test} failed in the last nightly run")),
        _ if head.contains("#[cfg(feature") => {
            Err(format!("{test} needs a feature; no promise depends on one"))
        }
        _ => Ok(()),
    }
}

#[test]
fn every_promise_names_a_test_that_exists_and_is_run() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let read = |file: &str| {
        std::fs::read_to_string(root.join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
    };
    let specification = read("SPECIFICATION.md");
    let mut wrong = Vec::new();
    let (mut seen, mut nights) = (0, 0);
    for row in promises(&specification) {
        let of: Vec<_> = quoted(row).collect();
        let [.., path, _] = of.as_slice() else {
            panic!("no file and test in {row}");
        };
        if let Err(error) = check(row, &read(path)) {
            wrong.push(format!("{path}: {error}"));
        }
        nights += u32::from(row.contains("*night"));
        seen += 1;
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(seen > 30, "{seen} promises");
    // The nightly run executes every ignored test of the workspace.
    let nightly = read("scripts/nightly").replace("\\\n", " ");
    let runs_ignored = |line: &str| line.contains("--workspace") && line.contains("--ignored");
    assert!(
        nights == 0 || nightly.lines().any(runs_ignored),
        "scripts/nightly does not run ignored tests"
    );
}

#[test]
fn a_row_of_an_ignored_test_needs_the_nightly_result() {
    let run = "#[test]\nfn holds() {\n}\n";
    let ignored = "#[test]\n#[ignore = \"takes minutes\"]\nfn holds() {\n}\n";
    let row = |night: &str| format!("| Frames arrive.{night} | `a.rs` `holds` |");
    let passed = row(" *night: passed 2026-11-28, 0123abcd*");
    assert_eq!(check(&row(""), run), Ok(()));
    assert_eq!(check(&passed, ignored), Ok(()));
    for (row, code, part) in [
        (row(""), ignored, "mark its row"),
        (passed, run, "make test runs holds"),
        (row(" *night*"), ignored, "DATE, COMMIT"),
        (row(" *night: passed*"), ignored, "DATE, COMMIT"),
        (
            row(" *night: passed 2026-11-28, main*"),
            ignored,
            "DATE, COMMIT",
        ),
        (
            row(" *night: failed 2026-11-28, 0123abcd*"),
            ignored,
            "failed in the last",
        ),
        (row(""), "fn holds() {\n}\n", "is no test"),
        (row(""), "#[test]\nfn other() {\n}\n", "no test holds"),
    ] {
        let error = check(&row, code).unwrap_err();
        assert!(error.contains(part), "{row}: {error}");
    }
}

#[test]
fn alerts_and_dashboards_query_documented_metrics() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let read = |file: &str| std::fs::read_to_string(root.join(file)).unwrap();
    let documented: String = [
        "docs/reference/host.md",
        "docs/reference/vcpu.md",
        "docs/reference/control.md",
    ]
    .map(read)
    .concat();
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut seen = 0;
    for file in [
        "contrib/prometheus/tailbound.rules.yml",
        "contrib/grafana/tailbound.json",
    ] {
        let text = read(file);
        // Expressions, of one line or of several; names of recorded series have colons.
        let is_prose = |line: &&str| {
            let prose = ["#", "summary: ", "runbook_url: ", "- record: ", "- name: "];
            prose.iter().any(|begin| line.trim().starts_with(begin))
        };
        let all = text.lines().filter(|line| !is_prose(line));
        let expressions = all.filter(|line| file.ends_with("yml") || line.contains("expr"));
        for expression in expressions {
            for (begin, _) in expression.match_indices("tailbound_") {
                let rest = &expression[begin..];
                let end = rest.find(|c| !is_name(c)).unwrap_or(rest.len());
                let name = rest[..end].trim_end_matches("_bucket");
                let short = name.trim_start_matches("tailbound_place_");
                assert!(
                    documented.contains(&format!("`{name}"))
                        || documented.contains(&format!("`{short}")),
                    "{file} asks for {name}, which no page of docs/ has"
                );
                seen += 1;
            }
        }
    }
    assert!(seen > 30, "{seen} metrics");
}

#[test]
fn alert_names_are_unique_and_the_operation_page_uses_them() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let read = |file: &str| std::fs::read_to_string(root.join(file)).unwrap();
    let rules = read("contrib/prometheus/tailbound.rules.yml");
    let names = rules
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- alert: "));
    let mut alerts = std::collections::BTreeSet::new();
    for name in names {
        assert!(alerts.insert(name), "two rules have the name {name}");
    }
    let page = read("docs/how-to/operation.md");
    let mentioned = page.split('`').filter(|word| word.starts_with("Tailbound"));
    let unknown: Vec<_> = mentioned.filter(|name| !alerts.contains(name)).collect();
    assert_eq!(unknown, [""; 0]);
    // Each alert has a section in the runbook, to which it leads, and no section is without one.
    let runbook = read("docs/how-to/alerts.md");
    let sections = runbook.lines().filter_map(|line| line.strip_prefix("### "));
    assert_eq!(sections.collect::<std::collections::BTreeSet<_>>(), alerts);
    for name in &alerts {
        let anchor = format!("/docs/how-to/alerts.md#{}\n", name.to_lowercase());
        assert_eq!(
            rules.matches(&anchor).count(),
            1,
            "{name} leads to its section"
        );
    }
}
