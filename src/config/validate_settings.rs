//! Checks the values of flags and environment variables. An invalid value yields a [`ConfigError`]
//! that names the accepted values.

use super::flags::{CommonFlags, LogFormatFlag, ServeFlags};
use super::{Common, ConfigError, ElectionConfig, Persistence, RegistrationConfig};
use crate::replicate::Timing;
use crate::telemetry::LogFormat;
use aggregated_apiserver::serve::Limits;
use ifo_api::duration;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

/// Maximum duration of any setting: one year. A longer duration is invalid, because a deadline that
/// is computed from it could overflow.
const MAX_DURATION: Duration = Duration::from_hours(8760);

/// Maximum value of any limit, such as the number of concurrent watches. A larger value is invalid.
const MAX_NUMBER: usize = 1_000_000;

/// Default maximum number of records of completed operations. 10,000 records take about 12 MB.
const DEFAULT_HISTORY_MAX: usize = 10_000;

/// Default maximum number of retained completed operations. 10,000 operations take about 20 MB.
const DEFAULT_RETAIN_MAX: usize = 10_000;

const EXPECTED_DURATION: &str =
    "expected a duration such as 30s, 5m, 1h30m or a number of seconds, at most a year";
const EXPECTED_POSITIVE: &str =
    "expected a duration above zero such as 30s, 5m, 1h30m or a number of seconds, at most a year";
const EXPECTED_NUMBER: &str = "expected a whole number from 1 to 1000000";
const EXPECTED_NUMBER_OR_ZERO: &str = "expected a whole number from 0 to 1000000";
const EXPECTED_CONNECTIONS: &str = "expected a whole number from 8 to 1000000";
const EXPECTED_PERSISTENCE: &str = "expected crs or off";
const EXPECTED_ADDRESS: &str = "expected an IP address";
const EXPECTED_HOST_PORT: &str = "expected HOST:PORT";
const EXPECTED_ADVERTISE: &str =
    "expected HOST:PORT; --leader-elect needs this flag or the environment variable POD_IP";
const EXPECTED_ANNOTATION: &str = "expected KEY=VALUE, with the key of an annotation";
const EXPECTED_BOOL: &str = "expected true or false";
const EXPECTED_NAMESPACE: &str =
    "expected the name of a namespace (lower-case letters, digits and '-')";

/// Reads the settings of the leader election. Returns `None` without the flag `--leader-elect`.
pub(super) fn election(
    flags: &ServeFlags,
    env: &impl Fn(&str) -> Option<String>,
) -> Result<Option<Box<ElectionConfig>>, ConfigError> {
    let lease_flags = [
        (
            "--leader-elect-lease-duration",
            &flags.leader_elect_lease_duration,
        ),
        (
            "--leader-elect-renew-deadline",
            &flags.leader_elect_renew_deadline,
        ),
        (
            "--leader-elect-retry-period",
            &flags.leader_elect_retry_period,
        ),
    ];
    let mut periods = [Duration::ZERO; 3];
    for (period, (name, value)) in periods.iter_mut().zip(lease_flags) {
        *period = duration::parse(value)
            .filter(|period| *period <= MAX_DURATION)
            .ok_or_else(|| ConfigError::new(name, value, EXPECTED_POSITIVE))?;
    }
    let [lease_duration, renew_deadline, retry_period] = periods;
    let timing = Timing {
        lease_duration,
        renew_deadline,
        retry_period,
    };
    timing.check().map_err(|(flag, accepted)| {
        let given = lease_flags.iter().find(|(name, _)| *name == flag);
        ConfigError::new(flag, given.map_or("", |(_, value)| value), accepted)
    })?;
    let address = flags.advertise_address.as_deref();
    let is_host_port = |address: &str| {
        let authority = address.parse::<http::uri::Authority>();
        authority.is_ok_and(|it| it.port_u16().is_some() && !it.host().is_empty())
    };
    if let Some(address) = address.filter(|address| !is_host_port(address)) {
        return Err(ConfigError::new(
            "--advertise-address",
            address,
            EXPECTED_HOST_PORT,
        ));
    }
    if !flags.leader_elect {
        return Ok(None);
    }
    if address.is_none() && pod_ip(env)?.is_none() {
        return Err(ConfigError::new(
            "--advertise-address",
            "",
            EXPECTED_ADVERTISE,
        ));
    }
    Ok(Some(Box::new(ElectionConfig {
        timing,
        advertise_address: address.map(str::to_owned),
        peer_token_file: flags.peer_token_file.clone(),
        pod_uid: variable(env, "POD_UID"),
    })))
}

