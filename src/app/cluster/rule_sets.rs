//! Watches the rule sets for the rule-set controller, which compiles the rules.
//!
//! In a cluster, also watches the installed `CustomResourceDefinition` (CRD) of rule sets, and
//! compares its fields with the fields that this release knows. The CRD is installed separately
//! from the server, so the CRD can be older. If the CRD lacks a field, the kube-apiserver removes
//! the field from rule sets, and the server never receives it.

use crate::rules::RuleSetEvent;
use crate::telemetry::FailureLog;
use futures::StreamExt as _;
use futures::stream::{self, BoxStream};
use ifo_api::ruleset::OperationRuleSet;
use ifo_api::{Gvr, Source, schema};
use ifo_client::backoff::WatchBackoff;
use ifo_observe::{Feed, GapReason, Raw};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, Resource as _};
use serde_json::Value;
use std::sync::Arc;

/// Name of the CRD of rule sets.
const DEFINITION: &str = "operationrulesets.ifo.kubevirt.io";

/// Maximum number of unknown fields that are reported for one rule set. Further unknown fields are
/// not reported, because a status message has no room for more.
const MAX_UNKNOWN_FIELDS: usize = 20;

/// Watches the rule sets and their CRD.
pub(super) fn follow(client: Client, feed: &dyn Feed) -> BoxStream<'static, RuleSetEvent> {
    // If this stream ended, the controller would stop. The stream never ends, because the watch of
    // the rule sets never ends.
    stream::select(events(feed), missing_fields(client)).boxed()
}

/// Watches the rule sets that `feed` reads. If a rule set cannot be decoded, the stream yields
/// [`RuleSetEvent::Unreadable`] with its name. The other rule sets are processed as usual.
pub(in crate::app) fn events(feed: &dyn Feed) -> BoxStream<'static, RuleSetEvent> {
    let target = Arc::new(Gvr {
        group: OperationRuleSet::group(&()).into_owned(),
        version: OperationRuleSet::version(&()).into_owned(),
        resource: OperationRuleSet::plural(&()).into_owned(),
    });
    let namespace = None;
    let mut failures = FailureLog::new("rule sets can be watched again");
    let events = feed.follow(Source { target, namespace }, None);
    let events = events.filter_map(move |raw| {
        let event = match raw {
            Raw::Reset => Some(RuleSetEvent::Reset),
            Raw::Applied(json) => named(&json).map(|(name, object)| applied(name, object)),
            Raw::Deleted(json) => named(&json).map(|(name, _)| RuleSetEvent::Deleted(name)),
            Raw::Synced => {
                failures.record(&Ok::<_, String>(()));
                Some(RuleSetEvent::Synced)
            }
            Raw::Lost(why) => {
                // The feed retries a failed watch, until it has a complete list of the rule sets.
                if let Some(reason) = failures.record(&Err::<(), _>(watch_failure(&why))) {
                    tracing::warn!("rule sets cannot be watched: {reason}");
                }
                None
            }
        };
        std::future::ready(event)
    });
    events.boxed()
}

/// Returns the name and the content of an object.
fn named(json: &[u8]) -> Option<(String, Value)> {
    let object: Value = serde_json::from_slice(json).ok()?;
    Some((object["metadata"]["name"].as_str()?.to_owned(), object))
}

/// Watches the CRD of rule sets. Each item of the stream lists the fields that this release knows
/// and that the installed CRD lacks. The stream has an item when the CRD is first read, and when
/// the list of fields changes. Errors of this watch are not logged, because the watch of the rule
/// sets reports the same causes.
fn missing_fields(client: Client) -> BoxStream<'static, RuleSetEvent> {
    let api: Api<CustomResourceDefinition> = Api::all(client);
    let only = watcher::Config::default().fields(&format!("metadata.name={DEFINITION}"));
    let mut last: Option<Vec<String>> = None;
    let definitions = watcher(api, only).backoff(WatchBackoff::default());
    let definitions = definitions.applied_objects();
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
fn applied(name: String, json: Value) -> RuleSetEvent {
    decode(json).unwrap_or_else(|error| {
        tracing::warn!(name, %error, "a rule set could not be decoded");
        RuleSetEvent::Unreadable(name)
    })
}

/// Decodes the JSON of a rule set. Returns the event for the controller: the rule set, and the
/// fields of its spec that this server does not know.
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
fn watch_failure(why: &GapReason) -> String {
    match why {
        GapReason::Refused { code: 404, .. } => {
            "their CRD is not installed: kubectl apply -k deploy/crd".to_owned()
        }
        why => why.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

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
