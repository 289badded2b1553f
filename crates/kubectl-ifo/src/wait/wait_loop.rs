//! The main loop of `kubectl ifo wait`: follows the operations, checks the rule sets, and decides
//! when the wait ends.

use super::detection_check::{DetectionCheck, RuleSets, check_detection_without_rule_sets};
use super::progress::{ProgressOutput, active_text, ignored_text, not_started_message};
use super::wait_state::{WaitGoal, WaitState, WaitVerdict};
use super::{WaitArgs, WaitEnd};
use crate::api_client::ListCompleteness;
use crate::clock;
use crate::columns::Table;
use crate::discovered_kinds::Kinds;
use crate::filter::Filters;
use crate::filter_check::{self, FilterWarning};
use crate::listed_operation::ListedOperation;
use crate::operation_source::{
    OperationChange, OperationFollower, OperationSource, Served, combined,
};
use crate::output::{TextStyle, print_error_line, print_error_text};
use crate::problem::Problem;
use std::time::Duration;
use tokio::time::{Instant, sleep, sleep_until};

/// Interval at which the rule sets are checked during the wait.
pub(super) const CHECK_INTERVAL: Duration = Duration::from_secs(10);
/// Interval at which a check is repeated while the result is unknown.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// Longest time for which the result may be unknown. After this time, the wait ends with the exit
/// code for an unknown result. While an operation is certainly active, the wait does not end for
/// this reason ([`OperationWait::is_busy`]). A restart of `ifo-apiserver`, including its first
/// lists of all watched resources, usually takes less time.
const MAX_UNKNOWN_TIME: Duration = Duration::from_mins(1);
/// The message for the goal `idle` if the cluster has only the custom resources of operations. It
/// says why custom resources cannot show that no operation is in flight.
const NOT_DETECTING: &str = "custom resources show only the operations that were in flight when they were written; to detect current ones, run ifo-apiserver";
/// Largest number of operations in the table that is printed if the goal was not reached. Further
/// operations are left out.
const MAX_NAMED: usize = 10;

/// The state of a running wait.
pub(super) struct OperationWait {
    pub(super) wait_state: WaitState,
    pub(super) filters: Filters,
    /// The names of the rule sets that need not work (`--ignore-rule-set`).
    pub(super) ignored: Vec<String>,
    /// The reason why the result is unknown, and the time since which it is unknown. None while the
    /// rule sets work and the requests succeed.
    pub(super) unknown_reason: Option<(String, Instant)>,
    /// The reason why the watch is interrupted, and the time of the interruption. None while the
    /// watch works.
    pub(super) interruption: Option<(String, Instant)>,
    /// True if a check has found that the rule sets work, or that the wait does not need them.
    pub(super) are_rule_sets_known_to_work: bool,
    /// True if the first list has an active operation that is not ignored.
    pub(super) was_busy_at_start: bool,
    /// The output of the progress.
    pub(super) progress: ProgressOutput,
    /// The form of the table of operations, which is printed if the goal is not reached.
    pub(super) style: TextStyle,
}

impl OperationWait {
    pub(super) async fn run(&mut self, args: &WaitArgs, once: bool) -> Result<WaitEnd, Problem> {
        let mut server = args.connect.open().await?;
        server.ignored_rule_sets.clone_from(&self.ignored);
        let kinds = Kinds::new(server.clone());
        self.filters.resolve(&kinds).await;
        server.relevant_operations = self.filters.label_selector();
        self.style.short_names = kinds.short_names(self.style.screen).await;
        let (source, listed) = loop {
            match OperationSource::find(server.clone(), self.filters.clone(), false).await {
                Ok((source, listed)) => {
                    if !args.quiet {
                        source.print_note();
                    }
                    break (source, listed);
                }
                Err(
                    problem @ (Problem::NotSynced | Problem::Busy(_) | Problem::Unavailable(_)),
                ) => {
                    if once {
                        return Ok(WaitEnd::Unknown(problem.to_string()));
                    }
                    if let Some(end) = self.record_unknown(problem.to_string()) {
                        return Ok(end);
                    }
                    self.show(WaitVerdict::NotReached);
                    sleep(RETRY_INTERVAL).await;
                }
                Err(problem) => return Err(problem),
            }
        };
        let warnings = filter_check::check(&self.filters, &source, &listed).await?;
        // Only the warning `Unchecked` is printed here. The other warning means that no rule set
        // can detect matching operations, and the result of the wait reports this as well.
        let is_unchecked = |it: &&FilterWarning| matches!(it, FilterWarning::Unchecked(_));
        if !args.quiet {
            warnings
                .iter()
                .filter(is_unchecked)
                .for_each(FilterWarning::print);
        }
        if source.served == Served::Crs && self.wait_state.settings.goal == WaitGoal::Idle {
            // A missing custom resource does not prove that no operation is in flight. If the
            // `ifo-apiserver` that writes the custom resources is killed, they are no longer up to
            // date.
            return Ok(WaitEnd::Unknown(NOT_DETECTING.to_owned()));
        }
        if let Some(end) = self.decide_from_first_list(listed, once) {
            return Ok(end);
        }
        if source.namespaces.is_some() && self.filters.namespace.is_none() {
            return Ok(WaitEnd::Unknown(
                "you may not list operations in all namespaces; name one with -n".to_owned(),
            ));
        }
        self.unknown_reason = None;
        if once {
            self.check_once(&source).await
        } else {
            self.follow(&source).await
        }
    }

