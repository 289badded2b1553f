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
//! | `--component` | a rule set or an operation has this component |
//! | `--operation` | a rule set detects an operation of this name, or an operation has this name |
//! | `--kind` | the cluster serves it, a rule set watches it, or an operation is on such objects |
//! | `--node` | the cluster has it |
//! | `--namespace` | the cluster has it |
//!
//! RBAC may not allow the user to read nodes or namespaces. Then a node exists if an operation
//! touches it. A namespace exists if an operation is on an object in it. A namespace also exists if
//! the user may list operations in it, but not in all namespaces.
//!
//! About the row `--kind`: the cluster serves a kind if discovery lists the kind. Discovery can be
//! incomplete, so a kind also exists if a rule set watches it. A rule set does not count if its
//! status says that the cluster does not serve the target.
//!
//! [`check`] first compares the values with the operations that the command has already listed. A
//! value that matches a listed operation needs no request.

use super::filter::{FilterValue, Filters};
use super::operation::InFlightOperation;
use super::operation_source::{OperationSource, escape, names, namespaces};
use super::output::{ListFormat, complain};
use super::problem::Problem;
use super::rule_sets::RuleSets;
use super::suggestion::nearest;
use clap::ValueEnum as _;
use ifo_api::Text;

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
    let filter_check = FilterCheck::read(filters, source).await;
    let mut warnings = Vec::new();
    for value in &unmatched {
        match filter_check.exists(*value).await {
            Ok(true) => {}
            Ok(false) => return Err(filter_check.unknown(*value).await),
            Err(why) => {
                let text = format!("cannot check {value}: {why}");
                warnings.push(FilterWarning::Unchecked(text));
            }
        }
    }
    if let Ok(rule_sets) = &filter_check.rule_sets
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

/// The data of the cluster. The methods compare filter values with this data.
struct FilterCheck<'a> {
    source: &'a OperationSource,
    filters: &'a Filters,
    /// All rule sets, or the reason why they cannot be read.
    rule_sets: Result<RuleSets, Problem>,
    /// All operations that the user may read, in any phase.
    operations: Result<Vec<InFlightOperation>, Problem>,
    /// True if the user may not list the operations of all namespaces. `operations` then has those in
    /// the namespace of the filters.
    is_tenant: bool,
}

impl<'a> FilterCheck<'a> {
    async fn read(filters: &'a Filters, source: &'a OperationSource) -> Self {
        let mut operations = source.unfiltered().list().await;
        let is_tenant = matches!(operations, Err(Problem::Forbidden { .. }));
        if is_tenant && filters.namespace.is_some() {
            let within = Filters::all_in(filters.namespace.as_ref());
            operations = source.filtered(within).list().await;
        }
        Self {
            source,
            filters,
            rule_sets: RuleSets::read(&source.server).await,
            operations,
            is_tenant,
        }
    }

    /// Returns true if the value exists, and false if it certainly does not exist. Returns the
    /// reason as an error if this cannot be found out.
    async fn exists(&self, value: FilterValue<'_>) -> Result<bool, String> {
        let (rule_sets, alone) = (self.rule_sets.as_ref(), value.alone());
        let is_known = match value {
            FilterValue::Component(_) | FilterValue::Operation(_) => {
                rule_sets.is_ok_and(|it| it.can_detect(&alone))
            }
            FilterValue::Kind(kind) => {
                kind.is_served() || rule_sets.is_ok_and(|it| it.watches(kind))
            }
            FilterValue::Node(_) => false,
            FilterValue::Namespace(name) => {
                let files = self.source.server.from_files.as_ref();
                files.is_some_and(|it| it.known_namespaces().contains(name))
            }
        };
        let mut operations = self.operations.iter().flatten();
        if is_known || operations.any(|it| alone.matches(it)) {
            return Ok(true);
        }
        match value {
            FilterValue::Component(_) | FilterValue::Operation(_) => {
                let rule_sets = rule_sets.map_err(ToString::to_string)?;
                self.operations.as_ref().map_err(ToString::to_string)?;
                // Without rule sets, the value cannot be checked. The commands themselves report that
                // no rule set is installed, so no warning is needed here.
                Ok(rule_sets.is_empty())
            }
            FilterValue::Kind(kind) if kind.certainly_does_not_exist() => Ok(false),
            FilterValue::Kind(_) => Err("the cluster does not list all kinds".to_owned()),
            FilterValue::Node(name) => self.has_object("nodes", name).await,
            // The command has already listed the operations in this namespace. If the user may not
            // list all operations, a RoleBinding in this namespace must allow the list. So the
            // namespace exists.
            FilterValue::Namespace(_) if self.is_tenant => Ok(true),
            FilterValue::Namespace(name) => self.has_object("namespaces", name).await,
        }
    }

    /// Returns true if the cluster has this node or namespace.
    async fn has_object(&self, plural: &str, name: &str) -> Result<bool, String> {
        let path = format!("/api/v1/{plural}/{}", escape(name));
        match self.source.server.answer(&path).await {
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

    /// Returns the error for a value that does not exist. It suggests the most similar name.
    async fn unknown(&self, value: FilterValue<'_>) -> Problem {
        let server = &self.source.server;
        let rule_sets = self.rule_sets.iter();
        let own = |name: fn(&InFlightOperation) -> &Text| {
            let operations = self.operations.iter().flatten();
            operations.map(name).map(Text::to_string)
        };
        let mut see = "operationrulesets.ifo.kubevirt.io".to_owned();
        let (typed, what, names): (&str, String, Vec<String>) = match value {
            FilterValue::Component(name) => {
                let what = "no OperationRuleSet and no operation has this component";
                let names = rule_sets.flat_map(RuleSets::components).map(str::to_owned);
                let names = names.chain(own(|it| &it.spec.component));
                (name, format!("{value}: {what}"), names.collect())
            }
            FilterValue::Operation(name) => {
                see += " -o yaml";
                let what = if self.filters.accepts_format {
                    format!("-o {name}: there is no operation and no output format of this name")
                } else {
                    format!("{value}: no OperationRuleSet detects this operation")
                };
                let formats = ListFormat::value_variants().iter();
                let formats = formats.filter(|_| self.filters.accepts_format);
                let formats = formats.filter_map(ListFormat::to_possible_value);
                let formats = formats.map(|it| it.get_name().to_owned());
                let names = rule_sets.flat_map(RuleSets::operations).map(str::to_owned);
                let names = names.chain(own(|it| &it.spec.operation)).chain(formats);
                (name, what, names.collect())
            }
            FilterValue::Kind(kind) => {
                see.clear();
                let what = format!("the cluster has no resource {:?}", kind.to_string());
                let names = rule_sets.flat_map(RuleSets::resources);
                let names = names.chain(kind.nearest()).map(str::to_owned);
                let names = names.chain(own(|it| &it.spec.subject.kind));
                (kind.name(), what, names.collect())
            }
            FilterValue::Node(name) => {
                "nodes".clone_into(&mut see);
                let names = names(server, "/api/v1/nodes").await;
                let what = format!("there is no node {name:?}");
                (name, what, names.unwrap_or_default())
            }
            FilterValue::Namespace(name) => {
                "namespaces".clone_into(&mut see);
                let what = format!("there is no namespace {name:?}");
                (name, what, namespaces(server).await)
            }
        };
        let hint = match nearest(typed, names.iter().map(String::as_str)) {
            Some(suggestion) => format!("did you mean {suggestion:?}?"),
            None if see.is_empty() => "see: kubectl api-resources".to_owned(),
            None => format!("see: kubectl get {see}"),
        };
        Problem::Usage(format!("{what}; {hint}"))
    }
}
