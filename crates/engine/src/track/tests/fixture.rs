//! The fixture of the tests: a tracker with a clock, and what clients would see.

use super::*;

pub(super) const DEBOUNCE: Duration = Duration::from_secs(30);

pub(super) const RETENTION: Retention = Retention {
    age: Duration::from_hours(24),
    max_count: 10_000,
};

/// A tracker with a clock, and with the operations that clients would see.
pub(super) struct TrackerFixture {
    pub(super) tracker: Tracker,
    /// Operations in the index.
    pub(super) objects: BTreeMap<Key, Object>,
    /// Records in the index.
    pub(super) records: BTreeMap<Key, Object>,
    /// Number of changes so far.
    pub(super) version: usize,
    /// Changes since the last call of [`TrackerFixture::described_changes`].
    pub(super) changes: Vec<(char, Object)>,
    pub(super) now: ClockReading,
    pub(super) target: Arc<Gvr>,
    /// Namespace of the feed that sends events. None if the feed watches all namespaces.
    pub(super) namespace: Option<Text>,
    pub(super) book: Arc<RuleBook>,
    pub(super) generation: u64,
}

pub(super) fn settings(retain: Option<Retention>) -> TrackerSettings {
    TrackerSettings {
        debounce: DEBOUNCE,
        retain,
        max_records: 0,
        cluster_namespace: "ifo-system".into(),
    }
}

/// Creates a fixture with one rule set. The first list of its feed (the watch of its resource) is
/// complete and empty.
pub(super) fn fixture() -> TrackerFixture {
    fixture_with(settings(None))
}

pub(super) fn fixture_with(settings: TrackerSettings) -> TrackerFixture {
    let mut fixture = fixture_without_rules(settings);
    fixture.set_rules(&[("vm-rules", &["Migrating", "Stopping"])]);
    fixture.send_event(FeedEvent::Reset);
    fixture.send_event(FeedEvent::Synced { missing: None });
    fixture
}

/// Creates a fixture without rules.
pub(super) fn fixture_without_rules(settings: TrackerSettings) -> TrackerFixture {
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
        namespace: None,
        generation: 0,
    }
}

pub(super) fn subject(name: &str) -> Subject {
    let mut subject = Subject::default();
    subject.reference.uid = Some(format!("uid-{name}").into());
    subject
}

