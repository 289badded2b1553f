//! The main loop of `kubectl ifo wait`: lists the operations, decides whether the wait ends, and
//! otherwise waits for a change. In each pass, the loop first reads the activity, an object of the
//! server that says since when no operation has been in flight.
//!
//! Some problems can go away: an interrupted watch, a rule set that does not work, or a server that
//! does not answer. After such a problem, the result is unknown, and the quiet period begins again.
//! The loop reads everything again after [`RETRY_INTERVAL`].
//!
//! A watch can fail without an error, and then delivers no changes. So only the answer to a new
//! request can confirm that no operation is in flight.

use super::WaitArgs;
use super::check::{check_rule_sets, must_work};
use super::wait_state::{Step, WaitEnd, WaitGoal, WaitState};
use crate::clock;
use crate::cluster::api_client::{ApiClient, ListCompleteness};
use crate::cluster::problem::Problem;
use crate::cluster::rule_sets::{ListedRuleSet, RuleSets};
use crate::filters::filter::{FilterValue, Filters};
use crate::filters::filter_check;
use crate::history::records;
use crate::operations::operation::{InFlightOperation, OperationFacts as _};
use crate::operations::operation_source::{
    OperationChange, OperationSource, Served, list_path, query,
};
use crate::output::print::print_error_line;
use ifo_api::activity::{Activity, PLURAL};
use ifo_api::completeness::{IGNORED_HEADER, Incomplete, SELECTOR_HEADER};
use ifo_api::{LIVE_GROUP, labels};
use ifo_client::list::ListItems;
use std::convert::Infallible;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout, timeout_at};

/// Interval at which the operations and the rule sets are read again during the wait.
const CHECK_INTERVAL: Duration = Duration::from_secs(10);
/// Interval at which everything is read again while the result is unknown. The interval is the same
/// while the command reads an idle activity instead of a list of operations, because the command
/// does not watch activities.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// Longest time for which the result may be unknown. After this time, the wait ends with the exit
/// code for an unknown result. A restart of `ifo-apiserver`, including its first lists of all
/// watched resources, usually takes less time.
const MAX_UNKNOWN_TIME: Duration = Duration::from_mins(1);
/// Largest number of rule sets that a request tells the server to ignore. If there are more, the
/// server does not ignore the others. If one of the others does not work, the result is unknown.
/// 250 names of usual length take about 6 KB.
const MAX_IGNORED: usize = 250;
/// The message for the goal `idle` if the cluster has only the custom resources of operations. If
/// the `ifo-apiserver` that writes the custom resources is killed, they are out of date. So they
/// cannot prove that nothing is in flight.
const NOT_DETECTING: &str = "custom resources show only the operations that were in flight when they were written; to detect current ones, run ifo-apiserver";
/// The message if the timeout passes before the answers of the cluster prove a result.
const NO_ANSWER: &str =
    "the cluster has not returned all operations and rule sets before the timeout";
/// The message if the cluster has not answered for [`MAX_UNKNOWN_TIME`].
const NO_REPLY: &str = "the cluster has not answered for a minute";

/// A running wait.
pub(super) struct OperationWait<'a> {
    args: &'a WaitArgs,
    filters: Filters,
    pub(super) state: WaitState,
    /// The reason why the result is unknown. None if the newest answers prove the state.
    doubt: Option<String>,
    /// True if the cluster has answered, and the values of the filters exist.
    are_filters_checked: bool,
    /// The line of progress that was printed last.
    printed: String,
}

impl<'a> OperationWait<'a> {
    pub(super) fn new(args: &'a WaitArgs, filters: Filters) -> Self {
        Self {
            args,
            filters,
            state: WaitState::new(args.settings),
            doubt: Some(NO_ANSWER.to_owned()),
            are_filters_checked: false,
            printed: String::new(),
        }
    }

