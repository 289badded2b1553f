//! Looks up targets (the resources that rule sets watch) in discovery. At most eight look-ups run
//! at the same time, and at most one for each target.

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use ifo_api::{Gvr, Resolution};
use ifo_observe::Resolve;
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// Maximum number of concurrent look-ups. Further look-ups wait. The number is greater than one,
/// because an API group that does not answer must not delay all other groups. The number is small,
/// so that the kube-apiserver does not receive a burst of requests.
const CONCURRENCY: usize = 8;

type LookupAnswer = (Arc<Gvr>, Resolution);

pub(super) struct Lookups {
    resolve: Arc<dyn Resolve>,
    in_flight: FuturesUnordered<BoxFuture<'static, LookupAnswer>>,
    limit: Arc<Semaphore>,
    /// The targets that are being looked up. The value is true if another look-up of the target must
    /// follow, because the answer of this look-up may be outdated.
    requested: HashMap<Arc<Gvr>, bool>,
}

impl Lookups {
    pub(super) fn new(resolve: Arc<dyn Resolve>) -> Self {
        Self {
            resolve,
            in_flight: FuturesUnordered::new(),
            limit: Arc::new(Semaphore::new(CONCURRENCY)),
            requested: HashMap::new(),
        }
    }

    /// Requests a look-up of each target in `targets`. If a look-up of the target is already
    /// running, `needs_newer` decides:
    ///
    /// - False: the answer of the running look-up is enough.
    /// - True: the answer may be outdated, so another look-up follows.
    pub(super) fn request(&mut self, targets: Vec<Arc<Gvr>>, needs_newer: bool) {
        for target in targets {
            match self.requested.get_mut(&target) {
                Some(again) => *again |= needs_newer,
                None => self.start(target),
            }
        }
    }

    fn start(&mut self, target: Arc<Gvr>) {
        self.requested.insert(target.clone(), false);
        let (resolve, limit) = (self.resolve.clone(), self.limit.clone());
        let answer = async move {
            let _permit = limit.acquire().await;
            let resolution = resolve.resolve(&target).await;
            (target, resolution)
        };
        self.in_flight.push(answer.boxed());
    }

    /// Waits for the end of a look-up and returns the answer. If no look-up runs, returns `None` at
    /// once. Cancel-safe.
    pub(super) async fn next(&mut self) -> Option<LookupAnswer> {
        let (target, resolution) = self.in_flight.next().await?;
        if self.requested.remove(&target) == Some(true) {
            self.start(target.clone());
        }
        Some((target, resolution))
    }

    /// Returns true if no target is being looked up.
    pub(super) fn is_idle(&self) -> bool {
        self.requested.is_empty()
    }
}
