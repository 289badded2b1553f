//! Stores our own CA between runs, in a Secret of type `kubernetes.io/tls` in the server's
//! namespace.
//!
//! Input: the Secret, if it exists. Output: a CA that is valid for years.
//!
//! `tls.crt` has the certificate of the CA, followed by those of the previous CAs that have not
//! expired. So `tls.crt` is also the CA bundle. `tls.key` has the key of the first certificate.

use super::{Authority, CertsError, FIELD_MANAGER};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use std::collections::BTreeMap;

/// The default name of the Secret that holds the CA.
pub const SECRET_NAME: &str = "ifo-apiserver-ca";

const TYPE: &str = "kubernetes.io/tls";
const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";

/// Number of attempts if other replicas write at the same time. Each conflict means that another
/// replica has written, and each replica writes once.
const MAX_ATTEMPTS: usize = 5;

/// Returns the CA in the Secret.
///
/// If the Secret does not exist, a CA is created and stored. A CA that is near its end gets a
/// successor. If the successor cannot be stored, the CA is used until it expires. If another
/// replica writes at the same time, its CA is used.
///
/// # Errors
///
/// The Secret cannot be read, or its content is not a CA. Such a Secret is not overwritten.
pub async fn load_or_create(
    client: &Client,
    namespace: &str,
    name: &str,
) -> Result<Authority, CertsError> {
    let api = Api::<Secret>::namespaced(client.clone(), namespace);
    let place = || format!("{namespace}/{name}");
    let failed = |doing, source| CertsError::Secret {
        doing,
        secret: place(),
        source: Box::new(source),
    };
    let params = PostParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PostParams::default()
    };
    for _ in 0..MAX_ATTEMPTS {
        let found = api
            .get_opt(name)
            .await
            .map_err(|error| failed("read", error))?;
        let (authority, written) = if let Some(secret) = found {
            let authority = read(&secret).map_err(|why| CertsError::BadSecret {
                secret: place(),
                why,
            })?;
            if !authority.is_near_end() {
                return Ok(authority);
            }
            let next = authority.create_successor()?;
            // With the resourceVersion, the write fails if the Secret has changed since.
            let secret = Secret {
                data: Some(data(&next)?),
                ..secret
            };
            let written = api.replace(name, &params, &secret).await;
            match written {
                // The Secret can be immutable, or RBAC allows only reading. The CA is used until it
                // expires.
                Err(error) if !is_race(&error) && !authority.has_expired() => {
                    let error = failed("update", error);
                    tracing::warn!(%error, "using a CA that expires soon");
                    return Ok(authority);
                }
                written => (next, written.map_err(|error| ("update", error))),
            }
        } else {
            let new = Authority::create()?;
            let secret = Secret {
                metadata: ObjectMeta {
                    name: Some(name.to_owned()),
                    namespace: Some(namespace.to_owned()),
                    ..ObjectMeta::default()
                },
                type_: Some(TYPE.to_owned()),
                data: Some(data(&new)?),
                ..Secret::default()
            };
            let written = api.create(&params, &secret).await;
            (new, written.map_err(|error| ("create", error)))
        };
        match written {
            Ok(_) => {
                tracing::info!(
                    namespace,
                    name,
                    "created a new CA for the serving certificate"
                );
                return Ok(authority);
            }
            // 404 on create means that the namespace does not exist.
            Err(("create", kube::Error::Api(status))) if status.code == 404 => {
                return Err(CertsError::NoNamespace {
                    secret: place(),
                    namespace: namespace.to_owned(),
                });
            }
            Err((_, error)) if is_race(&error) => {}
            Err((doing, error)) => return Err(failed(doing, error)),
        }
    }
    Err(CertsError::Contended { secret: place() })
}

/// Returns true if another writer was faster: the Secret exists or was changed (409), or it was
/// deleted (404).
fn is_race(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if matches!(status.code, 404 | 409))
}

fn read(secret: &Secret) -> Result<Authority, String> {
    let value = |key| {
        secret
            .data
            .as_ref()
            .and_then(|data| data.get(key))
            .ok_or_else(|| format!("it has no {key}"))
    };
    Authority::from_pem(&value(CERTIFICATE)?.0, &value(KEY)?.0).map_err(|error| error.to_string())
}

fn data(authority: &Authority) -> Result<BTreeMap<String, ByteString>, CertsError> {
    Ok(BTreeMap::from([
        (
            CERTIFICATE.to_owned(),
            ByteString(authority.bundle()?.into_bytes()),
        ),
        (KEY.to_owned(), ByteString(authority.key_pem()?)),
    ]))
}
