//! The short form of an object's JSON, in which two bytes replace each frequent member key.
//!
//! Half of an operation's JSON consists of keys that all operations have. The index contains the
//! JSON of thousands of operations, so the short form saves memory: about 1 KB for each operation.
//!
//! For example, `{"uid":"x","name":"y"}` becomes `{`, [`MARK`], the code of `uid`, `"x"`, [`MARK`],
//! the code of `name`, `"y"}`. The code of a key is its index in [`REPLACED_KEYS`] plus
//! [`FIRST_CODE`]. The comma before a replaced key, and the colon after it, are left out, too.
//!
//! A string has the same bytes in the JSON and in the short form. So [`ObjectTexts`] reads texts
//! from the short form, without restoring the keys.
//!
//! [`ObjectTexts`]: super::text_positions::ObjectTexts

use memchr::{memchr, memchr_iter, memchr2};
use std::ops::Range;

/// The byte before the code of a key. Valid JSON never contains this byte, because control
/// characters in strings must be escaped (RFC 8259, section 7).
pub const MARK: u8 = 1;

/// The code of the first key in [`REPLACED_KEYS`]. No key has the code [`MARK`], so that each
/// [`MARK`] in the short form begins a replaced key.
const FIRST_CODE: u8 = MARK + 1;

/// Length of a replaced key in the short form, in bytes.
const SHORT_KEY_BYTES: usize = 2;

/// Yields an array with one text for each key: a comma, the key with its quotes, and a colon, such
/// as `,"uid":`.
macro_rules! members {
    ($($key:literal,)* labels: $($label:literal,)*) => {
        [
            $(concat!(",\"", $key, "\":"),)*
            $(concat!(",\"ifo.kubevirt.io/", $label, "\":"),)*
        ]
    };
}

/// Number of keys in [`REPLACED_KEYS`].
const KEY_COUNT: usize = 62;

/// The keys that the short form replaces. Their order has no meaning outside of this process.
static REPLACED_KEYS: [&str; KEY_COUNT] = members![
    "apiVersion",
    "blockOwnerDeletion",
    "completed",
    "component",
    "conditions",
    "controller",
    "creationTimestamp",
    "detectedBy",
    "durationSeconds",
    "estimatedCompletion",
    "expected",
    "generation",
    "instance",
    "item",
    "kind",
    "labels",
    "lastDetected",
    "lastProgress",
    "lastTransitionTime",
    "message",
    "metadata",
    "name",
    "namespace",
    "nodes",
    "observedGeneration",
    "operation",
    "outcome",
    "ownerReferences",
    "p95Seconds",
    "phase",
    "progress",
    "reason",
    "resourceVersion",
    "ruleSet",
    "runs",
    "source",
    "spec",
    "startTimeSource",
    "state",
    "stateSince",
    "status",
    "subject",
    "subjectGeneration",
    "type",
    "typicalSeconds",
    "uid",
    "work",
    labels:
    "component",
    "correlation-group",
    "correlation-role",
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

/// Number of bytes that [`append_long`] copies at once. No element of [`REPLACED_KEYS`] is longer.
const COPY_BYTES: usize = 40;

/// An element of [`REPLACED_KEYS`] with zeros after the text.
struct PaddedKey {
    with_comma: [u8; COPY_BYTES],
    without_comma: [u8; COPY_BYTES],
    /// Length of the text with the comma, in bytes.
    length: usize,
}

static PADDED_KEYS: [PaddedKey; KEY_COUNT] = {
    let mut members = [const {
        PaddedKey {
            with_comma: [0; COPY_BYTES],
            without_comma: [0; COPY_BYTES],
            length: 0,
        }
    }; KEY_COUNT];
    let mut index = 0;
    while index < KEY_COUNT {
        let text = REPLACED_KEYS[index].as_bytes();
        assert!(text.len() <= COPY_BYTES);
        let (_comma, rest) = text.split_at(1);
        let member = &mut members[index];
        member
            .with_comma
            .split_at_mut(text.len())
            .0
            .copy_from_slice(text);
        member
            .without_comma
            .split_at_mut(rest.len())
            .0
            .copy_from_slice(rest);
        member.length = text.len();
        index += 1;
    }
    members
};

/// Number of slots in [`SLOTS`]. Three quarters of the slots are free, so a search is short.
const SLOT_COUNT: usize = 256;

/// The value of a free slot in [`SLOTS`].
const FREE: u8 = u8::MAX;

/// A hash table of the keys in [`REPLACED_KEYS`], which the compiler builds. A slot contains an
/// index of [`REPLACED_KEYS`]. If another key occupies the first slot of a key, the key is in one
/// of the following slots.
static SLOTS: [u8; SLOT_COUNT] = {
    assert!(KEY_COUNT < (FREE - FIRST_CODE) as usize);
    let mut slots = [FREE; SLOT_COUNT];
    let mut index = 0_u8;
    while (index as usize) < KEY_COUNT {
        let mut slot = first_slot(replaced_key(index));
        while slots[slot] != FREE {
            slot = (slot + 1) % SLOT_COUNT;
        }
        slots[slot] = index;
        index += 1;
    }
    slots
};

/// Returns a key of [`REPLACED_KEYS`].
const fn replaced_key(index: u8) -> &'static [u8] {
    let (_, key) = REPLACED_KEYS[index as usize]
        .as_bytes()
        .split_at(",\"".len());
    let (key, _) = key.split_at(key.len() - "\":".len());
    key
}

