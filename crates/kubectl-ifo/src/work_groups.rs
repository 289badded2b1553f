//! A piece of work is a group of operations that belong together, such as the operations of one
//! migration. This module groups operations into pieces of work, and builds one output line for
//! each piece.
//!
//! Two operations belong to the same piece if they are of the same component, and if their rules
//! yield the same non-empty key (`spec.work`). Their namespaces and rule sets can differ. An
//! operation without a key is a piece of its own. Open keys (see below) are an exception.
//!
//! The members of a piece are not shown in lines of their own. So a piece never has members of two
//! components: a team that writes rule sets could otherwise hide the operations of another team.
//!
//! A key that ends with `/` is an open key. A rule yields an open key if the subject (the object
//! that the operation is about) does not show to which run the operation belongs. For example, a
//! VirtualMachine does not show which migration moves it. Its operation has the open key
//! `migration/NAMESPACE/VM/`, and the operations of the migration have the key
//! `migration/NAMESPACE/VM/UID`.
//!
//! An operation with an open key joins a piece of work whose key begins with the open key. The
//! piece must have been in flight at the same time ([`nearest_piece`]). If there is no such piece,
//! the operation is a piece of its own. So the operations of two successive migrations stay in two
//! pieces, although the VirtualMachine has the same open key in both migrations.
//!
//! The operations of a piece are its members. The root is the member whose subject owns the
//! subjects of the other members ([`sort_members`]). The deciding member is the member with the
//! worst state ([`rank`]). If a member is in flight, the piece is in flight. The state, the reason,
//! the progress and the message of such a piece come only from members in flight.
//!
//! Successive operations on one object are phases, such as `Queued` and `Copying`. In a completed
//! piece, a successful operation cannot be the deciding member if another operation on the same
//! object ended later ([`line_of`]).
//!
//! | part of the line | source |
//! | --- | --- |
//! | subject, operation, name | the root |
//! | state, reason | the deciding member |
//! | progress | the member with the worst state of all members with a progress |
//! | message | the member with the worst state of all members with a message; in a failed piece, the member with the cause ([`cause_of_failure`]) |
//! | start | the earliest start of all members |
//! | usual duration | the root; if it has none, the longest usual duration of all members |
//! | estimated completion | the latest estimated completion of the members in flight |
//! | initiator | the root; if its is unknown, the first member with an initiator |
//! | time in the queue | the longest of all members |
//! | nodes | the nodes of all members |
//! | overdue, stalled | true if a member in flight is overdue or stalled |

use crate::operations::operation::{InFlightOperation, OperationFacts, WorkKey};
use ifo_api::Text;
use ifo_api::live::{FAILED_WITHOUT_CAUSE, State, SubjectReference};
use ifo_api::metadata::Time;
use jiff::Timestamp;
use std::borrow::Borrow;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::time::Duration;

/// A row of a table: an operation, or the line of a piece of work.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) operation: InFlightOperation,
    /// True for a member of a piece of work. `--expand` shows these rows below the line of the
    /// piece.
    pub(super) is_member: bool,
}

impl From<&InFlightOperation> for Row {
    fn from(operation: &InFlightOperation) -> Self {
        Self {
            operation: operation.clone(),
            is_member: false,
        }
    }
}

impl OperationFacts for Row {
    fn operation(&self) -> &InFlightOperation {
        &self.operation
    }
}

/// A piece of work.
#[derive(Clone, Debug)]
pub(super) struct PieceOfWork {
    /// The operation that is shown for the piece.
    pub(super) line: InFlightOperation,
    /// The operations of the piece, the root first. Empty if the piece is a single operation.
    pub(super) members: Vec<InFlightOperation>,
}

/// A piece is sorted by its line.
impl Borrow<InFlightOperation> for PieceOfWork {
    fn borrow(&self) -> &InFlightOperation {
        &self.line
    }
}

impl PieceOfWork {
    /// Creates a piece from its members, the root first.
    pub(super) fn new(members: &[&InFlightOperation]) -> Self {
        Self {
            line: line_of(members),
            members: match members {
                [_] => Vec::new(),
                members => members.iter().map(|it| (*it).clone()).collect(),
            },
        }
    }

    /// Returns the row of the line, and with `is_expanded` the rows of the members.
    pub(super) fn rows(self, is_expanded: bool) -> impl Iterator<Item = Row> {
        let members = self.members.into_iter().filter(move |_| is_expanded);
        let members = members.map(|operation| Row {
            operation,
            is_member: true,
        });
        std::iter::once(Row::from(&self.line)).chain(members)
    }
}

/// Groups operations into pieces, in no particular order.
pub(super) fn pieces_of_work<'a>(
    operations: impl IntoIterator<Item = &'a InFlightOperation>,
) -> Vec<PieceOfWork> {
    let grouped = group_by_work(operations);
    grouped.iter().map(|it| PieceOfWork::new(it)).collect()
}

