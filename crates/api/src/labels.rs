//! The keys of the labels that operations have, and functions that check and create label values.

use sha2::{Digest as _, Sha256};

/// Prefix of the label keys that the server sets.
pub const PREFIX: &str = "ifo.kubevirt.io/";

/// Label keys that the server sets, without [`PREFIX`].
pub const SERVER_SUFFIXES: [&str; 13] = [
    "component",
    "operation",
    "owner-group",
    "owner-kind",
    "owner-name",
    "owner-uid",
    "owner-version",
    "ruleset",
    "state",
    "subject-kind",
    "subject-name",
    "subject-namespace",
    "subject-uid",
];

/// Label keys with [`PREFIX`] that a rule set may set, without this prefix. A rule set may not set
/// other keys with this prefix.
pub const AUTHOR_SUFFIXES: [&str; 2] = ["correlation-group", "correlation-role"];

/// Maximum length of a label value, in bytes (`validation.LabelValueMaxLength` in apimachinery).
pub const MAX_VALUE: usize = 63;

/// Returns true if `value` is a valid label value: empty, or at most 63 characters of
/// `[A-Za-z0-9_.-]` that begin and end with a letter or digit.
pub fn is_value(value: &str) -> bool {
    value.is_empty() || (value.len() <= MAX_VALUE && is_name(value))
}

/// Returns true if `key` is a qualified name: `[prefix/]name`, with a DNS subdomain as the prefix.
pub fn is_key(key: &str) -> bool {
    let (prefix, name) = match key.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    prefix.is_none_or(is_subdomain) && name.len() <= MAX_VALUE && is_name(name)
}

/// Returns true if `text` is a DNS subdomain (RFC 1123) of at most 253 characters.
pub fn is_subdomain(text: &str) -> bool {
    text.len() <= 253
        && text.split('.').all(|label| {
            !label.is_empty()
                && label
                    .bytes()
                    .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
                && !label.starts_with('-')
                && !label.ends_with('-')
        })
}

/// Returns true if `text` is valid as the name in a label key. The name is the part after the
/// slash, or the whole key if it has no slash. The length is not checked.
pub fn is_name(text: &str) -> bool {
    let bytes = text.as_bytes();
    let (Some(first), Some(last)) = (bytes.first(), bytes.last()) else {
        return false;
    };
    first.is_ascii_alphanumeric()
        && last.is_ascii_alphanumeric()
        && bytes.iter().all(|b| is_value_byte(*b))
}

fn is_value_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.')
}

/// Converts `text` to a label value. A text that is a valid label value stays the same. The
/// function changes every other text:
///
/// - It replaces each invalid byte by `-`.
/// - It truncates a long text, and removes punctuation at the beginning.
/// - It appends `-` and a hash of the original text.
///
/// For example, `a/b` gives `a-b-c14cddc0`. Because of the hash, different texts almost always give
/// different values.
pub fn to_value(text: &str) -> String {
    if is_value(text) {
        return text.to_owned();
    }
    let hash = hash(text.as_bytes(), 8);
    let mut value: String = text
        .bytes()
        .map(|b| if is_value_byte(b) { char::from(b) } else { '-' })
        .take(MAX_VALUE - 1 - hash.len())
        .collect();
    let start = value.len()
        - value
            .trim_start_matches(|c: char| !c.is_ascii_alphanumeric())
            .len();
    value.drain(..start);
    if value.is_empty() {
        return hash;
    }
    value.push('-');
    value.push_str(&hash);
    value
}

/// Returns the first `digits` hexadecimal digits of the SHA-256 of `bytes`.
pub fn hash(bytes: &[u8], digits: usize) -> String {
    let mut hash = format!("{:x}", Sha256::digest(bytes));
    hash.truncate(digits);
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valid_label_values_are_kept() {
        for value in ["", "a", "Migrating", "a.b_c-d", &"x".repeat(63)] {
            assert_eq!(to_value(value), value);
        }
    }

    #[test]
    fn invalid_label_values_become_distinct_valid_values() {
        let texts = [
            "a/b",
            "a b",
            "-a",
            "a-",
            "é",
            "…",
            &"x".repeat(64),
            &"x".repeat(65),
        ];
        let mut values: Vec<String> = texts.iter().map(|text| to_value(text)).collect();
        assert!(
            values
                .iter()
                .all(|value| is_value(value) && !value.is_empty()),
            "{values:?}"
        );
        values.sort();
        values.dedup();
        assert_eq!(values.len(), texts.len());
    }

    #[test]
    fn label_keys_follow_the_rules_of_qualified_names() {
        for key in ["a", "a.b/c", "ifo.kubevirt.io/operation", "A_1"] {
            assert!(is_key(key), "{key}");
        }
        for key in [
            "",
            "/a",
            "a/",
            "a/b/c",
            "A.b/c",
            "-a",
            &"x".repeat(64),
            "a..b/c",
        ] {
            assert!(!is_key(key), "{key}");
        }
    }
}
