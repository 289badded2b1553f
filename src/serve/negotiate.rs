//! Content negotiation. Input: `Accept`, `User-Agent`, and the options `pretty` and
//! `includeObject`. Output: the form of the answer, or a 406.

#[cfg(any(fuzzing, test))]
mod fuzzing;

use super::accept::{AcceptClause, clauses};
use super::quoted::Quoted;
use super::request::Query;
use super::status::ErrorStatus;
use http::{HeaderMap, header};

#[cfg(any(fuzzing, test))]
pub use self::fuzzing::{check, takes};

/// The kind of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// One object.
    Object,
    /// A list.
    List,
    /// A stream of events.
    Watch,
}

/// The form of objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ObjectForm {
    /// The objects themselves.
    Whole,
    /// As rows of a `Table`.
    Table {
        /// `v1` or `v1beta1` of `meta.k8s.io`.
        version: &'static str,
        /// The object of each row.
        include: Include,
    },
    /// As `PartialObjectMetadata`.
    Metadata {
        /// `v1` or `v1beta1` of `meta.k8s.io`.
        version: &'static str,
    },
}

/// The object of each row of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Include {
    /// The object's metadata.
    Metadata,
    /// The whole object.
    Object,
    /// Nothing.
    None,
}

/// The syntax of the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Syntax {
    /// Compact JSON.
    Compact,
    /// Indented JSON.
    Indented,
    /// YAML.
    Yaml,
}

/// The negotiated form and syntax.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WantedForm {
    /// The form of objects.
    pub form: ObjectForm,
    /// The syntax of the answer.
    pub syntax: Syntax,
}

/// The clause of `Accept` that an answer follows. There are two steps, because upstream reports
/// errors in the options and missing objects before it checks whether the form is possible.
#[derive(Debug)]
pub struct ChosenClause<'a> {
    headers: &'a HeaderMap,
    query: &'a Query,
    clause: AcceptClause<'a>,
}

impl<'a> ChosenClause<'a> {
    /// The first possible clause in the order of [`clauses`]. Otherwise a 406.
    pub fn of(headers: &'a HeaderMap, query: &'a Query) -> Result<Self, ErrorStatus> {
        let mut clauses = clauses(headers).into_iter();
        let clause = clauses.find(AcceptClause::can_be_had);
        Ok(Self {
            headers,
            query,
            clause: clause.ok_or_else(|| unacceptable(Shape::Object))?,
        })
    }

    /// The form of an answer of this kind. Otherwise a 406, or a 400 for `includeObject`.
    pub fn form(&self, shape: Shape, list_kind: &str) -> Result<WantedForm, ErrorStatus> {
        finish(self.headers, self.query, shape, list_kind, &self.clause)
    }
}

/// Both steps at once.
#[cfg(any(fuzzing, test))]
pub fn negotiate(
    headers: &HeaderMap,
    query: &Query,
    shape: Shape,
    list_kind: &str,
) -> Result<WantedForm, ErrorStatus> {
    ChosenClause::of(headers, query)?.form(shape, list_kind)
}

/// The syntax of a `Status`: one that the client accepts, or indented JSON if the client accepts
/// none.
pub fn negotiate_error(headers: &HeaderMap, query: &Query) -> Syntax {
    negotiate_plain(headers, query).unwrap_or(Syntax::Indented)
}

/// The syntax of a document without forms. Clauses with a form do not count. None if the client
/// accepts no syntax.
pub fn negotiate_plain(headers: &HeaderMap, query: &Query) -> Option<Syntax> {
    let mut clauses = clauses(headers).into_iter();
    let clause = clauses.find(|clause| clause.can_be_written() && clause.is_plain())?;
    Some(syntax(headers, query, &clause))
}

/// The syntax of an answer that is not a stream.
pub fn syntax(headers: &HeaderMap, query: &Query, clause: &AcceptClause<'_>) -> Syntax {
    if clause.yaml() {
        Syntax::Yaml
    } else if pretty(headers, query, clause) {
        Syntax::Indented
    } else {
        Syntax::Compact
    }
}

/// 406 with the media types that are possible.
pub fn unacceptable(shape: Shape) -> ErrorStatus {
    ErrorStatus::not_acceptable(format!(
        "only the following media types are accepted: {}",
        if shape == Shape::Watch {
            "application/json;stream=watch"
        } else {
            "application/json, application/yaml"
        }
    ))
}

fn finish(
    headers: &HeaderMap,
    query: &Query,
    shape: Shape,
    list_kind: &str,
    clause: &AcceptClause<'_>,
) -> Result<WantedForm, ErrorStatus> {
    // YAML is accepted, but a watch cannot be written as YAML.
    if shape == Shape::Watch && clause.yaml() {
        return Err(unacceptable(shape));
    }
    let version = clause.meta_version().unwrap_or("v1");
    let form = match (clause.target, shape) {
        ("Table", _) => ObjectForm::Table {
            version,
            include: include(query)?,
        },
        ("PartialObjectMetadata", Shape::List) => {
            return Err(ErrorStatus::not_acceptable(format!(
                "you requested PartialObjectMetadata, but the requested object is a list \
                 ({list_kind})"
            )));
        }
        ("PartialObjectMetadataList", Shape::Object) => {
            return Err(ErrorStatus::not_acceptable(
                "you requested PartialObjectMetadataList, but the requested object is not a list",
            ));
        }
        ("PartialObjectMetadata" | "PartialObjectMetadataList", _) => {
            ObjectForm::Metadata { version }
        }
        _ => ObjectForm::Whole,
    };
    let syntax = match shape {
        Shape::Watch => Syntax::Compact,
        Shape::Object | Shape::List => syntax(headers, query, clause),
    };
    Ok(WantedForm { form, syntax })
}

