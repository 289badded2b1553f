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

use crate::cluster::api_client::ApiClient;
use crate::cluster::problem::Problem;
use crate::cluster::rule_sets::RuleSets;
use crate::filters::filter::{FilterValue, Filters};
use crate::operations::operation::InFlightOperation;
use crate::operations::operation_source::{OperationSource, escape};
use crate::output::print::complain;
use ifo_cel::nearest_value;

/// The problems with the values of the filters that are not errors.
#[derive(Debug, Default)]
pub(crate) struct FilterDoubts {
    /// The warning that no rule set can detect operations that match the filters.
    pub(crate) undetectable: Option<String>,
    /// Notes about values that could not be checked, for example because RBAC refused a request.
    pub(crate) unchecked: Vec<String>,
}

impl FilterDoubts {
    /// Prints the notes about values that could not be checked to standard error.
    pub(crate) fn print_unchecked(&self) {
        self.unchecked.iter().for_each(|it| complain("note", it));
    }
}

/// Checks the values of `filters`. If a value does not exist, returns an error for the first such
/// value. Otherwise, returns the values that could not be checked, and the warning that no rule set
/// can detect matching operations. `listed` are the operations that the command has already read.
pub(crate) async fn check(
    filters: &Filters,
    source: &OperationSource,
    listed: &[InFlightOperation],
) -> Result<FilterDoubts, Problem> {
    // If a listed operation matches a value, the value is correct even if no rule set can detect
    // such operations now.
    let mut unmatched = filters.values();
    unmatched.retain(|value| !listed.iter().any(|it| value.matches(it)));
    let selector_matches = filters.selector.text.is_empty() || !listed.is_empty();
    if unmatched.is_empty() && selector_matches {
        return Ok(FilterDoubts::default());
    }
    let rule_sets = RuleSets::read(&source.server).await;
    let mut doubts = FilterDoubts::default();
    for value in &unmatched {
        if let Some(why) = check_value(*value, source, rule_sets.as_ref()).await? {
            let note = format!("cannot check {value}: {why}");
            doubts.unchecked.push(note);
        }
    }
    if let Ok(rule_sets) = &rule_sets
        && !rule_sets.is_empty()
    {
        doubts.undetectable = rule_sets.undetectable(filters, &unmatched);
    }
    Ok(doubts)
}

/// Checks the values of `filters` like [`check`], and prints the warnings to standard error.
pub(crate) async fn check_and_warn(
    filters: &Filters,
    source: &OperationSource,
    listed: &[InFlightOperation],
) -> Result<(), Problem> {
    let doubts = check(filters, source, listed).await?;
    doubts.print_unchecked();
    let undetectable = doubts.undetectable.iter();
    undetectable.for_each(|it| complain("warning", it));
    Ok(())
}

/// Returns an error if the value does not exist. If the value cannot be checked, returns the
/// reason.
async fn check_value(
    value: FilterValue<'_>,
    source: &OperationSource,
    rule_sets: Result<&RuleSets, &Problem>,
) -> Result<Option<String>, Problem> {
    use FilterValue::{Component, Kind, Namespace, Node, Operation};
    let exists = match (value, rule_sets) {
        (Component(_) | Operation(_), Err(problem)) => Err(problem.to_string()),
        // Without rule sets, the value cannot be checked. The commands themselves report that no
        // rule set is installed, so no warning is needed here.
        (Component(_) | Operation(_), Ok(sets)) => Ok(sets.is_empty() || sets.detect(value)),
        (Kind(kind), sets) if kind.is_served() || sets.is_ok_and(|it| it.watch(kind)) => Ok(true),
        (Kind(kind), _) if kind.resources.is_some() => Ok(false),
        (Kind(_), _) => Err("the cluster does not list all kinds".to_owned()),
        (Node(name), _) => find_object(&source.server, "nodes", name).await,
        (Namespace(name), _) => find_object(&source.server, "namespaces", name).await,
    };
    match exists {
        Ok(true) => Ok(None),
        Ok(false) => Err(missing(value, rule_sets.ok(), source).await),
        Err(why) => Ok(Some(why)),
    }
}

/// Returns true if the cluster has this node or namespace. If this cannot be found out, returns an
/// error with the reason. For example, RBAC can allow the user to list operations, but not to read
/// a namespace.
pub(crate) async fn find_object(
    server: &ApiClient,
    plural: &str,
    name: &str,
) -> Result<bool, String> {
    let path = format!("/api/v1/{plural}/{}", escape(name));
    match server.answer(&path).await {
        Ok(_) => Ok(true),
        // For a missing node, the message is `nodes "a" not found`. A server that serves no
        // nodes also answers 404, but with another message.
        Err(Problem::NotFound(message)) if message.starts_with(&format!("{plural} \"")) => {
            Ok(false)
        }
        Err(problem) => Err(problem.to_string()),
    }
}

/// Returns the error for a value that does not exist. It suggests the most similar name.
async fn missing(
    value: FilterValue<'_>,
    rule_sets: Option<&RuleSets>,
    source: &OperationSource,
) -> Problem {
    let kinds: Vec<String>;
    let names = rule_sets.into_iter().flat_map(|it| it.names(value));
    let mut names: Vec<&str> = names.collect();
    let see_rule_sets = "get operationrulesets.ifo.kubevirt.io";
    let (what, typed, see): (&str, &str, &str) = match value {
        FilterValue::Component(name) => ("component", name, see_rule_sets),
        FilterValue::Operation(name) => {
            names.extend(["table", "wide", "json", "yaml", "name"]);
            ("operation or output format", name, see_rule_sets)
        }
        FilterValue::Kind(kind) if kind.text.contains('/') => {
            let (text, hint) = (&kind.text, "for one object, see: kubectl ifo describe");
            return Problem::Usage(format!("{text:?} is an object, not a kind; {hint} {text}"));
        }
        FilterValue::Kind(kind) => {
            kinds = source.server.kind_names().await;
            names.extend(kinds.iter().map(String::as_str));
            ("kind", &kind.text, "api-resources")
        }
        FilterValue::Node(name) => ("node", name, "get nodes"),
        FilterValue::Namespace(name) => ("namespace", name, "get namespaces"),
    };
    let hint = match nearest_value(typed, names) {
        Some(suggestion) => format!("did you mean {suggestion:?}?"),
        None => format!("see: kubectl {see}"),
    };
    Problem::Usage(format!("there is no {what} {typed:?}; {hint}"))
}
