//! Tables of mistakes for tests of types that are read from a file.

/// Checks that each mistake of a table is refused with its message.
///
/// An entry of the table is a line `FROM => TO` and, indented below it, parts of the message. The
/// first FROM in the text `right` is replaced by TO, and `read` must refuse the result with a message
/// that has all parts. `\n` stands for the end of a line. `right` itself must be accepted.
///
/// # Panics
/// An entry has no such FROM, or is not refused with its message.
#[track_caller]
pub fn assert_refused<T, E: ToString>(
    right: &str,
    read: impl Fn(&str) -> Result<T, E>,
    table: &str,
) {
    let accepted = read(right).map_err(|error| error.to_string());
    assert_eq!(accepted.err(), None, "the text without a mistake");
    let mut wrong = Vec::new();
    let mut message = None;
    for line in table.lines().filter(|line| !line.trim().is_empty()) {
        match (line.strip_prefix("    "), &message) {
            (Some(part), Some(message)) => {
                let message: &String = message;
                if !message.contains(part) {
                    wrong.push(format!("expected {part}\nfound    {message}"));
                }
            }
            (Some(part), None) => panic!("{part}: no mistake is above it"),
            (None, _) => {
                let (from, to) = line.split_once(" =>").expect("FROM => TO");
                let [from, to] =
                    [from, to.strip_prefix(' ').unwrap_or(to)].map(|it| it.replace("\\n", "\n"));
                assert!(right.contains(&from), "there is no {from}");
                let refused = read(&right.replacen(&from, &to, 1)).err();
                let refused =
                    refused.map_or_else(|| format!("{to} was accepted"), |error| error.to_string());
                message = Some(refused);
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[cfg(test)]
mod tests {
    use super::assert_refused;

    fn read(text: &str) -> Result<u32, String> {
        let number = text.trim().strip_prefix("vms = ").ok_or("vms is missing")?;
        number.parse().map_err(|_| format!("{number} is no number"))
    }

    #[test]
    fn a_refused_mistake_passes() {
        assert_refused(
            "vms = 4\n",
            read,
            "\nvms =>\n    vms is missing\n4\\n => x\n    x is no number\n",
        );
    }

    #[test]
    #[should_panic(expected = "expected 5 is no number\nfound    5 was accepted")]
    fn an_accepted_mistake_fails() {
        assert_refused("vms = 4", read, "4 => 5\n    5 is no number");
    }

    #[test]
    #[should_panic(expected = "there is no 5")]
    fn a_mistake_case_without_a_match_panics() {
        assert_refused("vms = 4", read, "5 => 6\n    6");
    }
}
