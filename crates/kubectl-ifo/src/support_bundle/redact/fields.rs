//! Redacts the fields of the Kubernetes objects in a support bundle: hides private names and
//! messages.

use super::public::{is_reporter, is_setting};
use super::{Redactor, is_token};
use ifo_api::labels;
use jiff::Timestamp;
use serde_json::{Map, Value};

/// Fields that are left out if names and messages are hidden. They repeat other fields or can
/// contain any private data.
const DROPPED: [&str; 3] = ["managedFields", "annotations", "caBundle"];

/// Fields whose value is a map from label keys to label values.
const LABEL_MAPS: [&str; 3] = ["labels", "matchLabels", "nodeSelector"];

/// Fields whose text is hidden as a message, even if the text has the form of a name. Only times
/// and public texts are kept.
const MESSAGES: [&str; 4] = ["message", "note", "expression", "description"];

/// Labels whose values are words of an API. A value that has the form of such a word ([`is_token`])
/// is kept. The labels are listed without the prefix `ifo.kubevirt.io/`.
const KEPT_LABELS: [&str; 7] = [
    "component",
    "operation",
    "owner-group",
    "owner-kind",
    "owner-version",
    "state",
    "subject-kind",
];

/// Fields that are kept in every object, if their values have the form of words.
const COMMON: [&str; 7] = [
    "apiVersion",
    "kind",
    "type",
    "status",
    "reason",
    "phase",
    "resourceVersion",
];

/// The sort of an object. It decides which fields are kept in addition to [`COMMON`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::support_bundle) enum ObjectPolicy {
    /// An operation.
    Operation,
    /// A rule set.
    RuleSet,
    /// A Deployment, a Pod or another object of `ifo-apiserver`.
    Workload,
    /// An Event.
    Event,
    /// An APIService or a CRD. The names in such an object are words of an API.
    Api,
}

impl ObjectPolicy {
    /// Returns the fields that are kept in addition to [`COMMON`].
    fn kept(self) -> &'static [&'static str] {
        match self {
            Self::Operation => &[
                "operation",
                "component",
                "state",
                "outcome",
                "source",
                "startTimeSource",
            ],
            Self::RuleSet => &[
                "operation",
                "component",
                "group",
                "version",
                "resource",
                "supersedes",
                "debounce",
                "appearAfter",
                "stateAfter",
                "stalledAfter",
            ],
            Self::Workload => &[
                "cpu",
                "memory",
                "effect",
                "imagePullPolicy",
                "operator",
                "protocol",
                "qosClass",
                "restartPolicy",
                "terminationMessagePolicy",
                "whenUnsatisfiable",
                "strategy",
            ],
            Self::Event => &["action"],
            Self::Api => &[
                "group",
                "name",
                "names",
                "plural",
                "scope",
                "storedVersions",
                "version",
            ],
        }
    }
}

impl Redactor {
    /// Hides the names and messages in an object.
    pub(in crate::support_bundle) fn object(&self, object: &mut Value, policy: ObjectPolicy) {
        if let Value::Object(fields) = object
            && let Some(Value::Object(metadata)) = fields.get_mut("metadata")
        {
            // `managedFields` is removed even if names are kept, because it is not needed and is
            // often larger than the rest of the object.
            metadata.remove("managedFields");
        }
        if self.is_active() {
            self.value(object, "", policy);
        }
    }

