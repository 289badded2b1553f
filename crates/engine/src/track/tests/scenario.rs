//! Runs the scenarios in the folder `scenarios`: events at times, and the changes that clients then
//! receive. To write the changes into the files, set the environment variable `UPDATE_SNAPSHOTS`.
//!
//! A scenario has its name, the lines of its rule sets, and indented lines of the form
//! `EVENT | CHANGES`. In a rule set, a line that begins with `{` is a rule. The line `ruleset NAME`
//! begins another rule set. The line `settings {…}` sets `debounce`, `retain`, `maxRetained` or
//! `records`. The line `bounds [2, 3]` sets the maximum number of operations of a rule set on one
//! object and on all objects. The events are:
//!
//! - `5s`: time passes
//! - `{a: b}`: the VM changes to this object
//! - `Blocked`, or another state: the VM changes to `{on: true, how: Blocked}`
//! - `off`: the VM changes to `{on: false}`
//! - `@5s OBJECT`: like `OBJECT`, and according to `managedFields` the VM changed 5 s after the beginning
//! - `deleted`: the VM is deleted. `gone`: the VM is deleted, and no watch reports it
//! - `a: EVENT`: one of these events for the object `a`
//! - `lost`, `synced`: the watch is interrupted or complete again
//! - `listed`: a list of all objects. `listed 5s OBJECT`: a list with the VM, which last changed 5 s ago
//! - `restart`: a new leader with custom resources. `takeover`: a new leader with the index. Both can
//!   name the time without a leader and new settings. With `only`, the new leader has no rules yet
//! - `rules RULE`: the rule set gets this rule as its only one, and the objects are listed
//! - `sets a b`: only these rule sets exist. `sets`: all rule sets of the scenario exist
//! - `unserved`: the cluster no longer serves the VMs
//! - `read`: the leader has read all rule sets. `read undecided a`, `read unserved a`: except `a`
//! - `namespace deleted`, `namespace created`, `namespace replaced`
//! - `runs 20 60s`: 20 runs of 60 s, with `{on: true}`. `baselines`: the new leader reads their durations
//! - `until Overdue`: time passes until the condition is true, which is then shown
//! - `show Overdue spec.item`: shows a condition or fields of each operation, and `records spec.item`
//!   fields of each record. A time is shown as the seconds since the beginning
//! - `refused`: shows the rule sets whose operations are not all shown
//!
//! Before the changes comes the number of expressions that failed. A change has the sign, the operation with its object and element, the state, the reason if it is
//! another text, and the progress. Of an operation in flight, the message follows in parentheses.

use super::*;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::path::Path;

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn clients_receive_the_changes_of_all_scenarios() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/track/tests/scenarios");
    for file in std::fs::read_dir(folder).expect("the folder can be read") {
        let path = file.expect("the folder can be read").path();
        let text = std::fs::read_to_string(&path).expect("the file can be read");
        let actual = played(&text);
        if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
            std::fs::write(&path, &actual).expect("the file can be written");
            continue;
        }
        let lines = actual.lines().zip(text.lines());
        let wrong: Vec<_> = lines.filter(|(actual, line)| actual != line).collect();
        assert!(wrong.is_empty(), "{}: {wrong:#?}", path.display());
    }
}

/// Returns the text of a file with the actual changes.
fn played(text: &str) -> String {
    let shared = text.lines().filter_map(|line| line.split_once(" = "));
    let shared: BTreeMap<&str, &str> = shared.collect();
    let mut played = String::new();
    let mut rules: Option<Vec<&str>> = None;
    let mut run = None;
    for line in text.lines() {
        let mut changes = String::new();
        if line.starts_with("# ") {
            (rules, run) = (Some(Vec::new()), None);
        } else if let (Some(event), Some(rules)) = (line.strip_prefix("  "), &rules) {
            let (event, _) = event.split_once('|').expect("a line has an event");
            let run = run.get_or_insert_with(|| Run::new(rules, event.starts_with("listed")));
            changes = format!("  {} | {}", event.trim(), run.changes_of(event.trim()));
        } else if let (Some(rules), None) = (&mut rules, &run) {
            rules.push(*shared.get(line).unwrap_or(&line));
        }
        let line = if changes.is_empty() {
            line
        } else {
            changes.trim_end()
        };
        writeln!(played, "{line}").expect("a text can be extended");
    }
    played
}

