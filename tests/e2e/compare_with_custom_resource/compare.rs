//! Compares the answers of two resources to the same request: the live resource, which
//! `ifo-apiserver` serves, and a custom resource with the same objects. [`INTENDED_DIFFERENCES`]
//! lists the intended differences. Any other difference is a failure. [`super::masks`] has already
//! replaced the values that always differ, such as UIDs.

use super::exchange::Pair;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

/// Largest number of characters of a value in the report. The report shows `…` instead of the rest.
const WIDTH: usize = 300;

/// An intended difference between the answers to some requests.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct IntendedDifference {
    name: String,
    reason: String,
    requests: Vec<String>,
    at: Vec<String>,
    #[serde(default)]
    live: String,
    #[serde(default)]
    custom: String,
}

/// All intended differences. The file describes its fields.
static INTENDED_DIFFERENCES: LazyLock<Vec<IntendedDifference>> = LazyLock::new(|| {
    let text = include_str!("intended_differences.yaml");
    serde_saphyr::from_str(text).expect("the file is a list of intended differences")
});

/// A difference between two answers.
#[derive(Debug)]
#[allow(dead_code, reason = "the report shows the fields")]
pub struct Difference {
    /// The path of the field, such as `body.items[0].status.phase`.
    at: String,
    live: String,
    custom: String,
}

/// The results of all comparisons so far.
#[derive(Default)]
pub struct Comparison {
    /// For each compared request: its unintended differences.
    results: BTreeMap<String, Vec<Difference>>,
    /// The intended differences that have occurred. Each element consists of the name of an entry
    /// of [`INTENDED_DIFFERENCES`], and of the pattern in this entry that matched the request.
    used: BTreeSet<(&'static str, &'static str)>,
}

impl Comparison {
    /// Compares the answers to the request named `request`. The result replaces the result of an
    /// earlier attempt of this request. Returns true if the answers have only intended differences.
    pub fn record(&mut self, request: &str, pair: &Pair) -> bool {
        let mut found = Vec::new();
        differences("", &pair.live, &pair.custom, &mut found);
        found.retain(|difference| {
            let mut is_intended = false;
            for entry in INTENDED_DIFFERENCES.iter() {
                if let Some(pattern) = matching_pattern(entry, request, difference) {
                    self.used.insert((&entry.name, pattern));
                    is_intended = true;
                }
            }
            !is_intended
        });
        let agrees = found.is_empty();
        self.results.insert(request.to_owned(), found);
        agrees
    }

    /// Returns true if the answers to all requests have only intended differences.
    pub fn all_agree(&self) -> bool {
        self.results.values().all(Vec::is_empty)
    }

    /// Fails if there is an unintended difference. Also fails if a request pattern in
    /// [`INTENDED_DIFFERENCES`] is not needed any more: the intended difference has not occurred in
    /// any request that matches the pattern.
    pub fn assert_no_differences(self) {
        let failed = self.results.iter().filter(|(_, found)| !found.is_empty());
        let mut report: Vec<String> = failed
            .map(|(request, found)| format!("{request}\n{found:#?}"))
            .collect();
        for entry in INTENDED_DIFFERENCES.iter() {
            let is_unused = |it: &&String| !self.used.contains(&(&*entry.name, &***it));
            report.extend(entry.requests.iter().filter(is_unused).map(|request| {
                format!(
                    "{request}\n  the intended difference `{}` does not occur any more. It was \
                     intended because: {}",
                    entry.name, entry.reason
                )
            }));
        }
        assert!(
            report.is_empty(),
            "of {} requests, these have an unintended difference, or lack an intended one:\n\n{}",
            self.results.len(),
            report.join("\n\n")
        );
    }
}

/// Returns None if `entry` does not allow the difference in this request. Otherwise returns the
/// request pattern of `entry` that matches the request.
fn matching_pattern(
    entry: &'static IntendedDifference,
    request: &str,
    difference: &Difference,
) -> Option<&'static str> {
    let named = entry
        .requests
        .iter()
        .find(|it| matches_pattern(it, request))?;
    let covered = entry
        .at
        .iter()
        .any(|at| matches_pattern(at, &difference.at))
        && difference.live.contains(&entry.live)
        && difference.custom.contains(&entry.custom);
    covered.then_some(named)
}

/// Returns true if `text` matches `pattern`. The character `…` in the pattern matches any text.
fn matches_pattern(pattern: &str, text: &str) -> bool {
    let (first, rest) = pattern.split_once('…').unwrap_or((pattern, ""));
    if first.len() == pattern.len() {
        return first == text;
    }
    let Some(text) = text.strip_prefix(first) else {
        return false;
    };
    let mut ends = (0..=text.len()).filter(|at| text.is_char_boundary(*at));
    ends.any(|at| matches_pattern(rest, &text[at..]))
}

/// Adds all differences between two values to `found`. `at` is the path of the values in the
/// answer, such as `body.items[0]`.
pub fn differences(at: &str, live: &Value, custom: &Value, found: &mut Vec<Difference>) {
    let difference = |at: String, live: Option<&Value>, custom: Option<&Value>| {
        let (live, custom) = (shown(live), shown(custom));
        Difference { at, live, custom }
    };
    match (live, custom) {
        (Value::Object(ours), Value::Object(theirs)) => {
            let keys: BTreeSet<&String> = ours.keys().chain(theirs.keys()).collect();
            for key in keys {
                let dot = if at.is_empty() { "" } else { "." };
                let at = format!("{at}{dot}{key}");
                match (ours.get(key), theirs.get(key)) {
                    (Some(live), Some(custom)) => differences(&at, live, custom, found),
                    (live, custom) => found.push(difference(at, live, custom)),
                }
            }
        }
        (Value::Array(ours), Value::Array(theirs)) if ours.len() == theirs.len() => {
            for (number, (live, custom)) in ours.iter().zip(theirs).enumerate() {
                differences(&format!("{at}[{number}]"), live, custom, found);
            }
        }
        _ if live == custom => {}
        _ => found.push(difference(at.to_owned(), Some(live), Some(custom))),
    }
}

/// Returns the form of a value in which `intended_differences.yaml` describes it.
fn shown(value: Option<&Value>) -> String {
    let text = match value {
        None => "(nothing)".to_owned(),
        Some(Value::Array(all)) => format!("length {}: {}", all.len(), json!(all)),
        Some(other) => other.to_string(),
    };
    match text.char_indices().nth(WIDTH) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

#[test]
#[should_panic(expected = "`managedFields` does not occur any more")]
fn unintended_differences_and_unused_entries_fail() {
    let mut comparison = Comparison::default();
    let (live, custom) = (json!({"code": 404}), json!({"code": 200}));
    assert!(!comparison.record("GET {list}", &Pair { live, custom }));
    let same = json!({"code": 200, "body": {"metadata": {"generation": 1}}});
    let (live, custom) = (same.clone(), same);
    assert!(comparison.record("GET {list}", &Pair { live, custom }));
    comparison.assert_no_differences();
}
