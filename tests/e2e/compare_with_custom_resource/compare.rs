//! Compares the answers of two resources to the same request: the live resource, which
//! `ifo-apiserver` serves, and a custom resource with the same objects. [`INTENDED_DIFFERENCES`]
//! lists the intended differences. Any other difference is a failure. [`super::masks`] has already
//! replaced the values that always differ, such as UIDs.

use super::exchange::Pair;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::LazyLock;

/// Largest number of differences that the report shows for one request. If a request has more, the
/// report adds only their number (`and N more`).
const SHOWN: usize = 8;
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
pub struct Difference {
    /// The path of the field, such as `body.items[0].status.phase`.
    at: String,
    live: String,
    custom: String,
}

/// The results of all comparisons so far.
pub struct Comparison {
    requests: usize,
    report: String,
    failed: usize,
    /// The intended differences that have occurred. Each element consists of the name of an entry
    /// of [`INTENDED_DIFFERENCES`], and of the pattern in this entry that matched the request.
    used: BTreeSet<(&'static str, &'static str)>,
}

impl Comparison {
    pub fn new() -> Self {
        Self {
            requests: 0,
            report: String::new(),
            failed: 0,
            used: BTreeSet::new(),
        }
    }

    /// Returns true if the answers to the request named `request` have only intended differences.
    /// Records which intended differences have occurred.
    pub fn compare_and_record(&mut self, request: &str, pair: &Pair) -> bool {
        self.unintended(request, pair).is_empty()
    }

    fn unintended(&mut self, request: &str, pair: &Pair) -> Vec<Difference> {
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
        found
    }

    /// Counts a request, and reports the unintended differences of its answers.
    pub fn add(&mut self, request: &str, pair: &Pair) {
        self.requests += 1;
        let found = self.unintended(request, pair);
        if found.is_empty() {
            return;
        }
        self.failed += 1;
        let _ = writeln!(self.report, "\n{request}");
        for difference in found.iter().take(SHOWN) {
            let Difference { at, live, custom } = difference;
            let _ = writeln!(
                self.report,
                "  {at}\n    live:   {live}\n    custom: {custom}"
            );
        }
        if found.len() > SHOWN {
            let _ = writeln!(self.report, "  and {} more", found.len() - SHOWN);
        }
    }

    /// Returns true if no unintended difference has been reported.
    pub fn all_agree(&self) -> bool {
        self.failed == 0
    }

    /// Fails if there is an unintended difference. Also fails if a request pattern in
    /// [`INTENDED_DIFFERENCES`] is not needed any more: the intended difference has not occurred in
    /// any request that matches the pattern.
    pub fn assert_no_differences(mut self) {
        for entry in INTENDED_DIFFERENCES.iter() {
            for request in &entry.requests {
                if !self.used.contains(&(&*entry.name, &**request)) {
                    self.failed += 1;
                    let _ = writeln!(
                        self.report,
                        "\n{request}\n  the intended difference `{}` does not occur any more. It \
                         was intended because: {}",
                        entry.name, entry.reason
                    );
                }
            }
        }
        assert!(
            self.failed == 0,
            "{} of {} requests have an unintended difference, or lack an intended one:\n{}",
            self.failed,
            self.requests,
            self.report
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
    match (live, custom) {
        (Value::Object(ours), Value::Object(theirs)) => {
            let keys: BTreeSet<&String> = ours.keys().chain(theirs.keys()).collect();
            for key in keys {
                let dot = if at.is_empty() { "" } else { "." };
                let at = format!("{at}{dot}{key}");
                match (ours.get(key), theirs.get(key)) {
                    (Some(live), Some(custom)) => differences(&at, live, custom, found),
                    (live, custom) => found.push(Difference {
                        at,
                        live: shown(live),
                        custom: shown(custom),
                    }),
                }
            }
        }
        (Value::Array(ours), Value::Array(theirs)) if ours.len() == theirs.len() => {
            for (number, (live, custom)) in ours.iter().zip(theirs).enumerate() {
                differences(&format!("{at}[{number}]"), live, custom, found);
            }
        }
        _ if live == custom => {}
        _ => found.push(Difference {
            at: at.to_owned(),
            live: shown(Some(live)),
            custom: shown(Some(custom)),
        }),
    }
}

fn shown(value: Option<&Value>) -> String {
    let Some(value) = value else {
        return "(nothing)".to_owned();
    };
    let text = match value {
        Value::Array(all) => format!("length {}: {value}", all.len()),
        other => other.to_string(),
    };
    match text.char_indices().nth(WIDTH) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

fn pair(live: Value, custom: Value) -> Pair {
    Pair { live, custom }
}

#[test]
#[should_panic(expected = "code\n    live:   404\n    custom: 200")]
fn an_unintended_difference_fails() {
    let mut comparison = Comparison::new();
    let (live, custom) = (json!({"code": 404}), json!({"code": 200}));
    comparison.add("GET {list}", &pair(live, custom));
    comparison.assert_no_differences();
}

#[test]
#[should_panic(expected = "the intended difference `managedFields` does not occur any more")]
fn an_intended_difference_that_does_not_occur_fails() {
    let mut comparison = Comparison::new();
    let same = json!({"code": 200, "body": {"metadata": {"generation": 1}}});
    comparison.add("GET {one}", &pair(same.clone(), same));
    comparison.assert_no_differences();
}
