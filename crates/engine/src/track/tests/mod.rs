//! Tests of the tracker, which decides when operations start, change and complete. The tests set
//! the clock, and compare the changes that clients would receive.

mod custom_resources;
mod index_takeover;
mod metadata;
mod operation_bounds;
mod retained;
mod rule_fields;
mod scenario;
mod state_after;
mod timing;
mod two_components;

use super::*;
use crate::ClockReading;
use crate::detect::{self, FeedEvent, Subject};
use crate::rules::compile;
use ifo_api::live::{InFlightOperation, Phase, State};
use ifo_cel::Doc;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

const DEBOUNCE: Duration = Duration::from_secs(30);

const RETENTION: Retention = Retention {
    age: Duration::from_hours(24),
    max_count: 10_000,
};

/// A tracker with a clock, and with the operations that clients would see.
struct TrackerFixture {
    tracker: Tracker,
    /// Operations in the index.
    objects: BTreeMap<Key, Object>,
    /// Records in the index.
    records: BTreeMap<Key, Object>,
    /// Number of changes so far.
    version: usize,
    /// Changes since the last call of [`TrackerFixture::take_changes`].
    changes: Vec<(char, Object)>,
    now: ClockReading,
    target: Arc<Gvr>,
    book: Arc<RuleBook>,
    generation: u64,
}

fn settings(retain: Option<Retention>) -> TrackerSettings {
    TrackerSettings {
        debounce: DEBOUNCE,
        retain,
        max_records: 0,
        cluster_namespace: "ifo-system".into(),
    }
}

/// Creates a fixture with one rule set. The first list of its feed (the watch of its resource) is
/// complete and empty.
fn fixture() -> TrackerFixture {
    fixture_with(settings(None))
}

fn fixture_with(settings: TrackerSettings) -> TrackerFixture {
    let mut fixture = fixture_without_rules(settings);
    fixture.set_rules(&[("vm-rules", &["Migrating", "Stopping"])]);
    fixture.send_event(FeedEvent::Reset);
    fixture.send_event(FeedEvent::Synced { missing: None });
    fixture
}

/// Creates a fixture without rules.
fn fixture_without_rules(settings: TrackerSettings) -> TrackerFixture {
    let target = Arc::new(Gvr {
        group: "kubevirt.io".into(),
        version: "v1".into(),
        resource: "virtualmachines".into(),
    });
    TrackerFixture {
        tracker: Tracker::new(settings, Arc::new(())),
        objects: BTreeMap::new(),
        records: BTreeMap::new(),
        version: 0,
        changes: Vec::new(),
        now: ClockReading {
            wall: "2026-11-21T10:00:00Z".parse().expect("the time is valid"),
            steady: Instant::now(),
        },
        book: Arc::new(RuleBook::new(
            0,
            (*target).clone(),
            String::new(),
            true,
            Vec::new(),
        )),
        target,
        generation: 0,
    }
}

fn subject(name: &str) -> Subject {
    Subject {
        uid: Some(format!("uid-{name}").into()),
        name: name.into(),
        namespace: Some("ns".into()),
        generation: Some(7),
        ..Subject::default()
    }
}

impl TrackerFixture {
    /// Replaces the rule sets. `sets` contains name and operations of each. A rule detects its operation
    /// if the list `ops` of the object contains the operation.
    fn set_rules(&mut self, sets: &[(&str, &[&str])]) {
        let specs = sets.iter().map(|(name, operations)| {
            let rule = |it: &&str| {
                format!("\n- {{operation: {it}, expression: \"'{it}' in object.ops\"}}")
            };
            let rules: String = operations.iter().map(rule).collect();
            (*name, format!("rules:{rules}"))
        });
        let specs: Vec<_> = specs.collect();
        let specs: Vec<_> = specs.iter().map(|(name, spec)| (*name, &**spec)).collect();
        self.set_rule_sets(&specs);
    }

    fn remove_rules(&mut self, removed: bool) {
        self.send(Message::Rules {
            target: self.target.clone(),
            book: None,
            removed,
        });
    }

    fn send(&mut self, message: Message) {
        self.tracker.advance(message, self.now);
        self.flush();
    }

    fn flush(&mut self) {
        self.tracker.expire(self.now);
        for change in self.tracker.take_changes() {
            self.apply(change);
        }
        self.tracker.committed();
    }

    /// Applies a write:
    ///
    /// - A write of an operation changes `objects`. The change that a watching client receives is
    ///   added to `changes`. If the object does not change, nothing is added.
    /// - A write of a record (of a completed operation) changes only `records`.
    fn apply(&mut self, change: Write) {
        let seen = match change {
            Write::Delete { key } if key.is_record() => {
                self.records.remove(&key).expect("the record exists");
                return;
            }
            Write::Put { key, object } => {
                // A follower decodes the object from JSON. The result must be the same as on the
                // leader.
                let mut json = Vec::new();
                object.append_json(1, &mut json);
                assert_eq!(Object::decode(&json, key.collection()).unwrap(), object);
                if key.is_record() {
                    self.records.insert(key, object);
                    return;
                }
                match self.objects.insert(key, object.clone()) {
                    None => ('+', object),
                    Some(before) if before == object => return,
                    Some(_) => ('~', object),
                }
            }
            Write::Delete { key } => match self.objects.remove(&key) {
                None => return,
                Some(before) => ('-', before),
            },
        };
        self.version += 1;
        self.changes.push(seen);
    }

