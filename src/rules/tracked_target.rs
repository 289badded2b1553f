//! The state of one target, which is a resource that rule sets watch. The state consists of the
//! result of discovery, the published rule book (all compiled rule sets of the target), and the
//! reports of the feeds. A feed is the watch of the target in all namespaces or in one namespace.

use super::health::WatchState;
use ifo_api::Text;
use ifo_api::{Gvr, Resolution, Source};
use ifo_engine::rules::{RuleBook, RuleSet};
use ifo_engine::track::Publication;
use std::collections::HashMap;
use std::sync::Arc;

/// A report that a feed sends to the controller. A feed is the watch of one target, or of one
/// namespace of it.
#[derive(Clone, Debug)]
pub struct Feedback {
    /// The target and the namespace that the feed watches.
    pub source: Source,
    /// The generation of the rule book that the feed evaluates.
    pub generation: u64,
    /// The reason why the feed is not up to date. `None` if it is up to date.
    pub failure: Option<String>,
}

/// The state of one target.
#[derive(Debug, Default)]
pub(super) struct TrackedTarget {
    /// The result of the last successful look-up in discovery. `None` if no look-up has succeeded yet.
    pub(super) resolution: Option<Resolution>,
    /// The reason why the last look-up failed. `None` if it succeeded, or if no look-up has ended
    /// yet.
    pub(super) look_up_failure: Option<String>,
    /// The published rule book.
    pub(super) published: Option<Arc<RuleBook>>,
    /// True if a rule set or the resolution has changed since the last call of
    /// [`TrackedTarget::publish`]. The rule book may then have to change.
    pub(super) stale: bool,
    /// The feeds of the published rule book. A feed that has not reported yet is pending.
    feeds: HashMap<Source, WatchState>,
}

impl TrackedTarget {
    /// Returns true if no look-up of this target has ended.
    pub(super) fn is_new(&self) -> bool {
        self.resolution.is_none() && self.look_up_failure.is_none()
    }

    /// Returns true if the last look-up failed, if the target is not served, or if its feeds fail.
    pub(super) fn is_doubtful(&self) -> bool {
        let has_failed = |state: &WatchState| matches!(state, WatchState::Failed(_));
        self.look_up_failure.is_some()
            || !matches!(self.resolution, Some(Resolution::Served { .. }))
            || self.feeds.values().any(has_failed)
    }

    /// Records a result of discovery. A failed look-up does not replace the result of an earlier
    /// look-up.
    pub(super) fn record_resolution(&mut self, resolution: Resolution) {
        if let Resolution::Unknown { message } = resolution {
            self.look_up_failure = Some(message);
            return;
        }
        self.look_up_failure = None;
        self.stale |= self.resolution.as_ref() != Some(&resolution);
        self.resolution = Some(resolution);
    }

    /// Records the report of a feed. Returns true if the report changes the state. A report for an
    /// older rule book is ignored.
    pub(super) fn record_report(&mut self, feedback: Feedback) -> bool {
        if self.published.as_ref().map(|book| book.generation) != Some(feedback.generation) {
            return false;
        }
        let failure = feedback.failure;
        let state = failure.map_or(WatchState::Active, WatchState::Failed);
        let before = self.feeds.insert(feedback.source, state.clone());
        before != Some(state)
    }

    /// Returns a publication with the rule book of the rule sets `usable`, which are sorted by
    /// name. Returns `None` if the published rule book stays in use. `generation` is the number of
    /// the newest rule book of any target. A new rule book gets the next number.
    pub(super) fn publish(
        &mut self,
        gvr: &Arc<Gvr>,
        usable: Vec<Arc<RuleSet>>,
        generation: &mut u64,
    ) -> Option<Publication> {
        if !std::mem::take(&mut self.stale) {
            return None;
        }
        let (book, removed) = match &self.resolution {
            Some(Resolution::Served { kind, namespaced }) => {
                let usable: Vec<_> = usable
                    .into_iter()
                    .filter(|rule_set| *namespaced || rule_set.namespaces.is_none())
                    .collect();
                if self.is_published_book(kind, *namespaced, &usable) {
                    return None;
                }
                let book = (!usable.is_empty()).then(|| {
                    *generation += 1;
                    let gvr = (**gvr).clone();
                    let book = RuleBook::new(*generation, gvr, kind.clone(), *namespaced, usable);
                    Arc::new(book)
                });
                (book, false)
            }
            Some(Resolution::NotServed { .. }) => (None, true),
            // No look-up has succeeded yet, so this target has no published rule book.
            _ => return None,
        };
        if book.is_none() && self.published.is_none() {
            return None;
        }
        self.published.clone_from(&book);
        let sources = book.iter().flat_map(|book| book.sources(gvr));
        self.feeds = sources.map(|it| (it, WatchState::Pending)).collect();
        Some(Publication {
            target: gvr.clone(),
            book,
            removed,
        })
    }

    /// Returns true if a rule book of these rule sets would equal the published rule book. An equal
    /// rule book is not published, because the feeds would list all objects again without need.
    fn is_published_book(&self, kind: &str, namespaced: bool, usable: &[Arc<RuleSet>]) -> bool {
        self.published.as_ref().is_some_and(|book| {
            book.kind == kind
                && book.namespaced == namespaced
                && book.rule_sets.len() == usable.len()
                && book
                    .rule_sets
                    .iter()
                    .zip(usable)
                    .all(|(a, b)| Arc::ptr_eq(a, b))
        })
    }

    /// Returns true if the published rule book does not contain the rule set `name`, but the next
    /// rule book of [`TrackedTarget::publish`] may contain it.
    pub(super) fn awaits_book(&self, name: &str) -> bool {
        self.stale && self.published_rule_set(name).is_none()
    }

    /// Returns the rule set `name` of the published rule book.
    fn published_rule_set(&self, name: &str) -> Option<&Arc<RuleSet>> {
        self.published.as_ref()?.rule_set(name)
    }

    /// Returns true if every feed of the published rule book has sent its first report. The report
    /// states that the feed is up to date, or why it is not. Also returns true if no rule book is
    /// published.
    pub(super) fn caught_up(&self) -> bool {
        let mut states = self.feeds.values();
        states.all(|state| *state != WatchState::Pending)
    }

    /// Returns the kind of the target's objects, and true if this kind is namespaced. Returns
    /// `None` if discovery has not shown that the target is served.
    pub(super) fn kind(&self) -> Option<(Text, bool)> {
        match &self.resolution {
            Some(Resolution::Served { kind, namespaced }) => {
                Some((kind.as_str().into(), *namespaced))
            }
            _ => None,
        }
    }

    /// Returns the state of the feeds of the rule set `name`.
    pub(super) fn watch_state(&self, name: &str) -> WatchState {
        let Some(rule_set) = self.published_rule_set(name) else {
            return WatchState::Pending;
        };
        let own = self.feeds.iter().filter(|(source, _)| {
            let namespace = source.namespace.as_deref();
            namespace.is_none() || rule_set.covers(namespace)
        });
        // If the rule book will be replaced, not all rules are evaluated yet.
        let pending = self.stale.then_some(WatchState::Pending);
        let states = own.map(|(_, state)| state.clone()).chain(pending);
        states.min().unwrap_or(WatchState::Active)
    }
}
