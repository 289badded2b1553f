//! Checks the expressions of a rule set against the schema of its target (the resource that it
//! watches).

use super::super::resource_schemas::SchemaRoot;
use ifo_api::ruleset::OperationRuleSetSpec;
use ifo_cel::{
    Environment, FieldType, NameOrigins, ObjectSchema, PathStep, Program, ResultKind, ValueOrigins,
    compile, compile_with_all_errors, excerpt, fields, is_percentage,
};
use ifo_engine::rules::{elements_without_key, result_kind};

/// Checks the expressions in `spec` against the schema. Returns an error for each field in an
/// expression that no object can have, and for each expression whose types contradict the schema.
/// Returns a warning for a `progress` that is probably a text without a number. Expressions that do
/// not compile without the schema are left out, because their errors are already reported.
pub(super) fn findings(spec: &OperationRuleSetSpec, root: &SchemaRoot<'_>) -> Vec<SchemaFinding> {
    let mut checker = Checker {
        root: *root,
        findings: Vec::new(),
    };
    let mut names = CheckedNames::default();
    for variable in &spec.variables {
        let field = format!("variables[{}].expression", variable.name);
        let kind = ResultKind::Any;
        let (origin, program) = checker.check(&field, &variable.expression, kind, &names);
        names
            .origins
            .variables
            .push((variable.name.clone(), origin));
        names.declare(&variable.name, &variable.expression, program);
    }
    for rule in &spec.rules {
        let field = |name: &str| format!("rules[{}].{name}", rule.operation);
        let mut inner = names.clone();
        if let Some(list) = &rule.for_each {
            let (origin, program) =
                checker.check(&field("forEach"), list, ResultKind::List, &names);
            inner.origins.item = origin.elements();
            let untyped = compile(list, ResultKind::List, &names.untyped);
            inner.untyped = with_item(&names.untyped, untyped.ok().as_ref());
            inner.environment = with_item(&names.environment, program.as_ref());
        }
        if let Some(list) = &rule.for_each
            && rule.item_key.is_none()
            && let key =
                compile_with_all_errors("item", ResultKind::Key, &inner.environment, Some(root))
            && key.is_err()
        {
            checker.add_missing_key(&rule.operation, list);
        }
        for (name, source) in rule.expressions() {
            let (origin, program) = checker.check(&field(name), source, result_kind(name), &inner);
            if name == "progress"
                && let Some(program) = program
            {
                let results = program.possible_results(&inner.environment);
                checker.check_progress(&field(name), source, &origin, results.len() == 1);
            }
        }
    }
    for label in &spec.label_expressions {
        let field = format!("labelExpressions[{}].expression", label.key);
        checker.check(&field, &label.expression, ResultKind::String, &names);
    }
    if let Some(nodes) = &spec.nodes {
        checker.check("nodes", nodes, ResultKind::Strings, &names);
    }
    checker.findings
}

/// A mistake that the check against the schema finds.
#[derive(PartialEq)]
pub(super) struct SchemaFinding {
    /// `error` or `warning`.
    pub(super) kind: &'static str,
    /// The field of the rule set, the position, and the mistake.
    pub(super) text: String,
    /// The lines of the expression that show the position.
    pub(super) excerpt: String,
}

/// Returns `environment` with `item`, which is an element of the result of `list`.
fn with_item(environment: &Environment, list: Option<&Program>) -> Environment {
    match list {
        Some(list) => environment.with_item_of(list),
        None => environment.with_item(),
    }
}

/// The names that an expression can use.
#[derive(Clone, Default)]
struct CheckedNames {
    origins: NameOrigins,
    /// The variables with the types of the schema.
    environment: Environment,
    /// The variables without the types of the schema, as the server compiles them.
    untyped: Environment,
}

impl CheckedNames {
    /// Declares a variable. `program` is None if `source` does not compile with the types of the
    /// schema. Then the variable gets no types of the schema. So expressions that use the variable
    /// do not repeat the error.
    fn declare(&mut self, name: &str, source: &str, program: Option<Program>) {
        // An error of the expression or of the name is already reported.
        if let Ok(untyped) = compile(source, ResultKind::Any, &self.untyped) {
            let typed = program.unwrap_or_else(|| untyped.clone());
            let _ = self.untyped.declare(name, untyped);
            let _ = self.environment.declare(name, typed);
        }
    }
}

/// Checks the expressions of a rule set against the schema of its target (the resource that it
/// watches).
struct Checker<'s> {
    root: SchemaRoot<'s>,
    findings: Vec<SchemaFinding>,
}

