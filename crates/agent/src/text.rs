//! Names that others chose, made fit for terminals and logs.

/// Returns `text` with everything that a terminal or a log would take as more than text
/// (control characters, changes of the writing direction) as escapes, such as `\u{1b}`.
pub fn printable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        if is_plain(character) {
            out.push(character);
        } else {
            out.extend(character.escape_unicode());
        }
    }
    out
}

/// Returns true if a character is shown in place, without an effect on its surroundings.
fn is_plain(character: char) -> bool {
    !character.is_control()
        && !matches!(
            character,
            // Invisible ones, marks and overrides of direction, separators of lines.
            '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
                | '\u{61c}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}'
        )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn terminal_control_characters_are_escaped() {
        for (text, shown) in [
            ("web-1 é 漢", "web-1 é 漢"),
            ("a\x1b]0;title\x07b", r"a\u{1b}]0;title\u{7}b"),
            ("row\nforged", r"row\u{a}forged"),
            ("\u{9b}31m", r"\u{9b}31m"),
            ("\u{202e}gpj.exe", r"\u{202e}gpj.exe"),
        ] {
            assert_eq!(printable(text), shown);
        }
    }

    proptest! {
        #[test]
        fn escaped_text_is_plain_and_escapes_to_itself(text: String) {
            let once = printable(&text);
            prop_assert!(once.chars().all(is_plain));
            prop_assert_eq!(printable(&once), once);
        }
    }
}
