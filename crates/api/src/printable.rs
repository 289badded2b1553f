//! Replaces characters that can control a terminal. Text of objects contains such characters if a
//! user has written them there to deceive other users.

use std::borrow::Cow;

/// Returns true if a terminal can interpret the character as a command:
///
/// - control characters of C0 and C1, and DEL; except line feed and tab, which formatted text needs
/// - characters that change the direction of text, such as U+202E
/// - the separators of lines and paragraphs, U+2028 and U+2029
pub fn is_unprintable(c: char) -> bool {
    match c {
        '\n' | '\t' => false,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
            true
        }
        c => c.is_control(),
    }
}

/// Replaces each unprintable character by U+FFFD (`�`), and each carriage return by a space. The
/// number of characters stays the same.
pub fn printable(text: &str) -> Cow<'_, str> {
    // Most texts are ASCII, and comparing bytes is faster than decoding characters.
    if text.bytes().all(|byte| matches!(byte, b' '..=b'~')) || !text.contains(is_unprintable) {
        return text.into();
    }
    text.chars()
        .map(|c| match c {
            '\r' => ' ',
            c if is_unprintable(c) => char::REPLACEMENT_CHARACTER,
            c => c,
        })
        .collect::<String>()
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_that_control_a_terminal_are_replaced() {
        assert_eq!(printable("\u{1b}[31m\u{7}\u{8}"), "�[31m��");
        assert_eq!(printable("\u{7f}\u{80}\u{85}\u{9b}\u{9f}"), "�����");
        assert_eq!(
            printable("\u{61c}\u{200e}\u{202e}\u{2066}\u{2029}"),
            "�����"
        );
        assert_eq!(printable("a\r\n\tb\u{0}"), "a \n\tb�");
    }

    #[test]
    fn text_of_any_language_stays_the_same() {
        for text in [
            "",
            "plain",
            "two\n\tlines",
            "שלום é 移行中 … \u{a0}\u{fffd}",
        ] {
            assert!(matches!(printable(text), Cow::Borrowed(it) if it == text));
        }
    }
}
