//! Tests the times of operations: the conditions `Overdue` and `Stalled`, the usual duration, the
//! estimate of the end, and the records of completed operations.

use super::rule_fields::fixture_with_rule_set;
use super::*;
use ifo_api::Text;
use ifo_api::live::ExpectedSource;
use ifo_api::record::OperationRecord;
use serde_json::json;

const SECOND: Duration = Duration::from_secs(1);

/// A rule that reads all fields of the object that [`moving`] creates.
const RULE: &str = "rules:\n- {operation: Moving, expression: object.phase == 'Moving', state: object.how, progress: object.done, stalledAfter: 5m}";

fn settings_with_records(max_records: usize) -> TrackerSettings {
    TrackerSettings {
        debounce: DEBOUNCE,
        retain: None,
        max_records,
        cluster_namespace: "ifo-system".into(),
    }
}

fn moving(done: u8) -> Value {
    json!({"phase": "Moving", "how": "Progressing", "done": done})
}

/// Returns status and message of a condition, or None if the condition is absent.
fn timing_condition(object: &InFlightOperation, type_: &str) -> Option<(String, String)> {
    let mut conditions = object.status.conditions.iter();
    let condition = conditions.find(|condition| condition.type_ == type_)?;
    Some((condition.status.to_string(), condition.message.to_string()))
}

impl TrackerFixture {
    /// Returns the status of a condition of the only operation, or None if the condition is absent.
    fn status_of(&self, type_: &str) -> Option<String> {
        Some(timing_condition(&self.only_operation(), type_)?.0)
    }

    /// Advances the clock second by second until the condition is `True`. Returns the number of
    /// seconds, or None if the condition is not `True` after `limit` seconds.
    fn seconds_until(&mut self, type_: &str, limit: u64) -> Option<u64> {
        (1..=limit).find(|_| {
            self.advance(SECOND);
            self.status_of(type_).as_deref() == Some("True")
        })
    }

    /// Starts the operation, leaves its subject unchanged for `duration`, and then ends the
    /// operation by the phase `Idle`. Returns true if the operation was overdue after `duration`.
    fn run_for(&mut self, duration: Duration) -> bool {
        self.apply_object(moving(1));
        self.advance(duration);
        let was_overdue = self.status_of("Overdue").as_deref() == Some("True");
        self.apply_object(json!({"phase": "Idle"}));
        self.advance(DEBOUNCE);
        assert!(self.objects.is_empty());
        was_overdue
    }
}

#[test]
fn an_operation_is_overdue_after_the_duration_that_its_rule_expects() {
    let mut fixture = fixture_with_rule_set(
        "rules:\n- {operation: Moving, expression: object.phase == 'Moving', state: object.how, expectedDuration: 30m}",
    );
    fixture.apply_object(moving(0));
    let expected = fixture.only_operation().status.expected.unwrap();
    assert_eq!(
        (expected.typical_seconds, expected.source),
        (1800, ExpectedSource::Rule)
    );
    assert_eq!(fixture.status_of("Overdue").as_deref(), Some("False"));
    assert_eq!(
        fixture.status_of("Stalled"),
        None,
        "the rule has no stalledAfter"
    );
    fixture.take_changes();
    assert_eq!(fixture.seconds_until("Overdue", 3600), Some(1800));
    assert_eq!(
        fixture.take_changes().len(),
        1,
        "the condition Overdue must be the only change"
    );
    let (_, message) = timing_condition(&fixture.only_operation(), "Overdue").unwrap();
    assert_eq!(message, "Longer than the 30m that the rule expects.");

    // An operation that is no longer detected is not overdue.
    fixture.apply_object(json!({"phase": "Idle"}));
    assert_eq!(fixture.status_of("Overdue").as_deref(), Some("False"));
    fixture.advance(DEBOUNCE);
    assert!(fixture.objects.is_empty());
}

