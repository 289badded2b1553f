//! Makes recordings of watch events compact: keeps only the fields that the default rule sets read.
//! The default rule sets are those in the kustomizations below `rules`.
//!
//! `cargo run --example compact_recording -- FILE.jsonl…` writes a compact file with the same name
//! to `tests/fixtures/recorded`. The README of that folder describes the format.
//!
//! Each line of a recording is one watch event, `{"t", "resource", "type", "object"}`. `t` is the
//! time of the event in seconds since the start of the recording. The compact file differs as
//! follows:
//!
//! - It has only events of resources that the default rule sets watch.
//! - Each object has only its identity and the fields that these rule sets read. One object also
//!   has the time of a write, because a replay computes the date of the recording's start from this
//!   time.
//! - It lacks the events that change none of these fields. Such an event cannot change the result
//!   of a rule.

use anyhow::Context as _;
use ifo_api::Gvr;
use ifo_cel::{Doc, Node, Projection};
use ifo_engine::rules::{RuleBook, compile};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

#[path = "manifests.rs"]
#[allow(dead_code, reason = "it also generates manifests")]
mod generator;

fn main() -> anyhow::Result<()> {
    let catalogue = catalogue()?;
    for file in std::env::args_os().skip(1).map(PathBuf::from) {
        let name = file.file_name().context("the path names no file")?;
        let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        let reduced = reduce(&text, &catalogue).with_context(|| file.display().to_string())?;
        fs::write(
            repository_path("tests/fixtures/recorded").join(name),
            reduced,
        )?;
    }
    Ok(())
}

fn repository_path(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// The default rule sets.
struct Catalogue {
    /// The fields that the rule sets of a resource read, by resource.
    projections: HashMap<Gvr, Projection>,
    /// The YAML of all rule sets. The program keeps an annotation only if its name is in this text.
    /// The projection is not sufficient: if a rule checks whether an annotation exists, the
    /// projection contains all annotations.
    text: String,
}

/// Reads and compiles the default rule sets.
fn catalogue() -> anyhow::Result<Catalogue> {
    let mut text = String::new();
    let mut rule_sets: HashMap<Gvr, Vec<_>> = HashMap::new();
    let all = generator::catalogue()?.into_iter();
    for shipped in all.filter(|shipped| shipped.default) {
        text.push_str(&shipped.text);
        let spec = shipped.rule_set.spec;
        let compiled = compile(&shipped.file, &spec)
            .map_err(|invalid| anyhow::anyhow!("{}: {invalid:?}", shipped.file))?;
        let target = Gvr {
            group: spec.target.group,
            version: spec.target.version,
            resource: spec.target.resource,
        };
        let sets = rule_sets.entry(target).or_default();
        sets.push(Arc::new(compiled));
    }
    let projections = rule_sets.into_iter().map(|(target, sets)| {
        let book = RuleBook::new(1, target.clone(), "Any".into(), true, sets);
        (target, book.projection)
    });
    Ok(Catalogue {
        projections: projections.collect(),
        text,
    })
}

/// Returns the compact form of the recording `text`.
fn reduce(text: &str, catalogue: &Catalogue) -> anyhow::Result<String> {
    let mut reduced = String::new();
    let mut last: HashMap<String, Value> = HashMap::new();
    let mut latest = latest_write(text)?;
    for (number, line) in (1..).zip(text.lines()) {
        let event: Value = serde_json::from_str(line).with_context(|| format!("line {number}"))?;
        // The field `resource` can lack the API group. So the group is taken from the object.
        let resource = event["resource"]
            .as_str()
            .context("the event has no `resource`")?;
        let plural = resource
            .rsplit('/')
            .next()
            .context("the `resource` of the event has no plural name")?;
        let api = event["object"]["apiVersion"]
            .as_str()
            .context("the object of the event has no `apiVersion`")?;
        let (group, version) = api.split_once('/').unwrap_or(("", api));
        let target = Gvr {
            group: group.to_owned(),
            version: version.to_owned(),
            resource: plural.to_owned(),
        };
        let Some(projection) = catalogue.projections.get(&target) else {
            continue;
        };
        let json = event["object"].to_string();
        let doc = Doc::parse(json.as_bytes(), projection)?;
        let mut object = restrict(&event["object"], doc.root());
        for name in ["apiVersion", "kind"] {
            object[name] = event["object"][name].clone();
        }
        if let Some(metadata) = object["metadata"].as_object_mut() {
            // A replay computes the date of the recording's start from the write that was delivered
            // fastest (see `latest_write`). So the compact recording has only the time of this
            // write. The other times in `managedFields` are removed, because a replay could use
            // them as start times of operations.
            metadata.remove("managedFields");
            if latest.as_ref().is_some_and(|(at, _)| *at == number) {
                let time = latest.take().map(|(_, time)| time);
                metadata.insert("managedFields".into(), json!([{ "time": time }]));
            }
            for owner in metadata
                .get_mut("ownerReferences")
                .and_then(Value::as_array_mut)
                .into_iter()
                .flatten()
                .filter_map(Value::as_object_mut)
            {
                owner.remove("blockOwnerDeletion");
            }
            if let Some(annotations) = metadata.get_mut("annotations") {
                let annotations = annotations
                    .as_object_mut()
                    .context("the `annotations` of the object are not a map")?;
                annotations.retain(|name, _| catalogue.text.contains(name));
            }
        }
        let key = format!("{resource} {}", object["metadata"]["uid"]);
        if event["type"] == "DELETED" {
            last.remove(&key);
        } else if last.insert(key, object.clone()).as_ref() == Some(&object) {
            continue;
        }
        let event = json!({
            "t": event["t"],
            "type": event["type"],
            "object": object,
        });
        writeln!(reduced, "{event}")?;
    }
    Ok(reduced)
}

/// Finds the write that was delivered fastest. Returns the number of the line with its event, and
/// the time of the write.
///
/// The delay between a write and its event cannot be computed, because the date of the recording's
/// start is unknown. But the delay is shortest where the time of the write minus the event's time
/// `t` is largest.
fn latest_write(text: &str) -> anyhow::Result<Option<(usize, String)>> {
    let mut latest: Option<(f64, (usize, String))> = None;
    for (number, line) in (1..).zip(text.lines()) {
        let event: Value = serde_json::from_str(line)?;
        let t = event["t"].as_f64().context("the event has no time `t`")?;
        let fields = event["object"]["metadata"]["managedFields"].as_array();
        for field in fields.into_iter().flatten() {
            let Some(time) = field["time"].as_str() else {
                continue;
            };
            let seconds = time.parse::<jiff::Timestamp>()?.as_second();
            #[allow(clippy::cast_precision_loss)] // Seconds since 1970 are far below 2^52.
            let ahead = seconds as f64 - t;
            if latest.as_ref().is_none_or(|(most, _)| ahead > *most) {
                latest = Some((ahead, (number, time.to_owned())));
            }
        }
    }
    Ok(latest.map(|(_, latest)| latest))
}

/// Returns the fields of `value` that `node` contains.
fn restrict(value: &Value, node: Node<'_>) -> Value {
    match value {
        Value::Object(members) => members
            .iter()
            .filter_map(|(name, value)| Some((name.clone(), restrict(value, node.get(name)?))))
            .collect(),
        Value::Array(elements) => elements
            .iter()
            .zip(node.elements())
            .map(|(value, node)| restrict(value, node))
            .collect(),
        scalar => scalar.clone(),
    }
}
