//! What a served resource is: its names, its table columns, its selectable fields and
//! the index that holds its objects. Everything else in this room works on any such
//! description; the two that exist stand at the end.

use super::lines::LineCache;
use super::status::ErrorStatus;
use crate::index::{IndexEntry, IndexReader, ObjectTexts, TextField};
use ifo_api::{GROUP, LIVE_GROUP, VERSION, live, ruleset};
use jiff::Timestamp;
use serde::Deserialize;
use std::borrow::Cow;
use std::io::Write as _;
use std::sync::Arc;

/// A fact of an object that is shown and selected as a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fact {
    /// A text of its JSON.
    Text(TextField),
    /// `status.phase`.
    Phase,
    /// `status.state`.
    State,
}

impl Fact {
    /// The text; None if it is absent.
    pub fn read<'a>(self, entry: &IndexEntry, texts: &'a ObjectTexts<'_>) -> Option<Cow<'a, str>> {
        match self {
            Self::Text(field) => texts.text(field),
            Self::Phase => entry.facts().phase.map(|phase| phase.name().into()),
            Self::State => entry.facts().state.map(|state| state.name().into()),
        }
    }
}

/// One resource that this server serves, read-only: get, list and watch.
#[derive(Clone)]
pub struct Resource {
    /// API group.
    pub group: &'static str,
    /// API version.
    pub version: &'static str,
    /// Plural, as paths have it.
    pub plural: &'static str,
    /// Kind of one object.
    pub kind: &'static str,
    /// Kind of a list.
    pub list_kind: &'static str,
    /// Whether the objects live in namespaces.
    pub namespaced: bool,
    /// Short names that kubectl takes for the plural.
    pub short_names: &'static [&'static str],
    /// Categories, such as `all`, that kubectl lists it under.
    pub categories: &'static [&'static str],
    /// Table columns, in order.
    pub columns: &'static [Column],
    /// Selectable fields; `metadata.name` and `metadata.namespace` come in addition to them.
    pub fields: &'static [(&'static str, Fact)],
    /// The JSON schema of the kind, definitions under `$defs`, as `OpenAPI` and
    /// `kubectl explain` show it.
    pub schema: fn() -> schemars::Schema,
    /// Where the objects are.
    pub reader: IndexReader,
    /// What its watchers share.
    pub lines: Arc<LineCache>,
}

impl Resource {
    /// `group/version`.
    pub fn api_version(&self) -> String {
        format!("{}/{}", self.group, self.version)
    }

    /// The answer for an object that is not there.
    pub(super) fn no_object(&self, name: &str) -> ErrorStatus {
        ErrorStatus::no_object(self.group, self.plural, name)
    }

    /// `plural.group`, as messages name the resource.
    pub fn qualified(&self) -> String {
        format!("{}.{}", self.plural, self.group)
    }
}

/// One column of a table, as `meta.k8s.io/v1` `TableColumnDefinition` has it.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// Header.
    pub name: &'static str,
    /// `OpenAPI` type of the cells: `string`, `integer`, `boolean` or `date`.
    pub kind: &'static str,
    /// `OpenAPI` format of the cells, such as `name`, or empty.
    pub format: &'static str,
    /// What the column shows.
    pub description: &'static str,
    /// 0 is always shown, 1 with `-o wide`.
    pub priority: i32,
    /// Where the cells come from.
    pub cell: Cell,
}

