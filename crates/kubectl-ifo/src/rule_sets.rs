//! Reads the rule sets (`OperationRuleSet`) of the cluster, and decides which operations they can
//! detect. `ifo-apiserver` detects operations with rule sets.

use super::api_client::ApiClient;
use super::discovered_kinds::ChosenKind;
use super::filter::{FilterValue, Filters, is_empty_or_contains};
use super::problem::Problem;
use ifo_api::ruleset::{self, OperationRuleSetSpec, OperationRuleSetStatus};
use ifo_api::{GROUP, VERSION, labels};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use serde::Deserialize;

/// The type of the condition that states why the target of a rule set (the resource that the rule
/// set watches) is invalid. The condition `Ready` only states that the target is invalid.
const INVALID_TARGET: &str = "InvalidTarget";

/// All rule sets of the cluster, with the fields that the checks of filters and of `wait` use.
#[derive(Debug, Deserialize)]
pub(super) struct RuleSets {
    pub(super) items: Vec<ListedRuleSet>,
}

/// A rule set of the cluster.
#[derive(Debug, Deserialize)]
pub(super) struct ListedRuleSet {
    metadata: ObjectMeta,
    spec: OperationRuleSetSpec,
    #[serde(default)]
    status: OperationRuleSetStatus,
}

impl RuleSets {
    /// Reads all rule sets.
    pub(super) async fn read(server: &ApiClient) -> Result<Self, Problem> {
        let plural = ruleset::PLURAL;
        let path = format!("/apis/{GROUP}/{VERSION}/{plural}");
        let read = |item: &str| serde_json::from_str(item).map(Some);
        let items = server.all(&path, "", read).await?;
        Ok(Self { items })
    }

    /// Returns true if there are no rule sets.
    pub(super) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Returns true if there is a rule set with this name.
    pub(super) fn has(&self, name: &str) -> bool {
        self.items.iter().any(|it| it.name() == name)
    }

    /// Returns true if a rule set can detect operations that match the filters.
    pub(super) fn can_detect(&self, filters: &Filters) -> bool {
        self.items.iter().any(|it| it.can_detect(filters))
    }

    /// Returns true if a rule set watches this kind and the cluster serves the watched resource.
    pub(super) fn watches(&self, kind: &ChosenKind) -> bool {
        let filters = FilterValue::Kind(kind).alone();
        let mut items = self.items.iter();
        items.any(|it| it.can_detect(&filters) && !it.is_without_target())
    }

    /// Returns the components of all rule sets.
    pub(super) fn components(&self) -> impl Iterator<Item = &str> {
        self.items.iter().map(|it| it.spec.component.as_str())
    }

    /// Returns the names of the operations that the rule sets detect.
    pub(super) fn operations(&self) -> impl Iterator<Item = &str> {
        let rules = self.items.iter().flat_map(|it| &it.spec.rules);
        rules.map(|it| it.operation.as_str())
    }

    /// Returns the plural names of the targets that the cluster serves.
    pub(super) fn resources(&self) -> impl Iterator<Item = &str> {
        let there = self.items.iter().filter(|it| !it.is_without_target());
        there.map(|it| it.spec.target.resource.as_str())
    }

    /// Returns a message about the first filter value for which no rule set can detect operations,
    /// alone or together with the other filters. Each value needs a rule set: with `-k vm,pod`, a
    /// rule set for virtual machines is not enough. If there is no such value, returns
    /// [`Self::unknown_label_message`].
    pub(super) fn undetectable_message(&self, filters: &Filters) -> Option<String> {
        let values = filters.values();
        let alone = values.iter().find(|it| !self.can_detect(&it.alone()));
        let mut together = values.iter();
        let together = together.find(|it| !self.can_detect(&it.put_into(filters.clone())));
        let Some(value) = alone.or(together) else {
            return self.unknown_label_message(filters);
        };
        let vague = match value {
            FilterValue::Kind(kind) if kind.may_exist_unseen() => {
                "; the kinds of the cluster are unknown, so give the full name of the kind"
            }
            _ => "",
        };
        Some(format!(
            "no OperationRuleSet detects such operations: check {value}{vague}"
        ))
    }

