//! The main loop of `kubectl ifo wait`: reads the activity or lists the operations, decides whether
//! the wait ends, and otherwise waits for a change.
//!
//! A watch can fail without an error, and then delivers no changes. So only the answer to a new
//! request can confirm that no operation is in flight.

use super::activity;
use super::args::WaitArgs;
use super::check::doubt;
use super::progress::ProgressOutput;
use super::wait_state::{Step, WaitGoal, WaitState, WaitVerdict};
use crate::api_client::{ApiClient, ListCompleteness};
use crate::clock;
use crate::discovered_kinds::Kinds;
use crate::filter::Filters;
use crate::filter_check;
use crate::operation::{InFlightOperation, OperationFacts as _};
use crate::operation_source::{
    OperationChange, OperationFollower, OperationSource, Served, decode, escape,
};
use crate::problem::Problem;
use crate::rule_sets::RuleSets;
use ifo_api::{LIVE_GROUP, VERSION, record};
use std::convert::Infallible;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout_at};

/// Interval at which the operations and the rule sets are read again during the wait.
const CHECK_INTERVAL: Duration = Duration::from_secs(10);
/// The same interval while the result is unknown, and for activities.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// Longest time for which the result may be unknown. After this time, the wait ends with the exit
/// code for an unknown result. While an operation is certainly active, the result is known. A
/// restart of `ifo-apiserver`, including its first lists of all watched resources, usually takes
/// less time.
const MAX_UNKNOWN_TIME: Duration = Duration::from_mins(1);
/// The message for the goal `idle` if the cluster has only the custom resources of operations. It
/// says why custom resources cannot show that no operation is in flight: if the `ifo-apiserver`
/// that writes them is killed, they are no longer up to date.
const NOT_DETECTING: &str = "custom resources show only the operations that were in flight when they were written; to detect current ones, run ifo-apiserver";
/// The message if the timeout has passed before the answers that decide the result.
const NO_ANSWER: &str =
    "the cluster has not returned all operations and rule sets before the timeout";

/// The state of a running wait.
pub(super) struct OperationWait<'a> {
    args: &'a WaitArgs,
    filters: Filters,
    /// True for a single check (`--timeout=0`).
    once: bool,
    pub(super) wait_state: WaitState,
    /// The reason why the result is unknown, and the time since which it is unknown. None after a list
    /// that proved the result and a watch that worked until the next list.
    doubt: Option<(String, Instant)>,
    /// True if the cluster has answered, and the values of the filters exist.
    are_filters_checked: bool,
    /// True if the operations, and the rule sets if they matter, have been read once.
    is_answered: bool,
    progress: ProgressOutput,
}

impl<'a> OperationWait<'a> {
    pub(super) fn new(args: &'a WaitArgs, filters: Filters, once: bool) -> Self {
        Self {
            args,
            filters,
            once,
            wait_state: WaitState::new(args.settings),
            doubt: None,
            are_filters_checked: false,
            is_answered: false,
            progress: ProgressOutput::default(),
        }
    }

    /// Waits until the goal is reached, cannot be reached, or has been unknown for
    /// [`MAX_UNKNOWN_TIME`].
    pub(super) async fn run(&mut self) -> Step<Infallible> {
        let mut server = self.args.connect.open().await?;
        server.ignored_rule_sets.clone_from(&self.args.ignored);
        self.filters.resolve(&Kinds::new(server.clone())).await;
        server.relevant_operations = self.filters.label_selector();
        loop {
            match self.attempt(&server).await {
                Err(WaitVerdict::Error(problem)) if self.is_temporary(&problem) => {
                    self.record_doubt(problem.to_string())?;
                    self.show();
                    sleep(RETRY_INTERVAL).await;
                }
                step => step?,
            }
        }
    }

    /// Returns true if the command tries again after this problem. After the first answer, it also
    /// tries again if the cluster does not answer.
    fn is_temporary(&self, problem: &Problem) -> bool {
        use Problem::{Busy, Expired, Other, TimedOut, Unavailable, Unreachable};
        match problem {
            Busy(_) | Unavailable(_) => true,
            Unreachable { .. } | TimedOut(_) | Expired | Other(_) => self.are_filters_checked,
            _ => false,
        }
    }