/// Where a cell comes from.
#[derive(Clone, Copy, Debug)]
pub enum Cell {
    /// A fact; null if absent.
    Fact(Fact),
    /// How long the start is ago, as kubectl prints ages; `<unknown>` if absent.
    Age,
    /// The value at a JSON pointer into the object; null if absent. Reading it decodes the
    /// whole object.
    Pointer(&'static str),
    /// Writes one JSON value.
    Function(fn(&IndexEntry, &ObjectTexts<'_>, &mut Vec<u8>)),
}

/// A column of strings.
const fn text(name: &'static str, priority: i32, cell: Cell, description: &'static str) -> Column {
    Column {
        name,
        kind: "string",
        format: "",
        description,
        priority,
        cell,
    }
}

/// The columns Name and Age, which every kind has.
const fn name_column() -> Column {
    Column {
        format: "name",
        ..text(
            "Name",
            0,
            Cell::Fact(Fact::Text(TextField::Name)),
            "Name must be unique within a namespace. It is made from the subject's name, \
             the operation and a hash of its identity and start.",
        )
    }
}

const fn age_column(description: &'static str) -> Column {
    Column {
        kind: "date",
        ..text("Age", 0, Cell::Age, description)
    }
}

static LIVE_COLUMNS: &[Column] = &[
    name_column(),
    text(
        "Kind",
        0,
        Cell::Fact(Fact::Text(TextField::SubjectKind)),
        "Kind of the subject.",
    ),
    text(
        "Subject",
        0,
        Cell::Function(subject),
        "Name of the subject, with the item where a rule yields several operations.",
    ),
    text(
        "Operation",
        0,
        Cell::Fact(Fact::Text(TextField::Operation)),
        "Name of the operation.",
    ),
    text("Phase", 0, Cell::Fact(Fact::Phase), "Active or Completed."),
    text(
        "State",
        0,
        Cell::Fact(Fact::State),
        "How an active operation goes, or how a completed one ended.",
    ),
    text(
        "Progress",
        0,
        Cell::Function(progress),
        "How far it is, where that is known.",
    ),
    age_column("Time since the operation started."),
    text(
        "Message",
        0,
        Cell::Fact(Fact::Text(TextField::Message)),
        "What to tell a person about it.",
    ),
    text(
        "Component",
        1,
        Cell::Fact(Fact::Text(TextField::Component)),
        "Component that the rule set belongs to.",
    ),
    text(
        "RuleSet",
        1,
        Cell::Fact(Fact::Text(TextField::RuleSet)),
        "Rule set that detected it first.",
    ),
    text(
        "Reason",
        1,
        Cell::Fact(Fact::Text(TextField::Reason)),
        "Reason for the state.",
    ),
    text(
        "Started",
        1,
        Cell::Function(started),
        "When the operation started.",
    ),
    text(
        "Completed",
        1,
        Cell::Function(completed),
        "When the operation ended.",
    ),
];

/// `"name"`, or `"name/item"` for one of several operations of a subject.
fn subject(_: &IndexEntry, texts: &ObjectTexts<'_>, out: &mut Vec<u8>) {
    let name = TextField::SubjectName;
    match (texts.text(name), texts.text(TextField::Item)) {
        (Some(name), Some(item)) => write_text(Some(&format!("{name}/{item}")), out),
        _ => write_literal(texts.literal(name), out),
    }
}

fn progress(entry: &IndexEntry, _: &ObjectTexts<'_>, out: &mut Vec<u8>) {
    let progress = entry.facts().progress;
    write_text(progress.map(|it| format!("{it}%")).as_deref(), out);
}

fn started(entry: &IndexEntry, _: &ObjectTexts<'_>, out: &mut Vec<u8>) {
    write_time(entry.facts().started, out);
}

fn completed(entry: &IndexEntry, _: &ObjectTexts<'_>, out: &mut Vec<u8>) {
    write_time(entry.facts().completed, out);
}

/// Writes a JSON string as it stands in an object, or null.
pub(super) fn write_literal(literal: Option<&[u8]>, out: &mut Vec<u8>) {
    out.extend_from_slice(literal.unwrap_or(b"null"));
}

/// Writes a text as JSON, or null.
pub(super) fn write_text(text: Option<&str>, out: &mut Vec<u8>) {
    serde_json::to_writer(out, &text).expect("writing to a Vec cannot fail");
}

/// Writes a time as JSON, or null. The times of facts are whole seconds, which are printed without
/// a fraction, as Kubernetes' `Time` has them. Its `Serialize` takes several times as long.
fn write_time(time: Option<Timestamp>, out: &mut Vec<u8>) {
    match time {
        Some(time) => write!(out, "\"{time}\"").expect("writing to a Vec cannot fail"),
        None => out.extend_from_slice(b"null"),
    }
}

/// `InFlightOperation` in `live.ifo.kubevirt.io`: what this server is for.
pub fn inflight_operations(reader: IndexReader) -> Resource {
    Resource {
        group: LIVE_GROUP,
        version: VERSION,
        plural: live::PLURAL,
        kind: live::KIND,
        list_kind: "InFlightOperationList",
        namespaced: true,
        short_names: &["ifo", "ifos"],
        categories: &[],
        columns: LIVE_COLUMNS,
        fields: &[
            ("spec.operation", Fact::Text(TextField::Operation)),
            ("spec.component", Fact::Text(TextField::Component)),
            ("spec.ruleSet", Fact::Text(TextField::RuleSet)),
            ("spec.item", Fact::Text(TextField::Item)),
            (
                "spec.subject.apiVersion",
                Fact::Text(TextField::SubjectApiVersion),
            ),
            ("spec.subject.kind", Fact::Text(TextField::SubjectKind)),
            ("spec.subject.name", Fact::Text(TextField::SubjectName)),
            (
                "spec.subject.namespace",
                Fact::Text(TextField::SubjectNamespace),
            ),
            ("spec.subject.uid", Fact::Text(TextField::SubjectUid)),
            ("status.phase", Fact::Phase),
            ("status.state", Fact::State),
        ],
        schema: || schemars::schema_for!(live::InFlightOperation),
        reader,
        lines: Arc::new(LineCache::new()),
    }
}

/// The CRD's printer columns, in their order.
static RULE_SET_COLUMNS: &[Column] = &[
    Column {
        description: "Name must be unique.",
        ..name_column()
    },
    text(
        "Component",
        0,
        Cell::Pointer("/spec/component"),
        "Component that owns the rules.",
    ),
    // The plural alone: all that the CRD's printer column, a single JSONPath, can show.
    text(
        "Target",
        0,
        Cell::Pointer("/spec/target/resource"),
        "The resource that is watched.",
    ),
    text(
        "Ready",
        0,
        Cell::Function(ready),
        "Whether operations are detected on every object of the target.",
    ),
    text(
        "Reason",
        0,
        Cell::Function(reason),
        "Why the rule set is ready, or is not.",
    ),
    age_column("Time since the rule set was made."),
    text(
        "Group",
        1,
        Cell::Pointer("/spec/target/group"),
        "API group of the resource that is watched; empty is the core group.",
    ),
    Column {
        kind: "boolean",
        ..text(
            "Watch Active",
            1,
            Cell::Pointer("/status/watchActive"),
            "Whether the target is being watched.",
        )
    },
];

/// Status of the condition `Ready`, or null.
fn ready(entry: &IndexEntry, _: &ObjectTexts<'_>, out: &mut Vec<u8>) {
    of_ready(entry, |condition| condition.status, out);
}

/// Reason of the condition `Ready`, or null.
fn reason(entry: &IndexEntry, _: &ObjectTexts<'_>, out: &mut Vec<u8>) {
    of_ready(entry, |condition| condition.reason, out);
}

#[derive(Deserialize)]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
    reason: Option<String>,
}

fn of_ready<T: Into<serde_json::Value>>(
    entry: &IndexEntry,
    what: impl Fn(Condition) -> T,
    out: &mut Vec<u8>,
) {
    let object: serde_json::Value = serde_json::from_slice(&entry.json()).unwrap_or_default();
    let conditions = object.pointer("/status/conditions");
    let told = conditions
        .and_then(|all| Vec::<Condition>::deserialize(all).ok())
        .and_then(|all| all.into_iter().find(|condition| condition.kind == "Ready"))
        .map(|condition| what(condition).into());
    out.extend_from_slice(told.unwrap_or_default().to_string().as_bytes());
}

/// `OperationRuleSet`, for a server without a cluster whose CRD would serve it.
pub fn operation_rule_sets(reader: IndexReader) -> Resource {
    Resource {
        group: GROUP,
        version: VERSION,
        plural: "operationrulesets",
        kind: "OperationRuleSet",
        list_kind: "OperationRuleSetList",
        namespaced: false,
        short_names: &["ors"],
        categories: &[],
        columns: RULE_SET_COLUMNS,
        fields: &[],
        schema: || schemars::schema_for!(ruleset::OperationRuleSet),
        reader,
        lines: Arc::new(LineCache::new()),
    }
}
