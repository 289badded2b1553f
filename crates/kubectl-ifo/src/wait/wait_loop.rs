//! The main loop of `kubectl ifo wait`: reads the activity or lists the operations, decides whether
//! the wait ends, and otherwise waits for a change.
//!
//! A watch can fail without an error, and then delivers no changes. So only the answer to a new
//! request can confirm that no operation is in flight.

use super::activity::ActivityReader;
use super::detection_check::{DetectionCheck, check_detection, check_detection_without_rule_sets};
use super::progress::{ProgressOutput, active_text, ignored_text, reason};
use super::wait_state::{WaitGoal, WaitState, WaitVerdict};
use super::{WaitArgs, WaitSettings};
use crate::api_client::{ApiClient, ListCompleteness};
use crate::clock;
use crate::columns::{self, Table};
use crate::discovered_kinds::Kinds;
use crate::filter::Filters;
use crate::filter_check::{self, FilterWarning};
use crate::listed_operation::ListedOperation;
use crate::operation_source::{OperationChange, OperationSource, Served, escape};
use crate::output::{TextStyle, print_error_line, print_error_text};
use crate::problem::Problem;
use crate::rule_sets::RuleSets;
use futures::stream::{BoxStream, StreamExt as _};
use ifo_api::activity::{ActivityStatus, IDLE};
use ifo_api::{LIVE_GROUP, VERSION, live, record};
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout, timeout_at};

/// Interval at which the operations and the rule sets are read again during the wait. While an
/// operation is certainly active, they are not read again.
pub(super) const CHECK_INTERVAL: Duration = Duration::from_secs(10);
/// The same interval while the result is unknown.
pub(super) const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// Longest time for which the result may be unknown. After this time, the wait ends with the exit
/// code for an unknown result. While an operation is certainly active, the result is known. A
/// restart of `ifo-apiserver`, including its first lists of all watched resources, usually takes less
/// time.
const MAX_UNKNOWN_TIME: Duration = Duration::from_mins(1);
/// Longest time for which the command reads operations only for its last message.
const MAX_MESSAGE_TIME: Duration = Duration::from_secs(3);
/// The message for the goal `idle` if the cluster has only the custom resources of operations. It
/// says why custom resources cannot show that no operation is in flight.
const NOT_DETECTING: &str = "custom resources show only the operations that were in flight when they were written; to detect current ones, run ifo-apiserver";
/// The message if the timeout has passed before the first answer.
const NO_ANSWER: &str =
    "the cluster has not returned all operations and rule sets before the timeout";
/// Largest number of operations in the table that is printed if the goal was not reached. Further
/// operations are left out.
const MAX_NAMED: usize = 10;

/// The state of a running wait.
pub(super) struct OperationWait<'a> {
    args: &'a WaitArgs,
    filters: Filters,
    /// True for a single check (`--timeout=0`).
    once: bool,
    wait_state: WaitState,
    /// The end of the wait. None while it continues.
    pub(super) end: Option<WaitVerdict>,
    /// The reason why the result is unknown, and the time since which it is unknown. None while the
    /// rule sets work and the requests succeed.
    doubt: Option<(String, Instant)>,
    /// The same for an interruption of the watch. None when the watch works again.
    interruption: Option<(String, Instant)>,
    /// True if the cluster has answered, and the values of the filters exist.
    are_filters_checked: bool,
    /// Time of the last answer that something was in flight. The quiet period begins later, even if
    /// the clocks of this machine and of the server differ.
    last_busy: Option<Instant>,
    /// The source of the operations, if only the number of the operations is known from an activity.
    unread: Option<OperationSource>,
    pub(super) progress: ProgressOutput,
    /// The form of the table of operations, which is printed if the goal is not reached.
    style: TextStyle,
}

/// The changes after a list of operations, or None if the activity has changed.
pub(super) type Changes = BoxStream<'static, Result<Option<OperationChange>, Problem>>;

