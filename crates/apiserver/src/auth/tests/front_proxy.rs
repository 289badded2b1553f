//! Tests requests in which a front proxy (a kube-apiserver that forwards requests) names the user
//! in headers. Also tests requests of other clients that forge these headers.

use super::super::testing::ca;
use super::*;

#[tokio::test]
async fn the_front_proxy_headers_give_user_groups_and_extras() {
    let setup = Setup::new();
    let user = setup
        .authenticate(
            &setup.proxy(),
            &[
                ("X-Remote-User", "jané"),
                ("X-Remote-Group", "dev"),
                ("X-Remote-Group", ""),
                ("X-Remote-Group", "system:authenticated"),
                ("X-Remote-Extra-Example.com%2fA", "1"),
                ("X-Remote-Extra-Example.com%2fA", "2"),
                ("X-Remote-Extra-Upper%41", "3"),
                ("X-Remote-Extra-Not%zz", "4"),
                ("X-Remote-Uid", "not configured"),
            ],
        )
        .await
        .unwrap();
    let extra = |key: &str, values: &[&str]| {
        (
            key.to_owned(),
            values.iter().map(|&it| it.to_owned()).collect::<Vec<_>>(),
        )
    };
    assert_eq!(
        user,
        User {
            name: "jané".to_owned(),
            uid: None,
            groups: vec!["dev".to_owned(), "system:authenticated".to_owned()],
            extra: [
                extra("example.com/a", &["1", "2"]),
                extra("upperA", &["3"]),
                extra("not%zz", &["4"]),
            ]
            .into(),
        }
    );
}

#[tokio::test]
async fn a_uid_header_is_used_when_configured() {
    let setup = Setup::changed(|data| {
        data.insert(
            "requestheader-uid-headers".to_owned(),
            r#"["X-Remote-Uid"]"#.to_owned(),
        );
    });
    let headers = [("X-Remote-User", "jane"), ("X-Remote-Uid", "42")];
    let user = setup.authenticate(&setup.proxy(), &headers).await.unwrap();
    assert_eq!(user.uid.as_deref(), Some("42"));
}

#[tokio::test]
async fn the_first_user_header_with_a_value_is_used() {
    let setup = Setup::new();
    for (headers, expected) in [
        (&[("X-Remote-User", ""), ("X-Other-User", "bob")][..], "bob"),
        (
            &[("X-Other-User", "bob"), ("X-Remote-User", "jane")],
            "jane",
        ),
        // Without a user in the headers, only a token authenticates a user.
        (&[], "401"),
        (&[("X-Remote-User", "")], "401"),
        (&[("Authorization", "Bearer good")], "tess"),
    ] {
        let name = setup.user_name(&setup.proxy(), headers).await;
        assert_eq!(name, expected, "{headers:?}");
    }
}

#[tokio::test]
async fn system_authenticated_is_added_except_to_anonymous() {
    let setup = Setup::new();
    for (name, group, expected) in [
        ("system:aggregator", "x", &["x", "system:authenticated"][..]),
        (
            "system:anonymous",
            "system:unauthenticated",
            &["system:unauthenticated"],
        ),
    ] {
        let headers = [("X-Remote-User", name), ("X-Remote-Group", group)];
        let user = setup.authenticate(&setup.proxy(), &headers).await.unwrap();
        assert_eq!(user.groups, expected);
    }
}

#[tokio::test]
async fn a_user_name_or_group_that_is_not_utf_8_is_rejected() {
    let setup = Setup::new();
    let odd = HeaderValue::from_bytes(b"jan\xe9").unwrap();
    for header in ["x-remote-user", "x-remote-group"] {
        let mut headers = header_map(&[("X-Remote-User", "jane")]);
        headers.insert(header, odd.clone());
        let answer = setup
            .authenticator
            .authenticate(&setup.proxy(), &headers)
            .await;
        assert!(answer.is_err(), "{header}");
    }
}

