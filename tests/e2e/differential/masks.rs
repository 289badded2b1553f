//! Masks the parts of answers that must differ: UIDs, resourceVersions, times and the name of the
//! group. A resourceVersion is replaced by its meaning: the change to which it belongs, or its
//! relation to the requested version and to the versions of the items.

use super::exchange::{Answer, Request};
use super::side::Side;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use regex::Regex;
use serde_json::{Map, Value, json};
use std::sync::LazyLock;

/// Headers that are not compared. They differ for each answer, or depend on other tests with rule
/// sets that do not work.
const IGNORED: [&str; 5] = [
    "date",
    "content-length",
    "ifo-complete",
    "transfer-encoding",
    "warning",
];
/// Headers of which only the existence is compared.
const RANDOM: [&str; 3] = [
    "audit-id",
    "x-kubernetes-pf-flowschema-uid",
    "x-kubernetes-pf-prioritylevel-uid",
];

/// Smallest duration of a watch that always gets a bookmark, which is sent two seconds before its
/// end.
const LONG_ENOUGH: u64 = 5;

/// Columns of tables that contain times.
const AGE: usize = 7;
const STARTED: usize = 12;

/// An answer in the form in which it is compared.
pub fn answer(request: &Request, side: &Side, namespace: &str, answer: Answer) -> Value {
    let yaml = kind(&answer).starts_with("application/yaml");
    let json = kind(&answer).starts_with("application/json");
    let mask = Mask {
        request,
        side,
        namespace,
    };
    let lines = answer.text.lines().count();
    let is_watch = json && answer.code == 200 && answer.text.lines().all(is_event);
    let body = if answer.text.is_empty() {
        Value::Null
    } else if yaml {
        let body = serde_saphyr::from_str(&answer.text);
        let body = body.unwrap_or_else(|_| json!({"not YAML": answer.text}));
        mask.whole(body)
    } else if is_watch {
        let events = answer
            .text
            .lines()
            .map(|line| serde_json::from_str(line).unwrap_or_else(|_| json!({"not JSON": line})));
        mask.events(events.collect())
    } else if json {
        let body = serde_json::from_str(&answer.text);
        mask.whole(body.unwrap_or_else(|_| json!({"not JSON": answer.text})))
    } else {
        Value::String(mask.text(&answer.text))
    };
    let indent = answer.text.lines().nth(1);
    let indent = indent.map(|line| line.len() - line.trim_start().len());
    json!({
        "code": answer.code,
        "headers": headers(answer.headers),
        "layout": {
            "one line": if is_watch { None } else { Some(lines == 1) },
            "ends its last line": answer.text.is_empty() || answer.text.ends_with('\n'),
            // For YAML only the values are compared, because there are several ways to write them.
            "indent": if json && !is_watch { indent } else { None },
        },
        "body": body,
    })
}

fn kind(answer: &Answer) -> &str {
    let kind = answer
        .headers
        .iter()
        .find(|(name, _)| name == "content-type");
    kind.map_or("", |(_, value)| value)
}

/// Returns true if a line of an answer is an event of a watch.
fn is_event(line: &str) -> bool {
    line.starts_with("{\"type\":\"")
}

fn headers(headers: Vec<(String, String)>) -> Value {
    let mut out = Map::new();
    for (name, value) in headers {
        if IGNORED.contains(&name.as_str()) {
            continue;
        }
        let value = if RANDOM.contains(&name.as_str()) {
            "something".to_owned()
        } else {
            value
        };
        let all = out.entry(name).or_insert_with(|| json!([]));
        all.as_array_mut().expect("made as one").push(json!(value));
    }
    Value::Object(out)
}

