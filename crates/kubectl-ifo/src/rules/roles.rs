//! `kubectl ifo rules roles`: the rights that rule sets need. The same code generates
//! the `clusterrole.yaml` of each part of the catalogue.

use super::input::Input;
use super::rule_sets;
use crate::output::{Format, complain, print, print_value};
use crate::problem::Problem;
use clap::ValueEnum as _;
use ifo_api::ruleset::{AGGREGATE_LABEL, Target};
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// What the server does with a target.
const VERBS: [&str; 3] = ["get", "list", "watch"];

/// The flags of the command.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  kubectl ifo rules roles my-rules.yaml | kubectl apply -f -")]
pub(crate) struct Args {
    /// OperationRuleSets: files, folders (read as `kubectl apply -k` if they have a kustomization.yaml), - for standard input
    #[arg(required = true, value_name = "RULES")]
    rules: Vec<PathBuf>,
    /// Name of the role [default: ifo-rule-set-NAME, for the rule set that comes first by its name]
    #[arg(long)]
    name: Option<String>,
    /// Form of the output
    #[arg(short = 'O', long, short_alias = 'o', value_parser = manifest_format(), default_value = "yaml")]
    output: Format,
}

/// A manifest has no table.
fn manifest_format() -> impl clap::builder::TypedValueParser<Value = Format> {
    use clap::builder::TypedValueParser as _;
    clap::builder::PossibleValuesParser::new(["yaml", "json"]).map(|text| {
        Format::from_str(&text, false).expect("the possible values are those of the formats")
    })
}

/// Prints the role; true if all rule sets could be read.
pub(super) fn run(args: &Args) -> Result<bool, Problem> {
    let mut input = Input::read(&args.rules);
    let loaded = rule_sets::load(&mut input);
    let well = input.report();
    if loaded.is_empty() {
        return Ok(false);
    }
    // Not after the component: a rule pack has a role of that name, which would be replaced.
    let first = loaded.iter().map(|rule_set| rule_set.name.as_str()).min();
    let named = args.name.clone();
    let name = named.unwrap_or_else(|| format!("ifo-rule-set-{}", first.unwrap_or_default()));
    let targets = loaded.iter().map(|rule_set| &rule_set.spec.target);
    let role = cluster_role(&name, targets);
    match args.output {
        Format::Json => print_value(&role, Format::Json)?,
        Format::Yaml | Format::Table => match to_yaml(&role) {
            Ok(yaml) => print(&yaml)?,
            Err(error) => {
                complain("error", error);
                return Ok(false);
            }
        },
    }
    Ok(well)
}

/// The name of the role of the rule pack for a component. A component may have upper case and
/// underscores, which the names of objects may not.
pub fn role_name(component: &str) -> String {
    let component = component.to_lowercase().replace('_', "-");
    format!("ifo-rules-{component}")
}

/// The role that lets the server watch `targets`, in an order that depends on nothing
/// else.
pub fn cluster_role<'a>(name: &str, targets: impl IntoIterator<Item = &'a Target>) -> ClusterRole {
    let mut groups: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for target in targets {
        let resources = groups.entry(&target.group).or_default();
        resources.insert(&target.resource);
    }
    let rules = groups.into_iter().map(|(group, resources)| PolicyRule {
        api_groups: Some(vec![group.to_owned()]),
        resources: Some(resources.into_iter().map(str::to_owned).collect()),
        verbs: VERBS.map(str::to_owned).to_vec(),
        ..PolicyRule::default()
    });
    ClusterRole {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            labels: Some([(AGGREGATE_LABEL.to_owned(), "true".to_owned())].into()),
            ..ObjectMeta::default()
        },
        rules: Some(rules.collect()),
        ..ClusterRole::default()
    }
}

/// The role as YAML.
///
/// # Errors
///
/// Those of the YAML encoder.
pub fn to_yaml(role: &ClusterRole) -> Result<String, serde_saphyr::ser::Error> {
    serde_saphyr::to_string(role)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(group: &str, resource: &str) -> Target {
        Target {
            group: group.into(),
            version: "v1".into(),
            resource: resource.into(),
        }
    }

    #[test]
    fn the_role_does_not_depend_on_the_order_of_the_targets() {
        let (a, b, c) = (target("x.io", "b"), target("", "pods"), target("x.io", "a"));
        let role = cluster_role("r", [&a, &b, &c, &a]);
        assert_eq!(role, cluster_role("r", [&c, &a, &b]));
        let yaml = to_yaml(&role).expect("it is encoded");
        assert_eq!(
            yaml,
            "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata:\n  labels:\n    \
             ifo.kubevirt.io/aggregate-to-targets: \"true\"\n  name: r\nrules:\n- apiGroups:\n  - \"\"\n  \
             resources:\n  - pods\n  verbs:\n  - get\n  - list\n  - watch\n- apiGroups:\n  - x.io\n  \
             resources:\n  - a\n  - b\n  verbs:\n  - get\n  - list\n  - watch\n"
        );
    }

    #[test]
    fn names_of_roles_can_be_names() {
        assert_eq!(role_name("Data_Protection"), "ifo-rules-data-protection");
    }
}