impl<'a> OperationWait<'a> {
    pub(super) fn new(args: &'a WaitArgs, filters: Filters, once: bool) -> Self {
        Self {
            args,
            filters,
            once,
            wait_state: WaitState::new(args.settings),
            end: None,
            doubt: Some((NO_ANSWER.to_owned(), Instant::now())),
            interruption: None,
            are_filters_checked: false,
            last_busy: None,
            unread: None,
            // A single check prints no progress.
            progress: ProgressOutput::new(args.quiet || once),
            style: TextStyle {
                screen: columns::terminal_width().filter(|_| !args.quiet),
                ..TextStyle::default()
            },
        }
    }

    /// Waits until the goal is reached, cannot be reached, or has been unknown for
    /// [`MAX_UNKNOWN_TIME`]. Sets `end`.
    pub(super) async fn run(&mut self) -> Result<(), Problem> {
        let mut server = self.args.connect.open().await?;
        server.ignored_rule_sets.clone_from(&self.args.ignored);
        let kinds = Kinds::new(server.clone());
        self.filters.resolve(&kinds).await;
        server.relevant_operations = self.filters.label_selector();
        self.style.short_names = kinds.short_names(self.style.screen).await;
        while self.end.is_none() {
            match self.attempt(&server).await {
                Err(problem) if self.is_temporary(&problem) => {
                    self.record_doubt(problem.to_string());
                    self.show();
                    sleep(RETRY_INTERVAL).await;
                }
                result => result?,
            }
        }
        Ok(())
    }

    /// Returns true if the command tries again after this problem. After the first answer, it also
    /// tries again if the cluster does not answer.
    fn is_temporary(&self, problem: &Problem) -> bool {
        use Problem::{Busy, Expired, NotSynced, Other, TimedOut, Unavailable, Unreachable};
        match problem {
            NotSynced | Busy(_) | Unavailable(_) => true,
            Unreachable { .. } | TimedOut(_) | Expired | Other(_) => self.are_filters_checked,
            _ => false,
        }
    }

    /// Reads the present state, and decides whether the wait ends. If not, waits until the state
    /// must be read again.
    async fn attempt(&mut self, server: &ApiClient) -> Result<(), Problem> {
        if let Some(reader) = ActivityReader::of(server, self.args, &self.filters)
            && let Some((activity, version)) = reader.read().await
            && self.take_activity(server, &activity).await.is_some()
        {
            self.decide(server, Some(ListCompleteness::Complete))
                .await?;
            return match self.end {
                Some(_) => Ok(()),
                None => self.follow(server, reader.watch(&version).await).await,
            };
        }
        self.unread = None;
        let (source, listed) = self.list(server).await?;
        // Custom resources alone decide the goals that are possible with them.
        let completeness = (source.served == Served::Live).then(|| source.completeness());
        self.decide(server, completeness).await?;
        if source.namespaces.is_some() && self.filters.namespace.is_none() {
            self.give_up("you may not list operations in all namespaces; name one with -n");
        }
        if self.end.is_none() {
            let changes = source.follow(Some(listed))?.into_stream();
            self.follow(server, changes.map(|it| it.map(Some)).boxed())
                .await?;
        }
        Ok(())
    }

    /// Processes an activity. Returns None if its condition `Idle` is `Unknown`. Then the operations
    /// and the rule sets decide.
    async fn take_activity(&mut self, server: &ApiClient, activity: &ActivityStatus) -> Option<()> {
        let idle = activity.conditions.iter().find(|it| *it.type_ == *IDLE)?;
        let now = Instant::now();
        if *idle.status != *"True" {
            self.last_busy = Some(now);
        }
        let (total, oldest) = match &*idle.status {
            "True" => (0, None),
            "False" => (activity.operations, oldest(server, activity).await),
            _ => return None,
        };
        let age = clock::now().duration_since(idle.last_transition_time.0);
        let since = now.checked_sub(age.try_into().unwrap_or_default());
        let since = since.max(self.last_busy).unwrap_or(now);
        self.wait_state.counted(total as usize, oldest, since);
        let source = OperationSource::new(server.clone(), self.filters.clone(), false);
        self.unread = Some(source);
        // The value of the filter has an activity, so it exists.
        self.are_filters_checked = true;
        Some(())
    }

