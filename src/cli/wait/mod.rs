//! `kubectl ifo wait`: a gate for scripts. It opens when what is waited for is so, and
//! never because nobody looked: an empty list counts only while the rule sets are being
//! watched and the view of the operations has no gap.

mod gate;
mod progress;
mod watching;

use super::columns::{self, Table};
use super::connect::Connect;
use super::filter::Filters;
use super::operation::Operation;
use super::output::{print, tell};
use super::paint::Paint;
use super::problem::Problem;
use super::source::{Change, Follower, Served, Source};
use crate::api::duration;
use gate::{Gate, Goal, Terms, Verdict};
use jiff::Timestamp;
use progress::{Live, count};
use std::process::ExitCode;
use std::time::Duration;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};
use watching::{RuleSets, Sight};

/// What is waited for was not so in time.
const TIMED_OUT: u8 = 1;
/// It could not be told whether it is so.
const CANNOT_TELL: u8 = 3;

/// How often the rule sets are looked at while waiting.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// How often a server that cannot be asked is tried again.
const RETRY_EVERY: Duration = Duration::from_secs(1);
/// How long a gap may last: a restart of the server, with its first sync.
const PATIENCE: Duration = Duration::from_mins(1);
/// Why custom resources do not tell that nothing is in flight.
const UNATTENDED: &str = "custom resources say what was in flight when they were written, and nothing says that \
    somebody still looks; run ifo-apiserver";
/// Operations that are named when time is up.
const NAMED: usize = 10;

/// The flags of the command.
#[derive(Debug, clap::Args)]
// A wait looks at all phases anyway.
#[command(mut_arg("all_phases", |it| it.hide(true)))]
#[command(after_help = "\
Exit codes:
  0  it is so
  1  it was not so within --timeout
  2  an error
  3  it cannot be told: no rule set is installed, one is not watching, or the server is away

Examples:
  # Before maintenance: nothing in flight, and nothing for half a minute
  kubectl ifo wait --for=idle --quiet-period=30s --timeout=30m

  # Only what concerns virtual machines, and not what hangs anyway
  kubectl ifo wait -c kubevirt --ignore-failing --ignore-blocked

  # Until a migration in this namespace has begun, and until it is over
  kubectl ifo wait --for=started -n shop -o Migrating --timeout=1m
  kubectl ifo wait --for=completed -n shop -o Migrating")]
pub(super) struct Args {
    /// What to wait for
    #[arg(long = "for", value_enum, default_value_t = Goal::Idle, value_name = "GOAL")]
    goal: Goal,
    /// Longest wait, such as 30m; 0 is no limit
    #[arg(long, default_value = "0", value_parser = time, value_name = "TIME")]
    timeout: Duration,
    /// For how long nothing must be active before idle (or completed) holds
    #[arg(long, default_value = "0", value_parser = time, value_name = "TIME")]
    quiet_period: Duration,
    /// Do not wait for operations that are failing
    #[arg(long)]
    ignore_failing: bool,
    /// Do not wait for operations that are blocked
    #[arg(long)]
    ignore_blocked: bool,
    /// Say nothing but errors
    #[arg(short, long)]
    quiet: bool,
    #[command(flatten)]
    filters: Filters,
    #[command(flatten)]
    connect: Connect,
}

fn time(text: &str) -> Result<Duration, String> {
    duration::parse(text).ok_or_else(|| format!("{text:?} is no duration such as 30s or 10m"))
}

/// How a wait ended.
enum End {
    Holds,
    TimedOut,
    CannotTell(String),
}

/// Waits; the exit code says how it ended.
pub(super) async fn run(args: &Args) -> Result<ExitCode, Problem> {
    let deadline = (!args.timeout.is_zero())
        .then(|| Instant::now().checked_add(args.timeout))
        .flatten();
    let filters = Filters {
        all_phases: true,
        ..args.filters.within(args.connect.namespace.as_ref())
    };
    let mut waiting = Waiting {
        gate: Gate::new(Terms {
            goal: args.goal,
            quiet_period: args.quiet_period,
            ignore_failing: args.ignore_failing,
            ignore_blocked: args.ignore_blocked,
        }),
        filters,
        why_not: None,
        broken: None,
        seen: false,
        live: Live::new(args.quiet),
    };
    let waited = waiting.until_the_end(args);
    let end = match deadline {
        None => waited.await?,
        Some(deadline) => match timeout_at(deadline, waited).await {
            Ok(end) => end?,
            // What cannot be told when time is up is not the same as what is not so.
            Err(_) => match waiting.doubt() {
                Some((why, _)) => End::CannotTell(why.clone()),
                None if !waiting.seen || !waiting.gate.is_whole() => {
                    End::CannotTell("the cluster has not told all in time".to_owned())
                }
                None => End::TimedOut,
            },
        },
    };
    waiting.live.clear();
    Ok(match end {
        End::Holds => {
            if !args.quiet {
                print(&format!("{}\n", waiting.holds()));
            }
            ExitCode::SUCCESS
        }
        End::TimedOut => {
            tell(&format!("timed out: {}", waiting.count()));
            let active: Vec<Operation> = waiting.gate.active().take(NAMED).cloned().collect();
            if !active.is_empty() {
                let now = Timestamp::now();
                let table = Table::new(&active, false, now, columns::screen(), Paint::default());
                let rows = active.iter().map(|it| table.row(it, now));
                let lines: String = std::iter::once(table.header()).chain(rows).collect();
                tell(lines.trim_end());
            }
            ExitCode::from(TIMED_OUT)
        }
        End::CannotTell(why) => {
            tell(&format!("cannot tell: {why}"));
            ExitCode::from(CANNOT_TELL)
        }
    })
}

