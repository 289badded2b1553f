//! Tests of visibility by subject with simulated rights and a simulated clock.

mod open_watches;

use super::watches::Stream;
use super::*;
use crate::replicate::Term;
use aggregated_apiserver::auth::ResourceAttributes;
use ifo_api::activity::Activity;
use std::collections::HashSet;

const ALL: &str = "/apis/live.ifo.kubevirt.io/v1alpha1/inflightoperations";
const ACTIVITIES: &str = "/apis/live.ifo.kubevirt.io/v1alpha1/activities";
const JANE: [(&str, &str); 1] = [("x-user", "jane")];

/// Simulated rights. Each right is a text such as `jane get virtualmachines a`. If the right is for
/// one object, the name of the object follows the namespace.
#[derive(Default)]
pub struct Rights {
    granted: Mutex<HashSet<String>>,
    /// The reviews since the last call of [`Self::take_reviews`].
    reviews: Mutex<Vec<String>>,
}

impl Rights {
    fn grant(&self, right: &str) {
        self.granted.lock().unwrap().insert(right.to_owned());
    }

    fn revoke(&self, right: &str) {
        assert!(self.granted.lock().unwrap().remove(right), "{right}");
    }

    fn take_reviews(&self) -> Vec<String> {
        std::mem::take(&mut self.reviews.lock().unwrap())
    }
}

impl Authorize for Rights {
    fn authorize<'a>(
        &'a self,
        user: &'a User,
        attributes: &'a Attributes,
    ) -> BoxFuture<'a, Result<AccessDecision, Undecided>> {
        let Attributes::Resource(asked) = attributes else {
            panic!("only resources are reviewed");
        };
        let ResourceAttributes {
            verb,
            resource,
            subresource,
            namespace,
            name,
            ..
        } = asked;
        let words = [&*user.name, verb, resource, subresource, namespace, name];
        let words = words.into_iter().filter(|word| !word.is_empty());
        let review = words.collect::<Vec<_>>().join(" ");
        let granted = self.granted.lock().unwrap();
        let answer = if granted.contains("outage") {
            Err(Undecided("no connection".to_owned()))
        } else if granted.contains(&review) {
            Ok(AccessDecision::Allow)
        } else {
            Ok(AccessDecision::Deny {
                reason: String::new(),
            })
        };
        self.reviews.lock().unwrap().push(review);
        Box::pin(async { answer })
    }
}

/// Creates a server with visibility by subject. Jane may get the virtual machines in the namespace
/// `a`, and the virtual machine `named` in `b`. The operations in `a` are on `one`, and those in `b` on
/// `named` and `other`.
fn fixture() -> (Fixture, Arc<Rights>) {
    let rights = Arc::new(Rights::default());
    rights.grant("jane get virtualmachines a");
    rights.grant("jane get virtualmachines b named");
    rights.grant("jane get namespaces a");
    let mut fixture = Fixture::filtered(rights.clone());
    for (rv, namespace, name) in [(101, "a", "one"), (102, "b", "named"), (103, "b", "other")] {
        put(&mut fixture, rv, namespace, name);
    }
    (fixture, rights)
}

fn put(fixture: &mut Fixture, rv: u64, namespace: &str, name: &str) {
    fixture.put(rv, namespace, name, |object| {
        object["spec"]["subject"]["namespace"] = json!(namespace);
        object["spec"]["subject"]["name"] = json!(name);
        object["status"]["progress"] = json!(rv % 100);
    });
}

/// Writes an activity as the leader does.
fn put_activity(fixture: &mut Fixture, rv: u64, namespace: &str, name: &str, operations: u32) {
    let activity: Activity = serde_json::from_value(json!({
        "apiVersion": "live.ifo.kubevirt.io/v1alpha1", "kind": "Activity",
        "metadata": {
            "name": name, "namespace": namespace, "uid": "u", "labels": {},
            "creationTimestamp": "2020-01-01T00:00:00Z",
        },
        "status": {
            "conditions": [{
                "type": "Idle", "status": if operations == 0 { "True" } else { "False" },
                "reason": "OperationsInFlight", "message": "The oldest is VirtualMachine/other",
                "lastTransitionTime": "2021-01-01T00:00:00Z",
            }],
            "operations": operations, "blocked": 0, "failing": 0, "overdue": 0,
        },
    }))
    .unwrap();
    let key = crate::index::collection::ACTIVITIES.key(namespace, name);
    fixture.put_object(rv, key, ifo_api::Object::Activity(Arc::new(activity)));
}

