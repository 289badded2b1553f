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

use super::discovered_kinds::ChosenKind;
use super::filter::{FilterValue, Filters};
use super::listed_operation::ListedOperation;
use super::operation_source::{OperationSource, escape, names, namespaces};
use super::output::{ListFormat, complain};
use super::problem::Problem;
use super::rule_sets::RuleSets;
use super::suggestion::nearest;
use clap::ValueEnum as _;
use tokio::sync::OnceCell;

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
    listed: &[ListedOperation],
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
    let filter_check = FilterCheck {
        source,
        filters,
        rule_sets: RuleSets::read(&source.server).await,
        operations: OnceCell::new(),
    };
    let mut warnings = Vec::new();
    for value in &unmatched {
        warnings.extend(filter_check.check(*value).await?);
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
    listed: &[ListedOperation],
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
    /// All operations that the user may read, in any phase. The method `operations` reads this list
    /// at its first call.
    operations: OnceCell<Result<Vec<ListedOperation>, Problem>>,
}

impl FilterCheck<'_> {
    async fn check(&self, value: FilterValue<'_>) -> Result<Option<FilterWarning>, Problem> {
        match value {
            FilterValue::Component(name) | FilterValue::Operation(name) => {
                self.check_name(value, name).await
            }
            FilterValue::Kind(kind) => self.check_kind(value, kind).await,
            FilterValue::Node(name) => self.check_node(value, name).await,
            FilterValue::Namespace(name) => self.check_namespace(value, name).await,
        }
    }

    /// Returns all operations that the user may read, in any phase. If the user may not list all
    /// namespaces, returns the operations in the namespace of the filters.
    async fn operations(&self) -> Result<&[ListedOperation], &Problem> {
        let list = async || match self.source.unfiltered().list().await {
            Err(Problem::Forbidden { .. }) if self.filters.namespace.is_some() => {
                let within = Filters::all_in(self.filters.namespace.as_ref());
                self.source.filtered(within).list().await
            }
            listed => listed,
        };
        let listed = self.operations.get_or_init(list).await;
        listed.as_ref().map(Vec::as_slice)
    }

    async fn has_operation(&self, value: FilterValue<'_>) -> bool {
        let alone = value.alone();
        let operations = self.operations().await.unwrap_or_default();
        operations.iter().any(|it| alone.matches(it))
    }

    /// Checks a value of `--component` or `--operation`. A rule set or an operation in the cluster
    /// must have this value.
    async fn check_name(
        &self,
        value: FilterValue<'_>,
        name: &str,
    ) -> Result<Option<FilterWarning>, Problem> {
        let alone = value.alone();
        let rule_sets = self.rule_sets.as_ref();
        if rule_sets.is_ok_and(|it| it.can_detect(&alone)) || self.has_operation(value).await {
            return Ok(None);
        }
        let (rule_sets, operations) = match (rule_sets, self.operations().await) {
            // Without rule sets, the value cannot be checked. The commands themselves report that
            // no rule set is installed, so no warning is needed here.
            (Ok(rule_sets), _) if rule_sets.is_empty() => return Ok(None),
            (Ok(rule_sets), Ok(operations)) => (rule_sets, operations),
            (Err(Problem::NotFound(_)), _) => {
                let why = "the cluster serves no OperationRuleSets";
                return Ok(Some(unchecked(value, why)));
            }
            (Err(problem), _) | (_, Err(problem)) => {
                let why = short_reason(problem);
                return Ok(Some(unchecked(value, &why)));
            }
        };
        if let FilterValue::Component(_) = value {
            let others = operations.iter().map(|it| it.component.as_str());
            let suggestion = nearest(name, rule_sets.components().chain(others));
            return Err(Problem::Usage(format!(
                "{value}: no OperationRuleSet and no operation has this component{}",
                hint(
                    suggestion,
                    "see: kubectl get operationrulesets.ifo.kubevirt.io"
                )
            )));
        }
        let others = operations.iter().map(|it| it.operation.as_str());
        let suggestion = nearest(name, rule_sets.operations().chain(others));
        Err(Problem::Usage(
            self.unknown_operation_message(value, name, suggestion),
        ))
    }

    /// Returns the error for a value of `--operation` that no rule set and no operation has.
    /// `operation` is the most similar name of an operation.
    ///
    /// The short form of `--operation` is `-o`. If the command also accepts output formats as
    /// values of `-o`, the user may have meant a format. So the message also suggests the most
    /// similar format.
    fn unknown_operation_message(
        &self,
        value: FilterValue<'_>,
        name: &str,
        operation: Option<&str>,
    ) -> String {
        let output_formats: Vec<_> = ListFormat::value_variants()
            .iter()
            .filter_map(ListFormat::to_possible_value)
            .collect();
        let formats = output_formats
            .iter()
            .map(clap::builder::PossibleValue::get_name);
        let format = nearest(name, formats.filter(|_| self.filters.accepts_format));
        let error = if self.filters.accepts_format {
            format!("-o {name}: there is no operation and no output format of this name")
        } else {
            format!("{value}: no OperationRuleSet detects this operation")
        };
        let format = format.map(|it| format!("the format {it:?}"));
        let operation = operation.map(|it| format!("the operation {it:?}"));
        let suggestion: Vec<String> = format.into_iter().chain(operation).collect();
        if suggestion.is_empty() {
            error + "; see: kubectl get operationrulesets.ifo.kubevirt.io -o yaml"
        } else {
            format!("{error}; did you mean {}?", suggestion.join(" or "))
        }
    }

    async fn check_kind(
        &self,
        value: FilterValue<'_>,
        kind: &ChosenKind,
    ) -> Result<Option<FilterWarning>, Problem> {
        let rule_sets = self.rule_sets.as_ref();
        let is_known = kind.is_served()
            || rule_sets.is_ok_and(|it| it.watches(kind))
            || self.has_operation(value).await;
        if is_known {
            return Ok(None);
        }
        if !kind.certainly_does_not_exist() {
            // Discovery is incomplete, so the kind may exist. If there are rule sets, but none of
            // them watches this kind, the function `check` returns the warning `NoRuleSet`. One
            // warning is enough.
            let unchecked = unchecked(value, "the cluster does not list all kinds");
            let is_warned_by_check =
                rule_sets.is_ok_and(|it| !it.is_empty() && !it.can_detect(&value.alone()));
            return Ok((!is_warned_by_check).then_some(unchecked));
        }
        let operations = self.operations().await.unwrap_or_default();
        let kinds = operations.iter().map(|it| it.subject.kind.as_str());
        let targets = rule_sets.map(RuleSets::resources);
        let unknown = kind.unknown_message(targets.into_iter().flatten().chain(kinds));
        Err(Problem::Usage(if unknown.ends_with('?') {
            unknown
        } else {
            format!("{unknown}; see: kubectl api-resources")
        }))
    }

    async fn check_node(
        &self,
        value: FilterValue<'_>,
        name: &str,
    ) -> Result<Option<FilterWarning>, Problem> {
        let Some(why) = self.why_unknown("node", name).await? else {
            return Ok(None);
        };
        if self.has_operation(value).await {
            return Ok(None);
        }
        Ok(Some(unchecked(value, &why)))
    }

    async fn check_namespace(
        &self,
        value: FilterValue<'_>,
        name: &str,
    ) -> Result<Option<FilterWarning>, Problem> {
        let files = &self.source.server.from_files;
        if files
            .as_ref()
            .is_some_and(|it| it.known_namespaces().contains(name))
        {
            return Ok(None);
        }
        let Some(why) = self.why_unknown("namespace", name).await? else {
            return Ok(None);
        };
        // The command has already listed the operations in this namespace, so the user may list
        // them. If the user may not list operations in all namespaces, a RoleBinding in this
        // namespace must allow the list. So the namespace exists.
        let all_namespaces = self.source.unfiltered().list().await;
        let has_role_binding = matches!(all_namespaces, Err(Problem::Forbidden { .. }));
        if has_role_binding || self.has_operation(value).await {
            return Ok(None);
        }
        Ok(Some(unchecked(value, &why)))
    }

    /// Returns the reason why it is unknown whether the cluster has this node or namespace. `kind`
    /// is `node` or `namespace`. None if the cluster has it. If the cluster does not have it,
    /// returns an error.
    async fn why_unknown(&self, kind: &str, name: &str) -> Result<Option<String>, Problem> {
        let server = &self.source.server;
        let plural = format!("{kind}s");
        let path = format!("/api/v1/{plural}/{}", escape(name));
        Ok(match server.answer(&path, &plural, None).await {
            Ok(_) => None,
            // For a missing node, the message is `nodes "a" not found`. A server that serves no
            // nodes also answers 404, but with another message.
            Err(Problem::NotFound(message)) if message.starts_with(&format!("{plural} \"")) => {
                let all = match kind {
                    "namespace" => namespaces(server).await,
                    _ => names(server, "/api/v1/nodes", &plural)
                        .await
                        .unwrap_or_default(),
                };
                let suggestion = nearest(name, all.iter().map(String::as_str));
                let see = format!("see: kubectl get {plural}");
                let hint = hint(suggestion, &see);
                return Err(Problem::Usage(format!("there is no {kind} {name:?}{hint}")));
            }
            Err(Problem::NotFound(_)) => Some(format!("the cluster serves no {plural}")),
            Err(Problem::Forbidden { .. }) => Some(format!("you may not get {plural}")),
            Err(problem) => Some(short_reason(&problem)),
        })
    }
}

fn unchecked(value: FilterValue<'_>, why: &str) -> FilterWarning {
    FilterWarning::Unchecked(format!("cannot check {value}: {why}"))
}

/// Returns the end of an error message about an unknown value: the suggested name, or the text
/// `see` if no name is similar.
fn hint(suggestion: Option<&str>, see: &str) -> String {
    match suggestion {
        Some(suggestion) => format!("; did you mean {suggestion:?}?"),
        None => format!("; {see}"),
    }
}

/// Returns the reason of a problem in a few words, for the text of a warning.
fn short_reason(problem: &Problem) -> String {
    match problem {
        Problem::Forbidden { verb, resource, .. } => format!("you may not {verb} {resource}"),
        problem => problem.to_string(),
    }
}
