//! A piece of work is a group of operations that belong together, such as the operations of one
//! migration. This module groups operations into pieces of work, and builds one output line for
//! each piece.
//!
//! Two operations belong to the same piece if they are of the same component, and if their rules
//! yield the same non-empty key (`spec.work`). Their namespaces and rule sets can differ. An
//! operation without a key is a piece of its own. Open keys are an exception.
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
//! An operation with an open key joins a piece of work that was in flight at the same time, and
//! whose key begins with the open key ([`nearest_piece`]). If there is no such piece, the operation
//! is a piece of its own. So the operations of two successive migrations stay in two pieces,
//! although the VirtualMachine has the same open key in both migrations.
//!
//! The operations of a piece are its members. The root is the member whose subject owns the
//! subjects of the other members ([`sort_members`]). The deciding member is the member with the
//! worst state ([`rank`]). If a member is in flight, the piece is in flight. The state, the reason,
//! the progress and the message of such a piece come only from members in flight.
//!
//! Successive operations on one object are phases, such as `Queued` and `Copying`. In a completed
//! piece, a successful operation cannot be the deciding member if another operation on the same
//! object ended later ([`LastEnds::is_earlier_success`]).
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
//! | nodes | the nodes of all members |
//! | overdue, stalled | true if a member in flight is overdue or stalled |

use super::listed_operation::{ConditionView, ListedOperation, ListedSubject, WorkKey};
use ifo_api::live::{FAILED_WITHOUT_CAUSE, State};
use jiff::{SignedDuration, Timestamp};
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};

/// A piece of work.
#[derive(Clone, Debug)]
pub(super) struct PieceOfWork {
    /// The operation that is shown for the piece.
    pub(super) line: ListedOperation,
    /// The operations of the piece, the root first. Empty if the piece is a single operation.
    pub(super) members: Vec<ListedOperation>,
}

impl PieceOfWork {
    /// Creates a piece from its members, the root first.
    pub(super) fn new(members: &[&ListedOperation]) -> Self {
        Self {
            line: line_of(members),
            members: match members {
                [_] => Vec::new(),
                members => members.iter().map(|it| (*it).clone()).collect(),
            },
        }
    }

    /// Returns the rows for the members, which `--expand` shows below the line.
    pub(super) fn member_rows(&self) -> impl Iterator<Item = ListedOperation> {
        self.members.iter().map(member_row)
    }
}

/// Groups operations into pieces. The pieces are in the order of their first operations in
/// `operations`.
pub(super) fn pieces_of_work(operations: &[ListedOperation]) -> Vec<PieceOfWork> {
    let all: Vec<&ListedOperation> = operations.iter().collect();
    let grouped = group_by_work(&all).into_iter();
    grouped
        .map(|numbers| {
            let members: Vec<_> = numbers.iter().map(|it| all[*it]).collect();
            PieceOfWork::new(&members)
        })
        .collect()
}

/// Returns the lines of the pieces, in the order that `sort` gives. With `is_expanded`, the members
/// of each piece follow its line.
pub(super) fn rows(
    operations: &[ListedOperation],
    is_expanded: bool,
    sort: impl Fn(&mut [ListedOperation]),
) -> Vec<ListedOperation> {
    let mut lines = Vec::new();
    let mut members = HashMap::new();
    for piece in pieces_of_work(operations) {
        if is_expanded && !piece.members.is_empty() {
            let rows: Vec<ListedOperation> = piece.member_rows().collect();
            members.insert(piece.line.key(), rows);
        }
        lines.push(piece.line);
    }
    sort(&mut lines);
    let rows = lines.into_iter().flat_map(|line| {
        let below = members.remove(&line.key()).unwrap_or_default();
        std::iter::once(line).chain(below)
    });
    rows.collect()
}

/// Returns the row of a member below the line of its piece.
pub(super) fn member_row(member: &ListedOperation) -> ListedOperation {
    ListedOperation {
        is_member_row: true,
        ..member.clone()
    }
}

