//! One of the two sides: the live resource or the custom resource. It has the values of the
//! placeholders in requests, and the change to which each resourceVersion belongs.

use std::cell::RefCell;
use std::collections::BTreeMap;

/// The values that differ between the two sides.
#[derive(Clone, Debug)]
pub struct Side {
    /// API group.
    pub group: &'static str,
    /// Placeholders by name.
    values: BTreeMap<String, String>,
    /// By resourceVersion: `subject#number` of the change.
    versions: RefCell<BTreeMap<String, String>>,
}

impl Side {
    /// Adds the placeholders for the paths of a group, and of objects in a namespace.
    pub fn new(group: &'static str, namespace: &str) -> Self {
        let gv = format!("/apis/{group}/v1alpha1");
        let list = |namespace: &str| format!("{gv}/namespaces/{namespace}/inflightoperations");
        let values = [
            ("group", group.to_owned()),
            ("namespace", namespace.to_owned()),
            ("all", format!("{gv}/inflightoperations")),
            ("list", list(namespace)),
            ("other", list(&format!("{namespace}-b"))),
            ("fat", list(&format!("{namespace}-fat"))),
            ("missing", format!("{}/nope", list(namespace))),
            ("mine", format!("labelSelector=twin%3D{namespace}")),
            ("long", "x".repeat(64)),
            // A version that neither side reaches in the next thousand years.
            ("future", "99999999999999999".to_owned()),
            ("gv", gv),
        ];
        let values = values.map(|(name, value)| (name.to_owned(), value));
        Self {
            group,
            values: values.into(),
            versions: RefCell::default(),
        }
    }

    /// Sets the value of a placeholder.
    pub fn set(&mut self, name: &str, value: String) {
        self.values.insert(name.to_owned(), value);
    }

    /// Returns the value of a placeholder.
    pub fn value(&self, name: &str) -> &str {
        self.values
            .get(name)
            .unwrap_or_else(|| panic!("{{{name}}} stands for nothing"))
    }

    /// Replaces the placeholders in a text.
    pub fn expand(&self, template: &str) -> String {
        let mut out = String::new();
        let mut rest = template;
        while let Some((before, after)) = rest.split_once('{') {
            let (name, after) = after.split_once('}').expect("a placeholder ends");
            out.push_str(before);
            out.push_str(self.value(name));
            rest = after;
        }
        out + rest
    }

    /// Records the change to which a resourceVersion belongs.
    pub fn note(&self, version: &str, change: String) {
        self.versions
            .borrow_mut()
            .insert(version.to_owned(), change);
    }

    /// Returns the change to which this resourceVersion belongs.
    pub fn change(&self, version: &str) -> Option<String> {
        self.versions.borrow().get(version).cloned()
    }
}
