//! The rule sets in `rules/`, which are part of the binary. The demo starts with them.

use super::embedded;
use super::kinds;
use super::model::key;
use super::objects::ObjectStore;
use ifo_api::Gvr;
use ifo_api::ruleset::OperationRuleSet;
use serde_json::json;
use std::sync::Arc;
use uuid::Uuid;

/// The files with rule sets that `kubectl apply -k rules` installs.
const SHIPPED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/rules.lz4"));

/// Returns the shipped rule sets. Each file contains one rule set. If a file cannot be parsed, this
/// function logs an error and leaves out the rule set. A test checks that all files are valid.
pub fn shipped() -> Vec<OperationRuleSet> {
    let files = embedded(SHIPPED).into_iter();
    files
        .filter_map(|(file, text)| match parse(&text) {
            Ok(rule_set) => Some(rule_set),
            Err(error) => {
                tracing::error!(file, %error, "a shipped rule set cannot be read");
                None
            }
        })
        .collect()
}

/// Returns a store with the shipped rule sets for the wanted targets.
pub fn store(wanted: impl Fn(&Gvr) -> bool) -> ObjectStore {
    let rule_sets = shipped().into_iter();
    let rule_sets = rule_sets.filter(|it| wanted(&it.spec.target.gvr()));
    let objects = rule_sets.filter_map(|rule_set| {
        let mut object = json!(rule_set);
        let key = key(&object)?;
        let uid = Uuid::new_v5(&Uuid::NAMESPACE_OID, key.name.as_bytes());
        object["metadata"]["uid"] = uid.to_string().into();
        Some((key, object))
    });
    let store = ObjectStore::new(Arc::new(kinds::resolve));
    store.replace(objects.collect(), Arc::new(kinds::resolve));
    store
}

/// Parses a rule set. The function first converts the YAML to a JSON value, and then the JSON value
/// to an [`OperationRuleSet`]. A direct conversion from YAML would add 300 KB to the binary. The
/// conversion from JSON is needed in any case.
fn parse(text: &str) -> Result<OperationRuleSet, String> {
    let value: serde_json::Value =
        serde_saphyr::from_str(text).map_err(|error| error.to_string())?;
    serde_json::from_value(value).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ifo_cel::Projection;
    use ifo_engine::rules::{RuleBook, compile};

    /// The compiler limits the number of fields that a rule set needs. Beyond the limit, the server
    /// decodes whole objects. No shipped rule set may reach this limit.
    #[test]
    fn every_shipped_rule_set_compiles_and_needs_only_some_fields() {
        let all = shipped();
        assert_eq!(all.len(), embedded(SHIPPED).len());
        assert!(all.len() > 50, "{}", all.len());
        let mut whole = Projection::default();
        whole.add(&[]);
        for rule_set in all {
            let name = rule_set.metadata.name.expect("a rule set has a name");
            let rules = compile(&name, &rule_set.spec);
            let rules = rules.unwrap_or_else(|invalid| panic!("{name}: {invalid:?}"));
            let target = rule_set.spec.target.gvr();
            let book = RuleBook::new(1, target, String::new(), true, vec![Arc::new(rules)]);
            assert_ne!(book.projection, whole, "{name}");
        }
    }
}