    /// Waits until the goal is reached or cannot be reached, or until the result has been unknown
    /// for [`MAX_UNKNOWN_TIME`]. An error that cannot go away ends the wait at once. With
    /// `--timeout=0`, the command does not wait: it ends after the first attempt.
    pub(super) async fn run(&mut self) -> Step<Infallible> {
        let mut server = self.args.connect.open().await?;
        self.filters.resolve(&server).await;
        // The last time at which all requests and watches worked.
        let mut worked = Instant::now();
        loop {
            // A connection can hang, and then no request ends.
            let attempt = timeout(MAX_UNKNOWN_TIME, self.attempt(&mut server)).await;
            let attempt = attempt.unwrap_or_else(|_| Err(WaitEnd::Unknown(NO_REPLY.to_owned())));
            let why = match attempt {
                Ok(()) => {
                    worked = Instant::now();
                    continue;
                }
                Err(WaitEnd::Error(problem)) if self.is_temporary(&problem) => problem.to_string(),
                // The user may list no operations, so the result stays unknown.
                Err(WaitEnd::Error(refused @ Problem::Forbidden { .. })) => {
                    return Err(WaitEnd::Unknown(refused.to_string()));
                }
                Err(end) => return Err(end),
            };
            self.state.lost();
            if self.args.checks_once() || worked.elapsed() >= MAX_UNKNOWN_TIME {
                return Err(WaitEnd::Unknown(why));
            }
            self.doubt = Some(why);
            self.show();
            sleep(RETRY_INTERVAL).await;
        }
    }

    /// Returns true if the command tries again after this problem. After the first answer of the
    /// cluster, the command tries again after each problem that can go away. Before, it tries again
    /// only if the server is busy or unavailable. A wrong setting, such as a wrong address, can
    /// cause the other problems.
    fn is_temporary(&self, problem: &Problem) -> bool {
        use Problem::{Busy, Expired, Other, TimedOut, Unavailable, Unreachable};
        match problem {
            Busy(_) | Unavailable(_) => true,
            Unreachable(_) | TimedOut(_) | Expired | Other(_) => self.are_filters_checked,
            _ => false,
        }
    }

    /// Reads the present state, and decides whether the wait ends. If not, processes changes until
    /// the state must be read again.
    async fn attempt(&mut self, server: &mut ApiClient) -> Step {
        let rule_sets = RuleSets::read(server).await;
        let all = rule_sets.iter().flat_map(|it| &it.items);
        // `others` are rule sets that cannot detect matching operations, so they need not work. In
        // the header, the names of `--ignore-rule-set` come first.
        let others = all.filter(|it| !must_work(it, &self.filters, &[]));
        let others = others.map(ListedRuleSet::name);
        let ignored = self.args.ignored.iter().map(String::as_str).chain(others);
        // A header allows only some characters, and servers limit its length.
        let ignored = ignored.filter(|it| labels::is_subdomain(it));
        let ignored: Vec<&str> = ignored.take(MAX_IGNORED).collect();
        server.headers = vec![
            (IGNORED_HEADER, ignored.join(",")),
            (SELECTOR_HEADER, self.filters.label_selector()),
        ];
        if let Some(age) = self.idle_age(server).await {
            // If a filter is set, its value exists, because it has an activity.
            self.are_filters_checked = true;
            self.state.idle(age, Instant::now());
            self.decide(&rule_sets, Some(Ok(())), true)?;
            self.show();
            sleep(RETRY_INTERVAL).await;
            return Ok(());
        }
        let found = OperationSource::find(server.clone(), self.filters.clone()).await;
        let (source, listed) = found?;
        self.check_filters(&source, &listed).await?;
        if source.served == Served::Crs && self.args.settings.goal == WaitGoal::Idle {
            return Err(WaitEnd::Unknown(NOT_DETECTING.to_owned()));
        }
        // A list of custom resources has no field selector, so the answer contains completed ones
        // anyway. The next list keeps them, so that a completed one does not count as deleted.
        self.filters.all_phases = source.served == Served::Crs;
        for missing in self.state.missing_from(&listed) {
            self.ended(&source, missing).await;
        }
        self.state.listed(&listed, Instant::now());
        // Only `ifo-apiserver` states whether a list is complete. So with custom resources, `decide`
        // does not check the rule sets. The goal `idle` needs this check, so with custom resources
        // this function has returned an error for this goal above.
        let completeness = (source.served == Served::Live).then(|| source.completeness.clone());
        let sees_all = source.namespaces.is_none() || self.filters.namespace.is_some();
        self.decide(&rule_sets, completeness, sees_all)?;
        self.follow(&source, listed).await
    }