struct Run {
    fixture: TrackerFixture,
    begin: Timestamp,
    settings: TrackerSettings,
    /// Name and YAML of the rule sets of the scenario.
    rule_sets: Vec<(String, String)>,
    objects: BTreeMap<String, Value>,
    /// Number of expressions that have failed since the last event.
    failures: usize,
    /// The durations of runs that the previous leader has stored.
    baselines: String,
}

impl Run {
    fn new(lines: &[&str], begins_with_list: bool) -> Self {
        let (mut settings, mut bounds) = (settings(None), OperationBounds::default());
        let mut rule_sets = Vec::new();
        let mut own = ("rules", Vec::new());
        for line in lines {
            if let Some(values) = line.strip_prefix("settings ") {
                set(&mut settings, values);
            } else if let Some(values) = line.strip_prefix("bounds ") {
                let [on_object, of_rule_set] =
                    serde_saphyr::from_str(values).expect("the bounds of the test are valid");
                bounds = OperationBounds {
                    on_object,
                    of_rule_set,
                    ..bounds
                };
            } else if let Some(name) = line.strip_prefix("ruleset ") {
                rule_sets.push(std::mem::replace(&mut own, (name, Vec::new())));
            } else {
                own.1.push(*line);
            }
        }
        rule_sets.push(own);
        let rule_sets = rule_sets.into_iter();
        let rule_sets = rule_sets.filter(|(_, lines)| !lines.is_empty());
        let mut fixture = fixture_without_rules(settings.clone());
        fixture.tracker.shared.limits.bounds = bounds;
        fixture.list_namespaces("ns", Some(Timestamp::UNIX_EPOCH));
        let mut run = Self {
            begin: fixture.now.wall,
            fixture,
            settings,
            rule_sets: rule_sets
                .map(|(name, lines)| (name.to_owned(), rule_set(&lines)))
                .collect(),
            objects: BTreeMap::new(),
            failures: 0,
            baselines: String::new(),
        };
        run.set_rule_sets("");
        if !begins_with_list {
            run.list();
        }
        run
    }

