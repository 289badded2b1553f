//! Decodes the spec of a rule set. If a field has a wrong type, the other fields are still decoded,
//! so that the user sees all errors at once.

use ifo_api::ruleset::OperationRuleSetSpec;
use serde_json::{Value, json};
use serde_path_to_error::Segment;

/// Maximum number of errors that are reported for one spec.
const MAX_ERRORS: usize = 100;

/// Fields that can have a fixed duration, such as `30s`.
const DURATION_FIELDS: [&str; 5] = [
    "debounce",
    "appearAfter",
    "stateAfter",
    "expectedDuration",
    "stalledAfter",
];

/// Returns the decoded spec, and the errors of decoding it. In a spec with errors, each wrong value
/// is replaced by a valid value, so that the rest of the spec can be checked. None if the spec
/// cannot be decoded even with such replacements.
pub(super) fn decode(spec: &Value) -> (Option<OperationRuleSetSpec>, Vec<String>) {
    if spec.is_null() {
        return (None, vec!["the field `spec` is missing".to_owned()]);
    }
    let mut repaired = spec.clone();
    let mut errors = Vec::new();
    while errors.len() < MAX_ERRORS {
        let decoded = serde_path_to_error::deserialize::<_, OperationRuleSetSpec>(&repaired);
        let error = match decoded {
            Ok(decoded) => return (Some(decoded), errors),
            Err(error) => error,
        };
        let why = error.inner().to_string();
        errors.push(error_text(spec, error.path(), &why));
        let segments: Vec<&Segment> = error.path().iter().collect();
        if repair(&mut repaired, &segments, &why).is_none() {
            break;
        }
    }
    (None, errors)
}

/// Replaces the value at the path `segments` by a value that can be decoded. `why` is the error of
/// the decoder. Returns None if this is not possible.
fn repair(spec: &mut Value, segments: &[&Segment], why: &str) -> Option<()> {
    let Some((last, outer)) = segments.split_last() else {
        return add_missing_field(spec, "", why);
    };
    let mut parent = spec;
    for segment in outer {
        parent = match segment {
            Segment::Seq { index } => parent.get_mut(index)?,
            Segment::Map { key } => parent.get_mut(key)?,
            Segment::Enum { .. } | Segment::Unknown => return None,
        };
    }
    let (value, position) = match last {
        Segment::Seq { index } => (parent.get_mut(index)?, index.to_string()),
        Segment::Map { key } => (parent.get_mut(key)?, String::new()),
        Segment::Enum { .. } | Segment::Unknown => return None,
    };
    if why.starts_with("missing field ") {
        return add_missing_field(value, &position, why);
    }
    if why.ends_with("expected a string") {
        *value = match &*value {
            scalar @ (Value::Bool(_) | Value::Number(_)) => scalar.to_string().into(),
            // The text is a valid expression, and a valid name.
            _ => "true".into(),
        };
    } else if why.ends_with("expected a sequence") && !value.is_null() {
        *value = json!([value.take()]);
    } else if let Segment::Map { key } = last {
        parent.as_object_mut()?.remove(key)?;
    } else {
        return None;
    }
    Some(())
}

/// Adds the field that `why` names to `value`. `position` is the index of `value` in its list.
fn add_missing_field(value: &mut Value, position: &str, why: &str) -> Option<()> {
    let field = why.strip_prefix("missing field `")?.strip_suffix('`')?;
    let added = match field {
        "target" => json!({"group": "", "version": "v1", "resource": "pods"}),
        "rules" => json!([{"operation": "0", "expression": "true"}]),
        // The errors of a rule without a name then begin with the index of the rule.
        "operation" => position.into(),
        "name" => format!("variable{position}").into(),
        _ => "true".into(),
    };
    value.as_object_mut()?.insert(field.to_owned(), added);
    Some(())
}

