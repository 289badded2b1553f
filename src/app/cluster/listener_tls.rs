//! Provides the TLS configuration of the listener, and keeps the serving certificate valid. If
//! flags name certificate files, the server reads the certificate from these files. Otherwise, the
//! server issues the certificate with its own CA, for the names of its Service.

use super::registration::{API_SERVICE, OwnCaBundle};
use crate::app::App;
use crate::config::Serve;
use aggregated_apiserver::auth::client_certificate_verifier;
use aggregated_apiserver::certs::{
    self, CaBundleHolder, CaBundleUpdater, CaSecret, OwnCertificate, ServingCertificate,
};
use kube::Client;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

/// The name of the `ValidatingWebhookConfiguration` in `deploy/components/gate-webhook`.
const GATE_WEBHOOKS: &str = "ifo-gate";

/// The name of the Secret that contains the CA.
const CA_SECRET: &str = "ifo-apiserver-serving-ca";

/// The field manager of the writes of the CA and of CA bundles.
const FIELD_MANAGER: &str = "ifo-apiserver";

/// Interval at which certificate files are read again.
const FILES_INTERVAL: Duration = Duration::from_secs(30);

/// Returns the TLS configuration of the listener. If the server's own CA issues the certificate,
/// also returns the bundle of this CA. Then a task keeps this bundle in the `caBundle` of the
/// server's `APIService`, with which the kube-apiserver verifies the certificate. If the gate
/// webhook is served, another task does the same for the configuration of the webhook.
pub(super) async fn server_config(
    app: &mut App,
    client: &Client,
    serve: &Serve,
) -> anyhow::Result<(rustls::ServerConfig, OwnCaBundle)> {
    let mut ca_bundle = None;
    let serving = if let (Some(certificate), Some(key)) =
        (&serve.tls_cert_file, &serve.tls_private_key_file)
    {
        let serving =
            Arc::new(ServingCertificate::load(certificate, key, app.shared.metrics.api()).await?);
        let (certificate, key, follow) = (certificate.clone(), key.clone(), serving.clone());
        app.tasks.start("certificate files", async move {
            follow.follow(certificate, key, FILES_INTERVAL).await;
        });
        serving
    } else {
        let mut names = service_names(&serve.service_name, &serve.namespace);
        names.push(Ipv4Addr::LOCALHOST.to_string());
        names.push(Ipv6Addr::LOCALHOST.to_string());
        let secret = CaSecret::new(client.clone(), &serve.namespace, CA_SECRET, FIELD_MANAGER);
        let own = OwnCertificate::load(secret, names).await?;
        let issued = own.issued();
        let serving = Arc::new(ServingCertificate::new(
            &issued.chain,
            &issued.key,
            app.shared.metrics.api(),
        )?);
        ca_bundle = Some(own.bundle());
        let webhooks = CaBundleHolder::Webhooks(GATE_WEBHOOKS);
        let webhooks = serve
            .gate_webhook
            .then_some(("caBundle of the webhook", webhooks));
        let api_service = ("caBundle", CaBundleHolder::ApiService(API_SERVICE));
        for (task, holder) in [api_service].into_iter().chain(webhooks) {
            let (client, metrics) = (client.clone(), app.shared.metrics.api());
            let updater =
                CaBundleUpdater::new(client, holder, own.bundle(), FIELD_MANAGER, metrics);
            app.tasks.start(task, updater.keep_up_to_date());
        }
        app.tasks
            .start("certificate", own.keep_renewed(serving.clone()));
        serving
    };
    let tls = certs::server_config(serving, client_certificate_verifier(), &serve.tls());
    Ok((tls, ca_bundle))
}

/// Returns the DNS names of a Service, and `localhost`.
fn service_names(service: &str, namespace: &str) -> Vec<String> {
    vec![
        format!("{service}.{namespace}.svc"),
        format!("{service}.{namespace}.svc.cluster.local"),
        format!("{service}.{namespace}"),
        service.to_owned(),
        "localhost".to_owned(),
    ]
}
