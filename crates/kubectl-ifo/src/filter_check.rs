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
//! | `--namespace` | the cluster has it |
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
        match check_value(*value, source, rule_sets.as_ref()).await {
            Ok(()) => {}
            Err(ValueError::Missing(problem)) => return Err(problem),
            Err(ValueError::Unchecked(why)) => {
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

/// The reason why a value is not known to exist.
enum ValueError {
    /// The value does not exist.
    Missing(Problem),
    /// This cannot be found out, for this reason.
    Unchecked(String),
}

/// Returns an error if the value does not exist, or if this cannot be found out.
async fn check_value(
    value: FilterValue<'_>,
    source: &OperationSource,
    rule_sets: Result<&RuleSets, &Problem>,
) -> Result<(), ValueError> {
    use FilterValue::{Component, Kind, Namespace, Node, Operation};
    let unchecked = |why: String| Err(ValueError::Unchecked(why));
    match (value, rule_sets) {
        (Component(_) | Operation(_), Err(problem)) => unchecked(problem.to_string()),
        // Without rule sets, the value cannot be checked. The commands themselves report that no
        // rule set is installed, so no warning is needed here.
        (Component(_) | Operation(_), Ok(sets))
            if sets.is_empty() || sets.can_detect(&value.alone()) =>
        {
            Ok(())
        }
        (Component(name), Ok(sets)) => {
            let see = "get operationrulesets.ifo.kubevirt.io";
            missing("component", name, sets.components(), see)
        }
        (Operation(name), Ok(sets)) => {
            let formats = Format::value_variants().iter();
            let formats: Vec<_> = formats.filter_map(ValueEnum::to_possible_value).collect();
            let names = sets.operations();
            let names = names.chain(formats.iter().map(PossibleValue::get_name));
            let see = "get operationrulesets.ifo.kubevirt.io -o yaml";
            missing("operation or output format", name, names, see)
        }
        (Kind(kind), sets) if kind.is_served() || sets.is_ok_and(|it| it.watches(kind)) => Ok(()),
        (Kind(kind), sets) if kind.certainly_does_not_exist() => {
            let names = sets.into_iter().flat_map(RuleSets::resources);
            let names = names.chain(kind.nearest());
            missing("kind", kind.text(), names, "api-resources")
        }
        (Kind(_), _) => unchecked("the cluster does not list all kinds".to_owned()),
        (Node(name), _) => find_object(source, "node", name).await,
        (Namespace(name), _) => {
            let files = source.server.from_files.as_ref();
            if files.is_some_and(|it| it.known_namespaces().contains(name)) {
                return Ok(());
            }
            find_object(source, "namespace", name).await
        }
    }
}

/// Returns an error if the cluster does not have this node or namespace. A user who may list the
/// operations in all namespaces may perhaps not read a namespace. Then it is unknown if it exists.
async fn find_object(source: &OperationSource, what: &str, name: &str) -> Result<(), ValueError> {
    let path = format!("/api/v1/{what}s/{}", escape(name));
    match source.server.answer(&path).await {
        Ok(_) => Ok(()),
        // For a missing node, the message is `nodes "a" not found`. A server that serves no
        // nodes also answers 404, but with another message.
        Err(Problem::NotFound(message)) if message.starts_with(&format!("{what}s \"")) => {
            missing(what, name, [], &format!("get {what}s"))
        }
        Err(Problem::NotFound(_)) => {
            let why = format!("the cluster serves no {what}s");
            Err(ValueError::Unchecked(why))
        }
        Err(problem) => Err(ValueError::Unchecked(problem.to_string())),
    }
}

/// Returns the error for a value that does not exist. It suggests the most similar one of `names`.
fn missing<'a>(
    what: &str,
    typed: &str,
    names: impl IntoIterator<Item = &'a str>,
    see: &str,
) -> Result<(), ValueError> {
    let hint = match nearest(typed, names) {
        Some(suggestion) => format!("did you mean {suggestion:?}?"),
        None => format!("see: kubectl {see}"),
    };
    let message = format!("there is no {what} {typed:?}; {hint}");
    Err(ValueError::Missing(Problem::Usage(message)))
}
