//! Descriptions of the served resources: names, table columns, selectable fields, and the index of
//! the objects. The other modules work with any such description. The two existing descriptions are
//! at the end of this file.

use super::line_cache::LineCache;
use super::status::ErrorStatus;
use crate::index::{IndexReader, ObjectTexts, TextField};
use ifo_api::{GROUP, LIVE_GROUP, VERSION, live, ruleset};
use serde::Deserialize;
use std::sync::Arc;

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
    /// True if the resource is namespaced.
    pub namespaced: bool,
    /// Short names that kubectl takes for the plural.
    pub short_names: &'static [&'static str],
    /// Categories, such as `all`, that kubectl lists it under.
    pub categories: &'static [&'static str],
    /// Table columns, in order.
    pub columns: &'static [Column],
    /// Selectable fields, in addition to `metadata.name` and `metadata.namespace`.
    pub fields: &'static [(&'static str, TextField)],
    /// The JSON schema of the kind, with definitions under `$defs`, for `OpenAPI` and `kubectl
    /// explain`.
    pub schema: fn() -> schemars::Schema,
    /// The index of the objects.
    pub reader: IndexReader,
    /// The lines that watchers share.
    pub lines: Arc<LineCache>,
}

impl Resource {
    /// `group/version`.
    pub fn api_version(&self) -> String {
        format!("{}/{}", self.group, self.version)
    }

    /// The answer for an object that does not exist.
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
    /// The meaning of the column.
    pub description: &'static str,
    /// 0 for columns that are always shown, 1 for `-o wide`.
    pub priority: i32,
    /// The source of the cells.
    pub cell: Cell,
}

/// The source of a cell.
#[derive(Clone, Copy, Debug)]
pub enum Cell {
    /// A text. Null if it is absent.
    Text(TextField),
    /// The age in kubectl's format. `<unknown>` if the start is absent.
    Age,
    /// The value at a JSON pointer. Null if it is absent. It needs the decoding of the whole
    /// object.
    Pointer(&'static str),
    /// Writes one JSON value.
    Function(fn(&ObjectTexts<'_>, &mut Vec<u8>)),
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
            Cell::Text(TextField::Name),
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
        Cell::Text(TextField::SubjectKind),
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
        Cell::Text(TextField::Operation),
        "Name of the operation.",
    ),
    text(
        "Phase",
        0,
        Cell::Text(TextField::Phase),
        "Active or Completed.",
    ),
    text(
        "State",
        0,
        Cell::Text(TextField::State),
        "State of an active operation, or result of a completed one.",
    ),
    text(
        "Progress",
        0,
        Cell::Function(progress),
        "Progress in percent, if it is known.",
    ),
    age_column("Time since the operation started."),
    text(
        "Message",
        0,
        Cell::Text(TextField::Message),
        "Message for people.",
    ),
    text(
        "Component",
        1,
        Cell::Text(TextField::Component),
        "Component that the rule set belongs to.",
    ),
    text(
        "RuleSet",
        1,
        Cell::Text(TextField::RuleSet),
        "Rule set that detected it first.",
    ),
    text(
        "Reason",
        1,
        Cell::Text(TextField::Reason),
        "Reason for the state.",
    ),
    text(
        "Started",
        1,
        Cell::Text(TextField::Started),
        "When the operation started.",
    ),
    text(
        "Completed",
        1,
        Cell::Text(TextField::Completed),
        "When the operation ended.",
    ),
];

/// `"name"`, or `"name/item"` for one of several operations of a subject.
fn subject(texts: &ObjectTexts<'_>, out: &mut Vec<u8>) {
    let name = texts.literal(TextField::SubjectName);
    write_literal(name, out);
    if let (Some(_), Some([_, item @ ..])) = (name, texts.literal(TextField::Item)) {
        out.pop(); // The quote at the end of the name.
        out.push(b'/');
        out.extend_from_slice(item);
    }
}

fn progress(texts: &ObjectTexts<'_>, out: &mut Vec<u8>) {
    let progress = texts.facts.progress;
    write_text(progress.map(|it| format!("{it}%")).as_deref(), out);
}

/// Writes a JSON string of an object, or null.
pub(super) fn write_literal(literal: Option<&[u8]>, out: &mut Vec<u8>) {
    out.extend_from_slice(literal.unwrap_or(b"null"));
}

/// Writes a text as JSON, or null.
pub(super) fn write_text(text: Option<&str>, out: &mut Vec<u8>) {
    serde_json::to_writer(out, &text).expect("writing to a Vec cannot fail");
}

/// `InFlightOperation` in `live.ifo.kubevirt.io`.
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
            ("spec.operation", TextField::Operation),
            ("spec.component", TextField::Component),
            ("spec.ruleSet", TextField::RuleSet),
            ("spec.item", TextField::Item),
            ("spec.subject.apiVersion", TextField::SubjectApiVersion),
            ("spec.subject.kind", TextField::SubjectKind),
            ("spec.subject.name", TextField::SubjectName),
            ("spec.subject.namespace", TextField::SubjectNamespace),
            ("spec.subject.uid", TextField::SubjectUid),
            ("status.phase", TextField::Phase),
            ("status.state", TextField::State),
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
    // Only the plural, because a printer column of a CRD is a single JSONPath.
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
fn ready(texts: &ObjectTexts<'_>, out: &mut Vec<u8>) {
    of_ready(texts, |condition| condition.status, out);
}

/// Reason of the condition `Ready`, or null.
fn reason(texts: &ObjectTexts<'_>, out: &mut Vec<u8>) {
    of_ready(texts, |condition| condition.reason, out);
}

#[derive(Deserialize)]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
    reason: Option<String>,
}

fn of_ready<T: Into<serde_json::Value>>(
    texts: &ObjectTexts<'_>,
    what: impl Fn(Condition) -> T,
    out: &mut Vec<u8>,
) {
    let object: serde_json::Value = serde_json::from_slice(&texts.json).unwrap_or_default();
    let conditions = object.pointer("/status/conditions");
    let told = conditions
        .and_then(|all| Vec::<Condition>::deserialize(all).ok())
        .and_then(|all| all.into_iter().find(|condition| condition.kind == "Ready"))
        .map(|condition| what(condition).into());
    out.extend_from_slice(told.unwrap_or_default().to_string().as_bytes());
}

/// `OperationRuleSet`, for a server without a cluster. In a cluster, the CRD serves it.
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