#[test]
fn earlier_runs_decide_what_is_usual_and_the_rule_decides_what_is_overdue() {
    let mut fixture = fixture_with_rule_set(
        "rules:\n- {operation: Moving, expression: object.phase == 'Moving', expectedDuration: 30m}",
    );
    for _ in 0..25 {
        fixture.run_for(100 * SECOND);
    }
    fixture.apply_object(moving(1));
    let status = fixture.only_operation().status;
    let expected = status.expected.unwrap();
    assert_eq!(
        (expected.runs, expected.source),
        (Some(25), ExpectedSource::History)
    );
    assert!(
        (98..=102).contains(&expected.typical_seconds),
        "{expected:?}"
    );
    let (_, message) = timing_condition(&fixture.only_operation(), "Overdue").unwrap();
    assert_eq!(message, "Not longer than the 30m that the rule expects.");
    assert_eq!(fixture.seconds_until("Overdue", 3600), Some(1800));
}

#[test]
fn the_expected_duration_can_be_computed_from_the_object() {
    let mut fixture = fixture_with_rule_set(
        "rules:\n- {operation: Moving, expression: object.phase == 'Moving', expectedDuration: \"duration(string(object.limit) + 's')\"}",
    );
    fixture.apply_object(json!({"phase": "Moving", "limit": 90}));
    assert_eq!(fixture.seconds_until("Overdue", 200), Some(90));
    // A changed limit applies at once.
    fixture.apply_object(json!({"phase": "Moving", "limit": 120}));
    assert_eq!(fixture.status_of("Overdue").as_deref(), Some("False"));
    assert_eq!(fixture.seconds_until("Overdue", 200), Some(30));
}

#[test]
fn the_time_without_progress_can_be_computed_from_the_object() {
    let mut fixture = fixture_with_rule_set(
        "rules:\n- {operation: Moving, expression: object.phase == 'Moving', progress: object.done, stalledAfter: \"duration(string(object.limit) + 's')\"}",
    );
    let with_limit =
        |done: u8, limit: u32| json!({"phase": "Moving", "done": done, "limit": limit});
    fixture.apply_object(with_limit(1, 90));
    assert_eq!(fixture.status_of("Overdue"), None);
    fixture.advance(60 * SECOND);
    // The limit counts from the last rise of the progress.
    fixture.apply_object(with_limit(2, 90));
    assert_eq!(fixture.seconds_until("Stalled", 200), Some(90));
    let (_, message) = timing_condition(&fixture.only_operation(), "Stalled").unwrap();
    assert_eq!(message, "The progress has stayed at 2% for 90s or longer.");
    // A changed limit applies at once.
    fixture.apply_object(with_limit(2, 120));
    assert_eq!(fixture.status_of("Stalled").as_deref(), Some("False"));
    assert_eq!(fixture.seconds_until("Stalled", 200), Some(30));
    // Zero means no limit.
    fixture.apply_object(with_limit(2, 0));
    assert_eq!(fixture.status_of("Stalled"), None);
}

#[test]
fn only_time_in_the_state_progressing_counts() {
    let mut fixture = fixture_with_rule_set(
        "rules:\n- {operation: Moving, expression: object.phase == 'Moving', state: object.how, expectedDuration: 10m}",
    );
    let with_state = |how: &str| json!({"phase": "Moving", "how": how, "done": 0});
    fixture.apply_object(with_state("Progressing"));
    fixture.advance(300 * SECOND);
    for how in ["Blocked", "Held", "Failing"] {
        fixture.apply_object(with_state(how));
        let since = fixture.only_operation().status.state_since.unwrap().0;
        assert_eq!(
            since,
            fixture.only_operation().status.conditions[0]
                .last_transition_time
                .0
                + 300 * SECOND
        );
        fixture.advance(3600 * SECOND);
        assert_eq!(fixture.status_of("Overdue").as_deref(), Some("False"));
        let (_, message) = timing_condition(&fixture.only_operation(), "Overdue").unwrap();
        assert_eq!(
            message,
            format!("Time does not count while the operation is {how}.")
        );
        fixture.now.wall -= 3600 * SECOND;
    }
    fixture.apply_object(with_state("Progressing"));
    assert_eq!(fixture.seconds_until("Overdue", 900), Some(300));
    // While the watch is interrupted, time does not count. During this time, even an operation that
    // was overdue before has `Overdue=False`.
    fixture.send_event(FeedEvent::Lost);
    assert_eq!(fixture.status_of("Overdue").as_deref(), Some("False"));
    fixture.send_event(FeedEvent::Synced { missing: None });
    assert_eq!(fixture.status_of("Overdue").as_deref(), Some("True"));
}

