//! The metrics of requests, with the names and labels of Kubernetes' own servers. Enters: what
//! a request asks for, and how it was answered. Leaves: the counted series.

use super::{Metrics, SeriesLabels};
use prometheus_client::metrics::gauge::Gauge;
use std::time::Duration;

/// What a request is counted under, in the words of Kubernetes' own servers. Empty are
/// those that a request for no resource has none of.
#[derive(Clone, Debug, Default)]
pub struct RequestLabels<'a> {
    /// Verb in upper case, or the method.
    pub verb: String,
    /// API group.
    pub group: &'a str,
    /// API version.
    pub version: &'a str,
    /// Plural of the resource.
    pub resource: &'a str,
    /// `resource` (one by name), `namespace` or `cluster`.
    pub scope: &'static str,
}

impl Metrics {
    /// The labels that Kubernetes' own servers use.
    fn request_labels(&self, of: &RequestLabels<'_>) -> SeriesLabels {
        vec![
            self.bound("verb", &of.verb),
            self.bound("group", of.group),
            self.bound("version", of.version),
            self.bound("resource", of.resource),
            ("scope", of.scope.to_owned()),
        ]
    }

    /// A request was answered (`apiserver_request_total`, `_duration_seconds`; no
    /// duration for watches).
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

    /// A request was refused for load or ended at its time limit
    /// (`apiserver_request_terminations_total`).
    pub fn request_terminated(&self, of: &RequestLabels<'_>, code: u16) {
        let mut labels = self.request_labels(of);
        labels.push(("code", code.to_string()));
        self.server.terminations.get_or_create(&labels).inc();
    }

    /// An answer was cut off because its client did not take it
    /// (`apiserver_request_aborts_total`).
    pub fn request_aborted(&self, of: &RequestLabels<'_>) {
        let labels = self.request_labels(of);
        self.server.aborts.get_or_create(&labels).inc();
    }

    /// One more request is in flight (`apiserver_current_inflight_requests{request_kind}`).
    pub fn in_flight(&self) -> CountedInGauge {
        let labels = vec![("request_kind", "readOnly".to_owned())];
        CountedInGauge::new(&self.server.in_flight.get_or_create(&labels))
    }

    /// One more watch is being served (`ifo_watchers`).
    pub fn watcher(&self) -> CountedInGauge {
        CountedInGauge::new(&self.server.watchers)
    }
}

/// Counts one in a gauge until it is dropped.
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
