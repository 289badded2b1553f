//! `kubectl ifo rules check`: compiles rule sets, and reports the errors that the server would
//! report. If the user gives the schemas of the watched resources, the command also checks the
//! expressions against these schemas. The command then also reports fields that no object can have,
//! and types that contradict the schema. The server reports no such errors, because it does not
//! check expressions against schemas.

mod schema_check;
mod target_group;

use super::input_files::{FoundObject, Input};
use super::resource_schemas::Schemas;
use super::rule_sets::{self, CompiledRuleSet, InvalidRuleSet};
use crate::connect::Connect;
use crate::output::{complain, print, print_excerpt};
use crate::problem::Problem;
use ifo_api::ruleset::{KIND, OperationRuleSetSpec, PLURAL};
use ifo_api::{Gvr, generate_crds};
use ifo_cel::PathStep;
use ifo_engine::rules::warnings;
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
    let (loaded, invalid) = rule_sets::load_all(&mut input);
    let (mut schemas, faults) = Schemas::read(&args.schema);
    let mut is_correct = faults.is_empty();
    for fault in &faults {
        complain("error", fault);
    }
    let checked = checked_rule_sets(&loaded, &invalid);
    if args.cluster {
        let targets: BTreeSet<Gvr> = checked.iter().map(CheckedRuleSet::target).collect();
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
    report_warnings(&loaded);
    for rule_set in &checked {
        let has_errors = report_target_and_fields(rule_set, &schemas, args);
        is_correct &= !has_errors;
        let location = &rule_set.location;
        let begin = format!("{location}: ");
        let is_valid = rule_set.compiles && !has_errors;
        if is_valid && !unknown_fields.iter().any(|it| it.starts_with(&begin)) {
            print(format!("{location}: ok\n"))?;
        }
    }
    Ok(is_correct)
}

/// A rule set that is checked against the schema of its target.
struct CheckedRuleSet<'r> {
    /// The path of the file, and the name of the rule set.
    location: String,
    spec: &'r OperationRuleSetSpec,
    compiles: bool,
}

impl CheckedRuleSet<'_> {
    fn target(&self) -> Gvr {
        self.spec.target.gvr()
    }
}

/// Returns all rule sets: first those that compile, then the others.
fn checked_rule_sets<'r>(
    loaded: &'r [CompiledRuleSet],
    invalid: &'r [InvalidRuleSet],
) -> Vec<CheckedRuleSet<'r>> {
    let valid = loaded
        .iter()
        .map(|it| (&it.source, &it.name, &it.spec, true));
    let invalid = invalid
        .iter()
        .map(|it| (&it.source, &it.name, &it.spec, false));
    let all = valid.chain(invalid);
    all.map(|(source, name, spec, compiles)| CheckedRuleSet {
        location: format!("{source}: {name}"),
        spec,
        compiles,
    })
    .collect()
}

/// Prints the warnings that need no schema.
fn report_warnings(loaded: &[CompiledRuleSet]) {
    let unknown = rule_sets::unknown_superseded(loaded);
    let without_effect = rule_sets::limits_that_never_apply(loaded);
    for warning in unknown.iter().chain(&without_effect) {
        complain("warning", warning);
    }
    for rule_set in loaded {
        for warning in warnings(&rule_set.spec, &rule_set.compiled) {
            complain(
                "warning",
                format!("{}: {}: {warning}", rule_set.source, rule_set.name),
            );
            warning.excerpt().iter().for_each(|it| print_excerpt(it));
        }
    }
}

/// Checks the target of a rule set, and its expressions against the schema of the target. Prints the
/// findings, and returns true if there is an error.
fn report_target_and_fields(
    rule_set: &CheckedRuleSet<'_>,
    schemas: &Schemas,
    args: &RulesCheckArgs,
) -> bool {
    let location = &rule_set.location;
    let target = rule_set.target();
    let Some(root) = schemas.find(&target) else {
        if let Some(plural) = schemas.plural_of(&target) {
            let resource = &target.resource;
            complain(
                "error",
                format!(
                    "{location}: target: {resource:?} is not a resource (hint: write the plural: {plural})"
                ),
            );
            return true;
        }
        if let Some(warning) = target_group::warning(&target, schemas) {
            complain("warning", format!("{location}: {warning}"));
        } else if args.cluster || !args.schema.is_empty() {
            complain(
                "note",
                format!(
                    "{location}: no schema of {target}, so the fields in its expressions are not checked"
                ),
            );
        }
        return false;
    };
    let findings = schema_check::findings(rule_set.spec, &root);
    for finding in &findings {
        complain(finding.kind, format!("{location}: {}", finding.text));
        print_excerpt(&finding.excerpt);
    }
    findings.iter().any(|finding| finding.kind == "error")
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
