//! Which form of the answer the client wants. Enters: `Accept`, `User-Agent` and the
//! options `pretty` and `includeObject`. Leaves: the form, or a 406.

#[cfg(any(fuzzing, test))]
mod fuzzing;

use super::quoted::Quoted;
use super::request::Query;
use super::status::Failure;
use http::{HeaderMap, header};

#[cfg(any(fuzzing, test))]
pub use self::fuzzing::check;

/// What kind of answer there will be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// One object.
    Object,
    /// A list.
    List,
    /// A stream of events.
    Watch,
}

/// How objects are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Form {
    /// As they are.
    Whole,
    /// As rows of a `Table`.
    Table {
        /// `v1` or `v1beta1` of `meta.k8s.io`.
        version: &'static str,
        /// What comes with each row.
        include: Include,
    },
    /// As `PartialObjectMetadata`.
    Metadata {
        /// `v1` or `v1beta1` of `meta.k8s.io`.
        version: &'static str,
    },
}

/// What comes with each row of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Include {
    /// The object's metadata.
    Metadata,
    /// The whole object.
    Object,
    /// Nothing.
    None,
}

/// How the answer is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Syntax {
    /// Compact JSON.
    Compact,
    /// Indented JSON.
    Indented,
    /// YAML.
    Yaml,
}

/// What the client wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// How objects are shown.
    pub form: Form,
    /// How the answer is written.
    pub syntax: Syntax,
}

/// Picks the first clause of `Accept` that can be had; weights are not looked at, as
/// upstream orders equal ones and clients list what they prefer first.
pub fn negotiate(
    headers: &HeaderMap,
    query: &Query,
    shape: Shape,
    list_kind: &str,
) -> Result<Wanted, Failure> {
    let accept = headers
        .get(header::ACCEPT)
        .map_or("", |value| value.to_str().unwrap_or("invalid"));
    if accept.trim().is_empty() {
        return finish(headers, query, shape, list_kind, &Clause::default());
    }
    let mut transforms = true;
    for clause in accept.split(',').map(Clause::parse) {
        transforms &= !clause.target.is_empty();
        if clause.can_be_had(shape) {
            return finish(headers, query, shape, list_kind, &clause);
        }
    }
    let failure = Failure::not_acceptable(format!(
        "only the following media types are accepted: {}",
        if shape == Shape::Watch {
            "application/json;stream=watch"
        } else {
            "application/json, application/yaml"
        }
    ));
    Err(if transforms {
        failure.indented()
    } else {
        failure
    })
}

/// One clause of `Accept`.
#[derive(Clone, Debug, Default)]
struct Clause<'a> {
    media_type: &'a str,
    target: &'a str,
    group: &'a str,
    version: &'a str,
    stream: &'a str,
    pretty: bool,
}

impl<'a> Clause<'a> {
    fn parse(text: &'a str) -> Self {
        let mut parts = text.split(';').map(str::trim);
        let mut clause = Self {
            media_type: parts.next().unwrap_or_default(),
            ..Self::default()
        };
        for (name, value) in parts.filter_map(|part| part.split_once('=')) {
            let value = value.trim_matches('"');
            match name {
                "as" => clause.target = value,
                "g" => clause.group = value,
                "v" => clause.version = value,
                "stream" => clause.stream = value,
                "pretty" => clause.pretty = value == "1",
                _ => {}
            }
        }
        clause
    }

    fn yaml(&self) -> bool {
        self.media_type == "application/yaml"
    }

    fn can_be_had(&self, shape: Shape) -> bool {
        let media_type = matches!(
            self.media_type,
            "application/json" | "application/*" | "*/*"
        ) || (self.yaml() && shape != Shape::Watch);
        let transform = self.target.is_empty()
            || (self.group == "meta.k8s.io"
                && self.meta_version().is_some()
                && matches!(
                    self.target,
                    "Table" | "PartialObjectMetadata" | "PartialObjectMetadataList"
                ));
        media_type && transform && matches!(self.stream, "" | "watch")
    }

    fn meta_version(&self) -> Option<&'static str> {
        match self.version {
            "v1" => Some("v1"),
            "v1beta1" => Some("v1beta1"),
            _ => None,
        }
    }
}

