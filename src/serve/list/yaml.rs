//! A list in YAML, item by item. Input: the JSON of the list without its items, and then the JSON
//! of each item. Output: the YAML of the whole list in parts. The text around the items is small,
//! and items do not depend on each other.

use super::super::respond;
use serde_json::{Map, Value};

/// The text around the items.
pub struct Frame {
    /// The text before the items, with their key.
    pub head: Vec<u8>,
    /// The text after the items.
    pub tail: Vec<u8>,
}

/// The keys of the items of a list and of a table.
const LIST_FIELDS: [&str; 2] = ["items", "rows"];

impl Frame {
    /// Splits the YAML of a list without items. `filled` is true if items will follow.
    pub fn of(list: &[u8], filled: bool) -> Self {
        // The list was written by this server: it is an object with one of the two keys, and its
        // keys are sorted, as in all YAML here.
        let mut members: Map<String, Value> = serde_json::from_slice(list).unwrap_or_default();
        let key = LIST_FIELDS
            .into_iter()
            .find(|key| members.contains_key(*key));
        let key = key.unwrap_or(LIST_FIELDS[0]);
        let mut tail = Map::new();
        members.retain(|name, value| {
            let after = name.as_str() > key;
            if after {
                tail.insert(name.clone(), value.take());
            }
            !after && name != key
        });
        let mut head = mapping(members);
        head.extend_from_slice(key.as_bytes());
        head.extend_from_slice(if filled { b":\n" } else { b": []\n" });
        let tail = mapping(tail);
        Self { head, tail }
    }
}

/// The lines of a mapping, which may be empty.
fn mapping(members: Map<String, Value>) -> Vec<u8> {
    if members.is_empty() {
        return Vec::new();
    }
    respond::yaml(Value::Object(members).to_string().as_bytes())
}

/// Writes the lines of one item, given in JSON.
pub fn item(json: &[u8], out: &mut Vec<u8>) {
    let list = [br#"{"items":["#, json, b"]}"].concat();
    let yaml = respond::yaml(&list);
    let line = yaml.iter().position(|byte| *byte == b'\n');
    // The first line is the key.
    out.extend_from_slice(&yaml[line.map_or(0, |end| end + 1)..]);
}
