//! A list in YAML, item by item. Enters: the list's JSON without its items, then each
//! item's. Leaves: what the list as a whole would look like, in parts. What stands above
//! and below the items is small, and one item does not change how another is written.

use super::super::respond;
use serde_json::{Map, Value};

/// What surrounds the items.
pub struct Frame {
    /// Comes before them, the key that they are under included.
    pub head: Vec<u8>,
    /// Comes after them.
    pub tail: Vec<u8>,
}

/// The keys that items are under: of a list, and of a table.
const ITEMS: [&str; 2] = ["items", "rows"];

impl Frame {
    /// From a list without items; `filled` if there will be some.
    pub fn of(list: &[u8], filled: bool) -> Self {
        // It was written here: it is an object with one of the two keys. Its keys are in
        // their order, as in everything that is converted to YAML.
        let mut members: Map<String, Value> = serde_json::from_slice(list).unwrap_or_default();
        let key = ITEMS.into_iter().find(|key| members.contains_key(*key));
        let key = key.unwrap_or(ITEMS[0]);
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

/// The lines of a mapping, of which there may be none.
fn mapping(members: Map<String, Value>) -> Vec<u8> {
    if members.is_empty() {
        return Vec::new();
    }
    respond::yaml(Value::Object(members).to_string().as_bytes())
}

/// Writes the lines of one item, which is in JSON, as they stand in a list.
pub fn item(json: &[u8], out: &mut Vec<u8>) {
    let list = [br#"{"items":["#, json, b"]}"].concat();
    let yaml = respond::yaml(&list);
    let line = yaml.iter().position(|byte| *byte == b'\n');
    // The first line is the key.
    out.extend_from_slice(&yaml[line.map_or(0, |end| end + 1)..]);
}
