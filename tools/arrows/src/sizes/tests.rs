use super::*;
use std::fmt::Write as _;
use std::path::Path;

/// The sizes of the types of a crate that has these files; the first is its root.
fn of(files: &[(&str, &str)]) -> Sizes {
    let read = |path: &Path| {
        let found = files.iter().find(|(name, _)| Path::new(name) == path);
        found.map_or(Err(format!("no {}", path.display())), |(_, text)| {
            Ok((*text).to_owned())
        })
    };
    let modules = Modules::of(Path::new(files[0].0), &read).unwrap();
    let mut sizes = Sizes::new();
    measure("x", &modules, &mut sizes);
    sizes
}

/// The size of one type of that crate.
fn size(files: &[(&str, &str)], path: &str) -> (usize, usize) {
    let sizes = of(files);
    let key = ("x".to_owned(), path.to_owned());
    let size = sizes.get(&key).unwrap_or_else(|| panic!("{sizes:?}"));
    (size.methods, size.fields)
}

#[test]
fn methods_of_all_files_add_up_and_those_of_traits_and_tests_do_not_count() {
    let files = [
        (
            "src/lib.rs",
            "mod a; mod b; mod c; pub use a::Wide as Other; impl Other<u8> { fn f() {} }",
        ),
        (
            "src/a.rs",
            "pub struct Wide<T> { a: T, b: u8 }
             impl<T> Wide<T> { fn f(&self) {} fn g() {} const N: u8 = 1;
                 #[cfg(test)] fn t() {} }
             impl<T> Drop for Wide<T> { fn drop(&mut self) {} }
             #[cfg(test)] impl Wide<u8> { fn u() {} }
             #[cfg(test)] mod tests { impl super::Wide<u8> { fn v() {} } }",
        ),
        (
            "src/b.rs",
            "use super::a::*; impl<T: Copy> Wide<T> { fn h() {} }
             mod deep { impl crate::a::Wide<u8> { fn i() {} } }",
        ),
        ("src/c.rs", "struct Wide; impl Wide { fn f() {} }"),
    ];
    assert_eq!(size(&files, "a::Wide"), (5, 2));
    assert_eq!(size(&files, "c::Wide"), (1, 0));
}

#[test]
fn fields_are_those_of_a_struct_or_of_the_largest_variant() {
    let root = |text| [("src/lib.rs", text)];
    assert_eq!(size(&root("struct A(u8, u8, u8);"), "A"), (0, 3));
    let many = "enum A { B, C { a: u8, b: u8 }, D(u8) }";
    assert_eq!(size(&root(many), "A"), (0, 2));
    assert_eq!(size(&root("union A { a: u8, b: u16 }"), "A"), (0, 2));
    assert_eq!(
        of(&root("#[cfg(test)] struct A(u8); impl dyn B { fn f() {} }")),
        Sizes::new()
    );
}

/// A list of entries: path, methods, fields.
fn list(entries: &[(&str, usize, usize)]) -> Sizes {
    let mut text = String::new();
    for (path, methods, fields) in entries {
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "[[type]]\ncrate = \"x\"\ntype = \"{path}\"\nmethods = {methods}\n\
             fields = {fields}\nreason = \"one of a kind\"\n"
        );
    }
    parse(&text).unwrap()
}

const NONE: &[(String, Sizes)] = &[];

#[test]
fn a_type_within_the_limits_needs_no_entry_and_a_larger_one_does() {
    assert_eq!(judge(&list(&[]), &list(&[("A", 40, 12)]), NONE), NONE_WRONG);
    for large in [("A", 41, 0), ("A", 0, 13)] {
        let sizes = list(&[large]);
        assert_eq!(judge(&sizes, &sizes, NONE), NONE_WRONG);
        let wrong = judge(&list(&[]), &sizes, NONE);
        assert!(
            matches!(&wrong[..], [one] if one.starts_with("x: A: methods = ")),
            "{wrong:?}"
        );
    }
}

const NONE_WRONG: [String; 0] = [];

#[test]
fn an_entry_has_the_numbers_of_the_code_and_is_needed() {
    let told = |listed, real: &[_]| {
        let wrong = judge(&list(&[listed]), &list(real), NONE);
        assert_eq!(wrong.len(), 1, "{wrong:?}");
        wrong[0].clone()
    };
    let lower = told(("A", 50, 1), &[("A", 49, 1)]);
    assert!(
        lower.contains("methods = 49, fields = 1 in the code"),
        "{lower}"
    );
    let higher = told(("A", 50, 1), &[("A", 51, 1)]);
    assert!(
        higher.contains("methods = 50, fields = 1 in the list"),
        "{higher}"
    );
    assert!(told(("A", 41, 1), &[("A", 40, 1)]).ends_with("remove the entry"));
    assert!(told(("A", 41, 1), &[]).ends_with("x has no type A; remove the entry"));
}

#[test]
fn no_entry_joins_or_rises_and_a_moved_type_keeps_its_numbers() {
    let base = [("c0ffee".to_owned(), list(&[("a::A", 50, 1), ("B", 1, 20)]))];
    let told = |entries: &[_]| {
        let list = list(entries);
        judge(&list, &list, &base)
    };
    assert_eq!(told(&[("a::A", 50, 1), ("B", 1, 20)]), NONE_WRONG);
    assert_eq!(told(&[("a::A", 41, 12), ("B", 40, 19)]), NONE_WRONG);
    assert_eq!(told(&[("b::c::A", 50, 1)]), NONE_WRONG);
    for rise in [
        ("a::A", 51, 1),
        ("b::A", 51, 1),
        ("B", 41, 20),
        ("B", 1, 21),
    ] {
        let wrong = told(&[rise]);
        assert!(
            matches!(&wrong[..], [one] if one.contains("in c0ffee; numbers only fall")),
            "{wrong:?}"
        );
    }
    for joins in [("a::C", 41, 1), ("b::A", 50, 1)] {
        let wrong = told(&[("a::A", 50, 1), joins]);
        assert!(
            matches!(&wrong[..], [one] if one.contains("is not in the list of c0ffee")),
            "{wrong:?}"
        );
    }
}

#[test]
fn an_entry_is_whole_and_has_a_reason() {
    let whole = "[[type]]\ncrate = \"x\"\ntype = \"A\"\nmethods = 50\nfields = 1\n\
                 reason = \"one of a kind\"\n";
    assert_eq!(parse(whole), Ok(list(&[("A", 50, 1)])));
    assert!(parse(&whole.repeat(2)).unwrap_err().contains("two entries"));
    for (from, to, key) in [
        ("one of a kind", "big", "reason"),
        ("reason", "because", "reason"),
        ("50", "-1", "methods"),
        ("fields = 1\n", "", "fields"),
        ("\"A\"", "1", "type"),
    ] {
        let wrong = parse(&whole.replace(from, to)).unwrap_err();
        assert!(wrong.contains(&format!("no valid `{key}`")), "{wrong}");
    }
    assert!(parse("no toml").is_err());
    assert_eq!(parse(""), Ok(Sizes::new()));
}
