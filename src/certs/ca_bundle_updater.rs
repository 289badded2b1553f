//! Keeps the field `spec.caBundle` of our `APIService` up to date. The kube-apiserver verifies the
//! certificate of this server with this CA bundle.
//!
//! Each replica updates the field. While the CA is renewed, replicas can have different bundles for
//! a minute. They must not overwrite each other's bundles again and again. So there are two rules:
//!
//! - Usually, a replica accepts a field that contains all certificates of its own bundle. The field
//!   may contain further certificates.
//! - When the bundle of a replica changes, the replica replaces any field that differs from the new
//!   bundle. So the certificate of a removed CA disappears.

use super::{CHECK_TIMEOUT, FIELD_MANAGER};
use crate::telemetry::Metrics;
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

/// Interval at which the server reads the `APIService`, even if the watch has reported no change.
/// So the server also corrects the field if the watch has missed a change, or if the server has no
/// permission to watch `APIService`s.
const CHECK_INTERVAL: Duration = Duration::from_mins(1);

/// Delay after a write, and after a failed attempt to write. Another client and this server may
/// overwrite each other's bundle. Each change of the `APIService` causes a check, so the delay
/// limits the rate of these writes.
const DELAY_AFTER_WRITE: Duration = Duration::from_secs(1);

/// Updates the `caBundle` of one `APIService`.
#[derive(Debug)]
pub struct CaBundleUpdater {
    api: Api<APIService>,
    name: String,
    bundle: watch::Receiver<Arc<str>>,
    params: PatchParams,
    metrics: Arc<Metrics>,
    /// The failure that was logged last for each verb, such as `patch`. A repeated failure is
    /// logged only once.
    logged_failures: BTreeMap<&'static str, String>,
}

impl CaBundleUpdater {
    /// Creates an updater of the `APIService` `name`, which has the form `<version>.<group>`.
    /// `bundle` is the current CA bundle as PEM.
    pub fn new(
        client: Client,
        name: &str,
        bundle: watch::Receiver<Arc<str>>,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self {
            api: Api::all(client),
            name: name.to_owned(),
            bundle,
            params: PatchParams {
                field_manager: Some(FIELD_MANAGER.to_owned()),
                ..PatchParams::default()
            },
            metrics,
            logged_failures: BTreeMap::new(),
        }
    }

    /// Checks the field every minute, and when the `APIService` or the bundle changes. Never ends.
    ///
    /// The updater never creates the `APIService`. If the `APIService` does not exist, the updater
    /// waits until another client creates it.
    pub async fn keep_up_to_date(mut self) {
        let only = watcher::Config::default().fields(&format!("metadata.name={}", self.name));
        let mut events = watcher(self.api.clone(), only).default_backoff().boxed();
        let mut ticks = tokio::time::interval(CHECK_INTERVAL);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut bundle = self.bundle.clone();
        let mut has_sender = true;
        loop {
            // After the sender is dropped, the last bundle stays valid and cannot change. Each call
            // of `bundle.changed()` would return an error immediately. So the loop no longer calls
            // this method.
            let changed = async {
                if has_sender {
                    bundle.changed().await
                } else {
                    std::future::pending().await
                }
            };
            tokio::select! {
                Some(event) = events.next() => match event {
                    Ok(watcher::Event::Apply(found) | watcher::Event::InitApply(found)) => {
                        // The check reads the object again, because the event can be older than our
                        // own patch.
                        if !self.is_sufficient(&found) {
                            self.check(Self::is_sufficient).await;
                        }
                    }
                    Ok(watcher::Event::InitDone) => {
                        self.logged_failures.remove("watch");
                    }
                    Ok(_) => {}
                    Err(error) => self.log_once(
                        "watch",
                        &match error {
                            watcher::Error::InitialListFailed(error)
                            | watcher::Error::WatchStartFailed(error)
                            | watcher::Error::WatchFailed(error) => error,
                            watcher::Error::WatchError(status) => kube::Error::Api(status),
                            // Every list of a kube-apiserver has a resourceVersion, so this error
                            // is not expected. The loop ignores the error, because the periodic
                            // check also updates the field.
                            watcher::Error::NoResourceVersion => continue,
                        },
                    ),
                },
                changed = changed => {
                    has_sender = changed.is_ok();
                    self.check(Self::is_equal).await;
                }
                _ = ticks.tick() => self.check(Self::is_sufficient).await,
            }
        }
    }

