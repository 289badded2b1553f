//! `kubectl ifo rules check`: compiles rule sets, and reports the errors that the server would
//! report. If the user gives the schemas of the watched resources, the expressions are compiled
//! against these schemas. The command then also reports fields that no object can have, and types
//! that contradict the schema. The server reports no such errors, because it does not check
//! expressions against schemas.

use super::input::{Input, fault, print_fault};
use super::rule_sets::{self, CompiledRuleSet};
use super::schemas::Schemas;
use crate::connect::Connect;
use crate::output::{complain, print};
use crate::problem::Problem;
use ifo_api::Gvr;
use ifo_engine::rules::{compile_within, warnings};
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
    input.faults.extend(faults);
    if args.cluster {
        let targets: BTreeSet<Gvr> = loaded.iter().map(CompiledRuleSet::target).collect();
        if let Err(why) = schemas.read_from_cluster(&targets, &args.connect) {
            input.faults.push(format!("the cluster: {why}"));
        }
    }
    let mut is_correct = input.report();
    for warning in rule_sets::unknown_superseded(&loaded) {
        complain("warning", warning);
    }
    let has_schemas = args.cluster || !args.schema.is_empty();
    for rule_set in &loaded {
        for warning in warnings(&rule_set.spec) {
            print_fault("warning", &fault(&rule_set.location, &warning));
        }
        let errors = errors_with_schema(rule_set, &schemas, has_schemas);
        for error in &errors {
            print_fault("error", error);
        }
        if errors.is_empty() {
            print(format!("{}: ok\n", rule_set.location))?;
        }
        is_correct &= errors.is_empty();
    }
    Ok(is_correct)
}

/// Compiles a rule set against the schema of its target, and returns the errors. If `has_schemas` is
/// true and the schema is missing, prints the reason.
fn errors_with_schema(
    rule_set: &CompiledRuleSet,
    schemas: &Schemas,
    has_schemas: bool,
) -> Vec<String> {
    let (location, target) = (&rule_set.location, rule_set.target());
    let Some(schema) = schemas.find(&target) else {
        if has_schemas {
            let why = "so the fields in its expressions are not checked";
            complain("note", format!("{location}: no schema of {target}, {why}"));
        }
        return Vec::new();
    };
    let compiled = compile_within(
        &rule_set.compiled.name,
        &rule_set.spec,
        Some(&schema),
        &|| false,
    );
    let errors = compiled.err().into_iter().flatten();
    errors.map(|error| fault(location, &error)).collect()
}
