//! A cache of the kube-apiserver's answers. Input: the digest of a question, and a function that
//! asks it. Output: the answer. Concurrent requests for the same question share one review.
//!
//! An answer is never older than its time in the cache. The number of entries is limited. A failure
//! is returned to all waiting requests, and is not cached.

use crate::telemetry::{Metrics, ReviewKind};
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

/// SHA-256 of a question. Long questions do not take more memory, and the cache contains no tokens.
pub(super) type Digest = [u8; 32];

/// The digest of `parts`. Different parts never have the same digest as a whole.
pub(super) fn digest<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Digest {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hash.finalize().into()
}

/// A map that drops old entries, and the oldest entry when it is full. All entries have the same
/// lifetime, so the order of insertion is the order of expiry.
#[derive(Debug)]
pub(super) struct Recent<V> {
    keep: Duration,
    at_most: usize,
    inner: Mutex<ReviewCache<V>>,
}

#[derive(Debug)]
struct ReviewCache<V> {
    entries: HashMap<Digest, (InsertionOrder, V)>,
    /// The insertions in their order, at most `at_most`.
    order: VecDeque<(InsertionOrder, Digest)>,
    insertions: u64,
}

/// The time and the number of an insertion. Two insertions may have the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct InsertionOrder {
    at: Instant,
    nth: u64,
}

impl<V: Clone> Recent<V> {
    /// Creates an empty map for at most `at_most` entries, each with the lifetime `keep`.
    pub(super) fn new(keep: Duration, at_most: usize) -> Self {
        Self {
            keep,
            at_most,
            inner: Mutex::new(ReviewCache {
                entries: HashMap::new(),
                order: VecDeque::new(),
                insertions: 0,
            }),
        }
    }

    /// The value of `key`, if it has not expired.
    pub(super) fn get(&self, key: &Digest) -> Option<V> {
        self.lock().get(key, self.keep).cloned()
    }

    /// Inserts or replaces `value`.
    pub(super) fn insert(&self, key: Digest, value: V) {
        self.lock().insert(key, value, self.keep, self.at_most);
    }

    /// Calls `choose` with the value of `key`, if it has not expired. `choose` returns the result,
    /// and a new value if it wants to replace it. It runs under the lock and must be fast.
    fn resolve<R>(&self, key: Digest, choose: impl FnOnce(Option<&V>) -> (R, Option<V>)) -> R {
        let mut inner = self.lock();
        let (chosen, instead) = choose(inner.get(&key, self.keep));
        if let Some(value) = instead {
            inner.insert(key, value, self.keep, self.at_most);
        }
        chosen
    }

    fn lock(&self) -> MutexGuard<'_, ReviewCache<V>> {
        // After a panic under this lock, the map is still consistent.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Number of entries.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        let inner = self.lock();
        assert!(inner.order.len() <= self.at_most);
        inner.entries.len()
    }
}

impl<V> ReviewCache<V> {
    fn get(&self, key: &Digest, keep: Duration) -> Option<&V> {
        let (made, value) = self.entries.get(key)?;
        (made.at.elapsed() < keep).then_some(value)
    }

    fn insert(&mut self, key: Digest, value: V, keep: Duration, at_most: usize) {
        self.insertions += 1;
        let made = InsertionOrder {
            at: Instant::now(),
            nth: self.insertions,
        };
        self.entries.insert(key, (made, value));
        self.order.push_back((made, key));
        while let Some(&(made, oldest)) = self.order.front() {
            if self.order.len() <= at_most && made.at.elapsed() < keep {
                break;
            }
            self.order.pop_front();
            // A replaced entry has a later insertion in the order.
            if self
                .entries
                .get(&oldest)
                .is_some_and(|(kept, _)| *kept == made)
            {
                self.entries.remove(&oldest);
            }
        }
    }
}

/// Why there is no answer. All waiting requests share it.
#[derive(Clone, Debug)]
pub(super) struct NoAnswer(pub(super) Arc<str>);