impl TrackerFixture {
    /// Replaces the rule sets. `sets` contains name and operations of each. A rule detects its operation
    /// if the list `ops` of the object contains the operation.
    pub(super) fn set_rules(&mut self, sets: &[(&str, &[&str])]) {
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

    pub(super) fn remove_rules(&mut self, removed: bool) {
        self.send(Message::Rules(Publication {
            target: self.target.clone(),
            book: None,
            removed,
        }));
    }

    pub(super) fn send(&mut self, message: Message) {
        self.tracker.advance(message, self.now);
        self.flush();
    }

    pub(super) fn flush(&mut self) {
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
    pub(super) fn apply(&mut self, change: Write) {
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

    pub(super) fn send_event(&mut self, event: FeedEvent) {
        let message = self.feed_message(event);
        self.send(message);
    }

    pub(super) fn feed_message(&self, event: FeedEvent) -> Message {
        let source = Source {
            target: self.target.clone(),
            namespace: self.namespace.clone(),
        };
        Message::Feed {
            source,
            generation: self.generation,
            event,
        }
    }

    /// Evaluates the rules on an object that the operations `what` are detected on.
    pub(super) fn evaluate(&mut self, name: &str, what: &[&str]) {
        self.apply_object_named(name, json!({ "ops": what }));
    }

    /// Sends the deletion of a subject.
    pub(super) fn subject_deleted(&mut self, subject: Subject) {
        let read = Instant::now();
        self.send_event(FeedEvent::Deleted {
            subject,
            read,
            missing: None,
        });
    }

    pub(super) fn evaluate_vm(&mut self, what: &[&str]) {
        self.evaluate("vm", what);
    }

    /// Lists the namespaces `other` and, if it was created, `name`.
    pub(super) fn list_namespaces(&mut self, name: &str, created: Option<Timestamp>) {
        let listed = created.map(|created| (name.into(), created));
        let other = ("other".into(), Timestamp::UNIX_EPOCH);
        let all = listed.into_iter().chain([other]).collect();
        self.send(Message::Existing(Existing::Namespaces(Arc::new(all))));
    }

    pub(super) fn advance(&mut self, duration: Duration) {
        self.now.wall += duration;
        self.now.steady += duration;
        self.flush();
    }

    pub(super) fn shown(&self) -> Vec<InFlightOperation> {
        let objects = self.objects.values();
        let operations = objects.filter_map(Object::operation);
        operations.map(|it| (**it).clone()).collect()
    }

    pub(super) fn only_operation(&self) -> InFlightOperation {
        let mut shown = self.shown();
        assert_eq!(shown.len(), 1, "{shown:#?}");
        shown.remove(0)
    }
}

/// Creates a fixture with one rule set. `spec` is its YAML without component and target.
pub(super) fn fixture_with_rule_set(spec: &str) -> TrackerFixture {
    let mut fixture = fixture();
    fixture.set_rule_set(spec);
    fixture.send_event(FeedEvent::Reset);
    fixture.send_event(FeedEvent::Synced { missing: None });
    fixture
}

impl TrackerFixture {
    pub(super) fn set_rule_set(&mut self, spec: &str) {
        self.set_rule_sets(&[("rules", spec)]);
    }

    /// Replaces the rule sets. `specs` contains the name of each new rule set, and its YAML without
    /// target. If the YAML does not begin with a component, the component is `kubevirt`.
    pub(super) fn set_rule_sets(&mut self, specs: &[(&str, &str)]) {
        let message = self.rules_message(specs);
        self.send(message);
    }

    pub(super) fn rules_message(&mut self, specs: &[(&str, &str)]) -> Message {
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
        Message::Rules(Publication {
            target: self.target.clone(),
            book: Some(self.book.clone()),
            removed: false,
        })
    }

    /// Evaluates the rules on `object`, which becomes the new state of the VM.
    pub(super) fn apply_object(&mut self, object: Value) {
        assert_eq!(self.apply_object_named("vm", object), 0);
    }

    /// Evaluates the rules on `object`, which becomes the new state of the object `name`. Returns the
    /// number of failed expressions.
    pub(super) fn apply_object_named(&mut self, name: &str, mut object: Value) -> usize {
        let metadata = &mut object["metadata"];
        metadata["name"] = name.into();
        if metadata["namespace"].is_null() {
            metadata["namespace"] = "ns".into();
        }
        metadata["uid"] = format!("uid-{name}").into();
        let json = object.to_string();
        let doc =
            Doc::parse(json.as_bytes(), &self.book.projection).expect("the object is valid JSON");
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
pub(super) fn changed_at(changed: Timestamp, mut object: Value) -> Value {
    object["metadata"]["managedFields"] = json!([{ "time": changed.to_string() }]);
    object
}

/// Returns the JSON of an object.
pub(super) fn json_of(object: &Object) -> Value {
    let mut json = Vec::new();
    object.append_json(1, &mut json);
    serde_json::from_slice(&json).unwrap()
}

pub(super) fn condition(object: &InFlightOperation, type_: &str) -> (String, String) {
    let condition = object.status.condition(type_);
    let condition = condition.expect("an operation has each condition");
    (condition.status.to_string(), condition.reason.to_string())
}

impl TrackerFixture {
    /// Returns the changes since the last call. A change has the sign `+` (added), `~` (modified) or `-`
    /// (deleted).
    pub(super) fn described_changes(&mut self) -> String {
        let describe = |(sign, object): (char, Object)| {
            let object = object.operation().expect("the object is an operation");
            let (spec, status) = (&object.spec, &object.status);
            let name = Some(&spec.subject.name).filter(|name| **name != "vm");
            let name = name.map(|name| format!(":{name}")).unwrap_or_default();
            let item = spec.item.as_ref().map(|item| format!("/{item}"));
            let item = item.unwrap_or_default();
            let mut words = vec![format!("{sign}{}{name}{item}", spec.operation)];
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
