//! One of the two: the live resource, or the custom one. Knows what the placeholders of
//! requests stand for on its side, and which resourceVersion is which change there.

use std::cell::RefCell;
use std::collections::BTreeMap;

/// What differs between the two.
#[derive(Clone, Debug)]
pub struct Side {
    /// API group.
    pub group: &'static str,
    /// Placeholders by name.
    values: BTreeMap<String, String>,
    /// `subject#number` of the change that has a resourceVersion.
    versions: RefCell<BTreeMap<String, String>>,
}

impl Side {
    /// With the paths of a group, and those of objects in a namespace.
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
            // Later than all that will be for some thousand years, on either side.
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

    /// Gives a placeholder its value.
    pub fn set(&mut self, name: &str, value: String) {
        self.values.insert(name.to_owned(), value);
    }

    /// The value of a placeholder.
    pub fn value(&self, name: &str) -> &str {
        self.values
            .get(name)
            .unwrap_or_else(|| panic!("{{{name}}} stands for nothing"))
    }

    /// A text with values in the place of its placeholders.
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

    /// Notes which change has a resourceVersion.
    pub fn note(&self, version: &str, change: String) {
        self.versions
            .borrow_mut()
            .insert(version.to_owned(), change);
    }

    /// Which change has this resourceVersion.
    pub fn change(&self, version: &str) -> Option<String> {
        self.versions.borrow().get(version).cloned()
    }
}
