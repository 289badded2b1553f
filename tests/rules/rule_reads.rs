//! Finds out which fields of an object a rule needs. For example, `object.a && !object.b` needs `a`,
//! and reads `b` only to exclude objects.

use ifo_api::ruleset::{OperationRuleSetSpec, Rule};
use ifo_cel::{NameOrigins, NamedField, PathStep, fields};

/// The fields that the `expression` and the `forEach` of a rule read, directly or through variables.
pub struct RuleReads(Vec<NamedField>);

impl RuleReads {
    pub fn of(spec: &OperationRuleSetSpec, rule: &Rule) -> Self {
        let mut origins = NameOrigins::default();
        for variable in &spec.variables {
            let origin = fields(&variable.expression, &origins).unwrap_or_default();
            origins
                .variables
                .push((variable.name.clone(), origin.origin));
        }
        // The source of each expression that is left to follow, and whether its result excludes
        // objects.
        let mut pending = vec![(&*rule.expression, false)];
        if let Some(list) = &rule.for_each {
            let read = fields(list, &origins).unwrap_or_default();
            origins.item = read.origin.elements();
            pending.push((list, false));
        }
        let (mut reads, mut followed) = (Vec::new(), Vec::new());
        while let Some(next) = pending.pop() {
            if followed.contains(&next) {
                continue;
            }
            let (source, is_exclusion) = next;
            let found = fields(source, &origins).unwrap_or_default();
            reads.extend(found.named.into_iter().map(|mut field| {
                field.is_exclusion ^= is_exclusion;
                field
            }));
            for used in found.variables {
                let mut variables = spec.variables.iter();
                if let Some(variable) = variables.find(|it| it.name == used.name) {
                    pending.push((&variable.expression, used.is_exclusion != is_exclusion));
                }
            }
            followed.push(next);
        }
        Self(reads)
    }

    /// Returns true if the rule needs the value at `path`, or a part of this value. If the value is
    /// absent, the rule may therefore be false.
    pub fn needs(&self, path: &[PathStep]) -> bool {
        let mut needed = self.0.iter().filter(|field| !field.is_exclusion);
        needed.any(|field| is_prefix(path, &field.path))
    }
}

/// Returns true if `path` begins with `prefix`. The steps to a list element count as equal.
fn is_prefix(prefix: &[PathStep], path: &[PathStep]) -> bool {
    let is_same = |one: &PathStep, other: &PathStep| match (one, other) {
        (PathStep::Field(one), PathStep::Field(other)) => one == other,
        (PathStep::Field(_), _) | (_, PathStep::Field(_)) => false,
        (PathStep::Index | PathStep::Each, PathStep::Index | PathStep::Each) => true,
    };
    let mut steps = prefix.iter().zip(path);
    prefix.len() <= path.len() && steps.all(|(one, other)| is_same(one, other))
}
