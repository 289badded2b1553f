//! `kubectl ifo rules replay`: a recorded watch stream through the rules, in virtual
//! time. Enters: rule sets and events. Leaves: the operations that the rules find, from
//! start to end.
//!
//! Changes have the time at which the server would show them. With `--hindsight`, an
//! operation that settled has ended when it stopped being detected; what settles when the
//! stream ends has ended, too.
//!
//! The rules are evaluated by `evaluate` and tracked by `track`, as in the server. What
//! the server does between its watch and these two (`observe::supervise`) is not run:
//!
//! - The server reads the start of an operation from `managedFields` where the rule does
//!   not say it; the replay takes the time of the event.
//! - The server carries each rule set's evaluation budget from object to object, and
//!   throttles a rule set that exhausts it on ten objects in a row; here every object has
//!   the whole budget.
//! - The server watches the namespaces and labels that all rule sets of a target select,
//!   and asks for an object that left the selection; here the events are what was
//!   recorded, and a `DELETED` event is a deletion.
//! - The server lists first, and relists after a broken watch; here every object that
//!   appears is new, also for `stateAfter`, and the stream has no gap.
//! - The server evaluates again what reads `now` at its own interval, and at most 1,000
//!   objects of a feed; here it is every 30 s, for all.
//! - The server keeps outcomes for five minutes after the last finding; here for ever.
//! - The server restores, retains and persists operations; here nothing of that happens.

mod history;
mod time_scale;

use super::input::Input;
use super::rule_sets;
use crate::output::{Format, complain, print, print_value, table};
use crate::problem::Problem;
use history::{History, Run};
use ifo_api::{Gvr, Source, duration};
use ifo_cel::Doc;
use ifo_client::kinds::KnownKinds;
use ifo_client::recording::{self, RecordedChange, RecordedEvent};
use ifo_engine::evaluate::{self, FieldFailure, Nameless, Subject};
use ifo_engine::rules::{RuleBook, RuleSet};
use ifo_engine::track::{self, Message, Settings, Tracker};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use time_scale::TimeScale;

/// How often the server evaluates what depends on the time again
/// (`K8S_INFORMER_RESYNC`'s default).
const RESYNC: Duration = Duration::from_secs(30);

/// The flags of the command.
#[derive(Debug, clap::Args)]
// The files after the flag are all its own, so that the others come first.
#[command(override_usage = "kubectl ifo rules replay [OPTIONS] <RULES>... --stream <FILE>...")]
#[command(after_help = "\
Differences from a server that watches:
  - a start that the rule does not say is the time of the event, not that in managedFields
  - each object has the whole evaluation budget: no rule set is throttled
  - events are taken as recorded: no selection of namespaces or labels is watched, and
    an object that leaves a selection is not told from one that is deleted
  - an object that appears is new, and its state begins then; nothing is listed first, and
    the stream has no gaps
  - what reads now is evaluated again every 30s, for any number of objects
  - outcomes count at any time, not only in the five minutes after the last detection
  - when the stream ends, what is in flight keeps its state and has no end
  - operations are neither restored nor retained nor persisted

Times are those at which the server shows a change. An operation that is no longer
detected ends after its debounce, unless its outcome ends it at once; if the stream ends
before, its state is Settling. With --hindsight, it has ended when it was last detected,
also if the stream ends before the debounce does.

The exit code is 1 if something cannot be read, or if an expression fails.

Examples:
  kubectl get vm -A -w --output-watch-events -o json > stream.json
  kubectl ifo rules replay my-rules.yaml --stream stream.json")]
pub(crate) struct Args {
    /// OperationRuleSets: files, folders (read as `kubectl apply -k` if they have a kustomization.yaml), - for standard input; also CRDs, for the names of their resources
    #[arg(required = true, value_name = "RULES")]
    rules: Vec<PathBuf>,
    /// Recorded watch events as JSON: {"t": seconds, "resource": "group/version/plural", "type", "object"} on each line, or what `kubectl get -w --output-watch-events -o json` prints; - for standard input
    #[arg(long, required = true, num_args = 1.., value_name = "FILE")]
    stream: Vec<PathBuf>,
    /// How long an operation must not be detected before it is over, as the server's --debounce-threshold
    #[arg(long, default_value = "30s", value_parser = debounce)]
    debounce: Duration,
    /// Show an operation that settled as ended when it stopped being detected, not when the server showed its end: after the debounce
    #[arg(long)]
    hindsight: bool,
    /// Form of the output
    #[arg(short = 'O', long, short_alias = 'o', value_enum, default_value_t = Format::Table)]
    output: Format,
}

/// The longest debounce: no stream is longer, and clocks can count it.
const LONGEST: Duration = Duration::from_hours(365 * 24);

fn debounce(text: &str) -> Result<Duration, String> {
    duration::parse(text)
        .filter(|duration| *duration <= LONGEST)
        .ok_or_else(|| "not a duration such as 30s, 5m or 1h30m".to_owned())
}

#[derive(Debug, Serialize)]
struct Runs {
    operations: Vec<Run>,
}