    fn send_event(&mut self, event: FeedEvent) {
        let message = self.feed_message(event);
        self.send(message);
    }

    fn feed_message(&self, event: FeedEvent) -> Message {
        let source = Source {
            target: self.target.clone(),
            namespace: None,
        };
        Message::Feed {
            source,
            generation: self.generation,
            event,
        }
    }

    /// Evaluates the rules on an object that the operations `what` are detected on.
    fn evaluate(&mut self, name: &str, what: &[&str]) {
        self.apply_object_named(name, json!({ "ops": what }));
    }

    /// Sends the deletion of a subject.
    fn subject_deleted(&mut self, subject: Subject) {
        let read = Instant::now();
        self.send_event(FeedEvent::Deleted { subject, read });
    }

    fn evaluate_vm(&mut self, what: &[&str]) {
        self.evaluate("vm", what);
    }

    /// Deletes a namespace. `again` is the creation time of a new namespace with the same name, or
    /// None if there is no new namespace.
    fn delete_namespace(&mut self, name: &str, again: Option<Timestamp>) {
        let name = name.into();
        self.send(Message::NamespaceDeleted { name, again });
    }

    fn advance(&mut self, duration: Duration) {
        self.now.wall += duration;
        self.now.steady += duration;
        self.flush();
    }

    fn shown(&self) -> Vec<InFlightOperation> {
        let objects = self.objects.values();
        let operations = objects.filter_map(Object::operation);
        operations.map(|it| (**it).clone()).collect()
    }

    fn only_operation(&self) -> InFlightOperation {
        let mut shown = self.shown();
        assert_eq!(shown.len(), 1, "{shown:#?}");
        shown.remove(0)
    }

    /// Returns the changes since the last call. A change is `+` (added), `~` (modified) or `-`
    /// (deleted), followed by operation, state and reason.
    fn take_changes(&mut self) -> Vec<String> {
        let describe = |(sign, object): (char, Object)| {
            let object = object.operation().expect("the object is an operation");
            format!(
                "{sign}{} {:?} {}",
                object.spec.operation, object.status.state, object.status.reason
            )
        };
        self.changes.drain(..).map(describe).collect()
    }
}

/// Creates a fixture with one rule set. `spec` is its YAML without component and target.
fn fixture_with_rule_set(spec: &str) -> TrackerFixture {
    let mut fixture = fixture();
    fixture.set_rule_set(spec);
    fixture.send_event(FeedEvent::Reset);
    fixture.send_event(FeedEvent::Synced { missing: None });
    fixture
}

impl TrackerFixture {
    fn set_rule_set(&mut self, spec: &str) {
        self.set_rule_sets(&[("rules", spec)]);
    }

    /// Replaces the rule sets. `specs` contains the name of each new rule set, and its YAML without
    /// target. If the YAML does not begin with a component, the component is `kubevirt`.
    fn set_rule_sets(&mut self, specs: &[(&str, &str)]) {
        let message = self.rules_message(specs);
        self.send(message);
    }

    fn rules_message(&mut self, specs: &[(&str, &str)]) -> Message {
        let set = |(name, spec): &(&str, &str)| {
            let component = if spec.starts_with("component:") {
                ""
            } else {
                "component: kubevirt\n"
            };
            let text = format!(
                "{component}target: {{group: kubevirt.io, version: v1, resource: virtualmachines}}\n{spec}"
            );
            let spec = serde_saphyr::from_str(&text).expect("the YAML of the test is a valid spec");
            Arc::new(compile(name, &spec).expect("the rules of the test compile"))
        };
        let sets = specs.iter().map(set).collect();
        self.generation += 1;
        let target = (*self.target).clone();
        let kind = "VirtualMachine".to_owned();
        self.book = Arc::new(RuleBook::new(self.generation, target, kind, true, sets));
        Message::Rules {
            target: self.target.clone(),
            book: Some(self.book.clone()),
            removed: false,
        }
    }

    /// Evaluates the rules on `object`, which becomes the new state of the VM.
    fn apply_object(&mut self, object: Value) {
        assert_eq!(self.apply_object_named("vm", object), 0);
    }

