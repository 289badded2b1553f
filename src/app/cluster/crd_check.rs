//! Watches the installed `CustomResourceDefinition` (CRD) of rule sets, and compares its fields
//! with the fields that this release knows.
//!
//! The CRD is installed separately from the server, so the CRD can be older. If the CRD lacks a
//! field, the kube-apiserver removes the field from rule sets, and the server never receives it.

use crate::rules::RuleSetEvent;
use futures::StreamExt as _;
use futures::stream::BoxStream;
use ifo_api::generate_crds;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client};

/// Name of the CRD of rule sets.
const DEFINITION: &str = "operationrulesets.ifo.kubevirt.io";

/// Returns a stream of lists. Each list contains the fields that this release knows and that the
/// installed CRD lacks. The stream has an item when the CRD is first read, and when the list
/// changes. Errors of this watch are not logged, because the watch of the rule sets reports the
/// same causes.
pub(super) fn follow(client: Client) -> BoxStream<'static, RuleSetEvent> {
    let api: Api<CustomResourceDefinition> = Api::all(client);
    let only = watcher::Config::default().fields(&format!("metadata.name={DEFINITION}"));
    let mut last: Option<Vec<String>> = None;
    watcher(api, only)
        .default_backoff()
        .filter_map(move |event| {
            let event = match event {
                Ok(watcher::Event::Apply(found) | watcher::Event::InitApply(found)) => {
                    let missing = generate_crds::missing_fields(&found);
                    if last.as_ref() == Some(&missing) {
                        None
                    } else {
                        if !missing.is_empty() {
                            tracing::warn!(
                                fields = missing.join(", "),
                                "the CRD of rule sets is older than this server and lacks fields. \
                                 Update it: kubectl apply -k deploy/crd"
                            );
                        }
                        last = Some(missing.clone());
                        Some(RuleSetEvent::OutdatedDefinition(missing))
                    }
                }
                _ => None,
            };
            std::future::ready(event)
        })
        .boxed()
}
