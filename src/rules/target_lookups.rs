//! Looks up targets (the resources that rule sets watch) in discovery. Only a few look-ups run at
//! the same time, and only one for each target.

use crate::observe::Resolve;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use ifo_api::{Gvr, Resolution};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// Maximum number of concurrent look-ups. Further look-ups wait. Several look-ups may run, because
/// an API group that does not answer must not delay all other groups. The number is small, so that
/// the kube-apiserver does not receive a burst of requests.
const CONCURRENCY: usize = 8;

type LookupAnswer = (Arc<Gvr>, Resolution);

pub(super) struct Lookups {
    resolve: Arc<dyn Resolve>,
    in_flight: FuturesUnordered<BoxFuture<'static, LookupAnswer>>,
    waiting: VecDeque<Arc<Gvr>>,
    /// The targets that wait for a look-up or are being looked up. The value is true if the target
    /// must be looked up again after the running look-up, whose answer may be outdated.
    requested: HashMap<Arc<Gvr>, bool>,
}

impl Lookups {
    pub(super) fn new(resolve: Arc<dyn Resolve>) -> Self {
        Self {
            resolve,
            in_flight: FuturesUnordered::new(),
            waiting: VecDeque::new(),
            requested: HashMap::new(),
        }
    }

    /// Requests a look-up of `targets`. If `needs_newer` is true, the answer of a look-up that is
    /// already running may be outdated. Then the target is looked up again afterwards.
    pub(super) fn ask(&mut self, targets: Vec<Arc<Gvr>>, needs_newer: bool) {
        for target in targets {
            if let Some(again) = self.requested.get_mut(&target) {
                *again |= needs_newer;
            } else {
                self.requested.insert(target.clone(), false);
                self.waiting.push_back(target);
            }
        }
        self.start();
    }

    fn start(&mut self) {
        while self.in_flight.len() < CONCURRENCY
            && let Some(target) = self.waiting.pop_front()
        {
            // This look-up starts now, so its answer is new enough for all earlier requests of this
            // target.
            self.requested.insert(target.clone(), false);
            let resolve = self.resolve.clone();
            let answer = async move {
                let resolution = resolve.resolve(&target).await;
                (target, resolution)
            };
            self.in_flight.push(answer.boxed());
        }
    }

    /// Returns the next answer, or `None` if no look-up runs. Cancel-safe.
    pub(super) async fn next(&mut self) -> Option<LookupAnswer> {
        let (target, resolution) = self.in_flight.next().await?;
        if self.requested.remove(&target) == Some(true) {
            self.requested.insert(target.clone(), false);
            self.waiting.push_back(target.clone());
        }
        self.start();
        Some((target, resolution))
    }

    /// Returns true if no target waits for a look-up or is being looked up.
    pub(super) fn is_idle(&self) -> bool {
        self.requested.is_empty()
    }
}