/// Groups operations by their key. Returns the indexes of the members of each piece: first the
/// root, then the other members by start. The pieces are in the order of their first operations in
/// `operations`.
pub(super) fn group_by_work(operations: &[&ListedOperation]) -> Vec<Vec<usize>> {
    let mut pieces: Vec<Vec<usize>> = Vec::new();
    let mut by_key: HashMap<WorkKey<'_>, usize> = HashMap::new();
    let mut with_open_key: Vec<(usize, WorkKey<'_>)> = Vec::new();
    for (number, operation) in operations.iter().enumerate() {
        let piece = match operation.work_key() {
            Some(key) if is_open(key.1) => {
                with_open_key.push((number, key));
                continue;
            }
            Some(key) => *by_key.entry(key).or_insert(pieces.len()),
            None => pieces.len(),
        };
        if piece == pieces.len() {
            pieces.push(Vec::new());
        }
        pieces[piece].push(number);
    }
    if !with_open_key.is_empty() {
        join_open_keys(&mut pieces, operations, &by_key, &with_open_key);
    }
    if pieces.len() < operations.len() {
        let owners = SubjectOwners::of(operations);
        for piece in pieces.iter_mut().filter(|it| it.len() > 1) {
            sort_members(piece, operations, &owners);
        }
    }
    pieces
}

/// Returns the indexes of the members of one piece: first the root, then the other members by
/// start.
pub(super) fn root_first(members: &[&ListedOperation]) -> Vec<usize> {
    let mut piece: Vec<usize> = (0..members.len()).collect();
    sort_members(&mut piece, members, &SubjectOwners::of(members));
    piece
}

/// Adds the operations with an open key to the pieces that they belong to. An operation that
/// belongs to no other piece becomes a piece of its own.
fn join_open_keys(
    pieces: &mut Vec<Vec<usize>>,
    operations: &[&ListedOperation],
    by_key: &HashMap<WorkKey<'_>, usize>,
    with_open_key: &[(usize, WorkKey<'_>)],
) {
    let sorted: BTreeMap<WorkKey<'_>, usize> = by_key.iter().map(|(key, it)| (*key, *it)).collect();
    let mut joined: Vec<(Option<usize>, usize)> = Vec::new();
    for (number, open_key) in with_open_key {
        let candidates = sorted
            .range(*open_key..)
            .take_while(|(key, _)| begins_with(**key, *open_key))
            .map(|(_, piece)| {
                let members = pieces[*piece].iter().map(|it| operations[*it]);
                (*piece, TimeInFlight::of(members))
            });
        joined.push((nearest_piece(operations[*number], candidates), *number));
    }
    for (piece, number) in joined {
        match piece {
            Some(piece) => pieces[piece].push(number),
            None => pieces.push(vec![number]),
        }
    }
    for piece in pieces.iter_mut() {
        piece.sort_unstable();
    }
    pieces.sort_unstable();
}

/// Returns true if the key is an open key, such as `migration/a/`. The keys of several runs, such
/// as `migration/a/1` and `migration/a/2`, can begin with an open key.
pub(super) fn is_open(key: &str) -> bool {
    key.ends_with('/')
}

/// Returns true if an operation with the open key `open_key` can belong to the piece with the key
/// `key`.
pub(super) fn begins_with(key: WorkKey<'_>, open_key: WorkKey<'_>) -> bool {
    key.0 == open_key.0 && key.1.starts_with(open_key.1)
}

/// The time during which an operation or a piece of work was in flight.
#[derive(Clone, Copy, Debug)]
pub(super) struct TimeInFlight {
    start: Timestamp,
    end: Timestamp,
}

impl TimeInFlight {
    /// Returns the time from the first start of the members to their last end. A member with an
    /// unknown start has the earliest possible start. A member that is in flight, or whose end is
    /// unknown, has the latest possible end.
    pub(super) fn of<'a>(members: impl Iterator<Item = &'a ListedOperation>) -> Self {
        let mut whole = Self {
            start: Timestamp::MAX,
            end: Timestamp::MIN,
        };
        for member in members {
            let end = member.completed.filter(|_| !member.active);
            whole.start = whole.start.min(member.started.unwrap_or(Timestamp::MIN));
            whole.end = whole.end.max(end.unwrap_or(Timestamp::MAX));
        }
        whole
    }
}

/// Returns the candidate that an operation with an open key belongs to. Only candidates that were
/// in flight at the same time as the operation are possible:
///
/// - If there is no possible candidate, the result is None.
/// - If possible candidates started before the operation or in the same second, the result is the
///   one of them that started last.
/// - Otherwise, the result is the possible candidate that started first.
pub(super) fn nearest_piece<T>(
    operation: &ListedOperation,
    candidates: impl Iterator<Item = (T, TimeInFlight)>,
) -> Option<T> {
    let own = TimeInFlight::of(std::iter::once(operation));
    candidates
        .filter(|(_, piece)| piece.start <= own.end && own.start <= piece.end)
        .min_by_key(|(_, piece)| {
            let seconds = piece.start.as_second() - own.start.as_second();
            (seconds > 0, seconds.abs())
        })
        .map(|(piece, _)| piece)
}

/// The direct owners of each subject, by the UID of the subject. Subjects without a UID are left
/// out, because owner references name an owner by its UID.
struct SubjectOwners<'a> {
    direct: HashMap<&'a str, Vec<&'a str>>,
}

impl<'a> SubjectOwners<'a> {
    fn of(operations: &[&'a ListedOperation]) -> Self {
        let mut direct: HashMap<&str, Vec<&str>> = HashMap::new();
        for operation in operations {
            let subject = &operation.subject;
            if let Some(uid) = uid(subject) {
                direct.entry(uid).or_insert_with(|| owner_uids(subject));
            }
        }
        Self { direct }
    }

    /// Returns the UIDs of the direct and indirect owners. Owner references can form a cycle, so a
    /// subject can be among its own owners.
    fn above(&self, subject: &'a ListedSubject) -> HashSet<&'a str> {
        let mut found = HashSet::new();
        let mut queue = owner_uids(subject);
        while let Some(owner) = queue.pop() {
            if found.insert(owner) {
                queue.extend(self.direct.get(owner).into_iter().flatten());
            }
        }
        found
    }
}

fn uid(subject: &ListedSubject) -> Option<&str> {
    subject.uid.as_deref().filter(|uid| !uid.is_empty())
}

fn owner_uids(subject: &ListedSubject) -> Vec<&str> {
    let references = subject.owner_references.iter();
    references
        .map(|it| it.uid.as_str())
        .filter(|uid| !uid.is_empty())
        .collect()
}

/// Sorts the members of a piece: first the root, then the other members by start.
///
/// A member is a candidate for the root if no subject of another member owns its subject, directly
/// or indirectly. If there is no such member, because the subjects own each other in a cycle, all
/// members are candidates. If there are several candidates, these criteria choose the root, in this
/// order:
///
/// 1. The subject of the root owns the subjects of the most other members.
/// 2. The root was in flight for the longest time. So if the members are phases of the same subject,
///    the root is the phase with most of the work.
/// 3. The root started first.
/// 4. The namespace and name of the root are the first in alphabetical order.
fn sort_members<'a>(
    piece: &mut [usize],
    operations: &[&'a ListedOperation],
    owners: &SubjectOwners<'a>,
) {
    let subjects: HashSet<&str> = piece
        .iter()
        .filter_map(|it| uid(&operations[*it].subject))
        .collect();
    // For each owner (by its UID), the number of members whose subject it owns.
    let mut owned: HashMap<&str, usize> = HashMap::new();
    let mut below: HashSet<usize> = HashSet::new();
    for number in piece.iter() {
        let subject = &operations[*number].subject;
        for owner in owners.above(subject) {
            if subjects.contains(owner) && uid(subject) != Some(owner) {
                *owned.entry(owner).or_default() += 1;
                below.insert(*number);
            }
        }
    }
    let by_start = |it: &ListedOperation| (it.started.is_none(), it.started, it.key());
    let root = piece.iter().copied().min_by_key(|number| {
        let it = operations[*number];
        let owned = uid(&it.subject).and_then(|uid| owned.get(uid));
        let owned = owned.copied().unwrap_or_default();
        let longest = Reverse(time_in_flight(it));
        (
            below.contains(number),
            Reverse(owned),
            longest,
            by_start(it),
        )
    });
    piece.sort_by_key(|number| (Some(*number) != root, by_start(operations[*number])));
}

/// Returns the time for which an operation was in flight. The time of an operation that is still in
/// flight has no limit. If the start or the end is unknown, the time is zero.
fn time_in_flight(operation: &ListedOperation) -> SignedDuration {
    if operation.active {
        return SignedDuration::MAX;
    }
    let times = operation.started.zip(operation.completed);
    times.map_or(SignedDuration::ZERO, |(start, end)| {
        end.duration_since(start)
    })
}

/// Returns the member whose message names the cause of a failure. This is the failed member that
/// ended first, because a failure of a child makes its owner fail later. If several members ended in
/// the same second, the root (the first member) comes last. A member without a message about the
/// cause counts only if no other failed member has one. None if no member has failed.
fn cause_of_failure<'a>(members: &[&'a ListedOperation]) -> Option<&'a ListedOperation> {
    let failed = members.iter().enumerate();
    let failed = failed.filter(|(_, it)| it.state == State::Failed.name());
    let cause = failed.min_by_key(|(number, it)| {
        let has_no_cause = it.message.is_empty() || it.message.starts_with(FAILED_WITHOUT_CAUSE);
        (has_no_cause, it.completed, *number == 0)
    });
    cause.map(|(_, it)| *it)
}

