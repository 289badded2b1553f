//! Counts the instructions of each shipped rule. The program evaluates a rule on the test objects
//! of its rule set, and prints the count. There are no recorded figures for these counts. To
//! compare two versions of the code, run this program in both versions.

use crate::paths::counted_section;
use anyhow::{Context as _, bail};
use ifo_api::Gvr;
use ifo_api::ruleset::{OperationRuleSet, OperationRuleSetSpec};
use ifo_cel::Doc;
use ifo_engine::detect::evaluate;
use ifo_engine::rules::{RuleBook, compile};
use jiff::Timestamp;
use serde_json::Value;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Number of counted evaluations of a rule on each object.
const EVALUATIONS: usize = 20;

/// A shipped rule and the JSON of the objects on which it is evaluated.
pub struct ShippedRule {
    /// The name of the operation.
    pub operation: String,
    /// The rule set with this rule only.
    spec: OperationRuleSetSpec,
    objects: Vec<String>,
}

/// Evaluates one rule of the file on its test objects. `index` is the position of the rule in the
/// result of [`read`]. Returns the number of counted evaluations.
pub fn run(file: &Path, index: usize) -> anyhow::Result<usize> {
    let now = Timestamp::from_second(1_780_000_000)?;
    let rules = read(file)?;
    let rule = rules.get(index);
    let rule = rule.context("there is no rule with this index")?;
    let book = compile_rule(rule)?;
    let evaluate_all = || {
        for object in &rule.objects {
            let doc = Doc::parse(black_box(object).as_bytes(), &book.projection);
            let doc = doc.expect("the object is valid JSON");
            black_box(evaluate(&book, &doc, now, &())).expect("the object has a name");
        }
    };
    // The first evaluation fills caches.
    evaluate_all();
    counted_section(&mut || (0..EVALUATIONS).for_each(|_| evaluate_all()));
    Ok(EVALUATIONS * rule.objects.len())
}

fn compile_rule(rule: &ShippedRule) -> anyhow::Result<RuleBook> {
    let compiled = match compile(&rule.operation, &rule.spec) {
        Ok(compiled) => compiled,
        Err(errors) => bail!("{} does not compile: {errors:?}", rule.operation),
    };
    let target = &rule.spec.target;
    let target = Gvr {
        group: target.group.as_str().into(),
        version: target.version.as_str().into(),
        resource: target.resource.as_str().into(),
    };
    let rule_sets = vec![Arc::new(compiled)];
    Ok(RuleBook::new(1, target, "Any".into(), true, rule_sets))
}

/// Returns the files of all shipped rule sets that have test objects. The paths are relative to the
/// folder `rules`.
pub fn files() -> anyhow::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for component in std::fs::read_dir(root().join("rules"))? {
        let component = component?.path();
        if component.is_dir() {
            for file in std::fs::read_dir(component)? {
                let file = file?.path().strip_prefix(root().join("rules"))?.to_owned();
                found.push(file);
            }
        }
    }
    found.retain(|file| test_objects(file).exists());
    found.sort();
    Ok(found)
}

/// Reads the rules of one of the [`files`].
pub fn read(file: &Path) -> anyhow::Result<Vec<ShippedRule>> {
    // The first document is the rule set. A ClusterRole can follow.
    let set = documents(&root().join("rules").join(file))?
        .into_iter()
        .next();
    let set = set.with_context(|| format!("{} is empty", file.display()))?;
    let set: OperationRuleSet =
        serde_json::from_value(set).with_context(|| format!("cannot read {}", file.display()))?;
    let objects = documents(&test_objects(file))?;
    let objects: Vec<String> = objects.iter().map(Value::to_string).collect();
    let rules = set.spec.rules.iter().map(|rule| {
        let mut spec = set.spec.clone();
        spec.rules = vec![rule.clone()];
        ShippedRule {
            operation: rule.operation.clone(),
            spec,
            objects: objects.clone(),
        }
    });
    Ok(rules.collect())
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns the path of the test objects of a rule set.
fn test_objects(file: &Path) -> PathBuf {
    root().join("tests/fixtures/catalogue").join(file)
}

/// Returns the documents of a YAML file.
fn documents(file: &Path) -> anyhow::Result<Vec<Value>> {
    let mut documents: Vec<Value> = serde_saphyr::from_multiple(&std::fs::read_to_string(file)?)
        .with_context(|| format!("cannot read {}", file.display()))?;
    documents.retain(Value::is_object);
    Ok(documents)
}