/// Returns the slot where the search for `key` begins. The slot depends on the length of the key
/// and on three of its bytes. In [`REPLACED_KEYS`], most keys differ in these four values. For keys
/// of less than four bytes, the slot is 0.
const fn first_slot(key: &[u8]) -> usize {
    let [first, .., third_last, _, last] = key else {
        return 0;
    };
    (key.len() + 7 * *first as usize + 25 * *third_last as usize + *last as usize) % SLOT_COUNT
}

/// The two bytes that replace a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShortKey(pub [u8; SHORT_KEY_BYTES]);

/// Yields the [`ShortKey`] of a key. A key that the short form does not replace is a compile error.
macro_rules! key {
    ($key:literal) => {
        const { $crate::track::short_key_json::ShortKey::of($key) }
    };
}
pub(super) use key;

impl ShortKey {
    /// Returns the two bytes that replace `key`. Panics if `key` is not in `REPLACED_KEYS`. The
    /// macro `key!` calls this function at compile time.
    pub const fn of(key: &str) -> Self {
        let mut slot = first_slot(key.as_bytes());
        while !is_equal(replaced_key(SLOTS[slot]), key.as_bytes()) {
            slot = (slot + 1) % SLOT_COUNT;
        }
        Self([MARK, FIRST_CODE + SLOTS[slot]])
    }
}

/// Compares two texts at compile time.
const fn is_equal(left: &[u8], right: &[u8]) -> bool {
    let mut index = 0;
    while index < left.len() && index < right.len() && left[index] == right[index] {
        index += 1;
    }
    index == left.len() && index == right.len()
}

/// Returns the two bytes that replace `key`. Returns None for a key that the short form does not
/// replace.
pub fn short_key(key: &[u8]) -> Option<ShortKey> {
    let mut slot = first_slot(key);
    while SLOTS[slot] != FREE {
        if replaced_key(SLOTS[slot]) == key {
            return Some(ShortKey([MARK, FIRST_CODE + SLOTS[slot]]));
        }
        slot = (slot + 1) % SLOT_COUNT;
    }
    None
}

/// Returns the key that the two bytes `short` replace. Returns None if `short` is something else.
pub fn long_key(short: &[u8]) -> Option<&'static str> {
    let [MARK, code] = *short else {
        return None;
    };
    let member = REPLACED_KEYS.get(usize::from(code.checked_sub(FIRST_CODE)?))?;
    member.strip_prefix(",\"")?.strip_suffix("\":")
}

