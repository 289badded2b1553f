//! Tests which operations, values and failures the evaluation of rules on an object yields.

use super::*;
use crate::rules::{self, compile};
use ifo_api::Gvr;
use ifo_api::Text;
use ifo_api::live::State;
use ifo_cel::Doc;
use serde_json::{Value, json};

mod error_texts;

/// Compiles a rule book. `specs` contains name and YAML of each rule set, without component and
/// target.
fn book(specs: &[(&str, &str)]) -> RuleBook {
    let sets = specs.iter().map(|(name, spec)| {
        let text =
            format!("component: c\ntarget: {{group: g.io, version: v1, resource: things}}\n{spec}");
        let spec = serde_saphyr::from_str(&text).expect("the YAML of the test is a valid spec");
        Arc::new(compile(name, &spec).expect("the rules of the test compile"))
    });
    let target = Gvr {
        group: "g.io".into(),
        version: "v1".into(),
        resource: "things".into(),
    };
    RuleBook::new(1, target, "Thing".into(), true, sets.collect())
}

fn evaluate_object(book: &RuleBook, object: &Value) -> Evaluation {
    let mut object = object.clone();
    object["metadata"]["name"] = "a".into();
    object["metadata"]["namespace"] = "ns".into();
    let json = object.to_string();
    let doc = Doc::parse(json.as_bytes(), &book.projection).expect("the object is valid JSON");
    let now = "2026-11-21T10:00:00Z".parse().expect("the time is valid");
    evaluate(book, &doc, now, &()).expect("the object has a name")
}

/// Otherwise an author who has rights in one namespace could choose the key of a piece of work in
/// another namespace.
#[test]
fn a_rule_set_that_names_its_namespaces_yields_keys_of_the_objects_namespace() {
    let rules = "rules:\n- {operation: A, expression: 'true', work: object.key}";
    let keys_of = |namespaces: &str, key: &str| -> Vec<Option<String>> {
        let book = book(&[("set", &format!("{namespaces}{rules}"))]);
        let evaluation = evaluate_object(&book, &json!({ "key": key }));
        let values = evaluation.findings.into_iter().filter_map(|it| it.values);
        values
            .map(|it| it.shown.work.as_deref().map(str::to_owned))
            .collect()
    };
    let key = "migration/other/web/";
    assert_eq!(keys_of("", key), [Some(key.to_owned())]);
    assert_eq!(
        keys_of("namespaces: [ns, other]\n", key),
        [Some(format!("@ns/{key}"))]
    );
    assert_eq!(keys_of("namespaces: [ns]\n", ""), [None]);
}

/// The clock of the host can be wrong. For example, it can show 1970 after an empty battery.
#[test]
fn an_evaluation_at_any_time_of_day_does_not_panic() {
    let rules = "rules:
- operation: A
  expression: now > timestamp('2000-01-01T00:00:00Z') || now <= timestamp(object.since)
  continueWhile: now.getFullYear() < 5
  outcome: \"now.getDayOfYear('Europe/Berlin') == 1 ? 'Succeeded' : ''\"
  message: string(now) + string(now - timestamp(object.since)) + string(now + duration('1h'))
  reason: \"now.getMilliseconds('-09:30') + now.getDayOfWeek() > 3 ? 'Late' : 'Early'\"
  state: \"now - duration('8760h') < now ? 'Blocked' : 'Failing'\"
  progress: int(now) % 100
  startedAt: now
  instance: string(now.getSeconds())
- operation: B
  expression: object.broken > now
- operation: C
  forEach: object.items
  itemKey: item
  expression: now - timestamp(item) > duration('1h')
  startedAt: timestamp(item)";
    let book = book(&[("set", rules)]);
    let object = json!({
        "metadata": {"name": "a", "namespace": "ns"}, "broken": 1,
        "since": "9999-12-31T23:59:59Z",
        "items": ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999999Z", "2026-01-01T00:00:00Z"],
    });
    let json = object.to_string();
    let doc = Doc::parse(json.as_bytes(), &book.projection).expect("the object is valid JSON");
    let seconds = [-62_135_596_801, -62_135_596_800, -1, 0, 1, 253_402_207_199];
    let seconds = seconds.map(|it| Timestamp::from_second(it).expect("the time is in range"));
    let times = [Timestamp::MIN, Timestamp::MAX, Timestamp::UNIX_EPOCH];
    let mut budgets = RuleSetBudgets::default();
    for now in times.into_iter().chain(seconds) {
        let evaluation = evaluate_within(&book, &doc, now, &(), &mut budgets);
        assert!(evaluation.is_ok(), "{now}");
    }
}