/// Prints the operations; true if everything could be read and no rule failed. The
/// operations are printed all the same: that a rule fails is part of what is replayed.
pub(super) fn run(args: &Args) -> Result<bool, Problem> {
    let mut rules = Input::read(&args.rules);
    let loaded = rule_sets::load(&mut rules);
    let mut well = rules.report();
    if loaded.is_empty() {
        return Ok(false);
    }
    let targets = rule_sets::by_target(&loaded);
    let objects = rules.objects.iter().map(|found| &found.object);
    let kinds = KnownKinds::of(objects).with_targets(targets.keys());
    let mut events = Vec::new();
    for path in &args.stream {
        let read = text(path).map(|text| recording::read(&text, &kinds));
        let faults = match read {
            Ok((more, faults)) => {
                events.extend(more);
                faults
            }
            Err(error) => vec![error.to_string()],
        };
        for fault in faults {
            complain("error", format!("{}: {fault}", path.display()));
            well = false;
        }
    }
    events.sort_by(|a, b| a.t.total_cmp(&b.t));
    if !events
        .iter()
        .any(|event| targets.contains_key(&event.resource))
    {
        complain("note", "no event is about a target of the rules");
    }
    let (operations, failures) = replay(&targets, &events, args.debounce, args.hindsight);
    for (failure, subject) in &failures {
        let (name, field, error) = (&failure.rule_set, &failure.field, &failure.error);
        complain("error", format!("{name}: {field}: {subject}: {error}"));
        well = false;
    }
    match args.output {
        Format::Table => print_table(&operations)?,
        format => print_value(&Runs { operations }, format)?,
    }
    Ok(well)
}

fn text(path: &Path) -> std::io::Result<String> {
    if path.as_os_str() == "-" {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text)?;
        return Ok(text);
    }
    if path.extension().is_some_and(|extension| extension == "gz") {
        let hint = "it is compressed: gunzip it, or pipe `gunzip -c` into --stream -";
        return Err(std::io::Error::other(hint));
    }
    std::fs::read_to_string(path)
}

/// What failed, and on which object first.
type Failed = (FieldFailure, String);

/// Failures that are told: one that goes wrong on every event is told once, but a
/// message may differ each time.
const MAX_FAILURES: usize = 100;

/// Runs `events`, which are in order, through the rules. With `hindsight`, what settles when
/// the stream ends has ended when it stopped being detected.
fn replay(
    targets: &BTreeMap<Gvr, Vec<Arc<RuleSet>>>,
    events: &[RecordedEvent],
    debounce: Duration,
    hindsight: bool,
) -> (Vec<Run>, Vec<Failed>) {
    let mut player = Player::new(TimeScale::of(events), debounce, History::new(hindsight));
    player.begin(targets, events);
    for event in events {
        player.until(event.t);
        player.event(event);
    }
    if hindsight {
        player.settle();
    }
    (player.history.into_runs(), player.failures)
}

/// The server's rooms, on the stream's clocks.
struct Player {
    scale: TimeScale,
    tracker: Tracker,
    books: BTreeMap<Gvr, (Source, Arc<RuleBook>)>,
    /// Objects whose evaluation read `now`, and the next time to do that again.
    timed: BTreeMap<Arc<str>, (Gvr, Subject, Vec<u8>)>,
    resync: Instant,
    history: History,
    failures: Vec<Failed>,
}

impl Player {
    fn new(scale: TimeScale, debounce: Duration, history: History) -> Self {
        let settings = Settings {
            debounce,
            retain: None,
            cluster_namespace: "ifo-system".into(),
        };
        Self {
            resync: scale.start() + RESYNC,
            scale,
            tracker: Tracker::new(settings, Arc::new(())),
            books: BTreeMap::new(),
            timed: BTreeMap::new(),
            history,
            failures: Vec::new(),
        }
    }

    /// Publishes the rules of all targets that the stream has, whose watches are then
    /// up to date.
    fn begin(&mut self, targets: &BTreeMap<Gvr, Vec<Arc<RuleSet>>>, events: &[RecordedEvent]) {
        for (target, rule_sets) in targets {
            let mut about = events.iter().filter(|event| event.resource == *target);
            let Some(first) = about.next() else { continue };
            let namespaced = first.object.namespace.is_some();
            let book = rule_sets::book(target.clone(), &first.object.kind, namespaced, rule_sets);
            let target = Arc::new(target.clone());
            let source = Source {
                target: target.clone(),
                namespace: None,
            };
            let rules = Message::Rules {
                target: target.clone(),
                book: Some(book.clone()),
                removed: false,
            };
            let now = self.scale.first();
            self.tracker.advance(rules, now);
            self.books.insert((*target).clone(), (source, book));
            self.tell(&target, track::Event::Reset, now);
            self.tell(&target, track::Event::Synced { missing: None }, now);
        }
    }

    fn tell(&mut self, target: &Gvr, event: track::Event, now: track::Now) {
        let Some((source, book)) = self.books.get(target) else {
            return;
        };
        let message = Message::Feed {
            source: source.clone(),
            generation: book.generation,
            event,
        };
        self.tracker.advance(message, now);
        self.commit(now);
    }