    /// Applies an event. Returns what it shows, and the changes that clients receive.
    fn changes_of(&mut self, event: &str) -> String {
        let is_name = |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric());
        let of_object = event.split_once(": ").filter(|(name, _)| is_name(name));
        let (name, event) = of_object.unwrap_or(("vm", event));
        let shown = self.apply(name, event);
        let changes = self.fixture.described_changes();
        let failures = match std::mem::take(&mut self.failures) {
            0 => String::new(),
            count => format!("failures: {count}"),
        };
        let parts = [failures, shown.unwrap_or_default(), changes];
        let parts: Vec<String> = parts.into_iter().filter(|it| !it.is_empty()).collect();
        parts.join(", ")
    }

    fn apply(&mut self, name: &str, event: &str) -> Option<String> {
        let (word, rest) = event.split_once(' ').unwrap_or((event, ""));
        match word {
            "deleted" => {
                self.objects.remove(name);
                self.fixture.subject_deleted(subject(name));
            }
            "gone" => drop(self.objects.remove(name)),
            "lost" => self.fixture.send_event(FeedEvent::Lost),
            "synced" => self.fixture.complete_list(),
            "listed" if rest.is_empty() => self.list(),
            "listed" => {
                let (age, object) = rest.split_once(' ').expect("the age and the object");
                let changed = self.fixture.now.wall - duration(age);
                let object = changed_at(changed, object_of(object));
                self.objects.insert(name.to_owned(), object);
                self.list();
            }
            "rules" => {
                self.rule_sets = vec![("rules".to_owned(), rule_set(&[rest]))];
                self.set_rule_sets("");
                self.list();
            }
            "sets" => self.set_rule_sets(rest),
            "unserved" => self.fixture.remove_rules(true),
            "read" => match rest.split_once(' ') {
                Some(("undecided", names)) => self.fixture.complete_rule_books(&[names], &[]),
                Some((_, names)) => self.fixture.complete_rule_books(&[], &[names]),
                None => self.fixture.complete_rule_books(&[], &[]),
            },
            "namespace" => self.change_namespace(rest),
            "restart" | "takeover" => self.change_leader(word, rest),
            "runs" => self.complete_runs(rest),
            "baselines" => {
                let known = &self.fixture.tracker.shared.baselines;
                known.load(&self.baselines).expect("they were encoded");
                self.fixture.send(Message::BaselinesLoaded);
            }
            "until" => return Some(self.wait_until(rest)),
            "show" => return Some(self.show(rest)),
            "refused" => return Some(self.refused()),
            "records" => {
                let records: Vec<Value> = self.fixture.records.values().map(json_of).collect();
                return Some(self.values(&records, rest));
            }
            _ => match word.strip_prefix('@') {
                Some(at) => {
                    let at = self.begin + duration(at);
                    self.change(name, changed_at(at, object_of(rest)));
                }
                None if word.ends_with('s') => self.fixture.advance(duration(word)),
                None => self.change(name, object_of(event)),
            },
        }
        None
    }

    fn change(&mut self, name: &str, object: Value) {
        self.objects.insert(name.to_owned(), object.clone());
        self.failures += self.fixture.apply_object_named(name, object);
    }

    fn set_rule_sets(&mut self, names: &str) {
        let wanted: Vec<&str> = names.split_whitespace().collect();
        let all = self.rule_sets.iter();
        let sets = all.filter(|(name, _)| wanted.is_empty() || wanted.contains(&&**name));
        let sets: Vec<(&str, &str)> = sets.map(|(name, yaml)| (&**name, &**yaml)).collect();
        self.fixture.set_rule_sets(&sets);
    }

    fn list(&mut self) {
        self.fixture.send_event(FeedEvent::Reset);
        for (name, object) in &self.objects {
            self.fixture.apply_object_named(name, object.clone());
        }
        self.fixture.complete_list();
    }

    fn change_namespace(&mut self, event: &str) {
        let now = self.fixture.now.wall;
        match event {
            "deleted" => self.fixture.list_namespaces("ns", None),
            _ => self.fixture.list_namespaces("ns", Some(now)),
        }
    }

    fn change_leader(&mut self, word: &str, rest: &str) {
        self.baselines = self.fixture.tracker.shared.baselines.encode();
        let (times, settings) = rest.split_at(rest.find('{').unwrap_or(rest.len()));
        if !settings.is_empty() {
            set(&mut self.settings, settings);
        }
        let settings = self.settings.clone();
        let bounds = self.fixture.tracker.shared.limits.bounds;
        let has_rules = !times.contains("only");
        let mut away = times.split_whitespace().filter(|it| *it != "only");
        let away = away.next().map_or(SECOND, duration);
        self.fixture = match word {
            "restart" => self
                .fixture
                .restarted_with(settings, away, self.fixture.shown()),
            _ => self.fixture.taken_over_with(settings, away, |_, _| {}),
        };
        self.fixture.tracker.shared.limits.bounds = bounds;
        if has_rules {
            self.set_rule_sets("");
        }
    }

    fn complete_runs(&mut self, rest: &str) {
        let (count, time) = rest.split_once(' ').expect("the number and the duration");
        for _ in 0..count.parse().expect("a number of runs") {
            self.change("vm", json!({"on": true}));
            self.fixture.advance(duration(time));
            self.change("vm", json!({"on": false}));
            self.fixture.advance(DEBOUNCE);
        }
        self.fixture.changes.clear();
    }

    fn wait_until(&mut self, condition: &str) -> String {
        let is_true = |fixture: &TrackerFixture| fixture.only_operation().status.is_true(condition);
        let seconds = (1..=10_000).find(|_| {
            self.fixture.advance(SECOND);
            is_true(&self.fixture)
        });
        let seconds = seconds.map_or("never".to_owned(), |it| format!("after {it}s"));
        format!("{seconds} {}", self.show(condition))
    }

    /// Returns the bound that refuses operations of each rule set, and whether there is room now.
    fn refused(&self) -> String {
        let rule_sets = self.fixture.book.rule_sets.iter();
        let refused = rule_sets.filter_map(|rule_set| {
            let reached = rule_set.activity.reached_bound()?;
            let room = if rule_set.activity.has_room() {
                ", room"
            } else {
                ""
            };
            Some(format!("{}: {reached}{room}", rule_set.name))
        });
        refused.collect::<Vec<_>>().join(", ")
    }

    /// Returns the values of conditions and fields of each operation.
    fn show(&self, paths: &str) -> String {
        let mut operations: Vec<Value> = self.fixture.shown().iter().map(|it| json!(it)).collect();
        operations.sort_by_key(|it| it["metadata"]["creationTimestamp"].to_string());
        self.values(&operations, paths)
    }

    fn values(&self, objects: &[Value], paths: &str) -> String {
        let value_at = |object: &Value, path: &str| {
            if path.starts_with(|c: char| c.is_ascii_uppercase()) {
                let conditions = object["status"]["conditions"].as_array().into_iter();
                let Some(own) = conditions.flatten().find(|it| it["type"] == path) else {
                    return "-".to_owned();
                };
                let parts = ["status", "reason", "message"].map(|part| self.text(&own[part]));
                return parts.join(" ").trim().to_owned();
            }
            let value = object.pointer(&format!("/{}", path.replace('.', "/")));
            value.map_or("-".to_owned(), |value| self.text(value))
        };
        let shown = objects.iter().map(|object| {
            let values = paths.split(' ').map(|path| value_at(object, path));
            values.collect::<Vec<_>>().join(" ")
        });
        shown.collect::<Vec<_>>().join(", ")
    }

    /// Formats a value. A time becomes the seconds since the beginning.
    fn text(&self, value: &Value) -> String {
        let text = value.as_str();
        match text.and_then(|text| text.parse::<Timestamp>().ok()) {
            Some(time) => format!("{}s", (time - self.begin).get_seconds()),
            None => text.map_or_else(|| value.to_string(), str::to_owned),
        }
    }
}