fn evaluate_rule(rules: &str, object: &Value) -> Evaluation {
    evaluate_object(&book(&[("set", &format!("rules:\n- {rules}"))]), object)
}

/// Evaluates one rule, and returns the values of its only finding.
fn values_of(rules: &str, object: &Value) -> RuleValues {
    let mut evaluation = evaluate_rule(rules, object);
    assert_eq!(evaluation.findings.len(), 1, "{evaluation:?}");
    evaluation
        .findings
        .remove(0)
        .values
        .unwrap_or_else(|| panic!("{:?}", evaluation.failures))
}

fn failed_fields(evaluation: &Evaluation) -> Vec<&str> {
    let failures = evaluation.failures.iter();
    failures.map(|(_, failure)| failure.what.as_str()).collect()
}

#[test]
fn a_long_message_is_truncated() {
    let rule = "{operation: Moving, expression: 'true', message: object.text}";
    let values = values_of(rule, &json!({"text": "ü".repeat(5000)}));
    assert_eq!(*values.shown.message, "ü".repeat(1023) + "…");
}

#[test]
fn unprintable_characters_of_an_object_do_not_reach_the_operation() {
    let hostile = "a\u{1b}]0;b\u{7}\u{9b}\u{202e}c\r\n\td";
    let object = json!({
        "metadata": {"name": "a", "ownerReferences": [
            {"apiVersion": hostile, "kind": hostile, "name": hostile, "uid": hostile},
        ]},
        "text": hostile,
    });
    let rule = "{operation: Moving, expression: 'true', message: object.text, work: object.text, \
                instance: object.text, initiator: object.text, forEach: '[object.text]', itemKey: item}";
    let evaluation = evaluate_rule(rule, &object);
    let finding = &evaluation.findings[0];
    let values = finding.values.as_ref().unwrap();
    let safe = "a�]0;b���c \n\td";
    assert_eq!(&*values.shown.message, safe);
    for text in [
        &values.shown.work,
        &values.instance,
        &values.initiator,
        &finding.item,
    ] {
        assert_eq!(text.as_deref(), Some(safe));
    }
    let owner = &evaluation.subject.reference.owner_references[0];
    for text in [&owner.api_version, &owner.kind, &owner.name, &owner.uid] {
        assert_eq!(text, safe);
    }
}

#[test]
fn of_the_nodes_the_first_sixteen_different_printable_names_are_kept() {
    let rules = "nodes: object.nodes\nrules:\n- {operation: A, expression: 'true'}";
    let names: Vec<String> = (0..20).map(|n| format!("node-{n}")).collect();
    let mut all: Vec<String> = ["", "node\u{202e}", "node\u{1b}", &"n".repeat(254)]
        .map(str::to_owned)
        .into();
    all.extend(vec![names[0].clone(); 16]);
    all.extend(names.clone());
    let evaluation = evaluate_object(&book(&[("set", rules)]), &json!({"nodes": all}));
    let values = evaluation.findings[0].values.as_ref().unwrap();
    let nodes: Vec<&str> = values.shown.nodes.iter().map(|name| &**name).collect();
    assert_eq!(nodes, names[..16]);
}

const PARTS: &str = "{operation: Copying, forEach: object.parts, itemKey: item.name, \
    expression: \"item.phase == 'Copying'\", message: \"'part ' + item.name\", \
    outcome: \"item.phase == 'Done' ? 'Succeeded' : ''\"}";

#[test]
fn of_too_many_elements_the_operations_of_those_that_are_not_evaluated_are_unknown() {
    let part =
        |name: usize| json!({"name": name, "phase": if name == 1000 { "Copying" } else { "" }});
    let parts: Vec<Value> = (0..=1000).map(part).collect();
    let evaluation = evaluate_rule(PARTS, &json!({"parts": parts}));
    assert_eq!(items_of(&evaluation), [None]);
    assert_eq!(failed_fields(&evaluation), ["rules[Copying].forEach"]);
}

/// Returns the key of the element of each finding.
fn items_of(evaluation: &Evaluation) -> Vec<Option<&str>> {
    let findings = evaluation.findings.iter();
    findings.map(|finding| finding.item.as_deref()).collect()
}

