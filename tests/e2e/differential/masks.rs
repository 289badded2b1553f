//! Answers without what must differ: uids, resourceVersions, times and the group's name.
//! Of a resourceVersion stays what it means: which change it is of, or how it stands to
//! what was asked for and to the versions of the items.

use super::exchange::{Answer, Request};
use super::side::Side;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use regex::Regex;
use serde_json::{Map, Value, json};
use std::sync::LazyLock;

/// Headers that say nothing about the answer, or differ for each one, and those that say
/// whether rule sets work: other tests have rule sets that do not.
const IGNORED: [&str; 5] = [
    "date",
    "content-length",
    "ifo-complete",
    "transfer-encoding",
    "warning",
];
/// Headers whose values differ for each answer; that they are there counts.
const RANDOM: [&str; 3] = [
    "audit-id",
    "x-kubernetes-pf-flowschema-uid",
    "x-kubernetes-pf-prioritylevel-uid",
];

/// Seconds that a watch must last to get a bookmark, two seconds before its end, for sure.
const LONG_ENOUGH: u64 = 5;

/// Columns of tables whose cells are times.
const AGE: usize = 7;
const STARTED: usize = 12;

/// An answer as it is compared.
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
            // Of YAML only the values count: there are many ways to write them.
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

/// Whether a line of an answer is an event of a watch.
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

/// What masks one answer.
pub struct Mask<'a> {
    pub request: &'a Request,
    pub side: &'a Side,
    /// The first of the namespaces that count; the others' names begin with it.
    pub namespace: &'a str,
}

impl Mask<'_> {
    /// The body of an answer that is no watch.
    fn whole(&self, mut body: Value) -> Value {
        for list in ["items", "rows"] {
            if let Some(all) = body.get_mut(list).and_then(Value::as_array_mut) {
                all.retain(|item| self.is_ours(item));
            }
        }
        // What kube-apiserver fills for a single row is the row's own version.
        let list = body.get("items").is_some() || body.get("rows").is_some();
        let of_one = self.request.line.contains("{one}");
        if list && !of_one {
            let stands = self.stands(&body["metadata"], &versions(&body));
            body["metadata"]["resourceVersion"] = json!(stands);
        }
        self.walk("", &mut body);
        body
    }

    /// The events of a watch.
    pub fn events(&self, mut events: Vec<Value>) -> Value {
        events.retain(|event| self.is_ours(&event["object"]));
        let mut newest = 0;
        let columns = events
            .first()
            .map(|it| it["object"]["columnDefinitions"].clone());
        let columns = columns.unwrap_or_default();
        for (number, event) in events.iter_mut().enumerate() {
            // Watchers that share what is encoded may get them again.
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
        // Upstream sends one or two before the end.
        events.dedup_by(|next, last| {
            let bookmarks = next["type"] == "BOOKMARK" && last["type"] == "BOOKMARK";
            bookmarks
                && next["object"]["metadata"] == last["object"]["metadata"]
                && next["object"]["rows"] == last["object"]["rows"]
        });
        Value::Array(events)
    }

    /// Whether an event is compared: a bookmark of a watch that is too short for it comes
    /// or does not come, as upstream's clock of whole seconds has it, and those of a long
    /// one come at any time.
    fn counts(&self, event: &Value) -> bool {
        let seconds = self.request.option(self.side, "timeoutSeconds");
        let seconds = seconds.and_then(|seconds| seconds.parse::<u64>().ok());
        event["type"] != "BOOKMARK"
            || event.to_string().contains("initial-events-end")
            || seconds.is_some_and(|seconds| seconds >= LONG_ENOUGH)
    }

    /// A bookmark's version is at least that of all before it.
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

    /// Whether an item, a row or the object of an event is in one of the namespaces that
    /// count, or in none.
    fn is_ours(&self, item: &Value) -> bool {
        ["/metadata/namespace", "/object/metadata/namespace"]
            .into_iter()
            .filter_map(|pointer| item.pointer(pointer).and_then(Value::as_str))
            .all(|namespace| namespace.starts_with(self.namespace))
    }

    /// How the version of a list stands to that asked for and to those of its items.
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
                    // Upstream's watch cache leaves it out, upstream's etcd does not.
                    token["start"] = json!(start.trim_start_matches('/'));
                }
                token.to_string()
            }
            _ => self.text(text),
        }
    }

    /// A message or anything else.
    fn text(&self, text: &str) -> String {
        let text = text.replace(self.side.group, "GROUP");
        let mut text = NUMBERS.replace_all(&text, "${1}N").into_owned();
        // In messages, what was asked for stands between quotes.
        for version in ["before", "now"] {
            let quoted = format!("\"{}\"", self.side.value(version));
            text = text.replace(&quoted, &format!("\"{version}\""));
        }
        text
    }
}

/// Ages as kubectl prints them.
static AGES: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"^(\d+[smhdy]){1,2}$").expect("a valid expression"));

/// The present or the oldest version in messages.
static NUMBERS: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"(current: |\()\d+").expect("a valid expression"));

/// The versions of all items, rows or of the object itself.
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

/// What is in a continue token; null if it is none.
pub fn token(text: &str) -> Value {
    let bytes = URL_SAFE_NO_PAD.decode(text).unwrap_or_default();
    serde_json::from_slice(&bytes).unwrap_or_default()
}
