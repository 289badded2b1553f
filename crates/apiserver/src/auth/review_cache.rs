//! Caches the kube-apiserver's answers to reviews (`TokenReview`, `SubjectAccessReview`). If
//! several requests need the same review at the same time, this server sends the review only once.
//!
//! Answers expire after a fixed time, and the number of entries is limited. If a review fails, all
//! requests that wait for the review get the failure. The failure is not cached.

use crate::metrics::{Metrics, ReviewKind};
use futures::FutureExt;
use futures::future::{BoxFuture, Shared, WeakShared};
use kube::Api;
use kube::api::PostParams;
use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest as _, Sha256};
use std::collections::{HashMap, VecDeque};
use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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

/// A cache with a lifetime for its entries. An insertion removes the expired entries. If the cache
/// is full, it also removes the oldest entry. All entries have the same lifetime, so entries expire
/// in the order of their insertion.
#[derive(Debug)]
pub(super) struct ExpiringCache<V> {
    lifetime: Duration,
    capacity: usize,
    entries: Mutex<CacheEntries<V>>,
}

/// The content of an [`ExpiringCache`].
#[derive(Debug)]
struct CacheEntries<V> {
    values: HashMap<Digest, (InsertionOrder, V)>,
    /// The insertions, oldest first. An entry that was replaced has several insertions. After each
    /// insertion, the length of the queue is at most `capacity`.
    order: VecDeque<(InsertionOrder, Digest)>,
    insertions: u64,
}

/// The time and the number of an insertion. The number distinguishes two insertions at the same
/// time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct InsertionOrder {
    at: Instant,
    nth: u64,
}

impl<V: Clone> ExpiringCache<V> {
    /// Creates an empty cache for at most `capacity` entries.
    pub(super) fn new(lifetime: Duration, capacity: usize) -> Self {
        Self {
            lifetime,
            capacity,
            entries: Mutex::new(CacheEntries {
                values: HashMap::new(),
                order: VecDeque::new(),
                insertions: 0,
            }),
        }
    }

    /// Returns the value of `key`. Returns `None` if there is no value, or if the value has
    /// expired.
    pub(super) fn get(&self, key: &Digest) -> Option<V> {
        self.lock().get(key, self.lifetime).cloned()
    }

    /// Inserts or replaces `value`.
    pub(super) fn insert(&self, key: Digest, value: V) {
        self.lock().insert(key, value, self.lifetime, self.capacity);
    }

    /// Calls `choose` with the value of `key`, or with `None` if there is no value or if the value
    /// has expired. `choose` returns two values: the result of this function, and an optional new
    /// value for `key`. The cache is locked while `choose` runs, so `choose` must be fast.
    fn resolve<R>(&self, key: Digest, choose: impl FnOnce(Option<&V>) -> (R, Option<V>)) -> R {
        let mut entries = self.lock();
        let (chosen, replacement) = choose(entries.get(&key, self.lifetime));
        if let Some(value) = replacement {
            entries.insert(key, value, self.lifetime, self.capacity);
        }
        chosen
    }

    fn lock(&self) -> MutexGuard<'_, CacheEntries<V>> {
        // If a thread panics while it holds this lock, the content is still consistent. So the lock
        // stays usable.
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of entries.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        let entries = self.lock();
        assert!(entries.order.len() <= self.capacity);
        entries.values.len()
    }
}

impl<V> CacheEntries<V> {
    fn get(&self, key: &Digest, lifetime: Duration) -> Option<&V> {
        let (inserted, value) = self.values.get(key)?;
        (inserted.at.elapsed() < lifetime).then_some(value)
    }

    fn insert(&mut self, key: Digest, value: V, lifetime: Duration, capacity: usize) {
        self.insertions += 1;
        let inserted = InsertionOrder {
            at: Instant::now(),
            nth: self.insertions,
        };
        self.values.insert(key, (inserted, value));
        self.order.push_back((inserted, key));
        while let Some(&(inserted, oldest)) = self.order.front() {
            if self.order.len() <= capacity && inserted.at.elapsed() < lifetime {
                break;
            }
            self.order.pop_front();
            // If the entry was replaced since this insertion, `order` also contains the later
            // insertion, and the entry stays.
            if self
                .values
                .get(&oldest)
                .is_some_and(|(current, _)| *current == inserted)
            {
                self.values.remove(&oldest);
            }
        }
    }
}

/// The reason why a review has no answer. All requests that wait for the review receive the reason.
#[derive(Clone, Debug)]
pub(super) struct NoAnswer(pub(super) Arc<str>);

/// The future of a review. Several requests can wait for the same future.
type Review<T> = Shared<BoxFuture<'static, Result<T, NoAnswer>>>;