    /// Returns how long the activity of exactly the selected operations has been idle. Returns None
    /// if there is no such activity, if it is not idle, or if it cannot be read.
    async fn idle_age(&self, server: &ApiClient) -> Option<Duration> {
        let (settings, filters) = (self.args.settings, &self.filters);
        let ignores = settings.ignore_failing || settings.ignore_blocked;
        let is_other =
            ignores || !self.args.ignored.is_empty() || !filters.selector.text.is_empty();
        if settings.goal != WaitGoal::Idle || is_other {
            return None;
        }
        let fields = match filters.values().as_slice() {
            [] => "metadata.name=cluster".to_owned(),
            [FilterValue::Node(node)] => format!("metadata.name=node.{node}"),
            [FilterValue::Component(name)] => format!("metadata.name=component.{name}"),
            // A list without a field selector returns all activities of the namespace. A namespace
            // has one, but the namespace of the server has several, so this function returns None
            // there. This is intended: there, the activity named `namespace` also counts operations
            // on cluster-scoped objects, which `-n` does not select.
            [FilterValue::Namespace(_)] => String::new(),
            _ => return None,
        };
        // The activities of the cluster, of nodes and of components are in a namespace that is a
        // setting of the server. So without `-n`, this command lists all namespaces.
        let path = list_path(LIVE_GROUP, PLURAL, filters.namespace.as_deref());
        let query = query(&[("fieldSelector", &fields), ("limit", "2")]);
        let answer = server.answer(&format!("{path}?{query}")).await.ok();
        let answer = answer.filter(|it| it.completeness != Err(Incomplete::NotConfirmed))?;
        let list = ListItems::<Activity>::read(answer.text.as_bytes()).ok()?;
        let [activity] = list.items.as_slice() else {
            return None;
        };
        let idle = activity.idle().filter(|it| &*it.status == "True")?;
        let age = clock::now().duration_since(idle.last_transition_time.0);
        // The clock of the server can be ahead.
        Some(age.try_into().unwrap_or_default())
    }

    /// Checks, once, whether the values of the filters exist.
    async fn check_filters(
        &mut self,
        source: &OperationSource,
        listed: &[InFlightOperation],
    ) -> Step {
        if self.are_filters_checked {
            return Ok(());
        }
        let doubts = filter_check::check(&self.filters, source, listed).await?;
        if !self.args.quiet {
            source.print_note();
            // If no rule set can detect matching operations, the result of the wait says so. So no
            // warning is printed here.
            doubts.print_unchecked();
        }
        self.are_filters_checked = true;
        Ok(())
    }

    /// Processes the end of an operation. If the watch did not deliver the end, the goal
    /// `succeeded` takes the result from the record of the operation.
    async fn ended(&mut self, source: &OperationSource, mut operation: InFlightOperation) {
        if self.args.settings.goal == WaitGoal::Succeeded && operation.is_active() {
            let name = format!("metadata.name={}", operation.metadata.name);
            let found = records(source, &name).await.unwrap_or_default();
            let mut found = found.into_iter().filter(|it| it.key() == operation.key());
            operation = found.next().unwrap_or(operation);
        }
        // `ifo-apiserver` deletes a live operation only after its end.
        let is_certain = source.served == Served::Live || !operation.is_active();
        self.state.ended(&operation, is_certain, Instant::now());
    }

