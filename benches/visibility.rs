//! Measures lists of 10,000 operations with `--visibility=subject`, and compares them with lists
//! without it. 200 users send lists one after the other. The first list of each user needs reviews, and
//! has a figure of its own. Then users get a hidden operation and one that does not exist, which must
//! take the same time. The benchmark measures the processor time of this process, which has one thread
//! and uses no network, so that other processes do not influence the result.

#[path = "instructions/shared.rs"]
#[allow(dead_code, reason = "other benchmarks use the rest of it")]
mod shared;

use aggregated_apiserver::auth::{
    AccessDecision, Attributes, Authenticate, Authorize, PeerCertificates, Unauthenticated,
    Undecided, User,
};
use arc_swap::ArcSwap;
use axum::Router;
use axum::body::Body;
use futures::future::{BoxFuture, ready};
use http::{HeaderMap, Request, StatusCode};
use http_body_util::BodyExt as _;
use ifo::demo::{kinds, scene};
use ifo::index::{Bounds, IndexReader, Writer, index};
use ifo::resources::{SubjectVisibility, inflight_operations};
use shared::processor_time;
use std::sync::Arc;
use std::time::Duration;
use tower::ServiceExt as _;

const LIVE: &str = "/apis/live.ifo.kubevirt.io/v1alpha1/inflightoperations";
const OPERATIONS: usize = 10_000;
const NAMESPACES: usize = 200;
const USERS: usize = 200;
/// Number of measured lists of each user.
const LISTS: usize = 2;

/// Takes the user from the header `x-user`.
struct Users;

impl Authenticate for Users {
    fn authenticate<'a>(
        &'a self,
        _: &'a PeerCertificates,
        headers: &'a HeaderMap,
    ) -> BoxFuture<'a, Result<User, Unauthenticated>> {
        let name = headers.get("x-user").and_then(|name| name.to_str().ok());
        Box::pin(ready(Ok(User {
            name: name.unwrap_or_default().to_owned(),
            ..User::default()
        })))
    }
}

/// Allows all users to get and list operations. The user `all-N` may get all subjects, and the user `own-N` those in the namespace
/// `team-N`.
impl Authorize for Users {
    fn authorize<'a>(
        &'a self,
        user: &'a User,
        attributes: &'a Attributes,
    ) -> BoxFuture<'a, Result<AccessDecision, Undecided>> {
        let Attributes::Resource(asked) = attributes else {
            return Box::pin(ready(Err(Undecided("not a resource".to_owned()))));
        };
        let own = user.name.replace("own-", "team-");
        let is_get = asked.verb == "get" && asked.name.is_empty();
        let is_operation = asked.resource == "inflightoperations" && asked.subresource.is_empty();
        let decision =
            if is_operation || is_get && (own.starts_with("all") || asked.namespace == own) {
                AccessDecision::Allow
            } else {
                AccessDecision::Deny {
                    reason: String::new(),
                }
            };
        Box::pin(ready(Ok(decision)))
    }
}

fn namespace(number: usize) -> String {
    format!("team-{}", number % NAMESPACES)
}

fn name(number: usize) -> String {
    format!("my-vm-{number:05}-migrating-3f9c2a1b5e6d7f80")
}

fn operations() -> (Writer, IndexReader) {
    let (mut writer, reader) = index(Bounds {
        bytes: 8 << 20,
        age: Duration::from_mins(5),
    });
    let operations =
        (0..OPERATIONS).map(|number| [namespace(number), name(number), format!("my-vm-{number}")]);
    shared::commit(&mut writer, operations);
    (writer, reader)
}

/// Sends a request and reads the answer to its end. Returns the processor time.
async fn get(router: &Router, user: &str, path: &str, status: StatusCode) -> Duration {
    let request = Request::get(path)
        .header("x-user", user)
        .body(Body::empty());
    let request = request.expect("the request is valid");
    let start = processor_time();
    let response = router.clone().oneshot(request).await;
    let response = response.expect("the error type of a router is `Infallible`");
    assert_eq!(response.status(), status);
    let mut body = response.into_body();
    while let Some(frame) = body.frame().await {
        frame.expect("the body must not fail");
    }
    processor_time().saturating_sub(start)
}

/// Sends all lists, and prints the percentiles.
async fn measure(router: &Router, name: &str, user: impl Fn(usize) -> String) {
    let mut first = Vec::new();
    let mut further = Vec::new();
    for number in 0..USERS {
        let user = user(number);
        first.push(get(router, &user, LIVE, StatusCode::OK).await);
        for _ in 0..LISTS {
            further.push(get(router, &user, LIVE, StatusCode::OK).await);
        }
    }
    print(&format!("{name}, first list"), &mut first);
    print(name, &mut further);
}

fn print(name: &str, times: &mut [Duration]) {
    times.sort();
    let percentile = |percent: usize| times[(times.len() - 1) * percent / 100];
    let (p50, p99) = (percentile(50), percentile(99));
    println!("{name:45} p50 {p50:>9.1?}   p99 {p99:>9.1?}");
}

/// Gets operations in namespaces of other users. Half of the operations exist.
async fn measure_hidden(router: &Router) {
    let (mut hidden, mut missing) = (Vec::new(), Vec::new());
    for number in 0..OPERATIONS {
        let user = format!("own-{}", (number + 1) % NAMESPACES);
        let namespace = namespace(number);
        let path = |name: String| {
            format!(
                "/apis/live.ifo.kubevirt.io/v1alpha1/namespaces/{namespace}/inflightoperations/{name}"
            )
        };
        // The first request of each pair brings the namespace into the cache of the processor.
        let mut pair = [
            (&mut hidden, path(name(number))),
            (&mut missing, path(name(OPERATIONS + number))),
        ];
        if (number / NAMESPACES).is_multiple_of(2) {
            pair.reverse();
        }
        for (times, path) in pair {
            times.push(get(router, &user, &path, StatusCode::NOT_FOUND).await);
        }
    }
    print("get of a hidden operation", &mut hidden);
    print("get of a missing operation", &mut missing);
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let (_writer, reader) = operations();
    let users = Arc::new(Users);
    let access =
        || -> (Arc<dyn Authenticate>, Arc<dyn Authorize>) { (users.clone(), users.clone()) };
    let plain = shared::router_of(
        reader.clone(),
        inflight_operations(reader.clone()),
        access(),
    );
    // Each measurement has 200 users, and begins without decisions about them.
    let filtered = || {
        let mut served = [inflight_operations(reader.clone())];
        let kinds = Arc::new(ArcSwap::from_pointee(kinds::short_names(
            &scene::open("").0.served_kinds(),
        )));
        SubjectVisibility::new(reader.clone(), kinds, "ifo-system".into(), users.clone())
            .restrict(&mut served);
        let [served] = served;
        shared::router_of(reader.clone(), served, access())
    };

    measure(&plain, "without visibility", |n| format!("all-{n}")).await;
    measure(&filtered(), "each user sees all 10,000", |n| {
        format!("all-{n}")
    })
    .await;
    let filtered = filtered();
    measure(&filtered, "each user sees 50 of 10,000", |n| {
        format!("own-{n}")
    })
    .await;
    measure_hidden(&filtered).await;
}
