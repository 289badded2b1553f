//! Names and texts that the redaction of a support bundle keeps. They are public because they are
//! part of this project or of Kubernetes.

use crate::support_bundle::{DEFAULT_NAMESPACE, SERVER_NAME};
use ifo_client::manifest;
use serde_json::Value;
use std::collections::HashSet;
use std::sync::OnceLock;

/// The contents of the YAML files in `rules/`: the shipped rule sets, and other manifests beside
/// them.
const SHIPPED: &[&str] = &include!(concat!(env!("OUT_DIR"), "/shipped_rule_sets.rs"));

/// The page that describes all settings of `ifo-apiserver`.
const CONFIGURATION: &str = include_str!("../../../../../docs/configuration.md");

/// The shipped Deployment.
const DEPLOYMENT: &str = include_str!("../../../../../deploy/base/deployment.yaml");

/// Default values that Kubernetes sets in a Deployment or a Pod.
const DEFAULTS: [&str; 10] = [
    "/dev/termination-log",
    "/var/run/secrets/kubernetes.io/serviceaccount",
    "Always",
    "ClusterFirst",
    "Default",
    "Equal",
    "Honor",
    "Ignore",
    "PreemptLowerPriority",
    "default-scheduler",
];

/// Names of objects that every cluster has, or that `deploy/` creates.
const NAMES: [&str; 6] = [
    DEFAULT_NAMESPACE,
    SERVER_NAME,
    "kube-system",
    "kube-public",
    "default",
    "v1alpha1.live.ifo.kubevirt.io",
];

/// Keys of labels that Kubernetes or this project defines.
const LABEL_KEYS: [&str; 10] = [
    "app.kubernetes.io/component",
    "app.kubernetes.io/instance",
    "app.kubernetes.io/managed-by",
    "app.kubernetes.io/name",
    "app.kubernetes.io/part-of",
    "app.kubernetes.io/version",
    "kubernetes.io/hostname",
    "kubernetes.io/metadata.name",
    "kubernetes.io/os",
    "pod-template-hash",
];

/// Components of Kubernetes that report Events.
const REPORTERS: [&str; 12] = [
    "attachdetach-controller",
    "daemonset-controller",
    "default-scheduler",
    "deployment-controller",
    "disruption-controller",
    "horizontal-pod-autoscaler",
    "job-controller",
    "kubelet",
    "node-controller",
    "persistentvolume-controller",
    "replicaset-controller",
    "statefulset-controller",
];

/// The public names and texts. The shipped manifests are parsed when they are first needed.
#[derive(Debug, Default)]
pub(super) struct PublicNames {
    shipped: OnceLock<ShippedTexts>,
    deployment: OnceLock<ShippedTexts>,
}

/// The texts in shipped manifests.
#[derive(Debug, Default)]
struct ShippedTexts {
    /// Names of rule sets.
    names: HashSet<String>,
    /// All texts, and all names of fields and labels.
    texts: HashSet<String>,
}

impl PublicNames {
    /// Returns true if an object with this name is part of this project or of every cluster.
    pub(super) fn has_name(&self, name: &str) -> bool {
        NAMES.contains(&name) || self.shipped().names.contains(name)
    }

    /// Returns true if a shipped rule set contains this text.
    pub(super) fn has_rule_text(&self, text: &str) -> bool {
        self.shipped().texts.contains(text)
    }

    /// Returns true if the shipped Deployment contains this text, or if Kubernetes adds it.
    pub(super) fn has_deployment_text(&self, text: &str) -> bool {
        let deployment = self.deployment.get_or_init(|| {
            let mut texts = ShippedTexts::default();
            for document in manifest::documents(DEPLOYMENT, false).unwrap_or_default() {
                texts.add(&document);
            }
            texts
        });
        DEFAULTS.contains(&text) || deployment.texts.contains(text)
    }

    /// Returns true if the key of a label is public.
    pub(super) fn has_label_key(&self, key: &str) -> bool {
        let own = key.strip_prefix(ifo_api::labels::PREFIX);
        let is_own = own.is_some_and(|suffix| {
            ifo_api::labels::SERVER_SUFFIXES.contains(&suffix)
                || ifo_api::labels::AUTHOR_SUFFIXES.contains(&suffix)
        });
        is_own || LABEL_KEYS.contains(&key) || self.has_rule_text(key)
    }

    fn shipped(&self) -> &ShippedTexts {
        self.shipped.get_or_init(ShippedTexts::read)
    }
}

/// Returns true if `name` is `ifo-apiserver` or one of [`REPORTERS`].
pub(super) fn is_reporter(name: &str) -> bool {
    name == SERVER_NAME || REPORTERS.contains(&name)
}

/// Returns true if `ifo-apiserver` has a flag or an environment variable with this name.
pub(super) fn is_setting(name: &str) -> bool {
    // The page has flags and variables between backticks. The other words of the page do not count,
    // because an object of the user can have such a name.
    let mut code = CONFIGURATION.split('`').skip(1).step_by(2);
    let is_variable = name.starts_with(|c: char| c.is_ascii_uppercase())
        && name
            .bytes()
            .all(|byte| matches!(byte, b'A'..=b'Z' | b'0'..=b'9' | b'_'));
    code.any(|code| code.strip_prefix("--") == Some(name) || is_variable && code == name)
}

impl ShippedTexts {
    fn read() -> Self {
        let mut shipped = Self::default();
        for text in SHIPPED {
            let documents = manifest::documents(text, false).unwrap_or_default();
            for document in documents {
                if document["kind"] == ifo_api::ruleset::KIND {
                    let name = document["metadata"]["name"].as_str();
                    shipped.names.extend(name.map(str::to_owned));
                    shipped.add(&document["spec"]);
                }
            }
        }
        shipped
    }

    fn add(&mut self, value: &Value) {
        match value {
            Value::String(text) => {
                self.texts.insert(text.clone());
            }
            Value::Array(items) => items.iter().for_each(|it| self.add(it)),
            Value::Object(fields) => {
                self.texts.extend(fields.keys().cloned());
                fields.values().for_each(|it| self.add(it));
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shipped_rule_sets_are_known() {
        let public = PublicNames::default();
        let shipped = public.shipped();
        assert!(shipped.names.len() > 50, "{}", shipped.names.len());
        assert!(
            public.has_name("deployment-rules")
                || shipped.names.iter().any(|it| it.contains("deployment"))
        );
        assert!(shipped.texts.iter().any(|it| it.contains("object.status")));
    }

    #[test]
    fn settings_are_those_of_the_documentation() {
        for setting in ["leader-elect", "secure-port", "MAX_WATCHES"] {
            assert!(is_setting(setting), "{setting}");
        }
        for other in ["MY_PASSWORD", "operations", "token", "address", "Service"] {
            assert!(!is_setting(other), "{other}");
        }
        let public = PublicNames::default();
        assert!(public.has_deployment_text("POD_NAMESPACE"));
        assert!(!public.has_deployment_text("MY_PASSWORD"));
    }
}
