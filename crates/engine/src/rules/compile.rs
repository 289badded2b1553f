//! Compiles the spec of an OperationRuleSet into a [`RuleSet`], or returns the errors in the spec.

#[cfg(test)]
mod tests;

use super::validate::validate;
use super::{Activity, CompiledRule, ForEach, RuleSet};
use super::{fields, lint};
use ifo_api::Text;
use ifo_api::duration;
use ifo_api::ruleset::{self, MAX_LABELS, MAX_RULES, MAX_VARIABLES, OperationRuleSetSpec};
use ifo_cel::{
    CompileError, DeclareError, Environment, ObjectSchema, Program, Projection, ResultKind,
};
use kube::core::Selector;
use std::sync::Arc;
use std::time::Duration;

/// Maximum size of all expressions of a rule set together, in bytes (128 KiB). This maximum is 19
/// times the size of the largest shipped rule set. The memory of a compiled rule set is at most
/// about 50 times the size of its expressions.
pub const MAX_EXPRESSIONS: usize = 128 << 10;

/// Maximum time for which the caller of [`compile_within`] should let a compilation run. An
/// ordinary rule set takes some milliseconds. In a debug build, a rule set of [`MAX_EXPRESSIONS`]
/// bytes takes about two seconds.
pub const MAX_COMPILE_TIME: Duration = Duration::from_secs(5);

/// Maximum number of errors of a rule set. The compiler stops after this number. Each error can
/// contain a copy of its expression, and the server keeps the errors.
pub const MAX_ERRORS: usize = 64;

/// Maximum length of a label selector as text, in bytes. The selector is part of the URL of list
/// and watch requests, and proxies commonly accept URLs of 8 KiB.
const MAX_SELECTOR: usize = 4096;

/// The reason why a rule set cannot be used. The texts are for the author of the rule set.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuleSetError {
    /// An expression does not compile. The text contains the hint of the compiler, if the compiler
    /// gives a hint.
    #[error("{field}: {error}{}", hint_in_parentheses(error))]
    Expression {
        /// Field of the expression, such as `rules[Migrating].expression`.
        field: String,
        /// The text of the expression.
        source_text: String,
        /// Message of the compiler, with line and column.
        error: CompileError,
    },
    /// A field has an error that is not in the code of an expression. In a cluster, the schema of
    /// the CRD already refuses most of these errors. The schema does not check a rule set from a
    /// file.
    #[error("{0}")]
    Spec(String),
}

/// Returns the hint of an error in parentheses, or an empty text if the error has no hint.
fn hint_in_parentheses(error: &CompileError) -> String {
    let hint = error.hint.as_ref();
    hint.map_or_else(String::new, |hint| format!(" (hint: {hint})"))
}

impl RuleSetError {
    /// Creates the error of an expression. `field` is its field, and `source` its text.
    pub(super) fn in_expression(field: String, source: &str, error: CompileError) -> Self {
        Self::Expression {
            field,
            source_text: source.to_owned(),
            error,
        }
    }

    /// Returns two lines: the line of the expression that contains the error, and a line with a
    /// caret below the position of the error. Returns None for an error that is not in an
    /// expression.
    pub fn excerpt(&self) -> Option<String> {
        match self {
            Self::Expression {
                source_text, error, ..
            } => Some(error.excerpt(source_text)),
            Self::Spec(_) => None,
        }
    }
}

/// Compiles a rule set like [`compile_within`], but without a schema and without a time limit.
pub fn compile(name: &str, spec: &OperationRuleSetSpec) -> Result<RuleSet, Vec<RuleSetError>> {
    compile_within(name, spec, None, &|| false)
}

