//! Tests of authentication and authorization, both through the kube-apiserver and on direct
//! connections to `ifo-apiserver`.

use crate::harness::{
    Caller, Events, OPERATION, TestCluster, event_types, eventually, migrating, ok_if, shared, text,
};
use serde_json::json;

#[test]
fn a_role_binding_in_one_namespace_gives_access_to_that_namespace_only() {
    shared(async |cluster| {
        let (mine, other) = (
            cluster.namespace("mine").await,
            cluster.namespace("other").await,
        );
        let name = format!("{mine}-user");
        for namespace in [mine, other] {
            cluster.ready_rule_set(&migrating(namespace)).await;
            cluster.machine(namespace, "a", "Migrating").await;
            cluster
                .until_operations(namespace, &[("a", "Migrating")])
                .await;
        }
        let user = cluster.user(&name);
        let forbidden = |verb: &str, place: &str| {
            format!(
                "inflightoperations.live.ifo.kubevirt.io is forbidden: User \"{name}\" cannot \
                 {verb} resource \"inflightoperations\" in API group \"live.ifo.kubevirt.io\" {place}"
            )
        };
        let in_mine = format!("in the namespace \"{mine}\"");
        let message = user.get(&OPERATION.path(Some(mine))).await.refused(403);
        assert!(message.contains(&forbidden("list", &in_mine)), "{message}");

        grant(cluster, mine, &name).await;
        let list = eventually("the user may list", async || {
            let answer = user.get(&OPERATION.path(Some(mine))).await;
            ok_if(answer.code == 200, &answer)?;
            Ok(answer.body)
        })
        .await;
        assert_eq!(list["items"][0]["spec"]["subject"]["name"], "a", "{list}");
        let operation = text(&list["items"][0], "/metadata/name");
        let one = format!("{}/{operation}", OPERATION.path(Some(mine)));
        assert_eq!(user.get(&one).await.ok(), list["items"][0]);
        let path = format!("{}?watch=1", OPERATION.path(Some(mine)));
        let mut events = Events::of(&user, &path)
            .await
            .expect("the user must be allowed to watch");
        events
            .until("the operation", |all| {
                (event_types(all, operation) == ["ADDED"]).then_some(())
            })
            .await;

        let in_other = format!("in the namespace \"{other}\"");
        for (namespace, place) in [
            (Some(other), in_other.as_str()),
            (None, "at the cluster scope"),
        ] {
            let path = OPERATION.path(namespace);
            let message = user.get(&path).await.refused(403);
            assert!(message.contains(&forbidden("list", place)), "{message}");
            let message = user.get(&format!("{path}?watch=1")).await.refused(403);
            assert!(message.contains(&forbidden("watch", place)), "{message}");
            let selected = format!("{path}?fieldSelector=metadata.namespace%3D{mine}");
            user.get(&selected).await.refused(403);
        }
        let theirs = format!("{}/{operation}", OPERATION.path(Some(other)));
        user.get(&theirs).await.refused(403);
        // Operations on cluster-scoped objects are in the namespace `ifo-system`. To read them, a
        // user needs a right in this namespace.
        user.get(&OPERATION.path(Some("ifo-system")))
            .await
            .refused(403);

        let kubectl = cluster.kubectl(&["get", "ifos", "-A", "--as", &name]).await;
        let error = kubectl.expect_err("the user must not be allowed to list all namespaces");
        assert!(error.contains("Error from server (Forbidden)"), "{error}");
        let args = ["get", "ifos", "-n", mine, "-o", "name", "--as", &name];
        let found = cluster
            .kubectl(&args)
            .await
            .expect("the user must be allowed to list in this namespace");
        assert!(found.contains(operation), "{found}");

        let binding =
            format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{mine}/rolebindings/viewer");
        cluster.admin.delete(&binding).await.ok();
        // The open watch ends within a minute.
        let is_refused = |all: &[serde_json::Value]| {
            let last = all.last()?;
            (last["type"] == "ERROR" && last["object"]["code"] == 403).then_some(())
        };
        events.until("the watch is refused", is_refused).await;
        events.wait_for_end().await;
        eventually("the user may no longer list", async || {
            let answer = user.get(&OPERATION.path(Some(mine))).await;
            ok_if(answer.code == 403, answer)
        })
        .await;
    });
}

