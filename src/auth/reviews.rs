//! Answers of the kube-apiserver that are kept for some seconds. Enters: a digest of
//! the question, and how to ask it. Leaves: the answer, asked at most once at a time.
//!
//! Promises: an answer is never older than its keep time; the number of entries is
//! bounded; failures are told to all who wait and then forgotten.

use futures::FutureExt;
use futures::future::{BoxFuture, Shared, WeakShared};
use sha2::{Digest as _, Sha256};
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// SHA-256 of a question. Entries are as small as that, however long the question, so a
/// client cannot fill memory with long ones; and no token lies about in memory.
pub(super) type Digest = [u8; 32];

/// The digest of `parts`, in which no part can run into the next.
pub(super) fn digest<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Digest {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hash.finalize().into()
}

/// A map that forgets: by age, and the oldest first when it is full. All entries live
/// equally long, so the order of insertion is the order of expiry.
#[derive(Debug)]
pub(super) struct Recent<V> {
    keep: Duration,
    at_most: usize,
    inner: Mutex<ReviewCache<V>>,
}

#[derive(Debug)]
struct ReviewCache<V> {
    entries: HashMap<Digest, (Made, V)>,
    /// One for each insertion; never longer than `at_most`.
    order: VecDeque<(Made, Digest)>,
    insertions: u64,
}

/// When an entry was made, and which insertion it was: two can have the same moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Made {
    at: Instant,
    nth: u64,
}

impl<V: Clone> Recent<V> {
    /// An empty map of at most `at_most` entries, each kept for `keep`.
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

    /// The value of `key`, if it is there and not too old.
    pub(super) fn get(&self, key: &Digest) -> Option<V> {
        self.lock().get(key, self.keep).cloned()
    }

    /// Keeps `value`, in place of an older one.
    pub(super) fn insert(&self, key: Digest, value: V) {
        self.lock().insert(key, value, self.keep, self.at_most);
    }

    /// What `choose` makes of the value of `key`, if it is there and not too old, and what
    /// it wants in its place, if anything. It runs under the lock: it must be cheap.
    fn resolve<R>(&self, key: Digest, choose: impl FnOnce(Option<&V>) -> (R, Option<V>)) -> R {
        let mut inner = self.lock();
        let (chosen, instead) = choose(inner.get(&key, self.keep));
        if let Some(value) = instead {
            inner.insert(key, value, self.keep, self.at_most);
        }
        chosen
    }

    fn lock(&self) -> MutexGuard<'_, ReviewCache<V>> {
        // A panic under this lock leaves a map that is still a map.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of entries.
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
        let made = Made {
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
            // An entry that was replaced meanwhile has a younger place in the order.
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

/// Why there is no answer. Shared by all who waited for it.
#[derive(Clone, Debug)]
pub(super) struct NoAnswer(pub(super) Arc<str>);

/// A review that somebody waits for, or has.
type Review<T> = Shared<BoxFuture<'static, Result<T, NoAnswer>>>;

/// Of one question.
#[derive(Clone, Debug)]
pub(super) enum CachedReview<T> {
    /// Those who ask keep it alive. When they are all gone, so is the question, which may
    /// be long: a client that goes away leaves nothing but its digest.
    Asked(WeakShared<BoxFuture<'static, Result<T, NoAnswer>>>),
    /// The answer.
    Answered(T),
}

/// Reviews under way and answered.
pub(super) type Reviews<T> = Recent<CachedReview<T>>;

impl<T: Clone + Send + Sync + 'static> Reviews<T> {
    /// The answer to `key`. `ask` is called if nobody asked within the keep time, and
    /// called again, with pauses, when the kube-apiserver could not be reached or was
    /// busy.
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
                Some(CachedReview::Answered(answer)) => return (Way::Answer(answer.clone()), None),
                Some(CachedReview::Asked(review)) => review.upgrade(),
                None => None,
            };
            if let Some(review) = under_way
                && !matches!(review.peek(), Some(Err(_)))
            {
                return (Way::Wait(review), None);
            }
            let review = patiently(ask).boxed().shared();
            let asked = review.downgrade().map(CachedReview::Asked);
            (Way::Wait(review), asked)
        });
        let answer = match way {
            Way::Answer(answer) => return Ok(answer),
            Way::Wait(review) => review.await?,
        };
        // The first of those who waited writes it down.
        self.resolve(key, |known| match known {
            Some(CachedReview::Answered(_)) => ((), None),
            _ => ((), Some(CachedReview::Answered(answer.clone()))),
        });
        Ok(answer)
    }
}

/// How to come by an answer.
enum Way<T> {
    /// This is it.
    Answer(T),
    /// It is under way.
    Wait(Review<T>),
}

/// How long a review may take, its retries included: what extension servers of
/// Kubernetes allow (`WebhookRetryBackoff`, `TokenRequestTimeout`).
const WITHIN: Duration = Duration::from_secs(10);

/// The number of tries and the first pause; each next pause is half as long again.
/// Kubernetes' own numbers (`genericoptions.DefaultAuthWebhookRetryBackoff`).
const TRIES: u32 = 5;
const FIRST_PAUSE: Duration = Duration::from_millis(500);

async fn patiently<T, F>(ask: impl Fn() -> F) -> Result<T, NoAnswer>
where
    F: Future<Output = Result<T, kube::Error>>,
{
    let tries = async {
        let mut pause = FIRST_PAUSE;
        for _ in 1..TRIES {
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
    match tokio::time::timeout(WITHIN, tries).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => Err(NoAnswer(error.to_string().into())),
        Err(_) => Err(NoAnswer("the kube-apiserver did not answer in time".into())),
    }
}

/// Whether the next try may succeed.
fn passing(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => status.code == 429 || status.code >= 500,
        kube::Error::HyperError(_) | kube::Error::Service(_) => true,
        _ => false,
    }
}
