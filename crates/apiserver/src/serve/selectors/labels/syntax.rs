//! The syntax of label keys and values (`validation.IsQualifiedName` and
//! `validation.IsValidLabelValue` in `k8s.io/apimachinery`).

/// Maximum length of a label value, and of the name in a key, in bytes.
pub const MAX_VALUE: usize = 63;

/// Maximum length of the prefix of a key, in bytes (RFC 1123).
const MAX_PREFIX: usize = 253;

/// Returns true if `value` is a valid label value.
pub fn is_value(value: &str) -> bool {
    value.is_empty() || is_name(value)
}

/// Returns true if `key` is a valid label key: `[prefix/]name`, with a DNS subdomain as the prefix.
pub fn is_key(key: &str) -> bool {
    match key.split_once('/') {
        Some((prefix, name)) => is_subdomain(prefix) && is_name(name),
        None => is_name(key),
    }
}

fn is_name(text: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let ends = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    bytes.len() <= MAX_VALUE
        && ends(bytes.first())
        && ends(bytes.last())
        && bytes.iter().all(|byte| is_inner(*byte))
}

fn is_subdomain(text: &str) -> bool {
    let is_label = |label: &str| {
        let is_inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        !label.is_empty()
            && label.chars().all(is_inner)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    text.len() <= MAX_PREFIX && text.split('.').all(is_label)
}
