//! What the page reads when a user opens an operation: the Events of its subject, and its rule set.

use crate::api_client::ApiClient;
use crate::describe::{events, get_rule_set};
use crate::problem::Problem;
use http::StatusCode;
use ifo_api::Text;
use ifo_api::live::SubjectReference;
use k8s_openapi::api::core::v1::Event;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Largest number of Events in an answer.
const MAX_EVENTS: usize = 50;

/// An answer: its status code and its JSON.
pub(super) type Answer = (StatusCode, Value);

/// Returns the answer `{"error": message}`.
pub(super) fn error(code: StatusCode, message: &str) -> Answer {
    (code, json!({"error": message}))
}

/// Reads what `path` and `query` name from the cluster, or from the files of `--from`.
pub(super) async fn read(server: &ApiClient, path: &str, query: &str) -> Answer {
    let pairs = form_urlencoded::parse(query.as_bytes()).into_owned();
    let parameters: BTreeMap<String, String> = pairs.collect();
    // Characters that no name has could change a field selector.
    let is_name = |c: char| c.is_ascii_alphanumeric() || "-._:".contains(c);
    let parameter = |name: &str| {
        let value = parameters.get(name).map_or("", String::as_str);
        Text::from(if value.chars().all(is_name) {
            value
        } else {
            ""
        })
    };
    let [kind, name] = ["kind", "name"].map(parameter);
    let given = |name: &str| Some(parameter(name)).filter(|it| !it.is_empty());
    let found = match path {
        "/api/events" if !kind.is_empty() && !name.is_empty() => {
            let subject = SubjectReference {
                kind,
                name,
                namespace: given("namespace"),
                uid: given("uid"),
                ..SubjectReference::default()
            };
            let events = events::read(server, &subject).await;
            events.map(
                |it| json!({"items": it.iter().take(MAX_EVENTS).map(summary).collect::<Vec<_>>()}),
            )
        }
        "/api/ruleset" if !name.is_empty() => get_rule_set(server, &name).await,
        "/api/events" | "/api/ruleset" => {
            return error(StatusCode::BAD_REQUEST, "the kind or the name is missing");
        }
        _ => return error(StatusCode::NOT_FOUND, "there is no such path"),
    };
    match found {
        Ok(found) => (StatusCode::OK, found),
        Err(problem) => {
            let code = match &problem {
                Problem::Forbidden { .. } => StatusCode::FORBIDDEN,
                Problem::NotFound(_) => StatusCode::NOT_FOUND,
                _ => StatusCode::BAD_GATEWAY,
            };
            error(code, &problem.to_string())
        }
    }
}

fn summary(event: &Event) -> Value {
    json!({
        "time": events::last_time(event),
        "type": event.type_,
        "reason": event.reason,
        "message": event.message,
        "source": events::reporter(event),
        "count": events::count(event),
    })
}
