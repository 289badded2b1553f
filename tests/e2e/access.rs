//! Tests of authentication and authorization, both through the kube-apiserver and on direct
//! connections to `ifo-apiserver`.

use crate::harness::{Caller, Events, OPERATION, shared, text};
use serde_json::Value;

#[test]
fn a_role_binding_in_one_namespace_gives_access_to_that_namespace_only() {
    shared(async |cluster| {
        let (mine, operations) = cluster.migrations("mine", &["a"]).await;
        let (other, _) = cluster.migrations("other", &["a"]).await;
        let name = format!("{mine}-user");
        let user = cluster.user(&name, &[]);
        let list = OPERATION.path(Some(mine));
        let refused = async |verb: &str, path: &str, place: &str| {
            let message = user.get(path).await.refused(403);
            let forbidden = format!(
                "inflightoperations.live.ifo.kubevirt.io is forbidden: User \"{name}\" cannot \
                 {verb} resource \"inflightoperations\" in API group \"live.ifo.kubevirt.io\" {place}"
            );
            assert!(message.contains(&forbidden), "{message}");
        };
        let in_namespace = |namespace: &str| format!("in the namespace \"{namespace}\"");
        refused("list", &list, &in_namespace(mine)).await;

        let binding = cluster.grant_view(mine, &name).await;
        user.until_code(&list, 200).await;
        let operation = text(&operations[0], "/metadata/name");
        let one = OPERATION.one(Some(mine), operation);
        assert_eq!(user.get(&one).await.ok()["spec"], operations[0]["spec"]);
        let events = Events::of(&user, &format!("{list}?watch=1")).await;
        let mut events = events.expect("the user must be allowed to watch");
        let is_added = |all: &[Value]| {
            let first = all.first()?;
            let name = text(first, "/object/metadata/name");
            (first["type"] == "ADDED" && name == operation).then_some(())
        };
        events.until("the operation", is_added).await;

        for (namespace, place) in [
            (Some(other), in_namespace(other)),
            (None, "at the cluster scope".to_owned()),
        ] {
            let path = OPERATION.path(namespace);
            refused("list", &path, &place).await;
            refused("watch", &format!("{path}?watch=1"), &place).await;
        }
        let line = format!("get ifos -A --as {name}");
        let error = cluster.try_kubectl(&line).await.unwrap_err();
        assert!(error.contains("Error from server (Forbidden)"), "{error}");

        cluster.admin.delete(&binding).await.ok();
        // The open watch ends within a minute.
        let is_refused = |all: &[Value]| {
            let last = all.last()?;
            (last["type"] == "ERROR" && last["object"]["code"] == 403).then_some(())
        };
        events.until("the watch is refused", is_refused).await;
        events.wait_for_end().await;
        user.until_code(&list, 403).await;
    });
}

/// The kube-apiserver must not repeat such a request, because each attempt needs a new connection.
#[test]
fn a_url_that_is_too_long_is_refused_at_once() {
    shared(async |cluster| {
        let path = format!("{}?x={}", OPERATION.path(None), "x".repeat(66_000));
        let error = cluster.try_kubectl(&format!("get --raw {path}")).await;
        let error = error.unwrap_err();
        let end = &error[error.len().saturating_sub(200)..];
        assert!(
            end.contains("Error from server (ServiceUnavailable)"),
            "{end}"
        );
    });
}

#[test]
fn forged_headers_give_no_rights_and_a_token_authenticates_its_user() {
    shared(async |cluster| {
        let namespace = cluster.new_namespace("direct").await;
        let stranger = Caller::new(cluster.direct());
        let (all, path) = (OPERATION.path(None), OPERATION.path(Some(namespace)));
        let forged = [
            ("X-Remote-User", "system:admin"),
            ("X-Remote-Group", "system:masters"),
        ];
        let message = stranger.get_with(&all, &forged).await.refused(403);
        let anonymous = "User \"system:anonymous\" cannot list resource";
        assert!(message.contains(anonymous), "{message}");
        // The kube-apiserver ignores the `X-Remote-*` headers in a client's request.
        let name = format!("{namespace}-user");
        let user = cluster.user(&name, &[]);
        let message = user.get_with(&all, &forged).await.refused(403);
        assert!(message.contains(&name), "{message}");

        let bad = [("Authorization", "Bearer not-a-token")];
        stranger.get_with(&path, &bad).await.refused(401);
        let line = format!("create token default -n {namespace}");
        let token = cluster.kubectl(&line).await;
        let bearer = format!("Bearer {}", token.trim());
        let headers = [("Authorization", bearer.as_str()), forged[0]];
        let message = stranger.get_with(&path, &headers).await.refused(403);
        let account = format!("system:serviceaccount:{namespace}:default");
        assert!(message.contains(&account), "{message}");
        cluster.grant_view(namespace, &account).await;
        let mut config = cluster.direct();
        config.auth_info.token = Some(token.trim().to_owned().into());
        Caller::new(config).until_code(&path, 200).await;
    });
}
