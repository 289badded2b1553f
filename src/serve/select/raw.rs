//! Reading strings out of compact JSON in place. Kubernetes' label keys and values hold
//! no character that JSON escapes, so the common case copies nothing.

use std::borrow::Cow;

/// The text of a JSON scalar: a string's content, a number or boolean as written, and
/// nothing for null. Anything else is taken as written.
pub fn text(json: &[u8]) -> Cow<'_, str> {
    match json {
        [b'"', inner @ .., b'"'] => unescaped(inner),
        b"null" => Cow::Borrowed(""),
        other => String::from_utf8_lossy(other),
    }
}

/// Whether a JSON scalar reads `wanted`.
pub fn is(json: &[u8], wanted: &str) -> bool {
    match json {
        [b'"', inner @ .., b'"'] if !inner.contains(&b'\\') => inner == wanted.as_bytes(),
        other => text(other) == wanted,
    }
}

fn unescaped(inner: &[u8]) -> Cow<'_, str> {
    if inner.contains(&b'\\') {
        let mut quoted = Vec::with_capacity(inner.len() + 2);
        quoted.push(b'"');
        quoted.extend_from_slice(inner);
        quoted.push(b'"');
        if let Ok(text) = serde_json::from_slice::<String>(&quoted) {
            return Cow::Owned(text);
        }
    }
    String::from_utf8_lossy(inner)
}

/// The value of `key` in a compact JSON object whose values are strings.
pub fn member<'a>(object: &'a [u8], key: &str) -> Option<Cow<'a, str>> {
    let mut rest = object.strip_prefix(b"{")?;
    loop {
        let (name, after) = string(rest)?;
        let (value, after) = string(after.strip_prefix(b":")?)?;
        let same = if name.contains(&b'\\') {
            unescaped(name) == key
        } else {
            name == key.as_bytes()
        };
        if same {
            return Some(unescaped(value));
        }
        rest = after.strip_prefix(b",")?;
    }
}

/// The content of the string that `json` begins with, and what follows it.
fn string(json: &[u8]) -> Option<(&[u8], &[u8])> {
    let inner = json.strip_prefix(b"\"")?;
    let mut escaped = false;
    let end = inner.iter().position(|byte| {
        let closes = *byte == b'"' && !escaped;
        escaped = *byte == b'\\' && !escaped;
        closes
    })?;
    Some((&inner[..end], &inner[end + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_found_without_and_with_escapes() {
        let object = br#"{"a":"1","b/c":"x\"y","d\u0041":""}"#;
        assert!(matches!(member(object, "a"), Some(Cow::Borrowed("1"))));
        assert_eq!(member(object, "b/c").unwrap(), "x\"y");
        assert_eq!(member(object, "dA").unwrap(), "");
        assert_eq!(member(object, "1"), None);
        assert_eq!(member(b"{}", "a"), None);
        assert_eq!(member(b"{\"a\":\"", "a"), None);
    }

    #[test]
    fn scalars_compare_as_strings() {
        assert!(is(b"\"a\"", "a") && is(b"7", "7") && is(b"true", "true") && is(b"null", ""));
        assert!(is(br#""\u00e9""#, "é") && !is(b"\"a\"", "\"a\""));
    }
}
