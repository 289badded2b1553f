//! Masks values in the answers of the live resource and of the custom resource. UIDs,
//! resourceVersions, times and the API group always differ between the two answers. So a mask
//! replaces each of these values before the test compares the answers. Masks of resourceVersions:
//!
//! - The resourceVersion of an object becomes the name of the change that led to this
//!   resourceVersion, such as `a#2`.
//! - The resourceVersion of a list becomes its relation to other resourceVersions, such as `not
//!   older than the items`.

use super::exchange::{ExchangeAnswer, TableRequest};
use super::side::Side;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use regex::Regex;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// Headers that are not compared. `date`, `content-length` and `transfer-encoding` can differ in
/// each answer. Other tests run at the same time, and their rule sets influence `ifo-complete`,
/// `ifo-incomplete` and `warning`.
const IGNORED: [&str; 6] = [
    "date",
    "content-length",
    "ifo-complete",
    "ifo-incomplete",
    "transfer-encoding",
    "warning",
];
/// Headers with random values. Only their existence is compared.
const RANDOM: [&str; 3] = [
    "audit-id",
    "x-kubernetes-pf-flowschema-uid",
    "x-kubernetes-pf-prioritylevel-uid",
];

/// Least `timeoutSeconds` (in seconds) with which the test compares the bookmarks at the end of a
/// watch. The kube-apiserver sends a bookmark about two seconds before the end of a watch. Its
/// clock for bookmarks counts whole seconds. So a shorter watch can end without this bookmark.
const LONG_ENOUGH: u64 = 5;

/// Returns the answer with masked values, as the JSON that is compared. It contains the status
/// code, the headers and the body.
pub fn answer(
    request: &TableRequest,
    side: &Side,
    namespace: &str,
    answer: ExchangeAnswer,
) -> Value {
    let mask = Mask {
        request,
        side,
        namespace,
    };
    let kind = answer
        .headers
        .iter()
        .find(|(name, _)| name == "content-type");
    let is_json = kind.is_some_and(|(_, kind)| kind.starts_with("application/json"));
    let is_watch =
        (answer.code == 101 || is_json && answer.code == 200) && answer.text.lines().all(is_event);
    let parse =
        |text: &str| serde_json::from_str(text).unwrap_or_else(|_| json!({"not JSON": text}));
    let body = if answer.text.is_empty() {
        Value::Null
    } else if is_watch {
        mask.events(answer.text.lines().map(parse).collect())
    } else if is_json {
        mask.whole(parse(&answer.text))
    } else {
        Value::String(mask.text(&answer.text))
    };
    json!({
        "code": answer.code,
        "headers": headers(answer.headers),
        "messages": answer.messages,
        "body": body,
    })
}

/// Returns true if a line of an answer is an event of a watch.
fn is_event(line: &str) -> bool {
    line.starts_with("{\"type\":\"")
}

fn headers(headers: Vec<(String, String)>) -> Value {
    let mut compared: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, mut value) in headers {
        if RANDOM.contains(&&*name) {
            "something".clone_into(&mut value);
        }
        if !IGNORED.contains(&&*name) {
            compared.entry(name).or_default().push(value);
        }
    }
    json!(compared)
}

/// The values that are needed to mask one answer.
pub struct Mask<'a> {
    pub request: &'a TableRequest,
    pub side: &'a Side,
    /// Name of the first namespace of the test. The names of the test's other namespaces begin with
    /// this name.
    pub namespace: &'a str,
}

