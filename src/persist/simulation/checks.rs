//! What has to be true in the end, and of every start.

use super::cluster::{Cluster, Life};
use super::world::{Stretch, What};
use crate::persist::name_of;
use ifo_api::live::{self, Phase, State};
use ifo_api::persisted;
use jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What tells a subject's operation from others.
type Id = (String, String, Option<String>);

/// An operation, from wherever it is told, in so far as all have to agree on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    pub id: Id,
    pub uid: String,
    /// Of the custom resource.
    pub name: String,
    pub start: Timestamp,
    /// None as long as it goes on.
    pub completed: Option<Timestamp>,
    /// Only of one that is over: while one goes on, what it settles is not always written.
    pub reason: String,
    pub settling: bool,
}

impl Operation {
    pub fn of_live(live: &live::InFlightOperation) -> Self {
        let (spec, status) = (&live.spec, &live.status);
        let uid = live.metadata.uid.clone().unwrap_or_default();
        let name = live.metadata.name.as_deref().unwrap_or_default();
        let over = status.phase == Phase::Completed;
        assert_eq!(status.completed.is_some(), over, "{live:?}");
        let start = live.metadata.creation_timestamp.as_ref();
        Self {
            id: (
                spec.subject.uid.clone().unwrap_or_default(),
                spec.operation.clone(),
                spec.item.clone(),
            ),
            name: name_of(name, &uid),
            uid,
            start: start.expect("it has a start").0,
            completed: status.completed.as_ref().map(|time| time.0),
            reason: if over {
                status.reason.clone()
            } else {
                String::new()
            },
            settling: status.state == State::Settling,
        }
    }

    pub fn of_cr(cr: &persisted::InFlightOperation) -> Self {
        let status = cr.status.as_ref().expect("it has a status");
        let over = status.phase == Phase::Completed;
        Self {
            id: (
                cr.spec.subject.uid.clone().unwrap_or_default(),
                cr.spec.operation.clone(),
                cr.spec.item.clone(),
            ),
            name: cr.metadata.name.clone().unwrap_or_default(),
            uid: status.live_uid.clone(),
            start: status.started.0,
            completed: status.completed.as_ref().map(|time| time.0),
            reason: if over {
                status.reason.clone()
            } else {
                String::new()
            },
            settling: status.state == State::Settling,
        }
    }

    /// Whether it is another one that tells of a time in which `one` went on too.
    fn tells_of_the_time_of(&self, one: &Self) -> bool {
        let (own, its) = (self.span(), one.span());
        let is_another = self.id == one.id && self.uid != one.uid;
        is_another && own.0 < its.1.max(its.0 + 1) && its.0 < own.1.max(own.0 + 1)
    }

    /// In whole seconds, as names and custom resources are.
    fn span(&self) -> (i64, i64) {
        let end = self.completed.map_or(i64::MAX, Timestamp::as_second);
        (self.start.as_second(), end)
    }
}

/// The custom resources that are active are the operations that go on.
pub fn active(crs: &[Operation], going_on: &BTreeSet<(Arc<str>, What)>) -> Vec<String> {
    let mut want: Vec<Id> = going_on
        .iter()
        .map(|(uid, (operation, item))| {
            let item = item.map(str::to_owned);
            (uid.to_string(), (*operation).to_owned(), item)
        })
        .collect();
    let active = crs.iter().filter(|it| it.completed.is_none());
    let mut active: Vec<Id> = active.map(|it| it.id.clone()).collect();
    want.sort();
    active.sort();
    let wrong = active != want;
    wrong
        .then(|| format!("active are\n  {active:?}, and\n  {want:?}\n  go on"))
        .into_iter()
        .collect()
}

/// What is shown and what is written is the same, but for history of earlier servers.
///
/// What was over before a server started and is not written is not written by it: for all
/// that it knows somebody has removed that history (`Record::restored`). A server that was
/// killed before it wrote the end of what it had told the next one of leaves such. And what
/// was written once and is over is not written again when another server has deleted it,
/// which had seen the same run start earlier (`Queue::doubles`, `Record::is_history`), and
/// perhaps said that it was over later than it was: that is among `ever`.
pub fn agree(
    crs: &[Operation],
    live: &[Operation],
    ever: &[Operation],
    born: Timestamp,
    was_written: impl Fn(&str) -> bool,
) -> Vec<String> {
    let by_uid: BTreeMap<&str, &Operation> = crs.iter().map(|it| (&*it.uid, it)).collect();
    let shown: BTreeSet<&str> = live.iter().map(|it| &*it.uid).collect();
    let differ = live.iter().filter_map(|live| {
        let Some(cr) = by_uid.get(&*live.uid) else {
            let before = live.completed.is_some_and(|over| over < born);
            let is_double = || {
                let mut others = crs.iter().chain(ever);
                others.any(|other| other.tells_of_the_time_of(live))
            };
            let excused = if was_written(&live.uid) {
                live.completed.is_some() && is_double()
            } else {
                before
            };
            return (!excused).then(|| format!("not written: {live:?}"));
        };
        let same = Operation {
            settling: cr.settling,
            ..live.clone()
        } == **cr;
        (!same).then(|| format!("shown\n  {live:?}, written\n  {cr:?}"))
    });
    let left = crs
        .iter()
        .filter(|cr| cr.completed.is_none() && !shown.contains(&*cr.uid))
        .map(|cr| format!("written and not shown: {cr:?}"));
    differ.chain(left).collect()
}

