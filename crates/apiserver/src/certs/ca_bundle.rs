//! Keeps the CA bundles in objects of the cluster up to date. The kube-apiserver verifies the
//! certificate of this server with these CA bundles. The objects are the `APIService` of this
//! server, and the configuration of its admission webhook.
//!
//! Each replica updates the objects. While the CA is renewed, replicas can have different bundles
//! for a minute. The replicas must not overwrite each other's bundles again and again. So each
//! replica follows two rules:
//!
//! - While its own bundle is unchanged, a replica writes the object only if a certificate of its
//!   bundle is missing there. The object may contain further certificates.
//! - When its own bundle changes, a replica writes every object that does not contain exactly the
//!   new bundle. So the certificate of a removed CA disappears.

use super::CHECK_TIMEOUT;
use crate::metrics::Metrics;
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

/// An object of the cluster with the CA bundle of this server.
#[derive(Clone, Copy, Debug)]
pub enum CaBundleHolder {
    /// The `APIService` with this name, which has the form `<version>.<group>`.
    ApiService(&'static str),
    /// The `ValidatingWebhookConfiguration` with this name, which has one webhook.
    Webhook(&'static str),
}

impl CaBundleHolder {
    fn name(self) -> &'static str {
        match self {
            Self::ApiService(name) | Self::Webhook(name) => name,
        }
    }

    fn resource(self) -> ApiResource {
        let (group, kind) = match self {
            Self::ApiService(_) => ("apiregistration.k8s.io", "APIService"),
            Self::Webhook(_) => (
                "admissionregistration.k8s.io",
                "ValidatingWebhookConfiguration",
            ),
        };
        ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind))
    }

    /// Returns the JSON pointer of the CA bundle in the object.
    fn pointer(self) -> &'static str {
        match self {
            Self::ApiService(_) => "/spec/caBundle",
            Self::Webhook(_) => "/webhooks/0/clientConfig/caBundle",
        }
    }

    /// Returns the patch that sets the CA bundle.
    ///
    /// The patch is a JSON patch, and not a merge patch or a server-side apply, for these reasons:
    ///
    /// - The patch changes no other field. A merge patch would replace the whole list of webhooks.
    /// - The patch fails if the object was deleted. Server-side apply would create the object.
    /// - The patch needs no `force`, although another field manager has applied the manifest.
    /// - A later `kubectl apply` of a manifest without the field does not change the field.
    fn patch(self, bundle: &ByteString) -> Patch<()> {
        let set = json!([{"op": "add", "path": self.pointer(), "value": bundle}]);
        let patch = serde_json::from_value(set);
        Patch::Json(patch.expect("the item is an operation of a JSON patch"))
    }

    /// Returns the CA bundle in the object. A missing bundle is empty.
    fn bundle(self, found: &DynamicObject) -> Vec<u8> {
        let text = found.data.pointer(self.pointer()).cloned();
        let bundle = serde_json::from_value::<Option<ByteString>>(text.into()).ok();
        bundle.flatten().unwrap_or_default().0
    }
}

/// Keeps the CA bundle in one object up to date.
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

    /// Returns true if the CA bundle in `found` contains all certificates of this server's bundle.
    /// If `must_equal` is true, the two bundles must be equal.
    fn is_current(&self, found: &DynamicObject, must_equal: bool) -> bool {
        let ours = self.bundle.borrow();
        let bundle = self.holder.bundle(found);
        let current = String::from_utf8_lossy(&bundle);
        let known: BTreeSet<&str> = certificates(&current).collect();
        let is_sufficient = certificates(&ours).all(|own| known.contains(own));
        is_sufficient && (!must_equal || *current == **ours)
    }

    /// Reads the object. If its bundle is not current, writes the bundle of this server. Succeeds
    /// without a write if the object does not exist.
    async fn check(&self, must_equal: bool) -> Result<(), String> {
        let name = self.holder.name();
        let kind = self.holder.resource().kind;
        let failed = |verb: &str, error| format!("cannot {verb} {kind} {name}: {error}");
        let found = self.api.get_opt(name).await;
        let found = found.map_err(|error| failed("get", error))?;
        if found.is_none_or(|found| self.is_current(&found, must_equal)) {
            return Ok(());
        }
        let bundle = ByteString(self.bundle.borrow().as_bytes().to_vec());
        let patch = self.holder.patch(&bundle);
        match self.api.patch(name, &self.params, &patch).await {
            Ok(_) => {
                tracing::info!(name, "caBundle set");
                Ok(())
            }
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            Err(error) => Err(failed("patch", error)),
        }
    }

    /// Logs the failure if it differs from the last failure, and sets the metric.
    fn report(&mut self, failure: Option<String>) {
        if let Some(failure) = &failure
            && self.failure.as_ref() != Some(failure)
        {
            tracing::error!(
                error = failure,
                "the caBundle cannot be kept up to date; \
                 this needs the RBAC permissions to get and patch the object"
            );
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