/// Returns the rank of the state of an operation. The worst state has the lowest rank. Usually, the
/// member with the lowest rank is the deciding member of its piece. `Ended` and `Superseded` say nothing
/// about success, so the known outcomes `Failed` and `Succeeded` rank before them.
fn rank(operation: &ListedOperation) -> u8 {
    match operation.state.as_str() {
        "Failing" => 0,
        "Blocked" => 1,
        "Held" => 3,
        "Settling" => 4,
        _ if operation.active => 2,
        "Failed" => 5,
        "Succeeded" => 6,
        "Ended" => 7,
        "Superseded" => 8,
        _ => 9,
    }
}

/// The subject of an operation. If the operation is about an element of a list in the subject, also
/// this element.
#[derive(PartialEq, Eq, Hash)]
struct SubjectAndItem<'a> {
    kind: &'a str,
    namespace: Option<&'a str>,
    name: &'a str,
    uid: Option<&'a str>,
    item: Option<&'a str>,
}

impl<'a> SubjectAndItem<'a> {
    fn of(operation: &'a ListedOperation) -> Self {
        let subject = &operation.subject;
        Self {
            kind: &subject.kind,
            namespace: subject.namespace.as_deref(),
            name: &subject.name,
            uid: subject.uid.as_deref(),
            item: operation.item.as_deref(),
        }
    }
}