    /// Evaluates the rules on `object`, which becomes the new state of the object `name`. Returns the
    /// number of failed expressions.
    fn apply_object_named(&mut self, name: &str, mut object: Value) -> usize {
        let metadata = &mut object["metadata"];
        metadata["name"] = name.into();
        if metadata["namespace"].is_null() {
            metadata["namespace"] = "ns".into();
        }
        metadata["uid"] = format!("uid-{name}").into();
        let json = object.to_string();
        let doc = Doc::parse(json.as_bytes(), &self.book.initial_projection)
            .expect("the object is valid JSON");
        let evaluation =
            detect::evaluate(&self.book, &doc, self.now.wall, &()).expect("the object has a name");
        let failures = evaluation.failures.len();
        self.send_event(FeedEvent::Evaluated {
            evaluation: Box::new(evaluation),
            read: Instant::now(),
        });
        failures
    }
}

/// Returns `object` with a time of its last change.
fn changed_at(changed: Timestamp, mut object: Value) -> Value {
    object["metadata"]["managedFields"] = json!([{ "time": changed.to_string() }]);
    object
}

/// Returns the JSON of an object.
fn json_of(object: &Object) -> Value {
    let mut json = Vec::new();
    object.append_json(1, &mut json);
    serde_json::from_slice(&json).unwrap()
}

fn condition(object: &InFlightOperation, type_: &str) -> (String, String) {
    let condition = object.status.condition(type_);
    let condition = condition.expect("an operation has each condition");
    (condition.status.to_string(), condition.reason.to_string())
}

#[test]
fn the_result_of_replaced_rules_is_ignored() {
    let mut fixture = fixture();
    let (generation, book) = (fixture.generation, fixture.book.clone());
    fixture.set_rules(&[("vm-rules", &["Stopping"])]);
    (fixture.generation, fixture.book) = (generation, book);
    fixture.evaluate_vm(&["Migrating"]);
    assert!(fixture.shown().is_empty());
}

#[derive(Clone, Debug)]
enum Step {
    Evaluates(u8, u8),
    Deletes(u8),
    Waits(u8),
    Lost,
    Synced,
    Relist(Vec<(u8, u8)>),
    Rules(u8),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0..3_u8, 0..4_u8).prop_map(|(vm, what)| Step::Evaluates(vm, what)),
        1 => (0..3_u8).prop_map(Step::Deletes),
        3 => (0..40_u8).prop_map(Step::Waits),
        1 => Just(Step::Lost),
        1 => Just(Step::Synced),
        1 => proptest::collection::vec((0..3_u8, 0..4_u8), 0..3).prop_map(Step::Relist),
        1 => (0..4_u8).prop_map(Step::Rules),
    ];
    proptest::collection::vec(step, 1..60)
}

fn operations(what: u8) -> Vec<&'static str> {
    let mut all = Vec::new();
    if what & 1 != 0 {
        all.push("Migrating");
    }
    if what & 2 != 0 {
        all.push("Stopping");
    }
    all
}

proptest! {
    /// After any order of events, the test waits for a debounce period. Then clients see exactly
    /// the operations that the last evaluation of each existing object detected. No timer is left.
    #[test]
    fn no_completion_is_lost_in_any_order_of_events(steps in steps()) {
        let mut fixture = fixture();
        let mut last: BTreeMap<u8, u8> = BTreeMap::new();
        let mut rules = 3;
        for step in steps {
            match step {
                Step::Evaluates(vm, what) => {
                    let what = what & rules;
                    last.insert(vm, what);
                    if rules != 0 { fixture.evaluate(&vm.to_string(), &operations(what)); }
                }
                Step::Deletes(vm) => {
                    last.remove(&vm);
                    fixture.subject_deleted(subject(&vm.to_string()));
                }
                Step::Waits(seconds) => fixture.advance(Duration::from_secs(seconds.into())),
                Step::Lost => fixture.send_event(FeedEvent::Lost),
                Step::Synced => fixture.send_event(FeedEvent::Synced { missing: None }),
                Step::Relist(state) => {
                    last.clear();
                    fixture.send_event(FeedEvent::Reset);
                    for (vm, what) in state {
                        let what = what & rules;
                        last.insert(vm, what);
                        if rules != 0 { fixture.evaluate(&vm.to_string(), &operations(what)); }
                    }
                    fixture.send_event(FeedEvent::Synced { missing: None });
                }
                Step::Rules(new) => {
                    rules = new;
                    if new == 0 { fixture.remove_rules(false) } else { fixture.set_rules(&[("vm-rules", &operations(new))]) }
                    last.clear();
                    fixture.send_event(FeedEvent::Reset);
                    fixture.send_event(FeedEvent::Synced { missing: None });
                }
            }
        }
        fixture.send_event(FeedEvent::Synced { missing: None });
        fixture.advance(DEBOUNCE);
        let shown: BTreeSet<_> = fixture
            .shown()
            .into_iter()
            .map(|object| (object.spec.subject.name, object.spec.operation))
            .collect();
        let expected: BTreeSet<_> = last
            .iter()
            .flat_map(|(vm, what)| operations(*what & rules).into_iter().map(|operation| (Text::from(vm.to_string()), Text::from(operation))))
            .collect();
        prop_assert_eq!(shown, expected);
        prop_assert!(fixture.tracker.next_deadline().is_none(), "a timer is left over");
    }
}
