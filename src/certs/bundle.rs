//! Tells the kube-apiserver by which CA it knows us: keeps `spec.caBundle` of our
//! `APIService` right. Enters: the bundle, and the `APIService` as it changes. Leaves: a
//! patch of that one field, and only when it differs.
//!
//! Several replicas do this. While the CA is renewed, they can have different bundles for a
//! minute. So a replica leaves a bundle alone that has all its certificates and more.

use super::{FIELD_MANAGER, WITHIN};
use futures::StreamExt;
use k8s_openapi::ByteString;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::api::{Patch, PatchParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// How often the `APIService` is read without being told of a change: it heals what a
/// watch missed, and works without the right to watch.
const CHECK_EVERY: Duration = Duration::from_mins(1);

/// How long to wait after a failed write before a change is tried again, so that two
/// writers who disagree do not do so at full speed.
const PAUSE: Duration = Duration::from_secs(1);

/// Keeps an `APIService`'s `caBundle`.
#[derive(Debug)]
pub struct CaBundle {
    api: Api<APIService>,
    name: String,
    bundle: watch::Receiver<Arc<str>>,
    params: PatchParams,
    /// By verb, the trouble that was logged last, so that it is logged once.
    troubles: BTreeMap<&'static str, String>,
}

impl CaBundle {
    /// For the `APIService` `name` (`<version>.<group>`), with the PEM in `bundle`.
    pub fn new(client: Client, name: &str, bundle: watch::Receiver<Arc<str>>) -> Self {
        Self {
            api: Api::all(client),
            name: name.to_owned(),
            bundle,
            params: PatchParams {
                field_manager: Some(FIELD_MANAGER.to_owned()),
                ..PatchParams::default()
            },
            troubles: BTreeMap::new(),
        }
    }

    /// Keeps the field right: when the `APIService` appears or changes, when the bundle
    /// does, and every minute; never ends by itself. An `APIService` that is absent is
    /// waited for, and never made here.
    pub async fn keep(mut self) {
        let only = watcher::Config::default().fields(&format!("metadata.name={}", self.name));
        let mut events = watcher(self.api.clone(), only).default_backoff().boxed();
        let mut ticks = tokio::time::interval(CHECK_EVERY);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut bundle = self.bundle.clone();
        let mut alive = true;
        loop {
            // A pending future for a sender that is gone: the last bundle stays right.
            let changed = async {
                if alive {
                    bundle.changed().await
                } else {
                    std::future::pending().await
                }
            };
            tokio::select! {
                Some(event) = events.next() => match event {
                    Ok(watcher::Event::Apply(found) | watcher::Event::InitApply(found)) => {
                        // Read again: what the event shows may be older than our patch.
                        if !self.is_sufficient(&found) {
                            self.check(Self::is_sufficient).await;
                        }
                    }
                    Ok(watcher::Event::InitDone) => {
                        self.troubles.remove("watch");
                    }
                    Ok(_) => {}
                    Err(error) => self.say(
                        "watch",
                        &match error {
                            watcher::Error::InitialListFailed(error)
                            | watcher::Error::WatchStartFailed(error)
                            | watcher::Error::WatchFailed(error) => error,
                            watcher::Error::WatchError(status) => kube::Error::Api(status),
                            // No answer of a Kubernetes server; the check goes on.
                            watcher::Error::NoResourceVersion => continue,
                        },
                    ),
                },
                changed = changed => {
                    alive = changed.is_ok();
                    self.check(Self::is_equal).await;
                }
                _ = ticks.tick() => self.check(Self::is_sufficient).await,
            }
        }
    }

    /// Whether the bundle in the `APIService` is ours.
    fn is_equal(&self, found: &APIService) -> bool {
        bundle_of(found) == self.bundle.borrow().as_bytes()
    }

    /// Whether it has all certificates of ours, and perhaps more.
    fn is_sufficient(&self, found: &APIService) -> bool {
        let ours = self.bundle.borrow();
        let current = String::from_utf8_lossy(bundle_of(found));
        let known: BTreeSet<&str> = certificates(&current).collect();
        certificates(&ours).all(|certificate| known.contains(certificate))
    }

    /// Reads the `APIService` and puts it right, or gives up for now.
    async fn check(&mut self, is_right: fn(&Self, &APIService) -> bool) {
        if let Err(late) = tokio::time::timeout(WITHIN, self.put_right(is_right)).await {
            self.say("reach", &kube::Error::Service(late.into()));
        } else {
            self.troubles.remove("reach");
        }
    }

    /// With a JSON merge patch: it says one field, so no other is touched; it fails on
    /// an `APIService` that is gone, where server-side apply would make one; and needs no
    /// `force` against whoever applied the manifest. `kubectl apply` of a manifest
    /// without the field leaves it alone.
    async fn put_right(&mut self, is_right: fn(&Self, &APIService) -> bool) {
        match self.api.get_opt(&self.name).await {
            Ok(found) => {
                self.troubles.remove("get");
                if found.is_none_or(|found| is_right(self, &found)) {
                    self.troubles.remove("patch");
                    return;
                }
            }
            Err(error) => return self.say("get", &error),
        }
        let bundle = ByteString(self.bundle.borrow().as_bytes().to_vec());
        let patch = Patch::Merge(json!({ "spec": { "caBundle": bundle } }));
        match self.api.patch(&self.name, &self.params, &patch).await {
            Ok(_) => {
                self.troubles.remove("patch");
                tracing::info!(name = self.name, "caBundle of the APIService set");
            }
            // Deleted meanwhile; the watch tells when it is back.
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => {
                self.say("patch", &error);
                tokio::time::sleep(PAUSE).await;
            }
        }
    }

    /// Logs a trouble, once for as long as it lasts.
    fn say(&mut self, verb: &'static str, error: &kube::Error) {
        let trouble = match error {
            kube::Error::Api(status) if status.code == 403 => format!(
                "RBAC: the server may not {verb} apiservices.apiregistration.k8s.io {:?}; \
                 until it may, its caBundle must be set by hand",
                self.name
            ),
            _ => format!("cannot {verb} APIService {:?}: {error}", self.name),
        };
        if self.troubles.get(verb) != Some(&trouble) {
            tracing::error!(name = self.name, "{trouble}");
            self.troubles.insert(verb, trouble);
        }
    }
}

fn bundle_of(found: &APIService) -> &[u8] {
    let bundle = found.spec.as_ref().and_then(|spec| spec.ca_bundle.as_ref());
    bundle.map_or(&[], |bundle| &bundle.0)
}

/// The certificates in a bundle, as text.
fn certificates(bundle: &str) -> impl Iterator<Item = &str> {
    let all = bundle.split("-----END CERTIFICATE-----").map(str::trim);
    all.filter(|certificate| !certificate.is_empty())
}
