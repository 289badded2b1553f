//! Negotiates the form and the syntax of an answer with the client. Input: the headers `Accept` and
//! `User-Agent`, and the options `pretty` and `includeObject`. Output: the form of the objects
//! (whole, metadata or table) and the syntax of the answer (JSON or YAML), or an error (400 or
//! 406).

#[cfg(any(test, feature = "testing"))]
mod fuzzing;

use super::accept_header::{AcceptClause, clauses};
pub use super::create_responses::Syntax;
use super::error_status::ErrorStatus;
use super::quoting::Quoted;
use super::request::Query;
use http::{HeaderMap, header};

#[cfg(any(test, feature = "testing"))]
pub use self::fuzzing::{accepts, check};

/// The content of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerContent {
    /// One object.
    Object,
    /// A list of objects.
    List,
    /// A stream of watch events.
    Watch,
}

/// The form of the objects in an answer. `Table` and `PartialObjectMetadata` are kinds of the API
/// group `meta.k8s.io`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ObjectForm {
    /// Whole objects.
    Whole,
    /// Rows of a `Table`.
    Table {
        /// The version of `meta.k8s.io`: `v1` or `v1beta1`.
        version: &'static str,
        /// The object in each row.
        include: Include,
    },
    /// Objects of the kind `PartialObjectMetadata`.
    Metadata {
        /// The version of `meta.k8s.io`: `v1` or `v1beta1`.
        version: &'static str,
    },
}

/// The object in each row of a table. The client selects it with the option `includeObject`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Include {
    /// The metadata of the object.
    Metadata,
    /// The whole object.
    Object,
    /// No object.
    None,
}

/// The negotiated form and syntax.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NegotiatedForm {
    /// The form of objects.
    pub form: ObjectForm,
    /// The syntax of the answer.
    pub syntax: Syntax,
}

/// The clause (comma-separated part) of the `Accept` header that determines the answer.
///
/// First, the handler of a request calls [`ChosenClause::of`]. Then it reports other errors:
/// invalid options and missing objects. At the end, [`ChosenClause::form`] checks if the answer can
/// have the form that the clause requests. The kube-apiserver reports errors in the same order.
#[derive(Debug)]
pub struct ChosenClause<'a> {
    headers: &'a HeaderMap,
    query: &'a Query,
    clause: AcceptClause<'a>,
}

impl<'a> ChosenClause<'a> {
    /// Chooses the first supported clause in the order of [`clauses`]. Returns a 406 if no clause
    /// is supported.
    pub fn of(headers: &'a HeaderMap, query: &'a Query) -> Result<Self, ErrorStatus> {
        let mut clauses = clauses(headers).into_iter();
        let clause = clauses.find(AcceptClause::is_supported);
        Ok(Self {
            headers,
            query,
            clause: clause.ok_or_else(|| unacceptable(AnswerContent::Object))?,
        })
    }

    /// Returns the form and the syntax of the answer. Returns a 406 if the clause is not possible
    /// for an answer of this `content`. For example, `as=PartialObjectMetadata` is not possible for
    /// a list. The message of this 406 contains `list_kind`. Returns a 400 if the option
    /// `includeObject` is not valid.
    pub fn form(
        &self,
        content: AnswerContent,
        list_kind: &str,
    ) -> Result<NegotiatedForm, ErrorStatus> {
        check_form(self.headers, self.query, content, list_kind, &self.clause)
    }
}

/// Performs both steps of [`ChosenClause`]. Returns the form and the syntax of the answer, or an
/// error.
#[cfg(any(test, feature = "testing"))]
pub fn negotiate(
    headers: &HeaderMap,
    query: &Query,
    content: AnswerContent,
    list_kind: &str,
) -> Result<NegotiatedForm, ErrorStatus> {
    ChosenClause::of(headers, query)?.form(content, list_kind)
}

/// Returns the syntax of an error answer, as [`negotiate_syntax`] does. If the client accepts no
/// supported syntax, the error is indented JSON.
pub fn negotiate_error(headers: &HeaderMap, query: &Query) -> Syntax {
    negotiate_syntax(headers, query).unwrap_or(Syntax::Indented)
}

/// Returns the syntax of an answer that contains no API objects, such as an error. Ignores clauses
/// that request a conversion of objects, such as `as=Table`. Returns None if the client accepts no
/// supported syntax.
pub fn negotiate_syntax(headers: &HeaderMap, query: &Query) -> Option<Syntax> {
    let mut clauses = clauses(headers).into_iter();
    let clause = clauses.find(|clause| clause.has_supported_syntax() && clause.is_plain())?;
    Some(syntax(headers, query, &clause))
}