impl Mask<'_> {
    /// Masks the body of an answer that is not a watch.
    fn whole(&self, mut body: Value) -> Value {
        for list in ["items", "rows"] {
            if let Some(all) = body.get_mut(list).and_then(Value::as_array_mut) {
                all.retain(|item| self.is_ours(item));
            }
        }
        // Only the API group of the live resource has the resources `operationrecords` and
        // `activities`. So these resources are not compared.
        if let Some(all) = body.get_mut("resources").and_then(Value::as_array_mut) {
            all.retain(|resource| {
                resource["name"] != "operationrecords" && resource["name"] != "activities"
            });
        }
        // A table of one object has the resourceVersion of the object, which `walk` replaces.
        let list = body.get("items").is_some() || body.get("rows").is_some();
        let of_one = self.request.0.contains("{one}");
        if list && !of_one {
            let relation = self.version_relation(&body["metadata"], &versions(&body));
            body["metadata"]["resourceVersion"] = json!(relation);
        }
        self.walk("", &mut body);
        body
    }

    /// Masks the events of a watch.
    pub fn events(&self, mut events: Vec<Value>) -> Value {
        events.retain(|event| self.is_ours(&event["object"]));
        let mut newest = 0;
        let columns = events
            .first()
            .map(|it| it["object"]["columnDefinitions"].clone());
        let columns = columns.unwrap_or_default();
        for (number, event) in events.iter_mut().enumerate() {
            // The first table of a watch must have the columns. The kube-apiserver sometimes
            // repeats them in later tables, because its watches share encoded events.
            if let Some(again) = event.pointer_mut("/object/columnDefinitions")
                && number > 0
                && (again.is_null() || *again == columns)
            {
                *again = json!("none, or the same");
            }
            let bookmark = event["type"] == "BOOKMARK";
            let seen = versions(&event["object"]);
            if bookmark {
                Self::bookmark(&mut event["object"], newest);
            }
            newest = seen.into_iter().fold(newest, u64::max);
            self.walk("", event);
        }
        events.retain(|event| self.is_compared(event));
        // The kube-apiserver sends one or two bookmarks before the end of a watch. A second
        // bookmark that equals the first is dropped.
        events.dedup_by(|next, last| {
            let bookmarks = next["type"] == "BOOKMARK" && last["type"] == "BOOKMARK";
            bookmarks
                && next["object"]["metadata"] == last["object"]["metadata"]
                && next["object"]["rows"] == last["object"]["rows"]
        });
        Value::Array(events)
    }

    /// Returns true if an event is compared:
    ///
    /// - Every event that is not a bookmark is compared.
    /// - The bookmark after the initial events is compared.
    /// - Another bookmark is compared only if `timeoutSeconds` is at least [`LONG_ENOUGH`]. A
    ///   shorter watch can end without such a bookmark.
    fn is_compared(&self, event: &Value) -> bool {
        let seconds = self.request.option(self.side, "timeoutSeconds");
        let seconds = seconds.and_then(|seconds| seconds.parse::<u64>().ok());
        event["type"] != "BOOKMARK"
            || event.to_string().contains("initial-events-end")
            || seconds.is_some_and(|seconds| seconds >= LONG_ENOUGH)
    }

    /// Replaces the resourceVersion of a bookmark by its relation to `newest`, the newest
    /// resourceVersion of the events before the bookmark.
    fn bookmark(object: &mut Value, newest: u64) {
        for pointer in [
            "/metadata/resourceVersion",
            "/rows/0/object/metadata/resourceVersion",
        ] {
            let Some(version) = object.pointer_mut(pointer) else {
                continue;
            };
            let number = version.as_str().and_then(|it| it.parse::<u64>().ok());
            *version = json!(match number {
                Some(number) if number >= newest => "not older than the events before",
                Some(_) => "older than an event before",
                None => "not a number",
            });
        }
    }

    /// Returns true if `item` is in a namespace of this test, or has no namespace. `item` is an
    /// item of a list, a row of a table, or the object of an event.
    fn is_ours(&self, item: &Value) -> bool {
        ["/metadata/namespace", "/object/metadata/namespace"]
            .into_iter()
            .filter_map(|pointer| item.pointer(pointer).and_then(Value::as_str))
            .all(|namespace| namespace.starts_with(self.namespace))
    }

    /// Describes how the resourceVersion of a list relates to the requested resourceVersion and to
    /// the resourceVersions of the items. An example is `as requested, not older than the items`.
    fn version_relation(&self, metadata: &Value, items: &[u64]) -> String {
        let Some(version) = metadata["resourceVersion"].as_str() else {
            return "none".to_owned();
        };
        let Ok(number) = version.parse::<u64>() else {
            return format!("not a number: {version}");
        };
        let option = |name| self.request.option(self.side, name).unwrap_or_default();
        let token = token(&option("continue"));
        let requested = match token["rv"].as_i64() {
            Some(version) if version > 0 => version.to_string(),
            _ => option("resourceVersion"),
        };
        let limited = option("limit").parse::<i64>().is_ok_and(|limit| limit > 0);
        let matching = option("resourceVersionMatch");
        let exact = matching == "Exact" || !token.is_null() || (matching.is_empty() && limited);
        let to_requested = match requested.parse::<u64>() {
            Err(_) | Ok(0) => "",
            Ok(requested) if requested == number && exact => "as requested, ",
            Ok(requested) if requested > number => "older than requested, ",
            Ok(_) if exact => "not as requested, ",
            Ok(_) => "not older than requested, ",
        };
        let to_items = if items.iter().all(|item| *item <= number) {
            "not older than the items"
        } else {
            "older than an item"
        };
        format!("{to_requested}{to_items}")
    }

    /// Masks the strings in a value. `key` is the name of the field that contains the value. `key`
    /// is empty for the whole answer and for an element of an array.
    fn walk(&self, key: &str, value: &mut Value) {
        match value {
            Value::Object(fields) => {
                for (key, value) in fields.iter_mut() {
                    self.walk(key, value);
                }
            }
            Value::Array(all) if key == "cells" => {
                for cell in all {
                    if cell.as_str().is_some_and(|text| AGES.is_match(text)) {
                        *cell = json!("AGE");
                    } else if cell.as_str().is_some_and(is_time) {
                        *cell = json!("TIME");
                    }
                }
            }
            Value::Array(all) => all.iter_mut().for_each(|value| self.walk("", value)),
            Value::String(text) => *text = self.string(key, text),
            _ => {}
        }
    }

    fn string(&self, key: &str, text: &str) -> String {
        match key {
            "resourceVersion" => match self.side.name_of(text) {
                Some(name) => name,
                None if text.bytes().all(|byte| byte.is_ascii_digit()) => "of no change".to_owned(),
                None => text.to_owned(),
            },
            "uid" => self.side.name_of(text).unwrap_or_else(|| text.to_owned()),
            "creationTimestamp" if is_time(text) => "TIME".to_owned(),
            "continue" if !text.is_empty() => {
                let mut token = token(text);
                if let Some(version) = token.get_mut("rv")
                    && version.as_i64() > Some(0)
                {
                    *version = json!("of the list");
                }
                if let Some(start) = token["start"].as_str() {
                    // The kube-apiserver writes the leading slash only when it answers from etcd.
                    // It does not write the slash when it answers from its watch cache.
                    token["start"] = json!(start.trim_start_matches('/'));
                }
                token.to_string()
            }
            _ => self.text(text),
        }
    }

    /// Masks the API group and the resourceVersions in a message or another text.
    fn text(&self, text: &str) -> String {
        let text = text.replace(self.side.group, "GROUP");
        let mut text = NUMBERS.replace_all(&text, "${1}N").into_owned();
        // A message can quote the requested resourceVersion. The two sides have different
        // resourceVersions. So the mask replaces the quoted number by the name of the placeholder
        // in the request: `"123"` becomes `"now"`.
        for version in ["before", "now"] {
            let quoted = format!("\"{}\"", self.side.value(version));
            text = text.replace(&quoted, &format!("\"{version}\""));
        }
        text
    }
}

