//! Look-ups of targets in discovery. Input: targets. Output: one answer for each question. Few
//! look-ups run at the same time, and only one for each target.

use crate::observe::Resolve;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use ifo_api::{Gvr, Resolution};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// Number of concurrent look-ups. A group that does not answer must not delay all others, and the
/// API server must not get a burst.
const CONCURRENCY: usize = 8;

type LookupAnswer = (Arc<Gvr>, Resolution);

pub(super) struct Lookups {
    resolve: Arc<dyn Resolve>,
    under_way: FuturesUnordered<BoxFuture<'static, LookupAnswer>>,
    waiting: VecDeque<Arc<Gvr>>,
    /// The targets that are waiting or being looked up. True if the answer will be too old, so that
    /// the target must be looked up again.
    asked: HashMap<Arc<Gvr>, bool>,
}

impl Lookups {
    pub(super) fn new(resolve: Arc<dyn Resolve>) -> Self {
        Self {
            resolve,
            under_way: FuturesUnordered::new(),
            waiting: VecDeque::new(),
            asked: HashMap::new(),
        }
    }

    /// Looks up `targets`. `anew` is true if the answer of a running look-up would be too old.
    pub(super) fn ask(&mut self, targets: Vec<Arc<Gvr>>, anew: bool) {
        for target in targets {
            if let Some(again) = self.asked.get_mut(&target) {
                *again |= anew;
            } else {
                self.asked.insert(target.clone(), false);
                self.waiting.push_back(target);
            }
        }
        self.start();
    }

    fn start(&mut self) {
        while self.under_way.len() < CONCURRENCY
            && let Some(target) = self.waiting.pop_front()
        {
            // This look-up answers all questions from now on.
            self.asked.insert(target.clone(), false);
            let resolve = self.resolve.clone();
            let answer = async move {
                let resolution = resolve.resolve(&target).await;
                (target, resolution)
            };
            self.under_way.push(answer.boxed());
        }
    }

    /// The next answer. Pending while no look-up runs. Cancel-safe.
    pub(super) async fn next(&mut self) -> Option<LookupAnswer> {
        let (target, resolution) = self.under_way.next().await?;
        if self.asked.remove(&target) == Some(true) {
            self.asked.insert(target.clone(), false);
            self.waiting.push_back(target.clone());
        }
        self.start();
        Some((target, resolution))
    }

    /// Returns true if there is no open question.
    pub(super) fn is_idle(&self) -> bool {
        self.asked.is_empty()
    }
}
