//! Reads the rule sets (`OperationRuleSet`) of the cluster, and decides which operations they can
//! detect. `ifo-apiserver` detects operations with rule sets.

use crate::cluster::api_client::ApiClient;
use crate::cluster::discovered_kinds::ChosenKind;
use crate::cluster::problem::Problem;
use crate::filters::filter::{FilterValue, Filters};
use crate::filters::label_selector::Requirement;
use ifo_api::live::State;
use ifo_api::ruleset::{self, OperationRuleSetSpec, OperationRuleSetStatus};
use ifo_api::{GROUP, labels};
use ifo_client::list::list_path;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;

/// All rule sets of the cluster, with the fields that the checks of filters and of `wait` use.
#[derive(Debug, Deserialize)]
pub(crate) struct RuleSets {
    pub(crate) items: Vec<ListedRuleSet>,
}

/// A rule set of the cluster.
#[derive(Debug, Deserialize)]
pub(crate) struct ListedRuleSet {
    metadata: ObjectMeta,
    spec: OperationRuleSetSpec,
    #[serde(default)]
    status: OperationRuleSetStatus,
}

impl RuleSets {
    /// Reads all rule sets.
    pub(crate) async fn read(server: &ApiClient) -> Result<Self, Problem> {
        let path = list_path(GROUP, ruleset::PLURAL, None);
        let items = server.all(&path, "").await?;
        Ok(Self { items })
    }

    /// Returns true if there are no rule sets.
    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Returns true if a rule set can detect operations that this value selects.
    pub(crate) fn detect(&self, value: FilterValue<'_>) -> bool {
        self.items.iter().any(|it| it.detects(value))
    }

    /// Returns true if a rule set watches this kind and the cluster serves the watched resource.
    pub(crate) fn watch(&self, kind: &ChosenKind) -> bool {
        let mut items = self.items.iter();
        items.any(|it| it.detects(FilterValue::Kind(kind)) && !it.is_without_target())
    }

    /// Returns the existing values of the flag of `value`: the components, the operations, or the
    /// targets that the cluster serves.
    pub(crate) fn names(&self, value: FilterValue<'_>) -> impl Iterator<Item = &str> {
        self.items.iter().flat_map(move |it| match value {
            FilterValue::Component(_) => vec![it.spec.component.as_str()],
            FilterValue::Operation(_) => {
                let rules = it.spec.rules.iter();
                rules.map(|it| it.operation.as_str()).collect()
            }
            FilterValue::Kind(_) if !it.is_without_target() => vec![&*it.spec.target.resource],
            _ => Vec::new(),
        })
    }

    /// Returns a message if no rule set can detect some of the operations that the user asks for.
    /// The message is about the first of these cases that applies:
    ///
    /// 1. Some of `values` select only operations that no rule set can detect.
    /// 2. For some of `values`, no rule set can detect operations that the other flags of `filters`
    ///    also select.
    /// 3. No rule set can detect operations with labels that match the label selector.
    ///
    /// Each value needs a rule set: with `-k vm,pod`, a rule set for virtual machines is not
    /// enough.
    pub(crate) fn undetectable(
        &self,
        filters: &Filters,
        values: &[FilterValue<'_>],
    ) -> Option<String> {
        let undetected = |others: &Filters| {
            let is_detected = |value: &FilterValue<'_>| {
                self.items.iter().any(|set| {
                    let fits = |it: FilterValue<'_>| it.is_of_flag(value) || set.detects(it);
                    set.detects(*value) && others.all_flags(fits)
                })
            };
            let undetected = values.iter().filter(|it| !is_detected(it));
            undetected.collect::<Vec<_>>()
        };
        let mut wrong = [undetected(&Filters::default()), undetected(filters)].into_iter();
        let Some(wrong) = wrong.find(|it| !it.is_empty()) else {
            let is_detected = self.items.iter().any(|it| it.can_detect(filters));
            let why = "no OperationRuleSet detects operations with such labels: check --selector";
            return (!is_detected).then(|| format!("{why} {}", filters.selector.text));
        };
        let is_vague = |it: &&FilterValue<'_>| match it {
            FilterValue::Kind(kind) => kind.resources.is_none(),
            _ => false,
        };
        let mut hint = "";
        if wrong.iter().any(is_vague) {
            hint = "; the kinds of the cluster are unknown, so give the full name of the kind";
        }
        let flags: Vec<String> = wrong.iter().map(ToString::to_string).collect();
        let flags = flags.join(", ");
        Some(format!(
            "no OperationRuleSet detects such operations: check {flags}{hint}"
        ))
    }
}

impl ListedRuleSet {
    pub(crate) fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }

    /// Returns true if the rule set can detect operations that match the filters.
    pub(crate) fn can_detect(&self, filters: &Filters) -> bool {
        let mut labels = filters.selector.requirements.iter();
        filters.all_flags(|it| self.detects(it)) && labels.all(|it| self.fulfils(it))
    }

    /// Returns true if the rule set can detect operations that this value selects.
    fn detects(&self, value: FilterValue<'_>) -> bool {
        let spec = &self.spec;
        let mut rules = spec.rules.iter();
        match value {
            FilterValue::Component(name) => spec.component.eq_ignore_ascii_case(name),
            FilterValue::Kind(kind) => kind.matches_resource(&spec.target),
            FilterValue::Operation(name) => rules.any(|it| it.operation.eq_ignore_ascii_case(name)),
            FilterValue::Node(_) => spec.nodes.is_some(),
            FilterValue::Namespace(name) => {
                spec.namespaces.is_empty() || spec.namespaces.contains(name)
            }
        }
    }

    /// Returns true if operations of the rule set can fulfil a requirement on their labels.
    fn fulfils(&self, it: &Requirement) -> bool {
        let spec = &self.spec;
        let is_allowed = |text: &str| it.allows(|value| *value == labels::to_value(text));
        match it.key.strip_prefix(labels::PREFIX) {
            Some("component") => is_allowed(&spec.component),
            Some("operation") => spec.rules.iter().any(|it| is_allowed(&it.operation)),
            Some("ruleset") => is_allowed(self.name()),
            Some("state") => State::ALL.iter().any(|it| is_allowed(it.name())),
            Some(suffix) if labels::SERVER_SUFFIXES.contains(&suffix) => true,
            _ => {
                let mut computed = spec.label_expressions.iter();
                let fixed = spec.labels.get(&it.key);
                fixed.map_or(it.is_negated, |text| is_allowed(text))
                    || computed.any(|label| label.key == it.key)
            }
        }
    }

    /// Returns true if the status is about the current generation of the rule set.
    pub(crate) fn is_current(&self) -> bool {
        self.metadata.generation.is_none()
            || self.status.observed_generation == self.metadata.generation
    }

    /// Returns true if the cluster does not serve the API group of the target.
    pub(crate) fn is_without_group(&self) -> bool {
        self.has_unusable_target(&[ruleset::GROUP_NOT_SERVED])
    }

    /// Returns true if the cluster does not serve the target: its group, version or resource.
    fn is_without_target(&self) -> bool {
        self.has_unusable_target(&[ruleset::GROUP_NOT_SERVED, ruleset::NOT_SERVED])
    }

    /// Returns true if the status states that the server cannot watch the target, and states one of
    /// `reasons`.
    fn has_unusable_target(&self, reasons: &[&str]) -> bool {
        let mut conditions = self.status.conditions.iter();
        self.is_current()
            && conditions.any(|it| it.status == "True" && reasons.contains(&it.reason.as_str()))
    }
}