/// A review that is in flight or answered.
type Review<T> = Shared<BoxFuture<'static, Result<T, NoAnswer>>>;

/// A review in flight.
#[derive(Clone, Debug)]
pub(super) enum CachedReview<T> {
    /// The requests that wait keep the review alive. When all of them have been dropped, the review
    /// and its question are dropped, too, and only the digest stays.
    Asked(WeakShared<BoxFuture<'static, Result<T, NoAnswer>>>),
    /// The answer.
    Answered(T),
}

/// Reviews in flight, and cached answers.
pub(super) type Reviews<T> = Recent<CachedReview<T>>;

impl<T: Clone + Send + Sync + 'static> Reviews<T> {
    /// The answer for `key`. Calls `ask` if there is no cached answer. Retries with pauses if the
    /// kube-apiserver could not be reached or was busy.
    pub(super) async fn ask<F>(
        &self,
        key: Digest,
        ask: impl Fn() -> F + Send + Sync + 'static,
    ) -> Result<T, NoAnswer>
    where
        F: Future<Output = Result<T, kube::Error>> + Send + 'static,
    {
        let way = self.resolve(key, |known| {
            let under_way = match known {
                Some(CachedReview::Answered(answer)) => {
                    return (ReviewLookup::Answer(answer.clone()), None);
                }
                Some(CachedReview::Asked(review)) => review.upgrade(),
                None => None,
            };
            if let Some(review) = under_way
                && !matches!(review.peek(), Some(Err(_)))
            {
                return (ReviewLookup::Wait(review), None);
            }
            let review = patiently(ask).boxed().shared();
            let asked = review.downgrade().map(CachedReview::Asked);
            (ReviewLookup::Wait(review), asked)
        });
        let answer = match way {
            ReviewLookup::Answer(answer) => return Ok(answer),
            ReviewLookup::Wait(review) => review.await?,
        };
        // The first waiting request stores the answer.
        self.resolve(key, |known| match known {
            Some(CachedReview::Answered(_)) => ((), None),
            _ => ((), Some(CachedReview::Answered(answer.clone()))),
        });
        Ok(answer)
    }
}

/// The way to an answer.
enum ReviewLookup<T> {
    /// The cached answer.
    Answer(T),
    /// A review in flight.
    Wait(Review<T>),
}

/// Time limit of a review with its retries, as in the extension servers of Kubernetes
/// (`WebhookRetryBackoff`, `TokenRequestTimeout`).
const REVIEW_TIMEOUT: Duration = Duration::from_secs(10);

/// The number of attempts and the first pause. Each further pause is half as long again
/// (`genericoptions.DefaultAuthWebhookRetryBackoff` in Kubernetes).
const MAX_ATTEMPTS: u32 = 5;
const FIRST_RETRY_DELAY: Duration = Duration::from_millis(500);

/// Sends a review to the kube-apiserver once, and records its status code and duration.
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

async fn patiently<T, F>(ask: impl Fn() -> F) -> Result<T, NoAnswer>
where
    F: Future<Output = Result<T, kube::Error>>,
{
    let tries = async {
        let mut pause = FIRST_RETRY_DELAY;
        for _ in 1..MAX_ATTEMPTS {
            match ask().await {
                Err(error) if passing(&error) => {
                    tracing::debug!(%error, "review failed, trying again");
                    tokio::time::sleep(pause).await;
                    pause = pause * 3 / 2;
                }
                answer => return answer,
            }
        }
        ask().await
    };
    match tokio::time::timeout(REVIEW_TIMEOUT, tries).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => Err(NoAnswer(error.to_string().into())),
        Err(_) => Err(NoAnswer("the kube-apiserver did not answer in time".into())),
    }
}

/// Returns true if a retry may succeed.
fn passing(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => status.code == 429 || status.code >= 500,
        kube::Error::HyperError(_) | kube::Error::Service(_) => true,
        _ => false,
    }
}