    /// Lists the operations.
    async fn list(
        &mut self,
        server: &ApiClient,
    ) -> Result<(OperationSource, Vec<ListedOperation>), Problem> {
        let found = OperationSource::find(server.clone(), self.filters.clone(), false).await;
        let (source, listed) = found?;
        if !self.are_filters_checked {
            let warnings = filter_check::check(&self.filters, &source, &listed).await?;
            if !self.args.quiet {
                source.print_note();
                // The other warning means that no rule set can detect matching operations, and the
                // result of the wait reports this as well.
                let is_unchecked = |it: &&FilterWarning| matches!(it, FilterWarning::Unchecked(_));
                warnings
                    .iter()
                    .filter(is_unchecked)
                    .for_each(FilterWarning::print);
            }
            self.are_filters_checked = true;
        }
        if source.served == Served::Crs && self.args.settings.goal == WaitGoal::Idle {
            // A missing custom resource does not prove that no operation is in flight. If the
            // `ifo-apiserver` that writes the custom resources is killed, they are no longer up to
            // date.
            self.give_up(NOT_DETECTING);
        }
        for missing in self.wait_state.missing_from(&listed) {
            self.ended(server, missing).await;
        }
        self.wait_state.listed(&listed, Instant::now());
        Ok((source, listed))
    }

    /// Processes the end of an operation. If its end was not seen, its record has the result.
    async fn ended(&mut self, server: &ApiClient, operation: ListedOperation) {
        let mut ended = None;
        if self.args.settings.goal == WaitGoal::Succeeded && operation.active {
            ended = record_of(server, &operation).await;
        }
        let ended = ended.unwrap_or(operation);
        self.wait_state.ended_or_deleted(&ended, Instant::now());
    }

    /// Decides whether the wait ends with the state that was just read. `completeness` is that of the
    /// list. None if the rule sets do not matter.
    async fn decide(
        &mut self,
        server: &ApiClient,
        completeness: Option<ListCompleteness>,
    ) -> Result<(), Problem> {
        // While an operation is active, the result is known even if rule sets do not work.
        if self.wait_state.is_busy() {
            self.doubt = None;
        } else if !self.wait_state.verdict(Instant::now()).is_final() {
            self.check_rule_sets(server, completeness).await?;
        }
        let verdict = self.wait_state.verdict(Instant::now());
        if self.once || verdict == WaitVerdict::Reached && self.doubt.is_none() {
            self.end.get_or_insert(verdict);
        }
        Ok(())
    }

    /// Processes changes until the wait ends, or until the state must be read again.
    async fn follow(&mut self, server: &ApiClient, mut changes: Changes) -> Result<(), Problem> {
        let read = Instant::now();
        while self.end.is_none() {
            let now = Instant::now();
            let (is_busy, verdict) = (self.wait_state.is_busy(), self.wait_state.verdict(now));
            let is_started =
                self.args.settings.goal == WaitGoal::Started && verdict == WaitVerdict::Reached;
            if is_started || verdict.is_final() {
                self.end = Some(verdict);
                break;
            }
            if is_busy {
                self.doubt = None;
            }
            let interval = match self.current_doubt() {
                Some(_) => RETRY_INTERVAL,
                None => CHECK_INTERVAL,
            };
            let next = match verdict {
                WaitVerdict::Reached if interval == CHECK_INTERVAL => now,
                WaitVerdict::ReachedAt(at) => at.min(read + interval),
                _ if is_busy => now + interval,
                _ => read + interval,
            };
            if next <= now {
                break;
            }
            self.show();
            let wake = next.min(now + self.progress.update_interval());
            match timeout_at(wake, changes.next()).await {
                Err(_) => self.interruption = None,
                Ok(None | Some(Ok(None))) => break,
                Ok(Some(Err(problem))) => return Err(problem),
                Ok(Some(Ok(Some(change)))) => match change {
                    OperationChange::Applied(it) => self.wait_state.applied(*it, Instant::now()),
                    OperationChange::Deleted { operation, .. } => {
                        self.ended(server, *operation).await;
                    }
                    OperationChange::Synced => {}
                    OperationChange::Lost(problem) => {
                        self.wait_state.lost();
                        self.end = Self::record(&mut self.interruption, problem.to_string());
                        self.show();
                        sleep(RETRY_INTERVAL).await;
                        break;
                    }
                },
            }
        }
        Ok(())
    }

