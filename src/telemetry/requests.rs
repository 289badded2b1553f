//! The metrics of requests. Kubernetes' own servers have metrics with the same names, and with more
//! labels. Only `ifo_watchers` is a metric of this project.

use super::{Metrics, SeriesLabels};
use prometheus_client::metrics::gauge::Gauge;
use std::time::Duration;

/// The labels of a request. Kubernetes' own servers have labels with the same names. Labels that do
/// not apply to the request are empty.
#[derive(Clone, Debug, Default)]
pub struct RequestLabels<'a> {
    /// Kubernetes verb in upper case, such as `LIST`. If the resource or the verb of the request is
    /// unknown, this is the HTTP method, such as `GET`.
    pub verb: String,
    /// API group.
    pub group: &'a str,
    /// API version.
    pub version: &'a str,
    /// Plural name of the resource.
    pub resource: &'a str,
    /// `resource` (the request names one object), `namespace` or `cluster`.
    pub scope: &'static str,
}

impl Metrics {
    /// Returns the labels of a request.
    fn request_labels(&self, of: &RequestLabels<'_>) -> SeriesLabels {
        vec![
            self.bounded_label("verb", &of.verb),
            self.bounded_label("group", of.group),
            self.bounded_label("version", of.version),
            self.bounded_label("resource", of.resource),
            ("scope", of.scope.to_owned()),
        ]
    }

    /// Counts a response in `apiserver_request_total`, and records its `duration` in
    /// `apiserver_request_duration_seconds`. `code` is the HTTP status code. `duration` is `None`
    /// for a watch, and is then not recorded.
    pub fn request(&self, of: &RequestLabels<'_>, code: u16, duration: Option<Duration>) {
        let mut labels = self.request_labels(of);
        if let Some(duration) = duration {
            self.server
                .request_duration
                .get_or_create(&labels)
                .observe(duration.as_secs_f64());
        }
        labels.push(("code", code.to_string()));
        self.server.requests.get_or_create(&labels).inc();
    }

    /// Counts a request in `apiserver_request_terminations_total`. The server has refused this
    /// request because of load, or has ended it at its time limit.
    pub fn request_terminated(&self, of: &RequestLabels<'_>, code: u16) {
        let mut labels = self.request_labels(of);
        labels.push(("code", code.to_string()));
        self.server.terminations.get_or_create(&labels).inc();
    }

    /// Counts a response in `apiserver_request_aborts_total`. The server has aborted this response,
    /// because the client did not read it in time.
    pub fn request_aborted(&self, of: &RequestLabels<'_>) {
        let labels = self.request_labels(of);
        self.server.aborts.get_or_create(&labels).inc();
    }

    /// Counts a running request in `apiserver_current_inflight_requests{request_kind}` until the
    /// returned guard is dropped. For a watch, call [`Self::watcher`] instead.
    pub fn in_flight(&self) -> CountedInGauge {
        let labels = vec![("request_kind", "readOnly".to_owned())];
        CountedInGauge::new(&self.server.in_flight.get_or_create(&labels))
    }

    /// Counts a watch in `ifo_watchers` until the returned guard is dropped.
    pub fn watcher(&self) -> CountedInGauge {
        CountedInGauge::new(&self.server.watchers)
    }
}

/// A guard that increments a gauge when the guard is created, and decrements the gauge when the
/// guard is dropped.
#[derive(Debug)]
pub struct CountedInGauge(Gauge);

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
