//! A serving certificate from our own CA, for as long as the server runs. Enters: the
//! CA's Secret, looked at again and again. Leaves: a certificate that has life left,
//! and the bundle by which clients know it.

use super::{Authority, Certified, CertsError, ServingCertificate, WITHIN, load_or_create, now};
use kube::Client;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// How often the Secret and the certificate's age are looked at. One small request;
/// soon enough for certificates that live a year.
const LOOK_EVERY: Duration = Duration::from_mins(1);

/// How long a new CA is in the bundle before its first certificate is shown: time for
/// the bundle to reach the `APIService`, and every kube-apiserver.
const HAND_OVER: Duration = Duration::from_secs(30);

/// The CA of the server's namespace, and what it issued for this server.
pub struct OwnCertificate {
    client: Client,
    namespace: String,
    secret: String,
    dns_names: Vec<String>,
    ips: Vec<IpAddr>,
    authority: Authority,
    pub(super) certified: Certified,
    bundle: watch::Sender<Arc<str>>,
}

impl OwnCertificate {
    /// Loads the CA from the Secret `secret` of `namespace`, or makes one, and issues a
    /// certificate for these names.
    pub async fn load(
        client: Client,
        namespace: &str,
        secret: &str,
        dns_names: Vec<String>,
        ips: Vec<IpAddr>,
    ) -> Result<Self, CertsError> {
        let found = load_or_create(&client, namespace, secret);
        let authority = tokio::time::timeout(WITHIN, found)
            .await
            .map_err(|_| CertsError::Late)??;
        let certified = authority.issue(&dns_names, &ips)?;
        let bundle = watch::Sender::new(authority.bundle()?.into());
        Ok(Self {
            client,
            namespace: namespace.to_owned(),
            secret: secret.to_owned(),
            dns_names,
            ips,
            authority,
            certified,
            bundle,
        })
    }

    /// What was issued last.
    pub fn certified(&self) -> &Certified {
        &self.certified
    }

    /// The CAs by which clients know the certificate, as PEM, and as they change.
    pub fn bundle(&self) -> watch::Receiver<Arc<str>> {
        self.bundle.subscribe()
    }

    /// Keeps `serving` alive: renews it when two thirds of its life are over, and moves
    /// to the CA that the Secret then holds; never ends by itself. Whatever fails is
    /// logged and tried again.
    pub async fn keep(mut self, serving: Arc<ServingCertificate>) {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            if let Err(error) = self.look(&serving).await {
                tracing::error!(%error, "keeping the serving certificate as it is");
            }
        }
    }

    async fn look(&mut self, serving: &ServingCertificate) -> Result<(), CertsError> {
        let mut renew = now() >= self.certified.renew_at;
        let found = load_or_create(&self.client, &self.namespace, &self.secret);
        let found = tokio::time::timeout(WITHIN, found).await;
        match found.unwrap_or(Err(CertsError::Late)) {
            Ok(found) if !found.is(&self.authority) => {
                // Both, until the new CA's certificate is shown.
                self.publish(found.bundle_with(&self.authority)?);
                tokio::time::sleep(HAND_OVER).await;
                self.authority = found;
                renew = true;
            }
            Ok(found) => self.authority = found,
            // The certificate can be renewed without the Secret.
            Err(error) => tracing::error!(%error, "keeping the CA as it was"),
        }
        if renew {
            let certified = self.authority.issue(&self.dns_names, &self.ips)?;
            serving.replace(&certified.chain, &certified.key)?;
            self.certified = certified;
            tracing::info!("serving certificate renewed");
        }
        self.publish(self.authority.bundle()?);
        Ok(())
    }

    fn publish(&self, bundle: String) {
        self.bundle.send_if_modified(|last| {
            let new = **last != *bundle;
            if new {
                *last = bundle.into();
            }
            new
        });
    }
}