fn include(query: &Query) -> Result<Include, ErrorStatus> {
    match query.text("includeObject") {
        "" | "Metadata" => Ok(Include::Metadata),
        "Object" => Ok(Include::Object),
        "None" => Ok(Include::None),
        other => Err(ErrorStatus::bad_request(format!(
            "Unable to convert to Table as requested: includeObject: Invalid value: {}: \
             must be 'Metadata', 'Object', 'None', or empty",
            Quoted(other)
        ))),
    }
}

/// Returns true for browsers and curl, which get indented JSON.
fn pretty(headers: &HeaderMap, query: &Query, clause: &AcceptClause<'_>) -> bool {
    clause.pretty
        || match query.text("pretty") {
            "" => headers
                .get(header::USER_AGENT)
                .and_then(|agent| agent.to_str().ok())
                .is_some_and(|agent| {
                    ["curl", "Wget", "Mozilla/5.0"]
                        .iter()
                        .any(|person| agent.starts_with(person))
                }),
            // Unlike other options, only the values that Go parses as true count.
            given => matches!(given, "1" | "t" | "T" | "true" | "TRUE" | "True"),
        }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Uri;

    fn ask(accept: &str, shape: Shape) -> Result<WantedForm, ErrorStatus> {
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
    fn the_first_supported_accept_clause_wins() {
        let table = ObjectForm::Table {
            version: "v1",
            include: Include::Metadata,
        };
        for (accept, form) in [
            ("", ObjectForm::Whole),
            ("*/*", ObjectForm::Whole),
            ("application/*", ObjectForm::Whole),
            (
                "text/html,application/xhtml+xml;q=0.9,*/*;q=0.8",
                ObjectForm::Whole,
            ),
            (
                "application/vnd.kubernetes.protobuf,application/json",
                ObjectForm::Whole,
            ),
            (
                "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
                table,
            ),
            (
                "application/json;as=Table;v=v9;g=meta.k8s.io,application/json",
                ObjectForm::Whole,
            ),
            (
                "application/json;as=Table;v=v1;g=meta.k8s.io;q=0.2,application/json;q=0.3",
                ObjectForm::Whole,
            ),
            (
                "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,\
                 application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json",
                ObjectForm::Metadata { version: "v1" },
            ),
        ] {
            assert_eq!(ask(accept, Shape::List).unwrap().form, form, "{accept}");
        }
    }

    #[test]
    fn unsupported_accept_headers_are_406() {
        for accept in [
            "application/vnd.kubernetes.protobuf",
            "application/cbor",
            "application/xml",
            "APPLICATION/JSON",
            "application/json;stream=other",
            "application/yaml;stream=watch",
            "application/json;v=v1",
            "application/json;g=meta.k8s.io;v=v1",
            "application/json;as=Table",
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
        assert!(ask("application/yaml,application/json", Shape::Watch).is_err());
        assert!(
            ask(
                "application/json;as=\"Table\";v=v1;g=meta.k8s.io",
                Shape::List
            )
            .is_err()
        );
    }

    #[test]
    fn weights_decide_and_then_wildcards_come_last() {
        for (accept, syntax) in [
            (
                "application/json;q=0.8,application/yaml;q=0.9",
                Syntax::Yaml,
            ),
            (
                "application/yaml;q=0.8,application/json;q=0.9",
                Syntax::Compact,
            ),
            ("application/json;q=0.5,application/yaml", Syntax::Yaml),
            ("application/yaml,application/json", Syntax::Yaml),
            ("*/*,application/yaml", Syntax::Yaml),
            ("application/*,application/yaml", Syntax::Yaml),
            ("application/yaml;q=0.5,*/*", Syntax::Compact),
            ("*/*;pretty=1,application/json", Syntax::Compact),
            ("application/json;q=0", Syntax::Compact),
            ("application/json;q=no,application/yaml;q=0.1", Syntax::Yaml),
        ] {
            assert_eq!(ask(accept, Shape::List).unwrap().syntax, syntax, "{accept}");
        }
    }

    #[test]
    fn errors_use_an_accepted_media_type() {
        for (accept, query, syntax) in [
            ("", "/", Syntax::Compact),
            ("application/yaml", "/", Syntax::Yaml),
            (
                "application/yaml;as=Table;v=v1;g=meta.k8s.io",
                "/",
                Syntax::Indented,
            ),
            ("application/json;stream=watch", "/", Syntax::Compact),
            ("application/json", "/?pretty=1", Syntax::Indented),
            ("application/json", "/?pretty=yes", Syntax::Compact),
            ("text/plain", "/", Syntax::Indented),
            (
                "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
                "/",
                Syntax::Compact,
            ),
        ] {
            let mut headers = HeaderMap::new();
            if !accept.is_empty() {
                headers.insert(header::ACCEPT, accept.parse().unwrap());
            }
            let query = Query::of(&query.parse().unwrap());
            assert_eq!(negotiate_error(&headers, &query), syntax, "{accept}");
        }
    }
}
