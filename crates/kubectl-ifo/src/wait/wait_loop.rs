//! A running wait.
//!
//! Input: the operations and rule sets of the cluster. Output: the end of the wait, and its reason.

use super::detection_check::{DetectionCheck, RuleSets, sight_without_rule_sets};
use super::progress::{ProgressOutput, but_ignored, count, never_begun};
use super::wait_state::{GateVerdict, WaitGoal, WaitState};
use super::{WaitArgs, WaitEnd};
use crate::clock;
use crate::columns::{self, Table};
use crate::filter::Filters;
use crate::filter_check::{self, FilterWarning};
use crate::kinds::Kinds;
use crate::operation::ListedOperation;
use crate::output::{TextStyle, print_error_line};
use crate::problem::Problem;
use crate::source::{OperationChange, OperationFollower, OperationSource, Served};
use std::time::Duration;
use tokio::time::{Instant, sleep, sleep_until};

/// Interval at which the rule sets are checked during the wait.
pub(super) const CHECK_INTERVAL: Duration = Duration::from_secs(10);
/// Interval at which an unreachable server is tried again.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// Longest accepted gap. A restart of the server, with its first sync, is shorter.
const MAX_GAP: Duration = Duration::from_mins(1);
/// The reason for which custom resources cannot show that no operation is in flight.
const NOT_DETECTING: &str = "custom resources show only the operations that were in flight when they were written; to detect current ones, run ifo-apiserver";
/// Largest number of operations that a message names at the timeout.
const MAX_NAMED: usize = 10;

/// A running wait.
pub(super) struct OperationWait {
    pub(super) wait_state: WaitState,
    pub(super) filters: Filters,
    /// Rule sets that are not required to work.
    pub(super) ignored: Vec<String>,
    /// The reason for which the rule sets or the server leave the answer unknown, and its start.
    pub(super) why_not: Option<(String, Instant)>,
    /// The reason for which the watch is interrupted, and its start.
    pub(super) broken: Option<(String, Instant)>,
    /// True if the rule sets were checked and their targets were being watched.
    pub(super) seen: bool,
    /// True if a relevant operation was active in the first list.
    pub(super) began_busy: bool,
    pub(super) live: ProgressOutput,
}