#[test]
fn time_during_an_interruption_of_the_watch_does_not_count() {
    let mut fixture = fixture_with_rule_set(RULE);
    fixture.apply_object(moving(40));
    fixture.advance(200 * SECOND);
    fixture.send_event(FeedEvent::Lost);
    fixture.advance(3600 * SECOND);
    assert_eq!(fixture.status_of("Stalled").as_deref(), Some("False"));
    fixture.send_event(FeedEvent::Synced { missing: None });
    assert_eq!(fixture.seconds_until("Stalled", 600), Some(100));
}

#[test]
fn an_import_whose_progress_stops_is_stalled_until_the_progress_rises() {
    let mut fixture = fixture_with_rule_set(RULE);
    for done in 0..=40 {
        fixture.apply_object(moving(done));
        fixture.advance(20 * SECOND);
        assert_eq!(fixture.status_of("Stalled").as_deref(), Some("False"));
    }
    let last_progress = fixture.only_operation().status.last_progress.unwrap().0;
    assert_eq!(fixture.now.wall, last_progress + 20 * SECOND);
    // A fall of the percentage is no progress. The last rise was 20 s ago, so 280 s are left of
    // the limit of 300 s.
    fixture.apply_object(moving(39));
    assert_eq!(fixture.seconds_until("Stalled", 600), Some(280));
    let (_, message) = timing_condition(&fixture.only_operation(), "Stalled").unwrap();
    assert_eq!(message, "The progress has stayed at 39% for 5m or longer.");
    fixture.take_changes();
    fixture.advance(3600 * SECOND);
    assert_eq!(fixture.take_changes(), Vec::<String>::new());
    fixture.apply_object(moving(41));
    assert_eq!(fixture.status_of("Stalled").as_deref(), Some("False"));
    assert_eq!(fixture.seconds_until("Stalled", 600), Some(300));
    // At 100 %, the progress cannot rise any more, so the operation is not stalled.
    fixture.apply_object(moving(100));
    fixture.advance(3600 * SECOND);
    assert_eq!(fixture.status_of("Stalled").as_deref(), Some("False"));
}

#[test]
fn an_operation_without_progress_or_without_a_basis_has_neither_condition() {
    let mut fixture = fixture_with_rule_set(RULE);
    fixture.apply_object(json!({"phase": "Moving", "how": "Progressing"}));
    assert_eq!(fixture.status_of("Stalled"), None);
    assert_eq!(fixture.status_of("Overdue"), None);
    assert_eq!(fixture.only_operation().status.expected, None);
    assert!(fixture.tracker.next_deadline().is_none());
}

#[test]
fn the_end_is_estimated_from_the_recent_rate_of_the_progress() {
    let mut fixture = fixture_with_rule_set(RULE);
    for done in [0, 10, 20, 30] {
        fixture.apply_object(moving(done));
        fixture.advance(30 * SECOND);
    }
    let object = fixture.only_operation();
    let estimated = object.status.estimated_completion.unwrap().0;
    let rise = object.status.last_progress.unwrap().0;
    assert_eq!(
        estimated,
        rise + 210 * SECOND,
        "70 % are left, 10 % take 30 s"
    );
}

