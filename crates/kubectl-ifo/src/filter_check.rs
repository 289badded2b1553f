//! Checks if the values of filters exist, because an unknown value looks like a quiet cluster.
//!
//! Input: filters, and the operations that were listed with them. Output: an error for a value that
//! does not exist in the cluster. A value that no rule set can detect, or that cannot be checked,
//! causes a remark.
//!
//! | value | exists if |
//! | --- | --- |
//! | component, operation | a rule set or an operation has it |
//! | kind | the cluster serves it, a rule set that has a target watches it, or an operation is on it |
//! | namespace | the cluster has it, or an operation is in it |
//!
//! The listed operations are checked first. So a value that matches one of them needs no request.

use super::filter::{FilterValue, Filters};
use super::kinds::ChosenKind;
use super::operation::ListedOperation;
use super::output::{OutputShape, complain};
use super::problem::Problem;
use super::source::{OperationSource, escape, namespaces};
use super::suggestion::nearest;
use super::wait::RuleSets;
use clap::ValueEnum as _;
use tokio::sync::OnceCell;

/// A remark about a value that is no error.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum FilterWarning {
    /// The value exists, but no rule set detects such operations.
    NoRuleSet(String),
    /// The existence of the value cannot be checked.
    Unchecked(String),
}

impl FilterWarning {
    /// Prints the remark to standard error.
    pub(super) fn say(&self) {
        match self {
            Self::NoRuleSet(text) => complain("warning", text),
            Self::Unchecked(text) => complain("note", text),
        }
    }
}

/// Checks the values of `filters`. `listed` are operations that `source` listed.
pub(super) async fn check(
    filters: &Filters,
    source: &OperationSource,
    listed: &[ListedOperation],
) -> Result<Vec<FilterWarning>, Problem> {
    let is_seen = |value: &FilterValue<'_>| {
        let alone = value.alone();
        listed.iter().any(|it| alone.matches(it))
    };
    let mut unseen = filters.values();
    unseen.retain(|value| !is_seen(value));
    let is_selector_seen = filters.selector.is_none() || !listed.is_empty();
    if unseen.is_empty() && is_selector_seen {
        return Ok(Vec::new());
    }
    let cluster = FilterCheck {
        source,
        filters,
        rule_sets: RuleSets::read(&source.server).await,
        operations: OnceCell::new(),
    };
    let mut remarks = Vec::new();
    for value in &unseen {
        remarks.extend(cluster.check(*value).await?);
    }
    if let Ok(rule_sets) = &cluster.rule_sets
        && !rule_sets.is_empty()
    {
        // A value that matches an operation needs no rule set.
        let in_question = unseen
            .iter()
            .map(|value| value.put_into(filters.clone()))
            .find_map(|filters| rule_sets.unseen(&filters));
        let unlabelled = || rule_sets.unlabelled(filters).filter(|_| !is_selector_seen);
        remarks.extend(
            in_question
                .or_else(unlabelled)
                .map(FilterWarning::NoRuleSet),
        );
    }
    Ok(remarks)
}

/// Checks the values, and prints the remarks to standard error.
pub(super) async fn check_and_warn(
    filters: &Filters,
    source: &OperationSource,
    listed: &[ListedOperation],
) -> Result<(), Problem> {
    let remarks = check(filters, source, listed).await?;
    remarks.iter().for_each(FilterWarning::say);
    Ok(())
}

/// The facts about a cluster that are read when needed.
struct FilterCheck<'a> {
    source: &'a OperationSource,
    filters: &'a Filters,
    rule_sets: Result<RuleSets, Problem>,
    /// All operations that the user may read, in any phase.
    operations: OnceCell<Result<Vec<ListedOperation>, Problem>>,
}

