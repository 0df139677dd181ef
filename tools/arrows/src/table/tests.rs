use super::*;

const DOCUMENT: &str = "\
# A map
| `other` | table | `x` |

## Crates
Words.

| crate | room for | may import |
|---|---|---|
| `units` | `Nanos` and the like | – |
| `sys` | system calls | `units` |
| `tailbound` | the program | `sys`, `units` |

## More
| `later` | table | `y` |
";

fn arrows(rows: &[(&str, &[&str])]) -> Arrows {
    let row = |(name, to): &(&str, &[&str])| {
        let to = to.iter().map(|name| (*name).to_owned()).collect();
        ((*name).to_owned(), to)
    };
    rows.iter().map(row).collect()
}

/// The code that the document describes.
fn workspace() -> Workspace {
    Workspace {
        imports: arrows(&[
            ("units", &[]),
            ("sys", &["units"]),
            ("tailbound", &["sys", "units"]),
        ]),
        ..Workspace::default()
    }
}

fn judged(workspace: &Workspace) -> Vec<String> {
    judge(&parse(DOCUMENT).unwrap(), workspace)
}

#[test]
fn a_table_is_read_from_its_section_alone() {
    assert_eq!(parse(DOCUMENT).unwrap(), workspace().imports);
    assert!(parse("# A map\n").unwrap_err().contains("no table"));
    let twice = DOCUMENT.replace("| `tailbound`", "| `sys`");
    assert!(parse(&twice).unwrap_err().contains("two rows for sys"));
}

#[test]
fn a_true_table_is_right() {
    assert_eq!(judged(&workspace()), Vec::<String>::new());
}

#[test]
fn an_arrow_that_the_table_lacks_is_wrong() {
    let mut code = workspace();
    code.imports
        .insert("units".into(), ["sys".to_owned()].into());
    assert_eq!(
        judged(&code),
        ["units imports sys; the table does not say so"]
    );
}

#[test]
fn an_arrow_that_the_code_lacks_is_wrong() {
    let mut code = workspace();
    code.imports.insert("sys".into(), BTreeSet::new());
    assert_eq!(
        judged(&code),
        ["the table says sys imports units; it does not"]
    );
}

#[test]
fn crates_and_rows_have_each_other() {
    let mut code = workspace();
    code.imports.remove("sys");
    code.imports.insert("lab".into(), BTreeSet::new());
    assert_eq!(
        judged(&code),
        [
            "lab has no row in the table",
            "the table has a row for sys; there is no such crate"
        ]
    );
}

#[test]
fn tests_may_import_modules_without_a_way_back() {
    let mut code = workspace();
    code.tests_import = arrows(&[("sys", &["units"]), ("tailbound", &["units"])]);
    assert_eq!(judged(&code), Vec::<String>::new());
    code.tests_import = arrows(&[("units", &["tailbound"])]);
    assert_eq!(
        judged(&code),
        ["tests of units import tailbound, which leads back to units"]
    );
}

#[test]
fn a_table_with_a_circle_is_wrong() {
    let table = arrows(&[("a", &["b"]), ("b", &["a"])]);
    let code = Workspace {
        imports: table.clone(),
        ..Workspace::default()
    };
    let wrong = judge(&table, &code);
    assert_eq!(
        wrong,
        [
            "the table leads from a back to a",
            "the table leads from b back to b"
        ]
    );
}

#[test]
fn cargos_description_is_read() {
    let metadata = r#"{"packages": [
        {"name": "tailbound-sys",
         "dependencies": [
            {"name": "libc", "kind": null},
            {"name": "tailbound-units", "kind": null, "path": "/w/units"},
            {"name": "tailbound-host", "kind": "dev", "path": "/w/host"},
            {"name": "tailbound-build", "kind": "build", "path": "/w/build"}],
         "targets": [
            {"kind": ["lib"], "src_path": "/w/sys/src/lib.rs"},
            {"kind": ["test"], "src_path": "/w/sys/tests/t.rs"}]}]}"#;
    let found = Workspace::parse(metadata).unwrap();
    assert_eq!(found.imports, arrows(&[("sys", &["build", "units"])]));
    assert_eq!(found.tests_import, arrows(&[("sys", &["host"])]));
    assert_eq!(found.roots["sys"], ["/w/sys/src/lib.rs"]);
    assert!(Workspace::parse("cargo says no").is_err());
}
