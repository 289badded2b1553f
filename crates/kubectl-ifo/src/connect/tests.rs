//! Tests of connection flags that override values of a kubeconfig.

use super::*;

#[tokio::test]
async fn credentials_are_sent_over_tls_only() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config");
    let kubeconfig = "{apiVersion: v1, kind: Config, current-context: a,
        clusters: [{name: a, cluster: {server: 'https://192.0.2.1'}}],
        users: [{name: a, user: {token: secret}}],
        contexts: [{name: a, context: {cluster: a, user: a}}]}";
    std::fs::write(&path, kubeconfig).unwrap();
    for (server, token, is_sent) in [
        (None, None, true),
        (None, Some("given"), true),
        (Some("https://192.0.2.2"), Some("given"), true),
        (Some("http://192.0.2.2"), Some("given"), false),
        (Some("HTTP://192.0.2.2"), None, false),
        (Some("192.0.2.2:8080"), None, false),
    ] {
        let flags = ClusterFlags {
            kubeconfig: Some(path.clone()),
            server: server.map(str::to_owned),
            token: token.map(str::to_owned),
            impersonate: Some("jane".to_owned()),
            ..ClusterFlags::default()
        };
        let config = flags.config().await.unwrap();
        assert_eq!(config.auth_info.token.is_some(), is_sent, "{server:?}");
        assert_eq!(config.auth_info.impersonate.as_deref(), Some("jane"));
    }
}