/// Restores the JSON from its short form, and appends the JSON to `out`. `short` is the whole short
/// form, or a part of it. A part must not begin between the two bytes of a key.
pub fn append_long(short: &[u8], out: &mut Vec<u8>) {
    // The JSON of most operations has about twice the length of its short form.
    out.reserve(2 * short.len() + COPY_BYTES);
    let mut copied = 0;
    for mark in memchr_iter(MARK, short) {
        let before = &short[copied..mark];
        let Some(member) = member_at(short, mark) else {
            // This cannot happen, because only `ShortJson::new` and the encoder of operations write
            // the short form.
            break;
        };
        match short[copied..].first_chunk() {
            Some(padded) if before.len() <= COPY_BYTES => append_padded(padded, before.len(), out),
            _ => out.extend_from_slice(before),
        }
        // The first member of an object has no comma.
        if before.ends_with(b"{") {
            append_padded(&member.without_comma, member.length - 1, out);
        } else {
            append_padded(&member.with_comma, member.length, out);
        }
        copied = mark + SHORT_KEY_BYTES;
    }
    out.extend_from_slice(&short[copied..]);
}

/// Appends the first `length` bytes of `padded` to `out`. A copy of a fixed length is faster than a
/// copy of the exact length.
fn append_padded(padded: &[u8; COPY_BYTES], length: usize, out: &mut Vec<u8>) {
    let end = out.len() + length;
    out.extend_from_slice(padded);
    out.truncate(end);
}

/// Returns the member whose two bytes begin at `mark`.
fn member_at(short: &[u8], mark: usize) -> Option<&'static PaddedKey> {
    let index = short.get(mark + 1)?.checked_sub(FIRST_CODE)?;
    PADDED_KEYS.get(usize::from(index))
}

/// The short form of valid JSON.
#[derive(Debug)]
pub struct ShortJson {
    pub bytes: Vec<u8>,
    /// The replaced keys, in the order of the JSON.
    replaced: Vec<ReplacedKey>,
}

/// A key of the JSON that the short form replaces.
#[derive(Debug)]
struct ReplacedKey {
    /// Position of the key, with its quotes, in the JSON.
    key: Range<usize>,
    /// Position of the two bytes in the short form.
    short: usize,
}

impl ShortJson {
    /// Shortens `json`, which must be valid JSON. A key with white space beside it is not replaced.
    pub fn new(json: &[u8]) -> Self {
        let mut bytes = Vec::with_capacity(json.len());
        let mut replaced = Vec::new();
        let (mut copied, mut position) = (0, 0);
        while let Some(quote) = find(json, position, |rest| memchr(b'"', rest)) {
            let end = string_end(json, quote);
            position = end;
            let key = quote..end;
            let before = quote.checked_sub(1).map(|before| json[before]);
            let from = match (before, json.get(end)) {
                (Some(b'{'), Some(b':')) => quote,
                (Some(b','), Some(b':')) => quote - 1,
                _ => continue,
            };
            if let Some(ShortKey(short)) = short_key(&json[quote + 1..end - 1]) {
                bytes.extend_from_slice(&json[copied..from]);
                replaced.push(ReplacedKey {
                    key,
                    short: bytes.len(),
                });
                bytes.extend_from_slice(&short);
                copied = end + 1;
            }
        }
        bytes.extend_from_slice(&json[copied..]);
        Self { bytes, replaced }
    }

    /// Converts the position of a key (with its quotes) or of a value in the JSON to the position
    /// in the short form. A replaced key has the position of its two bytes.
    pub fn convert(&self, range: Range<usize>) -> Range<usize> {
        let index = self
            .replaced
            .binary_search_by_key(&range.start, |it| it.key.start);
        if let Ok(index) = index {
            let short = self.replaced[index].short;
            return short..short + SHORT_KEY_BYTES;
        }
        self.convert_position(range.start)..self.convert_position(range.end)
    }

    /// Converts a position in the JSON that is outside of the keys.
    fn convert_position(&self, position: usize) -> usize {
        let before = self.replaced.partition_point(|it| it.key.end < position);
        match before.checked_sub(1).map(|last| &self.replaced[last]) {
            Some(last) => last.short + SHORT_KEY_BYTES + (position - last.key.end - 1),
            None => position,
        }
    }
}

/// Returns the position after the closing quote of the string that begins at `quote`.
fn string_end(json: &[u8], quote: usize) -> usize {
    let mut position = quote + 1;
    while let Some(found) = find(json, position, |rest| memchr2(b'"', b'\\', rest)) {
        if json[found] == b'"' {
            return found + 1;
        }
        position = found + 2;
    }
    json.len()
}

