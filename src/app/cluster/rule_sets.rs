//! Watches the rule sets of a cluster.
//!
//! Input: the watch of `OperationRuleSet`. Output: events for the rule-set controller.

use crate::rules::RuleSetEvent;
use futures::StreamExt;
use futures::stream::BoxStream;
use ifo_api::ruleset::OperationRuleSet;
use kube::core::DeserializeGuard;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};

/// Follows the rule sets. An object that cannot be decoded is reported under its name. The other
/// objects are processed as usual.
pub(super) fn follow(client: Client) -> BoxStream<'static, RuleSetEvent> {
    let api: Api<DeserializeGuard<OperationRuleSet>> = Api::all(client);
    let applied = |object: DeserializeGuard<OperationRuleSet>| match object.0 {
        Ok(object) => RuleSetEvent::Applied(Box::new(object)),
        Err(invalid) => {
            let name = invalid.metadata.name.unwrap_or_default();
            tracing::warn!(name, error = %invalid.error, "a rule set could not be decoded");
            RuleSetEvent::Unreadable(name)
        }
    };
    let mut said: Option<String> = None;
    watcher(api, watcher::Config::default())
        .default_backoff()
        .filter_map(move |event| {
            let event = match event {
                Ok(watcher::Event::Init) => Some(RuleSetEvent::Reset),
                Ok(watcher::Event::InitApply(object) | watcher::Event::Apply(object)) => {
                    Some(applied(object))
                }
                Ok(watcher::Event::InitDone) => Some(RuleSetEvent::Synced),
                Ok(watcher::Event::Delete(object)) => {
                    Some(RuleSetEvent::Deleted(object.name_any()))
                }
                Err(error) => {
                    // The watch is retried each second. Each cause is logged once.
                    let trouble = unwatched(&error);
                    if said.as_ref() != Some(&trouble) {
                        tracing::warn!("rule sets cannot be watched: {trouble}");
                        said = Some(trouble);
                    }
                    None
                }
            };
            if matches!(event, Some(RuleSetEvent::Synced)) {
                said = None;
            }
            std::future::ready(event)
        })
        .boxed()
}

/// The reason for which rule sets cannot be watched. The CRD is installed separately from the
/// server, so it can be missing.
fn unwatched(error: &watcher::Error) -> String {
    match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status)) if status.code == 404 => {
            "their CRD is not installed: kubectl apply -k deploy/crd".to_owned()
        }
        error => error.to_string(),
    }
}
