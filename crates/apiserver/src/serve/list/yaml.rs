//! Writes a list in YAML, item by item, so that the whole list is never in memory. Input: the JSON
//! of the list without its items, and then the JSON of each item. Output: the YAML before the
//! items, the YAML of each item, and the YAML after the items.

use super::super::create_responses;
use serde_json::{Map, Value};

/// The YAML before and after the items of a list.
pub struct Frame {
    /// The text before the items, including the key `items` or `rows`.
    pub head: Vec<u8>,
    /// The text after the items.
    pub tail: Vec<u8>,
}

/// The key of the items in a list, and the key of the rows in a table.
const LIST_FIELDS: [&str; 2] = ["items", "rows"];

impl Frame {
    /// Converts the JSON of a list without items to YAML, and splits the YAML at the key of the
    /// items. `has_items` is true if items will follow.
    pub fn of(list: &[u8], has_items: bool) -> Self {
        // The encoder of this server has written the list. So the list is an object with one of the
        // keys in `LIST_FIELDS`. In the YAML, the members are sorted by key. So the members whose
        // keys come after the key of the items form the tail.
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
        head.extend_from_slice(if has_items { b":\n" } else { b": []\n" });
        let tail = mapping(tail);
        Self { head, tail }
    }
}

/// Returns the YAML of an object. The YAML is empty if the object has no members.
fn mapping(members: Map<String, Value>) -> Vec<u8> {
    if members.is_empty() {
        return Vec::new();
    }
    create_responses::yaml(Value::Object(members).to_string().as_bytes())
}

/// Converts the JSON of one item to YAML.
pub fn item(json: &[u8], out: &mut Vec<u8>) {
    let list = [br#"{"items":["#, json, b"]}"].concat();
    let yaml = create_responses::yaml(&list);
    let line = yaml.iter().position(|byte| *byte == b'\n');
    // The first line is `items:`. It is left out, because the text before the items already
    // contains the key of the items.
    out.extend_from_slice(&yaml[line.map_or(0, |end| end + 1)..]);
}
