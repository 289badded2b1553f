//! The header `Accept`. Input: the headers of a request. Output: the clauses of `Accept` in their
//! order of preference, and the forms that each clause allows.

use http::{HeaderMap, header};

/// The clauses of the first `Accept` header in the order of preference: by weight, and types before
/// wildcards. Without the header, plain JSON is preferred. Upstream's comparison (in the library
/// goautoneg) is not transitive, so the result depends on the sorting algorithm. Clauses are sorted
/// by insertion, as Go sorts short slices.
pub fn clauses(headers: &HeaderMap) -> Vec<AcceptClause<'_>> {
    let accept = headers
        .get(header::ACCEPT)
        .map_or("", |value| value.to_str().unwrap_or("invalid"));
    if accept.is_empty() {
        return vec![AcceptClause::default()];
    }
    let mut clauses: Vec<AcceptClause<'_>> = Vec::new();
    for clause in accept
        .split(',')
        .take(MAX_CLAUSES)
        .filter_map(AcceptClause::parse)
    {
        let mut at = clauses.len();
        while at > 0 && clause.is_before(&clauses[at - 1]) {
            at -= 1;
        }
        clauses.insert(at, clause);
    }
    clauses
}

/// Number of clauses that are read, because sorting by insertion is quadratic. Browsers send fewer
/// than ten.
pub const MAX_CLAUSES: usize = 64;

/// One clause of `Accept`.
#[derive(Clone, Debug)]
pub struct AcceptClause<'a> {
    media_type: &'a str,
    subtype: &'a str,
    /// `q`. The default is 1.
    weight: f32,
    /// `as`: the form. This and the following parameters are empty if they are absent.
    pub target: &'a str,
    group: &'a str,
    version: &'a str,
    stream: &'a str,
    /// True if `pretty=1` is present.
    pub pretty: bool,
}

impl Default for AcceptClause<'_> {
    fn default() -> Self {
        Self {
            media_type: "application",
            subtype: "json",
            weight: 1.0,
            target: "",
            group: "",
            version: "",
            stream: "",
            pretty: false,
        }
    }
}

impl<'a> AcceptClause<'a> {
    /// Parses a clause. None if it is not a media type.
    fn parse(text: &'a str) -> Option<Self> {
        let mut parts = text.split(';').map(str::trim);
        let media_type = parts.next().unwrap_or_default();
        let (media_type, subtype) = match media_type.split_once('/') {
            Some((media_type, subtype)) => (media_type.trim(), subtype.trim()),
            None if media_type == "*" => ("*", "*"),
            None => return None,
        };
        if subtype.is_empty() || subtype.contains('/') {
            return None;
        }
        let mut clause = Self {
            media_type,
            subtype,
            ..Self::default()
        };
        for (name, value) in parts.filter_map(|part| part.split_once('=')) {
            let value = value.trim();
            match name.trim() {
                // A weight that is not a number counts as 0.
                "q" => clause.weight = value.parse().unwrap_or(0.0),
                "as" => clause.target = value,
                "g" => clause.group = value,
                "v" => clause.version = value,
                "stream" => clause.stream = value,
                "pretty" => clause.pretty = value == "1",
                _ => {}
            }
        }
        Some(clause)
    }

    fn is_before(&self, other: &Self) -> bool {
        self.weight > other.weight
            || (self.media_type != "*" && other.media_type == "*")
            || (self.subtype != "*" && other.subtype == "*")
    }

    /// Returns true if the clause asks for YAML.
    pub fn yaml(&self) -> bool {
        self.subtype == "yaml"
    }

    /// Returns true if the clause allows JSON.
    pub fn takes_json(&self) -> bool {
        matches!(
            (self.media_type, self.subtype),
            ("application", "json" | "*") | ("*", "*")
        )
    }

    /// Returns true if objects can be written in this syntax. Watches are never written as YAML.
    pub fn can_be_written(&self) -> bool {
        let yaml = self.media_type == "application" && self.yaml() && self.stream.is_empty();
        yaml || (self.takes_json() && matches!(self.stream, "" | "watch"))
    }

    /// Returns true if objects are requested in their own form: no parameter names another form.
    pub fn is_plain(&self) -> bool {
        self.target.is_empty() && self.group.is_empty() && self.version.is_empty()
    }

    /// The version of the form, if the clause asks for the kind `target` of `group`.
    pub fn version_of(&self, group: &str, target: &str) -> Option<&'a str> {
        (self.group == group && self.target == target).then_some(self.version)
    }

    /// Returns true if an object or a list can be written in this form.
    pub fn can_be_had(&self) -> bool {
        let transformed = self.group == "meta.k8s.io"
            && self.meta_version().is_some()
            && matches!(
                self.target,
                "Table" | "PartialObjectMetadata" | "PartialObjectMetadataList"
            );
        self.can_be_written() && (self.is_plain() || transformed)
    }

    /// The version of `meta.k8s.io` that the form belongs to.
    pub fn meta_version(&self) -> Option<&'static str> {
        match self.version {
            "v1" => Some("v1"),
            "v1beta1" => Some("v1beta1"),
            _ => None,
        }
    }
}
