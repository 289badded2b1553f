//! The values that a rule yields for an operation.

use ifo_api::Text;
use ifo_api::live::State;
use ifo_api::metadata::Labels;
use jiff::Timestamp;
use serde::Serialize;
use std::sync::Arc;
use std::time::Duration;

/// The values that a rule yields for an operation that the rule detects or continues.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RuleValues {
    /// True if only the rule's `continueWhile` is true. The rule then continues an operation in
    /// flight, but does not start an operation.
    pub only_continues: bool,
    /// State of the operation. Clients see a new state only after the rule's `stateAfter`.
    pub state: State,
    /// Start time that the rule's `startedAt` yields. None if the rule yields no start time.
    pub started: Option<Timestamp>,
    /// Time at which the operation began to wait for its start. Clients see only the value at the
    /// start.
    pub queued: Option<Timestamp>,
    /// Result of the rule's `instance`, which identifies one run of the operation.
    pub instance: Option<Text>,
    /// Who or what started the operation. Clients see only the value at the start of the operation.
    pub initiator: Option<Text>,
    /// Duration after which the operation is overdue. None if the rule gives no such duration.
    pub expected: Option<Duration>,
    /// The operation is stalled if its progress does not rise for this duration. None if the rule
    /// gives no such duration.
    pub stalled_after: Option<Duration>,
    /// Amount of work, above 0. The duration of a run is divided by this amount before it is
    /// compared with other runs. None if the rule has no `size`, or if its `size` yields no amount.
    pub size: Option<f64>,
    /// The values that clients see at once.
    pub shown: ShownValues,
}

/// The values of a rule that clients see as soon as they change. The tests of the shipped rule sets
/// serialize them, so that a fixture can expect each of them.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ShownValues {
    /// Labels of the rule set, including the labels that are computed from the object.
    pub labels: Arc<Labels>,
    /// Reason in CamelCase. None stands for the operation's name.
    pub reason: Option<Text>,
    /// Message for people. It may be empty.
    pub message: Text,
    /// Progress in percent, from 0 to 100. None if the rule yields no progress.
    pub progress: Option<u8>,
    /// Key of the piece of work that the operation belongs to. Operations with the same key, on any
    /// objects, are one piece of work.
    pub work: Option<Text>,
    /// Command line that stops the operation, quoted for a shell.
    pub cancel: Option<Text>,
    /// Names of the nodes that the operation touches. No name is empty.
    pub nodes: Nodes,
}

/// The names of nodes. All operations that one rule set detects on one object share them.
pub type Nodes = Arc<[Text]>;

impl RuleValues {
    /// Returns the number of bytes of all texts.
    pub fn text_bytes(&self) -> usize {
        // The patterns name all fields, so that the compiler reports an error here when a field is
        // added.
        let Self {
            instance,
            initiator,
            shown,
            only_continues: _,
            state: _,
            started: _,
            queued: _,
            expected: _,
            stalled_after: _,
            size: _,
        } = self;
        let ShownValues {
            labels,
            reason,
            message,
            work,
            cancel,
            nodes,
            progress: _,
        } = shown;
        let texts = [instance, initiator, reason, work, cancel];
        let labels = labels.iter().flat_map(|(key, value)| [key, value]);
        let all = texts.into_iter().flatten().chain([message]).chain(labels);
        all.chain(nodes.iter()).map(|text| text.len()).sum()
    }

    /// Returns true if the change from `earlier` to these values changes the duration that clients
    /// expect. After a takeover, the earlier size can be unknown, and so can the earlier duration.
    /// Then their first values are no change. A restored duration has whole seconds.
    pub fn has_new_expectation(&self, earlier: &Self) -> bool {
        let seconds = |it: &Self| it.expected.map(|it| it.as_secs());
        earlier.size.is_some() && self.size != earlier.size
            || earlier.expected.is_some() && seconds(self) != seconds(earlier)
    }

    /// Replaces the texts with the texts of an earlier detection. The progress and `instance` stay
    /// as they are.
    pub fn keep_texts(&mut self, earlier: &Self) {
        self.initiator.clone_from(&earlier.initiator);
        self.shown = ShownValues {
            progress: self.shown.progress,
            ..earlier.shown.clone()
        };
    }
}
