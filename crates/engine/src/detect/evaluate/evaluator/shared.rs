//! Evaluates the labels and the nodes of a rule set, which all its operations on one object share.

use super::{CurrentRule, MAX_IDENTITY, Nodes, ObjectEvaluator};
use ifo_api::metadata::Labels;
use ifo_api::{Text, is_unprintable, labels};
use ifo_cel::EvaluationFault;
use std::sync::Arc;

/// Maximum number of different nodes of one operation. Further nodes are left out.
const MAX_NODES: usize = 16;

/// The labels and nodes that all operations of one rule set on one object share. They are computed
/// when the first rule of the rule set detects or continues an operation on the object. Until then,
/// the value is None.
pub(super) type SharedValues = Option<(Arc<Labels>, Nodes)>;

impl ObjectEvaluator<'_, '_> {
    /// Returns the shared values. Evaluates them if `shared` does not contain them yet.
    pub(super) fn shared_values(
        &mut self,
        current: CurrentRule<'_>,
        shared: &mut SharedValues,
    ) -> (Arc<Labels>, Nodes) {
        let values = shared.get_or_insert_with(|| {
            // Labels and nodes belong to the rule set, so their expressions cannot read the current
            // element.
            let item = self.scope.set_item(None);
            let values = (self.evaluate_labels(current), self.evaluate_nodes(current));
            self.scope.set_item(item);
            values
        });
        values.clone()
    }

    /// Returns the fixed and the computed labels of the rule set. If a fixed and a computed label
    /// have the same key, the fixed label is used. A computed label is left out if its expression
    /// fails or reads a missing field of the object. Only a failure is reported.
    fn evaluate_labels(&mut self, current: CurrentRule<'_>) -> Arc<Labels> {
        if current.rule_set.label_expressions.is_empty() {
            return current.rule_set.labels.clone();
        }
        let mut all = (*current.rule_set.labels).clone();
        for (key, program) in &current.rule_set.label_expressions {
            if all.contains_key(key) {
                continue;
            }
            match program.text(&mut self.scope) {
                Ok(value) => {
                    all.insert(key.clone(), labels::to_value(&value).into());
                }
                Err(EvaluationFault::Missing(_)) => {}
                Err(failure) => {
                    let field = format!("labelExpressions[{key}]");
                    self.report_failure(current.rule_set, key, field, failure.into());
                }
            }
        }
        Arc::new(all)
    }

    /// Evaluates the nodes of the rule set. Returns no nodes if the rule set has no expression for
    /// nodes, or if the evaluation fails.
    fn evaluate_nodes(&mut self, current: CurrentRule<'_>) -> Nodes {
        let Some(program) = &current.rule_set.nodes else {
            return Nodes::default();
        };
        match program.strings::<Text>(&mut self.scope) {
            Ok(yielded) => {
                let is_name = |name: &str| {
                    !name.is_empty() && name.len() <= MAX_IDENTITY && !name.contains(is_unprintable)
                };
                let mut nodes = Vec::new();
                for name in yielded {
                    if nodes.len() < MAX_NODES && is_name(&name) && !nodes.contains(&name) {
                        nodes.push(name);
                    }
                }
                nodes.into()
            }
            Err(EvaluationFault::Missing(_)) => Nodes::default(),
            Err(failure) => {
                let field = "nodes".to_owned();
                self.report_failure(current.rule_set, "nodes", field, failure.into());
                Nodes::default()
            }
        }
    }
}
