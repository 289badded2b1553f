//! The constraints in the schema of `OperationRuleSet`: patterns, validation rules in CEL, and
//! their messages.

/// A label value that is not empty (Kubernetes' `IsValidLabelValue`).
pub(super) const VALUE: &str = "^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$";
/// A label value, or nothing.
pub(super) const OPTIONAL_VALUE: &str = "^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$";
/// A DNS label (RFC 1123), such as the name of a namespace.
pub(super) const DNS_LABEL: &str = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$";
/// A DNS label that begins with a letter (RFC 1035): versions and resources.
pub(super) const DNS_1035_LABEL: &str = "^[a-z]([-a-z0-9]*[a-z0-9])?$";
/// A DNS subdomain, or nothing for the core group.
pub(super) const GROUP: &str =
    "^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*)?$";

/// Longest qualified name: a DNS subdomain of 253 characters, a slash, a name of 63.
pub(super) const MAX_KEY: usize = 317;
/// A CEL identifier, for names of variables.
pub(super) const IDENTIFIER: &str = "^[A-Za-z_][A-Za-z0-9_]*$";
/// A duration as Go writes it (`30s`, `1h30m`), or bare seconds.
pub(super) const DURATION: &str = "^([0-9]+|([0-9]+(\\.[0-9]+)?(ms|s|m|h))+)$";
/// `*`, or a label value.
pub(super) const OPERATION_OR_ALL: &str = "^(\\*|[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)$";
/// CEL on a rule: `itemKey` needs `forEach`.
pub(super) const KEY_NEEDS_LIST: &str = "!has(self.itemKey) || has(self.forEach)";
/// CEL that is true when every string of the list or map `self` is a qualified name.
pub(super) const KEYS_ARE_QUALIFIED: &str = "self.all(key, key.indexOf('/') <= 253 && key.matches('^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\\\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$'))";
/// CEL that is true when no key of the map `self` is one that the server sets.
pub(super) const KEYS_ARE_FREE: &str = "self.all(key, !key.startsWith('ifo.kubevirt.io/') || key in ['ifo.kubevirt.io/correlation-group', 'ifo.kubevirt.io/correlation-role'])";
/// [`KEYS_ARE_QUALIFIED`] for one string.
pub(super) const KEY_IS_QUALIFIED: &str = "self.indexOf('/') <= 253 && self.matches('^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\\\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$')";
/// [`KEYS_ARE_FREE`] for one string.
pub(super) const KEY_IS_FREE: &str = "!self.startsWith('ifo.kubevirt.io/') || self in ['ifo.kubevirt.io/correlation-group', 'ifo.kubevirt.io/correlation-role']";

/// Message for a label key that is not a qualified name.
pub(super) const NOT_QUALIFIED: &str = "a label key must be a qualified name: an optional DNS subdomain and a slash, then at most 63 letters, digits, '-', '_' or '.', with a letter or digit first and last";
/// Message for a label key that only the server sets.
pub(super) const NOT_FREE: &str = "keys under ifo.kubevirt.io/ are set by the server; only ifo.kubevirt.io/correlation-group and ifo.kubevirt.io/correlation-role are free for rule sets";
/// Message for a target that the server itself serves.
pub(super) const FEEDS_BACK: &str = "the groups ifo.kubevirt.io and live.ifo.kubevirt.io cannot be targets: operations would be detected on operations";
