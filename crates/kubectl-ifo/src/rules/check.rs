//! `kubectl ifo rules check`: compiles rule sets, and reports the errors that the server would
//! report. If the user gives the schemas of the watched resources, the command also checks the
//! expressions against these schemas. The command then also reports fields that no object can have,
//! and types that contradict the schema. The server reports no such errors, because it does not
//! check expressions against schemas.

use super::input_files::{FoundObject, Input};
use super::resource_schemas::{SchemaRoot, Schemas};
use super::rule_sets::{self, CompiledRuleSet};
use crate::connect::Connect;
use crate::output::{complain, print, print_excerpt};
use crate::problem::Problem;
use ifo_api::ruleset::{KIND, PLURAL};
use ifo_api::{Gvr, generate_crds};
use ifo_cel::{
    Environment, NameOrigins, PathStep, Program, ResultKind, ValueOrigins, compile,
    compile_with_schema, excerpt, fields,
};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::PathBuf;

/// The arguments of `rules check`.
#[derive(Debug, clap::Args)]
// `--schema` takes all arguments up to the next flag. So the usage shows the rule sets before
// `--schema`.
#[command(override_usage = "kubectl ifo rules check [OPTIONS] <FILE|DIR>... [--schema <FILE>...]")]
#[command(after_help = "\
Examples:
  kubectl ifo rules check my-rules.yaml
  kubectl ifo rules check rules/ --schema crds.yaml
  kubectl ifo rules check my-rules.yaml --cluster --context production")]
// In this command, `--cluster` reads schemas from the current cluster. The flag that kubectl calls
// `--cluster` has the name `--kubeconfig-cluster`. The help hides the flags for namespaces, which
// have no effect, and `--from`, whose files contain no schemas.
#[command(mut_arg("cluster", |it| it.long("kubeconfig-cluster")))]
#[command(mut_arg("namespace", |it| it.hide(true)))]
#[command(mut_arg("all_namespaces", |it| it.hide(true)))]
#[command(mut_arg("from", |it| it.hide(true)))]
pub(crate) struct RulesCheckArgs {
    /// OperationRuleSets: files, folders (read as `kubectl apply -k` if they have a
    /// kustomization.yaml), `-` for standard input; other kinds are ignored
    #[arg(required = true, value_name = "FILE|DIR")]
    files: Vec<PathBuf>,
    /// CustomResourceDefinitions or OpenAPI documents, against which the fields in expressions and
    /// their types are checked
    #[arg(long, num_args = 1.., value_name = "FILE")]
    schema: Vec<PathBuf>,
    /// Check the fields in expressions and their types against the OpenAPI schemas of the current
    /// cluster
    #[arg(id = "ask_cluster", long = "cluster")]
    cluster: bool,
    #[command(flatten)]
    connect: Connect,
}

/// Prints a line for each correct rule set, and all errors in the other rule sets. Returns true if
/// there are no errors.
pub(super) fn run(args: &RulesCheckArgs) -> Result<bool, Problem> {
    let mut input = Input::read(&args.files);
    let loaded = rule_sets::load(&mut input);
    let (mut schemas, faults) = Schemas::read(&args.schema);
    let mut is_correct = faults.is_empty();
    for fault in &faults {
        complain("error", fault);
    }
    if args.cluster {
        let targets: BTreeSet<Gvr> = loaded.iter().map(CompiledRuleSet::target).collect();
        if let Err(why) = schemas.read_from_cluster(&targets, &args.connect) {
            complain("error", format!("the cluster: {why}"));
            is_correct = false;
        }
    }
    is_correct &= input.report();
    let unknown_fields = unknown_rule_set_fields(&input);
    for problem in &unknown_fields {
        is_correct = false;
        complain("error", problem);
    }
    let warnings = rule_sets::unknown_superseded(&loaded);
    for warning in warnings
        .iter()
        .chain(&rule_sets::limits_that_never_apply(&loaded))
    {
        complain("warning", warning);
    }
    for rule_set in &loaded {
        let location = format!("{}: {}", rule_set.source, rule_set.name);
        let target = rule_set.target();
        let root = schemas.find(&target);
        if root.is_none()
            && let Some(plural) = schemas.plural_of(&target)
        {
            is_correct = false;
            let resource = &target.resource;
            complain(
                "error",
                format!(
                    "{location}: target: {resource:?} is not a resource (hint: write the plural: {plural})"
                ),
            );
            continue;
        }
        if root.is_none() && (args.cluster || !args.schema.is_empty()) {
            complain(
                "note",
                format!(
                    "{location}: no schema of {target}, so the fields in its expressions are not checked"
                ),
            );
        }
        let problems = root
            .map(|root| schema_problems(rule_set, &root))
            .unwrap_or_default();
        let begin = format!("{location}: ");
        if problems.is_empty() && !unknown_fields.iter().any(|it| it.starts_with(&begin)) {
            print(&format!("{location}: ok\n"))?;
        }
        for problem in problems {
            is_correct = false;
            complain("error", format!("{location}: {}", problem.text));
            print_excerpt(&problem.excerpt);
        }
    }
    Ok(is_correct)
}

