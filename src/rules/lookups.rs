//! Questions to discovery. Enters: targets. Leaves: one answer for each question, from
//! at most a few at once, one at a time for each target.

use crate::observe::Resolve;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use ifo_api::{Gvr, Resolution};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// Look-ups under way at once: enough that one dead group does not hold up the rest,
/// and no burst for the API server.
const CONCURRENCY: usize = 8;

type LookupAnswer = (Arc<Gvr>, Resolution);

pub(super) struct Lookups {
    resolve: Arc<dyn Resolve>,
    under_way: FuturesUnordered<BoxFuture<'static, LookupAnswer>>,
    waiting: VecDeque<Arc<Gvr>>,
    /// All that are waiting or under way; true if the answer will be too old, and the
    /// question has to be put again after it.
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

    /// Looks `targets` up. `anew`: an answer that is already under way would be too old.
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
            // What is asked from now on is answered by this question.
            self.asked.insert(target.clone(), false);
            let resolve = self.resolve.clone();
            let answer = async move {
                let resolution = resolve.resolve(&target).await;
                (target, resolution)
            };
            self.under_way.push(answer.boxed());
        }
    }

    /// The next answer; None while nothing is asked. Loses nothing when dropped.
    pub(super) async fn next(&mut self) -> Option<LookupAnswer> {
        let (target, resolution) = self.under_way.next().await?;
        if self.asked.remove(&target) == Some(true) {
            self.asked.insert(target.clone(), false);
            self.waiting.push_back(target.clone());
        }
        self.start();
        Some((target, resolution))
    }

    /// Whether every question has its answer.
    pub(super) fn is_idle(&self) -> bool {
        self.asked.is_empty()
    }
}