/// Compiles a rule set. Returns up to [`MAX_ERRORS`] errors, not only the first one. But some
/// errors of an expression hide other errors of the same expression. For example, if the syntax is
/// wrong, the types are not checked.
///
/// If `schema` is the schema of the target, the expressions are checked against it. The evaluation
/// does not depend on the schema.
///
/// The compiler calls `is_over` before each expression. If the result is true, the compiler stops,
/// and returns the error that the rule set takes more than [`MAX_COMPILE_TIME`]. The size of each
/// expression is limited, so the next call of `is_over` comes soon.
pub fn compile_within(
    name: &str,
    spec: &OperationRuleSetSpec,
    schema: Option<&dyn ObjectSchema>,
    is_over: &dyn Fn() -> bool,
) -> Result<RuleSet, Vec<RuleSetError>> {
    let size = expression_bytes(spec);
    if size > MAX_EXPRESSIONS {
        let message = format!(
            "the expressions of the rule set have {size} bytes together, more than {MAX_EXPRESSIONS}"
        );
        return Err(vec![RuleSetError::Spec(message)]);
    }
    let mut compiler = Compiler {
        invalid: validate(name, spec),
        schema,
        is_over,
        is_stopped: false,
    };
    let environment = compiler.compile_variables(&spec.variables);
    let rules: Vec<CompiledRule> = spec
        .rules
        .iter()
        .take(MAX_RULES)
        .map(|rule| compiler.compile_rule(rule, spec, &environment))
        .collect();
    let mut label_expressions = Vec::new();
    for label in spec.label_expressions.iter().take(MAX_LABELS) {
        let field = format!("labelExpressions[{}].expression", label.key);
        if let Some(program) =
            compiler.compile_program(&field, &label.expression, ResultKind::String, &environment)
        {
            label_expressions.push((label.key.as_str().into(), program));
        }
    }
    let nodes = spec.nodes.as_ref().and_then(|source| {
        compiler.compile_program("nodes", source, ResultKind::Strings, &environment)
    });
    let selector = compiler.convert_selector(spec);
    let projection = compiler.projection(&rules, &environment, &label_expressions, nodes.as_ref());
    if !compiler.invalid.is_empty() {
        compiler.invalid.truncate(MAX_ERRORS);
        return Err(compiler.invalid);
    }
    let labels = spec.labels.iter();
    let labels = labels.map(|(key, value)| (key.as_str().into(), value.as_str().into()));
    Ok(RuleSet {
        name: name.into(),
        component: spec.component.as_str().into(),
        namespaces: (!spec.namespaces.is_empty())
            .then(|| spec.namespaces.iter().cloned().collect()),
        // A selector without requirements selects every object, like a missing selector.
        selector: selector.filter(|selector| !selector.selects_all()),
        labels: Arc::new(labels.collect()),
        label_expressions,
        nodes,
        environment,
        rules,
        projection,
        activity: Activity::default(),
    })
}

/// Returns the size of all expressions of a rule set together, in bytes.
pub fn expression_bytes(spec: &OperationRuleSetSpec) -> usize {
    lint::expressions(spec)
        .map(|(_, source)| source.len())
        .sum()
}

/// Compiles expressions and collects errors.
struct Compiler<'c> {
    invalid: Vec<RuleSetError>,
    /// The schema of the target. None if the schema is unknown, as in the server.
    schema: Option<&'c dyn ObjectSchema>,
    is_over: &'c dyn Fn() -> bool,
    /// True after `is_over` has returned true.
    is_stopped: bool,
}

