//! Tests how flags and environment variables become the configuration, and which values are
//! invalid.

use super::*;
use aggregated_apiserver::certs::TlsVersion;

fn config(args: &[&str], env: &[(&str, &str)]) -> Result<Config, ConfigError> {
    let cli = Cli::try_parse_from([&["ifo-apiserver"], args].concat()).expect("the flags exist");
    Config::from(cli, |name| {
        env.iter()
            .find(|(key, _)| *key == name)
            .map(|(_, value)| (*value).to_owned())
    })
}

#[test]
fn flags_override_the_environment_which_overrides_defaults() {
    let env = [
        ("DEBOUNCE_THRESHOLD", "5s"),
        ("REQUEUE_INTERVAL", ""),
        ("RETAIN_COMPLETED_IFOS", "true"),
        ("RETAIN_FOR", "2h"),
    ];
    let common = config(&["--debounce-threshold", "7s"], &env)
        .expect("the values are valid")
        .common;
    assert_eq!(common.debounce, Duration::from_secs(7));
    assert_eq!(
        config(&[], &env)
            .expect("the values are valid")
            .common
            .debounce,
        Duration::from_secs(5)
    );
    assert_eq!(common.requeue, Duration::from_mins(1));
    assert!(common.retain);
    assert_eq!(common.retain_for, Duration::from_hours(2));
    assert_eq!(common.retain_max, 10_000);
}

#[test]
fn limits_can_be_set_one_by_one() {
    let flags = ["--max-watches=7", "--max-connections", "8"];
    let limits = config(
        &flags,
        &[("MAX_WATCHES_PER_USER", "3"), ("MAX_WATCHES", "9")],
    )
    .expect("the values are valid")
    .common
    .limits;
    let expected = Limits {
        watches: 7,
        watches_per_user: 3,
        connections: 8,
        ..Limits::default()
    };
    assert_eq!(limits, expected);
}

#[test]
fn an_invalid_value_is_reported_with_the_accepted_ones() {
    for (name, value) in [
        ("DEBOUNCE_THRESHOLD", "soon"),
        ("K8S_API_TIMEOUT", "0"),
        ("RETAIN_COMPLETED_IFOS", "yes"),
        ("PERSISTENCE", "on"),
        ("MAX_WATCHES", "0"),
        ("MAX_CONNECTIONS", "many"),
        ("MAX_CONNECTIONS", "7"),
        ("MAX_REQUESTS_INFLIGHT", "1000001"),
        ("RETAIN_FOR", "0s"),
        ("RETAIN_MAX", "-1"),
        ("HISTORY_MAX", "1000001"),
        ("POD_IP", "here"),
    ] {
        let error = config(&[], &[(name, value)])
            .expect_err("the value is invalid")
            .to_string();
        assert!(
            error.contains(name) && error.contains(value) && error.contains("expected"),
            "{error}"
        );
        assert_eq!(error.lines().count(), 1);
    }
    let error = config(&[], &[("HISTORY_MAX", "-1")]).expect_err("the value is invalid");
    assert!(error.to_string().contains("from 0 to 1000000"), "{error}");
    let error =
        config(&["--cluster-operations-namespace=A.b"], &[]).expect_err("the value is invalid");
    assert_eq!(error.name, "--cluster-operations-namespace");
}

#[test]
fn annotations_of_the_registration_are_checked() {
    let registration = |args: &[&str]| {
        let mode = config(args, &[]).map(|config| config.mode);
        mode.map(|mode| match mode {
            Mode::Serve(serve) => serve.registration,
            Mode::Demo(_) => panic!("the demo was not requested"),
        })
    };
    let annotation = "--register-annotation=example.com/ca=a=b";
    assert_eq!(registration(&[annotation]).expect("valid"), None);
    let flags = ["--register", annotation, "--service-port=8443"];
    let found = registration(&flags).expect("valid").expect("registered");
    assert_eq!(found.service_port, 8443);
    assert_eq!(
        found.annotations,
        BTreeMap::from([("example.com/ca".to_owned(), "a=b".to_owned())])
    );
    for invalid in ["example.com/ca", "a b=c", "=c"] {
        let flag = format!("--register-annotation={invalid}");
        let error = registration(&[&flag]).expect_err("the value is invalid");
        assert_eq!(error.name, "--register-annotation");
    }
}

#[test]
fn tls_flags_have_the_names_of_kubernetes() {
    let serve = |args: &[&str]| match config(args, &[]).expect("the values are valid").mode {
        Mode::Serve(serve) => serve.tls,
        Mode::Demo(_) => panic!("the demo was not requested"),
    };
    assert_eq!(serve(&[]).min_version, TlsVersion::Tls12);
    let suites = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,TLS_AES_128_GCM_SHA256";
    let tls = serve(&[
        "--tls-min-version=VersionTLS13",
        "--tls-cipher-suites",
        suites,
    ]);
    assert_eq!(tls.min_version, TlsVersion::Tls13);
    let names: Vec<String> = tls
        .cipher_suites
        .iter()
        .map(|it| format!("{it:?}"))
        .collect();
    assert_eq!(names.join(","), suites);

    for (flag, accepted) in [
        (
            "--tls-min-version=VersionTLS10",
            "VersionTLS12, VersionTLS13",
        ),
        (
            "--tls-cipher-suites=TLS_RSA_WITH_RC4_128_SHA",
            "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
        ),
    ] {
        let error = Cli::try_parse_from(["ifo-apiserver", flag]).expect_err("the value is invalid");
        assert!(error.to_string().contains(accepted), "{error}");
    }
}