/// Gives the user the built-in ClusterRole `view` in a namespace. This role includes the right to
/// read operations.
async fn grant(cluster: &TestCluster, namespace: &str, user: &str) {
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"name": "viewer"},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view",
        },
        "subjects": [
            {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user},
        ],
    });
    let path = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings");
    cluster.admin.post(&path, &binding).await.ok();
}

#[test]
fn forged_headers_give_no_administrator_rights() {
    shared(async |cluster| {
        let stranger = Caller::new(cluster.direct());
        let forged = [
            ("X-Remote-User", "system:admin"),
            ("X-Remote-Group", "system:masters"),
        ];
        let path = OPERATION.path(None);
        let anonymous = "User \"system:anonymous\" cannot list resource";
        for headers in [&forged[..], &[]] {
            let message = stranger.get_with(&path, headers).await.refused(403);
            assert!(message.contains(anonymous), "{message}");
        }
        let watch = format!("{path}?watch=1");
        stranger.get_with(&watch, &forged).await.refused(403);
        // The kube-apiserver ignores the `X-Remote-*` headers in a client's request. So the request
        // fails, because the client's own user may not read operations.
        let name = format!("{}-user", cluster.namespace("forged").await);
        let user = cluster.user(&name);
        let message = user.get_with(&path, &forged).await.refused(403);
        assert!(message.contains(&name), "{message}");
    });
}

#[test]
fn discovery_and_health_are_public() {
    shared(async |cluster| {
        let stranger = Caller::new(cluster.direct());
        for path in [
            "/apis",
            "/apis/live.ifo.kubevirt.io",
            "/apis/live.ifo.kubevirt.io/v1alpha1",
            "/openapi/v2",
            "/openapi/v3",
            "/version",
            "/healthz",
            "/livez",
            "/readyz",
        ] {
            stranger.get(path).await.ok();
        }
        stranger.get("/metrics").await.refused(403);
        stranger.get("/api").await.refused(404);
    });
}

#[test]
fn an_invalid_credential_is_401_and_a_valid_one_authenticates_its_user() {
    shared(async |cluster| {
        let namespace = cluster.namespace("tokens").await;
        let stranger = Caller::new(cluster.direct());
        let path = OPERATION.path(Some(namespace));
        let bad = [("Authorization", "Bearer not-a-token")];
        let message = stranger.get_with(&path, &bad).await.refused(401);
        assert_eq!(message, "Unauthorized");
        stranger.get_with("/healthz", &bad).await.refused(401);

        let token = ["create", "token", "default", "-n", namespace];
        let token = cluster
            .kubectl(&token)
            .await
            .expect("kubectl must create a token");
        let bearer = format!("Bearer {}", token.trim());
        let headers = [
            ("Authorization", bearer.as_str()),
            ("X-Remote-User", "system:admin"),
        ];
        let message = stranger.get_with(&path, &headers).await.refused(403);
        let account = format!("system:serviceaccount:{namespace}:default");
        assert!(message.contains(&account), "{message}");
        grant(cluster, namespace, &account).await;
        eventually("the service account may list", async || {
            let answer = stranger.get_with(&path, &headers).await;
            ok_if(answer.code == 200, answer)
        })
        .await;
    });
}

#[test]
fn the_front_proxy_acts_for_the_user_it_names() {
    shared(async |cluster| {
        let namespace = cluster.namespace("proxied").await;
        let proxy = cluster.front_proxy();
        let path = OPERATION.path(Some(namespace));
        let name = format!("{namespace}-user");
        let headers = [("X-Remote-User", name.as_str())];
        let message = proxy.get_with(&path, &headers).await.refused(403);
        assert!(message.contains(&name), "{message}");
        grant(cluster, namespace, &name).await;
        eventually("the user may list", async || {
            let answer = proxy.get_with(&path, &headers).await;
            ok_if(answer.code == 200, answer)
        })
        .await;
        let masters = [
            ("X-Remote-User", "anybody"),
            ("X-Remote-Group", "first"),
            ("X-Remote-Group", "system:masters"),
        ];
        proxy.get_with(&OPERATION.path(None), &masters).await.ok();
        // The front proxy (the kube-apiserver) names the user in the header `X-Remote-User`. A
        // request of the front proxy without this header has no user.
        proxy.get(&path).await.refused(401);
    });
}
