//! A wait under way. Enters: what the cluster says of operations and rule sets. Leaves: how
//! the wait ended, and why.

use super::gate::{Gate, GateVerdict, Goal};
use super::progress::{Live, but_ignored, count, never_begun};
use super::watching::{RuleSets, Sight, sight_without_rule_sets};
use super::{WaitArgs, WaitEnd};
use crate::clock;
use crate::columns::{self, Table};
use crate::filter::Filters;
use crate::kinds::Kinds;
use crate::known::{self, Remark};
use crate::operation::ListedOperation;
use crate::output::{TextStyle, tell};
use crate::problem::Problem;
use crate::source::{OperationChange, OperationFollower, OperationSource, Served};
use std::time::Duration;
use tokio::time::{Instant, sleep, sleep_until};

/// How often the rule sets are looked at while waiting.
pub(super) const LOOK_EVERY: Duration = Duration::from_secs(10);
/// How often a server that cannot be asked is tried again.
const RETRY_EVERY: Duration = Duration::from_secs(1);
/// How long a gap may last: a restart of the server, with its first sync.
const PATIENCE: Duration = Duration::from_mins(1);
/// Why custom resources do not tell that nothing is in flight.
const UNATTENDED: &str = "custom resources say what was in flight when they were written, and nothing says that \
    somebody still looks; run ifo-apiserver";
/// Operations that are named when time is up.
const NAMED: usize = 10;

