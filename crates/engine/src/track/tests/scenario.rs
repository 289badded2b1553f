//! Runs the scenarios in `scenarios.txt`: events at times, and the changes that clients then receive.
//!
//! A scenario has its name, the lines of its rule set, and indented lines of the form
//! `EVENT | CHANGES`. In the rule set, a line that begins with `{` is a rule. The events are:
//!
//! - `5s`: time passes
//! - `{a: b}`: the VM changes to this object
//! - `Blocked`, or another state: the VM changes to `{on: true, how: Blocked}`
//! - `off`: the VM changes to `{on: false}`
//! - `deleted`, `lost`, `synced`: the VM is deleted, the watch is interrupted or complete again
//! - `listed`: a list with the VM
//! - `listed 5s OBJECT`: a list with the VM, which last changed 5 s ago to `OBJECT`
//! - `restart`: a new leader with custom resources. `takeover`: a new leader with the index
//! - `rules RULE`: the rule set gets this rule as its only one, and the VM is listed
//!
//! A change has the sign, the operation with its element, the state, the reason if it is another text,
//! and the progress. Of an operation in flight, the message follows in parentheses.

use super::rule_fields::fixture_with_rule_set;
use super::*;
use serde_json::{Value, json};

#[test]
fn clients_receive_the_changes_of_all_scenarios() {
    let text = include_str!("scenarios.txt");
    let shared = text.lines().filter_map(|line| line.split_once(" = "));
    let shared: BTreeMap<&str, &str> = shared.collect();
    let scenarios = text.split("\n# ").skip(1);
    let wrong: Vec<String> = scenarios.filter_map(|it| difference(it, &shared)).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Runs a scenario. Returns its name and the first line with other changes.
fn difference(scenario: &str, shared: &BTreeMap<&str, &str>) -> Option<String> {
    let (name, rest) = scenario.split_once('\n').expect("a scenario has lines");
    let rest = rest.lines().take_while(|line| !line.is_empty());
    let (events, rules): (Vec<&str>, _) = rest.partition(|line| line.starts_with(' '));
    let rules = rules.iter().map(|line| *shared.get(line).unwrap_or(line));
    let mut run = Run::new(rule_set(rules), events[0].trim().starts_with("listed"));
    events.into_iter().find_map(|line| {
        let (event, expected) = line.split_once('|').expect("a line has an event");
        run.apply(event.trim());
        let changes = run.fixture.described_changes();
        (changes != expected.trim()).then(|| format!("{name}:{event}| {changes}"))
    })
}

/// Returns the YAML of a rule set.
fn rule_set<'a>(lines: impl Iterator<Item = &'a str>) -> String {
    let (rules, other): (Vec<&str>, Vec<&str>) = lines.partition(|line| line.starts_with('{'));
    format!("{}\nrules:\n- {}", other.join("\n"), rules.join("\n- "))
}

struct Run {
    fixture: TrackerFixture,
    rules: String,
    object: Value,
}

impl Run {
    fn new(rules: String, begins_with_list: bool) -> Self {
        let fixture = if begins_with_list {
            let mut fixture = fixture_without_rules(settings(None));
            fixture.set_rule_set(&rules);
            fixture
        } else {
            fixture_with_rule_set(&rules)
        };
        let object = json!({});
        Self {
            fixture,
            rules,
            object,
        }
    }

    fn apply(&mut self, event: &str) {
        let second = Duration::from_secs(1);
        let (word, rest) = event.split_once(' ').unwrap_or((event, ""));
        let seconds = |text: &str| Some(Duration::from_secs(text.strip_suffix('s')?.parse().ok()?));
        match word {
            "deleted" => self.fixture.subject_deleted(subject("vm")),
            "lost" => self.fixture.send_event(FeedEvent::Lost),
            "synced" => self.fixture.complete_list(),
            "listed" if rest.is_empty() => self.list(),
            "listed" => {
                let (age, object) = rest.split_once(' ').expect("the age and the object");
                let age = seconds(age).expect("a number of seconds");
                self.object = object_of(object);
                self.fixture
                    .list_object_unchanged_for(age, self.object.clone());
            }
            "rules" => {
                self.rules = rule_set([rest].into_iter());
                self.fixture.set_rule_set(&self.rules);
                self.list();
            }
            "restart" | "takeover" => {
                self.fixture = match word {
                    "restart" => self.fixture.restarted(second),
                    _ => self.fixture.taken_over(second),
                };
                self.fixture.set_rule_set(&self.rules);
            }
            _ => {
                if let Some(passed) = seconds(word) {
                    self.fixture.advance(passed);
                } else {
                    self.object = object_of(event);
                    self.fixture.apply_object(self.object.clone());
                }
            }
        }
    }

    fn list(&mut self) {
        self.fixture.send_event(FeedEvent::Reset);
        self.fixture.apply_object(self.object.clone());
        self.fixture.complete_list();
    }
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

impl TrackerFixture {
    fn described_changes(&mut self) -> String {
        let describe = |(sign, object): (char, Object)| {
            let object = object.operation().expect("the object is an operation");
            let (spec, status) = (&object.spec, &object.status);
            let item = spec.item.iter().map(|item| format!("/{item}"));
            let mut words = vec![format!(
                "{sign}{}{}",
                spec.operation,
                item.collect::<String>()
            )];
            if sign != '-' {
                words.push(status.state.name().to_owned());
                let known = [&*spec.operation, status.state.name()];
                let reason = Some(&status.reason).filter(|it| !known.contains(&&***it));
                words.extend(reason.map(ToString::to_string));
                words.extend(status.progress.map(|it| format!("{it}%")));
                let message = Some(&status.message).filter(|it| !it.is_empty());
                let message = message.filter(|_| status.phase == Phase::Active);
                words.extend(message.map(|it| format!("({it})")));
            }
            words.join(" ")
        };
        let changes: Vec<String> = self.changes.drain(..).map(describe).collect();
        changes.join(", ")
    }
}