/// Of one subject, operation and item, one goes on at a time.
pub fn overlaps(what: &str, all: &[Operation]) -> Vec<String> {
    let mut runs: BTreeMap<&Id, Vec<&Operation>> = BTreeMap::new();
    for operation in all {
        runs.entry(&operation.id).or_default().push(operation);
    }
    let mut found = Vec::new();
    for mut runs in runs.into_values() {
        runs.sort_by_key(|run| run.span());
        for pair in runs.windows(2) {
            if pair[0].span().1 > pair[1].span().0 {
                found.push(format!("{what} overlap:\n  {:?}\n  {:?}", pair[0], pair[1]));
            }
        }
    }
    found
}

/// All that was ever said to be over, as of the latest that it was: a server that lags may
/// have said so too late, and deleted what was in the way of that.
pub fn longest(lives: &BTreeMap<String, Life>) -> Vec<Operation> {
    let longest = lives.values().map(|life| Operation::of_cr(&life.longest));
    longest.filter(|it| it.completed.is_some()).collect()
}

/// What was written stays where history is kept.
///
/// Two starts of one run are written where two servers have seen it start in different
/// seconds, and one of them is dropped on purpose: of those that are over, one that tells of
/// a time in which another one went on that had started before (`Queue::doubles`,
/// `Tracker::drop_doubles`); of those that were not over when the server listed them, one whose
/// operation is known under another name, in flight or over since it started
/// (`Queue::is_doubled`, `Tracked::restore`).
pub fn lost(cluster: &Cluster, live: &[Operation]) -> Vec<String> {
    cluster.lives(|lives| {
        let of = |life: &Life| (Operation::of_cr(&life.last), life.deleted);
        let all: Vec<(Operation, Option<Timestamp>)> = lives.values().map(of).collect();
        let ever = longest(lives);
        let mut found = Vec::new();
        for (lost, deleted) in &all {
            let Some(deleted) = deleted else { continue };
            let others = all.iter().map(|(other, _)| other).chain(live);
            let mut others = others.chain(&ever);
            if !others.any(|other| other.tells_of_the_time_of(lost)) {
                found.push(format!("lost at {deleted}: {lost:?}"));
            }
        }
        found
    })
}

/// Nobody writes an operation again and again: `most` is how often it may change.
pub fn restless(cluster: &Cluster, most: usize) -> Vec<String> {
    cluster.lives(|lives| {
        let often = lives.values().filter(|life| life.changes > most);
        let tell = |life: &Life| format!("written {} times: {:?}", life.changes, life.last);
        often.map(tell).collect()
    })
}

/// Of what has been detected since before the feed listed at `listed` and until now, what
/// the server was `told` (and whether by another one) and does not show under that name.
pub fn discontinued(
    undisturbed: &BTreeMap<(Arc<str>, What), Stretch>,
    listed: Timestamp,
    told: &[(Operation, bool)],
    shown: &BTreeSet<String>,
) -> Vec<String> {
    let mut found = Vec::new();
    for ((uid, (operation, item)), stretch) in undisturbed {
        let since = stretch.since.as_second();
        // One of the stretch before may have a start that is a second late.
        let is_close = |before: Timestamp| since - before.as_second() < 3;
        if stretch.since > listed || stretch.before.is_some_and(is_close) {
            continue;
        }
        let item = item.map(str::to_owned);
        let id: Id = (uid.to_string(), (*operation).to_owned(), item);
        let goes_on = |it: &&(Operation, bool)| it.0.id == id && it.0.completed.is_none();
        let known: Vec<&(Operation, bool)> = told.iter().filter(goes_on).collect();
        let by_server = known.iter().find(|(_, is_shown)| *is_shown);
        let earliest = || known.iter().min_by_key(|(it, _)| it.start);
        let Some((want, _)) = by_server.copied().or_else(|| earliest().copied()) else {
            continue;
        };
        // Of an earlier stretch nobody can say whether it was over.
        if want.start.as_second() >= since && !shown.contains(&want.uid) {
            found.push(format!(
                "is not what it was: {want:?}, detected since {}",
                stretch.since
            ));
        }
    }
    found
}
