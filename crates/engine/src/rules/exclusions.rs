//! Finds out which fields of an object a rule needs, and which fields it reads only to exclude
//! objects. For example, `object.a && !object.b` reads `b` only to exclude objects. If `b` is absent,
//! the object should match, but the evaluation fails and the rule misses the object.

use super::RuleSetError;
use ifo_api::ruleset::{OperationRuleSetSpec, Rule};
use ifo_cel::{CompileError, NameOrigins, NamedField, PathStep, fields};

/// The fields that an expression of a rule reads, directly or through variables.
#[derive(Debug, Default)]
pub struct RuleReads(Vec<Read>);

/// One read of a field.
#[derive(Debug)]
struct Read {
    /// The expression that contains the read, such as `variables[ready].expression`.
    expression: String,
    source: String,
    field: NamedField,
}

/// Reads that are left to follow: the name and source of an expression, and whether the result of
/// the expression excludes objects.
type Pending = (String, String, bool);

impl RuleReads {
    /// Returns the reads of the rule's `expression` and `forEach`.
    pub fn of(spec: &OperationRuleSetSpec, rule: &Rule) -> Self {
        let mut origins = NameOrigins::default();
        for variable in &spec.variables {
            let origin = fields(&variable.expression, &origins).unwrap_or_default();
            let name = variable.name.clone();
            origins.variables.push((name, origin.origin));
        }
        let name = |field: &str| format!("rules[{}].{field}", rule.operation);
        let mut pending: Vec<Pending> = Vec::new();
        if let Some(list) = &rule.for_each {
            let read = fields(list, &origins).unwrap_or_default();
            origins.item = read.origin.elements();
            pending.push((name("forEach"), list.clone(), false));
        }
        pending.push((name("expression"), rule.expression.clone(), false));
        let (mut reads, mut followed) = (Vec::new(), Vec::new());
        while let Some(next) = pending.pop() {
            if followed.contains(&next) {
                continue;
            }
            let (expression, source, is_exclusion) = &next;
            let found = fields(source, &origins).unwrap_or_default();
            reads.extend(found.named.into_iter().map(|mut field| {
                field.is_exclusion ^= is_exclusion;
                Read {
                    expression: expression.clone(),
                    source: source.clone(),
                    field,
                }
            }));
            for used in found.variables {
                let mut variables = spec.variables.iter();
                if let Some(variable) = variables.find(|it| it.name == used.name) {
                    pending.push((
                        format!("variables[{}].expression", used.name),
                        variable.expression.clone(),
                        used.is_exclusion != *is_exclusion,
                    ));
                }
            }
            followed.push(next);
        }
        Self(reads)
    }

    /// Returns true if the rule needs the value at `path`, or a part of this value. If the value is
    /// absent, the rule may therefore be false.
    pub fn needs(&self, path: &[PathStep]) -> bool {
        let reads = self.0.iter();
        let mut needed = reads.filter(|read| !read.field.is_exclusion);
        needed.any(|read| is_prefix(path, &read.field.path))
    }

    fn is_guarded(&self, path: &[PathStep]) -> bool {
        self.0.iter().any(|read| {
            let field = &read.field;
            field.is_guarded && field.path.len() == path.len() && is_prefix(path, &field.path)
        })
    }

    /// Returns a warning for each field that may be absent, and that the rule reads only to exclude
    /// objects. There is no warning if the rule reads all fields only to exclude, as in
    /// `object.status.ready == false`. Its author probably expects the field to be present.
    pub(super) fn warnings(&self) -> Vec<RuleSetError> {
        if self.0.iter().all(|read| read.field.is_exclusion) {
            return Vec::new();
        }
        let reads = self.0.iter();
        let excluding = reads.filter(|read| {
            let field = &read.field;
            field.is_exclusion
                && !field.is_guarded
                && !is_always_present(&field.path)
                && !self.needs(&field.path)
                && !self.is_guarded(&field.path)
        });
        let excluding: Vec<&Read> = excluding.collect();
        // For `object.status.phase`, a warning about `status.phase` is enough.
        let is_part = |read: &&&Read| {
            !excluding.iter().any(|other| {
                other.field.path.len() == read.field.path.len() + 1
                    && matches!(other.field.path.last(), Some(PathStep::Field(_)))
                    && is_prefix(&read.field.path, &other.field.path)
            })
        };
        excluding
            .iter()
            .filter(is_part)
            .map(|read| read.warning())
            .collect()
    }
}

impl Read {
    fn warning(&self) -> RuleSetError {
        let path = shown(&self.field.path);
        RuleSetError::Expression {
            field: self.expression.clone(),
            source_text: self.source.clone(),
            error: CompileError {
                message: format!(
                    "the rule reads {path} only to exclude objects, but it also excludes objects without this field"
                ),
                line: self.field.line,
                column: self.field.column,
                hint: Some(format!(
                    "read the field with `?`, as in {}",
                    with_default(&self.field.path)
                )),
            },
        }
    }
}

/// Returns true if `prefix` is the beginning of `path`. All elements of a list count as the same.
fn is_prefix(prefix: &[PathStep], path: &[PathStep]) -> bool {
    let is_same = |one: &PathStep, other: &PathStep| match (one, other) {
        (PathStep::Field(one), PathStep::Field(other)) => one == other,
        (PathStep::Field(_), _) | (_, PathStep::Field(_)) => false,
        (PathStep::Index | PathStep::Each, PathStep::Index | PathStep::Each) => true,
    };
    prefix.len() <= path.len()
        && prefix
            .iter()
            .zip(path)
            .all(|(one, other)| is_same(one, other))
}

