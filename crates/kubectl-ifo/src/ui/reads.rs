//! What the page reads when a user opens an operation: the Events of its subject, and its rule set.

use crate::api_client::ApiClient;
use crate::describe::events;
use crate::describe::rule::get_rule_set;
use crate::problem::Problem;
use http::StatusCode;
use ifo_api::live::SubjectReference;
use k8s_openapi::api::core::v1::Event;
use serde_json::{Value, json};

/// Largest number of Events in an answer.
const MAX_EVENTS: usize = 50;

/// The parameters of a request.
pub(super) struct Parameters(Vec<(String, String)>);

impl Parameters {
    pub(super) fn read(query: &str) -> Self {
        let pairs = form_urlencoded::parse(query.as_bytes());
        Self(pairs.into_owned().collect())
    }

    /// Returns a parameter. Empty if the request does not have it, or if it has characters that no
    /// name has: they could change a field selector.
    fn get(&self, name: &str) -> &str {
        let found = self.0.iter().find(|(key, _)| key == name);
        let value = found.map_or("", |(_, value)| value);
        let is_name = |c: char| c.is_ascii_alphanumeric() || "-._:".contains(c);
        if value.chars().all(is_name) {
            value
        } else {
            ""
        }
    }
}

/// An answer: its status code and its JSON.
pub(super) type Answer = (StatusCode, Value);

/// Returns the answer `{"error": message}`.
pub(super) fn error(code: StatusCode, message: &str) -> Answer {
    (code, json!({"error": message}))
}

fn failed(problem: &Problem) -> Answer {
    let code = match problem {
        Problem::Forbidden { .. } => StatusCode::FORBIDDEN,
        Problem::NotFound(_) => StatusCode::NOT_FOUND,
        _ => StatusCode::BAD_GATEWAY,
    };
    error(code, &problem.to_string())
}

/// Returns the Events of the subject that the parameters name, the newest first.
pub(super) async fn events(server: &ApiClient, parameters: &Parameters) -> Answer {
    let [namespace, kind, name, uid] =
        ["namespace", "kind", "name", "uid"].map(|it| parameters.get(it));
    if kind.is_empty() || name.is_empty() {
        return error(StatusCode::BAD_REQUEST, "kind and name are needed");
    }
    let given = |it: &str| Some(it.into()).filter(|_| !it.is_empty());
    let subject = SubjectReference {
        kind: kind.into(),
        name: name.into(),
        namespace: given(namespace),
        uid: given(uid),
        ..SubjectReference::default()
    };
    match events::read(server, &subject).await {
        Ok(events) => {
            let items: Vec<Value> = events.iter().take(MAX_EVENTS).map(summary).collect();
            (StatusCode::OK, json!({"items": items}))
        }
        Err(problem) => failed(&problem),
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

/// Returns the rule set that the parameters name.
pub(super) async fn rule_set(server: &ApiClient, parameters: &Parameters) -> Answer {
    let name = parameters.get("name");
    if name.is_empty() {
        return error(StatusCode::BAD_REQUEST, "the name is needed");
    }
    match get_rule_set(server, name).await {
        Ok(rule_set) => (StatusCode::OK, rule_set),
        Err(problem) => failed(&problem),
    }
}