/// Clients that are not the front proxy send the headers of the front proxy. Each client has a
/// different certificate, and sends four requests with different `Authorization` headers. The
/// server must never accept the user in the forged headers.
#[tokio::test]
async fn forged_headers_authenticate_no_user() {
    let setup = Setup::new();
    let forged = [
        ("X-Remote-User", "system:admin"),
        ("X-Remote-Group", "system:masters"),
        ("X-Remote-Uid", "0"),
        ("X-Remote-Extra-Scopes", "all"),
    ];
    let good = ("Authorization", "Bearer good");
    let bad = ("Authorization", "Bearer bad");
    let basic = ("Authorization", "Basic Z29vZA==");
    // Each row has a client certificate and the expected users of four requests. The first request
    // has no `Authorization` header. The second request has a valid token, the third request has an
    // invalid token, and the fourth request has another scheme. `401` means that the server refuses
    // the request.
    let anonymous = "system:anonymous";
    let expected_if_invalid = ["401", "tess", "401", "401"];
    let rows = [
        (
            "no certificate",
            no_certificate(),
            [anonymous, "tess", "401", anonymous],
        ),
        ("a user's certificate", setup.jane(), ["jane"; 4]),
        (
            "issued by the proxy's CA for a name that is not allowed",
            setup.proxy_ca.client(&[("CN", "back-proxy")]).peer(),
            expected_if_invalid,
        ),
        (
            "issued by the users' CA for the proxy's name",
            setup.client_ca.client(&[("CN", "front-proxy")]).peer(),
            ["front-proxy"; 4],
        ),
        (
            "issued by an unknown CA for the proxy's name",
            ca("proxy-ca").client(&[("CN", "front-proxy")]).peer(),
            expected_if_invalid,
        ),
        (
            "expired",
            setup
                .proxy_ca
                .client_living(&[("CN", "front-proxy")], (-100, -1))
                .peer(),
            expected_if_invalid,
        ),
        (
            "not yet valid",
            setup
                .proxy_ca
                .client_living(&[("CN", "front-proxy")], (100, 200))
                .peer(),
            expected_if_invalid,
        ),
        (
            "for servers only",
            setup.proxy_ca.server("front-proxy").peer(),
            expected_if_invalid,
        ),
        (
            "signed by a certificate that is no CA",
            {
                let proxy = setup.proxy_ca.client(&[("CN", "front-proxy")]);
                let below = proxy.client(&[("CN", "front-proxy")]);
                PeerCertificates(Arc::new([below.der(), proxy.der()]))
            },
            expected_if_invalid,
        ),
        (
            "the proxy's certificate behind another leaf",
            PeerCertificates(Arc::new([
                ca("x").client(&[("CN", "front-proxy")]).der(),
                setup.proxy_ca.client(&[("CN", "front-proxy")]).der(),
                setup.proxy_ca.der(),
            ])),
            expected_if_invalid,
        ),
        (
            "garbage",
            PeerCertificates(Arc::new([b"garbage".to_vec().into()])),
            expected_if_invalid,
        ),
    ];
    for (certificate, peer, expected) in rows {
        for (authorization, expected) in [None, Some(good), Some(bad), Some(basic)]
            .into_iter()
            .zip(expected)
        {
            let mut headers = forged.to_vec();
            headers.extend(authorization);
            let user = setup.authenticate(&peer, &headers).await;
            let name = user.as_ref().map_or("401", |user| user.name.as_str());
            assert_eq!(name, expected, "{certificate} with {authorization:?}");
            if let Ok(user) = user {
                assert!(
                    !user.groups.contains(&"system:masters".to_owned()),
                    "{certificate}"
                );
                assert!(!user.extra.contains_key("scopes"), "{certificate}");
                assert_ne!(user.uid.as_deref(), Some("0"), "{certificate}");
            }
        }
    }
}

#[tokio::test]
async fn without_allowed_names_any_common_name_is_accepted() {
    let setup = Setup::changed(|data| {
        data.insert("requestheader-allowed-names".to_owned(), "[]".to_owned());
    });
    let peer = setup.proxy_ca.client(&[("CN", "any-name")]).peer();
    let headers = [("X-Remote-User", "jane")];
    assert_eq!(setup.user_name(&peer, &headers).await, "jane");
}

#[tokio::test]
async fn an_intermediate_ca_may_have_signed_the_proxys_certificate() {
    let setup = Setup::new();
    let between = setup.proxy_ca.intermediate("between");
    let leaf = between.client(&[("CN", "front-proxy")]);
    let headers = [("X-Remote-User", "jane")];
    let whole = PeerCertificates(Arc::new([leaf.der(), between.der()]));
    assert_eq!(setup.user_name(&whole, &headers).await, "jane");
    assert_eq!(setup.user_name(&leaf.peer(), &headers).await, "401");
}

#[tokio::test]
async fn an_expired_ca_authenticates_no_one() {
    let old = super::super::testing::ca_living("proxy-ca", (-200, -100));
    let setup = Setup::changed(|data| {
        data.insert("requestheader-client-ca-file".to_owned(), old.pem());
    });
    let peer = old.client(&[("CN", "front-proxy")]).peer();
    let headers = [("X-Remote-User", "jane")];
    assert_eq!(setup.user_name(&peer, &headers).await, "401");
}

#[tokio::test]
async fn a_certificate_is_rejected_once_its_ca_is_replaced() {
    let setup = Setup::new();
    // The test authenticates the same certificates before and after the CAs are replaced. In a
    // cluster, clients that keep their connections open do the same.
    let (proxy, jane) = (setup.proxy(), setup.jane());
    let headers = [("X-Remote-User", "bob")];
    assert_eq!(setup.user_name(&proxy, &headers).await, "bob");
    assert_eq!(setup.user_name(&jane, &[]).await, "jane");
    let next = config_map_data(&ca("client-ca"), &ca("proxy-ca"));
    setup
        .trust
        .store(Arc::new(AuthenticationConfig::parse(next).unwrap()));
    assert_eq!(setup.user_name(&proxy, &headers).await, "401");
    assert_eq!(setup.user_name(&jane, &[]).await, "401");
}

#[tokio::test]
async fn both_cas_of_a_rotation_are_accepted() {
    let next = ca("proxy-ca");
    let pem = next.pem();
    let setup = Setup::changed(|data| {
        data.get_mut("requestheader-client-ca-file")
            .unwrap()
            .push_str(&pem);
    });
    let headers = [("X-Remote-User", "bob")];
    assert_eq!(setup.user_name(&setup.proxy(), &headers).await, "bob");
    let renewed = next.client(&[("CN", "front-proxy")]).peer();
    assert_eq!(setup.user_name(&renewed, &headers).await, "bob");
}

#[tokio::test]
async fn the_certificate_distinguishes_the_front_proxy_from_users_and_strangers() {
    let setup = Setup::new();
    let is_proxy = |peer: &PeerCertificates| setup.authenticator.is_front_proxy(peer);
    assert!(is_proxy(&setup.proxy()));
    assert!(!is_proxy(&setup.jane()));
    // The front proxy's CA has issued this certificate, but for a name that is not in the list of
    // allowed names.
    let other = setup.proxy_ca.client(&[("CN", "other-proxy")]);
    assert!(!is_proxy(&other.peer()));
    let stranger = ca("client-ca").client(&[("CN", "jane")]);
    assert!(!is_proxy(&stranger.peer()));
    assert!(!is_proxy(&no_certificate()));
    assert!(setup.cluster.seen(&http::Method::POST).is_empty());
}