    /// Waits until the goal is reached. If no operation is certainly active
    /// ([`is_busy`](Self::is_busy)), the wait also ends in two cases:
    ///
    /// - The rule sets certainly cannot detect all matching operations.
    /// - The result has been unknown for [`MAX_UNKNOWN_TIME`].
    async fn follow(&mut self, source: &OperationSource) -> Result<WaitEnd, Problem> {
        let mut follower = source.follow(None)?;
        let mut last_check: Option<Instant> = None;
        loop {
            let busy = self.is_busy();
            let interval = if self.current_doubt().is_some() && !busy {
                RETRY_INTERVAL
            } else {
                CHECK_INTERVAL
            };
            if last_check.is_none_or(|at| at.elapsed() >= interval) {
                // While an operation is active, the goals `idle` and `completed` are certainly not
                // reached, even if rule sets do not work. So the command continues to wait.
                if let Some(end) = self.check_rule_sets(source, None).await?
                    && !busy
                {
                    return Ok(end);
                }
                if let Some((why, since)) = &self.interruption
                    && since.elapsed() >= MAX_UNKNOWN_TIME
                {
                    return Ok(WaitEnd::Unknown(why.clone()));
                }
                last_check = Some(Instant::now());
            }
            let now = Instant::now();
            let verdict = self.wait_state.verdict(now);
            if verdict == WaitVerdict::Reached && self.wait_state.settings.goal == WaitGoal::Started
            {
                return Ok(WaitEnd::Reached);
            }
            if verdict == WaitVerdict::Reached && self.unknown_reason.is_none() {
                // A watch can fail without an error. It then delivers no new operations. So a new
                // list and the rule sets must confirm that the goal is reached. The rule sets are
                // checked after the list, so that a rule set that failed before the list is
                // noticed.
                let is_confirmed = self.confirm_with_list(source).await?;
                if is_confirmed
                    && let Some(end) = self
                        .check_rule_sets(source, Some(source.completeness()))
                        .await?
                {
                    return Ok(end);
                }
                if is_confirmed && self.unknown_reason.is_none() {
                    return Ok(WaitEnd::Reached);
                }
                last_check = Some(Instant::now());
            }
            self.show(verdict);
            let now = Instant::now();
            let next_check = last_check.map_or(now, |at| at + interval);
            let wake = match verdict {
                WaitVerdict::ReachedAt(at) => at.min(next_check),
                WaitVerdict::Reached => next_check.min(now + RETRY_INTERVAL),
                WaitVerdict::NotReached => next_check,
            };
            self.process_change_until(
                &mut follower,
                wake.min(now + self.progress.update_interval()),
            )
            .await?;
        }
    }

    /// Decides from the first list whether the wait ends. `once` is true for a single check
    /// (`--timeout=0`). If the first list has an active operation, the wait ends in two cases:
    ///
    /// - The command checks only once.
    /// - The goal is `started`.
    ///
    /// The result is then certain even if some rule sets do not work. Returns None if the wait does
    /// not end.
    fn decide_from_first_list(
        &mut self,
        listed: Vec<ListedOperation>,
        once: bool,
    ) -> Option<WaitEnd> {
        let active: Vec<ListedOperation> = listed
            .into_iter()
            .filter(|it| self.wait_state.is_relevant_and_active(it))
            .collect();
        self.was_busy_at_start = !active.is_empty();
        if !self.was_busy_at_start || !(once || self.wait_state.settings.goal == WaitGoal::Started)
        {
            return None;
        }
        let now = Instant::now();
        for operation in active {
            self.wait_state.applied(operation, now);
        }
        self.wait_state.synced(now);
        Some(self.end(now))
    }

