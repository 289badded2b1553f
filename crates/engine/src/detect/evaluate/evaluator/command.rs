//! Evaluates `cancel`: the command line with which a person can stop an operation.
//!
//! A person copies the command line into a shell. Its words contain names of objects, which other
//! users choose. So a rule yields only the words of the command, and this module quotes each word.
//! The shell then passes each word to the command as one argument, with all its characters.

use super::{CurrentRule, ObjectEvaluator};
use crate::rules::EvaluationError;
use ifo_api::Text;
use ifo_cel::Program;

/// Maximum length of a command line, in bytes. A longer command line is a failure of the rule. The
/// command line is not cut, because a part of a command can do something else than the whole
/// command.
const MAX_COMMAND: usize = 1_024;

impl ObjectEvaluator<'_, '_> {
    /// Returns the command line, or None if the rule yields no words or an invalid word.
    pub(super) fn evaluate_cancel(&mut self, current: CurrentRule<'_>) -> Option<Text> {
        let words = self.evaluate_field(current, "cancel", Program::strings::<String>)?;
        match command_line(&words) {
            Ok(line) => (!line.is_empty()).then(|| line.into()),
            Err(error) => {
                self.record_failure(current, "cancel", error);
                None
            }
        }
    }
}

/// Joins the words of a command, each quoted for a shell. Returns an error if a word has other
/// characters than printable ASCII. A terminal can show such characters as a different text than
/// the shell receives.
fn command_line(words: &[String]) -> Result<String, EvaluationError> {
    let is_printable = |word: &String| word.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    if let Some(index) = words.iter().position(|word| !is_printable(word)) {
        return Err(EvaluationError::CommandWord(index));
    }
    let line = words.iter().map(|word| quote(word)).collect::<Vec<_>>();
    let line = line.join(" ");
    if line.len() > MAX_COMMAND {
        return Err(EvaluationError::CommandLength(line.len()));
    }
    Ok(line)
}

/// Quotes a word, so that the shells sh, bash, zsh and fish read the word as one argument. Each
/// single quote or backslash in the word is placed outside of the quotes, after a backslash. The
/// reason: fish interprets a backslash between single quotes.
fn quote(word: &str) -> String {
    let is_option = word.starts_with('-');
    let is_safe = |byte: u8| {
        byte.is_ascii_alphanumeric() || b"-_./:,@+".contains(&byte) || byte == b'=' && is_option
    };
    if !word.is_empty() && word.bytes().all(is_safe) {
        return word.to_owned();
    }
    let quoted = word.chars().map(|c| match c {
        '\'' | '\\' => format!("'\\{c}'"),
        c => c.to_string(),
    });
    format!("'{}'", quoted.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    fn line(words: &[&str]) -> Result<String, EvaluationError> {
        let words: Vec<String> = words.iter().map(|it| (*it).to_owned()).collect();
        command_line(&words)
    }

    #[test]
    fn a_shell_passes_each_word_to_the_command_unchanged() {
        let words = [
            "printf",
            "<%s>",
            "web-1.example.com/a:b,c@d+e",
            "",
            "a b",
            "$(touch x)`id`${HOME}",
            "it's; rm -rf /",
            "a\\'; echo b #",
            "~root",
            "*?[a]{b,c}!!",
            "a=b%",
            "--c=d",
            "\"&|<>\\",
        ];
        let line = line(&words).expect("the words are printable");
        assert!(line.starts_with("printf '<%s>' web-1.example.com/a:b,c@d+e '' 'a b' "));
        assert!(line.contains(" 'a=b%' --c=d "));
        let output = Command::new("sh").args(["-c", &line]).output();
        let output = output.expect("sh runs").stdout;
        let expected = format!("<{}>", words[2..].join("><"));
        assert_eq!(String::from_utf8_lossy(&output), expected);
    }

    #[test]
    fn an_unprintable_or_long_command_is_refused() {
        for word in ["a\nb", "\u{1b}[2J", "a\tb", "v\u{43c}", "\u{202e}a"] {
            let expected = Err(EvaluationError::CommandWord(1));
            assert_eq!(line(&["kubectl", word]), expected);
        }
        let long = "a".repeat(MAX_COMMAND + 1);
        let expected = Err(EvaluationError::CommandLength(MAX_COMMAND + 1));
        assert_eq!(line(&[&long]), expected);
        assert_eq!(line(&[&long[1..]]), Ok(long[1..].to_owned()));
        assert_eq!(line(&[]), Ok(String::new()));
    }
}
