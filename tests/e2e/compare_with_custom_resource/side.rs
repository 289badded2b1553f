//! The two sides of the differential test: the live resource and the custom resource. The test
//! sends the same requests to both. A request can contain placeholders, such as `{namespace}`. Each
//! side has its own values for the placeholders.
//!
//! The sides have different resourceVersions for the same change, and different UIDs for the same
//! object. So each side gives a name to each of its resourceVersions and UIDs. Both sides use the
//! same names, so the test can compare the names.

use std::cell::RefCell;
use std::collections::BTreeMap;

/// The values of one side.
#[derive(Clone, Debug)]
pub struct Side {
    /// The API group.
    pub group: &'static str,
    /// The values of the placeholders, by name.
    values: BTreeMap<String, String>,
    /// The names, by resourceVersion or UID. For example, the resourceVersion of the object `a` has
    /// the name `a#0` after the creation of `a`, and the name `a#2` after the second change of `a`.
    names: RefCell<BTreeMap<String, String>>,
}

impl Side {
    /// Creates a side for this API group and this namespace. Sets the placeholders that do not
    /// depend on the test objects.
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
            // A resourceVersion that neither side ever reaches.
            ("future", "99999999999999999".to_owned()),
            ("gv", gv),
        ];
        let values = values.map(|(name, value)| (name.to_owned(), value));
        Self {
            group,
            values: values.into(),
            names: RefCell::default(),
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
            .unwrap_or_else(|| panic!("the placeholder {{{name}}} has no value"))
    }

    /// Replaces the placeholders in a text.
    pub fn expand(&self, template: &str) -> String {
        let mut out = String::new();
        let mut rest = template;
        while let Some((before, after)) = rest.split_once('{') {
            let (name, after) = after
                .split_once('}')
                .expect("a placeholder ends with a brace");
            out.push_str(before);
            out.push_str(self.value(name));
            rest = after;
        }
        out + rest
    }

    /// Records the name of a resourceVersion or a UID.
    pub fn record_name(&self, version_or_uid: &str, name: String) {
        self.names
            .borrow_mut()
            .insert(version_or_uid.to_owned(), name);
    }

    /// Returns the recorded name of a resourceVersion or a UID, or None if no name is recorded.
    pub fn name_of(&self, version_or_uid: &str) -> Option<String> {
        self.names.borrow().get(version_or_uid).cloned()
    }
}
