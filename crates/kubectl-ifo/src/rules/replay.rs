//! `kubectl ifo rules replay`: evaluates rules on a recorded watch stream. All times are times of
//! the recording, so the command does not wait.
//!
//! The output has the start, the end and the changes of each operation, at the times at which the
//! server would show them. If an operation is no longer detected, its end depends on the rule:
//!
//! - If the rule yields an outcome, the operation ends at once.
//! - Otherwise, the operation ends after the debounce period. If the operation is detected again
//!   within the debounce period, it does not end.
//!
//! With `--hindsight`, an operation ends when the rules no longer detect it. This also applies to
//! operations whose debounce period is not over at the end of the stream.
//!
//! [`Replay`] detects and tracks the operations with the same code as the server. A test of the
//! server compares the results of a replay with the results of the server's watches. A recording
//! does not contain all facts that the server knows, so these differences remain:
//!
//! - The server first lists a target (a watched resource), and lists it again after an interruption
//!   of the watch. A replay has no list and no interruption: each object counts as new when it
//!   first appears. The time `stateAfter` of a rule then also counts from this appearance.
//! - A watch with a label selector reports an object as deleted if the object no longer matches.
//!   The server then reads the object, to find out whether the object still exists. In a replay,
//!   the object still exists if a later event adds or changes the object with this UID.
//! - The server evaluates rules that use `now` at regular intervals. The first interval begins with
//!   the watch. In a replay, the first interval begins with the stream.
//! - A replay does not take over operations of an earlier leader, does not keep completed
//!   operations, and does not write custom resources.

mod operation_history;
mod recorded_time;

use super::rule_sets::{LoadedRules, RuleFiles, load};
use crate::cluster::problem::Problem;
use crate::operations::from_files::text;
use crate::output::print::{Format, complain, formats, print, print_value, table};
use ifo_api::duration;
use ifo_client::recorded_watch::{self, RecordedChange, RecordedEvent};
use ifo_engine::replay::{Replay, ReplayedObject};
use ifo_engine::track::TrackerSettings;
use operation_history::{OperationHistory, Recorder};
use recorded_time::TimeScale;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

/// Interval at which the rules that use `now` are evaluated again. This is the default of the
/// server's setting `K8S_INFORMER_RESYNC`.
const RESYNC: Duration = Duration::from_secs(30);

/// Largest number of records of completed operations that the tracker keeps. Records have no effect
/// on the output of this command.
const MAX_RECORDS: usize = 1_000;

/// The arguments of `rules replay`.
#[derive(Debug, clap::Args)]
// `--stream` takes all arguments up to the next flag. So the usage shows the rule sets before
// `--stream`.
#[command(override_usage = "kubectl ifo rules replay [OPTIONS] <RULES>... --stream <FILE>...")]
#[command(after_help = "\
Differences from the server:
  - every object that appears is new; there is no list at the beginning, and no gap
  - a DELETED event is a deletion. There is one exception: if the stream contains the same
    object again later, and all rule sets of its resource have the same label selector,
    the object only stopped matching the selector
  - an operation that is in flight at the end of the stream has no end
  - operations are neither restored nor retained nor persisted

The output has the times at which the server would show a change. An operation that is no
longer detected ends after its debounce period, or at once if its rule yields an outcome.
If the stream ends before that, its state is Settling. With --hindsight, such an operation
ends when it is no longer detected, also at the end of the stream.

The exit code is 1 if a file cannot be read, if a rule set or an event is invalid, if the
stream contains an ERROR event, or if an expression fails.

Examples:
  kubectl get vm -A -w --output-watch-events -o json > stream.json
  kubectl ifo rules replay my-rules.yaml --stream stream.json")]
pub(crate) struct Args {
    #[command(flatten)]
    rules: RuleFiles,
    /// Recorded watch events as JSON: {"t": seconds, "resource": "group/version/plural", "type",
    /// "object"} on each line, or the output of `kubectl get -w --output-watch-events -o json`;
    /// `-` for standard input
    #[arg(long, required = true, num_args = 1.., value_name = "FILE")]
    stream: Vec<PathBuf>,
    /// Time for which an operation must not be detected before it ends, as the server's
    /// --debounce-threshold
    #[arg(long, default_value = "30s", value_parser = debounce)]
    debounce: Duration,
    /// Let an operation end when it is no longer detected, not at the end of its debounce period
    #[arg(long)]
    hindsight: bool,
    /// Output format
    #[arg(short = 'O', long, short_alias = 'o', value_parser = formats(["table", "json", "yaml"]), default_value = "table")]
    output: Format,
}

/// The longest accepted debounce period: a year. A year is longer than any recording, and short
/// enough that times cannot overflow. A longer period is an error.
const MAX_DEBOUNCE: Duration = Duration::from_hours(365 * 24);

