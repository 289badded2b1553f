//! Tests how flags and environment variables become the configuration, and which values are
//! invalid.

use super::*;
use aggregated_apiserver::certs::TlsVersion;
use aggregated_apiserver::serve::Limits;
use std::time::Duration;

fn config(args: &[&str], env: &[(&str, &str)]) -> Result<Config, clap::Error> {
    let args = [&["ifo-apiserver"], args].concat();
    Config::from(args.into_iter().map(str::to_owned), |name| {
        let found = env.iter().find(|(key, _)| *key == name)?;
        Some(found.1.to_owned())
    })
}

fn serve(args: &[&str]) -> Serve {
    match config(args, &[]).expect("the values are valid").mode {
        Mode::Serve(serve) => *serve,
        Mode::Demo(_) => panic!("the demo was not requested"),
    }
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
    let demo = |env: &[(&str, &str)]| config(&["demo"], env).expect("valid").common;
    assert_eq!(demo(&[]).debounce, Duration::from_secs(5));
    assert_eq!(
        demo(&[("DEBOUNCE_THRESHOLD", "0")]).debounce,
        Duration::ZERO
    );
    let limits = config(&[], &[]).expect("valid").common.limits();
    assert_eq!(limits, Limits::default());
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
    .limits();
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
        ("REQUEUE_INTERVAL", "99ms"),
        ("K8S_INFORMER_RESYNC", "1us"),
    ] {
        let error = config(&[], &[(name, value)]).expect_err("the value is invalid");
        let error = error.to_string();
        let flag = name.to_lowercase().replace('_', "-");
        assert!(
            error.contains(value) && (error.contains(name) || error.contains(&flag)),
            "{error}"
        );
    }
    for (flag, expected) in [
        ("--retain-max=-1", "a number from 1 to 1000000"),
        ("--history-max=1e3", "a number from 0 to 1000000"),
        ("--secure-port=abc", "a number from 0 to 65535"),
        ("--service-port=0", "a number from 1 to 65535"),
        ("-v=abc", "a number from 0 to 255"),
        ("--bind-address=localhost", "an IP address"),
        ("--leader-elect-retry-period=0", "a duration above zero"),
        ("--requeue-interval=99ms", "a duration of at least 100ms"),
    ] {
        let error = config(&[flag], &[]).expect_err("the value is invalid");
        let expected = format!("expected {expected}");
        assert!(error.to_string().contains(&expected), "{error}");
    }
    for flag in [
        "--cluster-operations-namespace=A.b",
        "--namespace=A.b",
        "--service-name=",
        "--service-name=A_b",
        "--register-annotation=example.com/ca",
        "--register-annotation=a b=c",
        "--register-annotation==c",
        "--advertise-address=host",
    ] {
        let error = config(&[flag], &[]).expect_err("the value is invalid");
        assert_eq!(error.kind(), ErrorKind::ValueValidation, "{flag}");
    }
    let elect = ["--leader-elect", "--peer-token-file=token"];
    for (flags, named) in [
        (&elect[..1], ["--peer-token-file", "audience ifo-apiserver"]),
        (&elect, ["--advertise-address", "POD_IP"]),
    ] {
        let error = config(flags, &[]).expect_err("another replica cannot connect to this one");
        assert_eq!(error.kind(), ErrorKind::ValueValidation, "{error}");
        let error = error.to_string();
        let is_named = |name: &str| error.contains(name);
        assert!(
            is_named("--leader-elect") && named.iter().all(|it| is_named(it)),
            "{error}"
        );
    }
}

#[test]
fn election_periods_are_validated_as_in_kubernetes() {
    for (lease, deadline, retry, refused) in [
        (
            5,
            5,
            1,
            "lease-duration=5s is not valid: expected more than",
        ),
        (
            90,
            5,
            1,
            "lease-duration=90s is not valid: expected a duration from",
        ),
        (
            16,
            12,
            10,
            "renew-deadline=12s is not valid: expected more than",
        ),
    ] {
        let args = [
            format!("--leader-elect-lease-duration={lease}s"),
            format!("--leader-elect-renew-deadline={deadline}s"),
            format!("--leader-elect-retry-period={retry}s"),
        ];
        let error = config(&args.each_ref().map(String::as_str), &[]);
        let error = error.expect_err("the periods are invalid").to_string();
        let expected = format!("--leader-elect-{refused}");
        assert!(error.contains(&expected), "{error}");
    }
}

#[test]
fn the_last_of_equal_flags_wins() {
    let found = serve(&[
        "--register",
        "--secure-port=1",
        "--register=false",
        "--secure-port=2",
    ]);
    assert_eq!((found.register, found.secure_port), (false, 2));
    let flags = ["--history-max=1", "--history-max=2"];
    let demo = config(&[&["demo"], &flags[..]].concat(), &[]).expect("the values are valid");
    assert_eq!(demo.common.history_max, 2);
}

#[test]
fn the_flag_version_prints_the_version() {
    for flag in ["--version", "-V"] {
        let answer = config(&[flag], &[]).expect_err("the version is requested");
        assert_eq!(answer.kind(), ErrorKind::DisplayVersion);
        let expected = concat!("ifo-apiserver ", env!("CARGO_PKG_VERSION"), "\n");
        assert_eq!(answer.to_string(), expected);
    }
}

#[test]
fn annotations_of_the_registration_are_pairs() {
    let found = serve(&[
        "--register",
        "--register-annotation=example.com/ca=a=b",
        "--register-annotation=x=y",
    ]);
    assert!(found.register);
    let expected = [("example.com/ca", "a=b"), ("x", "y")];
    let expected = expected.map(|(key, value)| (key.to_owned(), value.to_owned()));
    assert_eq!(found.register_annotation, expected);
}

#[test]
fn tls_flags_have_the_names_of_kubernetes() {
    let serve = |args: &[&str]| serve(args).tls();
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
        let error = config(&[flag], &[]).expect_err("the value is invalid");
        assert!(error.to_string().contains(accepted), "{error}");
    }
}
