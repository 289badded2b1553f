//! Builds the objects of activities.

use super::{Activities, Scope, ScopeState};
use ifo_api::Key;
use ifo_api::activity::{
    Activity, ActivityStatus, IDLE, IDLE_MESSAGE, KIND, LABEL, NOT_YET_READ, NOTHING_IN_FLIGHT,
    OPERATIONS_IN_FLIGHT, OldestOperation, RULE_SETS_NOT_WORKING,
};
use ifo_api::completeness::{Gap, Gaps};
use ifo_api::live::{InFlightOperation, State};
use ifo_api::metadata::{Condition, Labels, Metadata, api_version, shared_text, whole_second};
use jiff::Timestamp;
use uuid::Uuid;

/// UUID namespace for the UIDs of activities, which are UUIDs of version 5.
const UID_NAMESPACE: Uuid = Uuid::from_u128(0x51ce_0d29_7a43_5c1e_8f6b_20d4_91b7_e3a8);

impl Activities {
    /// Builds the activity of a scope.
    pub(super) fn build(
        &self,
        scope: &Scope,
        state: &ScopeState,
        key: &Key,
        now: Timestamp,
    ) -> Activity {
        let (mut numbers, mut held, mut oldest) = (ActivityStatus::default(), 0, None);
        for (key, operation) in self.operations_of(state) {
            let status = &operation.status;
            if status.state == State::Held {
                held += 1;
                continue;
            }
            oldest.get_or_insert((key, operation));
            numbers.operations += 1;
            numbers.blocked += u32::from(status.state == State::Blocked);
            numbers.failing += u32::from(status.state == State::Failing);
            numbers.overdue += u32::from(status.is_true("Overdue"));
        }
        let (status, reason, message) = match oldest {
            Some((_, oldest)) => {
                let message = describe(numbers.operations, oldest);
                ("False", OPERATIONS_IN_FLIGHT, message)
            }
            None => self.without_operations(scope, held),
        };
        let shown = state.shown.as_ref();
        let before = shown.and_then(|shown| shown.idle());
        let before = before.filter(|before| *before.status == *status);
        let since = before.map_or(whole_second(now), |it| it.last_transition_time);
        let uid = || {
            let path = format!("{}/{}", key.object_namespace(), key.name);
            Uuid::new_v5(&UID_NAMESPACE, path.as_bytes()).to_string()
        };
        Activity {
            api_version: api_version(),
            kind: shared_text(KIND),
            metadata: shown.map_or_else(
                || Metadata {
                    creation_timestamp: whole_second(now),
                    labels: Labels::from_sorted_store_unchecked(vec![(
                        shared_text(LABEL),
                        shared_text(scope.sort()),
                    )]),
                    name: key.name.clone(),
                    namespace: self.namespace(scope).clone(),
                    uid: uid().into(),
                    ..Metadata::default()
                },
                |shown| shown.metadata.clone(),
            ),
            status: ActivityStatus {
                conditions: vec![Condition {
                    last_transition_time: since,
                    // Most activities are idle, and share this message.
                    message: match &*message {
                        IDLE_MESSAGE => shared_text(IDLE_MESSAGE),
                        own => own.into(),
                    },
                    reason: shared_text(reason),
                    status: shared_text(status),
                    type_: shared_text(IDLE),
                    ..Condition::default()
                }],
                oldest: oldest.map(|(key, operation)| OldestOperation {
                    namespace: key.namespace.clone(),
                    name: key.name.clone(),
                    started: operation.metadata.creation_timestamp,
                }),
                ..numbers
            },
        }
    }

    /// Returns status, reason and message of the condition `Idle` for a scope that is not busy.
    /// `held` is the number of its operations that a person has put on hold.
    fn without_operations(
        &self,
        scope: &Scope,
        held: usize,
    ) -> (&'static str, &'static str, String) {
        let Gaps {
            rule_sets_are_read,
            total,
            ..
        } = *self.gaps;
        if !rule_sets_are_read {
            let message = "The rule sets have not been read yet.";
            return ("Unknown", NOT_YET_READ, message.to_owned());
        }
        if total == 0 {
            let message = "No rule set is installed, so no operation can be detected.";
            return ("Unknown", RULE_SETS_NOT_WORKING, message.to_owned());
        }
        let affects = |gap: &&Gap| match scope {
            Scope::Cluster => true,
            Scope::Node(_) => !gap.lacks_nodes,
            Scope::Component(name) => gap.component.is_empty() || gap.component == *name,
            Scope::Namespace(name) => gap.affects(Some(name), *name == self.cluster_namespace),
        };
        let affecting: Vec<&Gap> = self.gaps.rule_sets.iter().filter(affects).collect();
        let sets = |count: usize| format!("{count} of {total} rule sets");
        let is_broken = affecting.iter().filter(|gap| !gap.is_being_read).count();
        match (affecting.len(), is_broken) {
            (0, _) => {
                let message = match held {
                    0 => IDLE_MESSAGE.to_owned(),
                    held => format!("{IDLE_MESSAGE} On hold: {held}."),
                };
                ("True", NOTHING_IN_FLIGHT, message)
            }
            (count, 0) => {
                let message = format!("The targets of {} are being read.", sets(count));
                ("Unknown", NOT_YET_READ, message)
            }
            (count, _) => {
                let message = format!("{} may miss operations. Run kubectl get ors.", sets(count));
                ("Unknown", RULE_SETS_NOT_WORKING, message)
            }
        }
    }
}

/// Returns a sentence about the operations that make a scope busy: their number, and the oldest
/// one.
fn describe(count: u32, oldest: &InFlightOperation) -> String {
    let count = match count {
        1 => "1 operation is in flight".to_owned(),
        count => format!("{count} operations are in flight"),
    };
    let spec = &oldest.spec;
    let (kind, name) = (&spec.subject.kind, &spec.subject.name);
    let started = oldest.metadata.creation_timestamp.0;
    let what = format!("{kind}/{name} {}", spec.operation);
    format!("{count}. The oldest is {what}, since {started}.")
}
