//! The main loop of `kubectl ifo wait`: reads the activity or lists the operations, decides whether
//! the wait ends, and otherwise waits for a change.
//!
//! A watch can fail without an error, and then delivers no changes. So only the answer to a new
//! request can confirm that no operation is in flight.

use super::activity::{self, ActivityAnswer};
use super::args::WaitArgs;
use super::check::{Doubt, doubt};
use super::progress::ProgressOutput;
use super::wait_state::{WaitGoal, WaitState, WaitVerdict};
use crate::api_client::{ApiClient, ListCompleteness};
use crate::clock;
use crate::discovered_kinds::Kinds;
use crate::filter::Filters;
use crate::filter_check::{self, FilterWarning};
use crate::listed_operation::ListedOperation;
use crate::operation_source::{OperationChange, OperationSource, Served, escape};
use crate::problem::Problem;
use crate::rule_sets::RuleSets;
use ifo_api::{LIVE_GROUP, VERSION, record};
use std::time::Duration;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

/// Interval at which the operations and the rule sets are read again during the wait. While an
/// operation is certainly active, they are not read again.
const CHECK_INTERVAL: Duration = Duration::from_secs(10);
/// The same interval while the result is unknown, and for activities.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// Longest time for which the result may be unknown. After this time, the wait ends with the exit
/// code for an unknown result. While an operation is certainly active, the result is known. A
/// restart of `ifo-apiserver`, including its first lists of all watched resources, usually takes less
/// time.
const MAX_UNKNOWN_TIME: Duration = Duration::from_mins(1);
/// The message for the goal `idle` if the cluster has only the custom resources of operations. It
/// says why custom resources cannot show that no operation is in flight: if the `ifo-apiserver` that
/// writes them is killed, they are no longer up to date.
const NOT_DETECTING: &str = "custom resources show only the operations that were in flight when they were written; to detect current ones, run ifo-apiserver";
/// The message if the timeout has passed before the first answer.
const NO_ANSWER: &str =
    "the cluster has not returned all operations and rule sets before the timeout";

/// A reason why the result is unknown, and the time since which it is unknown.
type Unknown = Option<(String, Instant)>;

