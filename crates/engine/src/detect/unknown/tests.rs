//! Tests of the module `unknown`.

use super::*;
use crate::detect::evaluate::{RuleSetBudgets, evaluate_within};
use crate::rules::{EvaluationInstant, EvaluationTime, RULE_SET_ALLOWANCE, RuleBook, compile};
use ifo_api::Gvr;
use ifo_cel::Doc;
use jiff::Timestamp;
use serde_json::json;
use std::sync::Arc;

struct FeedFixture {
    book: Arc<RuleBook>,
    unknown: UnknownObjects,
    budgets: RuleSetBudgets,
    /// The time that the budgets measure.
    clock: Instant,
}

impl FeedFixture {
    fn new(expression: &str) -> Self {
        Self::new_with(&[expression])
    }

    /// Creates a feed with one rule set for each expression.
    fn new_with(expressions: &[&str]) -> Self {
        let target = Gvr {
            group: "g.io".into(),
            version: "v1".into(),
            resource: "things".into(),
        };
        let rule_set = |(number, expression): (usize, &&str)| {
            let spec = json!({
                "component": "c", "target": target,
                "rules": [{"operation": "Working", "expression": expression}],
            });
            let spec = serde_json::from_value(spec).expect("the test's rule set is valid");
            let name = number.to_string();
            Arc::new(compile(&name, &spec).expect("the test's rule set compiles"))
        };
        let rule_sets = expressions.iter().enumerate().map(rule_set).collect();
        let book = RuleBook::new(1, target.clone(), "Thing".into(), true, rule_sets);
        let clock = Instant::now();
        let read = move || EvaluationInstant {
            at: clock,
            used: Duration::ZERO,
        };
        Self {
            book: Arc::new(book),
            unknown: UnknownObjects::default(),
            budgets: RuleSetBudgets::new(Arc::new(EvaluationTime::new(read))),
            clock,
        }
    }

    /// Charges 2 s to a rule set, so that it is throttled for about 10 s.
    fn use_time(&self, index: usize) {
        let account = self.book.rule_sets[index].activity.time();
        account.charge(Duration::from_secs(2), self.clock, RULE_SET_ALLOWANCE);
    }

    /// Evaluates an object at the time `second`, in seconds since 1970. The list
    /// `object.values` of this object has `values` elements.
    fn evaluate(&mut self, name: &str, values: usize, second: i64) {
        let object = json!({"metadata": {"name": name}, "values": vec![1; values]});
        let json = object.to_string();
        let book = self.book.clone();
        let doc =
            Doc::parse(json.as_bytes(), &book.projection).expect("the test's object is valid JSON");
        let now = Timestamp::from_second(second).expect("the test's time is in range");
        let evaluation = evaluate_within(&book, &doc, now, &(), &mut self.budgets)
            .expect("the test's object has a name");
        self.unknown.evaluated(&name.into(), &evaluation);
    }

    /// Returns the number of counted objects, and true if the rule set is throttled.
    fn counted(&mut self) -> (usize, bool) {
        self.unknown.settle();
        let activity = &self.book.rule_sets[0].activity;
        let unknown = activity.unknown();
        (unknown.objects, activity.is_throttled())
    }
}

#[test]
fn lists_are_requested_less_often_each_time() {
    let mut unknown = UnknownObjects::default();
    let mut now = Instant::now();
    assert!(!unknown.wants_list(now, false), "no list is needed");
    let mut waits = Vec::new();
    for _ in 0..8 {
        let mut wait = 0;
        while !unknown.wants_list(now, true) {
            now += Duration::from_secs(1);
            wait += 1;
        }
        waits.push(wait);
    }
    assert_eq!(waits, [0, 10, 20, 40, 80, 160, 300, 300]);
    now += Duration::from_mins(10);
    assert!(unknown.wants_list(now, true));
    now += MIN_INTERVAL;
    let is_short = unknown.wants_list(now, true);
    assert!(is_short, "the interval is short again");
}

#[test]
fn objects_beyond_the_limit_are_counted_until_the_next_list() {
    let mut feed = FeedFixture::new("object.values[0] > 'text'");
    let names: Vec<String> = (0..MAX_OBJECTS + 5).map(|it| it.to_string()).collect();
    feed.unknown.begin_list();
    for name in &names {
        feed.evaluate(name, 1, 0);
    }
    feed.unknown.synced();
    assert_eq!(
        feed.counted().0,
        MAX_OBJECTS + 1,
        "further objects must count as one"
    );
    let rule_set = feed.book.rule_sets[0].clone();
    assert!(rule_set.activity.unknown().has_more);
    for name in &names {
        feed.evaluate(name, 0, 1);
    }
    let objects = rule_set.activity.unknown().objects;
    assert_eq!(objects, MAX_OBJECTS + 1, "the results have not been sent");
    assert_eq!(
        feed.counted().0,
        1,
        "without a list, it is unknown whether further objects still fail"
    );
    assert!(feed.unknown.wants_list(Instant::now(), false));
    feed.unknown.begin_list();
    feed.unknown.synced();
    assert_eq!(feed.counted().0, 0);
}

#[test]
fn a_rule_set_that_always_fails_prevents_no_relist_for_another_rule_set() {
    // The first rule set fails on each object with a value. The second one fails only on
    // objects with two values.
    let mut feed = FeedFixture::new_with(&[
        "size(object.values) > 0 && object.values[0] > 'text'",
        "size(object.values) > 1 && object.values[1] > 'text'",
    ]);
    let unknown = |feed: &mut FeedFixture, index: usize| {
        feed.unknown.settle();
        let activity = &feed.book.rule_sets[index].activity;
        activity.unknown().objects
    };
    let names: Vec<String> = (0..=MAX_OBJECTS).map(|it| it.to_string()).collect();
    feed.unknown.begin_list();
    for name in &names {
        feed.evaluate(name, 1, 0);
    }
    feed.unknown.synced();
    let now = Instant::now();
    assert!(
        !feed.unknown.wants_list(now, false),
        "the second never failed"
    );
    feed.evaluate("last", 2, 1);
    feed.evaluate("last", 1, 2);
    assert_eq!(
        (unknown(&mut feed, 0), unknown(&mut feed, 1)),
        (MAX_OBJECTS + 1, 1)
    );
    assert!(feed.unknown.wants_list(now, false));
    assert!(
        !feed.unknown.wants_list(now, false),
        "the last list is recent"
    );
    feed.unknown.begin_list();
    for name in names.iter().map(String::as_str).chain(["last"]) {
        feed.evaluate(name, 1, 3);
    }
    feed.unknown.synced();
    assert_eq!(
        (unknown(&mut feed, 0), unknown(&mut feed, 1)),
        (MAX_OBJECTS + 1, 0)
    );
    assert!(!feed.unknown.wants_list(now + MAX_INTERVAL, false));
}

#[test]
fn dropping_the_feed_removes_its_counts() {
    let mut feed = FeedFixture::new("true");
    feed.use_time(0);
    for name in 0..MAX_OBJECTS + 5 {
        feed.evaluate(&name.to_string(), 1, 0);
    }
    assert_eq!(feed.counted(), (MAX_OBJECTS + 1, true));
    let book = feed.book.clone();
    drop(feed);
    let activity = &book.rule_sets[0].activity;
    assert_eq!(activity.unknown().objects, 0);
}
