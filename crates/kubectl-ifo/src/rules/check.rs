//! `kubectl ifo rules check`: compiles rule sets, and reports the errors that the server would
//! report. If the user gives the schemas of the watched resources, the expressions are compiled
//! against these schemas. The command then also reports fields that no object can have, and types
//! that contradict the schema. The server reports no such errors, because it does not check
//! expressions against schemas.

use super::rule_sets::{RuleFiles, compile, load, report};
use super::schemas::Schemas;
use crate::cluster::connect::Connect;
use crate::cluster::problem::Problem;
use crate::output::print::{complain, print};
use ifo_engine::rules::warnings;
use std::path::PathBuf;

/// The arguments of `rules check`.
#[derive(Debug, clap::Args)]
// `--schema` takes all arguments up to the next flag. So the usage shows the rule sets before
// `--schema`.
#[command(override_usage = "kubectl ifo rules check [OPTIONS] <RULES>... [--schema <FILE>...]")]
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
    #[command(flatten)]
    rules: RuleFiles,
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
    let Some(rules) = load(&args.rules.files) else {
        return Ok(false);
    };
    let (mut schemas, mut faults) = Schemas::read(&args.schema);
    if args.cluster {
        let targets = rules.rule_sets.iter().map(|it| &it.spec.target).collect();
        let read = schemas.read_from_cluster(&targets, &args.connect);
        faults.extend(read.err().map(|why| format!("the cluster: {why}")));
    }
    for fault in &faults {
        complain("error", fault);
    }
    rules.warn_of_unknown_superseded();
    let has_schemas = args.cluster || !args.schema.is_empty();
    let mut is_correct = rules.is_valid && faults.is_empty();
    for rule_set in &rules.rule_sets {
        let (location, spec) = (&rule_set.location, &rule_set.spec);
        report("warning", location, &warnings(spec));
        let is_ok = if let Some(schema) = schemas.find(&spec.target) {
            compile(location, &rule_set.compiled.name, spec, Some(&schema)).is_some()
        } else {
            if has_schemas {
                let why = "so the fields in its expressions are not checked";
                let target = &spec.target;
                complain("note", format!("{location}: no schema of {target}, {why}"));
            }
            true
        };
        if is_ok {
            print(format!("{location}: ok\n"))?;
        }
        is_correct &= is_ok;
    }
    Ok(is_correct)
}
