use super::*;

fn changes(text: &str) -> Vec<String> {
    let (mutants, _) = find(text).expect("it is Rust");
    mutants.into_iter().map(|mutant| mutant.change).collect()
}

#[test]
fn each_operator_number_condition_and_statement_has_mutants() {
    let text = "fn f(a: u64) -> u64 {
        if a.is_some() { g(a); }
        a + 1
    }";
    assert_eq!(
        changes(text),
        [
            "begins with return Default::default();",
            "a.is_some() -> !(a.is_some())",
            "a.is_some() -> a.is_none()",
            "without g(a);",
            "a + 1 -> a - 1",
            "1 -> 2 in a + 1",
        ]
    );
    assert_eq!(
        changes("fn f(a: u8, b: u8) -> bool { a < b }"),
        [
            "begins with return true;",
            "begins with return false;",
            "a < b -> a <= b",
            "a < b -> a >= b",
        ]
    );
}

#[test]
fn constants_patterns_macros_and_tests_have_none() {
    let text = "const A: u8 = 1 + 2;
        fn f() -> Result<(), ()> { let [1, _] = x else { panic!() }; assert!(a < b);
            [0; 3] }
        impl Display for A { fn fmt(&self) { 1 + 2 } }
        #[cfg(test)] mod tests { fn f() -> u8 { 1 } }
        #[cfg(any(test, feature = \"testing\"))] mod testing;
        #[test] fn g() { h(); }";
    assert_eq!(changes(text), ["0 -> 1 in [0; 3] }"]);
    let (_, tests) = find(text).expect("it is Rust");
    assert_eq!(tests, ["testing"]);
}

#[test]
fn capacities_have_none() {
    let text = "fn f() -> Result<(), ()> { let a = Vec::with_capacity(b + 1); a.reserve(2); }";
    assert_eq!(changes(text), ["without a.reserve(2);"]);
}

#[test]
fn a_condition_with_a_pattern_stays() {
    let text = "fn f() -> Result<(), ()> { if a && let Some(b) = c { Ok(()) } else { Err(()) } }";
    assert_eq!(changes(text), [""; 0]);
}
