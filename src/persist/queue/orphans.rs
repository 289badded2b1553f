//! Custom resources without a live object: history, what ended while nobody looked, and
//! what is there twice.

use super::record::{Fate, Orphan, Record, Wanted};
use super::{Found, Queue};
use crate::clock;
use crate::persist::look;
use ifo_api::live::Phase;
use jiff::{SignedDuration, Timestamp};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// How much earlier than it is heard of an operation may have started, and have started with
/// that change: as the tracker takes it, and a second for what Kubernetes cuts off.
const LATE: SignedDuration = SignedDuration::from_secs(11);

impl Queue {
    /// What is to become of one if there is no live object.
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
            started: found.started,
            settling: found.settling,
            rule_sets: rule_sets.into(),
        }
    }

    /// Whether the operation of a custom resource without a live object is in the index
    /// under another name: in flight, or over since. There is one at a time, so a second
    /// writer has seen it start in another second; unless this one was over by then.
    pub(super) fn is_doubled(&self, name: &Arc<str>) -> bool {
        let Some(Record {
            wanted: Wanted::Orphan(orphan),
            written: Some(written),
            ..
        }) = self.records.get(name)
        else {
            return false;
        };
        self.records.values().any(|record| match &record.wanted {
            Wanted::Live((entry, look), _) if look.identity == written.look.identity => {
                let Some((started, completed)) = look::span(entry) else {
                    return false;
                };
                let later = orphan.settling.is_some_and(|settling| settling <= started);
                let goes_on = look.phase == Phase::Active;
                !later && (goes_on || completed.is_some_and(|over| over > orphan.started))
            }
            _ => false,
        })
    }

    /// Of completed ones without a live object, those that stay. Notes which of them may be
    /// doubles, to look again.
    pub(super) fn kept(&mut self, found: &[Found]) -> HashSet<Arc<str>> {
        if !self.settings.retain {
            return HashSet::new();
        }
        let (doubles, suspects) = self.doubles(found);
        self.suspects = suspects;
        let is_live = |name: &Arc<str>| {
            let record = self.records.get(name);
            record.is_some_and(|record| matches!(record.wanted, Wanted::Live(..)))
        };
        let is_retained = |record: &&Record| matches!(&record.wanted, Wanted::Live((_, look), _) if look.phase == Phase::Completed);
        let live = self.records.values().filter(is_retained).count();
        let oldest = clock::now()
            .checked_sub(self.settings.retain_for)
            .unwrap_or(Timestamp::MIN);
        let mut orphans: Vec<(Timestamp, &Arc<str>)> = found
            .iter()
            .filter(|found| found.look.phase == Phase::Completed && !found.outlived)
            .filter(|found| !is_live(&found.name))
            .filter_map(|found| Some((found.completed?, &found.name)))
            .filter(|(completed, _)| *completed > oldest)
            .collect();
        orphans.retain(|(_, name)| !doubles.contains(*name));
        orphans.sort_unstable_by(|a, b| b.cmp(a));
        orphans.truncate(self.settings.retain_max.saturating_sub(live));
        orphans.into_iter().map(|(_, name)| name.clone()).collect()
    }

    /// Of completed ones without a live object, those that tell of a time in which the same
    /// operation goes on in the index, and has since before: whoever wrote it saw it end and
    /// start again while this server had asked what goes on, and was not watching yet. Of two
    /// servers that go on side by side, the one with the earlier start keeps it.
    ///
    /// And those of a run that began since this server is there, and that it has seen begin
    /// later: what settled for a moment and went on for the other was not there yet when this
    /// one looked first. Its own is written, so nothing is lost with the other. If the other
    /// server is still there, it is the one that deletes, and finds this one's first: so these
    /// are only suspects until they are found together again.
    fn doubles(&self, found: &[Found]) -> (HashSet<Arc<str>>, HashSet<Arc<str>>) {
        let mut orphans: HashMap<u64, Vec<&Found>> = HashMap::new();
        for found in found {
            let known = self.records.get(&found.name);
            let live = known.is_some_and(|it| matches!(it.wanted, Wanted::Live(..)));
            if found.look.phase == Phase::Completed && !live {
                orphans.entry(found.look.identity).or_default().push(found);
            }
        }
        let there: HashSet<&Arc<str>> = found.iter().map(|found| &found.name).collect();
        let since = self.born.checked_sub(LATE).unwrap_or(self.born);
        let (mut doubles, mut suspects) = (HashSet::new(), HashSet::new());
        for (name, record) in &self.records {
            let Wanted::Live((entry, look), _) = &record.wanted else {
                continue;
            };
            // Only what is asked for is read: the objects are JSON.
            let Some(orphans) = orphans.get(&look.identity) else {
                continue;
            };
            let Some((started, completed)) = look::span(entry) else {
                continue;
            };
            for orphan in orphans {
                if started < orphan.started {
                    if completed.is_none_or(|over| over > orphan.started) {
                        doubles.insert(orphan.name.clone());
                    }
                } else if orphan.started > since
                    && orphan.completed.is_some_and(|over| over > started)
                    && there.contains(name)
                {
                    let known = self.suspects.contains(&orphan.name);
                    let all = if known { &mut doubles } else { &mut suspects };
                    all.insert(orphan.name.clone());
                }
            }
        }
        (doubles, suspects)
    }
}
