//! Tests which user a client certificate authenticates.

use super::super::certificate::CertificateSubject;
use super::*;

#[tokio::test]
async fn a_certificate_yields_user_groups_and_credential_id() {
    let setup = Setup::new();
    let user = setup.authenticate(&setup.jane(), &[]).await.unwrap();
    assert_eq!(user.name, "jane");
    assert_eq!(user.uid, None);
    assert_eq!(user.groups, ["dev", "ops", "system:authenticated"]);
    let ids = &user.extra["authentication.kubernetes.io/credential-id"];
    assert_eq!(ids.len(), 1);
    let digest = ids[0].strip_prefix("X509SHA256=").unwrap();
    assert_eq!(digest.len(), 64);
}

#[tokio::test]
async fn the_last_of_several_common_names_is_the_user() {
    let setup = Setup::new();
    let peer = setup.client_ca.client(&[("CN", "admin"), ("CN", "jane")]);
    assert_eq!(setup.user_name(&peer.peer(), &[]).await, "jane");
}

#[tokio::test]
async fn a_certificate_without_a_common_name_authenticates_no_user() {
    let setup = Setup::new();
    let peer = setup.client_ca.client(&[("O", "dev")]).peer();
    assert_eq!(setup.user_name(&peer, &[]).await, "401");
}

#[test]
fn a_uid_in_the_subject_is_read_and_two_are_refused() {
    let ca = ca("ca");
    let one = ca.client(&[("CN", "jane"), ("1.3.6.1.4.1.57683.2", "u-1")]);
    let user = CertificateSubject::of(&one.der()).unwrap().user().unwrap();
    assert_eq!(user.uid.as_deref(), Some("u-1"));
    let two = ca.client(&[
        ("1.3.6.1.4.1.57683.2", "u-1"),
        ("CN", "jane"),
        ("1.3.6.1.4.1.57683.2", "u-2"),
    ]);
    assert_eq!(CertificateSubject::of(&two.der()), None);
}

#[tokio::test]
async fn without_a_client_ca_no_certificate_is_accepted() {
    let setup = Setup::changed(|data| {
        data.remove("client-ca-file");
    });
    assert_eq!(setup.user_name(&setup.jane(), &[]).await, "401");
    let headers = [("X-Remote-User", "bob")];
    assert_eq!(setup.user_name(&setup.proxy(), &headers).await, "bob");
}
