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

/// The text of a JSON string, which is given without its quotes.
pub fn unescaped(inner: &[u8]) -> Cow<'_, str> {
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

/// The names and values of a compact JSON object whose values are strings, without their
/// quotes, up to whatever is no such member.
pub fn members(object: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let mut rest = object.strip_prefix(b"{");
    std::iter::from_fn(move || {
        let (name, after) = string(rest?)?;
        let (value, after) = string(after.strip_prefix(b":")?)?;
        rest = after.strip_prefix(b",");
        Some((name, value))
    })
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
    fn members_are_read_without_and_with_escapes() {
        let read = |object| -> Vec<_> {
            let both = |(name, value)| (unescaped(name), unescaped(value));
            members(object).map(both).collect()
        };
        let object = read(br#"{"a":"1","b/c":"x\"y","d\u0041":""}"#);
        assert!(matches!(
            object[0],
            (Cow::Borrowed("a"), Cow::Borrowed("1"))
        ));
        assert_eq!(
            object[1..],
            [("b/c".into(), "x\"y".into()), ("dA".into(), "".into())]
        );
        assert_eq!(read(b"{}"), []);
        assert_eq!(read(b"{\"a\":\"1\",\"b\":\"").len(), 1);
    }

    #[test]
    fn scalars_compare_as_strings() {
        assert!(is(b"\"a\"", "a") && is(b"7", "7") && is(b"true", "true") && is(b"null", ""));
        assert!(is(br#""\u00e9""#, "é") && !is(b"\"a\"", "\"a\""));
    }
}