    /// Checks whether the rule sets detect all matching operations.
    async fn check_rule_sets(
        &mut self,
        server: &ApiClient,
        completeness: Option<ListCompleteness>,
    ) -> Result<(), Problem> {
        let ignored = &self.args.ignored;
        let detection = match (completeness, RuleSets::read(server).await) {
            (None, _) => DetectionCheck::Clear,
            (Some(completeness), Ok(rule_sets)) => {
                if let Some(unknown) = ignored.iter().find(|it| !rule_sets.has(it)) {
                    let message = format!("there is no rule set {unknown:?}; see: kubectl get ors");
                    return Err(Problem::Usage(message));
                }
                check_detection(&rule_sets, &self.filters, &completeness, ignored)
            }
            (Some(completeness), Err(refused @ Problem::Forbidden { .. })) => {
                check_detection_without_rule_sets(&self.filters, &completeness, &refused)
            }
            (_, Err(Problem::NotFound(_))) => return Err(Problem::NotInstalled),
            (_, Err(problem)) => return Err(problem),
        };
        match detection {
            DetectionCheck::Clear => self.doubt = None,
            DetectionCheck::Impossible(why) => self.give_up(&why),
            DetectionCheck::Impaired(why) => self.record_doubt(why),
        }
        Ok(())
    }

    /// Ends the wait with an unknown result, if it has not ended.
    fn give_up(&mut self, why: &str) {
        self.end
            .get_or_insert_with(|| WaitVerdict::Unknown(why.to_owned()));
    }

    /// Records why the result is unknown. A quiet period begins again. A single check ends.
    fn record_doubt(&mut self, why: String) {
        self.wait_state.lost();
        if self.once {
            self.give_up(&why);
        }
        self.end = self.end.take().or(Self::record(&mut self.doubt, why));
    }

    /// Records a reason, and keeps the time of the reason before. Returns the end of the wait if the
    /// result has been unknown for [`MAX_UNKNOWN_TIME`].
    fn record(doubt: &mut Option<(String, Instant)>, why: String) -> Option<WaitVerdict> {
        let since = doubt.take().map_or_else(Instant::now, |(_, since)| since);
        *doubt = Some((why.clone(), since));
        (since.elapsed() >= MAX_UNKNOWN_TIME).then_some(WaitVerdict::Unknown(why))
    }

    /// Returns the reason why the result is unknown. None if the result is known.
    fn current_doubt(&self) -> Option<&str> {
        let doubt = self.doubt.as_ref().or(self.interruption.as_ref());
        doubt
            .filter(|_| !self.wait_state.is_busy())
            .map(|(why, _)| why.as_str())
    }

    fn show(&mut self) {
        let doubt = self.current_doubt().map(str::to_owned);
        self.progress.show(&self.wait_state, doubt.as_deref());
    }

