//! Reads and formats the Kubernetes Events of a subject (the object that an operation is about).

use crate::api_client::{ApiClient, ListOptions};
use crate::listed_operation::ListedSubject;
use crate::operation_source::{PAGE_OBJECTS, escape};
use crate::plain_text;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;

/// The namespace that contains the Events of cluster-scoped objects.
const DEFAULT_NAMESPACE: &str = "default";

/// Reads the Events of a subject and sorts them, the newest last. If the Events cannot be read,
/// returns the reason.
///
/// All pages of the list are read, because the newest Events can be on any page.
pub(super) async fn read(
    server: &ApiClient,
    subject: &ListedSubject,
) -> Result<Vec<Event>, String> {
    let namespace = subject.namespace.as_deref().unwrap_or(DEFAULT_NAMESPACE);
    let mut selector = vec![
        format!("involvedObject.kind={}", subject.kind),
        format!("involvedObject.name={}", subject.name),
    ];
    if let Some(uid) = &subject.uid {
        selector.push(format!("involvedObject.uid={uid}"));
    }
    let options = ListOptions {
        limit: Some(PAGE_OBJECTS),
        field_selector: &selector.join(","),
        ..ListOptions::default()
    };
    let path = format!("/api/v1/namespaces/{}/events", escape(namespace));
    let mut events: Vec<Event> = Vec::new();
    let take = |item: &str| {
        let event: Event = serde_json::from_str(item)?;
        events
            .extend(Some(event).filter(|it| server.from_files.is_none() || is_about(it, subject)));
        Ok(())
    };
    server
        .list(&path, options, "events", Some(namespace), take)
        .await
        .map_err(|problem| problem.to_string())?;
    events.sort_by_key(last_time);
    Ok(events)
}

/// Returns true if the Event is about the subject. A server selects the Events itself, but files
/// contain all Events of the namespace.
fn is_about(event: &Event, subject: &ListedSubject) -> bool {
    let object = &event.involved_object;
    object.kind.as_ref() == Some(&subject.kind)
        && object.name.as_ref() == Some(&subject.name)
        && (subject.uid.is_none() || object.uid == subject.uid)
}

fn last_time(event: &Event) -> Option<Timestamp> {
    let series = event.series.as_ref();
    let observed = series.and_then(|it| it.last_observed_time.as_ref());
    let observed = observed.map(|it| it.0);
    let last = event.last_timestamp.as_ref().map(|it| it.0);
    observed.or(last).or(event_time(event))
}

fn event_time(event: &Event) -> Option<Timestamp> {
    event.event_time.as_ref().map(|it| it.0)
}

/// Formats the time of an Event as kubectl does. For example, `3m (x5 over 10m)` means five
/// occurrences: the last one was 3 minutes ago, and the first one 10 minutes ago.
pub(super) fn age(event: &Event, now: Timestamp) -> String {
    let ago = |time: Option<Timestamp>| {
        time.map_or_else(|| "<unknown>".to_owned(), |time| plain_text::ago(time, now))
    };
    let first = event.first_timestamp.as_ref().map(|it| it.0);
    let series = event.series.as_ref();
    match series.map_or(event.count, |it| it.count) {
        Some(count @ 2..) => {
            let first = ago(first.or(event_time(event)));
            format!("{} (x{count} over {first})", ago(last_time(event)))
        }
        _ => ago(last_time(event)),
    }
}

/// Returns the name of the component that reported the Event.
pub(super) fn reporter(event: &Event) -> &str {
    let source = event.source.as_ref().and_then(|it| it.component.as_deref());
    let component = source.filter(|it| !it.is_empty());
    component
        .or(event.reporting_component.as_deref())
        .unwrap_or_default()
}
