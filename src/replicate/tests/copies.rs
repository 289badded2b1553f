//! Tests of the copy of a leader's whole state, with a scripted leader: when the copy ends, and at
//! which resourceVersion it starts.

use super::follower_reads::{BOUNDS, leader};
use crate::index::{Rv, index_from};
use crate::replicate::{Connect, Mirror, ReplicaRole, ReplicaStatus};
use futures::{FutureExt as _, StreamExt as _, stream};
use http::{Request, Response};
use kube::Client;
use kube::client::Body;
use serde_json::json;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The answer of a scripted leader to one watch.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Watch {
    /// The resourceVersion of the watch is gone.
    Gone,
    /// The connection ends without an event.
    Closed,
    /// The watch delivers a change, and then its resourceVersion is gone.
    GoneLater,
    /// The watch delivers a change, and stays open.
    Open,
}

/// A leader without objects. Its oldest resourceVersion is 5, and its newest one is 7.
#[derive(Clone)]
struct ScriptedLeader {
    /// The number of pages of its list, and the time until it sends a page.
    pages: (usize, Duration),
    /// The answers to the next watches. The answer to each later watch is [`Watch::Open`].
    watches: Arc<Mutex<VecDeque<Watch>>>,
    /// The resourceVersion of each list that was begun.
    lists: Arc<Mutex<Vec<String>>>,
}

impl ScriptedLeader {
    fn new(pages: (usize, Duration), watches: &[Watch]) -> Self {
        Self {
            pages,
            watches: Arc::new(Mutex::new(watches.iter().copied().collect())),
            lists: Arc::default(),
        }
    }

    async fn answer(self, uri: String) -> axum::body::Body {
        let option = |name: &str| {
            let (_, rest) = uri.split_once(&format!("{name}="))?;
            rest.split('&').next()
        };
        if uri.contains("/peer") {
            return r#"{"leading": true, "head": 7, "oldest": 5}"#.into();
        }
        if option("watch").is_none() {
            let page: usize = option("continue").map_or(1, |page| page.parse().unwrap());
            if let Some(version) = option("resourceVersion") {
                self.lists.lock().unwrap().push(version.to_owned());
            }
            tokio::time::sleep(self.pages.1).await;
            let next = (page < self.pages.0).then(|| (page + 1).to_string());
            let metadata = json!({"resourceVersion": "5", "continue": next});
            return json!({"metadata": metadata, "items": []})
                .to_string()
                .into();
        }
        let bookmark = json!({"type": "BOOKMARK", "object": {
            "apiVersion": "v1", "kind": "X", "metadata": {"resourceVersion": "7"},
        }});
        let gone = json!({"type": "ERROR", "object": {"code": 410}});
        let next = self.watches.lock().unwrap().pop_front();
        let next = next.unwrap_or(Watch::Open);
        let events = match next {
            Watch::Gone => vec![gone],
            Watch::Closed => vec![],
            Watch::GoneLater => vec![bookmark, gone],
            Watch::Open => vec![bookmark],
        };
        let lines = events
            .into_iter()
            .map(|event| Ok::<_, Infallible>(format!("{event}\n")));
        let rest = stream::pending().take(usize::from(next == Watch::Open));
        axum::body::Body::from_stream(stream::iter(lines).chain(rest))
    }

    /// Lets a new replica copy this leader for a minute. Returns true if the replica is then in sync,
    /// and the resourceVersions of the lists that it has begun.
    async fn copy(self) -> (bool, Vec<String>) {
        let (mut follower, reader) = index_from(BOUNDS, Rv(0));
        let status = ReplicaStatus::new(reader);
        status.role().send_replace(ReplicaRole::Following(leader()));
        let lists = self.lists.clone();
        let send = move |request: Request<Body>| {
            let answer = self.clone().answer(request.uri().to_string());
            async { Ok::<_, Infallible>(Response::new(answer.await)) }
        };
        let client = Client::new(tower::service_fn(send), "default");
        let connect: Connect = Box::new(move |_| std::future::ready(Ok(client.clone())).boxed());
        let mut mirror = Mirror::new(connect, status.clone());
        let leader = leader();
        let following = mirror.follow(&mut follower, &leader);
        let minute = tokio::time::timeout(Duration::from_mins(1), following);
        assert!(minute.await.is_err(), "the follower tries again");
        let in_sync = status.in_sync().borrow().clone();
        (in_sync == Some(leader.term), lists.lock().unwrap().clone())
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_copy_ends_in_sync_and_a_copy_without_progress_begins_again() {
    let slow = ScriptedLeader::new((10, Duration::from_secs(4)), &[]);
    assert_eq!(slow.copy().await, (true, vec!["5".to_owned()]));
    let stuck = ScriptedLeader::new((10, Duration::from_mins(2)), &[]);
    let (is_in_sync, lists) = stuck.copy().await;
    assert!(!is_in_sync && lists.len() > 3, "{lists:?}");
}

#[tokio::test(start_paused = true)]
async fn only_a_state_whose_watch_never_began_is_copied_from_the_newest_version() {
    for (first_watch, lists) in [
        (Watch::Open, &["5"][..]),
        (Watch::Closed, &["5"]),
        (Watch::Gone, &["5", "7"]),
        (Watch::GoneLater, &["5", "5"]),
    ] {
        let leader = ScriptedLeader::new((1, Duration::ZERO), &[first_watch]);
        let lists = lists.iter().map(ToString::to_string).collect();
        assert_eq!(leader.copy().await, (true, lists), "{first_watch:?}");
    }
}