    /// After a timeout, the goal is either certainly not reached, or the result is unknown.
    pub(super) fn verdict_at_timeout(&self) -> WaitVerdict {
        let doubt = self.current_doubt();
        doubt.map_or(WaitVerdict::NotReached, |why| {
            WaitVerdict::Unknown(why.to_owned())
        })
    }

    /// Reads the operations of the activity for the last message.
    pub(super) async fn read_operations_of_activity(&mut self) {
        let Some(source) = self.unread.take().filter(|_| !self.args.quiet) else {
            return;
        };
        if let Ok(Ok(listed)) = timeout(MAX_MESSAGE_TIME, source.list()).await {
            let is_active = |it| self.wait_state.is_relevant_and_active(it);
            // The result is already decided. Newer operations must not contradict it.
            if listed.iter().any(is_active) == self.wait_state.is_busy() {
                self.wait_state.listed(&listed, Instant::now());
            }
        }
    }

    pub(super) fn success_message(&self) -> String {
        let mut ignored = ignored_text(&self.wait_state);
        if !self.args.ignored.is_empty() {
            ignored += "; these rule sets were not checked: ";
            ignored += &self.args.ignored.join(", ");
        }
        match self.args.settings.goal {
            WaitGoal::Idle => format!("idle: no operation in flight{ignored}"),
            WaitGoal::Started => format!("started: {}", active_text(&self.wait_state)),
            WaitGoal::Completed => format!("completed: all operations have ended{ignored}"),
            WaitGoal::Succeeded => format!("succeeded: all operations have succeeded{ignored}"),
        }
    }

    /// Prints why the goal was not reached, with the operations that prevent it.
    pub(super) fn print_failure(&self, end: &WaitVerdict) {
        let WaitSettings {
            goal, quiet_period, ..
        } = self.args.settings;
        let title = match goal {
            _ if !self.once => "timed out",
            WaitGoal::Idle => "not idle",
            WaitGoal::Started => "not started",
            WaitGoal::Completed => "not completed",
            WaitGoal::Succeeded => "not succeeded",
        };
        let reason = reason(&self.wait_state);
        print_error_line(&match (end, self.wait_state.verdict(Instant::now())) {
            (WaitVerdict::Failed(failed), _) => {
                return print_error_line(&format!("failed: {failed}"));
            }
            (_, WaitVerdict::ReachedAt(_)) => {
                let seconds = quiet_period.unwrap_or_default().as_secs_f64();
                format!("{title}: {reason}, but not yet for the quiet period of {seconds} s")
            }
            _ => format!("{title}: {reason}"),
        });
        let named: Vec<ListedOperation> =
            self.wait_state.active().take(MAX_NAMED).cloned().collect();
        if !named.is_empty() {
            print_error_text(Table::text(&named, clock::now(), &self.style));
        }
    }
}

/// Reads the oldest operation of an activity. Returns None if this operation has ended.
async fn oldest(server: &ApiClient, activity: &ActivityStatus) -> Option<ListedOperation> {
    let oldest = activity.oldest.as_ref()?;
    read_object(server, live::PLURAL, &oldest.namespace, &oldest.name).await
}

/// Reads the record of an operation, which contains its result. Returns None if there is no record,
/// or if it cannot be read.
async fn record_of(server: &ApiClient, operation: &ListedOperation) -> Option<ListedOperation> {
    let namespace = operation.namespace.as_deref()?;
    read_object(server, record::PLURAL, namespace, &operation.name).await
}

/// Reads an operation or a record. Returns None if it does not exist or cannot be read.
async fn read_object(
    server: &ApiClient,
    plural: &str,
    namespace: &str,
    name: &str,
) -> Option<ListedOperation> {
    let (within, name) = (escape(namespace), escape(name));
    let uri = format!("/apis/{LIVE_GROUP}/{VERSION}/namespaces/{within}/{plural}/{name}");
    let answer = server.answer(&uri, plural, Some(namespace)).await.ok()?;
    ListedOperation::read(&answer.text, false).ok()
}