impl Checker<'_> {
    /// Checks the expression in a field of the rule set. Returns two values:
    ///
    /// - the places in the object from which the value of the expression can come
    /// - the expression, compiled with the types of the schema; None if these types contradict the
    ///   expression
    fn check(
        &mut self,
        field: &str,
        source: &str,
        kind: ResultKind,
        names: &CheckedNames,
    ) -> (ValueOrigins, Option<Program>) {
        let parsed = fields(source, &names.origins).ok();
        let compiles = compile(source, kind, &names.untyped).is_ok();
        let Some(expression_fields) = parsed.filter(|_| compiles) else {
            return (ValueOrigins::default(), None);
        };
        for used_field in &expression_fields.named {
            // For `object.a.b`, `fields` returns the paths `a` and `a.b`. An unknown `a` must give
            // only one error. So an error is added only for the path `a`, whose last step is the
            // unknown field.
            //
            // This rule also prevents a second error where an expression uses a variable. If the
            // variable `x` has the expression `object.a`, `fields` returns only the path `a.b` for
            // `variables.x.b`. So an unknown `a` is reported only for the variable. In the same
            // way, an unknown field in `forEach` is not reported again for `item`.
            if let Some(unknown) = self.root.first_unknown_field(&used_field.path)
                && unknown.depth + 1 == used_field.path.len()
            {
                self.add(
                    "error",
                    field,
                    source,
                    (used_field.line, used_field.column),
                    &unknown.to_string(),
                );
            }
        }
        let environment = &names.environment;
        let checked = compile_with_all_errors(source, kind, environment, Some(&self.root));
        let checked = checked.map_err(|errors| {
            for error in errors {
                let hint = error.hint.iter().map(|hint| format!(" (hint: {hint})"));
                let text = format!("{}{}", error.message, hint.collect::<String>());
                self.add("error", field, source, (error.line, error.column), &text);
            }
        });
        (expression_fields.origin, checked.ok())
    }

    /// Adds a finding if the schema says that `progress` is a text without a number. `origin` has
    /// the fields from which the progress can come. `is_only_result` is false if the progress can
    /// also come from other parts of the expression. Then the finding is only a warning.
    fn check_progress(
        &mut self,
        field: &str,
        source: &str,
        origin: &ValueOrigins,
        is_only_result: bool,
    ) {
        let texts = origin
            .paths()
            .filter_map(|path| match self.root.type_at(path) {
                FieldType::String { values } => Some((path, values)),
                _ => None,
            });
        let found: Vec<_> = texts
            .filter_map(|(path, values)| progress_text(path, &values))
            .collect();
        for (kind, text) in found {
            let kind = if is_only_result { kind } else { "warning" };
            self.add(kind, field, source, (1, 1), &text);
        }
    }

    /// Adds the error for a rule without `itemKey` whose elements cannot be keys.
    fn add_missing_key(&mut self, operation: &str, list: &str) {
        let error = elements_without_key(operation, list);
        self.findings.push(SchemaFinding {
            kind: "error",
            text: error.to_string(),
            excerpt: error.excerpt().unwrap_or_default(),
        });
    }

    fn add(
        &mut self,
        kind: &'static str,
        field: &str,
        source: &str,
        (line, column): (usize, usize),
        what: &str,
    ) {
        let finding = SchemaFinding {
            kind,
            text: format!("{field}: {line}:{column}: {what}"),
            excerpt: excerpt(source, line, column),
        };
        if !self.findings.contains(&finding) {
            self.findings.push(finding);
        }
    }
}

/// Returns the kind and the text of the finding for a `progress` that comes from the string field
/// at `path`. `values` has the possible strings. It is empty if all strings are possible.
fn progress_text(path: &[PathStep], values: &[String]) -> Option<(&'static str, String)> {
    let name = path.iter().rev().find_map(|step| match step {
        PathStep::Field(name) => Some(name.as_str()),
        PathStep::Index | PathStep::Each => None,
    });
    let name = name.unwrap_or("object");
    if values.iter().any(|value| is_percentage(value)) {
        return None;
    }
    if !values.is_empty() {
        let values = values.join(", ");
        let text =
            format!("the field '{name}' is never a number or a percentage, but one of {values}");
        return Some(("error", text));
    }
    let lower = name.to_lowercase();
    let is_progress = ["progress", "percent"]
        .iter()
        .any(|word| lower.contains(word));
    (!is_progress).then(|| {
        let text = format!(
            "the field '{name}' is a text (hint: the progress is known only if the text is a number \
             or a percentage, such as 45.20%)"
        );
        ("warning", text)
    })
}
