//! The rule that detects an operation, as its rule set has it now.

use crate::api_client::ApiClient;
use crate::problem::{Problem, grant};
use crate::source::escape;
use ifo_api::{GROUP, VERSION, ruleset};
use serde_json::Value;

/// The fields of a rule in the order of the output, with their titles.
const FIELDS: [(&str, &str); 15] = [
    ("expression", "Expression"),
    ("continueWhile", "Continues"),
    ("forEach", "For Each"),
    ("itemKey", "Item Key"),
    ("message", "Message"),
    ("reason", "Reason"),
    ("state", "State"),
    ("progress", "Progress"),
    ("startedAt", "Started At"),
    ("instance", "Instance"),
    ("outcome", "Outcome"),
    ("supersedes", "Supersedes"),
    ("debounce", "Debounce"),
    ("appearAfter", "Appear After"),
    ("stateAfter", "State After"),
];

/// A rule.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct DescribedRule {
    /// `group/version/resource` of the target.
    pub(super) target: String,
    /// The status of the rule set in words.
    pub(super) not_ready: Option<String>,
    /// Title and text of each field that is set.
    pub(super) fields: Vec<(&'static str, String)>,
    /// Name and expression of each variable that the rule reads.
    pub(super) variables: Vec<(String, String)>,
}

/// A rule set. The error says why it could not be read.
pub(super) async fn rule_set(server: &ApiClient, name: &str) -> Result<Value, String> {
    let plural = ruleset::PLURAL;
    let path = format!("/apis/{GROUP}/{VERSION}/{plural}/{}", escape(name));
    let resource = format!("{plural}.{GROUP}");
    let rule_set = server.get(&path, &resource, None).await;
    rule_set.map_err(|problem| match problem {
        Problem::Forbidden { user, .. } => {
            let grant = grant(&resource, None, user.as_deref());
            format!("you may not get {resource}; {grant}")
        }
        Problem::NotFound(_) => format!("there is no rule set {name} any more"),
        problem => problem.to_string(),
    })
}

impl DescribedRule {
    /// Finds the rule of `operation` in a rule set. The error says that there is none.
    pub(super) fn of(rule_set: &Value, operation: &str) -> Result<Self, String> {
        let text = |pointer: &str| rule_set.pointer(pointer).and_then(Value::as_str);
        let rules = rule_set.pointer("/spec/rules").and_then(Value::as_array);
        let rule = rules
            .into_iter()
            .flatten()
            .find(|rule| rule["operation"] == operation)
            .ok_or_else(|| format!("the rule set has no rule for {operation} any more"))?;
        let fields: Vec<(&'static str, String)> = FIELDS
            .iter()
            .filter_map(|(field, title)| Some((*title, shown(&rule[*field])?)))
            .collect();
        let target = ["group", "version", "resource"]
            .iter()
            .filter_map(|part| text(&format!("/spec/target/{part}")))
            .filter(|part| !part.is_empty());
        Ok(Self {
            target: target.collect::<Vec<_>>().join("/"),
            not_ready: not_ready(rule_set),
            variables: variables(rule_set, &fields),
            fields,
        })
    }
}

/// Returns a field as text, if it is not empty.
fn shown(field: &Value) -> Option<String> {
    let text = match field {
        Value::String(text) => text.trim().to_owned(),
        Value::Array(items) => {
            let items = items.iter().filter_map(Value::as_str);
            items.collect::<Vec<_>>().join(", ")
        }
        _ => return None,
    };
    (!text.is_empty()).then_some(text)
}

fn not_ready(rule_set: &Value) -> Option<String> {
    let conditions = rule_set.pointer("/status/conditions")?.as_array()?;
    let ready = conditions.iter().find(|it| it["type"] == "Ready")?;
    if ready["status"] == "True" {
        return None;
    }
    let text = |field: &str| ready[field].as_str().unwrap_or_default();
    Some(format!("{}: {}", text("reason"), text("message")))
}

/// Returns the variables that the expressions read, directly or through others, in the order of the
/// rule set. A variable can read only earlier variables.
fn variables(rule_set: &Value, fields: &[(&str, String)]) -> Vec<(String, String)> {
    let all = rule_set
        .pointer("/spec/variables")
        .and_then(Value::as_array);
    let mut read: Vec<String> = fields.iter().map(|(_, text)| text.clone()).collect();
    let mut found = Vec::new();
    for variable in all.into_iter().flatten().rev() {
        if let (Some(name), Some(expression)) = (
            variable["name"].as_str(),
            variable["expression"].as_str().map(str::trim),
        ) && read.iter().any(|text| reads(text, name))
        {
            read.push(expression.to_owned());
            found.push((name.to_owned(), expression.to_owned()));
        }
    }
    found.reverse();
    found
}

/// Returns true if the expression contains `variables.name`.
fn reads(expression: &str, name: &str) -> bool {
    expression.split("variables.").skip(1).any(|rest| {
        rest.strip_prefix(name)
            .is_some_and(|after| !after.starts_with(|c: char| c.is_alphanumeric() || c == '_'))
    })
}