#[tokio::test(start_paused = true)]
async fn lists_and_pages_contain_only_the_operations_that_the_user_sees() {
    let (fixture, rights) = fixture();
    let list = fixture.json(ALL, &JANE).await;
    assert_eq!(names(&list), ["a/one", "b/named"]);
    assert!(list["metadata"]["continue"] == "" && list["metadata"]["remainingItemCount"].is_null());
    let page = fixture.json(&format!("{ALL}?limit=1"), &JANE).await;
    assert_eq!(names(&page), ["a/one"]);
    assert_eq!(page["metadata"]["remainingItemCount"], 1);
    // The continue token of a user who sees more gives no access to hidden operations.
    let all = [("x-group", "system:masters")];
    let page = fixture.json(&format!("{ALL}?limit=2"), &all).await;
    assert_eq!(names(&page), ["a/one", "b/named"]);
    let token = page["metadata"]["continue"].as_str().unwrap();
    let rest = fixture
        .json(&format!("{ALL}?continue={token}"), &JANE)
        .await;
    assert_eq!(names(&rest), Vec::<String>::new());
    // An administrator sees everything without a review.
    rights.take_reviews();
    assert_eq!(
        fixture.json(ALL, &all).await["items"]
            .as_array()
            .unwrap()
            .len(),
        3
    );
    assert_eq!(rights.take_reviews(), Vec::<String>::new());
    // A user who may list `inflightoperations/all` in a namespace sees everything there.
    rights.grant("joe list inflightoperations all b");
    let joe = [("x-user", "joe")];
    let in_b = fixture
        .json(&format!("{BASE}/namespaces/b/inflightoperations"), &joe)
        .await;
    assert_eq!(names(&in_b), ["b/named", "b/other"]);
    assert_eq!(names(&fixture.json(ALL, &joe).await), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn each_resource_in_a_namespace_is_reviewed_once_in_30_s_and_names_are_bounded() {
    let (mut fixture, rights) = fixture();
    fixture.json(ALL, &JANE).await;
    let mut reviews = rights.take_reviews();
    reviews.sort();
    let expected = [
        "jane get virtualmachines a",
        "jane get virtualmachines b",
        "jane get virtualmachines b named",
        "jane get virtualmachines b other",
        "jane list inflightoperations all",
    ];
    assert_eq!(reviews, expected);
    tokio::time::sleep(Duration::from_secs(29)).await;
    fixture.json(ALL, &JANE).await;
    assert_eq!(rights.take_reviews(), Vec::<String>::new());
    rights.revoke("jane get virtualmachines a");
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(names(&fixture.json(ALL, &JANE).await), ["b/named"]);

    for number in 0..100 {
        put(&mut fixture, 200 + number, "b", &format!("b{number:03}"));
    }
    rights.grant("jane get virtualmachines b b099");
    tokio::time::sleep(Duration::from_secs(30)).await;
    rights.take_reviews();
    assert_eq!(names(&fixture.json(ALL, &JANE).await), Vec::<String>::new());
    let is_named = |review: &&String| review.split(' ').count() == 5;
    assert_eq!(rights.take_reviews().iter().filter(is_named).count(), 50);
    // A request for one operation needs only one review with a name.
    let one = format!("{BASE}/namespaces/b/inflightoperations/b099");
    assert_eq!(fixture.get_as("jane", &one).await.0, StatusCode::OK);
}

#[tokio::test(start_paused = true)]
async fn operations_of_unserved_kinds_are_hidden_and_use_up_no_reviews() {
    let (mut fixture, rights) = fixture();
    for number in 0..60 {
        let name = format!("a{number}");
        fixture.put(200 + number, "a", &name, |object| {
            let subject = json!({"apiVersion": "gone.example/v1", "kind": "Gone", "name": name});
            object["spec"]["subject"] = subject;
        });
    }
    let list = fixture.json(ALL, &JANE).await;
    assert_eq!(names(&list), ["a/one", "b/named"]);
    assert_eq!(rights.take_reviews().len(), 5);
}

#[tokio::test(start_paused = true)]
async fn a_hidden_operation_is_answered_like_one_that_does_not_exist() {
    let (fixture, rights) = fixture();
    let of = |name: &str| format!("{BASE}/namespaces/b/inflightoperations/{name}");
    let by_name =
        |name: &str| format!("{ALL}?fieldSelector=metadata.namespace=b,metadata.name={name}");
    // In the second round, a list has already cached decisions. The number of reviews must still be
    // the same for hidden and missing operations.
    for is_listed in [false, true] {
        if is_listed {
            tokio::time::sleep(Duration::from_secs(31)).await;
            fixture.json(ALL, &JANE).await;
        }
        fixture.get_as("jane", &of("first")).await;
        fixture.get_as("jane", &by_name("first")).await;
        for path in [&of as &dyn Fn(&str) -> String, &by_name] {
            rights.take_reviews();
            let hidden = fixture.get_as("jane", &path("other")).await;
            let reviews_of_hidden = rights.take_reviews().len();
            let missing = fixture.get_as("jane", &path("absent")).await;
            assert_eq!((reviews_of_hidden, rights.take_reviews().len()), (1, 1));
            assert_eq!(hidden.0, missing.0);
            assert_eq!(hidden.1.replace("other", "absent"), missing.1);
        }
        let named = fixture.get_as("jane", &of("named")).await;
        assert_eq!(named.0, StatusCode::OK);
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_decision_a_list_fails_and_is_not_empty() {
    let (fixture, rights) = fixture();
    rights.grant("outage");
    assert_eq!(
        fixture.get_as("jane", ALL).await.0,
        StatusCode::INTERNAL_SERVER_ERROR
    );
}

#[tokio::test(start_paused = true)]
async fn a_filtered_activity_says_nothing_about_hidden_operations() {
    let (mut fixture, rights) = fixture();
    put_activity(&mut fixture, 104, "a", "namespace", 1);
    put_activity(&mut fixture, 105, "b", "namespace", 2);
    put_activity(&mut fixture, 106, "ifo-system", "cluster", 3);
    put_activity(&mut fixture, 107, "c", "namespace", 0);
    put_activity(&mut fixture, 108, "ifo-system", "node.n", 0);
    let list = fixture.json(ACTIVITIES, &JANE).await;
    // The activity of `c` and of the node are hidden, because Jane may not get them.
    assert_eq!(
        names(&list),
        ["a/namespace", "b/namespace", "ifo-system/cluster"]
    );
    let counted = |list: &Value| -> Vec<Value> {
        let items = list["items"].as_array().unwrap().iter();
        items.map(|it| it["status"]["operations"].clone()).collect()
    };
    assert_eq!(counted(&list), [1, 1, 2]);
    for item in list["items"].as_array().unwrap() {
        let idle = &item["status"]["conditions"][0];
        assert_eq!(
            (&idle["status"], &idle["reason"]),
            (&json!("Unknown"), &json!("Filtered"))
        );
        assert_eq!(idle["lastTransitionTime"], "2020-01-01T00:00:00Z");
        assert_eq!(item["metadata"]["resourceVersion"], "108");
        assert!(!item.to_string().contains("other"), "{item}");
    }
    let idle = format!("{ACTIVITIES}?fieldSelector=status.idle=False");
    assert_eq!(
        names(&fixture.json(&idle, &JANE).await),
        Vec::<String>::new()
    );

    // A watch shows changes of what Jane sees, and nothing else.
    let mut stream = Stream::open_path(&fixture, ACTIVITIES, "resourceVersion=108", &JANE).await;
    put(&mut fixture, 109, "b", "hidden");
    put_activity(&mut fixture, 110, "b", "namespace", 3);
    put_activity(&mut fixture, 111, "ifo-system", "cluster", 4);
    let silence = tokio::time::timeout(Duration::from_secs(29), stream.next());
    assert!(silence.await.is_err());
    put(&mut fixture, 112, "a", "two");
    let event = stream.next().await.unwrap();
    assert_eq!(event["type"], "MODIFIED");
    assert_eq!(event["object"]["metadata"]["namespace"], "a");
    assert_eq!(event["object"]["status"]["operations"], 2);

    // With the right to list all operations, Jane gets the activities as they are.
    rights.grant("jane list inflightoperations all");
    tokio::time::sleep(Duration::from_secs(31)).await;
    let list = fixture.json(ACTIVITIES, &JANE).await;
    assert_eq!(counted(&list), [1, 3, 0, 4, 0]);
}

#[tokio::test(start_paused = true)]
async fn a_filtered_list_says_so_without_a_warning() {
    let (mut fixture, rights) = fixture();
    fixture.set_gaps(no_gaps());
    let headers = async || {
        let response = fixture.send(request("GET", ALL, &JANE)).await;
        let names = ["ifo-complete", "ifo-incomplete", "warning"];
        names.map(|name| {
            let value = response.headers().get(name);
            value.map(|value| value.to_str().unwrap().to_owned())
        })
    };
    let filtered = Some("\"filtered\"".to_owned());
    assert_eq!(headers().await, [None, filtered, None]);
    rights.grant("jane list inflightoperations all");
    tokio::time::sleep(Duration::from_secs(31)).await;
    assert_eq!(headers().await, [Some("true".to_owned()), None, None]);
}

#[tokio::test(start_paused = true)]
async fn another_replica_copies_all_operations() {
    let (fixture, rights) = fixture();
    fixture.replica_status.serve(&Term::from("pod_1"));
    let replica = [("x-user", "replica"), ("ifo-term", "pod_1")];
    let list = fixture.json(ALL, &replica).await;
    // Three operations, and the rule sets that may miss operations.
    assert_eq!(list["items"].as_array().unwrap().len(), 4);
    assert_eq!(rights.take_reviews(), Vec::<String>::new());
}
