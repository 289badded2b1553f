//! Sends reviews (`TokenReview`, `SubjectAccessReview`) to the kube-apiserver and caches its
//! answers. If several requests need the same review at the same time, this server sends the review
//! only once. A failure is not cached.

use super::Undecided;
use crate::metrics::ReviewMetrics;
use crate::request_error;
use backon::{ExponentialBuilder, Retryable as _};
use kube::Api;
use kube::api::PostParams;
use moka::future::Cache;
use moka::policy::EvictionPolicy;
use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest as _, Sha256};
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// The key of a cache entry: a SHA-256 hash. A hash does not reveal the token in a review, and all
/// hashes have the same size.
///
/// - The caches of reviews use the hash of the content of a review.
/// - The cache of verdicts on client certificates ([`super::AuthenticationConfig`]) uses the hash
///   of the certificate chain.
pub(super) type Digest = [u8; 32];

/// Returns the digest of `parts`. Two different lists of parts have different digests, even if the
/// concatenated parts are equal, such as `ab`, `c` and `a`, `bc`.
pub(super) fn digest<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Digest {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hash.finalize().into()
}

/// Time for which an answer is cached, as in Kubernetes' own extension API servers. A revoked token
/// or permission is still accepted for at most this time.
const ANSWER_TTL: Duration = Duration::from_secs(10);

/// Sends reviews of the kind `K`, and caches a result of the type `T` for each answer.
#[derive(Debug)]
pub(super) struct Reviews<K, T: Clone + Send + Sync + 'static> {
    api: Api<K>,
    metrics: ReviewMetrics,
    pub(super) answers: Cache<Digest, T>,
}

impl<K, T> Reviews<K, T>
where
    K: Clone + Debug + DeserializeOwned + Serialize,
    T: Clone + Send + Sync + 'static,
{
    /// Creates an empty cache for about `capacity` answers.
    pub(super) fn new(api: Api<K>, metrics: &ReviewMetrics, capacity: u64) -> Self {
        let answers = Cache::builder()
            .max_capacity(capacity)
            .eviction_policy(EvictionPolicy::lru())
            .time_to_live(ANSWER_TTL);
        Self {
            api,
            metrics: metrics.clone(),
            answers: answers.build(),
        }
    }

    /// Returns the result of `read` for the answer to `review`. The result is cached under `key`,
    /// the digest of `review`. If the cache has a result for `key`, the function sends no review.
    ///
    /// If the kube-apiserver cannot be reached or answers 429 or 5xx, the function waits and sends
    /// the review again, at most [`MAX_ATTEMPTS`] times in total.
    pub(super) async fn ask(
        &self,
        key: Digest,
        review: &K,
        read: impl Fn(K) -> T,
    ) -> Result<T, Undecided> {
        let delays = ExponentialBuilder::new()
            .with_min_delay(FIRST_RETRY_DELAY)
            .with_factor(1.5)
            .with_max_times(MAX_ATTEMPTS - 1);
        let sent = (|| self.send(review)).retry(delays).when(is_transient);
        let asked = async {
            match tokio::time::timeout(REVIEW_TIMEOUT, sent).await {
                Ok(Ok(answer)) => Ok(read(answer)),
                Ok(Err(error)) => Err(request_error(&error) + permission_hint(&error)),
                Err(_) => Err("the kube-apiserver did not answer in time".to_owned()),
            }
        };
        let answer = self.answers.try_get_with(key, asked).await;
        answer.map_err(|why: Arc<String>| Undecided(why.to_string()))
    }

    /// Sends a review once. Records the status code of the answer and the duration in the metrics.
    async fn send(&self, review: &K) -> Result<K, kube::Error> {
        let sent = Instant::now();
        let answer = self.api.create(&PostParams::default(), review).await;
        let code = match &answer {
            Ok(_) => Some(201),
            Err(kube::Error::Api(status)) => Some(status.code),
            Err(_) => None,
        };
        self.metrics.record(code, sent.elapsed());
        answer
    }
}

/// Time limit of a review, including its retries. After this time, the review fails. Kubernetes'
/// own extension API servers have the same limit for `TokenReviews` (`TokenRequestTimeout` in
/// `DelegatingAuthenticationOptions`).
const REVIEW_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum number of attempts for one review. If the last attempt fails, the review fails. The
/// value is that of `genericoptions.DefaultAuthWebhookRetryBackoff` in Kubernetes.
const MAX_ATTEMPTS: usize = 5;
/// Delay before the second attempt. Each further delay is 1.5 times as long.
const FIRST_RETRY_DELAY: Duration = Duration::from_millis(500);

/// Returns a hint if this server has no permission to send reviews. Otherwise returns an empty text.
fn permission_hint(error: &kube::Error) -> &'static str {
    match error {
        kube::Error::Api(status) if status.code == 403 => {
            " (a ClusterRoleBinding must grant the ClusterRole system:auth-delegator to the \
             ServiceAccount of this server)"
        }
        _ => "",
    }
}

/// Returns true if a retry may succeed.
fn is_transient(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => status.code == 429 || status.code >= 500,
        kube::Error::HyperError(_) | kube::Error::Service(_) => true,
        _ => false,
    }
}