/// Checks the expressions in `rule_set` against the schema. Returns an error for each field in an
/// expression that no object can have, and for each expression whose types contradict the schema.
fn schema_problems(rule_set: &CompiledRuleSet, root: &SchemaRoot<'_>) -> Vec<SchemaProblem> {
    let mut checker = Checker {
        root: *root,
        problems: Vec::new(),
    };
    let spec = &rule_set.spec;
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
            inner.environment = match &program {
                Some(program) => names.environment.with_item_of(program),
                None => names.environment.with_item(),
            };
        }
        for (name, source) in rule.expressions() {
            checker.check(&field(name), source, result_kind(name), &inner);
        }
    }
    for label in &spec.label_expressions {
        let field = format!("labelExpressions[{}].expression", label.key);
        checker.check(&field, &label.expression, ResultKind::String, &names);
    }
    if let Some(nodes) = &spec.nodes {
        checker.check("nodes", nodes, ResultKind::Strings, &names);
    }
    checker.problems
}

/// Returns the kind of result that the expression in a field of a rule must have.
fn result_kind(field: &str) -> ResultKind {
    match field {
        "expression" | "continueWhile" => ResultKind::Bool,
        "progress" => ResultKind::Progress,
        "startedAt" => ResultKind::Time,
        "size" => ResultKind::Amount,
        "expectedDuration" | "stalledAfter" => ResultKind::Duration,
        "itemKey" => ResultKind::Key,
        "message" | "reason" | "state" | "instance" | "outcome" | "outcomeMessage" | "work" => {
            ResultKind::String
        }
        _ => ResultKind::Any,
    }
}

/// An error that the check against the schema finds. `excerpt` has the lines of the expression that
/// show the position of the error.
#[derive(PartialEq)]
struct SchemaProblem {
    text: String,
    excerpt: String,
}

/// The names that an expression can use.
#[derive(Clone, Default)]
struct CheckedNames {
    origins: NameOrigins,
    environment: Environment,
}

impl CheckedNames {
    /// Declares a variable. `program` is None if the types in `source` contradict the schema. Then
    /// the variable gets no types of the schema. So expressions that use the variable do not repeat
    /// the error.
    fn declare(&mut self, name: &str, source: &str, program: Option<Program>) {
        let program = program.map_or_else(
            || compile(source, ResultKind::Any, &self.environment).ok(),
            Some,
        );
        // The rule set was compiled before, so the name is valid.
        let _ = program.map(|program| self.environment.declare(name, program));
    }
}

/// Checks the expressions of a rule set against the schema of its target (the resource that it
/// watches).
struct Checker<'s> {
    root: SchemaRoot<'s>,
    problems: Vec<SchemaProblem>,
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
        // The rule set was compiled before, so its expressions can be parsed.
        let Ok(expression_fields) = fields(source, &names.origins) else {
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
                    field,
                    source,
                    (used_field.line, used_field.column),
                    &unknown.to_string(),
                );
            }
        }
        let checked = compile_with_schema(source, kind, &names.environment, &self.root);
        let program = checked.map_err(|error| {
            let hint = error.hint.iter().map(|hint| format!(" (hint: {hint})"));
            let text = format!("{}{}", error.message, hint.collect::<String>());
            self.add(field, source, (error.line, error.column), &text);
        });
        (expression_fields.origin, program.ok())
    }

    fn add(&mut self, field: &str, source: &str, (line, column): (usize, usize), what: &str) {
        let problem = SchemaProblem {
            text: format!("{field}: {line}:{column}: {what}"),
            excerpt: excerpt(source, line, column),
        };
        if !self.problems.contains(&problem) {
            self.problems.push(problem);
        }
    }
}

/// Returns an error for each field of an OperationRuleSet that the schema of OperationRuleSets does
/// not contain. The kube-apiserver would drop such a field.
fn unknown_rule_set_fields(input: &Input) -> Vec<String> {
    let Ok(crd) = serde_json::to_value(generate_crds::operation_rule_sets()) else {
        return Vec::new();
    };
    let mut schemas = Schemas::default();
    schemas.declare(&crd);
    let target = Gvr {
        group: ifo_api::GROUP.to_owned(),
        version: ifo_api::VERSION.to_owned(),
        resource: PLURAL.to_owned(),
    };
    let Some(root) = schemas.find(&target) else {
        return Vec::new();
    };
    let mut problems = Vec::new();
    for FoundObject { source, object } in &input.objects {
        if object.kind != KIND || object.group() != ifo_api::GROUP {
            continue;
        }
        walk(&object.json, &mut Vec::new(), &mut |path| {
            if let Some(unknown) = root.first_unknown_field(path)
                && unknown.depth + 1 == path.len()
            {
                let problem = unknown.to_string();
                let problem = problem.strip_prefix("object.").unwrap_or(&problem);
                let problem = format!("{source}: {}: {problem}", object.name);
                if !problems.contains(&problem) {
                    problems.push(problem);
                }
            }
        });
    }
    problems
}

/// Calls `visit` with the path of every field in `value`.
fn walk(value: &Value, path: &mut Vec<PathStep>, visit: &mut impl FnMut(&[PathStep])) {
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                path.push(PathStep::Field(name.clone()));
                visit(path);
                walk(member, path, visit);
                path.pop();
            }
        }
        Value::Array(elements) => {
            path.push(PathStep::Index);
            for element in elements {
                walk(element, path, visit);
            }
            path.pop();
        }
        _ => {}
    }
}