#[test]
fn beyond_the_bound_on_one_object_no_values_are_computed() {
    let parts = |phase: &str| -> Vec<Value> {
        let part = |key| json!({"name": format!("part-{key}"), "phase": phase});
        (0..600).map(part).collect()
    };
    let evaluation = evaluate_rule(PARTS, &json!({"parts": parts("Copying")}));
    let computed = evaluation.findings.iter().map(|it| it.values.is_some());
    let computed: Vec<bool> = computed.collect();
    assert_eq!(computed.len(), 600, "each detection is reported");
    let most = MAX_OPERATIONS_ON_OBJECT + 1;
    assert!(computed[..most].iter().all(|it| *it));
    assert!(!computed[most..].iter().any(|it| *it));
    assert!(evaluation.unknown.is_empty() && evaluation.failures.is_empty());

    let rule = "{operation: Copying, forEach: object.parts, itemKey: item.name, \
                expression: 'false', outcome: \"'Failed'\", message: item.phase}";
    let evaluation = evaluate_rule(rule, &json!({"parts": parts("Broken")}));
    let outcomes = evaluation.outcomes.iter();
    let texts: Vec<usize> = outcomes.map(|it| it.message.len()).collect();
    assert_eq!(texts.len(), 600);
    assert_eq!(texts.iter().filter(|length| **length > 0).count(), most - 1);
}

#[test]
fn operations_that_only_continue_do_not_use_up_the_bound_for_those_that_start() {
    let rule = "{operation: Copying, forEach: object.parts, itemKey: item.name, \
                expression: item.starts, continueWhile: 'true'}";
    let part = |key: usize| json!({"name": format!("part-{key}"), "starts": key >= 300});
    let parts: Vec<Value> = (0..600).map(part).collect();
    let evaluation = evaluate_rule(rule, &json!({"parts": parts}));
    let values = evaluation.findings.iter();
    let computed = values.filter_map(|it| Some(it.values.as_ref()?.only_continues));
    let starting = computed.filter(|only_continues| !only_continues).count();
    assert_eq!(starting, MAX_OPERATIONS_ON_OBJECT + 1);
}

#[test]
fn equal_messages_on_one_object_share_their_memory() {
    let rule = "{operation: Copying, forEach: object.parts, itemKey: item.name, \
                expression: 'true', message: item.phase}";
    let part = |name: &str, phase: &str| json!({"name": name, "phase": phase});
    let parts = [part("a", "x"), part("b", "y"), part("c", "x")];
    let evaluation = evaluate_rule(rule, &json!({"parts": parts}));
    let values = evaluation
        .findings
        .iter()
        .filter_map(|it| it.values.as_ref());
    let messages: Vec<&Text> = values.map(|values| &values.shown.message).collect();
    assert_eq!(messages.len(), 3);
    assert_eq!(messages[0].as_ptr(), messages[2].as_ptr());
    assert_eq!((&**messages[0], &**messages[1]), ("x", "y"));
}

#[test]
fn an_evaluation_that_reads_now_is_marked_time_dependent() {
    let rule = "{operation: Moving, expression: object.moving, message: string(now)}";
    let reads = |moving| {
        let evaluation = evaluate_rule(rule, &json!({"moving": moving}));
        evaluation.time_dependent.len()
    };
    assert_eq!((reads(true), reads(false)), (1, 0));
}

#[test]
fn valid_states_and_reasons_are_recognized() {
    assert_eq!(rules::parse_state("Failing"), Some(State::Failing));
    assert_eq!(rules::parse_state("Settling"), None);
    assert_eq!(rules::parse_outcome("Ended"), None);
    assert!(rules::is_reason("AtWork2"));
    for not in [
        "",
        "atWork",
        "At Work",
        "At_Work",
        "Ätwork",
        &"A".repeat(200),
    ] {
        assert!(!rules::is_reason(not), "{not}");
    }
}

/// A rule set that exhausts the budget for one object.
const BOUNDLESS: &str = "rules:
- {operation: Endless, expression: 'object.l.all(a, object.l.all(b, object.l.all(c, object.l.all(d, a + b + c + d > 0))))'}";

#[test]
fn a_rule_set_that_exhausts_its_budget_does_not_affect_the_others() {
    let cheap = "rules:\n- {operation: Moving, expression: object.moving}";
    let book = book(&[("a", BOUNDLESS), ("b", BOUNDLESS), ("c", cheap)]);
    let list: Vec<u32> = (1..200).collect();
    let evaluation = evaluate_object(&book, &json!({"moving": true, "l": list}));
    let found = |finding: &Finding| (finding.operation.to_string(), finding.values.is_some());
    let found: Vec<_> = evaluation.findings.iter().map(found).collect();
    let expected = [("Endless", false), ("Endless", false), ("Moving", true)];
    assert_eq!(
        found,
        expected.map(|(name, has_values)| (name.to_owned(), has_values))
    );
    let errors = evaluation
        .failures
        .iter()
        .map(|(_, failure)| failure.error.to_string());
    assert_eq!(
        errors.collect::<Vec<_>>(),
        ["evaluation cost limit exceeded: the rule set may use 33333 of 100000 steps on the object \
          (components: 1, rule sets of this component: 3)"; 2]
    );
}
