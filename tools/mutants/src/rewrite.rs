//! Puts mutants into a source file, each behind a condition: `(if chosen(7) { a <= b } else { a < b })`.
//! The code in a mutant is that of the file, so one mutant at a time is in effect.

use crate::find::{Form, Mutant};
use std::ops::Range;

/// The name of the module that selects a mutant.
pub(crate) const SWITCH: &str = "mutants_switch";

/// A mutant with its number, which is unique in its crate.
#[derive(Debug, Clone)]
pub(crate) struct Numbered {
    pub(crate) number: u32,
    pub(crate) mutant: Mutant,
}

/// Bytes of a rewritten file that belong to mutants.
#[derive(Debug, Clone)]
pub(crate) struct Region {
    /// Text that is only in it for one mutant.
    pub(crate) own: Range<usize>,
    /// All bytes up to the end of the code that it is an alternative of.
    pub(crate) whole: Range<usize>,
    pub(crate) number: u32,
}

/// A rewritten file.
#[derive(Debug)]
pub(crate) struct Rewritten {
    pub(crate) text: String,
    pub(crate) regions: Vec<Region>,
}

impl Rewritten {
    /// Returns the mutants that a compiler's error is due to: those whose own text has one of its
    /// places, or else the innermost ones around the first place.
    pub(crate) fn blamed(&self, places: &[Range<usize>]) -> Vec<u32> {
        let within = |place: &Range<usize>, range: &Range<usize>| {
            range.start <= place.start && place.end <= range.end
        };
        let own = self.regions.iter().filter(|region| {
            let mut places = places.iter();
            places.any(|place| within(place, &region.own))
        });
        let numbers: Vec<_> = own.map(|region| region.number).collect();
        if !numbers.is_empty() {
            return numbers;
        }
        let Some(first) = places.first() else {
            return Vec::new();
        };
        let around = || self.regions.iter().filter(|it| within(first, &it.whole));
        let least = around().map(|region| region.whole.len()).min();
        let innermost = around().filter(|region| Some(region.whole.len()) == least);
        innermost.map(|region| region.number).collect()
    }
}

/// An insertion into a file.
struct Insertion {
    at: usize,
    /// At one place inner code ends before outer code, and outer code begins before inner code.
    order: (bool, usize),
    parts: Vec<(Option<u32>, String)>,
    /// The code that it opens or closes.
    of: usize,
}

/// Returns the insertions for mutants of the same code.
fn insertions(of: usize, group: &[&Numbered], into: &mut Vec<Insertion>) {
    let Range { start, end } = group[0].mutant.range;
    let condition = |it: &Numbered| format!("if crate::{SWITCH}::chosen({})", it.number);
    let mut insert = |at, opens, rank, parts| {
        let order = (opens, rank);
        into.push(Insertion {
            at,
            order,
            parts,
            of,
        });
    };
    match group[0].mutant.form {
        Form::Entry => {
            let text = |it: &&Numbered| format!(" {} {{ {} }}", condition(it), it.mutant.text);
            let parts = group.iter().map(|it| (Some(it.number), text(it))).collect();
            insert(end, true, 0, parts);
        }
        Form::Statement => {
            let parts = group
                .iter()
                .map(|it| (Some(it.number), format!("{} {{}} else ", condition(it))));
            let parts = parts.chain([(None, "{ ".to_owned())]).collect();
            insert(start, true, usize::MAX - end, parts);
            insert(
                end,
                false,
                usize::MAX - start,
                vec![(None, " }".to_owned())],
            );
        }
        Form::Expression => {
            let text = |it: &&Numbered| format!("{} {{ {} }} else ", condition(it), it.mutant.text);
            let parts = group.iter().map(|it| (Some(it.number), text(it)));
            let parts = std::iter::once((None, "(".to_owned())).chain(parts);
            let parts = parts.chain([(None, "{ ".to_owned())]).collect();
            insert(start, true, usize::MAX - end, parts);
            insert(
                end,
                false,
                usize::MAX - start,
                vec![(None, " })".to_owned())],
            );
        }
    }
}

