//! SPECIFICATION.md names tests that exist.

use std::path::Path;

/// The texts between backquotes.
fn quoted(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

#[test]
fn every_promise_names_a_test_that_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let specification = std::fs::read_to_string(root.join("SPECIFICATION.md")).unwrap();
    let (promises, _) = specification.split_once("## Wanted, and not met").unwrap();
    let rows = promises
        .lines()
        .filter(|line| line.starts_with("| ") && !line.starts_with("| promise "));
    let mut seen = 0;
    for row in rows {
        let of: Vec<_> = quoted(row).collect();
        let [.., path, test] = of.as_slice() else {
            panic!("no file and test in {row}");
        };
        let code = std::fs::read_to_string(root.join(path))
            .unwrap_or_else(|error| panic!("{path}: {error}, in {row}"));
        let begin = code.find(&format!("fn {test}("));
        let begin = begin.unwrap_or_else(|| panic!("{path} has no test {test}"));
        // What stands over it, back to the item before.
        let head = &code[..begin];
        let head = &head[head.rfind("\n}").unwrap_or(0)..];
        let is_test =
            head.contains("#[test]") || head.contains("proptest!") || head.contains("::test]");
        assert!(is_test, "{test} in {path} is no test");
        assert!(
            !head.contains("#[ignore"),
            "{test} in {path} is not run by make test"
        );
        seen += 1;
    }
    assert!(seen > 30, "{seen} promises");
}

#[test]
fn alerts_and_dashboards_ask_for_what_is_documented() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let read = |file: &str| std::fs::read_to_string(root.join(file)).unwrap();
    let documented: String = ["docs/host.md", "docs/vcpu.md", "docs/control.md"]
        .map(read)
        .concat();
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut seen = 0;
    for file in [
        "contrib/prometheus/tailbound.rules.yml",
        "contrib/grafana/tailbound.json",
    ] {
        let text = read(file);
        // Expressions alone; what rules record has colons in its name.
        let expressions = text.lines().filter(|line| line.contains("expr"));
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
