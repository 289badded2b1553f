//! Caches which requests each user may send. It is for a server that hides objects from users. All
//! decisions about a user are renewed together, every 30 s.

use super::{AccessDecision, Attributes, Authorize, ResourceAttributes, Undecided, User};
use crate::store::Rv;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use moka::policy::EvictionPolicy;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// Time for which the decisions about a user are used.
const PERIOD: Duration = Duration::from_secs(30);

/// Maximum number of decisions in memory, about 300 bytes each. If it is reached, the decisions
/// that were not used for the longest time are dropped, and made again when they are needed.
const MAX_DECISIONS: u64 = 50_000;

/// Maximum number of users whose last two periods are in memory, about 1 KB each.
const MAX_USERS: u64 = 5_000;

/// Time after which an unused user or decision is dropped. If a client continues a watch after a
/// longer time, the watch uses the current decisions. The client then sees only in its next list
/// what the change of its rights has hidden or shown.
const IDLE_TIMEOUT: Duration = Duration::from_mins(10);

/// Maximum number of concurrent reviews for one request.
const CONCURRENCY: usize = 16;

/// A time of at most 30 s in which each decision about a user is made once.
#[derive(Debug)]
pub struct Period {
    id: u64,
    user: User,
    /// The newest version of the store when the period began.
    since: Rv,
    end: Instant,
}

impl Period {
    /// Returns the user about whom the decisions are.
    pub fn user(&self) -> &User {
        &self.user
    }

    /// Returns the time at which the decisions must be made again.
    pub fn end(&self) -> Instant {
        self.end
    }

    /// Returns true if the decisions must be made again.
    pub fn is_over(&self) -> bool {
        Instant::now() >= self.end
    }
}

/// The last two periods of a user.
#[derive(Debug, Default)]
struct Periods {
    previous: Option<Arc<Period>>,
    current: Option<Arc<Period>>,
}

/// Decides what users may do, and caches the decisions for at most 30 s.
pub struct Decisions {
    authorize: Arc<dyn Authorize>,
    users: moka::sync::Cache<User, Arc<Mutex<Periods>>>,
    cache: moka::future::Cache<(u64, ResourceAttributes), bool>,
    next_id: AtomicU64,
}

impl Decisions {
    /// Creates an empty cache. `authorize` should have no cache of its own. Otherwise decisions are
    /// used for longer than 30 s.
    pub fn new(authorize: Arc<dyn Authorize>) -> Self {
        Self {
            authorize,
            users: moka::sync::Cache::builder()
                .max_capacity(MAX_USERS)
                .time_to_idle(IDLE_TIMEOUT)
                .build(),
            cache: moka::future::Cache::builder()
                .max_capacity(MAX_DECISIONS)
                .eviction_policy(EvictionPolicy::lru())
                .time_to_idle(IDLE_TIMEOUT)
                .build(),
            next_id: AtomicU64::new(0),
        }
    }

    /// Returns the current period of a user. `head` is the newest version of the store.
    pub fn period(&self, user: &User, head: Rv) -> Arc<Period> {
        self.periods(user, head).0
    }

    /// Returns the period whose decisions a client has seen. The client continues a watch at
    /// `version`. If the period is over, the caller replaces it as soon as the watch has started.
    /// Returns None if `version` is older than the previous period. If no previous period is known,
    /// returns the current one.
    pub fn period_at(&self, user: &User, version: Rv, head: Rv) -> Option<Arc<Period>> {
        match self.periods(user, head) {
            // At the version `since`, the client may have seen either period. With the previous
            // one, the watch then sends the difference to the current one.
            (current, Some(previous)) if version <= current.since => {
                (version >= previous.since).then_some(previous)
            }
            (current, _) => Some(current),
        }
    }

    fn periods(&self, user: &User, head: Rv) -> (Arc<Period>, Option<Arc<Period>>) {
        let known = self.users.get_with_by_ref(user, Arc::default);
        let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
        let current = match known.current.take() {
            Some(current) if !current.is_over() => current,
            over => {
                known.previous = over;
                Arc::new(Period {
                    id: self.next_id.fetch_add(1, Ordering::Relaxed),
                    user: user.clone(),
                    since: head,
                    end: Instant::now() + PERIOD,
                })
            }
        };
        known.current = Some(current.clone());
        (current, known.previous.clone())
    }

    /// Returns for each request whether the user of the period may send it.
    ///
    /// # Errors
    ///
    /// Returns an error if no decision is possible.
    pub async fn decide(
        &self,
        period: &Period,
        requests: Vec<ResourceAttributes>,
    ) -> Result<Vec<bool>, Undecided> {
        let decisions = requests.into_iter().map(async |request| {
            let key = (period.id, request);
            let decision = self.decide_uncached(period, key.1.clone());
            let decision = self.cache.try_get_with_by_ref(&key, decision).await;
            decision.map_err(|why| Undecided(why.0.clone()))
        });
        let decisions = stream::iter(decisions).buffered(CONCURRENCY);
        let decisions: Vec<bool> = decisions.try_collect().await?;
        // moka postpones its maintenance to later calls. After many new decisions it would delay
        // another request, so it runs here.
        if decisions.len() > CONCURRENCY {
            self.cache.run_pending_tasks().await;
        }
        Ok(decisions)
    }

    /// Returns whether the user of the period may send a request, without the cache.
    ///
    /// # Errors
    ///
    /// Returns an error if no decision is possible.
    pub async fn decide_uncached(
        &self,
        period: &Period,
        request: ResourceAttributes,
    ) -> Result<bool, Undecided> {
        let attributes = Attributes::Resource(request);
        let decision = self.authorize.authorize(&period.user, &attributes).await?;
        Ok(decision == AccessDecision::Allow)
    }
}