/// A random number generator that always yields the same numbers (a linear congruential generator
/// with the multiplier of Knuth's MMIX).
struct Random(u64);

impl Random {
    /// Returns a number above 0 and below 1.
    fn uniform(&mut self) -> f64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (f64::from(u32::try_from(self.0 >> 32).unwrap()) + 0.5) / 4_294_967_296.0
    }

    fn normal(&mut self) -> f64 {
        (-2.0 * self.uniform().ln()).sqrt() * (std::f64::consts::TAU * self.uniform()).cos()
    }
}

#[test]
fn of_normal_runs_at_most_three_percent_are_overdue_and_every_run_that_hangs_is_found() {
    const RUNS: usize = 1_000;
    type Distribution = fn(&mut Random, usize) -> f64;
    let distributions: [(&str, Distribution); 4] = [
        ("exponential", |random, _| -120.0 * random.uniform().ln()),
        ("log-normal", |random, _| {
            300.0 * (0.8 * random.normal()).exp()
        }),
        ("bimodal", |random, _| {
            let usual = if random.uniform() < 0.3 { 900.0 } else { 60.0 };
            usual * (0.8 + 0.4 * random.uniform())
        }),
        ("growing", |random, run| {
            let growth = f64::from(u32::try_from(run).unwrap()) / 200.0;
            (200.0 + 100.0 * growth) * (0.7 + 0.6 * random.uniform())
        }),
    ];
    for (name, distribution) in distributions {
        let mut random = Random(1);
        let mut fixture = fixture_with_rule_set(RULE);
        let mut overdue = 0;
        let mut durations = Vec::new();
        for run in 0..RUNS {
            let seconds = distribution(&mut random, run).max(1.0);
            durations.push(seconds);
            overdue += usize::from(fixture.run_for(Duration::from_secs_f64(seconds)));
        }
        assert!(overdue <= RUNS * 3 / 100, "{name}: {overdue} of {RUNS}");

        durations.sort_by(f64::total_cmp);
        let p95 = durations[RUNS * 95 / 100];
        fixture.apply_object(moving(1));
        let limit = Duration::from_secs_f64(3.0 * p95.max(60.0));
        fixture.advance(limit);
        assert_eq!(
            fixture.status_of("Overdue").as_deref(),
            Some("True"),
            "{name}"
        );
    }
}

#[test]
fn an_operation_is_compared_with_twenty_earlier_runs() {
    let mut fixture = fixture_with_rule_set(RULE);
    for run in 0..20 {
        assert!(!fixture.run_for(125 * SECOND), "{run}");
        fixture.apply_object(moving(1));
        let expected = fixture.only_operation().status.expected;
        assert_eq!(expected.is_some(), run >= 4, "{run}");
        assert_eq!(fixture.status_of("Overdue").is_some(), run >= 19, "{run}");
        fixture.tracker = Tracker::with_baselines(
            settings_with_records(0),
            Arc::new(()),
            fixture.tracker.shared.baselines.clone(),
        );
        fixture.objects.clear();
        fixture.set_rule_set(RULE);
        fixture.send_event(FeedEvent::Reset);
        fixture.send_event(FeedEvent::Synced { missing: None });
    }
    fixture.apply_object(moving(1));
    let operation = fixture.only_operation();
    let expected = operation.status.expected.unwrap();
    assert_eq!(
        (expected.runs, expected.source),
        (Some(20), ExpectedSource::History)
    );
    assert!(
        (123..=127).contains(&expected.typical_seconds),
        "{expected:?}"
    );
    let estimated = operation.status.estimated_completion.unwrap().0;
    let left = estimated.duration_since(fixture.now.wall).as_secs();
    assert!((122..=128).contains(&left), "{left}");
    let seconds = fixture.seconds_until("Overdue", 400).unwrap();
    assert!((245..=255).contains(&seconds), "{seconds}");
    let (_, message) = timing_condition(&fixture.only_operation(), "Overdue").unwrap();
    assert!(
        message.starts_with("Much longer than the usual 2m"),
        "{message}"
    );
    assert!(message.ends_with("of 20 runs."), "{message}");
}