/// A wait under way.
pub(super) struct OperationWait {
    pub(super) gate: Gate,
    pub(super) filters: Filters,
    /// Rule sets that need not work.
    pub(super) ignored: Vec<String>,
    /// Why the rule sets or the server do not let it be told, and since when.
    pub(super) why_not: Option<(String, Instant)>,
    /// Why the watch is broken, and since when.
    pub(super) broken: Option<(String, Instant)>,
    /// Whether the rule sets have been looked at, and were being watched.
    pub(super) seen: bool,
    /// Whether one to wait for was active when operations were first listed.
    pub(super) began_busy: bool,
    pub(super) live: Live,
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
                        source.note();
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
                    sleep(RETRY_EVERY).await;
                }
                Err(problem) => return Err(problem),
            }
        };
        let remarks = known::check(&self.filters, &source, &listed).await?;
        // A value that no rule set looks for is the answer later: it cannot be told.
        let is_unchecked = |it: &&Remark| matches!(it, Remark::Unchecked(_));
        if !args.quiet {
            remarks.iter().filter(is_unchecked).for_each(Remark::say);
        }
        if source.served == Served::Crs && self.gate.terms.goal == Goal::Idle {
            // What is there is true, or was when it was written; what is not there says
            // nothing of now: no status changes when a writer is killed.
            return Ok(WaitEnd::CannotTell(UNATTENDED.to_owned()));
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

    /// Waits while operations come and go.
    async fn follow(&mut self, source: &OperationSource) -> Result<WaitEnd, Problem> {
        let mut follower = source.follow(None)?;
        let mut looked: Option<Instant> = None;
        loop {
            let busy = self.is_busy();
            let every = if self.doubt().is_some() && !busy {
                RETRY_EVERY
            } else {
                LOOK_EVERY
            };
            if looked.is_none_or(|at| at.elapsed() >= every) {
                // One that is active is enough to know that it is not so yet.
                if let Some(end) = self.look(source).await?
                    && !busy
                {
                    return Ok(end);
                }
                if let Some((why, since)) = &self.broken
                    && since.elapsed() >= PATIENCE
                {
                    return Ok(WaitEnd::CannotTell(why.clone()));
                }
                looked = Some(Instant::now());
            }
            let now = Instant::now();
            let verdict = self.gate.verdict(now);
            if verdict == GateVerdict::Holds && self.gate.terms.goal == Goal::Started {
                return Ok(WaitEnd::Holds);
            }
            if verdict == GateVerdict::Holds && self.why_not.is_none() {
                // The list and the rule sets have the last word: a watch that has died
                // without a sound looks quiet. The rule sets come after the list, so that
                // what they say holds for all of it.
                let confirmed = self.confirmed(source).await?;
                if confirmed && let Some(end) = self.look(source).await? {
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
                GateVerdict::Holds => look_at.min(now + RETRY_EVERY),
                GateVerdict::NotYet => look_at,
            };
            self.take_until(&mut follower, wake.min(now + self.live.every()))
                .await?;
        }
    }

    /// Where the cluster does not say what a kind is, operations may, whoever they are of.
    async fn learn(&mut self, source: &OperationSource) {
        if self.filters.kind.iter().any(|it| !it.is_served()) {
            let all = source.unfiltered().list().await.unwrap_or_default();
            for kind in &mut self.filters.kind {
                kind.learn(all.iter().map(|it| &it.subject));
            }
        }
    }

    /// What those that are active at the beginning tell at once, if they do. Each was seen
    /// by somebody, whoever else does not look.
    fn begin(&mut self, listed: Vec<ListedOperation>, once: bool) -> Option<WaitEnd> {
        let active: Vec<ListedOperation> = listed
            .into_iter()
            .filter(|it| self.gate.counts(it))
            .collect();
        self.began_busy = !active.is_empty();
        if !self.began_busy || !(once || self.gate.terms.goal == Goal::Started) {
            return None;
        }
        let now = Instant::now();
        for operation in active {
            self.gate.applied(operation, now);
        }
        self.gate.synced(now);
        Some(self.end(now))
    }

    /// Whether one to wait for is active: it is not over then, and that is certain.
    fn is_busy(&self) -> bool {
        let begins = !self.gate.is_whole() && self.broken.is_none();
        self.gate.is_busy() || (begins && self.began_busy)
    }

    fn show(&mut self, verdict: GateVerdict) {
        let busy = self.is_busy();
        let doubt = self.why_not.as_ref().or(self.broken.as_ref());
        self.live.show(&self.gate, doubt.filter(|_| !busy), verdict);
    }

    /// How it is now, where nothing is active.
    async fn check(&mut self, source: &OperationSource) -> Result<WaitEnd, Problem> {
        let now = Instant::now();
        for operation in source.list().await? {
            self.gate.applied(operation, now);
        }
        self.gate.synced(now);
        if self.gate.is_busy() {
            return Ok(WaitEnd::TimedOut);
        }
        // After the list, so that what the rule sets say holds for all of it.
        if let Some(end) = self.look(source).await? {
            return Ok(end);
        }
        if let Some((why, _)) = &self.why_not {
            return Ok(WaitEnd::CannotTell(why.clone()));
        }
        Ok(self.end(now))
    }

    /// The answer of one look.
    fn end(&self, now: Instant) -> WaitEnd {
        match self.gate.verdict(now) {
            GateVerdict::Holds => WaitEnd::Holds,
            GateVerdict::HoldsAt(_) | GateVerdict::NotYet => WaitEnd::TimedOut,
        }
    }

    /// Takes what changes until `wake`, or until something did.
    async fn take_until(
        &mut self,
        follower: &mut OperationFollower,
        wake: Instant,
    ) -> Result<(), Problem> {
        tokio::select! {
            change = follower.next() => match change? {
                OperationChange::Applied(operation) => self.gate.applied(*operation, Instant::now()),
                OperationChange::Deleted { operation, .. } => self.gate.deleted(&operation, Instant::now()),
                OperationChange::Synced => {
                    self.broken = None;
                    self.gate.synced(Instant::now());
                }
                OperationChange::Lost(problem) => {
                    self.gate.lost();
                    let since = self.broken.take().map_or_else(Instant::now, |(_, since)| since);
                    self.broken = Some((problem.to_string(), since));
                }
            },
            () = sleep_until(wake) => {}
        }
        Ok(())
    }

    /// Why it cannot be told now, and since when.
    pub(super) fn doubt(&self) -> Option<&(String, Instant)> {
        self.why_not.as_ref().or(self.broken.as_ref())
    }

    /// Asks whether the rule sets work.
    async fn look(&mut self, source: &OperationSource) -> Result<Option<WaitEnd>, Problem> {
        if source.served == Served::Crs {
            // Nothing says here whether rule sets are watched, and idle is never told.
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
            ) => Sight::Dim(problem.to_string()),
            Err(Problem::NotFound(_)) => return Err(Problem::NotInstalled),
            Err(problem) => return Err(problem),
        };
        Ok(match sight {
            Sight::Clear => {
                self.seen = true;
                self.why_not = None;
                None
            }
            Sight::Blind(why) => {
                self.why_not = Some((why.clone(), Instant::now()));
                Some(WaitEnd::CannotTell(why))
            }
            Sight::Dim(why) => self.cannot_tell(why),
        })
    }

    async fn ask(&self, source: &OperationSource) -> Result<Sight, Problem> {
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

    /// Notes why it cannot be told; the end if that has been so for too long.
    fn cannot_tell(&mut self, why: String) -> Option<WaitEnd> {
        let since = self
            .why_not
            .take()
            .map_or_else(Instant::now, |(_, since)| since);
        self.why_not = Some((why.clone(), since));
        (since.elapsed() >= PATIENCE).then_some(WaitEnd::CannotTell(why))
    }

    /// Whether a fresh list says the same as the watch.
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
            self.gate.applied(operation, now);
        }
        Ok(self.gate.verdict(now) == GateVerdict::Holds)
    }

    pub(super) fn holds(&self) -> String {
        let mut ignored = but_ignored(&self.gate);
        if !self.ignored.is_empty() {
            ignored += "; whether these rule sets work was ignored: ";
            ignored += &self.ignored.join(", ");
        }
        match self.gate.terms.goal {
            Goal::Idle => format!("idle: no operation in flight{ignored}"),
            Goal::Started => format!("started: {}", count(&self.gate)),
            Goal::Completed => format!("completed: all operations have ended{ignored}"),
        }
    }

    fn not_so(&self, once: bool) -> &'static str {
        match self.gate.terms.goal {
            _ if !once => "timed out",
            Goal::Idle => "not idle",
            Goal::Started => "not started",
            Goal::Completed => "not completed",
        }
    }

    /// Says that what is waited for is not so, with the operations that are why.
    pub(super) fn tell_why_not_so(&self, once: bool) {
        tell(&format!("{}: {}", self.not_so(once), self.why_not_so()));
        let active: Vec<ListedOperation> = self.gate.active().take(NAMED).cloned().collect();
        if !active.is_empty() {
            let now = clock::now();
            let style = TextStyle {
                screen: columns::screen(),
                ..TextStyle::default()
            };
            tell(Table::text(&active, now, style).trim_end());
        }
    }

    /// Why what is waited for is not so.
    fn why_not_so(&self) -> String {
        if let Some(never_begun) = never_begun(&self.gate) {
            return never_begun + &but_ignored(&self.gate);
        }
        let count = count(&self.gate);
        match self.gate.verdict(Instant::now()) {
            GateVerdict::HoldsAt(_) => {
                let seconds = self.gate.terms.quiet_period.as_secs_f64();
                format!("{count}, but not yet for the quiet period of {seconds} s")
            }
            _ => count,
        }
    }
}