    fn value(&self, value: &mut Value, field: &str, policy: ObjectPolicy) {
        match value {
            Value::String(text) => *text = self.field(field, text, policy),
            Value::Array(items) => {
                for item in items {
                    self.value(item, field, policy);
                }
            }
            Value::Object(fields) => {
                fields.retain(|key, _| !DROPPED.contains(&key.as_str()));
                if LABEL_MAPS.contains(&field) {
                    self.labels(fields, policy);
                } else {
                    self.fields(fields, policy);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    fn fields(&self, fields: &mut Map<String, Value>, policy: ObjectPolicy) {
        // An environment variable can contain private text. Only known settings, and values such as
        // numbers, are kept.
        let is_variable = fields.contains_key("value") && fields.contains_key("name");
        if policy == ObjectPolicy::Workload && is_variable {
            for key in ["name", "value"] {
                if let Some(Value::String(text)) = fields.get_mut(key) {
                    *text = self.setting(text);
                }
            }
            return;
        }
        let all = std::mem::take(fields);
        for (key, mut value) in all {
            // The field `service` of an APIService contains the name of a Service. This name can be
            // private, but the policy `Api` would keep it.
            let policy = if key == "service" {
                ObjectPolicy::Workload
            } else {
                policy
            };
            self.value(&mut value, &key, policy);
            // The names of API fields contain only letters and digits. Any other key is data of the
            // user.
            let is_field = key.chars().all(|c| c.is_ascii_alphanumeric());
            let key = if is_field && key.len() < 64 {
                key
            } else {
                self.name(&key)
            };
            fields.insert(key, value);
        }
    }

    fn labels(&self, labels: &mut Map<String, Value>, policy: ObjectPolicy) {
        let all = std::mem::take(labels);
        for (key, value) in all {
            let value = value.as_str().unwrap_or_default();
            let redacted = self.label_value(&key, value, policy);
            labels.insert(self.label_key(&key), Value::String(redacted));
        }
    }

    fn label_value(&self, key: &str, value: &str, policy: ObjectPolicy) -> String {
        let own = key.strip_prefix(labels::PREFIX).unwrap_or_default();
        // A shipped rule set can give a label a constant value, which is public.
        let is_public = policy == ObjectPolicy::RuleSet || labels::AUTHOR_SUFFIXES.contains(&own);
        let is_kept = KEPT_LABELS.contains(&own) && is_token(value)
            || is_public && self.public.has_rule_text(value)
            || policy == ObjectPolicy::Workload && self.public.has_deployment_text(value);
        match own {
            _ if is_kept => value.to_owned(),
            "owner-uid" | "subject-uid" => self.uid(value),
            _ => self.name(value),
        }
    }

    /// Returns the key of a label if the key is public, and otherwise a pseudonym.
    pub(super) fn label_key(&self, key: &str) -> String {
        if self.public.has_label_key(key) {
            key.to_owned()
        } else {
            self.name(key)
        }
    }

    /// Returns the redacted text of one field.
    fn field(&self, field: &str, text: &str, policy: ObjectPolicy) -> String {
        if text.parse::<Timestamp>().is_ok() {
            return text.to_owned();
        }
        match field {
            "key" if policy == ObjectPolicy::RuleSet => return self.label_key(text),
            _ if policy == ObjectPolicy::RuleSet && self.public.has_rule_text(text) => {
                return text.to_owned();
            }
            _ if policy == ObjectPolicy::Workload && self.public.has_deployment_text(text) => {
                return text.to_owned();
            }
            _ if MESSAGES.contains(&field) => return self.text(text),
            "uid" => return self.uid(text),
            "image" | "imageID" => return self.image(text),
            "args" | "command" if policy == ObjectPolicy::Workload => return self.setting(text),
            "component" | "reportingComponent" | "reportingController"
                if policy == ObjectPolicy::Event =>
            {
                return if is_reporter(text) {
                    text.to_owned()
                } else {
                    self.name(text)
                };
            }
            _ => {}
        }
        let is_kept = COMMON.contains(&field) || policy.kept().contains(&field);
        if is_kept && has_form_of(field, text) {
            return text.to_owned();
        }
        if text.contains(char::is_whitespace) || text.len() > 253 {
            return self.text(text);
        }
        self.name(text)
    }

    /// Returns the redacted form of a setting of `ifo-apiserver`: a flag, the name of an
    /// environment variable, or the value of such a variable. Known names, and values such as
    /// numbers, are kept. Other names and values become pseudonyms.
    fn setting(&self, text: &str) -> String {
        let is_value = |text: &str| {
            let is_number = text.parse::<f64>().is_ok();
            let is_duration = ifo_api::duration::parse(text).is_some();
            let is_word = ["true", "false", "crs", "off", "json", "text"].contains(&text);
            let is_reference = ["$(POD_NAMESPACE)", "$(POD_IP)", "$(POD_UID)"].contains(&text);
            is_number || is_duration || is_word || is_reference
        };
        if self.public.has_deployment_text(text) {
            return text.to_owned();
        }
        if let Some(flag) = text.strip_prefix("--") {
            let (name, value) = match flag.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (flag, None),
            };
            let name = if is_setting(name) {
                name.to_owned()
            } else {
                self.name(name)
            };
            return match value {
                Some(value) if is_value(value) => format!("--{name}={value}"),
                Some(value) => format!("--{name}={}", self.name(value)),
                None => format!("--{name}"),
            };
        }
        if is_value(text) || is_setting(text) {
            return text.to_owned();
        }
        self.name(text)
    }

    /// Returns the redacted name of a container image. A placeholder replaces the registry:
    /// `registry.acme.example/team/ifo-apiserver:v0.2.0` gives `<registry>/ifo-apiserver:v0.2.0`.
    /// Digests, the tags `latest` and `dev`, and the tags of releases are kept. Other tags, and the
    /// names of other images, become pseudonyms.
    fn image(&self, text: &str) -> String {
        let (image, digest) = match text.split_once("@sha256:") {
            Some((image, digest)) => (image, Some(digest)),
            None => (text, None),
        };
        let is_digest = |it: &&str| it.len() == 64 && it.bytes().all(|b| b.is_ascii_hexdigit());
        let base = image.rsplit('/').next().unwrap_or_default();
        let (name, tag) = base.split_once(':').unwrap_or((base, ""));
        let is_release = |tag: &str| {
            let version = tag.strip_prefix('v').unwrap_or(tag);
            let version = version.strip_suffix("-dev").unwrap_or(version);
            let mut parts = version.split('.');
            parts.clone().count() == 3 && parts.all(|part| part.parse::<u32>().is_ok())
        };
        let tag = match tag {
            "" => String::new(),
            "latest" | "dev" => format!(":{tag}"),
            tag if is_release(tag) => format!(":{tag}"),
            tag => format!(":{}", self.name(tag)),
        };
        let digest = digest.filter(is_digest).map(|it| format!("@sha256:{it}"));
        let registry = if image.contains('/') {
            "<registry>/"
        } else {
            ""
        };
        format!(
            "{registry}{}{tag}{}",
            self.name(name),
            digest.unwrap_or_default()
        )
    }
}

/// Returns true if a text has the form that values of this field have. For example, a
/// resourceVersion has only digits.
fn has_form_of(field: &str, text: &str) -> bool {
    let begins_with_digit = text.starts_with(|c: char| c.is_ascii_digit());
    match field {
        "resourceVersion" => text.bytes().all(|byte| byte.is_ascii_digit()),
        "cpu" | "memory" | "debounce" | "appearAfter" | "stateAfter" | "stalledAfter" => {
            begins_with_digit && text.len() <= 32 && is_token(text)
        }
        _ => is_token(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn redacted(policy: ObjectPolicy, mut object: Value) -> (Redactor, Value) {
        let redactor = Redactor::new(false);
        redactor.object(&mut object, policy);
        (redactor, object)
    }

    #[test]
    fn an_operation_keeps_its_structure() {
        let operation = json!({
            "apiVersion": "live.ifo.kubevirt.io/v1alpha1", "kind": "InFlightOperation",
            "metadata": {
                "name": "web-migrating-1", "namespace": "payroll", "resourceVersion": "7",
                "creationTimestamp": "2026-01-01T00:00:00Z",
                "labels": {"ifo.kubevirt.io/component": "kubevirt", "ifo.kubevirt.io/subject-name": "web",
                           "example.com/customer": "acme"},
                "annotations": {"a": "secret"},
            },
            "spec": {"operation": "Migrating", "ruleSet": "acme-rules", "component": "kubevirt",
                     "subject": {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": "web",
                                 "namespace": "payroll", "uid": "1-2"}},
            "status": {"phase": "Active", "state": "Blocked", "reason": "Waits", "message": "acme", "progress": 7},
        });
        let (redactor, operation) = redacted(ObjectPolicy::Operation, operation);
        assert_eq!(operation["spec"]["subject"]["name"], redactor.name("web"));
        assert_eq!(operation["metadata"]["namespace"], redactor.name("payroll"));
        assert_eq!(operation["spec"]["subject"]["kind"], "VirtualMachine");
        assert_eq!(operation["spec"]["ruleSet"], redactor.name("acme-rules"));
        assert_eq!(operation["status"]["message"], "<redacted, 4 characters>");
        assert_eq!(operation["status"]["progress"], 7);
        assert_eq!(operation["metadata"]["annotations"], Value::Null);
        let labels = &operation["metadata"]["labels"];
        assert_eq!(labels["ifo.kubevirt.io/component"], "kubevirt");
        assert_eq!(labels["ifo.kubevirt.io/subject-name"], redactor.name("web"));
        assert_eq!(
            labels[redactor.name("example.com/customer")],
            redactor.name("acme")
        );
    }

    #[test]
    fn a_reason_that_is_a_sentence_is_hidden() {
        let (_, object) = redacted(
            ObjectPolicy::Operation,
            json!({"status": {"reason": "waits for acme", "state": "Blocked"}}),
        );
        assert_eq!(object["status"]["reason"], "<redacted, 14 characters>");
    }

    #[test]
    fn settings_of_the_server_are_kept_without_private_values() {
        let redactor = Redactor::new(false);
        for (setting, kept) in [
            ("--leader-elect", "--leader-elect"),
            ("--secure-port=8443", "--secure-port=8443"),
            (
                "--namespace=$(POD_NAMESPACE)",
                "--namespace=$(POD_NAMESPACE)",
            ),
        ] {
            assert_eq!(redactor.setting(setting), kept);
        }
        let private = redactor.setting("--namespace=payroll");
        assert_eq!(private, format!("--namespace={}", redactor.name("payroll")));
        assert!(!redactor.setting("--customer=acme").contains("customer"));
        let image = redactor.image("registry.acme.example/team/ifo-apiserver:v0.2.0");
        assert_eq!(image, "<registry>/ifo-apiserver:v0.2.0");
        assert!(!redactor.image("ifo-apiserver:acme").contains("acme"));
    }
}