/// The masks of one answer.
pub struct Mask<'a> {
    pub request: &'a Request,
    pub side: &'a Side,
    /// The first compared namespace. The names of the others begin with its name.
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
        // kube-apiserver sets the version of a single row's table to the version of the row.
        let list = body.get("items").is_some() || body.get("rows").is_some();
        let of_one = self.request.line.contains("{one}");
        if list && !of_one {
            let stands = self.stands(&body["metadata"], &versions(&body));
            body["metadata"]["resourceVersion"] = json!(stands);
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
            // Watchers that share encoded events can get them twice.
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
        events.retain(|event| self.counts(event));
        // kube-apiserver sends one or two bookmarks before the end.
        events.dedup_by(|next, last| {
            let bookmarks = next["type"] == "BOOKMARK" && last["type"] == "BOOKMARK";
            bookmarks
                && next["object"]["metadata"] == last["object"]["metadata"]
                && next["object"]["rows"] == last["object"]["rows"]
        });
        Value::Array(events)
    }

    /// Returns true if an event is compared. Bookmarks of short watches depend on kube-apiserver's
    /// clock, which has whole seconds. Those of long watches come at any time.
    fn counts(&self, event: &Value) -> bool {
        let seconds = self.request.option(self.side, "timeoutSeconds");
        let seconds = seconds.and_then(|seconds| seconds.parse::<u64>().ok());
        event["type"] != "BOOKMARK"
            || event.to_string().contains("initial-events-end")
            || seconds.is_some_and(|seconds| seconds >= LONG_ENOUGH)
    }

    /// Checks that the version of a bookmark is not below earlier versions.
    fn bookmark(object: &mut Value, newest: u64) {
        let stands = |version: &mut Value| {
            let number = version.as_str().and_then(|it| it.parse::<u64>().ok());
            *version = json!(match number {
                Some(number) if number >= newest => "not older than what came before",
                Some(_) => "older than what came before",
                None => "no number",
            });
        };
        for pointer in [
            "/metadata/resourceVersion",
            "/rows/0/object/metadata/resourceVersion",
        ] {
            if let Some(version) = object.pointer_mut(pointer) {
                stands(version);
            }
        }
    }

    /// Returns true if an item, a row or the object of an event is in a compared namespace, or
    /// cluster-scoped.
    fn is_ours(&self, item: &Value) -> bool {
        ["/metadata/namespace", "/object/metadata/namespace"]
            .into_iter()
            .filter_map(|pointer| item.pointer(pointer).and_then(Value::as_str))
            .all(|namespace| namespace.starts_with(self.namespace))
    }

    /// The relation of a list's version to the requested version and to the versions of its items.
    fn stands(&self, metadata: &Value, items: &[u64]) -> String {
        let Some(version) = metadata["resourceVersion"].as_str() else {
            return "none".to_owned();
        };
        let Ok(number) = version.parse::<u64>() else {
            return format!("no number: {version}");
        };
        let option = |name| self.request.option(self.side, name).unwrap_or_default();
        let token = token(&option("continue"));
        let asked = match token["rv"].as_i64() {
            Some(version) if version > 0 => version.to_string(),
            _ => option("resourceVersion"),
        };
        let limited = option("limit").parse::<i64>().is_ok_and(|limit| limit > 0);
        let matching = option("resourceVersionMatch");
        let exact = matching == "Exact" || !token.is_null() || (matching.is_empty() && limited);
        let to_asked = match asked.parse::<u64>() {
            Err(_) | Ok(0) => "",
            Ok(asked) if asked == number && exact => "as asked, ",
            Ok(asked) if asked > number => "older than asked, ",
            Ok(_) if exact => "not as asked, ",
            Ok(_) => "not older than asked, ",
        };
        let to_items = if items.iter().all(|item| *item <= number) {
            "not older than the items"
        } else {
            "older than an item"
        };
        format!("{to_asked}{to_items}")
    }

    fn walk(&self, key: &str, value: &mut Value) {
        match value {
            Value::Object(fields) => {
                for (key, value) in fields.iter_mut() {
                    self.walk(key, value);
                }
            }
            Value::Array(all) if key == "cells" => {
                for (column, cell) in all.iter_mut().enumerate() {
                    let is_time = cell.as_str().is_some_and(|text| match column {
                        AGE => AGES.is_match(text),
                        STARTED => text.parse::<jiff::Timestamp>().is_ok(),
                        _ => false,
                    });
                    if is_time {
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
            "resourceVersion" => match self.side.change(text) {
                Some(change) => change,
                None if text.bytes().all(|byte| byte.is_ascii_digit()) => "of no change".to_owned(),
                None => text.to_owned(),
            },
            "uid" => self.side.change(text).unwrap_or_else(|| text.to_owned()),
            "creationTimestamp" if text.parse::<jiff::Timestamp>().is_ok() => "TIME".to_owned(),
            "continue" if !text.is_empty() => {
                let mut token = token(text);
                if let Some(version) = token.get_mut("rv")
                    && version.as_i64() > Some(0)
                {
                    *version = json!("of the list");
                }
                if let Some(start) = token["start"].as_str() {
                    // kube-apiserver leaves it out if it answers from its watch cache, but not if
                    // it answers from etcd.
                    token["start"] = json!(start.trim_start_matches('/'));
                }
                token.to_string()
            }
            _ => self.text(text),
        }
    }

    /// A message or another text.
    fn text(&self, text: &str) -> String {
        let text = text.replace(self.side.group, "GROUP");
        let mut text = NUMBERS.replace_all(&text, "${1}N").into_owned();
        // Messages quote the requested value.
        for version in ["before", "now"] {
            let quoted = format!("\"{}\"", self.side.value(version));
            text = text.replace(&quoted, &format!("\"{version}\""));
        }
        text
    }
}

/// Ages in the format of kubectl.
static AGES: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"^(\d+[smhdy]){1,2}$").expect("a valid expression"));

/// The current or oldest version in messages.
static NUMBERS: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"(current: |\()\d+").expect("a valid expression"));

/// The versions of all items, rows or of the object.
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

/// The content of a continue token. Null for other texts.
pub fn token(text: &str) -> Value {
    let bytes = URL_SAFE_NO_PAD.decode(text).unwrap_or_default();
    serde_json::from_slice(&bytes).unwrap_or_default()
}