/// The time of the last end of completed operations on each object.
struct LastEnds<'a>(HashMap<SubjectAndItem<'a>, Option<Timestamp>>);

impl<'a> LastEnds<'a> {
    fn of(members: &[&'a ListedOperation]) -> Self {
        let mut last_ends = HashMap::new();
        for it in members.iter().copied().filter(|it| !it.active) {
            let last = last_ends.entry(SubjectAndItem::of(it)).or_default();
            *last = it.completed.max(*last);
        }
        Self(last_ends)
    }

    /// Returns true if `member` is a successful phase, and another operation on the same object
    /// ended later. The success of the phase is not the success of the whole work. For example, a
    /// job waits until a person approves it. This phase succeeds, and then the next phase is
    /// aborted.
    fn is_earlier_success(&self, member: &ListedOperation) -> bool {
        let last = self.0.get(&SubjectAndItem::of(member)).copied().flatten();
        member.state == "Succeeded" && member.completed.is_some() && member.completed < last
    }
}

/// Returns the operation that is shown for a piece of work. `members` must not be empty, and its
/// first member is the root.
pub(super) fn line_of(members: &[&ListedOperation]) -> ListedOperation {
    let Some(root) = members.first() else {
        return ListedOperation::default();
    };
    let mut line = (*root).clone();
    if members.len() == 1 {
        return line;
    }
    let is_active = members.iter().any(|it| it.active);
    let shown = members.iter().filter(|it| it.active == is_active);
    let mut by_rank: Vec<&ListedOperation> = shown.copied().collect();
    let last_ends = LastEnds::of(members);
    // The sort is stable, so the root comes before other members with an equal sort key.
    by_rank.sort_by_key(|it| {
        let is_earlier_success = last_ends.is_earlier_success(it);
        (is_earlier_success, rank(it), it.progress.is_none())
    });
    let Some(first) = by_rank.first() else {
        return line;
    };
    line.active = is_active;
    line.state.clone_from(&first.state);
    line.reason.clone_from(&first.reason);
    line.state_since = first.state_since;
    line.progress = by_rank.iter().find_map(|it| it.progress);
    let messages = by_rank.iter().map(|it| &it.message);
    line.message = messages
        .filter(|it| !it.is_empty())
        .take(1)
        .cloned()
        .collect();
    if let Some(cause) = cause_of_failure(members).filter(|it| it.state == line.state) {
        line.reason.clone_from(&cause.reason);
        line.message.clone_from(&cause.message);
    }
    line.started = members.iter().filter_map(|it| it.started).min();
    line.completed = if is_active {
        None
    } else {
        members.iter().filter_map(|it| it.completed).max()
    };
    // The duration of the root is not the duration of the piece. Without this field,
    // `ListedOperation::duration` computes the duration from `started` and `completed`.
    line.duration_seconds = None;
    let longest = || {
        let expected = members.iter().filter_map(|it| it.expected);
        expected.max_by_key(|it| it.typical_seconds)
    };
    line.expected = root.expected.or_else(longest);
    line.estimated_completion = by_rank
        .iter()
        .filter_map(|it| it.estimated_completion)
        .max();
    line.last_progress = by_rank.iter().filter_map(|it| it.last_progress).max();
    line.conditions = conditions(&by_rank, root);
    let nodes = members.iter().flat_map(|it| &it.nodes);
    line.nodes = Vec::new();
    for node in nodes {
        if !line.nodes.contains(node) {
            line.nodes.push(node.clone());
        }
    }
    line
}

/// Returns the conditions of a line: the conditions of the root, with one exception. If `Overdue`
/// or `Stalled` is true for a member in `by_rank`, but not for the root, the line has the
/// condition of this member.
fn conditions(by_rank: &[&ListedOperation], root: &ListedOperation) -> Vec<ConditionView> {
    let mut conditions = root.conditions.clone();
    for condition in by_rank.iter().flat_map(|it| &it.conditions) {
        let is_marker = matches!(condition.kind.as_str(), "Overdue" | "Stalled");
        if !is_marker || condition.status != "True" {
            continue;
        }
        match conditions.iter_mut().find(|it| it.kind == condition.kind) {
            Some(own) if own.status == "True" => {}
            Some(own) => own.clone_from(condition),
            None => conditions.push(condition.clone()),
        }
    }
    conditions
}

#[cfg(test)]
mod tests;