/// The state of a running wait.
pub(super) struct OperationWait<'a> {
    args: &'a WaitArgs,
    filters: Filters,
    /// True for a single check (`--timeout=0`).
    once: bool,
    pub(super) wait_state: WaitState,
    /// The end of the wait. None while it continues.
    pub(super) end: Option<WaitVerdict>,
    /// None while the rule sets work and the requests succeed.
    doubt: Unknown,
    /// None while the watch works.
    interruption: Unknown,
    /// True if the cluster has answered, and the values of the filters exist.
    are_filters_checked: bool,
    progress: ProgressOutput,
}

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
            progress: ProgressOutput::default(),
        }
    }

    /// Waits until the goal is reached, cannot be reached, or has been unknown for
    /// [`MAX_UNKNOWN_TIME`]. Sets `end`.
    pub(super) async fn run(&mut self) -> Result<(), Problem> {
        let mut server = self.args.connect.open().await?;
        server.ignored_rule_sets.clone_from(&self.args.ignored);
        self.filters.resolve(&Kinds::new(server.clone())).await;
        server.relevant_operations = self.filters.label_selector();
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
        match activity::read(server, self.args, &self.filters).await {
            Some(ActivityAnswer::IdleSince(time)) => {
                // The value of the filter has an activity, so it exists.
                self.are_filters_checked = true;
                self.interruption = None;
                let now = Instant::now();
                let age = clock::now().duration_since(time);
                let since = now.checked_sub(age.try_into().unwrap_or_default());
                self.wait_state.idle(since, now);
                self.decide(server, Some(ListCompleteness::Complete))
                    .await?;
                self.pause(now).await;
                return Ok(());
            }
            Some(ActivityAnswer::InFlight) => self.wait_state.busy(Instant::now()),
            None => {}
        }
        let (source, listed) = self.list(server).await?;
        // Custom resources alone decide the goals that are possible with them.
        let completeness = (source.served == Served::Live).then(|| source.completeness());
        self.decide(server, completeness).await?;
        if source.namespaces.is_some() && self.filters.namespace.is_none() {
            self.give_up("you may not list operations in all namespaces; name one with -n");
        }
        match self.end {
            Some(_) => Ok(()),
            None => self.follow(server, &source, listed).await,
        }
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
                let unchecked = warnings.iter().filter(is_unchecked);
                unchecked.for_each(FilterWarning::print);
            }
            self.are_filters_checked = true;
        }
        if source.served == Served::Crs && self.args.settings.goal == WaitGoal::Idle {
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
            let doubt = match completeness {
                Some(completeness) => self.check_rule_sets(server, &completeness).await?,
                None => None,
            };
            match doubt {
                None => self.doubt = None,
                Some(Doubt::Lasting(why)) => self.give_up(&why),
                Some(Doubt::Temporary(why)) => self.record_doubt(why),
            }
        }
        let verdict = self.wait_state.verdict(Instant::now());
        if self.once || verdict == WaitVerdict::Reached && self.doubt.is_none() {
            self.end.get_or_insert(verdict);
        }
        Ok(())
    }

    /// Waits until an activity must be read again.
    async fn pause(&mut self, read: Instant) {
        if self.end.is_some() {
            return;
        }
        self.show();
        let next = read + RETRY_INTERVAL;
        sleep_until(match self.wait_state.verdict(read) {
            WaitVerdict::ReachedAt(at) => at.min(next),
            _ => next,
        })
        .await;
    }

    /// Processes changes until the wait ends, or until the state must be read again.
    async fn follow(
        &mut self,
        server: &ApiClient,
        source: &OperationSource,
        listed: Vec<ListedOperation>,
    ) -> Result<(), Problem> {
        let mut changes = source.follow(Some(listed))?;
        let read = Instant::now();
        loop {
            let now = Instant::now();
            let (is_busy, verdict) = (self.wait_state.is_busy(), self.wait_state.verdict(now));
            let is_started =
                self.args.settings.goal == WaitGoal::Started && verdict == WaitVerdict::Reached;
            if is_started || verdict.is_final() {
                self.end = Some(verdict);
                return Ok(());
            }
            if is_busy {
                self.doubt = None;
            }
            let interval = match self.current_doubt() {
                Some(_) => RETRY_INTERVAL,
                None => CHECK_INTERVAL,
            };
            let next = match verdict {
                WaitVerdict::Reached if interval == CHECK_INTERVAL => return Ok(()),
                WaitVerdict::ReachedAt(at) => at.min(read + interval),
                _ if is_busy => now + interval,
                _ => read + interval,
            };
            if next <= now {
                return Ok(());
            }
            self.show();
            let Ok(change) = timeout_at(next, changes.next()).await else {
                self.interruption = None;
                continue;
            };
            match change? {
                OperationChange::Applied(it) => self.wait_state.applied(*it, Instant::now()),
                OperationChange::Deleted { operation, .. } => self.ended(server, *operation).await,
                OperationChange::Synced => {}
                OperationChange::Lost(problem) => {
                    self.wait_state.lost();
                    self.end = record(&mut self.interruption, problem.to_string());
                    self.show();
                    sleep(RETRY_INTERVAL).await;
                    return Ok(());
                }
            }
        }
    }

    /// Checks whether the rule sets detect all matching operations.
    async fn check_rule_sets(
        &self,
        server: &ApiClient,
        completeness: &ListCompleteness,
    ) -> Result<Option<Doubt>, Problem> {
        let ignored = &self.args.ignored;
        let rule_sets = match RuleSets::read(server).await {
            Err(Problem::NotFound(_)) => return Err(Problem::NotInstalled),
            Err(problem) if !matches!(problem, Problem::Forbidden { .. }) => return Err(problem),
            rule_sets => rule_sets,
        };
        if let Ok(all) = &rule_sets
            && let Some(unknown) = ignored.iter().find(|it| !all.has(it))
        {
            let message = format!("there is no rule set {unknown:?}; see: kubectl get ors");
            return Err(Problem::Usage(message));
        }
        Ok(doubt(
            rule_sets.as_ref(),
            &self.filters,
            completeness,
            ignored,
        ))
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
        self.end = self.end.take().or(record(&mut self.doubt, why));
    }

    /// Returns the reason why the result is unknown. None if the result is known.
    fn current_doubt(&self) -> Option<&str> {
        let doubt = self.doubt.as_ref().or(self.interruption.as_ref());
        doubt
            .filter(|_| !self.wait_state.is_busy())
            .map(|(why, _)| why.as_str())
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
        let doubt = self.current_doubt();
        doubt.map_or(WaitVerdict::NotReached, |why| {
            WaitVerdict::Unknown(why.to_owned())
        })
    }
}

/// Records a reason, and keeps the time of the reason before. Returns the end of the wait if the
/// result has been unknown for [`MAX_UNKNOWN_TIME`].
fn record(unknown: &mut Unknown, why: String) -> Option<WaitVerdict> {
    let since = unknown.take().map_or_else(Instant::now, |(_, since)| since);
    *unknown = Some((why.clone(), since));
    (since.elapsed() >= MAX_UNKNOWN_TIME).then_some(WaitVerdict::Unknown(why))
}

/// Reads the record of an operation, which contains its result. Returns None if there is no record,
/// or if it cannot be read.
async fn record_of(server: &ApiClient, operation: &ListedOperation) -> Option<ListedOperation> {
    let namespace = operation.namespace.as_deref()?;
    let (within, name) = (escape(namespace), escape(&operation.name));
    let plural = record::PLURAL;
    let uri = format!("/apis/{LIVE_GROUP}/{VERSION}/namespaces/{within}/{plural}/{name}");
    let answer = server.answer(&uri, plural, Some(namespace)).await.ok()?;
    ListedOperation::read(&answer.text, false).ok()
}