impl Compiler<'_> {
    fn refuse(&mut self, message: String) {
        self.invalid.push(RuleSetError::Spec(message));
    }

    /// Returns true if the compiler has time for the expression in `field`, and has found fewer
    /// than [`MAX_ERRORS`] errors.
    fn may_continue(&mut self, field: &str) -> bool {
        if self.is_stopped || self.invalid.len() >= MAX_ERRORS {
            return false;
        }
        if (self.is_over)() {
            self.is_stopped = true;
            let limit = MAX_COMPILE_TIME.as_secs();
            let message = format!("{field}: the rule set takes more than {limit} s to compile");
            self.invalid.insert(0, RuleSetError::Spec(message));
        }
        !self.is_stopped
    }

    fn compile_program(
        &mut self,
        field: &str,
        source: &str,
        kind: ResultKind,
        environment: &Environment,
    ) -> Option<Program> {
        if !self.may_continue(field) {
            return None;
        }
        match ifo_cel::compile_with_all_errors(source, kind, environment, self.schema) {
            Ok(program) => Some(program),
            Err(errors) => {
                let errors = errors.into_iter();
                let of_field = |it| RuleSetError::in_expression(field.to_owned(), source, it);
                self.invalid.extend(errors.map(of_field));
                None
            }
        }
    }

    /// Converts the label selector. Returns None if there is no selector, or if it is invalid.
    fn convert_selector(&mut self, spec: &OperationRuleSetSpec) -> Option<Selector> {
        // `validate` has already reported the errors of a selector that cannot be converted.
        let selector = Selector::try_from(spec.label_selector.clone()?).ok()?;
        let length = selector.to_string().len();
        if length > MAX_SELECTOR {
            self.refuse(format!(
                "labelSelector: the text has {length} bytes, more than {MAX_SELECTOR}"
            ));
        }
        Some(selector)
    }

    /// Compiles the variables in their order, because each variable may use the variables before
    /// it.
    fn compile_variables(&mut self, variables: &[ruleset::Variable]) -> Environment {
        let mut environment = Environment::default();
        for variable in variables.iter().take(MAX_VARIABLES) {
            let field = format!("variables[{}].expression", variable.name);
            let Some(program) =
                self.compile_program(&field, &variable.expression, ResultKind::Any, &environment)
            else {
                continue;
            };
            match environment.declare(&variable.name, program) {
                // `validate` has already reported a name that is declared twice.
                Ok(()) | Err(DeclareError::Twice(_)) => {}
                Err(error) => self.refuse(format!("variables: {error}")),
            }
        }
        environment
    }

    fn compile_rule(
        &mut self,
        rule: &ruleset::Rule,
        spec: &OperationRuleSetSpec,
        environment: &Environment,
    ) -> CompiledRule {
        let field_of = |name: &str| format!("rules[{}].{name}", rule.operation);
        let list = rule.for_each.as_ref().and_then(|source| {
            self.compile_program(&field_of("forEach"), source, ResultKind::List, environment)
        });
        let of_item = match (&rule.for_each, &list) {
            (None, _) => None,
            (Some(_), None) => Some(environment.with_item()),
            (Some(_), Some(list)) => Some(environment.with_item_of(list)),
        };
        let inner = of_item.as_ref().unwrap_or(environment);
        let key = rule
            .for_each
            .as_ref()
            .and_then(|list| self.compile_item_key(rule, list, inner));
        let programs = fields::expressions(rule).filter_map(|(field, source, kind)| {
            let program = self.compile_program(&field_of(field), &source, kind, inner)?;
            Some((field, program))
        });
        let programs = programs.collect();
        // A text that is no duration is an expression. `validate` has already reported texts that
        // are neither.
        let fixed = |text: &Option<String>| text.as_deref().and_then(duration::parse);
        let compiled = CompiledRule {
            operation: rule.operation.as_str().into(),
            for_each: list.zip(key).map(|(list, key)| ForEach { list, key }),
            programs,
            timing_hash: fields::timing_hash(rule, spec),
            deletes_subject: rule.deletes_subject,
            supersedes: rule.supersedes.clone(),
            debounce: fixed(&rule.debounce),
            appear_after: fixed(&rule.appear_after).unwrap_or_default(),
            state_after: fixed(&rule.state_after).unwrap_or_default(),
            expected: fixed(&rule.expected_duration),
            stalled_after: fixed(&rule.stalled_after),
        };
        if compiled.for_each.is_some() && rule.item_key.is_none() {
            self.invalid.extend(lint::missing_item_key(&compiled));
        }
        if self.may_continue(&field_of("state")) {
            let wrong = lint::wrong_results(&compiled, inner, &spec.variables);
            self.invalid.extend(wrong);
        }
        compiled
    }

    /// Compiles the expression that yields the key of each element of `list`. Without `itemKey`,
    /// the key is the element itself, which must be a string or an int.
    fn compile_item_key(
        &mut self,
        rule: &ruleset::Rule,
        list: &str,
        inner: &Environment,
    ) -> Option<Program> {
        if let Some(source) = &rule.item_key {
            let field = format!("rules[{}].itemKey", rule.operation);
            return self.compile_program(&field, source, ResultKind::Key, inner);
        }
        if !self.may_continue(&format!("rules[{}].forEach", rule.operation)) {
            return None;
        }
        let key = ifo_cel::compile_with_all_errors("item", ResultKind::Key, inner, self.schema);
        if key.is_err() {
            let field = format!("rules[{}].forEach", rule.operation);
            let reason = "the elements are neither strings nor ints";
            self.invalid.push(lint::needs_item_key(field, list, reason));
        }
        key.ok()
    }

    /// Returns the field paths that the expressions read.
    fn projection(
        &mut self,
        rules: &[CompiledRule],
        environment: &Environment,
        labels: &[(Text, Program)],
        nodes: Option<&Program>,
    ) -> Projection {
        let mut projection = Projection::default();
        for rule in rules {
            let own = rule.programs.iter().map(|(_, program)| program);
            for program in own.clone() {
                projection.merge(program.projection());
            }
            if let Some(ForEach { list, key }) = &rule.for_each
                && self.may_continue(&format!("rules[{}].forEach", rule.operation))
            {
                let readers = own.chain([key]);
                projection.merge(&list.items_projection(environment, readers));
                projection.merge(key.projection());
            }
        }
        for program in labels.iter().map(|(_, program)| program).chain(nodes) {
            projection.merge(program.projection());
        }
        projection
    }
}