    /// Returns true if an operation that is not ignored is active. In this case, the goals `idle`
    /// and `completed` are certainly not reached.
    ///
    /// At its start, the watch delivers all operations one by one. Until the last one has arrived,
    /// this method uses the list that the command requested before the watch.
    fn is_busy(&self) -> bool {
        let is_listing = !self.wait_state.is_complete() && self.interruption.is_none();
        self.wait_state.is_busy() || (is_listing && self.was_busy_at_start)
    }

    fn show(&mut self, verdict: WaitVerdict) {
        let busy = self.is_busy();
        let doubt = self.unknown_reason.as_ref().or(self.interruption.as_ref());
        self.progress
            .show(&self.wait_state, doubt.filter(|_| !busy), verdict);
    }

    /// Lists the operations once more, and decides whether the goal is reached. This method is
    /// called for a single check, if the first list had no active operation.
    async fn check_once(&mut self, source: &OperationSource) -> Result<WaitEnd, Problem> {
        let now = Instant::now();
        for operation in source.list().await? {
            self.wait_state.applied(operation, now);
        }
        self.wait_state.synced(now);
        if self.wait_state.is_busy() {
            return Ok(WaitEnd::TimedOut);
        }
        // The rule sets are checked after the list, so that a rule set that failed before the list
        // is noticed.
        let listed = Some(source.completeness());
        if let Some(end) = self.check_rule_sets(source, listed).await? {
            return Ok(end);
        }
        if let Some((why, _)) = &self.unknown_reason {
            return Ok(WaitEnd::Unknown(why.clone()));
        }
        Ok(self.end(now))
    }

    /// Returns the end of the wait at the time `now`: reached if the goal is reached, otherwise
    /// timed out.
    fn end(&self, now: Instant) -> WaitEnd {
        match self.wait_state.verdict(now) {
            WaitVerdict::Reached => WaitEnd::Reached,
            WaitVerdict::ReachedAt(_) | WaitVerdict::NotReached => WaitEnd::TimedOut,
        }
    }

    /// Waits for a change and processes it. Returns without a change at the time `wake`.
    async fn process_change_until(
        &mut self,
        follower: &mut OperationFollower,
        wake: Instant,
    ) -> Result<(), Problem> {
        tokio::select! {
            change = follower.next() => match change? {
                OperationChange::Applied(operation) => self.wait_state.applied(*operation, Instant::now()),
                OperationChange::Deleted { operation, .. } => self.wait_state.ended_or_deleted(&operation, Instant::now()),
                OperationChange::Synced => {
                    self.interruption = None;
                    self.wait_state.synced(Instant::now());
                }
                OperationChange::Lost(problem) => {
                    self.wait_state.lost();
                    let since = self.interruption.take().map_or_else(Instant::now, |(_, since)| since);
                    self.interruption = Some((problem.to_string(), since));
                }
            },
            () = sleep_until(wake) => {}
        }
        Ok(())
    }

    /// Returns the reason why the result is unknown, and the time since which it is unknown.
    /// Returns None if the result is known.
    pub(super) fn current_doubt(&self) -> Option<&(String, Instant)> {
        self.unknown_reason.as_ref().or(self.interruption.as_ref())
    }

    /// Checks whether the rule sets can detect all matching operations. Returns the end of the wait
    /// in two cases: the rule sets certainly cannot detect all of these operations, or the result
    /// has been unknown for [`MAX_UNKNOWN_TIME`].
    ///
    /// `listed` is the completeness of the list that has to confirm the goal. The list may lack
    /// operations even if the rule sets work again. None if the result does not depend on a list.
    async fn check_rule_sets(
        &mut self,
        source: &OperationSource,
        listed: Option<ListCompleteness>,
    ) -> Result<Option<WaitEnd>, Problem> {
        if source.served == Served::Crs {
            // With custom resources, only the goals `started` and `completed` are possible, because
            // the goal `idle` was refused before the wait. The custom resources alone decide these
            // goals, so the rule sets are not checked.
            self.are_rule_sets_known_to_work = true;
            return Ok(None);
        }
        let detection = match self.check_detection(source, listed).await {
            Ok(detection) => detection,
            Err(
                problem @ (Problem::Unavailable(_)
                | Problem::NotSynced
                | Problem::Busy(_)
                | Problem::Unreachable { .. }
                | Problem::TimedOut(_)),
            ) => DetectionCheck::Impaired(problem.to_string()),
            Err(Problem::NotFound(_)) => return Err(Problem::NotInstalled),
            Err(problem) => return Err(problem),
        };
        Ok(match detection {
            DetectionCheck::Clear => {
                self.are_rule_sets_known_to_work = true;
                self.unknown_reason = None;
                None
            }
            DetectionCheck::Impossible(why) => {
                self.unknown_reason = Some((why.clone(), Instant::now()));
                Some(WaitEnd::Unknown(why))
            }
            DetectionCheck::Impaired(why) => self.record_unknown(why),
        })
    }