    /// Ends the wait if the state that was just read proves that it must end. `completeness` tells
    /// whether the list is complete. It is `Ok` if an activity decides, and None if the rule sets
    /// do not matter. `sees_all` is true if the user may list the operations of all selected
    /// namespaces.
    fn decide(
        &mut self,
        rule_sets: &Result<RuleSets, Problem>,
        completeness: Option<ListCompleteness>,
        sees_all: bool,
    ) -> Step {
        self.state.reached_at()?;
        // While an operation is active, the result is known even if rule sets do not work.
        let is_busy = self.state.active().next().is_some();
        if let Some(completeness) = completeness.filter(|_| !is_busy) {
            let ignored = &self.args.ignored;
            check_rule_sets(rule_sets.as_ref(), &self.filters, &completeness, ignored)?;
        }
        let checks_once = self.args.checks_once();
        if !(sees_all || is_busy && checks_once) {
            let why = "you may not list operations in all namespaces; name one with -n";
            return Err(WaitEnd::Unknown(why.to_owned()));
        }
        self.doubt = None;
        match self.state.reached_at()? {
            Some(at) if at <= Instant::now() => Err(WaitEnd::Reached),
            _ if checks_once => Err(WaitEnd::NotReached),
            _ => Ok(()),
        }
    }

    /// Processes changes until the state must be read again.
    async fn follow(&mut self, source: &OperationSource, listed: Vec<InFlightOperation>) -> Step {
        self.show();
        let mut changes = source.follow(listed)?;
        let next = Instant::now() + CHECK_INTERVAL;
        loop {
            let reached = self.state.reached_at()?;
            let next = reached.map_or(next, |at| at.min(next));
            // If a change is always ready, `timeout_at` never reports the timeout. So the time is
            // checked here, too.
            if next <= Instant::now() {
                return Ok(());
            }
            let Ok(change) = timeout_at(next, changes.next()).await else {
                return Ok(());
            };
            match change? {
                OperationChange::Applied(it) => self.state.applied(*it, Instant::now()),
                OperationChange::Deleted(operation) => self.ended(source, *operation).await,
                OperationChange::Synced | OperationChange::Incomplete(_) => {}
                // The next list shows whether the problem is permanent.
                OperationChange::Lost(problem) => {
                    return Err(Problem::Other(problem.to_string()).into());
                }
            }
        }
    }

    /// Prints the progress in one line. A single check prints no progress.
    fn show(&mut self) {
        if self.args.quiet || self.args.checks_once() {
            return;
        }
        let text = match &self.doubt {
            Some(why) => format!("still unknown: {why}"),
            None => format!("waiting: {}", self.state.reason()),
        };
        if without_ports(&self.printed) != without_ports(&text) {
            print_error_line(&text);
            self.printed = text;
        }
    }

    /// Returns the end of the wait after a timeout: failed, not reached, or unknown.
    pub(super) fn end_at_timeout(&self) -> WaitEnd {
        match (self.state.reached_at(), &self.doubt) {
            (Err(end), _) => end,
            (_, Some(why)) => WaitEnd::Unknown(why.clone()),
            // The goal seems to be reached, but no new answer has confirmed it.
            (Ok(Some(at)), _) if at <= Instant::now() => WaitEnd::Unknown(NO_ANSWER.to_owned()),
            _ => WaitEnd::NotReached,
        }
    }
}

/// Leaves out the digits after each colon. An error can contain the number of a client port, which
/// differs in each attempt.
fn without_ports(text: &str) -> String {
    let parts = text.split(':');
    let parts = parts.map(|it| it.trim_start_matches(char::is_numeric));
    parts.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_numbers_of_ports_are_left_out() {
        for (text, other, is_same) in [
            (
                "read 10.0.0.1:4242->10.0.0.2:443: reset",
                "read 10.0.0.1:99->10.0.0.2:443: reset",
                true,
            ),
            (
                "still unknown: 3 rule sets",
                "still unknown: 1 rule set",
                false,
            ),
            ("still unknown: node-1", "still unknown: node-2", false),
        ] {
            assert_eq!(
                without_ports(text) == without_ports(other),
                is_same,
                "{text}"
            );
        }
    }
}
