//! `kubectl ifo rules roles`: prints a ClusterRole that allows `ifo-apiserver` to watch the targets
//! (the watched resources) of rule sets.

use super::input::Input;
use super::rule_sets;
use crate::output::{Format, formats, print_value};
use crate::problem::Problem;
use ifo_engine::rules::cluster_roles::cluster_role;
use std::path::PathBuf;

/// The arguments of `rules roles`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  kubectl ifo rules roles my-rules.yaml | kubectl apply -f -")]
pub(crate) struct RulesRolesArgs {
    /// OperationRuleSets: files, folders (read as `kubectl apply -k` if they have a
    /// kustomization.yaml), `-` for standard input
    #[arg(required = true, value_name = "RULES")]
    rules: Vec<PathBuf>,
    /// Name of the role [default: ifo-rule-set-NAME; NAME is the first rule set in alphabetical
    /// order]
    #[arg(long)]
    name: Option<String>,
    /// Output format
    #[arg(short = 'O', long, short_alias = 'o', value_parser = formats(["yaml", "json"]), default_value = "yaml")]
    output: Format,
}

/// Prints the ClusterRole for the valid rule sets. Returns true if all files could be read, and all
/// rule sets are valid.
pub(super) fn run(args: &RulesRolesArgs) -> Result<bool, Problem> {
    let mut input = Input::read(&args.rules);
    let loaded = rule_sets::load(&mut input);
    let is_valid = input.report();
    if loaded.is_empty() {
        return Ok(false);
    }
    // The default name begins with `ifo-rule-set-`, because the names of the shipped ClusterRoles
    // begin with `ifo-rules-`. So `kubectl apply` of the output never replaces a shipped
    // ClusterRole.
    let first = loaded.iter().map(|it| &*it.compiled.name).min();
    let named = args.name.clone();
    let name = named.unwrap_or_else(|| format!("ifo-rule-set-{}", first.unwrap_or_default()));
    let targets = loaded.iter().map(|rule_set| &rule_set.spec.target);
    let role = cluster_role(&name, targets);
    print_value(&role, args.output)?;
    Ok(is_valid)
}
