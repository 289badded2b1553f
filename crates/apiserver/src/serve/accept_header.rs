//! Parses the HTTP header `Accept`. Input: the headers of a request. Output: the clauses of the
//! header, sorted by preference. A clause is one comma-separated part, such as
//! `application/json;as=Table;v=v1;g=meta.k8s.io`.

use http::{HeaderMap, header};

/// Returns the clauses of the first `Accept` header, sorted by preference: a higher weight first,
/// and types before wildcards. If the header is absent or empty, the result is one clause for JSON.
///
/// The order is the same as in the kube-apiserver, which sorts clauses with the library goautoneg.
/// The comparison in this library is not transitive, so the order depends on the sorting algorithm.
/// This function uses an insertion sort, because Go sorts short slices with an insertion sort.
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

/// Largest number of clauses that are parsed. Further clauses are ignored, because the time of an
/// insertion sort grows with the square of the number of clauses. Browsers send fewer than ten
/// clauses.
pub const MAX_CLAUSES: usize = 64;

/// One clause of an `Accept` header. If a parameter is absent, its text field is empty.
#[derive(Clone, Debug)]
pub struct AcceptClause<'a> {
    media_type: &'a str,
    subtype: &'a str,
    /// The parameter `q`. The default is 1.
    weight: f32,
    /// The parameter `as`: the kind to which objects are to be converted, such as `Table`.
    pub as_kind: &'a str,
    /// The parameter `g`: the API group of the kind in `as_kind`.
    group: &'a str,
    /// The parameter `v`: the API version of the kind in `as_kind`.
    version: &'a str,
    /// The parameter `stream`. The server supports only the value `watch`.
    stream: &'a str,
    /// True if the clause has the parameter `pretty=1`.
    pub pretty: bool,
}

impl Default for AcceptClause<'_> {
    fn default() -> Self {
        Self {
            media_type: "application",
            subtype: "json",
            weight: 1.0,
            as_kind: "",
            group: "",
            version: "",
            stream: "",
            pretty: false,
        }
    }
}

impl<'a> AcceptClause<'a> {
    /// Parses a clause. Returns None if the clause has no valid media type.
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
                "as" => clause.as_kind = value,
                "g" => clause.group = value,
                "v" => clause.version = value,
                "stream" => clause.stream = value,
                "pretty" => clause.pretty = value == "1",
                _ => {}
            }
        }
        Some(clause)
    }

    /// Returns true if this clause is preferred to `other`. As in goautoneg, this relation is not
    /// transitive.
    fn is_before(&self, other: &Self) -> bool {
        self.weight > other.weight
            || (self.media_type != "*" && other.media_type == "*")
            || (self.subtype != "*" && other.subtype == "*")
    }

    /// Returns true if the clause requests YAML.
    pub fn is_yaml(&self) -> bool {
        self.subtype == "yaml"
    }

    /// Returns true if the clause requests a type of protobuf messages, as kubectl does for
    /// `/openapi/v2`.
    pub fn is_protobuf(&self) -> bool {
        self.subtype.ends_with("+protobuf")
    }

    /// Returns true if the clause allows JSON.
    pub fn allows_json(&self) -> bool {
        matches!(
            (self.media_type, self.subtype),
            ("application", "json" | "*") | ("*", "*")
        )
    }

    /// Returns true if this server supports the syntax of the clause: JSON or YAML. With the
    /// parameter `stream=watch`, only JSON is supported.
    pub fn has_supported_syntax(&self) -> bool {
        let yaml = self.media_type == "application" && self.is_yaml() && self.stream.is_empty();
        yaml || (self.allows_json() && matches!(self.stream, "" | "watch"))
    }

    /// Returns true if the clause requests objects as they are, not converted to another kind.
    pub fn is_plain(&self) -> bool {
        self.as_kind.is_empty() && self.group.is_empty() && self.version.is_empty()
    }

    /// If the clause requests the kind `kind` in the API group `group`, returns the requested
    /// version. Otherwise returns None.
    pub fn version_of(&self, group: &str, kind: &str) -> Option<&'a str> {
        (self.group == group && self.as_kind == kind).then_some(self.version)
    }

    /// Returns true if this server supports the syntax of the clause. If the clause requests a
    /// conversion of objects to another kind, the server must also support this kind.
    pub fn is_supported(&self) -> bool {
        let transformed = self.group == "meta.k8s.io"
            && self.meta_version().is_some()
            && matches!(
                self.as_kind,
                "Table" | "PartialObjectMetadata" | "PartialObjectMetadataList"
            );
        self.has_supported_syntax() && (self.is_plain() || transformed)
    }

    /// Returns the parameter `v` if the API group `meta.k8s.io` has this version. None otherwise.
    pub fn meta_version(&self) -> Option<&'static str> {
        match self.version {
            "v1" => Some("v1"),
            "v1beta1" => Some("v1beta1"),
            _ => None,
        }
    }
}
