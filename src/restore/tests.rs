//! Sources that answer as they like.

use super::*;
use serde_json::json;
use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

/// An operation on a machine of this name, as a server of ours lists it.
pub(super) fn operation(name: &str) -> InFlightOperation {
    let object = json!({
        "apiVersion": "live.ifo.kubevirt.io/v1alpha1", "kind": "InFlightOperation",
        "metadata": {"name": name, "namespace": "ns", "creationTimestamp": "2026-11-21T10:00:00Z"},
        "spec": {
            "operation": "Migrating", "ruleSet": "rules", "component": "kubevirt",
            "subject": {
                "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": name,
                "namespace": "ns", "uid": format!("uid-{name}"),
            },
        },
        "status": {
            "phase": "Active", "state": "Progressing", "reason": "Migrating",
            "startTimeSource": "Detected", "lastDetected": "2026-11-21T10:00:00Z",
        },
    });
    serde_json::from_value(object).unwrap()
}

/// A client of a server that answers each path and query with this code and body.
pub(super) fn serving(
    answer: impl Fn(&str) -> (u16, serde_json::Value) + Send + Sync + 'static,
) -> kube::Client {
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let asked = request.uri().path_and_query().map_or("", |it| it.as_str());
        let (code, body) = answer(asked);
        let body = kube::client::Body::from(body.to_string().into_bytes());
        let answer = http::Response::builder().status(code).body(body);
        std::future::ready(Ok::<_, std::convert::Infallible>(answer.unwrap()))
    });
    kube::Client::new(service, "default")
}

fn completed(name: &str, at: &str) -> InFlightOperation {
    let mut object = serde_json::to_value(operation(name)).unwrap();
    object["status"]["phase"] = json!("Completed");
    object["status"]["state"] = json!("Ended");
    object["status"]["completed"] = json!(at);
    serde_json::from_value(object).unwrap()
}

/// Gives these answers one after the other, then none.
struct Script {
    answers: Mutex<VecDeque<Result<Page, Failure>>>,
    asked: Mutex<Vec<Option<String>>>,
}

impl Script {
    fn of(answers: Vec<Result<Page, Failure>>) -> Self {
        Self {
            answers: Mutex::new(answers.into()),
            asked: Mutex::default(),
        }
    }
}

impl Source for &'static Script {
    fn name(&self) -> &'static str {
        "a script"
    }

    fn within(&self) -> Duration {
        Duration::from_secs(10)
    }

    fn page<'a>(&'a self, next: Option<&'a str>) -> BoxFuture<'a, Result<Page, Failure>> {
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        asked.push(next.map(str::to_owned));
        let answer = self.answers.lock().unwrap().pop_front();
        Box::pin(async move {
            match answer {
                Some(answer) => answer,
                None => std::future::pending().await,
            }
        })
    }
}

fn page(operations: Vec<InFlightOperation>, next: Option<&str>) -> Page {
    Page {
        operations,
        version: Some(Rv(7)),
        next: next.map(str::to_owned),
    }
}

/// What the tracker is told, as names, and what each source was asked.
async fn told(
    scripts: Vec<Vec<Result<Page, Failure>>>,
    namespaces: Option<&[(&str, &str)]>,
) -> (Vec<Vec<String>>, Vec<Vec<Option<String>>>) {
    let scripts: Vec<&'static Script> = scripts
        .into_iter()
        .map(|answers| &*Box::leak(Box::new(Script::of(answers))))
        .collect();
    let sources = scripts
        .iter()
        .map(|script| -> Box<dyn Source> { Box::new(*script) });
    let namespaces: Option<Namespaces> = namespaces.map(|all| {
        let all = all.iter();
        all.map(|(name, since)| ((*name).to_owned(), since.parse().unwrap()))
            .collect()
    });
    let (tracker, mut messages) = mpsc::channel(64);
    restore(sources.collect(), namespaces.as_ref(), &tracker).await;
    drop(tracker);
    let mut all = Vec::new();
    while let Some(message) = messages.recv().await {
        let Message::Restore {
            operations,
            version,
        } = message
        else {
            panic!("{message:?}");
        };
        assert_eq!(version, Some(7));
        let names = operations.into_iter().map(|it| it.metadata.name.unwrap());
        all.push(names.collect());
    }
    let asked = scripts
        .iter()
        .map(|script| script.asked.lock().unwrap().clone());
    (all, asked.collect())
}