/// Returns the syntax for the chosen `clause`. The answer must not be a watch.
pub fn syntax(headers: &HeaderMap, query: &Query, clause: &AcceptClause<'_>) -> Syntax {
    if clause.is_yaml() {
        Syntax::Yaml
    } else if is_pretty(headers, query, clause) {
        Syntax::Indented
    } else {
        Syntax::Compact
    }
}

/// Returns a 406 that names the supported media types.
pub fn unacceptable(content: AnswerContent) -> ErrorStatus {
    ErrorStatus::not_acceptable(format!(
        "only the following media types are accepted: {}",
        if content == AnswerContent::Watch {
            "application/json;stream=watch"
        } else {
            "application/json, application/yaml"
        }
    ))
}

fn check_form(
    headers: &HeaderMap,
    query: &Query,
    content: AnswerContent,
    list_kind: &str,
    clause: &AcceptClause<'_>,
) -> Result<NegotiatedForm, ErrorStatus> {
    // The function that chooses the clause does not know whether the answer is a watch. So it can
    // choose a clause for YAML, although watches support only JSON.
    if content == AnswerContent::Watch && clause.is_yaml() {
        return Err(unacceptable(content));
    }
    let version = clause.meta_version().unwrap_or("v1");
    let form = match (clause.as_kind, content) {
        ("Table", _) => ObjectForm::Table {
            version,
            include: include(query)?,
        },
        ("PartialObjectMetadata", AnswerContent::List) => {
            return Err(ErrorStatus::not_acceptable(format!(
                "you requested PartialObjectMetadata, but the requested object is a list \
                 ({list_kind})"
            )));
        }
        ("PartialObjectMetadataList", AnswerContent::Object) => {
            return Err(ErrorStatus::not_acceptable(
                "you requested PartialObjectMetadataList, but the requested object is not a list",
            ));
        }
        ("PartialObjectMetadata" | "PartialObjectMetadataList", _) => {
            ObjectForm::Metadata { version }
        }
        _ => ObjectForm::Whole,
    };
    let syntax = match content {
        AnswerContent::Watch => Syntax::Compact,
        AnswerContent::Object | AnswerContent::List => syntax(headers, query, clause),
    };
    Ok(NegotiatedForm { form, syntax })
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

/// Returns true if the client gets indented JSON. The clause or the option `pretty` can request
/// indented JSON. If the option `pretty` is absent or empty, browsers, curl and Wget also get
/// indented JSON.
fn is_pretty(headers: &HeaderMap, query: &Query, clause: &AcceptClause<'_>) -> bool {
    clause.pretty
        || match query.text("pretty") {
            "" => headers
                .get(header::USER_AGENT)
                .and_then(|agent| agent.to_str().ok())
                .is_some_and(|agent| {
                    ["curl", "Wget", "Mozilla/5.0"]
                        .iter()
                        .any(|prefix| agent.starts_with(prefix))
                }),
            // These are the values that Go's `strconv.ParseBool` parses as true. Other boolean
            // options are true for all values except `0` and `false`.
            given => matches!(given, "1" | "t" | "T" | "true" | "TRUE" | "True"),
        }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Uri;

    fn ask(accept: &str, content: AnswerContent) -> Result<NegotiatedForm, ErrorStatus> {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, accept.parse().unwrap());
        negotiate(
            &headers,
            &Query::of(&Uri::from_static("/")),
            content,
            "ThingList",
        )
    }

    #[test]
    fn the_first_supported_accept_clause_is_chosen() {
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
            assert_eq!(
                ask(accept, AnswerContent::List).unwrap().form,
                form,
                "{accept}"
            );
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
            let failure = ask(accept, AnswerContent::List).unwrap_err();
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
        assert!(ask("application/yaml", AnswerContent::List).is_ok());
        assert!(ask("application/yaml", AnswerContent::Watch).is_err());
        assert!(ask("application/yaml,application/json", AnswerContent::Watch).is_err());
        assert!(
            ask(
                "application/json;as=\"Table\";v=v1;g=meta.k8s.io",
                AnswerContent::List
            )
            .is_err()
        );
    }

    #[test]
    fn clauses_are_ordered_by_weight_with_wildcards_last() {
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
            assert_eq!(
                ask(accept, AnswerContent::List).unwrap().syntax,
                syntax,
                "{accept}"
            );
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
