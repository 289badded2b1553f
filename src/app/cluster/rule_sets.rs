//! Watches the rule sets of a cluster for the rule-set controller, which compiles the rules.
//!
//! Also watches the installed `CustomResourceDefinition` (CRD) of rule sets, and compares its fields
//! with the fields that this release knows. The CRD is installed separately from the server, so the
//! CRD can be older. If the CRD lacks a field, the kube-apiserver removes the field from rule sets,
//! and the server never receives it.

use crate::rules::RuleSetEvent;
use futures::StreamExt as _;
use futures::stream::{self, BoxStream};
use ifo_api::ruleset::OperationRuleSet;
use ifo_api::schema;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::core::{ApiResource, DynamicObject};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};

/// Name of the CRD of rule sets.
const DEFINITION: &str = "operationrulesets.ifo.kubevirt.io";

/// Maximum number of unknown fields that are reported for one rule set. Further unknown fields are
/// not reported, because a status message has no room for more.
const MAX_UNKNOWN_FIELDS: usize = 20;

/// Watches the rule sets and their CRD. If a rule set cannot be decoded, the stream yields
/// [`RuleSetEvent::Unreadable`] with its name. The other rule sets are processed as usual.
pub(super) fn follow(client: Client) -> BoxStream<'static, RuleSetEvent> {
    let definition = missing_fields(client.clone());
    // Rule sets are read as `DynamicObject`, which keeps the fields that this server does not know.
    // `applied` reports these fields.
    let resource = ApiResource::erase::<OperationRuleSet>(&());
    let api: Api<DynamicObject> = Api::all_with(client, &resource);
    let mut last_logged: Option<String> = None;
    let rule_sets = watcher(api, watcher::Config::default())
        .default_backoff()
        .filter_map(move |event| {
            let event = match event {
                Ok(watcher::Event::Init) => Some(RuleSetEvent::Reset),
                Ok(watcher::Event::InitApply(object) | watcher::Event::Apply(object)) => {
                    Some(applied(object.name_any(), json!(object)))
                }
                Ok(watcher::Event::InitDone) => {
                    last_logged = None;
                    Some(RuleSetEvent::Synced)
                }
                Ok(watcher::Event::Delete(object)) => {
                    Some(RuleSetEvent::Deleted(object.name_any()))
                }
                Err(error) => {
                    // The watcher retries a failed watch. The server logs an error only if it
                    // differs from the last logged error. After a complete list of the rule sets,
                    // the server logs the next error in any case.
                    let reason = watch_failure(&error);
                    if last_logged.as_ref() != Some(&reason) {
                        tracing::warn!("rule sets cannot be watched: {reason}");
                        last_logged = Some(reason);
                    }
                    None
                }
            };
            std::future::ready(event)
        });
    // The controller stops if this stream ends. The stream never ends, because the watch of the
    // rule sets never ends.
    stream::select(rule_sets, definition).boxed()
}

/// Returns a stream of lists. Each list contains the fields that this release knows and that the
/// installed CRD lacks. The stream has an item when the CRD is first read, and when the list
/// changes. Errors of this watch are not logged, because the watch of the rule sets reports the
/// same causes.
fn missing_fields(client: Client) -> BoxStream<'static, RuleSetEvent> {
    let api: Api<CustomResourceDefinition> = Api::all(client);
    let only = watcher::Config::default().fields(&format!("metadata.name={DEFINITION}"));
    let mut last: Option<Vec<String>> = None;
    let definitions = watcher(api, only).default_backoff().applied_objects();
    let missing = definitions.filter_map(move |found| {
        let missing = found.ok().map(|found| schema::missing_fields(&found));
        let missing = missing.filter(|missing| last.as_ref() != Some(missing));
        if let Some(missing) = &missing {
            last = Some(missing.clone());
            if !missing.is_empty() {
                tracing::warn!(
                    fields = missing.join(", "),
                    "the CRD of rule sets is older than this server and lacks fields. Update it: \
                     kubectl apply -k deploy/crd"
                );
            }
        }
        std::future::ready(missing.map(RuleSetEvent::OutdatedDefinition))
    });
    missing.boxed()
}

/// Decodes the JSON of a rule set. Returns the event for the controller.
pub(in crate::app) fn applied(name: String, json: Value) -> RuleSetEvent {
    decode(json).unwrap_or_else(|error| {
        tracing::warn!(name, %error, "a rule set could not be decoded");
        RuleSetEvent::Unreadable(name)
    })
}

/// Decodes the JSON of a rule set. Returns the event for the controller: the rule set, and the fields
/// of its spec that this server does not know.
fn decode(json: Value) -> Result<RuleSetEvent, serde_json::Error> {
    let mut unknown_fields = Vec::new();
    let note = |path: serde_ignored::Path<'_>| {
        // The path has a `?` for each optional value.
        let field = path.to_string().replace(".?", "");
        if field.starts_with("spec.") && unknown_fields.len() < MAX_UNKNOWN_FIELDS {
            unknown_fields.push(field);
        }
    };
    let rule_set = serde_ignored::deserialize(json, note)?;
    Ok(RuleSetEvent::Applied {
        rule_set: Box::new(rule_set),
        unknown_fields,
    })
}

/// Returns the reason why rule sets cannot be watched. The CRD of rule sets can be missing, because
/// the CRD is installed separately from the server.
fn watch_failure(error: &watcher::Error) -> String {
    match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status)) if status.code == 404 => {
            "their CRD is not installed: kubectl apply -k deploy/crd".to_owned()
        }
        error => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_fields_of_the_spec_are_reported_with_their_paths() {
        let event = |spec: Value| {
            let object = json!({
                "apiVersion": "ifo.kubevirt.io/v1alpha1", "kind": "OperationRuleSet",
                "metadata": {"name": "a", "newer": 1}, "spec": spec, "status": {"newer": 1},
            });
            applied("a".to_owned(), object)
        };
        let target = json!({"group": "", "version": "v1", "resource": "pods"});
        let spec = json!({
            "component": "tests", "target": target, "newer": {"x": 1},
            "labelSelector": {"matchLabels": {"a": "b"}, "newer": []},
            "rules": [
                {"operation": "A", "expression": "true"},
                {"operation": "B", "expression": "true", "newer": "30s"},
            ],
        });
        let RuleSetEvent::Applied {
            rule_set,
            unknown_fields,
        } = event(spec)
        else {
            panic!("the rule set is valid");
        };
        assert_eq!(rule_set.spec.rules.len(), 2);
        let expected = [
            "spec.labelSelector.newer",
            "spec.newer",
            "spec.rules.1.newer",
        ];
        assert_eq!(unknown_fields, expected);

        // This object lacks required fields, so this server cannot decode it. Then the only event
        // is `Unreadable`, and no unknown fields are reported.
        let event = event(json!({"target": target}));
        assert!(matches!(event, RuleSetEvent::Unreadable(name) if name == "a"));
    }
}