/// Returns the rows of the pieces, in the order that `sort` gives.
pub(super) fn rows(
    operations: &[InFlightOperation],
    is_expanded: bool,
    sort: impl FnOnce(&mut [PieceOfWork]),
) -> Vec<Row> {
    let mut pieces = pieces_of_work(operations);
    sort(&mut pieces);
    let rows = pieces.into_iter().flat_map(|it| it.rows(is_expanded));
    rows.collect()
}

/// Groups operations by their key. Returns the members of each piece: first the root, then the
/// other members by start.
pub(super) fn group_by_work<'a>(
    operations: impl IntoIterator<Item = &'a InFlightOperation>,
) -> Vec<Vec<&'a InFlightOperation>> {
    let mut by_key: BTreeMap<WorkKey<'a>, Vec<&InFlightOperation>> = BTreeMap::new();
    let (mut pieces, mut with_open_key) = (Vec::new(), Vec::new());
    for operation in operations {
        match operation.work_key() {
            Some(key) if key.1.ends_with('/') => with_open_key.push((key, operation)),
            Some(key) => by_key.entry(key).or_default().push(operation),
            None => pieces.push(vec![operation]),
        }
    }
    let mut joined = Vec::new();
    for (open_key, operation) in with_open_key {
        let candidates = by_key
            .range(open_key..)
            .take_while(|(key, _)| key.0 == open_key.0 && key.1.starts_with(open_key.1));
        match nearest_piece(operation, candidates) {
            Some(key) => joined.push((*key, operation)),
            None => pieces.push(vec![operation]),
        }
    }
    for (key, operation) in joined {
        by_key.entry(key).or_default().push(operation);
    }
    pieces.extend(by_key.into_values());
    for piece in &mut pieces {
        sort_members(piece);
    }
    pieces
}

/// Returns the time during which the members were in flight: from their first start to their last
/// end. A member that is in flight, or whose end is unknown, has the latest possible end.
fn time_in_flight<'a>(
    members: impl IntoIterator<Item = &'a InFlightOperation>,
) -> (Timestamp, Timestamp) {
    let times = members.into_iter().map(|it| {
        let end = it.completed().filter(|_| !it.is_active());
        (it.started(), end.unwrap_or(Timestamp::MAX))
    });
    let whole = times.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
    whole.unwrap_or((Timestamp::MAX, Timestamp::MIN))
}

/// Returns the candidate that an operation with an open key belongs to. Only candidates that were
/// in flight at the same time as the operation are possible:
///
/// - If there is no possible candidate, the result is None.
/// - If possible candidates started before the operation or in the same second, the result is the
///   one of them that started last.
/// - Otherwise, the result is the possible candidate that started first.
fn nearest_piece<'a, T>(
    operation: &InFlightOperation,
    candidates: impl Iterator<Item = (T, &'a Vec<&'a InFlightOperation>)>,
) -> Option<T> {
    let (start, end) = time_in_flight([operation]);
    candidates
        .map(|(key, members)| (key, time_in_flight(members.iter().copied())))
        .filter(|(_, (first, last))| *first <= end && start <= *last)
        .min_by_key(|(_, (first, _))| {
            let seconds = first.as_second() - start.as_second();
            (seconds > 0, seconds.abs())
        })
        .map(|(key, _)| key)
}

fn uid(subject: &SubjectReference) -> Option<&str> {
    subject.uid.as_deref().filter(|uid| !uid.is_empty())
}

/// Sorts the members of a piece: first the root, then the other members by start.
///
/// These criteria choose the root, in this order:
///
/// 1. No subject of another member owns the subject of the root.
/// 2. The subject of the root owns the subject of another member.
/// 3. The root was in flight for the longest time. So if the members are phases of the same
///    subject, the root is the phase with most of the work.
/// 4. The root started first.
/// 5. The namespace and name of the root are the first in alphabetical order.
fn sort_members(piece: &mut [&InFlightOperation]) {
    let subjects = piece.iter().filter_map(|it| uid(&it.spec.subject));
    let subjects: HashSet<&str> = subjects.collect();
    let owners = piece.iter().flat_map(|it| owner_uids(&it.spec.subject));
    let owners: HashSet<&str> = owners.collect();
    let by_start = |it: &InFlightOperation| (it.started(), it.key());
    let root = piece.iter().min_by_key(|it| {
        let is_owned = owner_uids(&it.spec.subject).any(|owner| subjects.contains(owner));
        let owns = uid(&it.spec.subject).is_some_and(|uid| owners.contains(uid));
        let (start, end) = time_in_flight([**it]);
        let time = end.duration_since(start);
        (is_owned, !owns, Reverse(time), by_start(it))
    });
    let root = root.map(|it| it.key());
    piece.sort_by_cached_key(|it| (Some(it.key()) != root, by_start(it)));
}

/// Returns the UIDs of the owners of a subject, except its own.
fn owner_uids(subject: &SubjectReference) -> impl Iterator<Item = &str> {
    let references = subject.owner_references.iter().map(|it| &*it.uid);
    references.filter(|owner| !owner.is_empty() && uid(subject) != Some(*owner))
}

