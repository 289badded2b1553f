//! Tests of users that a front proxy names, and of clients that forge its headers.

use super::super::testing::ca;
use super::*;

#[tokio::test]
async fn the_front_proxy_headers_give_user_groups_and_extras() {
    let house = House::new();
    let user = house
        .ask(
            &house.proxy(),
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
    let house = House::changed(|data| {
        data.insert(
            "requestheader-uid-headers".to_owned(),
            r#"["X-Remote-Uid"]"#.to_owned(),
        );
    });
    let headers = [("X-Remote-User", "jane"), ("X-Remote-Uid", "42")];
    let user = house.ask(&house.proxy(), &headers).await.unwrap();
    assert_eq!(user.uid.as_deref(), Some("42"));
}

#[tokio::test]
async fn the_first_user_header_with_a_value_is_used() {
    let house = House::new();
    let second = [("X-Remote-User", ""), ("X-Other-User", "bob")];
    assert_eq!(house.name(&house.proxy(), &second).await, "bob");
    let both = [("X-Other-User", "bob"), ("X-Remote-User", "jane")];
    assert_eq!(house.name(&house.proxy(), &both).await, "jane");
}

#[tokio::test]
async fn system_authenticated_is_added_except_to_anonymous() {
    let house = House::new();
    let user = house
        .ask(
            &house.proxy(),
            &[
                ("X-Remote-User", "system:aggregator"),
                ("X-Remote-Group", "x"),
            ],
        )
        .await
        .unwrap();
    assert_eq!(user.groups, ["x", "system:authenticated"]);
    let user = house
        .ask(
            &house.proxy(),
            &[
                ("X-Remote-User", "system:anonymous"),
                ("X-Remote-Group", "system:unauthenticated"),
            ],
        )
        .await
        .unwrap();
    assert_eq!(user.groups, ["system:unauthenticated"]);
}

#[tokio::test]
async fn a_user_name_that_is_not_utf_8_is_rejected() {
    let house = House::new();
    let proxy = house.proxy();
    let mut headers = HeaderMap::new();
    let odd = HeaderValue::from_bytes(b"jan\xe9").unwrap();
    headers.insert("x-remote-user", odd.clone());
    let answer = house.authenticator.authenticate(&proxy, &headers).await;
    assert!(answer.is_err());
    let mut headers = map(&[("X-Remote-User", "jane")]);
    headers.insert("x-remote-group", odd);
    let answer = house.authenticator.authenticate(&proxy, &headers).await;
    assert!(answer.is_err());
}

/// Checks every sender other than the front proxy, with forged headers, with and without each kind
/// of other credential.
#[tokio::test]
async fn forged_headers_authenticate_no_user() {
    let house = House::new();
    let forged = [
        ("X-Remote-User", "system:admin"),
        ("X-Remote-Group", "system:masters"),
        ("X-Remote-Uid", "0"),
        ("X-Remote-Extra-Scopes", "all"),
    ];
    let good = ("Authorization", "Bearer good");
    let bad = ("Authorization", "Bearer bad");
    let basic = ("Authorization", "Basic Z29vZA==");
    // The presented certificate and its user: alone, and with a valid, an invalid and a foreign
    // token.
    let anonymous = "system:anonymous";
    let bad_certificate = ["401", "tess", "401", "401"];
    let rows = [
        ("nothing", nobody(), [anonymous, "tess", "401", anonymous]),
        ("a user's certificate", house.jane(), ["jane"; 4]),
        (
            "a name that is not allowed, of the proxy's CA",
            house.proxy_ca.client(&[("CN", "back-proxy")]).peer(),
            bad_certificate,
        ),
        (
            "the right name, of the users' CA",
            house.client_ca.client(&[("CN", "front-proxy")]).peer(),
            ["front-proxy"; 4],
        ),
        (
            "the right name, of an unknown CA",
            ca("proxy-ca").client(&[("CN", "front-proxy")]).peer(),
            bad_certificate,
        ),
        (
            "expired",
            house
                .proxy_ca
                .client_living(&[("CN", "front-proxy")], (-100, -1))
                .peer(),
            bad_certificate,
        ),
        (
            "not yet valid",
            house
                .proxy_ca
                .client_living(&[("CN", "front-proxy")], (100, 200))
                .peer(),
            bad_certificate,
        ),
        (
            "for servers only",
            house.proxy_ca.server("front-proxy").peer(),
            bad_certificate,
        ),
        (
            "signed by a certificate that is no CA",
            {
                let proxy = house.proxy_ca.client(&[("CN", "front-proxy")]);
                let below = proxy.client(&[("CN", "front-proxy")]);
                PeerCertificates(Arc::new([below.der(), proxy.der()]))
            },
            bad_certificate,
        ),
        (
            "the proxy's certificate behind another leaf",
            PeerCertificates(Arc::new([
                ca("x").client(&[("CN", "front-proxy")]).der(),
                house.proxy_ca.client(&[("CN", "front-proxy")]).der(),
                house.proxy_ca.der(),
            ])),
            bad_certificate,
        ),
        (
            "garbage",
            PeerCertificates(Arc::new([b"garbage".to_vec().into()])),
            bad_certificate,
        ),
    ];
    for (what, peer, expected) in rows {
        for (with, expected) in [None, Some(good), Some(bad), Some(basic)]
            .into_iter()
            .zip(expected)
        {
            let mut headers = forged.to_vec();
            headers.extend(with);
            let user = house.ask(&peer, &headers).await;
            let name = user.as_ref().map_or("401", |user| user.name.as_str());
            assert_eq!(name, expected, "{what} with {with:?}");
            if let Ok(user) = user {
                assert!(
                    !user.groups.contains(&"system:masters".to_owned()),
                    "{what}"
                );
                assert!(!user.extra.contains_key("scopes"), "{what}");
                assert_ne!(user.uid.as_deref(), Some("0"), "{what}");
            }
        }
    }
}

#[tokio::test]
async fn a_front_proxy_request_without_a_user_header_authenticates_no_user() {
    let house = House::new();
    let proxy = house.proxy();
    assert_eq!(house.name(&proxy, &[]).await, "401");
    assert_eq!(house.name(&proxy, &[("X-Remote-User", "")]).await, "401");
    let token = [("Authorization", "Bearer good")];
    assert_eq!(house.name(&proxy, &token).await, "tess");
}

#[tokio::test]
async fn without_allowed_names_any_common_name_is_accepted() {
    let house = House::changed(|data| {
        data.insert("requestheader-allowed-names".to_owned(), "[]".to_owned());
    });
    let peer = house.proxy_ca.client(&[("CN", "whoever")]).peer();
    let headers = [("X-Remote-User", "jane")];
    assert_eq!(house.name(&peer, &headers).await, "jane");
}

#[tokio::test]
async fn an_intermediate_ca_may_have_signed_the_proxys_certificate() {
    let house = House::new();
    let between = house.proxy_ca.intermediate("between");
    let leaf = between.client(&[("CN", "front-proxy")]);
    let headers = [("X-Remote-User", "jane")];
    let whole = PeerCertificates(Arc::new([leaf.der(), between.der()]));
    assert_eq!(house.name(&whole, &headers).await, "jane");
    assert_eq!(house.name(&leaf.peer(), &headers).await, "401");
}

#[tokio::test]
async fn an_expired_ca_authenticates_no_one() {
    let old = super::super::testing::ca_living("proxy-ca", (-200, -100));
    let house = House::changed(|data| {
        data.insert("requestheader-client-ca-file".to_owned(), old.pem());
    });
    let peer = old.client(&[("CN", "front-proxy")]).peer();
    let headers = [("X-Remote-User", "jane")];
    assert_eq!(house.name(&peer, &headers).await, "401");
}

#[tokio::test]
async fn a_certificate_is_rejected_once_its_ca_is_replaced() {
    let house = House::new();
    // The user of an open connection.
    let (proxy, jane) = (house.proxy(), house.jane());
    let headers = [("X-Remote-User", "bob")];
    assert_eq!(house.name(&proxy, &headers).await, "bob");
    assert_eq!(house.name(&jane, &[]).await, "jane");
    let next = data(&ca("client-ca"), &ca("proxy-ca"));
    house.trust.store(Arc::new(Trust::parse(next).unwrap()));
    assert_eq!(house.name(&proxy, &headers).await, "401");
    assert_eq!(house.name(&jane, &[]).await, "401");
}

#[tokio::test]
async fn both_cas_of_a_rotation_are_accepted() {
    let next = ca("proxy-ca");
    let pem = next.pem();
    let house = House::changed(|data| {
        data.get_mut("requestheader-client-ca-file")
            .unwrap()
            .push_str(&pem);
    });
    let headers = [("X-Remote-User", "bob")];
    assert_eq!(house.name(&house.proxy(), &headers).await, "bob");
    let renewed = next.client(&[("CN", "front-proxy")]).peer();
    assert_eq!(house.name(&renewed, &headers).await, "bob");
}

#[tokio::test]
async fn the_certificate_distinguishes_the_front_proxy_from_users_and_strangers() {
    use super::super::CertificateHolder;
    let house = House::new();
    let holder = |peer: &PeerCertificates| house.authenticator.certificate_holder(peer);
    assert_eq!(holder(&house.proxy()), CertificateHolder::FrontProxy);
    let jane = house.ask(&house.jane(), &[]).await.unwrap();
    match holder(&house.jane()) {
        CertificateHolder::User(user) => assert_eq!(user.name, jane.name),
        other => panic!("{other:?}"),
    }
    // Issued by the right CA, but with a name that is not in the list of proxies.
    let other = house.proxy_ca.client(&[("CN", "other-proxy")]);
    assert_eq!(holder(&other.peer()), CertificateHolder::Unknown);
    let stranger = ca("client-ca").client(&[("CN", "jane")]);
    assert_eq!(holder(&stranger.peer()), CertificateHolder::Unknown);
    assert_eq!(holder(&nobody()), CertificateHolder::Unknown);
    assert!(house.cluster.seen(&http::Method::POST).is_empty());
}