    /// Reads the present state, and decides whether the wait ends. If not, waits until the state
    /// must be read again.
    async fn attempt(&mut self, server: &ApiClient) -> Step {
        let idle = activity::idle_condition(server, self.args, &self.filters).await;
        let now = Instant::now();
        match idle {
            Some(idle) if &*idle.status == "True" => {
                // The value of the filter has an activity, so it exists.
                self.are_filters_checked = true;
                let age = clock::now().duration_since(idle.last_transition_time.0);
                let age = age.try_into().unwrap_or_default();
                self.wait_state.idle(age, now);
                let complete = Some(ListCompleteness::Complete);
                let is_proven = self.decide(server, complete).await?;
                return self.follow(server, None, is_proven).await;
            }
            Some(idle) if &*idle.status == "False" => self.wait_state.busy(now),
            _ => {}
        }
        let (source, listed, is_proven) = self.list(server).await?;
        let changes = source.follow(listed)?;
        self.follow(server, Some(changes), is_proven).await
    }

    /// Lists the operations, and decides whether the wait ends. If not, returns the list, and true if
    /// it proves the result.
    async fn list(
        &mut self,
        server: &ApiClient,
    ) -> Step<(OperationSource, Vec<InFlightOperation>, bool)> {
        let found = OperationSource::find(server.clone(), self.filters.clone()).await;
        let (source, listed) = found?;
        if !self.are_filters_checked {
            let doubts = filter_check::check(&self.filters, &source, &listed).await?;
            if !self.args.quiet {
                source.print_note();
                // The result of the wait reports that no rule set can detect matching operations.
                doubts.print_unchecked();
            }
            self.are_filters_checked = true;
        }
        if source.served == Served::Crs && self.args.settings.goal == WaitGoal::Idle {
            return Err(WaitVerdict::unknown(NOT_DETECTING));
        }
        for missing in self.wait_state.missing_from(&listed) {
            self.ended(server, missing).await;
        }
        self.wait_state.listed(&listed, Instant::now());
        // Custom resources alone decide the goals that are possible with them.
        let completeness = (source.served == Served::Live).then(|| source.completeness());
        let is_proven = self.decide(server, completeness).await?;
        if source.namespaces.is_some() && self.filters.namespace.is_none() {
            let why = "you may not list operations in all namespaces; name one with -n";
            return Err(WaitVerdict::unknown(why));
        }
        Ok((source, listed, is_proven))
    }

    /// Processes the end of an operation. If its end was not seen, its record has the result.
    async fn ended(&mut self, server: &ApiClient, operation: InFlightOperation) {
        let mut ended = None;
        if self.args.settings.goal == WaitGoal::Succeeded && operation.is_active() {
            ended = record_of(server, &operation).await;
        }
        let ended = ended.unwrap_or(operation);
        self.wait_state.ended_or_deleted(&ended, Instant::now());
    }

    /// Decides whether the wait ends with the state that was just read. `completeness` is that of
    /// the list. None if the rule sets do not matter. Returns true if the list proves the result.
    async fn decide(
        &mut self,
        server: &ApiClient,
        completeness: Option<ListCompleteness>,
    ) -> Step<bool> {
        let is_final = self.wait_state.verdict(Instant::now()).is_final();
        let doubt = match completeness {
            // While an operation is active, the result is known even if rule sets do not work.
            Some(completeness) if !is_final && !self.wait_state.is_busy() => {
                self.check_rule_sets(server, &completeness).await?
            }
            _ => None,
        };
        let is_proven = doubt.is_none();
        if let Some(why) = doubt {
            self.record_doubt(why)?;
        }
        self.is_answered = true;
        let verdict = self.wait_state.verdict(Instant::now());
        if self.once || verdict.is_final() || (is_proven && verdict == WaitVerdict::Reached) {
            return Err(verdict);
        }
        Ok(is_proven)
    }

