//! Which resource a kind is, where no discovery can be asked: CRDs that are among the
//! objects say so; else the plural is guessed as apimachinery guesses it.

use super::input::Found;
use crate::kinds::plural;
use ifo_api::Gvr;
use serde_json::Value;
use std::collections::HashMap;

/// Plurals of kinds.
#[derive(Debug, Default)]
pub(super) struct Names {
    /// By group and kind.
    declared: HashMap<(String, String), String>,
}

impl Names {
    /// Learns from the CRDs among `objects`.
    pub(super) fn of<'a>(objects: impl IntoIterator<Item = &'a Found>) -> Self {
        let mut declared = HashMap::new();
        for found in objects {
            let object = &found.object;
            if object.kind == "CustomResourceDefinition" && object.group() == "apiextensions.k8s.io"
            {
                let text = |pointer| object.json.pointer(pointer).and_then(Value::as_str);
                if let (Some(group), Some(kind), Some(plural)) = (
                    text("/spec/group"),
                    text("/spec/names/kind"),
                    text("/spec/names/plural"),
                ) {
                    declared.insert((group.to_owned(), kind.to_owned()), plural.to_owned());
                }
            }
        }
        Self { declared }
    }

    /// The resource of objects with this `apiVersion` and kind.
    pub(super) fn resource(&self, api_version: &str, kind: &str) -> Gvr {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let declared = self.declared.get(&(group.to_owned(), kind.to_owned()));
        Gvr {
            group: group.to_owned(),
            version: version.to_owned(),
            resource: declared.cloned().unwrap_or_else(|| plural(kind)),
        }
    }
}
