//! Finds the rule that detects an operation, for the command `describe`. The rule is in an
//! OperationRuleSet, which this module reads from the cluster.

use crate::api_client::ApiClient;
use crate::operation_source::escape;
use crate::problem::{Problem, grant_advice};
use ifo_api::{GROUP, VERSION, ruleset};
use serde_json::Value;

/// A rule in the form in which `describe` prints it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct DescribedRule {
    /// The target of the rule set (the resource that it watches), as `group/version/resource`.
    pub(super) target: String,
    /// Reason and message of the condition `Ready`. None if the rule set is ready or has no such
    /// condition.
    pub(super) not_ready_reason: Option<String>,
    /// Name and text of each field that is set, `expression` first. Only `operation` is missing,
    /// because `describe` prints the operation elsewhere.
    pub(super) fields: Vec<(String, String)>,
    /// Name and expression of each variable that the rule uses.
    pub(super) variables: Vec<(String, String)>,
}

/// Reads a rule set. If the rule set cannot be read, returns the reason.
pub(super) async fn read_rule_set(server: &ApiClient, name: &str) -> Result<Value, String> {
    let plural = ruleset::PLURAL;
    let path = format!("/apis/{GROUP}/{VERSION}/{plural}/{}", escape(name));
    let resource = format!("{plural}.{GROUP}");
    let rule_set = match &server.from_files {
        Some(files) => files.rule_set(name),
        None => server.get(&path, &resource, None).await,
    };
    rule_set.map_err(|problem| match problem {
        Problem::Forbidden { user, .. } => {
            let advice = grant_advice(&resource, None, user.as_deref());
            format!("you may not get {resource}; {advice}")
        }
        Problem::NotFound(_) => format!("there is no rule set {name} any more"),
        problem => problem.to_string(),
    })
}

impl DescribedRule {
    /// Finds the rule for `operation` in a rule set. If the rule set has no such rule, returns an
    /// error message.
    pub(super) fn of(rule_set: &Value, operation: &str) -> Result<Self, String> {
        let text = |pointer: &str| rule_set.pointer(pointer).and_then(Value::as_str);
        let rules = rule_set.pointer("/spec/rules").and_then(Value::as_array);
        let rule = rules
            .into_iter()
            .flatten()
            .find(|rule| rule["operation"] == operation)
            .ok_or_else(|| format!("the rule set has no rule for {operation} any more"))?;
        let fields = rule.as_object().into_iter().flatten();
        let fields = fields.filter(|(field, _)| *field != "operation");
        let mut fields: Vec<(String, String)> = fields
            .filter_map(|(field, value)| Some((field.clone(), field_text(value)?)))
            .collect();
        fields.sort_by_key(|(field, _)| field != "expression");
        let target = ["group", "version", "resource"]
            .iter()
            .filter_map(|part| text(&format!("/spec/target/{part}")))
            .filter(|part| !part.is_empty());
        Ok(Self {
            target: target.collect::<Vec<_>>().join("/"),
            not_ready_reason: not_ready_reason(rule_set),
            variables: variables(rule_set, &fields),
            fields,
        })
    }
}

/// Returns the text of a field that is a string or a list of strings. None if the field is empty,
/// absent or of another type.
fn field_text(field: &Value) -> Option<String> {
    let text = match field {
        Value::String(text) => text.trim().to_owned(),
        Value::Bool(true) => "true".to_owned(),
        Value::Array(items) => {
            let items = items.iter().filter_map(Value::as_str);
            items.collect::<Vec<_>>().join(", ")
        }
        _ => return None,
    };
    (!text.is_empty()).then_some(text)
}

fn not_ready_reason(rule_set: &Value) -> Option<String> {
    let conditions = rule_set.pointer("/status/conditions")?.as_array()?;
    let ready = conditions.iter().find(|it| it["type"] == "Ready")?;
    if ready["status"] == "True" {
        return None;
    }
    let text = |field: &str| ready[field].as_str().unwrap_or_default();
    Some(format!("{}: {}", text("reason"), text("message")))
}

/// Returns name and expression of each variable that `fields` use directly or through other
/// variables, in the order of the rule set.
///
/// A variable can use only earlier variables. The loop runs from the last variable to the first, so
/// it visits a variable after all expressions that can use this variable.
fn variables(rule_set: &Value, fields: &[(String, String)]) -> Vec<(String, String)> {
    let all = rule_set
        .pointer("/spec/variables")
        .and_then(Value::as_array);
    let mut expressions: Vec<String> = fields.iter().map(|(_, text)| text.clone()).collect();
    let mut found = Vec::new();
    for variable in all.into_iter().flatten().rev() {
        if let (Some(name), Some(expression)) = (
            variable["name"].as_str(),
            variable["expression"].as_str().map(str::trim),
        ) && expressions.iter().any(|text| uses(text, name))
        {
            expressions.push(expression.to_owned());
            found.push((name.to_owned(), expression.to_owned()));
        }
    }
    found.reverse();
    found
}

/// Returns true if the expression uses the variable `name`, as in `variables.name + 1`.
fn uses(expression: &str, name: &str) -> bool {
    expression.split("variables.").skip(1).any(|rest| {
        rest.strip_prefix(name)
            .is_some_and(|after| !after.starts_with(|c: char| c.is_alphanumeric() || c == '_'))
    })
}