#[test]
fn durations_are_compared_for_each_unit_of_work() {
    let mut fixture = fixture_with_rule_set(
        "rules:\n- {operation: Moving, expression: object.phase == 'Moving', size: object.gib}",
    );
    let disk = |gib: u64| json!({"phase": "Moving", "gib": gib});
    for gib in (1..=5).cycle().take(30) {
        fixture.apply_object(disk(gib));
        fixture.advance(Duration::from_secs(30 * gib));
        fixture.apply_object(json!({"phase": "Idle"}));
        fixture.advance(DEBOUNCE);
    }
    for gib in [2, 100] {
        fixture.apply_object(disk(gib));
        let expected = fixture
            .only_operation()
            .status
            .expected
            .unwrap()
            .typical_seconds;
        assert!(
            (29 * gib..=31 * gib).contains(&expected),
            "{gib}: {expected}"
        );
        fixture.apply_object(json!({"phase": "Idle"}));
        fixture.advance(DEBOUNCE);
    }
}

#[test]
fn a_changed_rule_starts_a_new_baseline() {
    let mut fixture = fixture_with_rule_set(RULE);
    for _ in 0..25 {
        fixture.run_for(60 * SECOND);
    }
    // A changed message of the rule does not start a new baseline.
    let with_message = RULE.replace("state:", "message: \"'other'\", state:");
    fixture.set_rule_set(&with_message);
    fixture.send_event(FeedEvent::Synced { missing: None });
    fixture.apply_object(moving(1));
    let expected = fixture.only_operation().status.expected;
    assert_eq!(expected.and_then(|it| it.runs), Some(25));
    fixture.apply_object(json!({"phase": "Idle"}));
    fixture.advance(DEBOUNCE);
    fixture
        .set_rule_set(&with_message.replace("object.phase == 'Moving'", "object.phase != 'Idle'"));
    fixture.send_event(FeedEvent::Synced { missing: None });
    fixture.apply_object(moving(1));
    assert_eq!(fixture.only_operation().status.expected, None);
}

#[test]
fn baselines_survive_their_encoding_within_the_size_limit() {
    let mut fixture = fixture_with_rule_set(RULE);
    for seconds in 1..=40 {
        fixture.run_for(Duration::from_secs(seconds * 10));
    }
    let shared = fixture.tracker.shared.baselines.clone();
    let text = shared.encode_changed().expect("runs were learned");
    assert_eq!(shared.encode_changed(), None);
    let decoded = Baselines::decode(&text).expect("the text was encoded by this release");
    let read = SharedBaselines::default();
    read.merge(decoded);
    // The durations are multiples of 10 s, so three digits are exact.
    assert_eq!(read.of_all_namespaces(), shared.of_all_namespaces());
    for broken in [
        "",
        "{}",
        "[]",
        &text.replace("\"format\":2", "\"format\":1"),
        &text.replace("\"durations\":[", "\"durations\":[true,"),
    ] {
        assert!(Baselines::decode(broken).is_err(), "{broken}");
    }

    let many = SharedBaselines::default();
    let mut random = Random(7);
    for rule_set in 0..600 {
        let (rule_set, operation): (Text, Text) =
            (format!("rule-set-{rule_set}").into(), "Moving".into());
        let namespace: Text = "ns".into();
        let kind = crate::track::baselines::RunKind {
            rule_set: &rule_set,
            operation: &operation,
            timing_hash: "1234abcd",
            namespace: Some(&namespace),
        };
        for _ in 0..210 {
            let seconds = 100.0 * (2.0 * random.normal()).exp();
            many.learn(
                kind,
                Duration::from_secs_f64(seconds),
                1.0,
                fixture.now.wall,
            );
        }
    }
    assert_eq!(many.count(), 1_000);
    let text = many.encode();
    assert!(text.len() <= MAX_ENCODED_BYTES, "{}", text.len());
    let kept = Baselines::decode(&text).unwrap();
    assert!(kept.count() > 0 && kept.count() <= many.count());
}

