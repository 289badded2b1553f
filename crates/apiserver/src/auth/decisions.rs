//! Decides which requests a user may send, and caches the decisions. A server that hides objects
//! from users needs many decisions about the same user.
//!
//! The cached decisions about a user belong to a [`Period`] of 30 s. When the period is over, the
//! next request for a decision begins a new period, and the authorizer makes all decisions again.

use super::{AccessDecision, Attributes, Authorize, ResourceAttributes, Undecided, User};
use crate::store::Rv;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use moka::policy::EvictionPolicy;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// Duration of a period. The decisions about a user are used for this time.
const PERIOD: Duration = Duration::from_secs(30);

/// Maximum number of cached decisions, about 300 bytes each. A full cache evicts the least recently
/// used decisions. If a request needs an evicted decision, the authorizer decides again.
const MAX_DECISIONS: u64 = 50_000;

/// Maximum number of users whose last two periods are cached, about 1 KB each. If this number is
/// reached, the cache evicts the periods of a user. The effect is the same as after
/// [`IDLE_TIMEOUT`].
const MAX_USERS: u64 = 5_000;

/// Time after which the cache evicts an unused decision, or the periods of a user who has sent no
/// request.
///
/// If the rights of a user change, a watch sends `DELETED` for the objects that become hidden, and
/// `ADDED` for those that become visible. There is one exception: the change happened before a
/// client continues its watch, and the cache has evicted the period in which the client received
/// its objects. Then the client sees the effect of the change only in its next list.
const IDLE_TIMEOUT: Duration = Duration::from_mins(10);

/// Maximum number of concurrent reviews for one request.
const CONCURRENCY: usize = 16;

/// A period of 30 s for which the decisions about one user are cached. All decisions of a period
/// expire together, when the period ends.
#[derive(Debug)]
pub struct Period {
    id: u64,
    /// The user to whom the decisions apply.
    pub user: User,
    /// The newest version of the store when the period began.
    since: Rv,
    /// The time at which the period ends.
    pub end: Instant,
}

impl Period {
    /// Returns true if the period has ended. Then its decisions have expired.
    fn is_over(&self) -> bool {
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
                .eviction_policy(EvictionPolicy::lru())
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

    /// Returns the current period of a user. If the last period is over, begins a new period.
    /// `head` is the newest version of the store.
    pub fn period(&self, user: &User, head: Rv) -> Arc<Period> {
        self.periods(user, head).0
    }

    /// Returns the period in which a client received the objects at `version`. The client continues
    /// a watch after this version. `head` is the newest version of the store.
    ///
    /// - If the client received the objects in the previous period, returns the previous period.
    ///   The caller starts the watch with the expired decisions of this period, and then replaces
    ///   them by those of the current period.
    /// - If `version` is older than the start of the previous period, returns None.
    /// - If no previous period is cached, returns the current period.
    pub fn period_at(&self, user: &User, version: Rv, head: Rv) -> Option<Arc<Period>> {
        match self.periods(user, head) {
            // If `version` is equal to `current.since`, the client can have received the objects in
            // either period. The previous period is the safe choice, because the watch then sends
            // events for all objects that become visible or hidden between both periods.
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

    /// Returns a value for each request: true if the user of the period may send the request.
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
        // moka postpones its maintenance, such as evictions, to later calls. After many new
        // decisions, the maintenance would delay another request. So this request runs the
        // maintenance.
        if decisions.len() > CONCURRENCY {
            self.cache.run_pending_tasks().await;
        }
        Ok(decisions)
    }

    /// Returns true if the user of the period may send the request. Does not use the cache.
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
