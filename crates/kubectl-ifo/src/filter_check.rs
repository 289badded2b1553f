//! Checks whether the values of filter flags exist in the cluster. Without this check, a misspelt
//! value would match no operation, and the empty result would look as if no operation were in
//! flight.
//!
//! A rule set (`OperationRuleSet`) declares how the server detects operations, such as migrations.
//! Each rule set watches one resource: its target.
//!
//! If a value does not exist, [`check`] returns an error. If no rule set can detect matching
//! operations, or if a value cannot be checked, [`check`] returns a warning. There is one
//! exception: in a cluster without rule sets, a component or an operation causes no warning.
//!
//! | flag | its value exists if |
//! | --- | --- |
//! | `--component` | a rule set has this component |
//! | `--operation` | a rule set detects an operation of this name |
//! | `--kind` | the cluster serves it, or a rule set watches it |
//! | `--node` | the cluster has it |
//! | `--namespace` | the cluster has it, or the user may list operations only in some namespaces |
//!
//! About the row `--kind`: the cluster serves a kind if discovery lists the kind. Discovery can be
//! incomplete, so a kind also exists if a rule set watches it. A rule set does not count if its
//! status says that the cluster does not serve the target.
//!
//! [`check`] first compares the values with the operations that the command has already listed. A
//! value that matches a listed operation needs no request.

use super::filter::{FilterValue, Filters};
use super::operation::InFlightOperation;
use super::operation_source::{OperationSource, escape};
use super::output::{Format, complain};
use super::problem::Problem;
use super::rule_sets::RuleSets;
use super::suggestion::nearest;
use clap::ValueEnum;
use clap::builder::PossibleValue;

/// A warning about a filter value.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum FilterWarning {
    /// No rule set can detect operations that match the filters. Contains the text of the warning.
    NoRuleSet(String),
    /// The check of a value failed, for example because RBAC refused a request. Contains the text
    /// of the warning.
    Unchecked(String),
}

impl FilterWarning {
    /// Prints the warning to standard error.
    pub(super) fn print(&self) {
        match self {
            Self::NoRuleSet(text) => complain("warning", text),
            Self::Unchecked(text) => complain("note", text),
        }
    }
}

/// Checks the values of `filters`. If a value does not exist, returns an error for the first such
/// value. Otherwise, returns the warnings. `listed` are the operations that the command has already
/// read.
pub(super) async fn check(
    filters: &Filters,
    source: &OperationSource,
    listed: &[InFlightOperation],
) -> Result<Vec<FilterWarning>, Problem> {
    let matches_listed = |value: &FilterValue<'_>| {
        let alone = value.alone();
        listed.iter().any(|it| alone.matches(it))
    };
    let mut unmatched = filters.values();
    unmatched.retain(|value| !matches_listed(value));
    let selector_matches = filters.selector.is_none() || !listed.is_empty();
    if unmatched.is_empty() && selector_matches {
        return Ok(Vec::new());
    }
    let rule_sets = RuleSets::read(&source.server).await;
    let mut warnings = Vec::new();
    for value in &unmatched {
        match exists(*value, source, &rule_sets).await {
            Ok(true) => {}
            Ok(false) => return Err(unknown(*value, rule_sets.as_ref().ok())),
            Err(why) => {
                let text = format!("cannot check {value}: {why}");
                warnings.push(FilterWarning::Unchecked(text));
            }
        }
    }
    if let Ok(rule_sets) = &rule_sets
        && !rule_sets.is_empty()
    {
        // If a listed operation matches a value, the value is correct even if no rule set can
        // detect such operations now. So the loop checks only the other values.
        let mut undetectable: Vec<String> = Vec::new();
        for value in &unmatched {
            let message = rule_sets.undetectable_message(&value.put_into(filters.clone()));
            undetectable.extend(message.filter(|it| !undetectable.contains(it)));
        }
        if undetectable.is_empty() && !selector_matches {
            undetectable.extend(rule_sets.unknown_label_message(filters));
        }
        warnings.extend(undetectable.into_iter().map(FilterWarning::NoRuleSet));
    }
    Ok(warnings)
}

/// Checks the values of `filters` like [`check`], and prints the warnings to standard error.
pub(super) async fn check_and_warn(
    filters: &Filters,
    source: &OperationSource,
    listed: &[InFlightOperation],
) -> Result<(), Problem> {
    let warnings = check(filters, source, listed).await?;
    warnings.iter().for_each(FilterWarning::print);
    Ok(())
}