    /// Returns a message about the first label in the selector that no matching operation can have.
    /// The user has probably misspelt this label. None if operations can have all labels.
    pub(super) fn unknown_label_message(&self, filters: &Filters) -> Option<String> {
        let keys = filters.selector.as_ref()?.keys();
        let mut unknown = keys.filter(|key| {
            let own = key.strip_prefix(labels::PREFIX);
            let is_set_by_server = own.is_some_and(|it| labels::SERVER_SUFFIXES.contains(&it));
            let mut relevant = self.items.iter().filter(|it| it.can_detect(filters));
            !is_set_by_server && !relevant.any(|it| it.sets_label(key))
        });
        unknown.next().map(|key| {
            format!(
                "neither the server nor an OperationRuleSet gives such operations a label {key:?}: check --selector"
            )
        })
    }
}

impl ListedRuleSet {
    pub(super) fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }

    /// Returns true if the rule set can detect operations that match the filters.
    pub(super) fn can_detect(&self, filters: &Filters) -> bool {
        let spec = &self.spec;
        let namespace =
            |namespace: &String| spec.namespaces.is_empty() || spec.namespaces.contains(namespace);
        let mut kinds = filters.kind.iter();
        let mut operations = spec.rules.iter().map(|it| &it.operation);
        let is_wanted = |name: &String| is_empty_or_contains(&filters.operation, name);
        is_empty_or_contains(&filters.component, &spec.component)
            && (filters.kind.is_empty() || kinds.any(|it| it.matches_resource(&spec.target)))
            && (filters.operation.is_empty() || operations.any(is_wanted))
            && (filters.node.is_empty() || spec.nodes.is_some())
            && filters.namespace.as_ref().is_none_or(namespace)
    }

    /// Returns true if the rule set gives operations a label with this key.
    fn sets_label(&self, key: &str) -> bool {
        let mut computed = self.spec.label_expressions.iter();
        self.spec.labels.contains_key(key) || computed.any(|it| it.key == key)
    }

    fn ready(&self) -> Option<&Condition> {
        let mut conditions = self.status.conditions.iter();
        conditions.find(|it| it.type_ == "Ready")
    }

    /// Returns true if the status is about the current generation of the rule set.
    pub(super) fn is_current(&self) -> bool {
        self.metadata.generation.is_none()
            || self.status.observed_generation == self.metadata.generation
    }

    /// Returns true if the cluster does not serve the API group of the target.
    pub(super) fn is_without_group(&self) -> bool {
        self.has_unusable_target(&[ruleset::GROUP_NOT_SERVED])
    }

    /// Returns true if the cluster does not serve the target: its group, version or resource.
    fn is_without_target(&self) -> bool {
        self.has_unusable_target(&[ruleset::GROUP_NOT_SERVED, ruleset::NOT_SERVED])
    }

    /// Returns true if the server cannot watch the target for one of `reasons`.
    fn has_unusable_target(&self, reasons: &[&str]) -> bool {
        let types = [ruleset::NOT_INSTALLED, INVALID_TARGET];
        let conditions = self.status.conditions.iter();
        let mut conditions = conditions.filter(|it| types.contains(&it.type_.as_str()));
        self.is_current()
            && conditions.any(|it| it.status == "True" && reasons.contains(&it.reason.as_str()))
    }

    /// Returns the message of the condition `Ready` as the end of a sentence: `: MESSAGE`. Empty if
    /// the status of the condition is `True`, or if there is no message.
    pub(super) fn not_ready_text(&self) -> String {
        match self.ready() {
            Some(ready) if ready.status != "True" && !ready.message.is_empty() => {
                format!(": {}", ready.message)
            }
            _ => String::new(),
        }
    }
}