    async fn check_detection(
        &self,
        source: &OperationSource,
        listed: Option<ListCompleteness>,
    ) -> Result<DetectionCheck, Problem> {
        let rule_sets = RuleSets::read(&source.server).await;
        if let Ok(rule_sets) = &rule_sets
            && let Some(unknown) = rule_sets.first_unknown(&self.ignored)
        {
            return Err(Problem::Usage(format!(
                "there is no rule set {unknown:?}; see: kubectl get ors"
            )));
        }
        let newest = source.probe().await?;
        let completeness = listed.into_iter().fold(newest, combined);
        match rule_sets {
            Ok(rule_sets) => {
                Ok(rule_sets.check_detection(&self.filters, &completeness, &self.ignored))
            }
            Err(refused @ Problem::Forbidden { .. }) => Ok(check_detection_without_rule_sets(
                &self.filters,
                &completeness,
                &refused,
            )),
            Err(problem) => Err(problem),
        }
    }

    /// Records why the result is unknown. Returns the end of the wait if the result has been
    /// unknown for [`MAX_UNKNOWN_TIME`].
    fn record_unknown(&mut self, why: String) -> Option<WaitEnd> {
        let since = self
            .unknown_reason
            .take()
            .map_or_else(Instant::now, |(_, since)| since);
        self.unknown_reason = Some((why.clone(), since));
        (since.elapsed() >= MAX_UNKNOWN_TIME).then_some(WaitEnd::Unknown(why))
    }

    /// Lists the operations again. Returns true if the goal is still reached with the operations in
    /// the list.
    async fn confirm_with_list(&mut self, source: &OperationSource) -> Result<bool, Problem> {
        let listed = match source.list().await {
            Ok(listed) => listed,
            Err(problem @ (Problem::Forbidden { .. } | Problem::Unauthorized)) => {
                return Err(problem);
            }
            Err(problem) => {
                self.progress.print_if_new(&problem.to_string());
                return Ok(false);
            }
        };
        let now = Instant::now();
        for operation in listed.into_iter().filter(|it| it.active) {
            self.wait_state.applied(operation, now);
        }
        Ok(self.wait_state.verdict(now) == WaitVerdict::Reached)
    }

    pub(super) fn success_message(&self) -> String {
        let mut ignored = ignored_text(&self.wait_state);
        if !self.ignored.is_empty() {
            ignored += "; these rule sets were not checked: ";
            ignored += &self.ignored.join(", ");
        }
        match self.wait_state.settings.goal {
            WaitGoal::Idle => format!("idle: no operation in flight{ignored}"),
            WaitGoal::Started => format!("started: {}", active_text(&self.wait_state)),
            WaitGoal::Completed => format!("completed: all operations have ended{ignored}"),
        }
    }

    fn failure_title(&self, once: bool) -> &'static str {
        match self.wait_state.settings.goal {
            _ if !once => "timed out",
            WaitGoal::Idle => "not idle",
            WaitGoal::Started => "not started",
            WaitGoal::Completed => "not completed",
        }
    }

    /// Prints that the goal was not reached, with the operations that prevent it.
    pub(super) fn print_failure(&self, once: bool) {
        print_error_line(&format!(
            "{}: {}",
            self.failure_title(once),
            self.failure_reason()
        ));
        let active: Vec<ListedOperation> =
            self.wait_state.active().take(MAX_NAMED).cloned().collect();
        if !active.is_empty() {
            print_error_text(Table::text(&active, clock::now(), &self.style));
        }
    }

    /// Returns the reason why the goal was not reached.
    fn failure_reason(&self) -> String {
        if let Some(message) = not_started_message(&self.wait_state) {
            return message;
        }
        let active = active_text(&self.wait_state);
        match self.wait_state.verdict(Instant::now()) {
            WaitVerdict::ReachedAt(_) => {
                let seconds = self.wait_state.settings.quiet_period.as_secs_f64();
                format!("{active}, but not yet for the quiet period of {seconds} s")
            }
            _ => active,
        }
    }
}