fn finish(
    headers: &HeaderMap,
    query: &Query,
    shape: Shape,
    list_kind: &str,
    clause: &Clause<'_>,
) -> Result<Wanted, Failure> {
    let version = clause.meta_version().unwrap_or("v1");
    let form = match (clause.target, shape) {
        ("Table", _) => Form::Table {
            version,
            include: include(query)?,
        },
        ("PartialObjectMetadata", Shape::List) => {
            return Err(Failure::not_acceptable(format!(
                "you requested PartialObjectMetadata, but the requested object is a list \
                 ({list_kind})"
            )));
        }
        ("PartialObjectMetadataList", Shape::Object) => {
            return Err(Failure::not_acceptable(
                "you requested PartialObjectMetadataList, but the requested object is not a list",
            ));
        }
        ("PartialObjectMetadata" | "PartialObjectMetadataList", _) => Form::Metadata { version },
        _ => Form::Whole,
    };
    let syntax = if clause.yaml() {
        Syntax::Yaml
    } else if shape != Shape::Watch && pretty(headers, query, clause) {
        Syntax::Indented
    } else {
        Syntax::Compact
    };
    Ok(Wanted { form, syntax })
}

fn include(query: &Query) -> Result<Include, Failure> {
    match query.text("includeObject") {
        "" | "Metadata" => Ok(Include::Metadata),
        "Object" => Ok(Include::Object),
        "None" => Ok(Include::None),
        other => Err(Failure::bad_request(format!(
            "Unable to convert to Table as requested: includeObject: Invalid value: {}: \
             must be 'Metadata', 'Object', 'None', or empty",
            Quoted(other)
        ))),
    }
}

/// People who ask with a browser or curl get something they can read.
fn pretty(headers: &HeaderMap, query: &Query, clause: &Clause<'_>) -> bool {
    query.truth("pretty").unwrap_or_else(|| {
        clause.pretty
            || headers
                .get(header::USER_AGENT)
                .and_then(|agent| agent.to_str().ok())
                .is_some_and(|agent| {
                    ["curl", "Wget", "Mozilla/5.0"]
                        .iter()
                        .any(|person| agent.starts_with(person))
                })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Uri;

    fn ask(accept: &str, shape: Shape) -> Result<Wanted, Failure> {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, accept.parse().unwrap());
        negotiate(
            &headers,
            &Query::of(&Uri::from_static("/")),
            shape,
            "ThingList",
        )
    }

    #[test]
    fn the_first_clause_that_can_be_had_wins() {
        let table = Form::Table {
            version: "v1",
            include: Include::Metadata,
        };
        for (accept, form) in [
            ("", Form::Whole),
            ("*/*", Form::Whole),
            ("application/*", Form::Whole),
            (
                "text/html,application/xhtml+xml;q=0.9,*/*;q=0.8",
                Form::Whole,
            ),
            (
                "application/vnd.kubernetes.protobuf,application/json",
                Form::Whole,
            ),
            (
                "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
                table,
            ),
            (
                "application/json;as=Table;v=v9;g=meta.k8s.io,application/json",
                Form::Whole,
            ),
            (
                "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,\
                 application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json",
                Form::Metadata { version: "v1" },
            ),
        ] {
            assert_eq!(ask(accept, Shape::List).unwrap().form, form, "{accept}");
        }
    }

    #[test]
    fn what_cannot_be_had_is_not_acceptable() {
        for accept in [
            "application/vnd.kubernetes.protobuf",
            "application/cbor",
            "application/xml",
            "APPLICATION/JSON",
            "application/json;stream=other",
            "application/json;as=Nonsense;v=v1;g=meta.k8s.io",
            "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
        ] {
            let failure = ask(accept, Shape::List).unwrap_err();
            assert!(
                failure
                    .to_string()
                    .starts_with("only the following media types are accepted: ")
                    || failure
                        .to_string()
                        .starts_with("you requested PartialObjectMetadata, but"),
                "{accept}"
            );
        }
        assert!(ask("application/yaml", Shape::List).is_ok());
        assert!(ask("application/yaml", Shape::Watch).is_err());
    }
}