/// Returns true for fields that each object has (apimachinery, `ObjectMeta` and `Condition`).
fn is_always_present(path: &[PathStep]) -> bool {
    let names: Vec<&str> = path
        .iter()
        .map(|step| match step {
            PathStep::Field(name) => name.as_str(),
            PathStep::Index | PathStep::Each => "*",
        })
        .collect();
    match &*names {
        ["metadata" | "spec" | "kind" | "apiVersion"] => true,
        ["metadata", name] => matches!(
            *name,
            "name" | "namespace" | "uid" | "creationTimestamp" | "resourceVersion"
        ),
        [.., "conditions", "*", name] => matches!(*name, "type" | "status"),
        _ => false,
    }
}

/// Returns a path for people, such as `status.conditions[].reason`.
fn shown(path: &[PathStep]) -> String {
    let mut text = String::new();
    for step in path {
        match step {
            PathStep::Field(name) if text.is_empty() => text.push_str(name),
            PathStep::Field(name) => {
                text.push('.');
                text.push_str(name);
            }
            PathStep::Index | PathStep::Each => text.push_str("[]"),
        }
    }
    text
}

/// Returns an expression that reads the path although it may be absent.
fn with_default(path: &[PathStep]) -> String {
    let each = path
        .iter()
        .rposition(|step| !matches!(step, PathStep::Field(_)));
    let (mut text, fields) = match each {
        Some(at) => ("e".to_owned(), &path[at + 1..]),
        None => ("object".to_owned(), path),
    };
    for step in fields {
        if let PathStep::Field(name) = step {
            text.push_str(".?");
            text.push_str(name);
        }
    }
    text + ".orValue(…)"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reads(fields: &str) -> RuleReads {
        let text = format!(
            "component: c\ntarget: {{group: g.io, version: v1, resource: things}}\n\
             variables:\n\
             - {{name: done, expression: \"object.status.done == 'yes'\"}}\n\
             - {{name: busy, expression: \"!variables.done\"}}\n\
             rules:\n- operation: Moving\n  {fields}\n"
        );
        let spec: OperationRuleSetSpec = serde_saphyr::from_str(&text).expect("the YAML is valid");
        RuleReads::of(&spec, &spec.rules[0])
    }

    /// Returns the paths that the warnings name.
    fn warned(fields: &str) -> Vec<String> {
        let warnings = reads(fields).warnings();
        let texts = warnings.iter().map(ToString::to_string);
        let path = |text: String| {
            let (_, rest) = text.split_once("reads ")?;
            Some(rest.split_once(" only")?.0.to_owned())
        };
        texts.filter_map(path).collect()
    }

    #[test]
    fn a_field_that_is_read_only_to_exclude_is_a_warning() {
        for (fields, expected) in [
            (
                "expression: object.a && !object.status.b",
                &["status.b"][..],
            ),
            (
                "expression: object.a && object.status.phase != 'Done'",
                &["status.phase"],
            ),
            ("expression: object.a && variables.busy", &["status.done"]),
            (
                "expression: \"object.a && !object.status.conditions.exists(c, c.type == 'A' && c.reason == 'B')\"",
                &["status.conditions", "status.conditions[].reason"],
            ),
            (
                "forEach: object.list\n  itemKey: item.key\n  expression: item.done == false",
                &["list[].done"],
            ),
        ] {
            assert_eq!(warned(fields), expected, "{fields}");
        }
    }

    #[test]
    fn a_field_that_is_needed_or_guarded_is_no_warning() {
        for fields in [
            "expression: object.a && !object.?status.?b.orValue(false)",
            "expression: object.a && !(has(object.b) && object.b == 'x')",
            "expression: object.phase in ['A', 'B'] && object.phase != 'B'",
            "expression: object.status.n > 0 && !(object.status.n == 7)",
            "expression: \"!has(object.metadata.deletionTimestamp) && object.metadata.name != 'a'\"",
            "expression: \"object.status.conditions.exists(c, c.type == 'A' && c.status == 'True') && !object.status.conditions.exists(c, c.type == 'B' && c.status == 'True')\"",
            "expression: \"!variables.busy\"",
            "expression: object.status.ready == false",
        ] {
            assert_eq!(warned(fields), [""; 0], "{fields}");
        }
    }

    #[test]
    fn a_rule_needs_the_parts_of_what_it_reads() {
        let reads = reads("expression: \"object.status.list.exists(e, e.a == 'x') && !object.b\"");
        let path = |text: &str| -> Vec<PathStep> {
            let steps = text.split('.');
            let step = |name: &str| match name {
                "*" => PathStep::Index,
                name => PathStep::Field(name.to_owned()),
            };
            steps.map(step).collect()
        };
        for (text, expected) in [
            ("status", true),
            ("status.list", true),
            ("status.list.*", true),
            ("status.list.*.a", true),
            ("status.list.*.b", false),
            ("b", false),
        ] {
            assert_eq!(reads.needs(&path(text)), expected, "{text}");
        }
    }
}