/// An entry of the cache.
#[derive(Clone, Debug)]
pub(super) enum CachedReview<T> {
    /// A review in flight. The cache has only a weak reference to the review. When all requests
    /// that wait for the review have been dropped, the review is cancelled and its memory is freed.
    Asked(WeakShared<BoxFuture<'static, Result<T, NoAnswer>>>),
    /// The answer to a review.
    Answered(T),
}

/// The cache of reviews in flight and of answers.
pub(super) type ReviewCache<T> = ExpiringCache<CachedReview<T>>;

impl<T: Clone + Send + Sync + 'static> ReviewCache<T> {
    /// Returns the answer to the review with the digest `key`. If the cache has neither an answer
    /// nor a review in flight, the function calls `ask`, which sends the review.
    ///
    /// If the kube-apiserver cannot be reached or answers 429 or 5xx, the function calls `ask`
    /// again after a delay. Returns an error in these cases:
    ///
    /// - The kube-apiserver answers with another error.
    /// - All [`MAX_ATTEMPTS`] attempts fail.
    /// - [`REVIEW_TIMEOUT`] is over.
    pub(super) async fn ask<F>(
        &self,
        key: Digest,
        ask: impl Fn() -> F + Send + Sync + 'static,
    ) -> Result<T, NoAnswer>
    where
        F: Future<Output = Result<T, kube::Error>> + Send + 'static,
    {
        let lookup = self.resolve(key, |known| {
            let in_flight = match known {
                Some(CachedReview::Answered(answer)) => {
                    return (ReviewLookup::Answer(answer.clone()), None);
                }
                Some(CachedReview::Asked(review)) => review.upgrade(),
                None => None,
            };
            if let Some(review) = in_flight
                && !matches!(review.peek(), Some(Err(_)))
            {
                return (ReviewLookup::Wait(review), None);
            }
            let review = send_with_retries(ask).boxed().shared();
            let asked = review.downgrade().map(CachedReview::Asked);
            (ReviewLookup::Wait(review), asked)
        });
        let answer = match lookup {
            ReviewLookup::Answer(answer) => return Ok(answer),
            ReviewLookup::Wait(review) => review.await?,
        };
        // All waiting requests receive the answer. The first of them stores it in the cache.
        self.resolve(key, |known| match known {
            Some(CachedReview::Answered(_)) => ((), None),
            _ => ((), Some(CachedReview::Answered(answer.clone()))),
        });
        Ok(answer)
    }
}

/// The result of a lookup in the cache.
enum ReviewLookup<T> {
    /// The cached answer.
    Answer(T),
    /// A review in flight, which the request must wait for.
    Wait(Review<T>),
}

/// Time limit of a review, including its retries. After this time, the review fails. Kubernetes'
/// own extension API servers have the same limit for `TokenReviews` (`TokenRequestTimeout` in
/// `DelegatingAuthenticationOptions`).
const REVIEW_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum number of attempts for one review. If the last attempt fails, the review fails. The
/// value is that of `genericoptions.DefaultAuthWebhookRetryBackoff` in Kubernetes.
const MAX_ATTEMPTS: u32 = 5;
/// Delay before the second attempt. Each further delay is 1.5 times as long.
const FIRST_RETRY_DELAY: Duration = Duration::from_millis(500);

/// Sends a review to the kube-apiserver once. Records the status code of the answer and the
/// duration in the metrics.
pub(super) async fn send<K>(
    api: &Api<K>,
    review: &K,
    kind: ReviewKind,
    metrics: &Metrics,
) -> Result<K, kube::Error>
where
    K: Clone + Debug + DeserializeOwned + Serialize,
{
    let sent = Instant::now();
    let answer = api.create(&PostParams::default(), review).await;
    let code = match &answer {
        Ok(_) => Some(201),
        Err(kube::Error::Api(status)) => Some(status.code),
        Err(_) => None,
    };
    metrics.review(kind, code, sent.elapsed());
    answer
}

async fn send_with_retries<T, F>(ask: impl Fn() -> F) -> Result<T, NoAnswer>
where
    F: Future<Output = Result<T, kube::Error>>,
{
    let attempts = async {
        let mut delay = FIRST_RETRY_DELAY;
        for _ in 1..MAX_ATTEMPTS {
            match ask().await {
                Err(error) if is_transient(&error) => {
                    tracing::debug!(%error, "review failed, trying again");
                    tokio::time::sleep(delay).await;
                    delay = delay * 3 / 2;
                }
                answer => return answer,
            }
        }
        ask().await
    };
    match tokio::time::timeout(REVIEW_TIMEOUT, attempts).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => Err(NoAnswer(error.to_string().into())),
        Err(_) => Err(NoAnswer("the kube-apiserver did not answer in time".into())),
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
