//! The constraints in the schema of `OperationRuleSet`: patterns, CEL validation rules, the messages of
//! these rules, and the length of expressions.

use super::MAX_EXPRESSION;
use schemars::Schema;
use serde_json::Value;

/// Pattern of a label value that is not empty (`IsValidLabelValue` in apimachinery).
pub(super) const VALUE: &str = "^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$";
/// Pattern of a label value, which may be empty.
pub(super) const OPTIONAL_VALUE: &str = "^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$";
/// Pattern of a DNS label (RFC 1123), such as the name of a namespace.
pub(super) const DNS_LABEL: &str = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$";
/// Pattern of a DNS label that begins with a letter (RFC 1035), for versions and resources.
pub(crate) const DNS_1035_LABEL: &str = "^[a-z]([-a-z0-9]*[a-z0-9])?$";
/// Pattern of an API group: a DNS subdomain, or an empty string for the core group.
pub(crate) const GROUP: &str =
    "^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*)?$";

/// Maximum length of a label key: a DNS subdomain of 253 characters, a slash, and a name of 63
/// characters.
pub(super) const MAX_KEY: usize = 317;
/// Pattern of a CEL identifier, for the names of variables.
pub(super) const IDENTIFIER: &str = "^[A-Za-z_][A-Za-z0-9_]*$";
/// Pattern of a duration, such as `30s` or `1h30m`. A number without a unit stands for seconds.
pub(super) const DURATION: &str = "^([0-9]+|([0-9]+(\\.[0-9]+)?(ms|s|m|h))+)$";
/// Pattern of an entry of `supersedes`: `*`, or the name of an operation, which is a label value.
pub(super) const OPERATION_OR_ALL: &str = "^(\\*|[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)$";
/// CEL expression that refuses (is false for) a rule that has `itemKey` but not `forEach`.
pub(super) const KEY_NEEDS_LIST: &str = "!has(self.itemKey) || has(self.forEach)";
/// CEL expression that refuses (is false for) a rule that has `stalledAfter` but not `progress`.
pub(super) const STALL_NEEDS_PROGRESS: &str = "!has(self.stalledAfter) || has(self.progress)";
/// CEL expression that refuses (is false for) a rule that has `outcomeMessage` but not `outcome`.
pub(super) const TEXT_NEEDS_OUTCOME: &str = "!has(self.outcomeMessage) || has(self.outcome)";
/// CEL expression that is true if every key of the map `self` is a valid label key.
pub(super) const KEYS_ARE_QUALIFIED: &str = "self.all(key, key.indexOf('/') <= 253 && key.matches('^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\\\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$'))";
/// CEL expression that is true if no key of the map `self` is reserved for `ifo-apiserver`.
pub(super) const KEYS_ARE_UNRESERVED: &str = "self.all(key, !key.startsWith('ifo.kubevirt.io/') || key in ['ifo.kubevirt.io/correlation-group', 'ifo.kubevirt.io/correlation-role'])";
/// CEL expression that is true if the string `self` is a valid label key.
pub(super) const KEY_IS_QUALIFIED: &str = "self.indexOf('/') <= 253 && self.matches('^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\\\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$')";
/// CEL expression that is true if the label key `self` is not reserved for `ifo-apiserver`.
pub(super) const KEY_IS_UNRESERVED: &str = "!self.startsWith('ifo.kubevirt.io/') || self in ['ifo.kubevirt.io/correlation-group', 'ifo.kubevirt.io/correlation-role']";

/// Message for an invalid label key.
pub(super) const NOT_QUALIFIED: &str = "a label key must be a qualified name: an optional DNS subdomain and a slash, then at most 63 letters, digits, '-', '_' or '.', with a letter or digit first and last";
/// Message for a label key that is reserved for `ifo-apiserver`.
pub(super) const RESERVED_KEY: &str = "keys under ifo.kubevirt.io/ are set by the server; only ifo.kubevirt.io/correlation-group and ifo.kubevirt.io/correlation-role are free for rule sets";
/// Message for a target in one of the API groups of `ifo-apiserver`.
pub(super) const OWN_GROUP: &str = "the groups ifo.kubevirt.io and live.ifo.kubevirt.io cannot be targets: operations would be detected on operations";

/// Limits the length of each text in the schema of a rule that has no limit yet. These texts are the
/// expressions.
pub(super) fn limit_expressions(rule: &mut Schema) {
    let fields = rule.get_mut("properties").and_then(Value::as_object_mut);
    for field in fields.into_iter().flat_map(|fields| fields.values_mut()) {
        let is_text = field["type"].to_string().contains("string");
        if is_text && field["maxLength"].is_null() {
            (field["minLength"], field["maxLength"]) = (1.into(), MAX_EXPRESSION.into());
        }
    }
}