/// Reads the settings of the registration. Returns `None` without the flag `--register`.
pub(super) fn registration(
    flags: &ServeFlags,
) -> Result<Option<Box<RegistrationConfig>>, ConfigError> {
    let mut annotations = BTreeMap::new();
    for annotation in &flags.register_annotation {
        let parts = annotation.split_once('=');
        let parts = parts.filter(|(key, _)| ifo_api::labels::is_key(key));
        let (key, value) = parts.ok_or_else(|| {
            ConfigError::new("--register-annotation", annotation, EXPECTED_ANNOTATION)
        })?;
        annotations.insert(key.to_owned(), value.to_owned());
    }
    let config = || RegistrationConfig {
        namespace: flags.namespace.clone(),
        service_name: flags.service_name.clone(),
        service_port: flags.service_port,
        annotations,
    };
    Ok(flags.register.then(config).map(Box::new))
}

/// Reads the persistence mode.
pub(super) fn persistence(
    flag: Option<String>,
    env: &impl Fn(&str) -> Option<String>,
) -> Result<Persistence, ConfigError> {
    let (name, value) = setting(flag, env, "PERSISTENCE", "off");
    match value.as_str() {
        "off" => Ok(Persistence::Off),
        "crs" => Ok(Persistence::Crs),
        _ => Err(ConfigError::new(name, value, EXPECTED_PERSISTENCE)),
    }
}

/// Reads the settings that the server and the demo have in common.
pub(super) fn common_settings(
    flags: CommonFlags,
    env: &impl Fn(&str) -> Option<String>,
    default_debounce: &str,
) -> Result<Common, ConfigError> {
    let duration = |flag: Option<String>, name: &str, default: &str, zero: bool| {
        let (name, value) = setting(flag, env, name, default);
        match duration::parse(&value) {
            Some(duration) if duration <= MAX_DURATION && (zero || !duration.is_zero()) => {
                Ok(duration)
            }
            _ => {
                let accepted = if zero {
                    EXPECTED_DURATION
                } else {
                    EXPECTED_POSITIVE
                };
                Err(ConfigError::new(name, value, accepted))
            }
        }
    };
    let (name, value) = setting(
        flags.retain_completed_ifos,
        env,
        "RETAIN_COMPLETED_IFOS",
        "false",
    );
    let retain = match value.as_str() {
        "true" => true,
        "false" => false,
        _ => return Err(ConfigError::new(name, value, EXPECTED_BOOL)),
    };
    let number = |flag, name, default| at_least(1, flag, env, name, default);
    let limits = Limits::default();
    let limits = Limits {
        requests: number(
            flags.max_requests_inflight,
            "MAX_REQUESTS_INFLIGHT",
            limits.requests,
        )?,
        watches: number(flags.max_watches, "MAX_WATCHES", limits.watches)?,
        watches_per_user: number(
            flags.max_watches_per_user,
            "MAX_WATCHES_PER_USER",
            limits.watches_per_user,
        )?,
        connections: at_least(
            Limits::LEAST_CONNECTIONS,
            flags.max_connections,
            env,
            "MAX_CONNECTIONS",
            limits.connections,
        )?,
    };
    Ok(Common {
        limits,
        debounce: duration(
            flags.debounce_threshold,
            "DEBOUNCE_THRESHOLD",
            default_debounce,
            true,
        )?,
        sync_timeout: duration(
            flags.informer_sync_timeout,
            "INFORMER_SYNC_TIMEOUT",
            "30s",
            true,
        )?,
        api_timeout: duration(flags.k8s_api_timeout, "K8S_API_TIMEOUT", "30s", false)?,
        resync: duration(
            flags.k8s_informer_resync,
            "K8S_INFORMER_RESYNC",
            "30s",
            false,
        )?,
        requeue: duration(flags.requeue_interval, "REQUEUE_INTERVAL", "60s", false)?,
        retain,
        retain_for: duration(flags.retain_for, "RETAIN_FOR", "24h", false)?,
        retain_max: number(flags.retain_max, "RETAIN_MAX", DEFAULT_RETAIN_MAX)?,
        history_max: at_least(
            0,
            flags.history_max,
            env,
            "HISTORY_MAX",
            DEFAULT_HISTORY_MAX,
        )?,
        cluster_operations_namespace: namespace(
            "--cluster-operations-namespace",
            flags.cluster_operations_namespace,
        )?,
        allow_secrets: flags.allow_secrets_target,
        log_format: match flags.log_format {
            LogFormatFlag::Text => LogFormat::Text,
            LogFormatFlag::Json => LogFormat::Json,
        },
        log_filter: variable(env, "RUST_LOG"),
        verbosity: flags.verbosity,
        version: variable(env, "OPERATOR_VERSION")
            .unwrap_or_else(|| env!("CARGO_PKG_VERSION").to_owned()),
    })
}

