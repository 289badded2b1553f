//! Keeps the CA bundles in objects of the cluster up to date. The kube-apiserver verifies the
//! certificate of this server with these CA bundles. The objects are our `APIService`, and the
//! configuration of our admission webhook.
//!
//! Each replica updates the objects. While the CA is renewed, replicas can have different bundles for
//! a minute. They must not overwrite each other's bundles again and again. So there are two rules:
//!
//! - Usually, a replica accepts a field that contains all certificates of its own bundle. The field
//!   may contain further certificates.
//! - When the bundle of a replica changes, the replica replaces any field that differs from the new
//!   bundle. So the certificate of a removed CA disappears.

use super::CHECK_TIMEOUT;
use crate::metrics::Metrics;
use futures::StreamExt;
use k8s_openapi::ByteString;
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// Interval at which the server reads the object, even if the watch has reported no change.
/// So the server also corrects the field if the watch has missed a change, or if the server has no
/// permission to watch it.
const CHECK_INTERVAL: Duration = Duration::from_mins(1);

/// Delay after a write, and after a failed attempt to write. Another client and this server may
/// overwrite each other's bundle. Each change of the object causes a check, so the delay
/// limits the rate of these writes.
const DELAY_AFTER_WRITE: Duration = Duration::from_secs(1);

/// An object of the cluster with CA bundles of this server.
#[derive(Clone, Copy, Debug)]
pub enum CaBundleHolder {
    /// The `APIService` with this name, which has the form `<version>.<group>`.
    ApiService(&'static str),
    /// The `ValidatingWebhookConfiguration` with this name.
    Webhooks(&'static str),
}

impl CaBundleHolder {
    fn name(self) -> &'static str {
        match self {
            Self::ApiService(name) | Self::Webhooks(name) => name,
        }
    }

    fn resource(self) -> ApiResource {
        let (group, kind) = match self {
            Self::ApiService(_) => ("apiregistration.k8s.io", "APIService"),
            Self::Webhooks(_) => (
                "admissionregistration.k8s.io",
                "ValidatingWebhookConfiguration",
            ),
        };
        ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind))
    }

    /// Returns the JSON pointers of the CA bundles in the object.
    fn pointers(self, found: &DynamicObject) -> Vec<String> {
        match self {
            Self::ApiService(_) => vec!["/spec/caBundle".to_owned()],
            Self::Webhooks(_) => {
                let webhooks = found.data["webhooks"].as_array();
                (0..webhooks.map_or(0, Vec::len))
                    .map(|index| format!("/webhooks/{index}/clientConfig/caBundle"))
                    .collect()
            }
        }
    }

    /// Returns the patch that sets all CA bundles.
    ///
    /// It is a JSON merge patch or a JSON patch, for these reasons:
    ///
    /// - The patch changes no other field.
    /// - The patch fails if the object was deleted. Server-side apply would create the object.
    /// - The patch needs no `force`, although another field manager has applied the manifest.
    /// - A later `kubectl apply` of a manifest without the field does not change the field.
    fn patch(self, found: &DynamicObject, bundle: &ByteString) -> Patch<Value> {
        match self {
            Self::ApiService(_) => Patch::Merge(json!({"spec": {"caBundle": bundle}})),
            // A merge patch would replace the whole list of webhooks.
            Self::Webhooks(_) => {
                let set = |path| json!({"op": "add", "path": path, "value": bundle});
                let set: Vec<Value> = self.pointers(found).into_iter().map(set).collect();
                let patch = serde_json::from_value(Value::Array(set));
                Patch::Json(patch.expect("each item is an operation of a JSON patch"))
            }
        }
    }

    /// Returns the CA bundles in the object. A missing bundle is empty.
    fn bundles(self, found: &DynamicObject) -> Vec<Vec<u8>> {
        let pointers = self.pointers(found).into_iter();
        let bundle = |pointer: String| {
            let text = found.data.pointer(&pointer)?;
            let bundle: ByteString = serde_json::from_value(text.clone()).ok()?;
            Some(bundle.0)
        };
        pointers
            .map(|pointer| bundle(pointer).unwrap_or_default())
            .collect()
    }
}

/// Updates the CA bundles of one object.
#[derive(Debug)]
pub struct CaBundleUpdater {
    api: Api<DynamicObject>,
    holder: CaBundleHolder,
    resource: ApiResource,
    bundle: watch::Receiver<Arc<str>>,
    params: PatchParams,
    metrics: Arc<Metrics>,
    /// The failure that was logged last for each verb, such as `patch`. A repeated failure is
    /// logged only once.
    logged_failures: BTreeMap<&'static str, String>,
}