fn debounce(text: &str) -> Result<Duration, String> {
    duration::parse(text)
        .filter(|duration| *duration <= MAX_DEBOUNCE)
        .ok_or_else(|| "not a duration of at most a year, such as 30s, 5m or 1h30m".to_owned())
}

/// Replays the stream and prints the operations. Returns true if all files could be read, all rule
/// sets and events are valid, no event is an `ERROR`, and no expression failed. The operations are
/// printed even if an expression failed.
pub(super) fn run(args: &Args) -> Result<bool, Problem> {
    let Some(rules) = load(&args.rules.files) else {
        return Ok(false);
    };
    let kinds = rules.kinds(&[]);
    let (mut events, mut faults) = (Vec::new(), Vec::new());
    for path in &args.stream {
        let (found, why) = match text(path) {
            Ok(text) => recorded_watch::read(&text, &kinds),
            Err(error) => (Vec::new(), vec![error.to_string()]),
        };
        events.extend(found);
        faults.extend(why.iter().map(|it| format!("{}: {it}", path.display())));
    }
    events.sort_by(|a, b| a.t.total_cmp(&b.t));
    let (operations, failures) = replay(&rules, &events, args.debounce, args.hindsight);
    faults.extend(failures);
    for fault in &faults {
        complain("error", fault);
    }
    match args.output {
        Format::Table => print_table(&operations)?,
        format => {
            let documents = operations.iter().map(OperationHistory::document);
            let documents: Vec<Value> = documents.collect();
            print_value(&json!({"operations": documents}), format)?;
        }
    }
    Ok(rules.is_valid && faults.is_empty())
}

/// Replays `events`, which are sorted by time, and returns the operations and the failures. Prints a
/// warning for each rule set with too many operations. With `hindsight`, operations end when they
/// are no longer detected, even if their debounce period is not over at the end of the stream.
fn replay(
    rules: &LoadedRules,
    events: &[RecordedEvent],
    debounce: Duration,
    hindsight: bool,
) -> (Vec<OperationHistory>, Vec<String>) {
    let settings = TrackerSettings {
        debounce,
        retain: None,
        max_records: MAX_RECORDS,
        cluster_namespace: "ifo-system".into(),
    };
    let scale = TimeScale::of(events);
    let mut replay = Replay::new(settings, RESYNC, scale.begin, Recorder::new(scale));
    let books = rules.books(events.iter().map(|it| (&it.resource, &it.object)));
    if books.values().all(|it| it.rule_sets.is_empty()) {
        complain("note", "no event is about a target of the rules");
    }
    for book in books.values() {
        replay.add_book(book);
    }
    let last_applied = last_applied(events);
    for (index, event) in events.iter().enumerate() {
        replay.advance_to(scale.at(event.t));
        let json = event.object.json.to_string();
        let object = ReplayedObject {
            target: &event.resource,
            namespace: event.object.namespace.as_deref(),
            json: json.as_bytes(),
        };
        match event.change {
            RecordedChange::Applied => replay.applied(object),
            RecordedChange::Deleted => {
                let uid = event.object.uid();
                let applied = uid.and_then(|uid| last_applied.get(uid));
                replay.deleted(object, applied.is_some_and(|last| *last > index));
            }
        }
    }
    if hindsight {
        replay.observer.closed = true;
        while replay.observer.is_settling() && replay.expire_next() {}
    }
    // The activities lose the reached bounds when the replay is dropped.
    for rule_set in rules.rule_sets.iter().map(|it| &it.compiled) {
        if let Some(reached) = rule_set.activity.reached_bound() {
            let name = &rule_set.name;
            complain("warning", format!("{name}: too many operations: {reached}"));
        }
    }
    replay.observer.into_results(hindsight)
}

/// Returns the index of the last event of each object that is not a deletion. The keys are the UIDs
/// of the objects.
fn last_applied(events: &[RecordedEvent]) -> HashMap<&str, usize> {
    let indexed = events.iter().enumerate();
    let applied = indexed.filter(|(_, event)| event.change == RecordedChange::Applied);
    applied
        .filter_map(|(index, event)| Some((event.object.uid()?, index)))
        .collect()
}

fn print_table(operations: &[OperationHistory]) -> Result<(), Problem> {
    let header = [
        "STARTED",
        "COMPLETED",
        "SUBJECT",
        "OPERATION",
        "STATE",
        "REASON",
        "CHANGES",
        "MESSAGES",
    ];
    let rows: Vec<_> = operations.iter().map(OperationHistory::row).collect();
    if rows.is_empty() {
        complain("note", "no operations");
    } else {
        print(table(header, &rows))?;
    }
    Ok(())
}

#[cfg(test)]
mod migration_tests;
