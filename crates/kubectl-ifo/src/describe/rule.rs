//! Finds the rule that detects an operation in its OperationRuleSet.

use crate::api_client::ApiClient;
use crate::operation_source::escape;
use crate::problem::Problem;
use ifo_api::{GROUP, VERSION, ruleset};
use serde_json::{Value, json};

/// Reads a rule set.
pub(crate) async fn get_rule_set(server: &ApiClient, name: &str) -> Result<Value, Problem> {
    let plural = ruleset::PLURAL;
    let path = format!("/apis/{GROUP}/{VERSION}/{plural}/{}", escape(name));
    server.get(&path).await
}

/// Returns the rule for `operation`, with the variables that it uses, the target of the rule set and
/// the reason why the rule set is not ready. If the rule set has no such rule, returns an error
/// message.
pub(super) fn rule_for(rule_set: &Value, operation: &str) -> Result<Value, String> {
    let items = |pointer: &str| rule_set.pointer(pointer).and_then(Value::as_array);
    let mut rules = items("/spec/rules").into_iter().flatten();
    let rule = rules.find(|rule| rule["operation"] == operation);
    let rule = rule.ok_or_else(|| format!("the rule set has no rule for {operation} any more"))?;
    let mut rule = rule.clone();
    // A variable can use only earlier variables. So the loop visits a variable after all expressions
    // that can use this variable.
    let mut variables = json!({});
    for variable in items("/spec/variables").into_iter().flatten().rev() {
        let name = variable["name"].as_str().unwrap_or_default();
        let used = format!("variables.{name}");
        if rule.to_string().contains(&used) || variables.to_string().contains(&used) {
            variables[name] = variable["expression"].clone();
        }
    }
    rule["variables"] = variables;
    rule["target"] = rule_set["spec"]["target"].clone();
    let mut conditions = items("/status/conditions").into_iter().flatten();
    if let Some(ready) = conditions.find(|it| it["type"] == "Ready" && it["status"] != "True") {
        rule["notReady"] = ready["message"].clone();
    }
    Ok(rule)
}
