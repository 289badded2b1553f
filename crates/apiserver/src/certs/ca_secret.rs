//! Stores the server's own CA in a Secret in the server's namespace. So the CA survives restarts,
//! and all replicas share it.
//!
//! `tls.crt` has the certificate of the CA, and `tls.key` has its key.
//!
//! The manifests create the Secret without data. The server has no right to create Secrets, because
//! RBAC cannot limit this right to one name.

use super::{Authority, CHECK_TIMEOUT, CertsError};
use crate::request_error;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::PostParams;
use kube::{Api, Client};
use std::collections::BTreeMap;

const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";

/// Maximum number of attempts to write the Secret. An attempt fails if another replica writes the
/// Secret at the same time. Each replica writes the Secret only once, so few attempts fail. If the
/// last attempt fails, [`CaSecret::load_authority`] returns an error.
const MAX_ATTEMPTS: usize = 5;

/// The Secret of the server's own CA.
#[derive(Debug)]
pub struct CaSecret {
    api: Api<Secret>,
    namespace: String,
    name: String,
    params: PostParams,
}

impl CaSecret {
    /// Creates a handle for the Secret with this name. Sends no request. `field_manager` is the
    /// manager of later writes in the `managedFields` of the Secret.
    pub fn new(client: Client, namespace: &str, name: &str, field_manager: &str) -> Self {
        Self {
            api: Api::namespaced(client, namespace),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            params: PostParams {
                field_manager: Some(field_manager.to_owned()),
                ..PostParams::default()
            },
        }
    }

    /// Returns the CA in the Secret, also if it is near its expiry. If the Secret has no CA, or an
    /// expired CA, stores and returns a new CA. If another replica writes the Secret at the same
    /// time, returns the CA of that replica.
    ///
    /// # Errors
    ///
    /// - The Secret does not exist or cannot be read.
    /// - The content of the Secret is not a valid CA. In this case, the function does not overwrite
    ///   the Secret.
    /// - The Secret contains no CA or an expired CA, and a new CA cannot be stored.
    /// - Other clients have changed the Secret during each of five attempts.
    /// - The kube-apiserver does not answer in time.
    pub async fn load_authority(&self) -> Result<Authority, CertsError> {
        self.load_within_time(|found| !found.has_expired()).await
    }

    /// Like [`Self::load_authority`], but also replaces a CA that is near its expiry
    /// ([`Authority::is_near_end`]). If the new CA cannot be stored, returns the old CA until it
    /// expires.
    pub async fn load_or_replace_authority(&self) -> Result<Authority, CertsError> {
        self.load_within_time(|found| !found.is_near_end()).await
    }

    async fn load_within_time(
        &self,
        is_usable: impl Fn(&Authority) -> bool,
    ) -> Result<Authority, CertsError> {
        let loaded = self.load_or_store(is_usable);
        let loaded = tokio::time::timeout(CHECK_TIMEOUT, loaded).await;
        let late = |_| {
            let seconds = CHECK_TIMEOUT.as_secs();
            Err(format!("no answer within {seconds} s"))
        };
        loaded.unwrap_or_else(late).map_err(|why| {
            let secret = format!("{}/{}", self.namespace, self.name);
            CertsError::Secret { secret, why }
        })
    }

    /// Returns the CA in the Secret if it `is_usable`. Otherwise stores and returns a new CA.
    async fn load_or_store(
        &self,
        is_usable: impl Fn(&Authority) -> bool,
    ) -> Result<Authority, String> {
        for _ in 0..MAX_ATTEMPTS {
            let found = self.api.get_opt(&self.name).await;
            let found =
                found.map_err(|error| format!("cannot be read: {}", request_error(&error)))?;
            let secret = found.ok_or("does not exist; create an empty Secret with this name")?;
            let stored = read(&secret).map_err(|why| {
                format!(
                    "does not contain a usable CA ({why}); the server does not change the Secret; \
                     remove its `data`, and the server stores a new CA"
                )
            })?;
            if let Some(authority) = stored.as_ref().filter(|it| is_usable(it)) {
                return Ok(authority.clone());
            }
            let next = Authority::create().map_err(|error| error.to_string())?;
            // The written object has the resourceVersion of the Secret that was read. So the write
            // fails if the Secret has changed since the read.
            let secret = Secret {
                data: Some(secret_data(&next)),
                ..secret
            };
            let written = self.api.replace(&self.name, &self.params, &secret).await;
            match (written, stored) {
                (Ok(_), _) => {
                    tracing::info!(
                        namespace = self.namespace,
                        name = self.name,
                        "stored the CA of the serving certificate"
                    );
                    return Ok(next);
                }
                (Err(error), _) if is_race(&error) => {}
                // For example, the Secret is immutable, or the server has no right to write the
                // Secret. The server then uses the old CA until it expires.
                (Err(error), Some(authority)) if !authority.has_expired() => {
                    tracing::warn!(
                        error = request_error(&error),
                        "the new CA cannot be stored; the CA that expires soon stays in use"
                    );
                    return Ok(authority);
                }
                (Err(error), _) => {
                    return Err(format!("cannot be updated: {}", request_error(&error)));
                }
            }
        }
        Err("another client changed it during each attempt to write it".to_owned())
    }
}

/// Returns true if another client has changed (409) or deleted (404) the Secret since the read.
fn is_race(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if matches!(status.code, 404 | 409))
}

/// Returns the CA in the Secret, or `None` if the Secret has no data.
fn read(secret: &Secret) -> Result<Option<Authority>, String> {
    let Some(data) = secret.data.as_ref().filter(|data| !data.is_empty()) else {
        return Ok(None);
    };
    let value = |key| {
        data.get(key)
            .ok_or_else(|| format!("the key {key} is missing"))
    };
    Authority::from_pem(&value(CERTIFICATE)?.0, &value(KEY)?.0)
        .map(Some)
        .map_err(|error| error.to_string())
}

fn secret_data(authority: &Authority) -> BTreeMap<String, ByteString> {
    BTreeMap::from([
        (
            CERTIFICATE.to_owned(),
            ByteString(authority.bundle().into_bytes()),
        ),
        (KEY.to_owned(), ByteString(authority.key_pem())),
    ])
}