#[test]
fn the_usual_duration_comes_from_the_last_two_hundred_runs() {
    let mut fixture = fixture_with_rule_set(RULE);
    for seconds in [600, 60] {
        for _ in 0..199 {
            fixture.run_for(Duration::from_secs(seconds));
        }
        fixture.apply_object(moving(1));
        fixture.advance(Duration::from_secs(seconds));
        let expected = fixture.only_operation().status.expected.unwrap();
        assert_eq!(expected.typical_seconds, seconds, "{expected:?}");
        fixture.apply_object(json!({"phase": "Idle"}));
        fixture.advance(DEBOUNCE);
    }
    fixture.apply_object(moving(1));
    let expected = fixture.only_operation().status.expected.unwrap();
    assert_eq!(
        (expected.typical_seconds, expected.p95_seconds),
        (60, Some(60))
    );
    assert_eq!(expected.runs, Some(200));
}

#[test]
fn times_continue_after_a_takeover() {
    let rule = "rules:\n- {operation: Moving, expression: object.phase == 'Moving', state: object.how, progress: object.done, expectedDuration: 10m, stalledAfter: 5m}";
    let mut before = fixture_with_rule_set(rule);
    before.apply_object(moving(10));
    before.advance(120 * SECOND);
    before.apply_object(moving(20));
    before.advance(60 * SECOND);
    let mut fixture = before.taken_over(10 * SECOND);
    assert_eq!(fixture.objects, before.objects);
    fixture.set_rule_set(rule);
    fixture.send_event(FeedEvent::Reset);
    fixture.apply_object(moving(20));
    fixture.send_event(FeedEvent::Synced { missing: None });
    let shown = fixture.only_operation().status;
    let earlier = before.only_operation().status;
    assert_eq!(
        (shown.state_since, shown.last_progress),
        (earlier.state_since, earlier.last_progress)
    );
    assert_eq!(fixture.seconds_until("Stalled", 600), Some(230));
    assert_eq!(fixture.seconds_until("Overdue", 600), Some(180));
}

#[test]
fn an_operation_that_hangs_becomes_overdue_after_a_takeover_that_reads_the_baselines_late() {
    let mut before = fixture_with_rule_set(RULE);
    for _ in 0..20 {
        before.run_for(100 * SECOND);
    }
    before.apply_object(moving(1));
    before.advance(50 * SECOND);
    // The new leader evaluates the subject before it has read the baselines (the durations of
    // earlier runs).
    let mut fixture = before.taken_over(10 * SECOND);
    fixture.set_rule_set(RULE);
    fixture.send_event(FeedEvent::Reset);
    fixture.apply_object(moving(1));
    fixture.send_event(FeedEvent::Synced { missing: None });
    fixture.advance(10 * SECOND);
    let stored = before.tracker.shared.baselines.encode();
    let stored = Baselines::decode(&stored).unwrap();
    fixture.tracker.shared.baselines.merge(stored);
    fixture.send(Message::BaselinesLoaded);
    let left = fixture
        .seconds_until("Overdue", 600)
        .expect("the operation must become overdue");
    // The limit is twice the usual 100 s, and 70 s have passed, so about 130 s are left. Baselines
    // store durations with an error of 2 %.
    assert!((126..=134).contains(&left), "{left}");
}

