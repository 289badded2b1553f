//! What a served resource is: its names, its table columns, its selectable fields and
//! the index that holds its objects. Everything else in this room works on any such
//! description; the two that exist stand at the end.

use super::example;
use super::lines::Lines;
use super::status::Failure;
use crate::index::{Layout, Object, Reader};
use ifo_api::{GROUP, LIVE_GROUP, VERSION, live, ruleset};
use std::sync::Arc;

/// One resource that this server serves, read-only: get, list and watch.
#[derive(Clone, Debug)]
pub struct Resource {
    /// API group.
    pub group: &'static str,
    /// API version.
    pub version: &'static str,
    /// Plural, as paths have it.
    pub plural: &'static str,
    /// Singular, in lower case.
    pub singular: &'static str,
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
    /// Selectable fields, each with its path number in the layout;
    /// `metadata.name` and `metadata.namespace` come in addition to them.
    pub fields: &'static [(&'static str, usize)],
    /// The JSON schema of the kind, definitions under `$defs`, as `OpenAPI` and
    /// `kubectl explain` show it.
    pub schema: fn() -> schemars::Schema,
    /// Where the objects are.
    pub reader: Reader,
    /// The paths whose spans the index keeps of each object.
    pub layout: &'static Layout,
    /// What its watchers share.
    pub lines: Arc<Lines>,
}

impl Resource {
    /// `group/version`.
    pub fn api_version(&self) -> String {
        format!("{}/{}", self.group, self.version)
    }