    /// Lets time pass up to `t`: what falls due on the way does.
    fn until(&mut self, t: f64) {
        let to = self.scale.at(t).steady;
        while let Some(due) = self.due().filter(|due| *due <= to) {
            self.fall_due(due);
        }
        while self.resync <= to {
            self.resync += RESYNC;
        }
    }

    /// When something happens without an event.
    fn due(&self) -> Option<Instant> {
        let resync = (!self.timed.is_empty()).then_some(self.resync);
        let deadline = self.tracker.next_deadline();
        deadline.into_iter().chain(resync).min()
    }

    fn fall_due(&mut self, due: Instant) {
        let now = self.scale.when(due);
        if !self.timed.is_empty() && self.resync == due {
            self.again(now);
            self.resync = due + RESYNC;
        }
        self.commit(now);
    }

    fn again(&mut self, now: track::Now) {
        let timed: Vec<_> = self.timed.values().cloned().collect();
        for (target, subject, json) in timed {
            self.applied(&target, &subject, &json, now);
        }
    }

    fn event(&mut self, event: &RecordedEvent) {
        if !self.books.contains_key(&event.resource) {
            return;
        }
        let now = self.scale.at(event.t);
        let json = event.object.json.to_string().into_bytes();
        let subject = Subject {
            uid: event.object.uid().map(Into::into),
            name: event.object.name.as_str().into(),
            namespace: event.object.namespace.as_deref().map(Into::into),
            ..Subject::default()
        };
        let detected = match event.change {
            RecordedChange::Applied => self.applied(&event.resource, &subject, &json, now),
            RecordedChange::Deleted => {
                self.deleted(&event.resource, subject, &json, now);
                Vec::new()
            }
        };
        self.history.heard(&event.object, event.t, detected);
    }

    /// Yields the operations that rules detect on the object. `subject` is the object's
    /// identity, for an object that cannot be decoded.
    fn applied(
        &mut self,
        target: &Gvr,
        subject: &Subject,
        json: &[u8],
        now: track::Now,
    ) -> Vec<Arc<str>> {
        let Some((_, book)) = self.books.get(target) else {
            return Vec::new();
        };
        let evaluation = match Doc::parse(json, &book.projection) {
            Ok(doc) => match evaluate::evaluate(book, &doc, now.wall, &()) {
                Ok(evaluation) => evaluation,
                // The stream's reader has refused objects without a name.
                Err(Nameless) => return Vec::new(),
            },
            // As in the server, operations on an object that cannot be decoded stay as they are.
            Err(error) => evaluate::undecided(book, subject.clone(), &error.into(), now.wall, &()),
        };
        for failure in &evaluation.failures {
            if self.failures.len() < MAX_FAILURES
                && self.failures.iter().all(|(told, _)| told != failure)
            {
                let subject = evaluation.subject.path();
                self.failures.push((failure.clone(), subject));
            }
        }
        let identity = evaluation.subject.identity(target);
        if evaluation.read_now {
            let timed = (target.clone(), subject.clone(), json.to_vec());
            self.timed.insert(identity, timed);
        } else {
            self.timed.remove(&identity);
        }
        let findings = evaluation.findings.iter();
        let detected = findings
            .filter(|it| it.says.as_ref().is_some_and(|says| !says.continues))
            .map(|it| it.operation.clone())
            .collect();
        let read = Instant::now();
        self.tell(
            target,
            track::Event::Evaluated {
                evaluation: Box::new(evaluation),
                read,
            },
            now,
        );
        detected
    }

    /// `bare` is the object's identity, for an object that cannot be decoded.
    fn deleted(&mut self, target: &Gvr, bare: Subject, json: &[u8], now: track::Now) {
        let Some((_, book)) = self.books.get(target) else {
            return;
        };
        let subject = Doc::parse(json, &book.projection)
            .ok()
            .and_then(|doc| Subject::read(&doc).ok())
            .unwrap_or(bare);
        self.timed.remove(&subject.identity(target));
        let read = Instant::now();
        self.tell(target, track::Event::Deleted { subject, read }, now);
    }

    /// Ends what is due, and takes note of what can be seen.
    fn commit(&mut self, now: track::Now) {
        self.tracker.expire(now);
        let t = self.scale.seconds(now.steady);
        for change in self.tracker.take_changes() {
            self.history.changed(change, t, &self.scale);
        }
    }

    /// Ends what is not detected when the stream ends: time goes on until all debounces are
    /// over.
    fn settle(&mut self) {
        self.timed.clear();
        self.history.close();
        while self.history.is_settling()
            && let Some(due) = self.due()
        {
            self.fall_due(due);
        }
    }
}

fn print_table(operations: &[Run]) -> Result<(), Problem> {
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
    let rows: Vec<_> = operations.iter().map(Run::row).collect();
    if rows.is_empty() {
        complain("note", "no operations");
    } else {
        print(&table(header, &rows))?;
    }
    Ok(())
}
