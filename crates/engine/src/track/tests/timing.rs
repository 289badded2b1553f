//! Tests the times of operations: the conditions `Overdue` and `Stalled`, the usual duration, the
//! estimate of the end, and the records of completed operations.

use super::*;
use ifo_api::Text;
use serde_json::json;

/// A rule that reads all fields of the object that [`moving`] creates.
const RULE: &str = "rules:\n- {operation: Moving, expression: object.phase == 'Moving', state: object.how, progress: object.done, stalledAfter: 5m}";

fn moving(done: u8) -> Value {
    json!({"phase": "Moving", "how": "Progressing", "done": done})
}

impl TrackerFixture {
    /// Starts the operation, leaves its subject unchanged for `duration`, and then ends the
    /// operation by the phase `Idle`. Returns true if the operation was overdue after `duration`.
    fn run_for(&mut self, duration: Duration) -> bool {
        self.apply_object(moving(1));
        self.advance(duration);
        let was_overdue = self.only_operation().status.is_true("Overdue");
        self.apply_object(json!({"phase": "Idle"}));
        self.advance(DEBOUNCE);
        assert!(self.objects.is_empty());
        was_overdue
    }
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
        assert!(fixture.only_operation().status.is_true("Overdue"), "{name}");
    }
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
fn baselines_survive_their_encoding_within_the_size_limit() {
    let mut fixture = fixture_with_rule_set(RULE);
    for seconds in 1..=40 {
        fixture.run_for(Duration::from_secs(seconds * 10));
    }
    let shared = fixture.tracker.shared.baselines.clone();
    let text = shared.encode_changed().expect("runs were learned");
    assert_eq!(shared.encode_changed(), None);
    let read = SharedBaselines::default();
    read.load(&text)
        .expect("the text was encoded by this release");
    // The durations are multiples of 10 s, so three digits are exact.
    assert_eq!(read.of_all_namespaces(), shared.of_all_namespaces());
    for broken in [
        "",
        "{}",
        "[]",
        &text.replace("\"format\":2", "\"format\":1"),
        &text.replace("\"durations\":[", "\"durations\":[true,"),
    ] {
        assert!(read.load(broken).is_err(), "{broken}");
    }

    let many = SharedBaselines::default();
    let mut random = Random(7);
    let (operation, namespace) = (Text::from("Moving"), Text::from("ns"));
    let mut learn = |rule_set: usize| {
        let seconds = 100.0 * (2.0 * random.normal()).exp();
        let kind = crate::track::baselines::RunKind {
            rule_set: &format!("rule-set-{rule_set}").into(),
            operation: &operation,
            timing_hash: "1234abcd",
            namespace: Some(&namespace),
            size: 1.0,
        };
        many.learn(kind, Duration::from_secs_f64(seconds), fixture.now.wall);
    };
    let count = || SharedBaselines::default().load(&many.encode()).unwrap();
    (0..600).for_each(&mut learn);
    assert_eq!(
        count(),
        1_000,
        "the baselines of some namespaces are left out"
    );
    (0..600).for_each(|rule_set| (0..210).for_each(|_| learn(rule_set)));
    assert!(many.encode().len() <= MAX_ENCODED_BYTES);
    assert!((350..600).contains(&count()), "{}", count());
}

#[test]
fn of_a_text_with_too_many_baselines_the_newest_stay() {
    let baseline = |index: usize, namespace: Option<String>| {
        let mut baseline = json!({
            "ruleSet": format!("rule-set-{index}"),
            "operation": "Moving",
            "ruleHash": "1234abcd",
            "lastRun": Timestamp::UNIX_EPOCH + Duration::from_secs(index as u64),
            "durations": [1.0],
        });
        if let Some(namespace) = namespace {
            baseline["namespace"] = namespace.into();
        }
        baseline
    };
    // With a search of all baselines for each surplus one, this would take some seconds.
    let many = (0..11_000).map(|index| baseline(index, Some("ns".to_owned())));
    let all: Vec<_> = many
        .chain((0..10).map(|index| baseline(index, None)))
        .collect();
    let baselines = SharedBaselines::default();
    let text = json!({"format": 2, "baselines": all}).to_string();
    assert_eq!(baselines.load(&text).expect("the text is valid"), 11_010);
    assert_eq!(baselines.of_all_namespaces().len(), 10);
    let kept = baselines.encode();
    assert!(kept.contains("rule-set-10010\"") && !kept.contains("rule-set-10009\""));
}