    /// The answer for an object that is not there.
    pub(super) fn no_object(&self, name: &str) -> Failure {
        Failure::no_object(self.group, self.plural, name)
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

/// Where a cell comes from. Path numbers are those of the resource's layout.
#[derive(Clone, Copy, Debug)]
pub enum Cell {
    /// The value at a path as it is; null if absent.
    Path(usize),
    /// The number at a path as `45%`; null if absent.
    Percent(usize),
    /// How long the RFC 3339 timestamp at a path is ago, as kubectl prints ages;
    /// `<unknown>` if absent.
    Age(usize),
    /// Writes one JSON value.
    Function(fn(&Object<'_>, &mut Vec<u8>)),
}

/// Path numbers of [`LIVE_LAYOUT`].
mod live_path {
    pub const NAME: usize = 0;
    pub const CREATED: usize = 1;
    pub const OPERATION: usize = 2;
    pub const RULE_SET: usize = 3;
    pub const COMPONENT: usize = 4;
    pub const ITEM: usize = 5;
    pub const SUBJECT_API_VERSION: usize = 6;
    pub const SUBJECT_KIND: usize = 7;
    pub const SUBJECT_NAME: usize = 8;
    pub const SUBJECT_NAMESPACE: usize = 9;
    pub const SUBJECT_UID: usize = 10;
    pub const PHASE: usize = 11;
    pub const STATE: usize = 12;
    pub const REASON: usize = 13;
    pub const MESSAGE: usize = 14;
    pub const PROGRESS: usize = 15;
    pub const COMPLETED: usize = 16;
}

/// What the index of live operations keeps the spans of.
pub static LIVE_LAYOUT: Layout = Layout {
    paths: &[
        &["metadata", "name"],
        &["metadata", "creationTimestamp"],
        &["spec", "operation"],
        &["spec", "ruleSet"],
        &["spec", "component"],
        &["spec", "item"],
        &["spec", "subject", "apiVersion"],
        &["spec", "subject", "kind"],
        &["spec", "subject", "name"],
        &["spec", "subject", "namespace"],
        &["spec", "subject", "uid"],
        &["status", "phase"],
        &["status", "state"],
        &["status", "reason"],
        &["status", "message"],
        &["status", "progress"],
        &["status", "completed"],
    ],
    example: example::OPERATIONS,
};

/// A column of strings that shows the value at a path.
const fn text(name: &'static str, priority: i32, path: usize, description: &'static str) -> Column {
    Column {
        name,
        kind: "string",
        format: "",
        description,
        priority,
        cell: Cell::Path(path),
    }
}

/// The columns Name and Age, which every kind has.
const fn name_column(path: usize) -> Column {
    Column {
        format: "name",
        ..text(
            "Name",
            0,
            path,
            "Name must be unique within a namespace. It is made from the subject's name, \
             the operation and a hash of its identity and start.",
        )
    }
}

const fn age_column(path: usize, description: &'static str) -> Column {
    Column {
        kind: "date",
        cell: Cell::Age(path),
        ..text("Age", 0, path, description)
    }
}

static LIVE_COLUMNS: &[Column] = &[
    name_column(live_path::NAME),
    text("Kind", 0, live_path::SUBJECT_KIND, "Kind of the subject."),
    Column {
        cell: Cell::Function(subject),
        ..text(
            "Subject",
            0,
            live_path::SUBJECT_NAME,
            "Name of the subject, with the item where a rule yields several operations.",
        )
    },
    text(
        "Operation",
        0,
        live_path::OPERATION,
        "Name of the operation.",
    ),
    text("Phase", 0, live_path::PHASE, "Active or Completed."),
    text(
        "State",
        0,
        live_path::STATE,
        "How an active operation goes, or how a completed one ended.",
    ),
    Column {
        cell: Cell::Percent(live_path::PROGRESS),
        ..text(
            "Progress",
            0,
            live_path::PROGRESS,
            "How far it is, where that is known.",
        )
    },
    age_column(live_path::CREATED, "Time since the operation started."),
    text(
        "Message",
        0,
        live_path::MESSAGE,
        "What to tell a person about it.",
    ),
    text(
        "Component",
        1,
        live_path::COMPONENT,
        "Component that the rule set belongs to.",
    ),
    text(
        "RuleSet",
        1,
        live_path::RULE_SET,
        "Rule set that detected it first.",
    ),
    text("Reason", 1, live_path::REASON, "Reason for the state."),
    text(
        "Started",
        1,
        live_path::CREATED,
        "When the operation started.",
    ),
    text(
        "Completed",
        1,
        live_path::COMPLETED,
        "When the operation ended.",
    ),
];

/// `"name"`, or `"name/item"` for one of several operations of a subject.
fn subject(object: &Object<'_>, out: &mut Vec<u8>) {
    let Some(name) = object.value(live_path::SUBJECT_NAME) else {
        out.extend_from_slice(b"null");
        return;
    };
    match (object.value(live_path::ITEM), name.strip_suffix(b"\"")) {
        // Both are JSON strings: joining them needs no decoding.
        (Some([b'"', item @ ..]), Some(open)) => {
            out.extend_from_slice(open);
            out.push(b'/');
            out.extend_from_slice(item);
        }
        _ => out.extend_from_slice(name),
    }
}

/// `InFlightOperation` in `live.ifo.kubevirt.io`: what this server is for.
pub fn inflight_operations(reader: Reader) -> Resource {
    Resource {
        group: LIVE_GROUP,
        version: VERSION,
        plural: live::PLURAL,
        singular: "inflightoperation",
        kind: live::KIND,
        list_kind: "InFlightOperationList",
        namespaced: true,
        short_names: &["ifo", "ifos"],
        categories: &[],
        columns: LIVE_COLUMNS,
        fields: &[
            ("spec.operation", live_path::OPERATION),
            ("spec.component", live_path::COMPONENT),
            ("spec.ruleSet", live_path::RULE_SET),
            ("spec.item", live_path::ITEM),
            ("spec.subject.apiVersion", live_path::SUBJECT_API_VERSION),
            ("spec.subject.kind", live_path::SUBJECT_KIND),
            ("spec.subject.name", live_path::SUBJECT_NAME),
            ("spec.subject.namespace", live_path::SUBJECT_NAMESPACE),
            ("spec.subject.uid", live_path::SUBJECT_UID),
            ("status.phase", live_path::PHASE),
            ("status.state", live_path::STATE),
        ],
        schema: || schemars::schema_for!(live::InFlightOperation),
        reader,
        layout: &LIVE_LAYOUT,
        lines: Arc::new(Lines::new()),
    }
}

/// Path numbers of [`RULE_SET_LAYOUT`].
mod rule_set_path {
    pub const NAME: usize = 0;
    pub const CREATED: usize = 1;
    pub const COMPONENT: usize = 2;
    pub const RESOURCE: usize = 3;
    pub const CONDITIONS: usize = 4;
    pub const WATCH_ACTIVE: usize = 5;
    pub const GROUP: usize = 6;
}

/// What an index of rule sets keeps the spans of.
pub static RULE_SET_LAYOUT: Layout = Layout {
    paths: &[
        &["metadata", "name"],
        &["metadata", "creationTimestamp"],
        &["spec", "component"],
        &["spec", "target", "resource"],
        &["status", "conditions"],
        &["status", "watchActive"],
        &["spec", "target", "group"],
    ],
    // There are few, in a demo.
    example: b"",
};

/// The CRD's printer columns, in their order.
static RULE_SET_COLUMNS: &[Column] = &[
    Column {
        description: "Name must be unique.",
        ..name_column(rule_set_path::NAME)
    },
    text(
        "Component",
        0,
        rule_set_path::COMPONENT,
        "Component that owns the rules.",
    ),
    // The plural alone: all that the CRD's printer column, a single JSONPath, can show.
    text(
        "Target",
        0,
        rule_set_path::RESOURCE,
        "The resource that is watched.",
    ),
    Column {
        cell: Cell::Function(ready),
        ..text(
            "Ready",
            0,
            rule_set_path::CONDITIONS,
            "Whether operations are detected on every object of the target.",
        )
    },
    Column {
        cell: Cell::Function(reason),
        ..text(
            "Reason",
            0,
            rule_set_path::CONDITIONS,
            "Why the rule set is ready, or is not.",
        )
    },
    age_column(rule_set_path::CREATED, "Time since the rule set was made."),
    text(
        "Group",
        1,
        rule_set_path::GROUP,
        "API group of the resource that is watched; empty is the core group.",
    ),
    Column {
        kind: "boolean",
        ..text(
            "Watch Active",
            1,
            rule_set_path::WATCH_ACTIVE,
            "Whether the target is being watched.",
        )
    },
];

/// Status of the condition `Ready`, or null.
fn ready(object: &Object<'_>, out: &mut Vec<u8>) {
    of_ready(object, |condition| condition.status, out);
}

/// Reason of the condition `Ready`, or null.
fn reason(object: &Object<'_>, out: &mut Vec<u8>) {
    of_ready(object, |condition| condition.reason, out);
}

#[derive(serde::Deserialize)]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
    reason: Option<String>,
}

fn of_ready<T: Into<serde_json::Value>>(
    object: &Object<'_>,
    what: impl Fn(Condition) -> T,
    out: &mut Vec<u8>,
) {
    let told = object
        .value(rule_set_path::CONDITIONS)
        .and_then(|json| serde_json::from_slice::<Vec<Condition>>(json).ok())
        .and_then(|all| all.into_iter().find(|condition| condition.kind == "Ready"))
        .map(|condition| what(condition).into());
    out.extend_from_slice(told.unwrap_or_default().to_string().as_bytes());
}

/// `OperationRuleSet`, for a server without a cluster whose CRD would serve it.
pub fn operation_rule_sets(reader: Reader) -> Resource {
    Resource {
        group: GROUP,
        version: VERSION,
        plural: "operationrulesets",
        singular: "operationruleset",
        kind: "OperationRuleSet",
        list_kind: "OperationRuleSetList",
        namespaced: false,
        short_names: &["ors"],
        categories: &[],
        columns: RULE_SET_COLUMNS,
        fields: &[],
        schema: || schemars::schema_for!(ruleset::OperationRuleSet),
        reader,
        layout: &RULE_SET_LAYOUT,
        lines: Arc::new(Lines::new()),
    }
}
