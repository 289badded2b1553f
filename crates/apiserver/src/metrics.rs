//! The metrics of an aggregated API server: requests, reviews, certificates. Kubernetes' own
//! servers have most of these metrics, with the same names and more labels. The names of the other
//! metrics begin with the prefix that the program passes to [`Metrics::register`].

use crate::clock;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Metric, Registry};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Buckets from 500 µs to one minute, for the durations of requests. The kube-apiserver has the
/// same largest bucket.
const REQUEST_BUCKETS: [f64; 12] = [
    0.0005, 0.001, 0.005, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 15.0, 60.0,
];
/// Buckets in seconds for the durations of reviews, as in `k8s.io/apiserver/pkg/server/options`.
const REVIEW_BUCKETS: [f64; 8] = [0.25, 0.5, 0.7, 1.0, 1.5, 3.0, 5.0, 10.0];

/// The labels of one series, in the order in which the text for Prometheus contains them.
type SeriesLabels = Vec<(&'static str, String)>;
type Counters = Family<SeriesLabels, Counter>;
type Histograms = Family<SeriesLabels, Histogram, fn() -> Histogram>;

/// The metrics of this library.
#[derive(Debug)]
pub struct Metrics {
    requests: Counters,
    request_duration: Histograms,
    terminations: Counters,
    aborts: Counters,
    in_flight: Family<SeriesLabels, Gauge>,
    watchers: Gauge,
    /// The `TokenReview`s: which user does a token belong to?
    pub token_reviews: ReviewMetrics,
    /// The `SubjectAccessReview`s: may a user send a request?
    pub access_reviews: ReviewMetrics,
    certificate: Gauge<f64, AtomicU64>,
    /// The expiry of the certificate in seconds since 1970. 0 before the first certificate.
    certificate_expires: AtomicI64,
    ca_bundle: Family<SeriesLabels, Gauge>,
}

/// The metrics of the reviews of one kind. All clones increment the same counters.
#[derive(Clone, Debug)]
pub struct ReviewMetrics {
    sent: Counters,
    duration: Histograms,
}

/// Creates metrics in a registry that is dropped at once. So no scrape returns these metrics.
impl Default for Metrics {
    fn default() -> Self {
        Self::register(&mut Registry::default(), "apiserver")
    }
}

/// The labels of a request. Labels that do not apply to the request are empty.
#[derive(Clone, Debug, Default)]
pub struct RequestLabels {
    /// Kubernetes verb in upper case, such as `LIST`. If the resource or the verb of the request is
    /// unknown, this is the HTTP method, such as `GET`.
    pub verb: String,
    /// API group.
    pub group: &'static str,
    /// API version.
    pub version: &'static str,
    /// Plural name of the resource.
    pub resource: &'static str,
    /// `resource` (the request names one object), `namespace` or `cluster`.
    pub scope: &'static str,
}

impl RequestLabels {
    fn series(&self) -> SeriesLabels {
        vec![
            ("verb", self.verb.clone()),
            ("group", self.group.to_owned()),
            ("version", self.version.to_owned()),
            ("resource", self.resource.to_owned()),
            ("scope", self.scope.to_owned()),
        ]
    }
}

impl Metrics {
    /// Registers the metrics. `prefix` is for the metrics that Kubernetes' own servers do not have.
    /// For example, the prefix `example` gives the name `example_watchers`.
    pub fn register(registry: &mut Registry, prefix: &str) -> Self {
        let own = registry.sub_registry_with_prefix(prefix);
        let watchers = add(own, "watchers", "Watches being served");
        let expiry = "Seconds until the serving certificate expires";
        let certificate = add(own, "certificate_expiry_seconds", expiry);
        let current = "1 if the caBundle of the APIService contains the CA of this server, or if \
                       there is no APIService";
        let ca_bundle = add(own, "ca_bundle_current", current);
        // Kubernetes' own servers have the following metrics with this prefix.
        let shared = registry.sub_registry_with_prefix("apiserver");
        let terminations = "Requests refused for load or ended at their time limit";
        let aborts = "Answers aborted because the client read them too slowly";
        let durations = "Duration of requests other than watches";
        Self {
            requests: add(shared, "request", "Requests by verb, resource and code"),
            request_duration: add_histograms(shared, "request_duration_seconds", durations, || {
                Histogram::new(REQUEST_BUCKETS)
            }),
            terminations: add(shared, "request_terminations", terminations),
            aborts: add(shared, "request_aborts", aborts),
            in_flight: add(shared, "current_inflight_requests", "Requests being served"),
            watchers,
            token_reviews: ReviewMetrics::register(shared, "authn", "TokenReviews"),
            access_reviews: ReviewMetrics::register(shared, "authz", "SubjectAccessReviews"),
            certificate,
            certificate_expires: AtomicI64::new(0),
            ca_bundle,
        }
    }

    /// Updates the metrics that depend on the time. Call this method before each scrape.
    #[allow(clippy::cast_precision_loss)] // The value is a number of seconds.
    pub fn refresh(&self) {
        let expires = self.certificate_expires.load(Relaxed);
        if expires != 0 {
            self.certificate
                .set((expires - clock::now().as_second()) as f64);
        }
    }

    /// Counts a response, and records its `duration`. `code` is the HTTP status code. `duration` is
    /// `None` for a watch, and is then not recorded.
    pub fn request(&self, of: &RequestLabels, code: u16, duration: Option<Duration>) {
        let mut labels = of.series();
        if let Some(duration) = duration {
            let durations = self.request_duration.get_or_create(&labels);
            durations.observe(duration.as_secs_f64());
        }
        labels.push(("code", code.to_string()));
        self.requests.get_or_create(&labels).inc();
    }

    /// Counts a request that the server has refused because of load, or has ended at its time
    /// limit.
    pub fn request_terminated(&self, of: &RequestLabels, code: u16) {
        let mut labels = of.series();
        labels.push(("code", code.to_string()));
        self.terminations.get_or_create(&labels).inc();
    }

    /// Counts a response that the server has aborted, because the client did not read it in time.
    pub fn request_aborted(&self, of: &RequestLabels) {
        self.aborts.get_or_create(&of.series()).inc();
    }

    /// Counts a running request other than a watch, until the returned guard is dropped.
    pub(crate) fn in_flight(&self) -> CountedInGauge {
        let labels = vec![("request_kind", "readOnly".to_owned())];
        CountedInGauge::new(&self.in_flight.get_or_create(&labels))
    }

    /// Counts a watch, until the returned guard is dropped.
    pub(crate) fn watcher(&self) -> CountedInGauge {
        CountedInGauge::new(&self.watchers)
    }

    /// Sets the time at which the serving certificate expires, in seconds since 1970.
    pub(crate) fn certificate_expires(&self, at: i64) {
        self.certificate_expires.store(at, Relaxed);
    }

    /// Sets the gauge `ca_bundle_current`. The gauge is 1 if the `caBundle` of the `APIService`
    /// contains the CA of this server. The gauge is also 1 if the `APIService` does not exist, so
    /// that no alert fires in a cluster without it.
    ///
    /// The gauge has no series before the first call of this method. If the certificates come from
    /// files, this server does not check the `caBundle`, and this method is never called.
    pub fn ca_bundle_is_current(&self, current: bool) {
        let series = self.ca_bundle.get_or_create(&Vec::new());
        series.set(current.into());
    }
}

/// Registers a metric, and returns it.
fn add<T: Metric + Clone + Default>(registry: &mut Registry, name: &str, help: &str) -> T {
    let metric = T::default();
    registry.register(name, help, metric.clone());
    metric
}

fn add_histograms(
    registry: &mut Registry,
    name: impl Into<String>,
    help: impl Into<String>,
    new: fn() -> Histogram,
) -> Histograms {
    let histograms = Histograms::new_with_constructor(new);
    registry.register(name, help, histograms.clone());
    histograms
}

impl ReviewMetrics {
    /// Records one review. `code` is the HTTP status code of the answer. It is `None` if the
    /// kube-apiserver did not answer.
    pub fn record(&self, code: Option<u16>, duration: Duration) {
        // `k8s.io/apiserver` also uses the code `<error>` for a review without an answer.
        let code = code.map_or_else(|| "<error>".to_owned(), |code| code.to_string());
        let labels: SeriesLabels = vec![("code", code)];
        self.sent.get_or_create(&labels).inc();
        let histogram = self.duration.get_or_create(&labels);
        histogram.observe(duration.as_secs_f64());
    }

    fn register(registry: &mut Registry, kind: &str, reviews: &str) -> Self {
        let name = format!("delegated_{kind}_request");
        Self {
            sent: add(registry, &name, &format!("{reviews} sent, by status code")),
            duration: add_histograms(
                registry,
                format!("{name}_duration_seconds"),
                format!("Duration of {reviews}"),
                || Histogram::new(REVIEW_BUCKETS),
            ),
        }
    }
}

/// A guard that increments a gauge when the guard is created, and decrements the gauge when the
/// guard is dropped.
#[derive(Debug)]
pub(crate) struct CountedInGauge(Gauge);

impl CountedInGauge {
    fn new(gauge: &Gauge) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for CountedInGauge {
    fn drop(&mut self) {
        self.0.dec();
    }
}

#[cfg(test)]
impl Metrics {
    /// Creates registered metrics whose names begin with `ifo`, and a function that returns their
    /// text.
    pub(crate) fn registered() -> (std::sync::Arc<Self>, impl Fn() -> String) {
        let mut registry = Registry::default();
        let metrics = Self::register(&mut registry, "ifo");
        let render = move || {
            let mut text = String::new();
            prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
            text
        };
        (std::sync::Arc::new(metrics), render)
    }
}
