//! `kubectl ifo rules roles`: prints a ClusterRole that allows `ifo-apiserver` to watch the targets
//! (the watched resources) of rule sets.

use super::rule_sets::{RuleFiles, load};
use crate::cluster::problem::Problem;
use crate::output::print::{Format, formats, print_value};
use ifo_engine::rules::cluster_roles::cluster_role;

/// The arguments of `rules roles`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  kubectl ifo rules roles my-rules.yaml | kubectl apply -f -")]
pub(crate) struct RulesRolesArgs {
    #[command(flatten)]
    rules: RuleFiles,
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
    let Some(rules) = load(&args.rules.files) else {
        return Ok(false);
    };
    // The default name begins with `ifo-rule-set-`, because the names of the shipped ClusterRoles
    // begin with `ifo-rules-`. So `kubectl apply` of the output never replaces a shipped
    // ClusterRole.
    let names = rules.rule_sets.iter().map(|it| &*it.compiled.name);
    let default = || format!("ifo-rule-set-{}", names.min().unwrap_or_default());
    let name = args.name.clone().unwrap_or_else(default);
    let targets = rules.rule_sets.iter().map(|it| &it.spec.target);
    print_value(&cluster_role(&name, targets), args.output)?;
    Ok(rules.is_valid)
}
