//! The timing hash of a rule: a hash of the fields that affect the learned duration of the
//! operation. These fields decide:
//!
//! - when the operation starts and ends
//! - which state it has, because a duration contains only the time in the state `Progressing`
//! - which outcome it has, because durations are learned only from successful runs
//! - which size it has, because a duration is learned for one unit of the size
//!
//! A run is one occurrence of an operation, from its start to its end. If the hash changes,
//! durations of earlier runs can no longer be compared with durations of new runs. So
//! `ifo-apiserver` forgets the usual duration, and learns it again.
//!
//! The hash is computed from the source texts of the expressions. A hash of compiled expressions
//! could change with each release of `ifo-apiserver`. White space and comments of expressions do
//! not change the hash.

use ifo_api::Text;
use ifo_api::labels;
use ifo_api::ruleset::{OperationRuleSetSpec, Rule, Variable};

/// Returns the hash of each rule, in the order of the rules.
pub(super) fn of_rules(spec: &OperationRuleSetSpec) -> Vec<Text> {
    let variables = spec.variables.iter().map(|variable| Variable {
        expression: without_layout(&variable.expression),
        ..variable.clone()
    });
    let variables: Vec<Variable> = variables.collect();
    let rules = spec.rules.iter();
    let hash = |rule: &Rule| {
        let hashed = (&spec.target, &variables, timing_fields(rule));
        let json = serde_json::to_vec(&hashed).expect("rules can always be encoded as JSON");
        labels::hash(&json, 8).into()
    };
    rules.map(hash).collect()
}

/// Returns a copy of `rule` with only the fields that affect the durations of runs. The function
/// names all fields, so that the compiler asks for a decision when a field is added. The expressions in
/// the copy have no white space and no comments ([`without_layout`]).
fn timing_fields(rule: &Rule) -> Rule {
    let normalized = |field: &Option<String>| field.as_deref().map(without_layout);
    Rule {
        expression: without_layout(&rule.expression),
        for_each: normalized(&rule.for_each),
        item_key: normalized(&rule.item_key),
        state: normalized(&rule.state),
        started_at: normalized(&rule.started_at),
        instance: normalized(&rule.instance),
        continue_while: normalized(&rule.continue_while),
        outcome: normalized(&rule.outcome),
        size: normalized(&rule.size),
        message: None,
        outcome_message: None,
        reason: None,
        progress: None,
        work: None,
        debounce: None,
        expected_duration: None,
        stalled_after: None,
        operation: rule.operation.clone(),
        deletes_subject: rule.deletes_subject,
        supersedes: rule.supersedes.clone(),
        appear_after: rule.appear_after.clone(),
        state_after: rule.state_after.clone(),
    }
}

/// Returns a CEL expression without comments and without white space outside of strings. White
/// space or a comment between two words becomes one space. For example, `a  in b == 'x  y' // z`
/// gives `a in b=='x  y'`.
fn without_layout(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    let mut has_gap = false;
    while let Some(c) = rest.chars().next() {
        let length = if c.is_whitespace() {
            has_gap = true;
            rest = &rest[c.len_utf8()..];
            continue;
        } else if rest.starts_with("//") {
            has_gap = true;
            rest = rest.split_once('\n').map_or("", |(_, after)| after);
            continue;
        } else if matches!(c, '"' | '\'') {
            string_length(rest, out.ends_with(['r', 'R']) && !has_gap)
        } else {
            c.len_utf8()
        };
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        if has_gap && is_word(c) && out.ends_with(is_word) {
            out.push(' ');
        }
        has_gap = false;
        out.push_str(&rest[..length]);
        rest = &rest[length..];
    }
    out
}

/// Returns the length in bytes of the string literal at the start of `text`. In a raw string, a
/// backslash does not escape the next character. If the literal has no closing quote, returns the
/// length of `text`.
fn string_length(text: &str, is_raw: bool) -> usize {
    let quote = &text[..1];
    let triple = quote.repeat(3);
    let quote = if text.starts_with(&triple) {
        &triple
    } else {
        quote
    };
    let mut at = quote.len();
    while let Some(c) = text[at..].chars().next() {
        if text[at..].starts_with(quote) {
            return at + quote.len();
        }
        at += c.len_utf8();
        if c == '\\' && !is_raw {
            at += text[at..].chars().next().map_or(0, char::len_utf8);
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layout_outside_of_strings_is_removed() {
        for (source, expected) in [
            ("a  &&\n  b", "a&&b"),
            ("// Why.\n a in b", "a in b"),
            ("a ? 'x  // y' : \"it's  \"", "a?'x  // y':\"it's  \""),
            (r"'a\'  b' + c", r"'a\'  b'+c"),
            (r"r'\' + '  '", r"r'\'+'  '"),
            ("'''a 'b'  c''' + d", "'''a 'b'  c'''+d"),
            ("'open  ", "'open  "),
            ("x\u{a0}y é", "x y é"),
        ] {
            assert_eq!(without_layout(source), expected, "{source}");
        }
    }

    #[test]
    fn only_fields_that_affect_durations_change_the_hash() {
        let hashes = |rule: &str| {
            let text = format!(
                "component: a\ntarget: {{group: '', version: v1, resource: pods}}\n\
                 rules: [{{operation: A, {rule}}}]"
            );
            let spec = serde_saphyr::from_str(&text).expect("the YAML is valid");
            of_rules(&spec)
        };
        let first = hashes("expression: \"object.a == 1\"");
        assert_eq!(first, hashes("expression: \"object.a==1 // one\""));
        let with_texts = "expression: \"object.a == 1\", message: \"'m'\", expectedDuration: 5m";
        assert_eq!(first, hashes(with_texts));
        assert_ne!(first, hashes("expression: \"object.a == 2\""));
        assert_ne!(
            first,
            hashes("expression: \"object.a == 1\", size: object.b")
        );
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_the_function_panic(text in "[a-b'\"\\\\ /\n\u{e9}r]{0,30}") {
            proptest::prop_assert!(without_layout(&text).len() <= text.len());
        }
    }
}