/// Puts all `mutants` into the file `text`.
pub(crate) fn rewrite(text: &str, mutants: &[Numbered]) -> Rewritten {
    let mut groups: Vec<Vec<&Numbered>> = Vec::new();
    for mutant in mutants {
        let same = |group: &&mut Vec<&Numbered>| {
            let other = &group[0].mutant;
            other.range == mutant.mutant.range && other.form == mutant.mutant.form
        };
        match groups.iter_mut().find(same) {
            Some(group) => group.push(mutant),
            None => groups.push(vec![mutant]),
        }
    }
    let mut all = Vec::new();
    for (of, group) in groups.iter().enumerate() {
        insertions(of, group, &mut all);
    }
    all.sort_by_key(|insertion| (insertion.at, insertion.order));
    let mut rewritten = Rewritten {
        text: String::with_capacity(text.len() * 2),
        regions: Vec::new(),
    };
    // By group: its regions, whose ends are known later.
    let mut open: Vec<Vec<usize>> = vec![Vec::new(); groups.len()];
    let mut done = 0;
    for insertion in all {
        let out = &mut rewritten.text;
        out.push_str(&text[done..insertion.at]);
        done = insertion.at;
        let begin = out.len();
        for (number, part) in insertion.parts {
            let own = out.len()..out.len() + part.len();
            out.push_str(&part);
            if let Some(number) = number {
                open[insertion.of].push(rewritten.regions.len());
                let whole = begin..own.end;
                rewritten.regions.push(Region { own, whole, number });
            }
        }
        for region in &open[insertion.of] {
            rewritten.regions[*region].whole.end = out.len();
        }
    }
    rewritten.text.push_str(&text[done..]);
    rewritten
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::find::find;

    fn rewritten(text: &str) -> Rewritten {
        let (mutants, _) = find(text).expect("it is Rust");
        let numbered: Vec<_> = (1..)
            .zip(mutants)
            .map(|(number, mutant)| Numbered { number, mutant })
            .collect();
        rewrite(text, &numbered)
    }

    #[test]
    fn mutants_of_inner_and_outer_code_are_nested() {
        let found = rewritten("fn f() -> &u8 { a + b + 1 }");
        assert_eq!(
            found.text,
            "fn f() -> &u8 { (if crate::mutants_switch::chosen(1) { a + b - 1 } else { \
             (if crate::mutants_switch::chosen(2) { a - b } else { a + b }) + \
             (if crate::mutants_switch::chosen(3) { 2 } else { 1 }) }) }"
        );
        assert!(syn::parse_file(&found.text).is_ok());
    }

    #[test]
    fn statements_and_entries_keep_the_code_valid() {
        let found = rewritten("fn f() -> bool { g(1); x += 2; !h() }");
        assert!(syn::parse_file(&found.text).is_ok(), "{}", found.text);
        let head = "fn f() -> bool { if crate::mutants_switch::chosen(1) { return true; } \
                    if crate::mutants_switch::chosen(2) { return false; } \
                    if crate::mutants_switch::chosen(3) {} else { g(";
        assert!(found.text.starts_with(head), "{}", found.text);
    }

    #[test]
    fn an_error_belongs_to_the_innermost_mutant_around_it() {
        let found = rewritten("fn f() -> &u8 { a + b + 1 }");
        let at = |text: &str| {
            let start = found.text.find(text).expect("it is there");
            start..start + text.len()
        };
        assert_eq!(found.blamed(&[at("a - b")]), [2]);
        assert_eq!(found.blamed(&[at("{ 1 }"), at("a + b - 1")]), [1]);
        assert_eq!(found.blamed(&[at("{ 1 }")]), [3]);
        assert_eq!(found.blamed(&[at("fn")]), [0; 0]);
    }
}
