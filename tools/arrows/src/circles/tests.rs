use super::*;
use std::path::Path;

/// The circles of a crate that has these files; the first is its root.
fn of(files: &[(&str, &str)]) -> Vec<Circle> {
    let read = |path: &Path| {
        let found = files.iter().find(|(name, _)| Path::new(name) == path);
        found.map_or(Err(format!("no {}", path.display())), |(_, text)| {
            Ok((*text).to_owned())
        })
    };
    circles(&Modules::of(Path::new(files[0].0), &read).unwrap())
}

/// The members of the only circle, with a space between them; nothing if there is
/// none.
fn members(files: &[(&str, &str)]) -> String {
    let found = of(files);
    assert!(found.len() < 2, "{found:#?}");
    let names = found.iter().flat_map(|circle| &circle.members);
    names.map(String::as_str).collect::<Vec<_>>().join(" ")
}

const ROOT: (&str, &str) = ("src/lib.rs", "mod a; mod b;");

fn pair(a: &str, b: &str) -> String {
    members(&[ROOT, ("src/a.rs", a), ("src/b.rs", b)])
}

#[test]
fn two_that_use_each_other_are_a_circle_and_it_says_where() {
    let files = [
        ROOT,
        ("src/a.rs", "use crate::b::B;\npub struct A;"),
        ("src/b.rs", "\npub struct B;\nfn f() { super::a::g() }"),
    ];
    let found = of(&files);
    assert_eq!(
        found[0].arrows,
        [
            "a -> b: src/a.rs:1 crate::b::B",
            "b -> a: src/b.rs:3 super::a::g"
        ]
    );
}

#[test]
fn one_way_is_none() {
    assert_eq!(pair("use crate::b::B;", "pub struct B;"), "");
    assert_eq!(pair("use super::b::B; use std::a::X;", "use b::c;"), "");
}

#[test]
fn each_way_to_name_a_sibling_counts() {
    for a in [
        "use crate::b;",
        "use super::b::*;",
        "use crate::{b::{self, B}};",
        "use super::b as other;",
        "fn f() { use crate::b::B; }",
        "fn f() -> crate::b::B { todo!() }",
        "fn f() { println!(\"{}\", 1 + crate::b::B) }",
        "#[serde(with = \"crate::b\")] struct A;",
        "#[derive(crate::b::B)] struct A;",
        "impl crate::b::T for A { fn f() {} }",
        "fn f() { for x in [super::b::B] {} }",
        "#[cfg(not(test))] use crate::b;",
    ] {
        assert_eq!(pair(a, "use super::a::A;"), "a b", "{a}");
    }
}

#[test]
fn code_of_tests_does_not_count() {
    for a in [
        "#[cfg(test)] use crate::b;",
        "#[cfg(test)] mod tests { use crate::b::B; }",
        "#[cfg(all(test, feature = \"x\"))] fn f() { crate::b::f() }",
        "#[test] fn f() { crate::b::f() }",
        "impl A { #[cfg(test)] fn f() { crate::b::f() } }",
        "// use crate::b;\n/// [`crate::b::B`]\nstruct A;",
        "const A: &str = \"crate::b\";",
    ] {
        assert_eq!(pair(a, "use super::a::A;"), "", "{a}");
    }
}

#[test]
fn a_parent_and_its_children_do_not_count() {
    assert_eq!(
        members(&[
            ("src/lib.rs", "mod a;"),
            ("src/a.rs", "mod child; pub use child::C; struct A;"),
            (
                "src/a/child.rs",
                "use super::A; use crate::a::A as Other; pub struct C;"
            ),
        ]),
        ""
    );
}

#[test]
fn submodules_belong_to_their_module() {
    assert_eq!(
        members(&[
            ROOT,
            (
                "src/a.rs",
                "mod deep { pub mod deeper { use crate::b::c::C; } }"
            ),
            ("src/b/mod.rs", "pub mod c;"),
            ("src/b/c.rs", "fn f() { crate::a::deep::g() }"),
        ]),
        "a b"
    );
}

#[test]
fn children_of_one_parent_are_told_by_their_paths() {
    assert_eq!(
        members(&[
            ("src/lib.rs", "mod p;"),
            (
                "src/p.rs",
                "mod x { use super::y::Y; } mod y { use super::x::X; }"
            ),
        ]),
        "p::x p::y"
    );
}

#[test]
fn a_circle_behind_re_exports_is_found() {
    // Neither names the other.
    for (root, a) in [
        ("mod a; mod b; pub use b::B;", "use crate::B;"),
        ("mod a; mod b; use b::B;", "use super::B;"),
        ("mod a; mod b; pub use b::*;", "use crate::B;"),
        (
            "mod a; mod b; pub use b::B as Other;",
            "fn f(b: crate::Other) {}",
        ),
        ("mod a; mod b; use b::B;", "use super::*; fn f(b: B) {}"),
        (
            "mod a; mod b; mod c { pub use super::b::B; } use c::B;",
            "use super::B;",
        ),
    ] {
        let files = [
            ("src/lib.rs", root),
            ("src/a.rs", a),
            ("src/b.rs", "use crate::a::A; pub struct B;"),
        ];
        assert_eq!(members(&files), "a b", "{root} {a}");
    }
}

#[test]
fn three_in_a_ring_are_one_circle_and_bystanders_are_left_out() {
    assert_eq!(
        members(&[(
            "src/lib.rs",
            "mod a { use crate::b::B; } mod b { use crate::c::C; } mod c { use crate::a::A; }
             mod before { use crate::a::A; } mod after {} mod d { use crate::after::X; }",
        )]),
        "a b c"
    );
}

#[test]
fn re_exports_that_lead_to_themselves_end() {
    assert_eq!(
        pair(
            "pub use super::b::X; use crate::loop_::Y;",
            "pub use super::a::X;"
        ),
        "a b"
    );
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let read = |path: &Path| match path.to_str() {
        Some("src/lib.rs") => Ok("mod a;".to_owned()),
        Some("src/broken.rs") => Ok("\nfn (".to_owned()),
        _ => Err(format!("no {}", path.display())),
    };
    let missing = Modules::of(Path::new("src/lib.rs"), &read).unwrap_err();
    assert!(missing.contains("src/a/mod.rs"), "{missing}");
    let broken = Modules::of(Path::new("src/broken.rs"), &read).unwrap_err();
    assert!(broken.starts_with("src/broken.rs:2:4: "), "{broken}");
}