/// Searches `json` from `position` on. Returns the position in `json`.
fn find(json: &[u8], position: usize, search: impl Fn(&[u8]) -> Option<usize>) -> Option<usize> {
    Some(position + search(json.get(position..)?)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Map, Value};

    fn long(short: &[u8]) -> String {
        let mut json = Vec::new();
        append_long(short, &mut json);
        String::from_utf8(json).unwrap()
    }

    fn any_key() -> impl Strategy<Value = String> {
        let frequent = prop::sample::select(REPLACED_KEYS.map(key_of).to_vec());
        prop_oneof![
            3 => frequent.prop_map(str::to_owned),
            1 => "[a-z\"\\\\{}:,\u{1}é]{0,6}",
        ]
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<i64>().prop_map(Value::from),
            any_key().prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 60, 6, |inner| {
            let members = prop::collection::vec((any_key(), inner.clone()), 0..6);
            prop_oneof![
                members.prop_map(|all| Value::Object(Map::from_iter(all))),
                prop::collection::vec(inner, 0..6).prop_map(Value::from),
            ]
        })
    }

    /// Returns the key in an element of [`REPLACED_KEYS`].
    fn key_of(member: &'static str) -> &'static str {
        member
            .strip_prefix(",\"")
            .unwrap()
            .strip_suffix("\":")
            .unwrap()
    }

    #[test]
    fn each_replaced_key_has_a_short_form_of_its_own() {
        for (index, member) in REPLACED_KEYS.into_iter().enumerate() {
            let key = key_of(member);
            let short = short_key(key.as_bytes()).unwrap();
            assert_eq!(short, ShortKey::of(key));
            assert_eq!(usize::from(short.0[1] - FIRST_CODE), index);
            assert_eq!(long_key(&short.0), Some(key));
            assert!(!key.contains(['"', '\\']));
        }
        for other in [
            "\"\"",
            "\"u\"",
            "\"new\"",
            "\"Kind\"",
            "\"ifo.kubevirt.io/x\"",
            "",
        ] {
            assert_eq!(short_key(other.as_bytes()), None, "{other}");
        }
    }

    #[test]
    fn label_keys_have_the_prefix_of_the_project() {
        let mut labels = ifo_api::labels::SERVER_SUFFIXES.into_iter();
        labels.by_ref().for_each(|suffix| {
            let key = format!("{}{suffix}", ifo_api::labels::PREFIX);
            assert!(short_key(key.as_bytes()).is_some(), "{key}");
        });
    }

    #[test]
    fn only_keys_are_replaced() {
        let json =
            r#"{"uid":"uid","name":{"x":["kind",{"kind":"}\",\"uid\":1"}]},"new":{},"spec":-1}"#;
        let short = ShortJson::new(json.as_bytes());
        let [uid, name, kind, spec] =
            ["uid", "name", "kind", "spec"].map(|key| ShortKey::of(key).0);
        let expected: [&[u8]; 9] = [
            b"{",
            &uid,
            b"\"uid\"",
            &name,
            b"{\"x\":[\"kind\",{",
            &kind,
            b"\"}\\\",\\\"uid\\\":1\"}]},\"new\":{}",
            &spec,
            b"-1}",
        ];
        assert_eq!(short.bytes, expected.concat());
        assert_eq!(long(&short.bytes), json);
    }

    proptest! {
        #[test]
        fn the_short_form_yields_the_same_json(json in any_json()) {
            for json in [json.to_string(), format!("{json:#}"), format!(" [1 , {json}\n] ")] {
                let short = ShortJson::new(json.as_bytes());
                prop_assert!(short.bytes.len() <= json.len());
                prop_assert_eq!(long(&short.bytes), json);
            }
        }

        #[test]
        fn values_keep_their_bytes(before in any_json(), text in any_key(), after in any_json()) {
            let value = Value::from(text).to_string();
            let json = format!(r#"{{"a":{before},"uid":{value},"b":{value},"c":{after}}}"#);
            let short = ShortJson::new(json.as_bytes());
            let uid = json.rfind(&format!("\"b\":{value}")).unwrap();
            let b = uid + 4;
            for start in [uid - 1 - value.len(), b] {
                let range = short.convert(start..start + value.len());
                prop_assert_eq!(&short.bytes[range], value.as_bytes());
            }
            let range = short.convert(0..json.len());
            prop_assert_eq!(range, 0..short.bytes.len());
        }
    }
}
