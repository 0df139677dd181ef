//! Attribution of late calls among many nodes (Bobtail, 2.3 and figure 2). Lateness at a node for
//! most of its callers is the node's, not the network's.

use crate::verdict::NodeVerdict;
use serde::Serialize;

/// Node or pair that causes late calls.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Owner {
    /// The node that answers: most of its callers find it BAD. A dark column of figure 2.
    Answers(usize),
    /// The node that calls: it finds most of the others BAD that others do not.
    Calls(usize),
    /// The way between the two.
    Between {
        /// Index of the caller.
        caller: usize,
        /// Index of the answering node.
        answers: usize,
    },
}

/// Returns the causes of the BAD pairs. `found[caller][node]` is the caller's verdict on the node;
/// `None` if it did not call it, as for itself. INCONCLUSIVE and UNSURE verdicts are ignored.
pub fn owners(found: &[Vec<Option<NodeVerdict>>]) -> Vec<Owner> {
    let nodes = found.iter().map(Vec::len).max().unwrap_or(0);
    let at = |caller: usize, node: usize| found[caller].get(node).copied().flatten();
    let is_bad_column: Vec<bool> = (0..nodes)
        .map(|node| most_are_bad((0..found.len()).map(|caller| at(caller, node))))
        .collect();
    let is_bad_row: Vec<bool> = (0..found.len())
        .map(|caller| {
            let others = (0..nodes).filter(|node| !is_bad_column[*node]);
            most_are_bad(others.map(|node| at(caller, node)))
        })
        .collect();
    let all = |bad: &[bool]| -> Vec<usize> { (0..bad.len()).filter(|it| bad[*it]).collect() };
    let mut owners: Vec<_> = all(&is_bad_column)
        .into_iter()
        .map(Owner::Answers)
        .collect();
    owners.extend(all(&is_bad_row).into_iter().map(Owner::Calls));
    for (caller, row) in found.iter().enumerate() {
        for (answers, outcome) in row.iter().enumerate() {
            let is_explained = is_bad_column[answers] || is_bad_row[caller];
            if *outcome == Some(NodeVerdict::Bad) && !is_explained {
                owners.push(Owner::Between { caller, answers });
            }
        }
    }
    owners
}

/// Returns whether more than half of the GOOD and BAD verdicts, and at least two, are BAD. A single
/// BAD verdict may be due to the pair.
fn most_are_bad(found: impl Iterator<Item = Option<NodeVerdict>>) -> bool {
    let decided: Vec<_> = found
        .flatten()
        .filter(|found| matches!(found, NodeVerdict::Good | NodeVerdict::Bad))
        .collect();
    let bad = decided
        .iter()
        .filter(|found| **found == NodeVerdict::Bad)
        .count();
    bad >= 2 && 2 * bad > decided.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Parses rows: `.` GOOD, `x` BAD, `?` INCONCLUSIVE, a space without a call.
    fn of(rows: &[&str]) -> Vec<Owner> {
        let outcome = |c| match c {
            '.' => Some(NodeVerdict::Good),
            'x' => Some(NodeVerdict::Bad),
            '?' => Some(NodeVerdict::Inconclusive),
            _ => None,
        };
        let rows: Vec<Vec<_>> = rows
            .iter()
            .map(|row| row.chars().map(outcome).collect())
            .collect();
        owners(&rows)
    }

    #[test]
    fn a_dark_column_is_the_node_that_answers_and_a_dark_row_the_one_that_calls() {
        assert_eq!(of(&[" .x.", ". x.", ".. .", ".?x "]), [Owner::Answers(2)]);
        assert_eq!(of(&[" ...", "x xx", ".. .", "... "]), [Owner::Calls(1)]);
        let both = [Owner::Answers(3), Owner::Calls(0)];
        assert_eq!(of(&[" xxx", ". .x", ".. x", "... "]), both);
    }

    #[test]
    fn a_single_bad_pair_is_owned_by_the_path_between_its_nodes() {
        let between = |caller, answers| Owner::Between { caller, answers };
        assert_eq!(of(&[" x..", ". ..", ".. .", "... "]), [between(0, 1)]);
        // Of two nodes nobody can tell whose it is.
        assert_eq!(of(&[" x", "x "]), [between(0, 1), between(1, 0)]);
        assert_eq!(of(&[" .", ". "]), []);
        assert_eq!(of(&[]), []);
    }

    proptest! {
        /// Each BAD pair has a cause, and each cause has a BAD pair.
        #[test]
        fn each_bad_pair_has_an_owner_and_each_owner_a_bad_pair(
            rows in prop::collection::vec(prop::collection::vec(0..4_u8, 0..6), 0..6)
        ) {
            let outcome = |it: &u8| match it {
                0 => None,
                1 => Some(NodeVerdict::Good),
                2 => Some(NodeVerdict::Bad),
                _ => Some(NodeVerdict::Inconclusive),
            };
            let found: Vec<Vec<_>> =
                rows.iter().map(|row| row.iter().map(outcome).collect()).collect();
            let owners = owners(&found);
            for (caller, row) in found.iter().enumerate() {
                for (node, outcome) in row.iter().enumerate() {
                    let of = owners.iter().filter(|owner| match owner {
                        Owner::Answers(at) => *at == node,
                        Owner::Calls(at) => *at == caller,
                        Owner::Between { caller: from, answers } => {
                            (*from, *answers) == (caller, node)
                        }
                    });
                    let between = owners.contains(&Owner::Between { caller, answers: node });
                    prop_assert!(*outcome != Some(NodeVerdict::Bad) || of.count() > 0);
                    prop_assert!(*outcome == Some(NodeVerdict::Bad) || !between);
                }
            }
        }
    }
}