/// Sets fields of the settings.
fn set(settings: &mut TrackerSettings, yaml: &str) {
    let values: BTreeMap<String, String> =
        serde_saphyr::from_str(yaml).expect("the settings of the test are valid");
    for (field, value) in values {
        let retain = settings.retain.unwrap_or(RETENTION);
        match &*field {
            "debounce" => settings.debounce = duration(&value),
            "records" => settings.max_records = value.parse().expect("a number of records"),
            "retain" if value == "none" => settings.retain = None,
            "retain" => {
                settings.retain = Some(Retention {
                    age: duration(&value),
                    ..retain
                });
            }
            "maxRetained" => {
                let max_count = value.parse().expect("a number of operations");
                settings.retain = Some(Retention {
                    max_count,
                    ..retain
                });
            }
            _ => settings.cluster_namespace = value.into(),
        }
    }
}

fn duration(text: &str) -> Duration {
    ifo_api::duration::parse(text).expect("the duration of the test is valid")
}

/// Returns the YAML of a rule set.
fn rule_set(lines: &[&str]) -> String {
    let (rules, other): (Vec<&str>, Vec<&str>) = lines.iter().partition(|it| it.starts_with('{'));
    format!("{}\nrules:\n- {}", other.join("\n"), rules.join("\n- "))
}

fn object_of(event: &str) -> Value {
    match event {
        "off" => json!({"on": false}),
        yaml if yaml.starts_with('{') => {
            serde_saphyr::from_str(yaml).expect("the object of the test is valid")
        }
        state => json!({"on": true, "how": state}),
    }
}
