//! The attacker is the administrator of one namespace. The attacker creates four ServiceAccounts
//! that may view this namespace, and opens as many watches with them as the server allows. The
//! server under test must still accept the watches of all other clients.

use super::connections::holder;
use crate::harness::{Caller, Events, OPERATION, TestCluster, alone, eventually, ok_if};
use crate::persistence::Persisting;
use kube::Config;
use serde_json::json;

/// Number of watches that each client tries to open. It is above the limit of all watches.
const ATTEMPTS: usize = 50;

/// The limits of the server: 40 watches, of which 4 are reserved, and 10 of each client.
const LIMITS: [(&str, &str); 3] = [
    ("PERSISTENCE", "off"),
    ("MAX_WATCHES", "40"),
    ("MAX_WATCHES_PER_USER", "10"),
];

/// Creates a ServiceAccount with the ClusterRole `view` in its namespace. Returns a client that
/// connects directly to the server with a token of this ServiceAccount.
async fn service_account(
    cluster: &TestCluster,
    direct: &Config,
    namespace: &str,
    name: &str,
) -> Caller {
    let account = json!({
        "apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": {"name": name, "namespace": namespace},
    });
    let user = json!({"kind": "ServiceAccount", "name": name, "namespace": namespace});
    cluster
        .apply(&[account, view(namespace, name, &user)])
        .await;
    let token = ["create", "token", name, "-n", namespace];
    let token = cluster
        .kubectl(&token)
        .await
        .expect("kubectl must create a token");
    let mut config = direct.clone();
    config.auth_info.token = Some(token.trim().to_owned().into());
    until_allowed(Caller::new(config), namespace).await
}

/// Returns a RoleBinding that lets `subject` view `namespace`.
fn view(namespace: &str, name: &str, subject: &serde_json::Value) -> serde_json::Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"name": name, "namespace": namespace},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        "subjects": [subject],
    })
}

async fn until_allowed(caller: Caller, namespace: &str) -> Caller {
    eventually("the client may list", async || {
        let answer = caller.get(&OPERATION.path(Some(namespace))).await;
        ok_if(answer.code == 200, answer)
    })
    .await;
    caller
}

fn watch(namespace: Option<&str>) -> String {
    format!("{}?watch=1", OPERATION.path(namespace))
}

#[test]
fn four_service_accounts_of_one_namespace_leave_watches_for_others() {
    alone(async |cluster| {
        let target = Persisting::start(cluster, &LIMITS).await;
        let direct = target.server.stranger();
        let (tenant, other) = (
            cluster.namespace("tenant").await,
            cluster.namespace("other").await,
        );
        let controller =
            service_account(cluster, &direct, "kube-system", "hostile-controller").await;
        let bob = json!({
            "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "hostile-tenant-bob",
        });
        cluster.apply(&[view(other, "bob", &bob)]).await;
        let bob = holder(cluster, direct.clone(), "hostile-tenant-bob", "people");
        let bob = until_allowed(bob, other).await;
        let administrator = holder(cluster, direct.clone(), "hostile-root", "system:masters");

        // The attack: 200 attempts of four ServiceAccounts. Ten of them succeed.
        let mut open = Vec::new();
        for number in 0..4 {
            let name = format!("attacker-{number}");
            let attacker = service_account(cluster, &direct, tenant, &name).await;
            for _ in 0..ATTEMPTS {
                match Events::of(&attacker, &watch(Some(tenant))).await {
                    Ok(events) => open.push(events),
                    Err(error) => assert!(
                        error.contains("too many watches of the ServiceAccounts of the namespace")
                            && error.contains("the limit for each client is 10"),
                        "{error}"
                    ),
                }
            }
        }
        assert_eq!(open.len(), 10);
        // A user of another namespace, a controller and an administrator can watch.
        for (caller, namespace) in [
            (&bob, Some(other)),
            (&controller, Some("kube-system")),
            (&administrator, None),
        ] {
            let events = Events::of(caller, &watch(namespace)).await;
            open.push(events.unwrap_or_else(|error| panic!("{namespace:?}: {error}")));
        }

        // With five more namespaces, the attacker uses all watches except for the reserve.
        for number in 0..5 {
            let namespace = cluster.namespace("tenant").await;
            let name = format!("attacker-{number}");
            let attacker = service_account(cluster, &direct, namespace, &name).await;
            while let Ok(events) = Events::of(&attacker, &watch(Some(namespace))).await {
                open.push(events);
            }
        }
        let refused = Events::of(&bob, &watch(Some(other))).await.err();
        let refused = refused.expect("only the reserve may be left");
        assert!(refused.contains("4 of them are reserved"), "{refused}");
        for (caller, namespace) in [(&controller, Some("kube-system")), (&administrator, None)] {
            let events = Events::of(caller, &watch(namespace)).await;
            open.push(events.unwrap_or_else(|error| panic!("{namespace:?}: {error}")));
        }
    });
}
