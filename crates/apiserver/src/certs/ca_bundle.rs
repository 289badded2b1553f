//! Keeps the CA bundles in objects of the cluster up to date. The kube-apiserver verifies the
//! certificate of this server with these CA bundles. The objects are the `APIService` of this
//! server, and the configuration of its admission webhook.
//!
//! Each replica updates the objects. While the CA is replaced, replicas can have different bundles
//! for some minutes. The replicas must not overwrite each other's bundles again and again. So each
//! replica follows two rules:
//!
//! - While its own bundle is unchanged, a replica writes an object only if the object lacks a
//!   certificate of this bundle. The object may contain further certificates, for example those of
//!   another replica.
//! - When its own bundle changes, a replica writes every object that does not contain exactly the
//!   new bundle. So the certificate of a removed CA disappears.

use super::CHECK_TIMEOUT;
use crate::metrics::Metrics;
use crate::request_error;
use k8s_openapi::ByteString;
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client};
use serde_json::json;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// Interval at which the server reads the object. If another client overwrites the bundle, the
/// kube-apiserver can refuse the certificate of this server until the next read. The interval also
/// limits the rate of writes if two clients overwrite each other's bundle.
const CHECK_INTERVAL: Duration = Duration::from_secs(10);

/// The end of the message if the kube-apiserver refuses a request with 403.
const RBAC_HINT: &str = "; this needs the RBAC permissions to get and patch the object";

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
    /// The patch is a JSON patch, and not a merge patch or a server-side apply, for these reasons:
    ///
    /// - The patch changes no other field. A merge patch would replace the whole list of webhooks.
    /// - The patch fails if the object was deleted. Server-side apply would create the object.
    /// - The patch cannot conflict with the field manager that has applied the manifest.
    ///   Server-side apply could need `force`.
    /// - A later `kubectl apply` of a manifest without the field does not change the field.
    fn patch(self, found: &DynamicObject, bundle: &ByteString) -> Patch<()> {
        let set = |path| json!({"op": "add", "path": path, "value": bundle});
        let set = self.pointers(found).into_iter().map(set).collect();
        let patch = serde_json::from_value(set);
        Patch::Json(patch.expect("each item is an operation of a JSON patch"))
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

/// Keeps the CA bundles in one object up to date.
#[derive(Debug)]
pub struct CaBundleUpdater {
    api: Api<DynamicObject>,
    holder: CaBundleHolder,
    bundle: watch::Receiver<Arc<str>>,
    params: PatchParams,
    metrics: Arc<Metrics>,
    /// The last failure. A failure that repeats is logged once.
    failure: Option<String>,
}

impl CaBundleUpdater {
    /// Creates an updater that writes the newest value of `bundle`.
    pub fn new(
        client: Client,
        holder: CaBundleHolder,
        bundle: watch::Receiver<Arc<str>>,
        field_manager: &str,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self {
            api: Api::all_with(client, &holder.resource()),
            holder,
            bundle,
            params: PatchParams {
                field_manager: Some(field_manager.to_owned()),
                ..PatchParams::default()
            },
            metrics,
            failure: None,
        }
    }

    /// Checks and updates the object every ten seconds, and when the bundle of this server changes.
    /// Never ends.
    pub async fn keep_up_to_date(mut self) {
        let name = self.holder.name();
        let mut ticks = tokio::time::interval(CHECK_INTERVAL);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut bundle = self.bundle.clone();
        // True from a change of this server's bundle until the object has exactly the new bundle.
        // If a write fails, the next check repeats it, so that no old CA stays in the object.
        let mut must_equal = false;
        loop {
            tokio::select! {
                Ok(()) = bundle.changed() => must_equal = true,
                _ = ticks.tick() => {}
            }
            let checked = tokio::time::timeout(CHECK_TIMEOUT, self.check(must_equal)).await;
            let late = format!("the check of {name} took longer than {CHECK_TIMEOUT:?}");
            let checked = checked.unwrap_or(Err(late));
            must_equal &= checked.is_err();
            self.report(checked.err());
        }
    }

    /// Returns true if each CA bundle in `found` contains all certificates of this server's bundle.
    /// If `must_equal` is true, each CA bundle must be equal to this server's bundle.
    fn is_current(&self, found: &DynamicObject, must_equal: bool) -> bool {
        let ours = self.bundle.borrow();
        self.holder.bundles(found).iter().all(|bundle| {
            let current = String::from_utf8_lossy(bundle);
            let known: BTreeSet<&str> = certificates(&current).collect();
            let is_sufficient = certificates(&ours).all(|own| known.contains(own));
            is_sufficient && (!must_equal || *current == **ours)
        })
    }

    /// Reads the object. If its bundle is not current, writes the bundle of this server. Succeeds
    /// without a write if the object does not exist.
    pub(super) async fn check(&self, must_equal: bool) -> Result<(), String> {
        let name = self.holder.name();
        let kind = self.holder.resource().kind;
        let failed = |verb: &str, error: &kube::Error| {
            let hint = match error {
                kube::Error::Api(status) if status.code == 403 => RBAC_HINT,
                _ => "",
            };
            format!(
                "cannot {verb} {kind} {name}: {}{hint}",
                request_error(error)
            )
        };
        let found = self.api.get_opt(name).await;
        let found = found.map_err(|error| failed("get", &error))?;
        let Some(found) = found.filter(|found| !self.is_current(found, must_equal)) else {
            return Ok(());
        };
        let bundle = ByteString(self.bundle.borrow().as_bytes().to_vec());
        let patch = self.holder.patch(&found, &bundle);
        match self.api.patch(name, &self.params, &patch).await {
            Ok(_) => {
                tracing::info!(name, "caBundle set");
                Ok(())
            }
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            Err(error) => Err(failed("patch", &error)),
        }
    }

    /// Logs the failure if it differs from the last failure, and sets the metric.
    fn report(&mut self, failure: Option<String>) {
        if let Some(failure) = &failure
            && self.failure.as_ref() != Some(failure)
        {
            tracing::warn!(error = failure, "the caBundle cannot be kept up to date");
        }
        if matches!(self.holder, CaBundleHolder::ApiService(_)) {
            self.metrics.ca_bundle_is_current(failure.is_none());
        }
        self.failure = failure;
    }
}

/// Splits a PEM bundle into its certificates. The parts do not contain the END lines.
fn certificates(bundle: &str) -> impl Iterator<Item = &str> {
    let all = bundle.split("-----END CERTIFICATE-----").map(str::trim);
    all.filter(|certificate| !certificate.is_empty())
}