fn is_time(text: &str) -> bool {
    text.parse::<jiff::Timestamp>().is_ok()
}

/// Matches an age in the format of kubectl, such as `45s` or `3m20s`.
static AGES: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"^(\d+[smhdy]){1,2}$").expect("the expression is valid"));

/// Matches the number of the current or oldest resourceVersion in a message, such as `current: 105`
/// or `(220)`.
static NUMBERS: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"(current: |\()\d+").expect("the expression is valid"));

/// Returns the resourceVersions of the items of a list, or of the rows of a table. For any other
/// object, returns the object's own resourceVersion.
fn versions(body: &Value) -> Vec<u64> {
    let mut items: Vec<&Value> = vec![body];
    for list in ["items", "rows"] {
        items = match body.get(list).and_then(Value::as_array) {
            Some(all) => all.iter().collect(),
            None => items,
        };
    }
    let version = |item: &&Value| {
        let own = item.pointer("/metadata/resourceVersion");
        let version = own.or_else(|| item.pointer("/object/metadata/resourceVersion"));
        version?.as_str()?.parse().ok()
    };
    items.iter().filter_map(version).collect()
}

/// Returns the content of a continue token. Returns null for any other text.
pub fn token(text: &str) -> Value {
    let bytes = URL_SAFE_NO_PAD.decode(text).unwrap_or_default();
    serde_json::from_slice(&bytes).unwrap_or_default()
}
