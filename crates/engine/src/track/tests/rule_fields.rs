//! Tests of the fields of a rule set, in particular of `labelSelector`.

use super::*;
use crate::detect;
use ifo_api::schema;
use serde_json::json;
use std::path::Path;

#[test]
fn an_object_missing_from_a_selected_list_is_looked_up_before_its_operations_end() {
    let mut fixture = fixture_with_rule_set(
        "labelSelector: {matchLabels: {tier: web}}\nrules:\n- {operation: Moving, expression: 'true'}",
    );
    fixture.apply_object(json!({"metadata": {"labels": {"tier": "web"}}}));
    fixture.send_event(FeedEvent::Reset);
    let (sender, mut answer) = tokio::sync::oneshot::channel();
    fixture.send_event(FeedEvent::Synced {
        missing: Some(sender),
    });
    let missing = answer
        .try_recv()
        .expect("the tracker must send the missing subjects");
    assert_eq!(missing.len(), 1);
    assert_eq!(
        fixture.only_operation().status.state,
        State::Progressing,
        "the operation must stay until the object has been looked up"
    );
    let evaluation = detect::unselected(&fixture.book, missing[0].clone());
    fixture.send_event(FeedEvent::Evaluated {
        evaluation: Box::new(evaluation),
        read: Instant::now(),
    });
    fixture.advance(DEBOUNCE);
    let changes = fixture.described_changes();
    assert!(changes.ends_with("~Moving Ended SelectorLeft, -Moving"));
}

#[test]
fn a_deletion_that_the_feed_must_check_does_not_end_operations() {
    let mut fixture = fixture();
    fixture.evaluate_vm(&["Migrating"]);
    let mut delete = |name: &str| {
        let (sender, mut answer) = tokio::sync::oneshot::channel();
        fixture.send_event(FeedEvent::Deleted {
            subject: subject(name),
            read: Instant::now(),
            missing: Some(sender),
        });
        answer.try_recv().ok()
    };
    assert_eq!(delete("vm"), Some(vec![subject("vm")]));
    assert_eq!(delete("other"), None, "it has no operations");
    let state = fixture.only_operation().status.state;
    assert_eq!(state, State::Progressing);
}

/// A value could be lost without an error of the compiler, for example in a restart.
#[test]
fn each_field_of_a_rule_is_in_a_scenario() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/track/tests/scenarios");
    let files = std::fs::read_dir(folder).expect("the folder can be read");
    let texts = files.map(|file| std::fs::read_to_string(file.expect("it is a file").path()));
    let texts: Result<Vec<String>, _> = texts.collect();
    let texts = texts.expect("the files can be read").concat();
    let schema = schema::rule_set();
    let rules = &schema["properties"]["spec"]["properties"]["rules"];
    let fields = rules["items"]["properties"].as_object();
    let is_missing = |field: &&String| {
        let is_set = |start: &str| texts.contains(&format!("{start}{field}: "));
        !is_set("{") && !is_set(" ")
    };
    let fields = fields.expect("the rules have fields").keys();
    let missing: Vec<&String> = fields.filter(is_missing).collect();
    assert!(missing.is_empty(), "no scenario has {missing:?}");
}
