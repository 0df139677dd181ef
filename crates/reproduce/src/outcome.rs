//! Outcomes of items and their checks.

use tailbound_report::{CheckResult, NOTHING, Outcome, Verdict, human};

/// Returns the worst outcome of an item's checks, in a word.
pub fn outcome(results: &[&CheckResult]) -> (&'static str, Verdict) {
    let is = |outcome: Outcome| results.iter().any(|result| result.outcome() == outcome);
    if results.is_empty() {
        ("not run", Verdict::Pass)
    } else if is(Outcome::Fail) {
        ("FAIL", Verdict::Fail)
    } else if is(Outcome::Noisy) {
        ("NOISY", Verdict::Noisy)
    } else if is(Outcome::NotTested) {
        ("NOT TESTED", Verdict::NotTested)
    } else if is(Outcome::Misses) {
        ("known miss", Verdict::Pass)
    } else {
        ("PASS", Verdict::Pass)
    }
}

/// Returns a check in a line: result, expected value, and the reason of a known miss.
pub fn result_text(result: &CheckResult) -> String {
    line(result, "wanted ", None)
}

/// Returns a check in a line; `wanted` stands before the expected value, and the figures of other `seeds`
/// behind it.
pub(crate) fn line(result: &CheckResult, wanted: &str, seeds: Option<String>) -> String {
    // The result has the unit of the expected value, which follows its last digit.
    let last = result.want.rsplit_once(|it: char| it.is_ascii_digit());
    let unit = last.map_or("", |(_, unit)| unit);
    let got = result
        .got
        .map_or_else(|| NOTHING.to_owned(), |got| human(got, "") + unit);
    let name = result.name.replace('_', " ");
    let why = match (result.outcome(), result.remark()) {
        (Outcome::Pass, _) => String::new(),
        // On the page the range says that the miss is known.
        (Outcome::Misses, Some(why)) if wanted.is_empty() && result.known.is_some() => {
            format!(": {why}")
        }
        (outcome, Some(why)) => format!(", {outcome}: {why}"),
        (outcome, None) => format!(", {outcome}"),
    };
    let paper = result.paper.as_ref();
    let paper = paper.map_or_else(String::new, |it| format!("; paper {it}"));
    let known = result.known.as_ref();
    let known = known.map_or_else(String::new, |it| format!("; known {it}"));
    let seeds = seeds.map_or_else(String::new, |it| format!("; seeds:{it}"));
    let expected = format!("{}{paper}{known}{seeds}", result.want);
    // On the page a longer expectation is code: it is no sentence.
    let is_long = expected.contains(" to ") || expected.contains(';');
    let code = if wanted.is_empty() && is_long {
        "`"
    } else {
        ""
    };
    format!("{name}: {got} ({wanted}{code}{expected}{code}){why}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_items_outcome_is_that_of_its_worst_check() {
        let check = |pass: bool, misses: bool, noise: bool, not_judged: bool| CheckResult {
            pass,
            misses: misses.then(String::new),
            noise: noise.then(String::new),
            not_judged: not_judged.then(String::new),
            ..CheckResult::default()
        };
        let held = check(true, false, false, false);
        let known = check(false, true, false, false);
        let noisy = check(false, false, true, false);
        let missing = check(false, false, false, true);
        let failed = check(false, false, false, false);
        let of = |checks: &[&CheckResult]| outcome(checks);
        assert_eq!(of(&[]), ("not run", Verdict::Pass));
        assert_eq!(of(&[&held, &held]), ("PASS", Verdict::Pass));
        assert_eq!(of(&[&held, &known]), ("known miss", Verdict::Pass));
        assert_eq!(of(&[&missing, &held]), ("NOT TESTED", Verdict::NotTested));
        assert_eq!(of(&[&noisy, &missing]), ("NOISY", Verdict::Noisy));
        assert_eq!(of(&[&noisy, &failed]), ("FAIL", Verdict::Fail));
    }

    #[test]
    fn a_result_is_shown_in_the_unit_of_its_bound() {
        let of = |want: &str| {
            result_text(&CheckResult {
                name: "a".to_owned(),
                want: want.to_owned(),
                got: Some(1.0),
                pass: true,
                ..CheckResult::default()
            })
        };
        assert_eq!(of("<= 2 ms"), "a: 1 ms (wanted <= 2 ms)");
        assert_eq!(of("19/s to 44/s"), "a: 1/s (wanted 19/s to 44/s)");
        assert_eq!(of(">= 0.5"), "a: 1 (wanted >= 0.5)");
    }
}