/// Returns true if the value exists, and false if it certainly does not exist. Returns the reason
/// as an error if this cannot be found out.
async fn exists(
    value: FilterValue<'_>,
    source: &OperationSource,
    rule_sets: &Result<RuleSets, Problem>,
) -> Result<bool, String> {
    match value {
        FilterValue::Component(_) | FilterValue::Operation(_) => {
            let rule_sets = rule_sets.as_ref().map_err(ToString::to_string)?;
            // Without rule sets, the value cannot be checked. The commands themselves report that
            // no rule set is installed, so no warning is needed here.
            Ok(rule_sets.is_empty() || rule_sets.can_detect(&value.alone()))
        }
        FilterValue::Kind(kind) if kind.is_served() => Ok(true),
        FilterValue::Kind(kind) if rule_sets.as_ref().is_ok_and(|it| it.watches(kind)) => Ok(true),
        FilterValue::Kind(kind) if kind.certainly_does_not_exist() => Ok(false),
        FilterValue::Kind(_) => Err("the cluster does not list all kinds".to_owned()),
        FilterValue::Node(name) => has_object(source, "nodes", name).await,
        FilterValue::Namespace(name) => {
            let files = source.server.from_files.as_ref();
            if files.is_some_and(|it| it.known_namespaces().contains(name)) {
                return Ok(true);
            }
            let found = has_object(source, "namespaces", name).await;
            // The command has already listed the operations in this namespace. If the user may not
            // list all operations, a RoleBinding in this namespace must allow the list. So the
            // namespace exists.
            let all = source.unfiltered();
            let is_tenant =
                found.is_err() && matches!(all.probe().await, Err(Problem::Forbidden { .. }));
            found.or_else(|why| is_tenant.then_some(true).ok_or(why))
        }
    }
}

/// Returns true if the cluster has this node or namespace.
async fn has_object(source: &OperationSource, plural: &str, name: &str) -> Result<bool, String> {
    let path = format!("/api/v1/{plural}/{}", escape(name));
    match source.server.answer(&path).await {
        Ok(_) => Ok(true),
        // For a missing node, the message is `nodes "a" not found`. A server that serves no
        // nodes also answers 404, but with another message.
        Err(Problem::NotFound(message)) if message.starts_with(&format!("{plural} \"")) => {
            Ok(false)
        }
        Err(Problem::NotFound(_)) => Err(format!("the cluster serves no {plural}")),
        Err(problem) => Err(problem.to_string()),
    }
}

/// Returns the error for a value that does not exist. It suggests the most similar name of a rule
/// set, of discovery, or of an output format, which is also a value of `-o`.
fn unknown(value: FilterValue<'_>, rule_sets: Option<&RuleSets>) -> Problem {
    let rule_sets = rule_sets.into_iter();
    let formats = Format::value_variants().iter();
    let formats: Vec<_> = formats.filter_map(ValueEnum::to_possible_value).collect();
    let (what, typed, see, names): (_, &str, _, Vec<&str>) = match value {
        FilterValue::Component(name) => {
            let names = rule_sets.flat_map(RuleSets::components);
            (
                "component",
                name,
                "get operationrulesets.ifo.kubevirt.io",
                names.collect(),
            )
        }
        FilterValue::Operation(name) => {
            let names = rule_sets.flat_map(RuleSets::operations);
            let names = names.chain(formats.iter().map(PossibleValue::get_name));
            let see = "get operationrulesets.ifo.kubevirt.io -o yaml";
            ("operation or output format", name, see, names.collect())
        }
        FilterValue::Kind(kind) => {
            let names = rule_sets.flat_map(RuleSets::resources);
            (
                "kind",
                kind.text(),
                "api-resources",
                names.chain(kind.nearest()).collect(),
            )
        }
        FilterValue::Node(name) => ("node", name, "get nodes", Vec::new()),
        FilterValue::Namespace(name) => ("namespace", name, "get namespaces", Vec::new()),
    };
    let hint = match nearest(typed, names) {
        Some(suggestion) => format!("did you mean {suggestion:?}?"),
        None => format!("see: kubectl {see}"),
    };
    Problem::Usage(format!("there is no {what} {typed:?}; {hint}"))
}