#[tokio::test(start_paused = true)]
async fn every_page_of_every_source_is_told_in_order() {
    let one = vec![
        Ok(page(vec![operation("a")], Some("1"))),
        Ok(page(vec![operation("b")], Some("2"))),
        Ok(page(vec![operation("c")], None)),
    ];
    let other = vec![Ok(page(vec![operation("d")], Some("")))];
    let (told, asked) = told(vec![one, other], None).await;
    assert_eq!(told, [["a"], ["b"], ["c"], ["d"]]);
    let token = |token: &str| Some(token.to_owned());
    assert_eq!(asked, [vec![None, token("1"), token("2")], vec![None]]);
}

#[tokio::test(start_paused = true)]
async fn what_was_read_before_a_source_failed_or_fell_silent_is_kept() {
    let fails = vec![
        Ok(page(vec![operation("a")], Some("1"))),
        Err(Failure::Lasting("gone".to_owned())),
    ];
    let silent = vec![Ok(page(vec![operation("b")], Some("1")))];
    let (told, asked) = told(vec![fails, silent, vec![]], None).await;
    assert_eq!(told, [["a"], ["b"]]);
    assert_eq!(asked.iter().map(Vec::len).collect::<Vec<_>>(), [2, 2, 1]);
}

#[tokio::test(start_paused = true)]
async fn what_may_pass_is_asked_again_for_as_long_as_there_is_time() {
    let away = || Err(Failure::Passing("503".to_owned()));
    let comes = vec![away(), away(), Ok(page(vec![operation("a")], None))];
    let never = (0..50).map(|_| away()).collect();
    let (told, asked) = told(vec![comes, never], None).await;
    assert_eq!(told, [["a"]]);
    assert_eq!(asked[0].len(), 3);
    assert_eq!(asked[1].len(), 10, "a second apart");
}

#[tokio::test(start_paused = true)]
async fn a_source_that_repeats_its_token_is_not_asked_for_ever() {
    let again = || Ok(page(vec![operation("a")], Some("1")));
    let (_, asked) = told(vec![(0..50).map(|_| again()).collect()], None).await;
    assert_eq!(asked[0].len(), 2);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_shown_in_a_namespace_that_came_later_or_is_gone() {
    let all = || {
        let mut cluster_wide = operation("everywhere");
        cluster_wide.spec.subject.namespace = None;
        let operations = vec![
            completed("over", "2026-11-21T11:00:00Z"),
            operation("active"), // Since ten, and seen then.
            cluster_wide,
        ];
        vec![Ok(page(operations, None))]
    };
    let of = async |namespaces| told(vec![all()], namespaces).await.0;
    assert_eq!(
        of(Some(&[("ns", "2026-11-01T00:00:00Z")])).await,
        [["over", "active", "everywhere"]]
    );
    assert_eq!(
        of(Some(&[("ns", "2026-11-21T10:30:00Z")])).await,
        [["over", "everywhere"]]
    );
    for namespaces in [
        &[("ns", "2026-11-21T12:00:00Z")],
        &[("other", "2026-11-01T00:00:00Z")],
    ] {
        assert_eq!(of(Some(namespaces)).await, [["everywhere"]]);
    }
    // Nobody could tell.
    assert_eq!(of(None).await, [["active", "everywhere"]]);
}

#[tokio::test(start_paused = true)]
async fn refusals_of_the_first_moments_pass_and_later_ones_count() {
    let refused = || Err(Failure::Refused("403".to_owned()));
    let starting = vec![refused(), refused(), Ok(page(vec![operation("a")], None))];
    let never = (0..50).map(|_| refused()).collect();
    let (told, asked) = told(vec![starting, never], None).await;
    assert_eq!(told, [["a"]]);
    assert_eq!(asked[0].len(), 3);
    assert!((9..=11).contains(&asked[1].len()), "{}", asked[1].len());
}

#[tokio::test(start_paused = true)]
async fn a_list_that_expired_half_way_is_read_again_from_its_start() {
    let expires = vec![
        Ok(page(vec![operation("a")], Some("1"))),
        Err(Failure::Expired("410".to_owned())),
        Ok(page(vec![operation("a")], Some("2"))),
        Ok(page(vec![operation("b")], None)),
    ];
    let (told, asked) = told(vec![expires], None).await;
    assert_eq!(told, [["a"], ["a"], ["b"]]);
    let token = |token: &str| Some(token.to_owned());
    assert_eq!(asked[0], [None, token("1"), None, token("2")]);
}