impl CaBundleUpdater {
    /// Creates an updater. `bundle` is the current CA bundle as PEM. The metric shows the state of
    /// the `APIService`.
    pub fn new(
        client: Client,
        holder: CaBundleHolder,
        bundle: watch::Receiver<Arc<str>>,
        field_manager: &str,
        metrics: Arc<Metrics>,
    ) -> Self {
        let resource = holder.resource();
        Self {
            api: Api::all_with(client, &resource),
            holder,
            resource,
            bundle,
            params: PatchParams {
                field_manager: Some(field_manager.to_owned()),
                ..PatchParams::default()
            },
            metrics,
            logged_failures: BTreeMap::new(),
        }
    }

    /// Checks the field every minute, and when the object or the bundle changes. Never ends.
    ///
    /// The updater never creates the object. If the object does not exist, the updater waits until
    /// another client creates it.
    pub async fn keep_up_to_date(mut self) {
        let only =
            watcher::Config::default().fields(&format!("metadata.name={}", self.holder.name()));
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

    /// Returns true if all bundles in the object equal the bundle of this replica.
    fn is_equal(&self, found: &DynamicObject) -> bool {
        let ours = self.bundle.borrow();
        let mut bundles = self.holder.bundles(found).into_iter();
        bundles.all(|bundle| bundle == ours.as_bytes())
    }

    /// Returns true if all bundles in the object contain all certificates of this replica's bundle.
    /// Further certificates are allowed.
    fn is_sufficient(&self, found: &DynamicObject) -> bool {
        let ours = self.bundle.borrow();
        self.holder.bundles(found).iter().all(|bundle| {
            let current = String::from_utf8_lossy(bundle);
            let known: BTreeSet<&str> = certificates(&current).collect();
            certificates(&ours).all(|certificate| known.contains(certificate))
        })
    }

    fn set_metric(&self, is_current: bool) {
        if matches!(self.holder, CaBundleHolder::ApiService(_)) {
            self.metrics.ca_bundle_is_current(is_current);
        }
    }

    /// Reads the object, and writes the bundles if `is_current` returns false. After
    /// [`CHECK_TIMEOUT`], cancels the requests. Logs a failure. The next check tries again.
    async fn check(&mut self, is_current: fn(&Self, &DynamicObject) -> bool) {
        match tokio::time::timeout(CHECK_TIMEOUT, self.correct(is_current)).await {
            Err(late) => {
                self.set_metric(false);
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
    /// a failed attempt to write. Returns false if the object does not exist, cannot be read
    /// or needs no write.
    async fn correct(&mut self, is_current: fn(&Self, &DynamicObject) -> bool) -> bool {
        let name = self.holder.name();
        let found = match self.api.get_opt(name).await {
            Ok(found) => {
                self.logged_failures.remove("get");
                found.filter(|found| !is_current(self, found))
            }
            Err(error) => {
                self.set_metric(false);
                self.log_once("get", &error);
                return false;
            }
        };
        let Some(found) = found else {
            self.logged_failures.remove("patch");
            self.set_metric(true);
            return false;
        };
        let bundle = ByteString(self.bundle.borrow().as_bytes().to_vec());
        let patch = self.holder.patch(&found, &bundle);
        match self.api.patch(name, &self.params, &patch).await {
            Ok(_) => {
                self.logged_failures.remove("patch");
                self.set_metric(true);
                tracing::info!(name, kind = self.resource.kind, "caBundle set");
                true
            }
            // The object was deleted after the read. If a client creates it again, the watch
            // reports this.
            Err(kube::Error::Api(status)) if status.code == 404 => false,
            Err(error) => {
                self.set_metric(false);
                self.log_once("patch", &error);
                true
            }
        }
    }

    /// Logs a failure, if it differs from the last failure of this verb. After a success of this
    /// verb, the next failure is logged again.
    fn log_once(&mut self, verb: &'static str, error: &kube::Error) {
        let name = self.holder.name();
        let text = match error {
            kube::Error::Api(status) if status.code == 403 => {
                let effect = if verb == "watch" {
                    "the server reads the caBundle once per minute instead"
                } else {
                    "set the caBundle by hand until the server has this permission"
                };
                format!(
                    "RBAC: the server has no permission to {verb} {}.{} {name:?}; {effect}",
                    self.resource.plural, self.resource.group
                )
            }
            _ => format!("cannot {verb} {} {name:?}: {error}", self.resource.kind),
        };
        if self.logged_failures.get(verb) != Some(&text) {
            tracing::error!(name, "{text}");
            self.logged_failures.insert(verb, text);
        }
    }
}

/// Splits a PEM bundle into its certificates. The parts do not contain the END lines.
fn certificates(bundle: &str) -> impl Iterator<Item = &str> {
    let all = bundle.split("-----END CERTIFICATE-----").map(str::trim);
    all.filter(|certificate| !certificate.is_empty())
}
