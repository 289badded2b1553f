//! Orphans: custom resources without a live object. They are history, or records of
//! operations that ended while no server was running.

use super::record::{Fate, Orphan, Record, Wanted};
use super::{Found, Queue};
use crate::clock;
use ifo_api::live::Phase;
use jiff::Timestamp;
use std::collections::HashSet;
use std::sync::Arc;

impl Queue {
    /// What happens to a custom resource if it has no live object.
    pub(super) fn orphan(&self, found: &Found, keep: &HashSet<Arc<str>>) -> Orphan {
        let active = found.look.phase == Phase::Active && !found.outlived;
        let fate = if keep.contains(&found.name) {
            Fate::Keep
        } else if active && self.settings.retain {
            Fate::End
        } else {
            Fate::Delete
        };
        let rule_sets = if active { &*found.rule_sets } else { &[] };
        Orphan {
            fate,
            rule_sets: rule_sets.into(),
        }
    }

    /// The completed orphans that the retention settings keep: the newest ones.
    pub(super) fn kept(&self, found: &[Found]) -> HashSet<Arc<str>> {
        if !self.settings.retain {
            return HashSet::new();
        }
        let live = |record: &Record| match &record.wanted {
            Wanted::Live((_, look), _) => Some(look.phase),
            _ => None,
        };
        let records = self.records.values();
        let shown = records.filter(|it| live(it) == Some(Phase::Completed));
        let room = self.settings.retain_max.saturating_sub(shown.count());
        let oldest = clock::now()
            .checked_sub(self.settings.retain_for)
            .unwrap_or(Timestamp::MIN);
        let is_live = |name| self.records.get(name).and_then(live).is_some();
        let mut orphans: Vec<(Timestamp, &Arc<str>)> = found
            .iter()
            .filter(|found| found.look.phase == Phase::Completed && !found.outlived)
            .filter(|found| !is_live(&found.name))
            .filter_map(|found| Some((found.completed?, &found.name)))
            .filter(|(completed, _)| *completed > oldest)
            .collect();
        orphans.sort_unstable_by(|a, b| b.cmp(a));
        orphans.truncate(room);
        orphans.into_iter().map(|(_, name)| name.clone()).collect()
    }
}
