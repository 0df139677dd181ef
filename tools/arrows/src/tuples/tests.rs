use super::*;
use std::path::Path;

/// The functions with tuple parameters in a crate of one file.
fn found(text: &str) -> Functions {
    let modules = Modules::of(Path::new("src/lib.rs"), &|_| Ok(text.to_owned())).unwrap();
    let mut found = Functions::new();
    measure("x", &modules, &mut found);
    found
}

fn list(count: usize) -> Counts {
    parse(&format!("[parameters]\nx = {count}\n")).unwrap()
}

const CODE: &str = "
    fn one((a, b): (u8, u8)) {}
    struct S;
    impl S { fn two(&self, a: &(u8, u8), c: &mut (u8, u8)) -> (u8, u8) { (0, 0) } }
    trait T { fn three(a: (u8, u8)); }
    fn none(unit: (), single: (u8), array: [(u8, u8); 2]) { |(a, b): (u8, u8)| a; }
    #[cfg(test)] mod tests { fn test((a, b): (u8, u8)) {} }
    #[cfg(test)] fn test((a, b): (u8, u8)) {}
";

#[test]
fn parameters_of_functions_count_and_those_of_closures_and_tests_do_not() {
    let found = found(CODE);
    let expected = ["2: one", "4: two", "4: two", "5: three"];
    let expected = expected.map(|function| format!("src/lib.rs:{function}"));
    assert_eq!(found["x"], expected);
}

#[test]
fn numbers_are_those_of_the_code_and_only_fall() {
    let found = found(CODE);
    assert!(judge(&list(4), &found, &[]).is_empty());
    let above = judge(&list(3), &found, &[]);
    assert!(above[0].contains("4 tuple parameters, 3 in"), "{above:?}");
    assert!(above[1].contains("src/lib.rs:2: one"), "{above:?}");
    let below = judge(&list(5), &found, &[]);
    assert!(below[0].contains("lower the number"), "{below:?}");
    let risen = judge(&list(4), &found, &[("abc".to_owned(), list(3))]);
    assert!(risen[0].contains("numbers only fall"), "{risen:?}");
    let unlisted = judge(&Counts::new(), &found, &[]);
    assert!(unlisted[0].contains("0 in"), "{unlisted:?}");
    let fallen = judge(&list(4), &found, &[("abc".to_owned(), list(5))]);
    assert!(fallen.is_empty(), "{fallen:?}");
}
