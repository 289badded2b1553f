//! Tests that reported failures contain neither values nor the name of the object. Users who may
//! read the status of a rule set are possibly not allowed to read the object.

use super::*;
use crate::Meter;
use ifo_cel::DocError;
use std::sync::Mutex;

/// A text that every string in the object contains, also the name and the namespace. The only
/// exception is one empty string.
const MARKER: &str = "zqx";

/// The value of every number in the object.
const NUMBER: i64 = 918_273_645;

fn object() -> Value {
    let many: Vec<String> = (0..1_100).map(|at| format!("{MARKER} {at}")).collect();
    json!({
        "metadata": {"name": MARKER, "namespace": MARKER, "labels": {MARKER: MARKER}},
        "text": "zqx is neither CamelCase nor a state", "number": NUMBER, "yes": true,
        "list": [MARKER, MARKER, "", [MARKER]], "twice": [MARKER, MARKER], "many": many,
        "long": MARKER.repeat(500), "map": {MARKER: MARKER}, "pattern": "zqx(",
    })
}

/// Expressions that fail, each with a part of the expected error.
const FAILURES: [(&str, &str); 23] = [
    ("expression: int(object.text) > 1", "conversion"),
    ("expression: object.text", "expected type 'bool'"),
    ("expression: object.text.matches(object.pattern)", "regexp"),
    ("expression: object.list[object.text] == 1", "index type"),
    ("message: object.number", "found 'int'"),
    ("message: string(timestamp(object.text))", "Timestamp"),
    ("reason: object.text", "CamelCase"),
    ("reason: object.long", "CamelCase"),
    ("reason: object.number", "found 'int'"),
    (
        "state: object.text",
        "Progressing, Blocked, Held or Failing",
    ),
    ("state: object.number", "found 'int'"),
    ("progress: object.list", "found 'list'"),
    ("progress: double(object.text)", "conversion"),
    ("startedAt: object.text", "RFC 3339"),
    ("startedAt: object.number", "found 'int'"),
    ("instance: object.long", "253 bytes"),
    ("outcome: object.text", "Succeeded, Failed"),
    ("forEach: object.text", "found 'string'"),
    ("forEach: object.many", "at most 1000"),
    ("forEach: object.list", "253 bytes"),
    ("forEach: [object.yes]", "needs an itemKey"),
    (
        "forEach: object.twice",
        "element 1 has the key of an earlier",
    ),
    ("label: object.list[object.text]", "index type"),
];

/// Returns a rule set in which only the expression in `field` fails. `field` contains the name of
/// the field and the expression, as in [`FAILURES`].
fn rule_set(field: &str) -> String {
    let (name, source) = field
        .split_once(": ")
        .expect("each failure has the form `field: expression`");
    let fields = match name {
        "expression" => format!("expression: \"{source}\""),
        "outcome" => format!("expression: '!object.yes', outcome: \"{source}\""),
        "label" => {
            return format!(
                "labelExpressions:\n- {{key: tier, expression: \"{source}\"}}\n\
                 rules:\n- {{operation: Moving, expression: 'true'}}"
            );
        }
        name => format!("expression: 'true', {name}: \"{source}\""),
    };
    format!("rules:\n- {{operation: Moving, {fields}}}")
}

/// Records the rule set and the operation under which the metrics count each failure.
#[derive(Debug, Default)]
struct FailureMeter(Mutex<Vec<String>>);

impl Meter for FailureMeter {
    fn evaluation_failed(&self, rule_set: &str, operation: &str) {
        let mut counted = self.0.lock().expect("no other thread panicked");
        counted.push(format!("{rule_set} {operation}"));
    }
}

/// Evaluates the object that contains the marker.
fn evaluate_marked_object(book: &RuleBook, meter: &FailureMeter) -> Evaluation {
    let json = object().to_string();
    let doc = Doc::parse(json.as_bytes(), &book.projection).expect("the object is valid JSON");
    let now = "2026-11-21T10:00:00Z".parse().expect("the time is valid");
    evaluate(book, &doc, now, meter).expect("the object has a name")
}

fn assert_no_value(text: &str, field: &str) {
    assert!(!text.contains(MARKER), "{field}: {text}");
    assert!(!text.contains(&NUMBER.to_string()), "{field}: {text}");
}

#[test]
fn no_failure_of_any_field_quotes_a_value_or_names_the_object() {
    for (field, want) in FAILURES {
        let meter = FailureMeter::default();
        let book = book(&[("set", &rule_set(field))]);
        let evaluation = evaluate_marked_object(&book, &meter);
        let errors: Vec<String> = evaluation
            .failures
            .iter()
            .map(|(_, failure)| format!("{}: {}", failure.what, failure.error))
            .collect();
        assert!(
            errors.iter().any(|error| error.contains(want)),
            "{field}: {errors:?}"
        );
        assert_no_value(&format!("{:?}", evaluation.failures), field);
        assert_no_value(&errors.concat(), field);
        let failures = book.rule_sets[0].activity.failures();
        assert!(!failures.is_empty(), "the failure must be stored");
        assert_no_value(&format!("{failures:?}"), field);
        let counted = meter.0.into_inner().expect("no other thread panicked");
        assert!(!counted.is_empty(), "{field}");
        assert_no_value(&counted.concat(), field);
    }
}

#[test]
fn an_undecodable_object_is_not_quoted() {
    let book = book(&[("set", "rules:\n- {operation: Moving, expression: object.a}")]);
    for json in [
        r#"{"metadata": {"name": "zqx"}, "a": zqx}"#,
        r#"{"metadata": {"name": "zqx"}, "a": "zqx"#,
        r#""zqx""#,
        r#"{"metadata": {"name": "zqx"}} zqx"#,
    ] {
        let error: DocError = Doc::parse(json.as_bytes(), &book.projection)
            .map(|_| ())
            .expect_err("invalid JSON must be refused");
        let mut subject = Subject::default();
        subject.reference.name = MARKER.into();
        subject.reference.namespace = Some(MARKER.into());
        let evaluation = undecodable(&book, subject, &error.into(), Timestamp::UNIX_EPOCH, &());
        assert_no_value(&format!("{:?}", evaluation.failures), json);
        let failures = book.rule_sets[0].activity.failures();
        assert!(!failures.is_empty(), "the failure must be stored");
        assert_no_value(&format!("{failures:?}"), json);
    }
}

#[test]
fn at_most_one_failure_a_minute_is_logged_for_each_rule_set() {
    let activity = crate::rules::Activity::default();
    let may_log =
        |second| activity.may_log(Timestamp::from_second(second).expect("the time is valid"));
    let logged: Vec<i64> = (1_000..1_200).filter(|second| may_log(*second)).collect();
    assert_eq!(logged, [1_000, 1_060, 1_120, 1_180]);
}