/// Returns the member whose message names the cause of a failure. This is the failed member that
/// ended first, because a failure of a child makes its owner fail later. If several members ended
/// in the same second, the root (the first member) comes last. A member without a message about the
/// cause counts only if no other failed member has such a message. None if no member has failed.
fn cause_of_failure<'a>(members: &[&'a InFlightOperation]) -> Option<&'a InFlightOperation> {
    let failed = members.iter().enumerate();
    let failed = failed.filter(|(_, it)| it.status.state == State::Failed);
    let cause = failed.min_by_key(|(number, it)| {
        let message = &it.status.message;
        let has_no_cause = message.is_empty() || message.starts_with(FAILED_WITHOUT_CAUSE);
        (has_no_cause, it.completed(), *number == 0)
    });
    cause.map(|(_, it)| *it)
}

/// Returns the rank of the state of an operation. The worst state has the lowest rank. Usually, the
/// member with the lowest rank is the deciding member of its piece. `Ended` and `Superseded` say
/// nothing about success, so the known outcomes `Failed` and `Succeeded` rank before them.
pub(super) fn rank(operation: &InFlightOperation) -> u8 {
    match operation.status.state {
        State::Failing => 0,
        State::Blocked => 1,
        State::Held => 3,
        State::Settling => 4,
        _ if operation.is_active() => 2,
        State::Failed => 5,
        State::Succeeded => 6,
        State::Ended => 7,
        State::Superseded => 8,
        _ => 9,
    }
}

/// Returns the operation that is shown for a piece of work. `members` must not be empty, and its
/// first member is the root.
fn line_of(members: &[&InFlightOperation]) -> InFlightOperation {
    let root = members[0];
    let mut line = root.clone();
    if members.len() == 1 {
        return line;
    }
    let is_active = members.iter().any(|it| it.is_active());
    let shown = members.iter().filter(|it| it.is_active() == is_active);
    let mut by_rank: Vec<&InFlightOperation> = shown.copied().collect();
    let same_object = |a: &InFlightOperation, b: &InFlightOperation| {
        let (own, other) = (&a.spec.subject, &b.spec.subject);
        (&own.kind, &own.namespace, &own.name) == (&other.kind, &other.namespace, &other.name)
            && a.spec.item == b.spec.item
    };
    // The success of a phase is not the success of the whole work. For example, a job waits until a
    // person approves it. This phase succeeds, and then the next phase is aborted.
    let is_earlier_success = |it: &InFlightOperation| {
        let completed = members.iter().filter(|other| !other.is_active());
        let mut later = completed.filter(|other| it.completed() < other.completed());
        it.status.state == State::Succeeded
            && it.completed().is_some()
            && later.any(|other| same_object(it, other))
    };
    // The sort is stable, so the root comes before other members with an equal sort key.
    by_rank.sort_by_cached_key(|it| {
        let has_no_progress = it.status.progress.is_none();
        (is_earlier_success(it), rank(it), has_no_progress)
    });
    let status = &mut line.status;
    status.phase = by_rank[0].status.phase;
    status.state = by_rank[0].status.state;
    status.reason = by_rank[0].status.reason.clone();
    status.progress = by_rank.iter().find_map(|it| it.status.progress);
    let mut messages = by_rank.iter().map(|it| &it.status.message);
    let message = messages.find(|it| !it.is_empty());
    status.message = message.cloned().unwrap_or_default();
    let cause = cause_of_failure(members).map(|it| &it.status);
    if let Some(cause) = cause.filter(|it| it.state == status.state) {
        status.reason = cause.reason.clone();
        status.message = cause.message.clone();
    }
    let ends = members.iter().filter_map(|it| it.status.completed);
    status.completed = ends.max().filter(|_| !is_active);
    // The duration of the root is not the duration of the piece. Without this field, the duration
    // is computed from the start and the end.
    status.duration_seconds = None;
    let expected = members.iter().filter_map(|it| it.status.expected.as_ref());
    let longest = expected.max_by_key(|it| it.typical_seconds);
    status.expected = root.status.expected.as_ref().or(longest).cloned();
    let estimates = by_rank.iter();
    let estimates = estimates.filter_map(|it| it.status.estimated_completion);
    status.estimated_completion = estimates.max();
    let (start, _) = time_in_flight(members.iter().copied());
    line.metadata.creation_timestamp = Time(start);
    let in_queue = members.iter().filter_map(|it| it.in_queue()).max();
    let queued = in_queue.and_then(|it| start.checked_sub(Duration::from_secs(it)).ok());
    status.queued_at = queued.map(Time);
    let conditions = by_rank.iter().flat_map(|it| &it.status.conditions);
    let conditions = conditions.filter(|it| *it.status == *"True");
    status.conditions = conditions.cloned().collect();
    let nodes: BTreeSet<&Text> = members.iter().flat_map(|it| &*it.status.nodes).collect();
    status.nodes = nodes.into_iter().cloned().collect();
    line.spec.initiator = members.iter().find_map(|it| it.spec.initiator.clone());
    line
}

#[cfg(test)]
mod tests;