impl OperationWait {
    pub(super) async fn until_the_end(
        &mut self,
        args: &WaitArgs,
        once: bool,
    ) -> Result<WaitEnd, Problem> {
        let server = args.connect.open().await?;
        self.filters.resolve(&Kinds::new(server.clone())).await;
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
                        return Ok(WaitEnd::CannotTell(problem.to_string()));
                    }
                    if let Some(end) = self.cannot_tell(problem.to_string()) {
                        return Ok(end);
                    }
                    self.show(GateVerdict::NotYet);
                    sleep(RETRY_INTERVAL).await;
                }
                Err(problem) => return Err(problem),
            }
        };
        let remarks = filter_check::check(&self.filters, &source, &listed).await?;
        // No rule set detects the value of a filter. The answer after the list is then "unknown".
        let is_unchecked = |it: &&FilterWarning| matches!(it, FilterWarning::Unchecked(_));
        if !args.quiet {
            remarks
                .iter()
                .filter(is_unchecked)
                .for_each(FilterWarning::say);
        }
        if source.served == Served::Crs && self.wait_state.terms.goal == WaitGoal::Idle {
            // An existing custom resource is or was true. A missing one proves nothing, because no
            // status changes if the process that writes it is killed.
            return Ok(WaitEnd::CannotTell(NOT_DETECTING.to_owned()));
        }
        if let Some(end) = self.begin(listed, once) {
            return Ok(end);
        }
        if source.namespaces.is_some() && self.filters.namespace.is_none() {
            return Ok(WaitEnd::CannotTell(
                "you may not list operations in all namespaces; name one with -n".to_owned(),
            ));
        }
        self.learn(&source).await;
        self.why_not = None;
        if once {
            self.check(&source).await
        } else {
            self.follow(&source).await
        }
    }

    /// Waits while operations change.
    async fn follow(&mut self, source: &OperationSource) -> Result<WaitEnd, Problem> {
        let mut follower = source.follow(None)?;
        let mut looked: Option<Instant> = None;
        loop {
            let busy = self.is_busy();
            let every = if self.doubt().is_some() && !busy {
                RETRY_INTERVAL
            } else {
                CHECK_INTERVAL
            };
            if looked.is_none_or(|at| at.elapsed() >= every) {
                // One active operation is enough to know that the goal is not reached.
                if let Some(end) = self.check_once(source).await?
                    && !busy
                {
                    return Ok(end);
                }
                if let Some((why, since)) = &self.broken
                    && since.elapsed() >= MAX_GAP
                {
                    return Ok(WaitEnd::CannotTell(why.clone()));
                }
                looked = Some(Instant::now());
            }
            let now = Instant::now();
            let verdict = self.wait_state.verdict(now);
            if verdict == GateVerdict::Holds && self.wait_state.terms.goal == WaitGoal::Started {
                return Ok(WaitEnd::Holds);
            }
            if verdict == GateVerdict::Holds && self.why_not.is_none() {
                // A fresh list and the rule sets confirm the end, because a broken watch looks like
                // a quiet cluster. The rule sets are read after the list, so their status covers
                // the whole list.
                let confirmed = self.confirmed(source).await?;
                if confirmed && let Some(end) = self.check_once(source).await? {
                    return Ok(end);
                }
                if confirmed && self.why_not.is_none() {
                    return Ok(WaitEnd::Holds);
                }
                looked = Some(Instant::now());
            }
            self.show(verdict);
            let now = Instant::now();
            let look_at = looked.map_or(now, |at| at + every);
            let wake = match verdict {
                GateVerdict::HoldsAt(at) => at.min(look_at),
                GateVerdict::Holds => look_at.min(now + RETRY_INTERVAL),
                GateVerdict::NotYet => look_at,
            };
            self.take_until(&mut follower, wake.min(now + self.live.every()))
                .await?;
        }
    }

    /// If discovery does not have a kind, its names are learned from the subjects of all
    /// operations.
    async fn learn(&mut self, source: &OperationSource) {
        if self.filters.kind.iter().any(|it| !it.is_served()) {
            let all = source.unfiltered().list().await.unwrap_or_default();
            for kind in &mut self.filters.kind {
                kind.learn(all.iter().map(|it| &it.subject));
            }
        }
    }

    /// Decides at once from the operations that are active at the beginning, if possible. Each of
    /// them was detected, even if other rule sets do not work.
    fn begin(&mut self, listed: Vec<ListedOperation>, once: bool) -> Option<WaitEnd> {
        let active: Vec<ListedOperation> = listed
            .into_iter()
            .filter(|it| self.wait_state.counts(it))
            .collect();
        self.began_busy = !active.is_empty();
        if !self.began_busy || !(once || self.wait_state.terms.goal == WaitGoal::Started) {
            return None;
        }
        let now = Instant::now();
        for operation in active {
            self.wait_state.applied(operation, now);
        }
        self.wait_state.synced(now);
        Some(self.end(now))
    }

    /// Returns true if a relevant operation is active. Then the goal is certainly not reached.
    fn is_busy(&self) -> bool {
        let begins = !self.wait_state.is_whole() && self.broken.is_none();
        self.wait_state.is_busy() || (begins && self.began_busy)
    }

    fn show(&mut self, verdict: GateVerdict) {
        let busy = self.is_busy();
        let doubt = self.why_not.as_ref().or(self.broken.as_ref());
        self.live
            .show(&self.wait_state, doubt.filter(|_| !busy), verdict);
    }

    /// Checks the current state once, if no operation is active.
    async fn check(&mut self, source: &OperationSource) -> Result<WaitEnd, Problem> {
        let now = Instant::now();
        for operation in source.list().await? {
            self.wait_state.applied(operation, now);
        }
        self.wait_state.synced(now);
        if self.wait_state.is_busy() {
            return Ok(WaitEnd::TimedOut);
        }
        // The rule sets are read after the list, so their status covers the whole list.
        if let Some(end) = self.check_once(source).await? {
            return Ok(end);
        }
        if let Some((why, _)) = &self.why_not {
            return Ok(WaitEnd::CannotTell(why.clone()));
        }
        Ok(self.end(now))
    }

    /// Returns the result of one check.
    fn end(&self, now: Instant) -> WaitEnd {
        match self.wait_state.verdict(now) {
            GateVerdict::Holds => WaitEnd::Holds,
            GateVerdict::HoldsAt(_) | GateVerdict::NotYet => WaitEnd::TimedOut,
        }
    }

    /// Processes changes until `wake`, or until an operation changes.
    async fn take_until(
        &mut self,
        follower: &mut OperationFollower,
        wake: Instant,
    ) -> Result<(), Problem> {
        tokio::select! {
            change = follower.next() => match change? {
                OperationChange::Applied(operation) => self.wait_state.applied(*operation, Instant::now()),
                OperationChange::Deleted { operation, .. } => self.wait_state.deleted(&operation, Instant::now()),
                OperationChange::Synced => {
                    self.broken = None;
                    self.wait_state.synced(Instant::now());
                }
                OperationChange::Lost(problem) => {
                    self.wait_state.lost();
                    let since = self.broken.take().map_or_else(Instant::now, |(_, since)| since);
                    self.broken = Some((problem.to_string(), since));
                }
            },
            () = sleep_until(wake) => {}
        }
        Ok(())
    }

    /// Returns the reason for which the answer is unknown now, and its start.
    pub(super) fn doubt(&self) -> Option<&(String, Instant)> {
        self.why_not.as_ref().or(self.broken.as_ref())
    }

    /// Checks if the rule sets work.
    async fn check_once(&mut self, source: &OperationSource) -> Result<Option<WaitEnd>, Problem> {
        if source.served == Served::Crs {
            // Custom resources do not show if targets are watched, so `idle` is never reported.
            self.seen = true;
            return Ok(None);
        }
        let sight = match self.ask(source).await {
            Ok(sight) => sight,
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
        Ok(match sight {
            DetectionCheck::Clear => {
                self.seen = true;
                self.why_not = None;
                None
            }
            DetectionCheck::Impossible(why) => {
                self.why_not = Some((why.clone(), Instant::now()));
                Some(WaitEnd::CannotTell(why))
            }
            DetectionCheck::Impaired(why) => self.cannot_tell(why),
        })
    }

    async fn ask(&self, source: &OperationSource) -> Result<DetectionCheck, Problem> {
        let rule_sets = RuleSets::read(&source.server).await;
        if let Ok(rule_sets) = &rule_sets
            && let Some(unknown) = rule_sets.unknown(&self.ignored)
        {
            return Err(Problem::Usage(format!(
                "there is no rule set {unknown:?}; see: kubectl get ors"
            )));
        }
        let completeness = source.probe().await?;
        match rule_sets {
            Ok(rule_sets) => Ok(rule_sets.sight(&self.filters, &completeness, &self.ignored)),
            Err(refused @ Problem::Forbidden { .. }) => Ok(sight_without_rule_sets(
                &self.filters,
                &completeness,
                &refused,
            )),
            Err(problem) => Err(problem),
        }
    }

    /// Records why the answer is unknown. Ends the wait if this has lasted too long.
    fn cannot_tell(&mut self, why: String) -> Option<WaitEnd> {
        let since = self
            .why_not
            .take()
            .map_or_else(Instant::now, |(_, since)| since);
        self.why_not = Some((why.clone(), since));
        (since.elapsed() >= MAX_GAP).then_some(WaitEnd::CannotTell(why))
    }

    /// Returns true if a fresh list has the same operations as the watch.
    async fn confirmed(&mut self, source: &OperationSource) -> Result<bool, Problem> {
        let listed = match source.list().await {
            Ok(listed) => listed,
            Err(problem @ (Problem::Forbidden { .. } | Problem::Unauthorized)) => {
                return Err(problem);
            }
            Err(problem) => {
                self.live.note(&problem.to_string());
                return Ok(false);
            }
        };
        let now = Instant::now();
        for operation in listed.into_iter().filter(|it| it.active) {
            self.wait_state.applied(operation, now);
        }
        Ok(self.wait_state.verdict(now) == GateVerdict::Holds)
    }

    pub(super) fn holds(&self) -> String {
        let mut ignored = but_ignored(&self.wait_state);
        if !self.ignored.is_empty() {
            ignored += "; whether these rule sets work was ignored: ";
            ignored += &self.ignored.join(", ");
        }
        match self.wait_state.terms.goal {
            WaitGoal::Idle => format!("idle: no operation in flight{ignored}"),
            WaitGoal::Started => format!("started: {}", count(&self.wait_state)),
            WaitGoal::Completed => format!("completed: all operations have ended{ignored}"),
        }
    }

    fn not_so(&self, once: bool) -> &'static str {
        match self.wait_state.terms.goal {
            _ if !once => "timed out",
            WaitGoal::Idle => "not idle",
            WaitGoal::Started => "not started",
            WaitGoal::Completed => "not completed",
        }
    }

    /// Reports that the goal was not reached, with the operations that prevent it.
    pub(super) fn tell_why_not_so(&self, once: bool) {
        print_error_line(&format!("{}: {}", self.not_so(once), self.why_not_so()));
        let active: Vec<ListedOperation> =
            self.wait_state.active().take(MAX_NAMED).cloned().collect();
        if !active.is_empty() {
            let now = clock::now();
            let style = TextStyle {
                screen: columns::screen(),
                ..TextStyle::default()
            };
            print_error_line(Table::text(&active, now, style).trim_end());
        }
    }

    /// Returns the reason for which the goal was not reached.
    fn why_not_so(&self) -> String {
        if let Some(never_begun) = never_begun(&self.wait_state) {
            return never_begun + &but_ignored(&self.wait_state);
        }
        let count = count(&self.wait_state);
        match self.wait_state.verdict(Instant::now()) {
            GateVerdict::HoldsAt(_) => {
                let seconds = self.wait_state.terms.quiet_period.as_secs_f64();
                format!("{count}, but not yet for the quiet period of {seconds} s")
            }
            _ => count,
        }
    }
}
