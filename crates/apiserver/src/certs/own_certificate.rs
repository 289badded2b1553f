//! Issues a serving certificate with the server's own CA, and renews the certificate while the
//! server runs. The module also provides the CA bundle with which clients verify the certificate.

use super::{Authority, CaSecret, CertsError, IssuedCertificate, ServingCertificate, now};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// Interval at which [`OwnCertificate::keep_renewed`] reads the Secret of the CA and checks the age
/// of the certificate. Each check is one small request to the kube-apiserver.
const CHECK_INTERVAL: Duration = Duration::from_mins(1);

/// Delay when the server changes to a new CA from the Secret. Before the delay, the server adds the
/// new CA to the bundle. During the delay, the bundle reaches the `APIService` and every
/// kube-apiserver. After the delay, the server presents a certificate of the new CA.
const HANDOVER_DELAY: Duration = Duration::from_secs(30);

/// After the handover, the old CA stays in the bundle for this time, because another replica can
/// still present a certificate of the old CA. That replica reads the Secret up to one
/// [`CHECK_INTERVAL`] later. If its read fails, it tries again after at most [`CHECK_TIMEOUT`] and
/// [`CHECK_INTERVAL`]. Five minutes are enough for two failed reads.
///
/// [`CHECK_TIMEOUT`]: super::CHECK_TIMEOUT
const OLD_CA_TIME: Duration = Duration::from_mins(5);

/// The CA that all replicas share, and the certificate that it has issued for this replica.
pub struct OwnCertificate {
    secret: CaSecret,
    names: Vec<String>,
    authority: Authority,
    pub(super) issued: IssuedCertificate,
    bundle: watch::Sender<Arc<str>>,
    /// The time from which the bundle contains only the current CA.
    old_ca_ends: Instant,
}

impl OwnCertificate {
    /// Loads the CA from the Secret. Issues a certificate for these DNS names and IP addresses.
    ///
    /// This function does not replace a CA that is near its expiry. Other replicas still present
    /// certificates of this CA, and the bundle that this function creates has only one CA.
    /// [`Self::keep_renewed`] replaces the CA later, with a bundle that contains both CAs.
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
            old_ca_ends: Instant::now(),
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
        let is_due = now() >= self.issued.renew_at;
        let mut new_authority = None;
        match self.secret.load_or_replace_authority().await {
            Ok(found) if !found.is(&self.authority) => {
                // The bundle contains both CAs before the server presents a certificate of the new
                // CA.
                let (new, old) = (found.bundle(), self.bundle.borrow().clone());
                if !old.contains(&new) {
                    self.publish(new + &old);
                }
                tokio::time::sleep(HANDOVER_DELAY).await;
                new_authority = Some(found);
            }
            Ok(_) if Instant::now() >= self.old_ca_ends => self.publish(self.authority.bundle()),
            Ok(_) => {}
            // After this error, the code below can still renew the certificate with the current CA.
            Err(error) => tracing::error!(%error, "the current CA stays in use"),
        }
        if is_due || new_authority.is_some() {
            let authority = new_authority.as_ref().unwrap_or(&self.authority);
            let issued = authority.issue(&self.names)?;
            serving.replace(&issued.chain, &issued.key)?;
            self.issued = issued;
            // If the renewal fails, the old CA stays in use, and the next check tries again.
            if let Some(new) = new_authority {
                self.authority = new;
                self.old_ca_ends = Instant::now() + OLD_CA_TIME;
            }
            tracing::info!("serving certificate renewed");
        }
        Ok(())
    }

    /// Sets the bundle. Notifies the receivers if it differs from the last bundle.
    fn publish(&self, bundle: String) {
        if **self.bundle.borrow() != *bundle {
            self.bundle.send_replace(bundle.into());
        }
    }
}