/// Returns the text of an error of the decoder, with the path of the field in `spec`.
fn error_text(spec: &Value, path: &serde_path_to_error::Path, why: &str) -> String {
    let (path, value) = named_path(spec, path);
    let path = if path.is_empty() { "spec" } else { &path };
    // Without quotes, YAML reads some texts as another type. For example, the value of `expression:
    // true` is a boolean.
    let value = value.filter(|_| why.ends_with("expected a string"));
    let is_duration = DURATION_FIELDS.iter().any(|field| path.ends_with(field));
    let (kind, hint) = match value {
        Some(Value::Bool(_)) => (
            "a boolean",
            "put quotes around the text: YAML reads true, on and yes as true, and false, off and no \
             as false"
                .to_owned(),
        ),
        Some(Value::Number(number)) if is_duration => (
            "a number",
            format!("write the duration with its unit, such as {number}s"),
        ),
        Some(Value::Number(_)) => ("a number", "put quotes around the text".to_owned()),
        Some(Value::Null) => (
            "empty",
            "an expression that begins with `!` or `&` needs quotes, because these characters have \
             a meaning in YAML. Write \"\" for an empty text"
                .to_owned(),
        ),
        Some(Value::Array(_)) => (
            "a YAML list",
            "put quotes around the whole text".to_owned(),
        ),
        Some(Value::Object(_)) => ("a YAML map", "put quotes around the whole text".to_owned()),
        Some(Value::String(_)) | None => {
            // serde calls a list a sequence.
            let why = why.replace("sequence", "list");
            return format!("{path}: {why}");
        }
    };
    format!("{path} is {kind}, not a string (hint: {hint})")
}

/// Returns the text of a path in `spec`, and the value at this path. The value is None if the path
/// does not exist.
///
/// As in other errors, the text names a rule by its operation: `rules[Migrating]`. The elements of
/// other lists are named by their field `name` or `key`. An element without these fields is named
/// by its index.
fn named_path<'a>(
    spec: &'a Value,
    path: &serde_path_to_error::Path,
) -> (String, Option<&'a Value>) {
    let mut text = String::new();
    let mut at = Some(spec);
    for segment in path {
        match segment {
            Segment::Seq { index } => {
                at = at.and_then(|it| it.get(index));
                let name = ["operation", "name", "key"]
                    .iter()
                    .find_map(|key| at?.get(key)?.as_str());
                let name = name.map_or_else(|| index.to_string(), str::to_owned);
                text.extend(["[", &name, "]"]);
            }
            Segment::Map { key } => {
                at = at.and_then(|it| it.get(key));
                if !text.is_empty() {
                    text.push('.');
                }
                text += key;
            }
            Segment::Enum { .. } | Segment::Unknown => {}
        }
    }
    (text, at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_errors_of_a_spec_are_reported() {
        let spec = json!({
            "component": 7,
            "target": {"group": "g.io", "version": "v1"},
            "variables": [{"name": true, "expression": "object.a"}],
            "rules": [
                {"operation": "A", "expression": true, "debounce": 10, "supersedes": "B"},
                {"operation": "B", "stalledAfter": 1.5, "message": ["a"]},
                {"expression": null},
            ],
        });
        let (decoded, errors) = decode(&spec);
        let expected = [
            "component is a number, not a string (hint: put quotes",
            "target: missing field `resource`",
            "variables[0].name is a boolean",
            "rules[A].expression is a boolean",
            "rules[A].debounce is a number, not a string (hint: write the duration with its unit, such as 10s)",
            "rules[A].supersedes: invalid type: string \"B\", expected a list",
            "rules[B].stalledAfter is a number, not a string (hint: write the duration with its unit, such as 1.5s)",
            "rules[B].message is a YAML list",
            "rules[B]: missing field `expression`",
            "rules[2].expression is empty",
            "rules[2]: missing field `operation`",
        ];
        for expected in expected {
            let found = errors.iter().any(|error| error.starts_with(expected));
            assert!(found, "{expected}: {errors:#?}");
        }
        assert_eq!(errors.len(), expected.len(), "{errors:#?}");
        let decoded = decoded.expect("the rest of the spec can be decoded");
        assert_eq!(decoded.rules[0].supersedes, ["B"]);
        assert_eq!(decoded.rules[2].operation, "2");
    }

    #[test]
    fn a_spec_that_is_no_map_has_one_error() {
        for spec in [json!(null), json!("text"), json!(7)] {
            let (decoded, errors) = decode(&spec);
            assert_eq!((decoded, errors.len()), (None, 1), "{spec}");
        }
    }
}