#[test]
fn an_operation_shows_its_usual_duration_as_soon_as_the_baselines_are_read() {
    let mut before = fixture_with_rule_set(RULE);
    for _ in 0..20 {
        before.run_for(100 * SECOND);
    }
    before.apply_object(moving(1));
    before.advance(50 * SECOND);
    let encoded = before.tracker.shared.baselines.encode();
    let typical = |fixture: &TrackerFixture| {
        let expected = fixture.only_operation().status.expected;
        expected.map(|it| it.typical_seconds)
    };
    let shown = typical(&before);
    assert!(shown.is_some());
    for is_changed in [true, false] {
        let mut fixture = before.taken_over(10 * SECOND);
        fixture.set_rule_set(RULE);
        fixture.send_event(FeedEvent::Reset);
        // If the operation changes visibly before the new leader has read the baselines, the
        // operation has no usual duration until the leader has read them.
        fixture.apply_object(moving(if is_changed { 2 } else { 1 }));
        fixture.send_event(FeedEvent::Synced { missing: None });
        assert_eq!(typical(&fixture).is_none(), is_changed);
        fixture.take_changes();
        let stored = Baselines::decode(&encoded).unwrap();
        fixture.tracker.shared.baselines.merge(stored);
        fixture.send(Message::BaselinesLoaded);
        fixture.advance(SECOND);
        assert_eq!(typical(&fixture), shown);
        assert!(fixture.status_of("Overdue").is_some());
        // The unchanged operation has kept its usual duration, so clients receive no change.
        assert_eq!(fixture.take_changes().len(), usize::from(is_changed));
    }
}

#[test]
fn the_duration_of_a_record_is_the_difference_of_its_shown_times() {
    let mut fixture = fixture_with(settings_with_records(1));
    // The run takes 0.2 s, and a new second begins during this time. The shown times are rounded
    // down to whole seconds, so they differ by 1 s.
    fixture.advance(Duration::from_millis(900));
    fixture.evaluate(subject("a"), &["Migrating"]);
    fixture.advance(Duration::from_millis(200));
    fixture.evaluate(subject("a"), &[]);
    fixture.advance(DEBOUNCE);
    let record = fixture.records.values().next().unwrap();
    let status = &record.record().unwrap().status;
    let passed = status.completed.0.duration_since(status.started.0);
    assert_eq!((status.duration_seconds, passed.as_secs()), (1, 1));
}

#[test]
fn completed_operations_leave_records_up_to_the_maximum() {
    let mut fixture = fixture_with(settings_with_records(3));
    for name in ["a", "b", "c", "d", "e"] {
        fixture.evaluate(subject(name), &["Migrating"]);
        fixture.advance(90 * SECOND);
        fixture.evaluate(subject(name), &[]);
        fixture.advance(DEBOUNCE);
    }
    assert!(fixture.objects.is_empty());
    let records = |fixture: &TrackerFixture| -> Vec<Arc<OperationRecord>> {
        let all = fixture.records.values().filter_map(Object::record);
        all.cloned().collect()
    };
    let kept = records(&fixture);
    let names: Vec<_> = kept.iter().map(|it| &*it.spec.subject.name).collect();
    assert_eq!(names, ["c", "d", "e"]);
    assert_eq!(kept[0].status.duration_seconds, 90);
    assert_eq!(kept[0].status.outcome, State::Ended);
    let mut all = fixture.records.values();
    assert!(all.all(|record| json_of(record).to_string().len() <= 1024));

    // A new leader takes over the records, and deletes the records of deleted namespaces.
    let mut next = fixture.taken_over_with(settings_with_records(2), SECOND, |_, _| {});
    assert_eq!(
        records(&next).len(),
        2,
        "the limit of the new leader applies"
    );
    next.delete_namespace("ns", None);
    assert!(next.records.is_empty());
}

#[test]
fn an_operation_of_a_deleted_namespace_leaves_no_record() {
    let mut fixture = fixture_with(settings_with_records(3));
    fixture.evaluate_vm(&["Migrating"]);
    fixture.delete_namespace("ns", None);
    fixture.evaluate_vm(&[]);
    fixture.advance(DEBOUNCE);
    assert!(fixture.records.is_empty());
}
