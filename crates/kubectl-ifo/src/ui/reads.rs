//! What the page reads when a user opens an operation: the Events of its subject, and its rule set.

use crate::api_client::ApiClient;
use crate::operation_source::escape;
use crate::problem::Problem;
use http::StatusCode;
use ifo_api::{GROUP, VERSION, ruleset};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use serde_json::{Value, json};
use std::cmp::Reverse;

/// Largest number of Events in an answer.
const MAX_EVENTS: usize = 50;

/// The namespace that contains the Events of cluster-scoped objects.
const DEFAULT_NAMESPACE: &str = "default";

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
    let namespace = Some(namespace).filter(|it| !it.is_empty());
    let namespace = namespace.unwrap_or(DEFAULT_NAMESPACE);
    let selector = format!("involvedObject.kind={kind},involvedObject.name={name}");
    let path = format!("/api/v1/namespaces/{}/events", escape(namespace));
    // Files contain all Events of the namespace, and an earlier object can have had the same name.
    let is_about = |event: &Event| {
        let object = &event.involved_object;
        object.kind.as_deref() == Some(kind)
            && object.name.as_deref() == Some(name)
            && (uid.is_empty() || object.uid.as_deref() == Some(uid))
    };
    let read = |item: &str| Ok(Some(serde_json::from_str(item)?).filter(is_about));
    let listed = server.all(&path, &selector, ("events", Some(namespace)), read);
    match listed.await {
        Ok(mut events) => {
            events.sort_by_key(|it| Reverse(last_time(it)));
            let items: Vec<Value> = events.iter().take(MAX_EVENTS).map(summary).collect();
            (StatusCode::OK, json!({"items": items}))
        }
        Err(problem) => failed(&problem),
    }
}

fn last_time(event: &Event) -> Option<Timestamp> {
    let series = event.series.as_ref();
    let observed = series.and_then(|it| it.last_observed_time.as_ref());
    let observed = observed.or(event.event_time.as_ref()).map(|it| it.0);
    observed.max(event.last_timestamp.as_ref().map(|it| it.0))
}

fn summary(event: &Event) -> Value {
    let count = event.series.as_ref().map_or(event.count, |it| it.count);
    let source = event.source.as_ref().and_then(|it| it.component.as_ref());
    let source = source.filter(|it| !it.is_empty());
    json!({
        "time": last_time(event),
        "type": event.type_,
        "reason": event.reason,
        "message": event.message,
        "source": source.or(event.reporting_component.as_ref()),
        "count": count.unwrap_or(1),
    })
}

/// Returns the rule set that the parameters name.
pub(super) async fn rule_set(server: &ApiClient, parameters: &Parameters) -> Answer {
    let name = parameters.get("name");
    if name.is_empty() {
        return error(StatusCode::BAD_REQUEST, "the name is needed");
    }
    let path = format!(
        "/apis/{GROUP}/{VERSION}/{}/{}",
        ruleset::PLURAL,
        escape(name)
    );
    let resource = format!("{}.{GROUP}", ruleset::PLURAL);
    let found = match &server.from_files {
        Some(files) => files.rule_set(name),
        None => server.get(&path, &resource, None).await,
    };
    match found {
        Ok(rule_set) => (StatusCode::OK, rule_set),
        Err(problem) => failed(&problem),
    }
}