/// A wait under way.
struct Waiting {
    gate: Gate,
    filters: Filters,
    /// Why the rule sets or the server do not let it be told, and since when.
    why_not: Option<(String, Instant)>,
    /// Why the watch is broken, and since when.
    broken: Option<(String, Instant)>,
    /// Whether the rule sets have been looked at, and were being watched.
    seen: bool,
    live: Live,
}

impl Waiting {
    async fn until_the_end(&mut self, args: &Args) -> Result<End, Problem> {
        let server = args.connect.open().await?;
        let source = loop {
            match Source::open(server.clone(), self.filters.clone(), false).await {
                Ok((source, _)) => break source,
                Err(problem @ (Problem::NotSynced | Problem::Unavailable(_))) => {
                    if let Some(end) = self.cannot_tell(problem.to_string()) {
                        return Ok(end);
                    }
                    sleep(RETRY_EVERY).await;
                }
                Err(problem) => return Err(problem),
            }
        };
        if source.namespaces.is_some() && self.filters.namespace.is_none() {
            return Ok(End::CannotTell(
                "you may not list operations in all namespaces; name one with -n".to_owned(),
            ));
        }
        self.why_not = None;
        let mut follower = source.follow()?;
        let mut look_at = Instant::now();
        loop {
            if look_at <= Instant::now() {
                if let Some(end) = self.look(&source).await? {
                    return Ok(end);
                }
                if let Some((why, since)) = &self.broken
                    && since.elapsed() >= PATIENCE
                {
                    return Ok(End::CannotTell(why.clone()));
                }
                let soon = if self.doubt().is_some() {
                    RETRY_EVERY
                } else {
                    LOOK_EVERY
                };
                look_at = Instant::now() + soon;
            }
            let now = Instant::now();
            let verdict = self.gate.verdict(now);
            if verdict == Verdict::Holds && self.why_not.is_none() {
                // The rule sets and the list have the last word: a watch that has died
                // without a sound looks quiet.
                if let Some(end) = self.look(&source).await? {
                    return Ok(end);
                }
                if self.why_not.is_none() && self.confirmed(&source).await? {
                    return Ok(End::Holds);
                }
                look_at = Instant::now() + RETRY_EVERY;
            }
            let doubt = self.why_not.as_ref().or(self.broken.as_ref());
            self.live.show(&self.gate, doubt, verdict);
            let wake = match verdict {
                Verdict::HoldsAt(at) => at.min(look_at),
                _ => look_at,
            };
            self.take_until(&mut follower, wake.min(now + self.live.every()))
                .await?;
        }
    }

    /// Takes what changes until `wake`, or until something did.
    async fn take_until(&mut self, follower: &mut Follower, wake: Instant) -> Result<(), Problem> {
        tokio::select! {
            change = follower.next() => match change {
                Change::Applied(operation) => self.gate.applied(*operation, Instant::now()),
                Change::Deleted(operation) => self.gate.deleted(&operation, Instant::now()),
                Change::Synced => {
                    self.broken = None;
                    self.gate.synced(Instant::now());
                }
                Change::Lost(problem @ (Problem::Forbidden { .. } | Problem::Unauthorized)) => {
                    return Err(problem);
                }
                Change::Lost(problem) => {
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
    fn doubt(&self) -> Option<&(String, Instant)> {
        self.why_not.as_ref().or(self.broken.as_ref())
    }

    /// Looks whether the rule sets are being watched.
    async fn look(&mut self, source: &Source) -> Result<Option<End>, Problem> {
        if source.served == Served::Crs {
            // What is there is true, or was when it was written; what is not there says
            // nothing of now: no status changes when a writer is killed.
            self.seen = true;
            let blind = self.gate.goal() == Goal::Idle;
            return Ok(blind.then(|| End::CannotTell(UNATTENDED.to_owned())));
        }
        let sight = match RuleSets::read(&source.server).await {
            Ok(rule_sets) => rule_sets.sight(&self.filters),
            Err(
                problem @ (Problem::Unavailable(_)
                | Problem::NotSynced
                | Problem::Unreachable { .. }
                | Problem::TimedOut(_)),
            ) => Sight::Dim(problem.to_string()),
            Err(problem @ Problem::Forbidden { .. }) => Sight::Blind(problem.to_string()),
            Err(Problem::NotFound(_)) => return Err(Problem::NotInstalled),
            Err(problem) => return Err(problem),
        };
        Ok(match sight {
            Sight::Clear => {
                self.seen = true;
                self.why_not = None;
                None
            }
            Sight::Blind(why) => Some(End::CannotTell(why)),
            Sight::Dim(why) => self.cannot_tell(why),
        })
    }

    /// Notes why it cannot be told; the end if that has been so for too long.
    fn cannot_tell(&mut self, why: String) -> Option<End> {
        let since = self
            .why_not
            .take()
            .map_or_else(Instant::now, |(_, since)| since);
        if since.elapsed() >= PATIENCE {
            return Some(End::CannotTell(why));
        }
        self.live.note(&why);
        self.why_not = Some((why, since));
        None
    }

    /// Whether a fresh list says the same as the watch.
    async fn confirmed(&mut self, source: &Source) -> Result<bool, Problem> {
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
        Ok(self.gate.verdict(now) == Verdict::Holds)
    }

    fn holds(&self) -> String {
        match self.gate.goal() {
            Goal::Idle => "idle: no operation in flight".to_owned(),
            Goal::Started => format!("started: {}", self.count()),
            Goal::Completed => "completed: all operations have ended".to_owned(),
        }
    }

    fn count(&self) -> String {
        count(&self.gate)
    }
}