    /// Processes changes until the wait ends, or until the state must be read again. `changes` is
    /// None if the state comes from an activity.
    async fn follow(
        &mut self,
        server: &ApiClient,
        mut changes: Option<OperationFollower<'_>>,
        is_proven: bool,
    ) -> Step {
        let read = Instant::now();
        loop {
            let now = Instant::now();
            let verdict = self.wait_state.verdict(now);
            let is_started =
                self.args.settings.goal == WaitGoal::Started && verdict == WaitVerdict::Reached;
            if is_started || verdict.is_final() {
                return Err(verdict);
            }
            let is_certain = self.current_doubt().is_none();
            let next = match changes {
                Some(_) if is_certain => read + CHECK_INTERVAL,
                _ => read + RETRY_INTERVAL,
            };
            let next = match verdict {
                WaitVerdict::Reached if is_certain => return Ok(()),
                WaitVerdict::ReachedAt(at) => at.min(next),
                _ => next,
            };
            if next <= now {
                self.doubt.take_if(|_| is_proven);
                return Ok(());
            }
            self.show();
            let change = async {
                match &mut changes {
                    Some(changes) => changes.next().await,
                    None => std::future::pending().await,
                }
            };
            let Ok(change) = timeout_at(next, change).await else {
                self.doubt.take_if(|_| is_proven);
                continue;
            };
            match change? {
                OperationChange::Applied(it) => self.wait_state.applied(*it, Instant::now()),
                OperationChange::Deleted { operation, .. } => self.ended(server, *operation).await,
                OperationChange::Synced | OperationChange::Incomplete(_) => {}
                OperationChange::Lost(problem) => {
                    self.record_doubt(problem.to_string())?;
                    self.show();
                    sleep(RETRY_INTERVAL).await;
                    return Ok(());
                }
            }
        }
    }

    /// Returns the reason why the rule sets may not detect all matching operations, if there is
    /// one.
    async fn check_rule_sets(
        &self,
        server: &ApiClient,
        completeness: &ListCompleteness,
    ) -> Step<Option<String>> {
        let ignored = &self.args.ignored;
        let rule_sets = match RuleSets::read(server).await {
            Err(Problem::NotFound(_)) => return Err(Problem::NotInstalled.into()),
            Err(problem) if !matches!(problem, Problem::Forbidden { .. }) => {
                return Err(problem.into());
            }
            rule_sets => rule_sets,
        };
        if let Ok(all) = &rule_sets
            && let Some(unknown) = ignored.iter().find(|it| !all.has(it))
        {
            let message = format!("there is no rule set {unknown:?}; see: kubectl get ors");
            return Err(Problem::Usage(message).into());
        }
        doubt(rule_sets.as_ref(), &self.filters, completeness, ignored)
    }

    /// Records why the result is unknown, and keeps the time of the reason before. A quiet period
    /// begins again. A single check ends. The wait also ends if the result has been unknown for
    /// [`MAX_UNKNOWN_TIME`].
    fn record_doubt(&mut self, why: String) -> Step {
        self.wait_state.lost();
        let since = self.doubt.take().map_or_else(Instant::now, |it| it.1);
        if self.once || since.elapsed() >= MAX_UNKNOWN_TIME {
            return Err(WaitVerdict::Unknown(why));
        }
        self.doubt = Some((why, since));
        Ok(())
    }

    /// Returns the reason why the result is unknown. None if the result is known.
    fn current_doubt(&self) -> Option<&str> {
        let doubt = self.doubt.as_ref().filter(|_| !self.wait_state.is_busy());
        let doubt = doubt.map(|(why, _)| why.as_str());
        doubt.or_else(|| (!self.is_answered).then_some(NO_ANSWER))
    }

    fn show(&mut self) {
        // A single check prints no progress.
        if !self.args.quiet && !self.once {
            let doubt = self.current_doubt().map(str::to_owned);
            self.progress.show(&self.wait_state, doubt.as_deref());
        }
    }

    /// After a timeout, the goal is either certainly not reached, or the result is unknown.
    pub(super) fn verdict_at_timeout(&self) -> WaitVerdict {
        // The wait was about to confirm that the goal is reached.
        let is_unconfirmed = self.wait_state.verdict(Instant::now()) == WaitVerdict::Reached;
        let doubt = self.current_doubt();
        let doubt = doubt.or_else(|| is_unconfirmed.then_some(NO_ANSWER));
        doubt.map_or(WaitVerdict::NotReached, WaitVerdict::unknown)
    }
}

/// Reads the record of an operation, which contains its result. Returns None if there is no record,
/// or if it cannot be read.
async fn record_of(server: &ApiClient, operation: &InFlightOperation) -> Option<InFlightOperation> {
    let metadata = &operation.metadata;
    let namespace = Some(&*metadata.namespace).filter(|it| !it.is_empty())?;
    let (within, name) = (escape(namespace), escape(&metadata.name));
    let plural = record::PLURAL;
    let uri = format!("/apis/{LIVE_GROUP}/{VERSION}/namespaces/{within}/{plural}/{name}");
    let answer = server.answer(&uri).await.ok()?;
    decode(&answer.text).ok()
}
