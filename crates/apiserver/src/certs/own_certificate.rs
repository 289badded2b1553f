//! Issues a serving certificate with the server's own CA, and renews the certificate while the
//! server runs. The module also provides the CA bundle with which clients verify the certificate.

use super::{Authority, CaSecret, CertsError, IssuedCertificate, ServingCertificate, now};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// Interval at which [`OwnCertificate::keep_renewed`] reads the Secret of the CA and checks the age
/// of the certificate. Each check is one small request to the kube-apiserver.
const CHECK_INTERVAL: Duration = Duration::from_mins(1);

/// Delay between two steps, when the server changes to a new CA from the Secret. Before the delay,
/// the server adds the new CA to the bundle. During the delay, the bundle reaches the `APIService`
/// and every kube-apiserver. After the delay, the server presents a certificate of the new CA. At
/// the next check, the server removes the old CA from the bundle.
const HANDOVER_DELAY: Duration = Duration::from_secs(30);

/// The CA that all replicas share, and the certificate that it has issued for this replica.
pub struct OwnCertificate {
    secret: CaSecret,
    names: Vec<String>,
    authority: Authority,
    pub(super) issued: IssuedCertificate,
    bundle: watch::Sender<Arc<str>>,
}

impl OwnCertificate {
    /// Loads the CA from the Secret. Issues a certificate for these DNS names and IP addresses.
    pub async fn load(secret: CaSecret, names: Vec<String>) -> Result<Self, CertsError> {
        let authority = secret.load_authority().await?;
        let issued = authority.issue(&names)?;
        let bundle = watch::Sender::new(authority.bundle().into());
        Ok(Self {
            secret,
            names,
            authority,
            issued,
            bundle,
        })
    }

    /// Returns the certificate that was issued last.
    pub fn issued(&self) -> &IssuedCertificate {
        &self.issued
    }

    /// Returns the CA bundle with which clients verify the certificate, as PEM. The receiver is
    /// notified when the bundle changes.
    pub fn bundle(&self) -> watch::Receiver<Arc<str>> {
        self.bundle.subscribe()
    }

    /// Keeps the certificate in `serving` valid. Never ends.
    ///
    /// This method issues a new certificate when two thirds of the old certificate's lifetime are
    /// over, and when the Secret contains a new CA. If a check fails, the method logs the error,
    /// and the old certificate stays in use.
    pub async fn keep_renewed(mut self, serving: Arc<ServingCertificate>) {
        loop {
            tokio::time::sleep(CHECK_INTERVAL).await;
            if let Err(error) = self.check(&serving).await {
                tracing::error!(%error, "the current serving certificate stays in use");
            }
        }
    }

    async fn check(&mut self, serving: &ServingCertificate) -> Result<(), CertsError> {
        let mut renew = now() >= self.issued.renew_at;
        match self.secret.load_authority().await {
            Ok(found) if !found.is(&self.authority) => {
                // The bundle contains both CAs before the server presents a certificate of the new
                // CA.
                self.publish(found.bundle() + &self.authority.bundle());
                tokio::time::sleep(HANDOVER_DELAY).await;
                self.authority = found;
                renew = true;
            }
            Ok(found) => {
                // The handover leaves the previous CA in the bundle. Another replica can be one
                // check behind, and still present a certificate of the previous CA. The next check
                // runs this branch, and removes the previous CA.
                self.publish(found.bundle());
                self.authority = found;
            }
            // The code below can still renew the certificate, with the current CA.
            Err(error) => tracing::error!(%error, "the current CA stays in use"),
        }
        if renew {
            let issued = self.authority.issue(&self.names)?;
            serving.replace(&issued.chain, &issued.key)?;
            self.issued = issued;
            tracing::info!("serving certificate renewed");
        }
        Ok(())
    }

    fn publish(&self, bundle: String) {
        if **self.bundle.borrow() != *bundle {
            self.bundle.send_replace(bundle.into());
        }
    }
}
