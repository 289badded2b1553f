//! The metrics of reviews (`TokenReview` and `SubjectAccessReview`). With a review, this server
//! asks the kube-apiserver to authenticate or authorize a request. The metrics have the same names
//! and buckets as in extension API servers that use the Go library `k8s.io/apiserver`.

use super::metrics_macro::metrics;
use super::{CounterFamily, Histogram, Histograms, Metrics, SeriesLabels};
use prometheus_client::metrics::family::Family;
use std::time::Duration;

/// Buckets in seconds, as in `k8s.io/apiserver/pkg/server/options`.
const BUCKETS: [f64; 8] = [0.25, 0.5, 0.7, 1.0, 1.5, 3.0, 5.0, 10.0];

/// The kind of a review.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReviewKind {
    /// `TokenReview`: which user does a token belong to?
    Token,
    /// `SubjectAccessReview`: may a user send a request?
    SubjectAccess,
}

metrics! {
    pub(super) struct ReviewMetrics {
        tokens: CounterFamily =
            "apiserver_delegated_authn_request", "TokenReviews sent, by status code";
        token_duration: Histograms =
            "apiserver_delegated_authn_request_duration_seconds", "Duration of TokenReviews",
            Family::new_with_constructor(|| Histogram::new(BUCKETS));
        accesses: CounterFamily =
            "apiserver_delegated_authz_request", "SubjectAccessReviews sent, by status code";
        access_duration: Histograms =
            "apiserver_delegated_authz_request_duration_seconds",
            "Duration of SubjectAccessReviews",
            Family::new_with_constructor(|| Histogram::new(BUCKETS));
    }
}

impl Metrics {
    /// Records one review. `code` is the HTTP status code of the answer. It is `None` if the
    /// kube-apiserver did not answer.
    pub fn review(&self, kind: ReviewKind, code: Option<u16>, duration: Duration) {
        // `k8s.io/apiserver` also uses the code `<error>` for a review without an answer.
        let code = code.map_or_else(|| "<error>".to_owned(), |code| code.to_string());
        let labels: SeriesLabels = vec![("code", code)];
        let (count, durations) = match kind {
            ReviewKind::Token => (&self.reviews.tokens, &self.reviews.token_duration),
            ReviewKind::SubjectAccess => (&self.reviews.accesses, &self.reviews.access_duration),
        };
        count.get_or_create(&labels).inc();
        let histogram = durations.get_or_create(&labels);
        histogram.observe(duration.as_secs_f64());
    }
}
