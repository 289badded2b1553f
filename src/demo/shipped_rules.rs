//! The rule sets in `rules/`, which are part of the binary. The demo starts with them.

use super::embedded;
use super::kinds::Kinds;
use super::objects::ObjectStore;
use ifo_api::Gvr;
use ifo_client::manifest;
use std::path::Path;

/// The files with rule sets that `kubectl apply -k rules` installs.
const SHIPPED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/rules.lz4"));

/// Returns a store with the shipped rule sets for the wanted targets.
pub fn store(wanted: impl Fn(&Gvr) -> bool) -> ObjectStore {
    let objects = manifests(&wanted);
    let store = ObjectStore::new(Kinds::default());
    let files = objects.iter().map(|object| (Path::new("rules"), object));
    store.replace(files, &[]);
    store
}

/// Returns the shipped rule sets. Each file contains one rule set. A test checks that all files are valid.
#[cfg(test)]
pub(crate) fn shipped() -> Vec<ifo_api::ruleset::OperationRuleSet> {
    let objects = manifests(&|_| true).into_iter();
    objects
        .filter_map(|object| serde_json::from_value(object.json).ok())
        .collect()
}

/// Returns the rule sets in the files. Skips rule sets whose target is not wanted.
fn manifests(wanted: &dyn Fn(&Gvr) -> bool) -> Vec<manifest::Object> {
    let texts = embedded(SHIPPED).into_iter().map(|(_, text)| text);
    let objects = texts.flat_map(|text| manifest::read(&text).unwrap_or_default());
    let is_wanted = |object: &manifest::Object| {
        let target = serde_json::from_value::<Gvr>(object.json["spec"]["target"].clone());
        target.is_ok_and(|target| wanted(&target))
    };
    objects.filter(is_wanted).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ifo_cel::Projection;
    use ifo_engine::rules::{RuleBook, compile};
    use std::sync::Arc;

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
            let target = rule_set.spec.target.clone();
            let book = RuleBook::new(1, target, String::new(), true, vec![Arc::new(rules)]);
            assert_ne!(book.projection, whole, "{name}");
        }
    }
}