impl FilterCheck<'_> {
    async fn check(&self, value: FilterValue<'_>) -> Result<Option<FilterWarning>, Problem> {
        match value {
            FilterValue::Component(name) | FilterValue::Operation(name) => {
                self.check_name(value, name).await
            }
            FilterValue::Kind(kind) => self.check_kind(value, kind).await,
            FilterValue::Namespace(name) => self.check_namespace(value, name).await,
        }
    }

    /// Returns all operations that the user may read. For a user with rights in one namespace,
    /// these are the operations of the namespace.
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

    /// Checks a component or an operation. A rule set or an operation must have it.
    async fn check_name(
        &self,
        value: FilterValue<'_>,
        name: &str,
    ) -> Result<Option<FilterWarning>, Problem> {
        let alone = value.alone();
        let rule_sets = self.rule_sets.as_ref();
        if rule_sets.is_ok_and(|it| it.look_for(&alone)) || self.has_operation(value).await {
            return Ok(None);
        }
        let (rule_sets, operations) = match (rule_sets, self.operations().await) {
            // A command without results prints this itself.
            (Ok(rule_sets), _) if rule_sets.is_empty() => return Ok(None),
            (Ok(rule_sets), Ok(operations)) => (rule_sets, operations),
            (Err(problem), _) | (_, Err(problem)) => {
                let why = short(problem);
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
        Err(Problem::Usage(self.no_operation(value, name, suggestion)))
    }

    /// Returns the error for an unknown operation that may be intended as an output format.
    fn no_operation(&self, value: FilterValue<'_>, name: &str, operation: Option<&str>) -> String {
        let shapes: Vec<_> = OutputShape::value_variants()
            .iter()
            .filter_map(OutputShape::to_possible_value)
            .collect();
        let formats = shapes.iter().map(clap::builder::PossibleValue::get_name);
        let format = nearest(name, formats.filter(|_| self.filters.accepts_format));
        let what = if self.filters.accepts_format {
            format!("-o {name}: there is no operation and no output format of this name")
        } else {
            format!("{value}: no OperationRuleSet detects this operation")
        };
        let format = format.map(|it| format!("the format {it:?}"));
        let operation = operation.map(|it| format!("the operation {it:?}"));
        let suggestion: Vec<String> = format.into_iter().chain(operation).collect();
        if suggestion.is_empty() {
            what + "; see: kubectl get operationrulesets.ifo.kubevirt.io -o yaml"
        } else {
            format!("{what}; did you mean {}?", suggestion.join(" or "))
        }
    }

    async fn check_kind(
        &self,
        value: FilterValue<'_>,
        kind: &ChosenKind,
    ) -> Result<Option<FilterWarning>, Problem> {
        let rule_sets = self.rule_sets.as_ref();
        let is_known = kind.is_served()
            || rule_sets.is_ok_and(|it| it.watch(kind))
            || self.has_operation(value).await;
        if is_known {
            return Ok(None);
        }
        if !kind.is_unknown() {
            // If the rule sets are readable, their check reports that none detects such operations.
            let unchecked = unchecked(value, "the cluster does not list all kinds");
            let is_said = rule_sets.is_ok_and(|it| !it.is_empty());
            return Ok((!is_said).then_some(unchecked));
        }
        let operations = self.operations().await.unwrap_or_default();
        let on = operations.iter().map(|it| it.subject.kind.as_str());
        let targets = rule_sets.map(RuleSets::resources);
        let unknown = kind.unknown(targets.into_iter().flatten().chain(on));
        Err(Problem::Usage(if unknown.ends_with('?') {
            unknown
        } else {
            format!("{unknown}; see: kubectl api-resources")
        }))
    }

    async fn check_namespace(
        &self,
        value: FilterValue<'_>,
        name: &str,
    ) -> Result<Option<FilterWarning>, Problem> {
        let server = &self.source.server;
        let path = format!("/api/v1/namespaces/{}", escape(name));
        let why = match server.answer(&path, "namespaces", None).await {
            Ok(_) => return Ok(None),
            // A server without namespaces also answers 404, for the path.
            Err(Problem::NotFound(message)) if message.starts_with("namespaces \"") => {
                let all = namespaces(server).await;
                let suggestion = nearest(name, all.iter().map(String::as_str));
                return Err(Problem::Usage(format!(
                    "there is no namespace {name:?}{}",
                    hint(suggestion, "see: kubectl get namespaces")
                )));
            }
            Err(Problem::NotFound(_)) => "the cluster serves no namespaces".to_owned(),
            Err(Problem::Forbidden { .. }) => "you may not get namespaces".to_owned(),
            Err(problem) => short(&problem),
        };
        // A right in this namespace alone comes from a RoleBinding, which exists in the namespace.
        let everywhere = self.source.unfiltered().list().await;
        let is_bound = matches!(everywhere, Err(Problem::Forbidden { .. }));
        if is_bound || self.has_operation(value).await {
            return Ok(None);
        }
        Ok(Some(unchecked(value, &why)))
    }
}

fn unchecked(value: FilterValue<'_>, why: &str) -> FilterWarning {
    FilterWarning::Unchecked(format!("cannot check {value}: {why}"))
}

/// Returns the end of a message about an unknown value.
fn hint(suggestion: Option<&str>, see: &str) -> String {
    match suggestion {
        Some(suggestion) => format!("; did you mean {suggestion:?}?"),
        None => format!("; {see}"),
    }
}

/// Returns a problem without its hint, for a command that continues.
fn short(problem: &Problem) -> String {
    match problem {
        Problem::Forbidden { verb, resource, .. } => format!("you may not {verb} {resource}"),
        Problem::NotFound(_) => "the cluster serves no OperationRuleSets".to_owned(),
        problem => problem.to_string(),
    }
}