    /// Returns true if the bundle in the `APIService` equals the bundle of this replica.
    fn is_equal(&self, found: &APIService) -> bool {
        bundle_of(found) == self.bundle.borrow().as_bytes()
    }

    /// Returns true if the bundle in the `APIService` contains all certificates of this replica's
    /// bundle. Further certificates are allowed.
    fn is_sufficient(&self, found: &APIService) -> bool {
        let ours = self.bundle.borrow();
        let current = String::from_utf8_lossy(bundle_of(found));
        let known: BTreeSet<&str> = certificates(&current).collect();
        certificates(&ours).all(|certificate| known.contains(certificate))
    }

    /// Reads the `APIService`, and writes the field if `is_current` returns false. After
    /// [`CHECK_TIMEOUT`], cancels the requests. Logs a failure. The next check tries again.
    async fn check(&mut self, is_current: fn(&Self, &APIService) -> bool) {
        match tokio::time::timeout(CHECK_TIMEOUT, self.correct(is_current)).await {
            Err(late) => {
                self.metrics.ca_bundle_is_current(false);
                self.log_once("reach", &kube::Error::Service(late.into()));
            }
            Ok(has_sent_write) => {
                self.logged_failures.remove("reach");
                if has_sent_write {
                    tokio::time::sleep(DELAY_AFTER_WRITE).await;
                }
            }
        }
    }

    /// Does the work of [`Self::check`] without a time limit. Returns true after a write, and after
    /// a failed attempt to write. Returns false if the `APIService` does not exist, cannot be read
    /// or needs no write.
    ///
    /// Writes the field with a JSON merge patch, for these reasons:
    ///
    /// - The patch changes no other field.
    /// - The patch fails if the `APIService` was deleted. Server-side apply would create the
    ///   `APIService`.
    /// - The patch needs no `force`, although another field manager has applied the manifest.
    /// - A later `kubectl apply` of a manifest without the field does not change the field.
    async fn correct(&mut self, is_current: fn(&Self, &APIService) -> bool) -> bool {
        match self.api.get_opt(&self.name).await {
            Ok(found) => {
                self.logged_failures.remove("get");
                if found.is_none_or(|found| is_current(self, &found)) {
                    self.logged_failures.remove("patch");
                    self.metrics.ca_bundle_is_current(true);
                    return false;
                }
            }
            Err(error) => {
                self.metrics.ca_bundle_is_current(false);
                self.log_once("get", &error);
                return false;
            }
        }
        let bundle = ByteString(self.bundle.borrow().as_bytes().to_vec());
        let patch = Patch::Merge(json!({ "spec": { "caBundle": bundle } }));
        match self.api.patch(&self.name, &self.params, &patch).await {
            Ok(_) => {
                self.logged_failures.remove("patch");
                self.metrics.ca_bundle_is_current(true);
                tracing::info!(name = self.name, "caBundle of the APIService set");
                true
            }
            // The `APIService` was deleted after the read. If a client creates it again, the watch
            // reports this.
            Err(kube::Error::Api(status)) if status.code == 404 => false,
            Err(error) => {
                self.metrics.ca_bundle_is_current(false);
                self.log_once("patch", &error);
                true
            }
        }
    }

    /// Logs a failure, if it differs from the last failure of this verb. After a success of this
    /// verb, the next failure is logged again.
    fn log_once(&mut self, verb: &'static str, error: &kube::Error) {
        let text = match error {
            kube::Error::Api(status) if status.code == 403 => {
                let effect = if verb == "watch" {
                    "the server reads the caBundle once per minute instead"
                } else {
                    "set the caBundle by hand until the server has this permission"
                };
                format!(
                    "RBAC: the server has no permission to {verb} \
                     apiservices.apiregistration.k8s.io {:?}; {effect}",
                    self.name
                )
            }
            _ => format!("cannot {verb} APIService {:?}: {error}", self.name),
        };
        if self.logged_failures.get(verb) != Some(&text) {
            tracing::error!(name = self.name, "{text}");
            self.logged_failures.insert(verb, text);
        }
    }
}

fn bundle_of(found: &APIService) -> &[u8] {
    let bundle = found.spec.as_ref().and_then(|spec| spec.ca_bundle.as_ref());
    bundle.map_or(&[], |bundle| &bundle.0)
}

/// Splits a PEM bundle into its certificates. The parts do not contain the END lines.
fn certificates(bundle: &str) -> impl Iterator<Item = &str> {
    let all = bundle.split("-----END CERTIFICATE-----").map(str::trim);
    all.filter(|certificate| !certificate.is_empty())
}