/// Returns the value of a setting, and the name of its flag or environment variable for error
/// messages. The value is the first of these that exists:
///
/// 1. the value of the flag.
/// 2. the value of the environment variable, if it is not empty.
/// 3. the default.
fn setting(
    flag: Option<String>,
    env: &impl Fn(&str) -> Option<String>,
    name: &str,
    default: &str,
) -> (String, String) {
    if let Some(value) = flag {
        (
            format!("--{}", name.to_lowercase().replace('_', "-")),
            value,
        )
    } else {
        let value = variable(env, name);
        (name.to_owned(), value.unwrap_or_else(|| default.to_owned()))
    }
}

/// Reads a number from `least` to [`MAX_NUMBER`].
fn at_least(
    least: usize,
    flag: Option<String>,
    env: &impl Fn(&str) -> Option<String>,
    name: &str,
    default: usize,
) -> Result<usize, ConfigError> {
    let (name, value) = setting(flag, env, name, &default.to_string());
    match value.parse() {
        Ok(number) if (least..=MAX_NUMBER).contains(&number) => Ok(number),
        _ => {
            let accepted = match least {
                0 => EXPECTED_NUMBER_OR_ZERO,
                1 => EXPECTED_NUMBER,
                _ => EXPECTED_CONNECTIONS,
            };
            Err(ConfigError::new(name, value, accepted))
        }
    }
}

/// Reads the IP address of the Pod from `POD_IP`. Returns `None` if the variable is not set.
pub(super) fn pod_ip(env: &impl Fn(&str) -> Option<String>) -> Result<Option<IpAddr>, ConfigError> {
    let given = variable(env, "POD_IP");
    let parsed = given.map(|value| {
        let address = value.parse();
        address.map_err(|_| ConfigError::new("POD_IP", value, EXPECTED_ADDRESS))
    });
    parsed.transpose()
}

/// Returns the value of the environment variable `name`. An empty variable counts as missing.
fn variable(env: &impl Fn(&str) -> Option<String>, name: &str) -> Option<String> {
    env(name).filter(|value| !value.is_empty())
}

/// Returns `value` if it is a valid name of a namespace. `name` is the flag, for error messages.
pub(super) fn namespace(name: &str, value: String) -> Result<String, ConfigError> {
    // A namespace is a DNS label of at most 63 characters, without dots.
    if ifo_api::labels::is_subdomain(&value) && !value.contains('.') && value.len() <= 63 {
        Ok(value)
    } else {
        Err(ConfigError::new(name, value, EXPECTED_NAMESPACE))
    }
}
