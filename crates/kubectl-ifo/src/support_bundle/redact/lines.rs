//! Redacts the logs and metrics in a support bundle line by line. A pseudonym replaces each name. A
//! text such as `<redacted, 19 characters>` replaces each message.

use super::{Redactor, is_token};
use jiff::Timestamp;
use serde_json::{Map, Value};

/// Prefixes of the names of the metrics of `ifo-apiserver`. Other metrics are left out.
const METRICS: [&str; 3] = ["ifo_", "apiserver_", "process_"];

/// Labels of metrics. The values of these labels are words of an API or numbers, and are kept. If a
/// value has another form, a pseudonym replaces it.
const KEPT_METRIC_LABELS: [&str; 14] = [
    "code",
    "component",
    "group",
    "le",
    "operation",
    "reason",
    "request_kind",
    "resource",
    "result",
    "scope",
    "state",
    "target",
    "verb",
    "version",
];

/// Fields of a JSON log line. The text of such a field is kept if it has the expected form: for
/// example, `timestamp` must contain a time. The texts of all other fields are hidden.
const KEPT_FIELDS: [&str; 5] = ["level", "target", "timestamp", "gvr", "code"];

/// Names of fields that the server writes to JSON log lines. The names are kept. The text of a
/// field is kept only if [`KEPT_FIELDS`] contains the field.
const KNOWN_FIELDS: [&str; 40] = [
    "address",
    "audit_id",
    "authorities",
    "client",
    "count",
    "end",
    "error",
    "failure",
    "feed",
    "file",
    "fields",
    "from",
    "gvr",
    "items",
    "kind",
    "latency_ms",
    "leader",
    "lost",
    "message",
    "name",
    "namespace",
    "open",
    "operation",
    "path",
    "peer",
    "problem",
    "reason",
    "reserved",
    "resource",
    "rule_set",
    "secret",
    "source",
    "span",
    "spans",
    "start",
    "term",
    "threadName",
    "user",
    "verb",
    "version",
];

/// The levels of log lines.
const LEVELS: [&str; 5] = ["ERROR", "WARN", "INFO", "DEBUG", "TRACE"];

/// The first parts of the targets of log lines. The target of a log line is the module that wrote
/// the line, such as `ifo::observe`. So the first part is the name of a crate, except for the
/// access log, whose target is `access`.
const LOG_TARGETS: [&str; 8] = [
    "access",
    "h2",
    "hyper",
    "ifo",
    "ifo_engine",
    "kube_client",
    "kube_runtime",
    "rustls",
];

impl Redactor {
    /// Hides the names and messages in the lines of a log. The time, the level and the module of a
    /// line are kept.
    pub(in crate::support_bundle) fn log(&self, text: &str) -> String {
        if !self.is_active() {
            return text.to_owned();
        }
        text.lines()
            .map(|line| self.log_line(line) + "\n")
            .collect()
    }

    fn log_line(&self, line: &str) -> String {
        // The request for the log has `timestamps=true`. So the kubelet puts the time before each
        // line.
        let (time, line) = match line.split_once(' ') {
            Some((time, rest)) if time.parse::<Timestamp>().is_ok() => (format!("{time} "), rest),
            _ => (String::new(), line),
        };
        if let Ok(Value::Object(fields)) = serde_json::from_str(line) {
            return format!("{time}{}", Value::Object(self.log_fields(fields)));
        }
        let mut kept = time;
        let mut rest = line.trim_start();
        while let Some((word, after)) = rest.split_once(' ') {
            let target = word.strip_suffix(':').unwrap_or(word);
            let is_time = word.parse::<Timestamp>().is_ok();
            if !is_time && !LEVELS.contains(&word) && !is_target(target) {
                break;
            }
            kept += word;
            kept.push(' ');
            rest = after.trim_start();
        }
        kept + &self.text(rest)
    }

    fn log_fields(&self, fields: Map<String, Value>) -> Map<String, Value> {
        let redacted = fields.into_iter().map(|(key, value)| {
            let value = match value {
                Value::String(text) => Value::String(self.log_value(&key, &text)),
                Value::Object(inner) => Value::Object(self.log_fields(inner)),
                Value::Array(items) => Value::String(self.text(&Value::Array(items).to_string())),
                value => value,
            };
            let is_known = [&KEPT_FIELDS[..], &KNOWN_FIELDS]
                .concat()
                .contains(&key.as_str());
            let key = if is_known { key } else { self.name(&key) };
            (key, value)
        });
        redacted.collect()
    }

    fn log_value(&self, key: &str, text: &str) -> String {
        let is_kept = match key {
            "timestamp" => text.parse::<Timestamp>().is_ok(),
            "level" => LEVELS.contains(&text),
            "target" => is_target(text),
            "gvr" | "code" => is_token(text),
            _ => false,
        };
        let is_name = !text.contains(char::is_whitespace) && text.len() <= 253;
        match key {
            _ if is_kept => text.to_owned(),
            "message" | "error" => self.text(text),
            _ if is_name => self.name(text),
            _ => self.text(text),
        }
    }

    /// Hides the names in metrics. Lines that are not metrics of the server are left out.
    pub(in crate::support_bundle) fn metrics(&self, text: &str) -> String {
        if !self.is_active() {
            return text.to_owned();
        }
        let lines = text.lines().filter_map(|line| self.metric(line));
        lines.map(|line| line + "\n").collect()
    }

    fn metric(&self, line: &str) -> Option<String> {
        if line == "# EOF" {
            return Some(line.to_owned());
        }
        if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ')?;
            let is_kept = is_metric(name) && kind.bytes().all(|b| b.is_ascii_lowercase());
            return is_kept.then(|| line.to_owned());
        }
        let (series, value) = if let Some((name, rest)) = line.split_once('{') {
            let end = end_of_labels(rest)?;
            let labels = self.metric_labels(&rest[..end])?;
            (
                format!("{}{{{labels}}}", metric_name(name)?),
                &rest[end + 1..],
            )
        } else {
            let (name, value) = line.split_once(' ')?;
            (metric_name(name)?.to_owned(), value)
        };
        let is_number = |word: &str| word.parse::<f64>().is_ok();
        let value = value.trim();
        // An OpenMetrics exemplar can follow the value, after ` #`. It can contain names, so it is
        // removed.
        let value = value.split(" #").next().unwrap_or_default();
        value
            .split(' ')
            .all(is_number)
            .then(|| format!("{series} {value}"))
    }

    fn metric_labels(&self, labels: &str) -> Option<String> {
        let mut redacted = Vec::new();
        let mut rest = labels;
        while !rest.is_empty() {
            let (key, after) = rest.split_once("=\"")?;
            let end = end_of_value(after)?;
            let value = &after[..end];
            let is_kept = KEPT_METRIC_LABELS.contains(&key) && is_token(value);
            let value = if is_kept {
                value.to_owned()
            } else {
                self.name(value)
            };
            let is_known = KEPT_METRIC_LABELS.contains(&key) || key == "ruleset";
            let key = if is_known {
                key.to_owned()
            } else {
                self.name(key).replace('-', "_")
            };
            redacted.push(format!("{key}=\"{value}\""));
            rest = after[end + 1..].trim_start_matches(',');
        }
        Some(redacted.join(","))
    }
}

/// Returns the index of the brace that ends the labels of a metric. Skips braces in the values of
/// labels. Returns None if no brace ends the labels.
fn end_of_labels(text: &str) -> Option<usize> {
    let mut at = 0;
    loop {
        let rest = text.get(at..)?;
        let end = rest.find('}')?;
        match rest[..end].find('"') {
            None => return Some(at + end),
            Some(start) => at += start + 1 + end_of_value(&rest[start + 1..])? + 1,
        }
    }
}

/// Returns the index of the quotation mark that ends the value of a label. `text` begins after the
/// opening quotation mark. Returns None if there is no such quotation mark.
fn end_of_value(text: &str) -> Option<usize> {
    let mut is_escaped = false;
    text.bytes().position(|byte| {
        let ends = byte == b'"' && !is_escaped;
        is_escaped = byte == b'\\' && !is_escaped;
        ends
    })
}

fn is_metric(name: &str) -> bool {
    METRICS.iter().any(|it| name.starts_with(it))
        && name
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
}

fn metric_name(name: &str) -> Option<&str> {
    is_metric(name).then_some(name)
}

/// Returns true if a word can be the target of a log line: a path whose first part is one of
/// [`LOG_TARGETS`].
fn is_target(word: &str) -> bool {
    let is_path = word
        .bytes()
        .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"_:".contains(&b));
    let name = word.split("::").next().unwrap_or_default();
    is_path && LOG_TARGETS.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_line_keeps_time_level_and_module() {
        let redactor = Redactor::new(false);
        let line =
            redactor.log("2026-01-01T00:00:00Z  WARN ifo::observe::watch: payroll broke gvr=x\n");
        assert_eq!(
            line,
            "2026-01-01T00:00:00Z WARN ifo::observe::watch: <redacted, 19 characters>\n"
        );
        let twice = redactor.log("2026-01-01T00:00:00.1Z 2026-01-01T00:00:00Z  INFO ifo: hello");
        assert!(
            twice.ends_with("INFO ifo: <redacted, 5 characters>\n"),
            "{twice}"
        );
        let json = redactor.log(
            r#"{"timestamp":"2026-01-01T00:00:00Z","level":"INFO","target":"ifo::app","message":"payroll broke","gvr":"v1/pods","namespace":"payroll","count":3,"payroll":1}"#,
        );
        let json: Value = serde_json::from_str(&json).expect("the line is JSON");
        assert_eq!(json["message"], "<redacted, 13 characters>");
        assert_eq!(json["namespace"], redactor.name("payroll"));
        assert_eq!(
            (&json["gvr"], &json["count"]),
            (&Value::from("v1/pods"), &Value::from(3))
        );
        assert_eq!(json["payroll"], Value::Null);
        assert_eq!(
            redactor.log("panicked at payroll"),
            "<redacted, 19 characters>\n"
        );
    }

    #[test]
    fn metrics_keep_words_of_apis_and_numbers() {
        let redactor = Redactor::new(false);
        let metrics = "# HELP ifo_operations payroll\n# TYPE ifo_operations gauge\n\
                       ifo_operations{component=\"kubevirt\",state=\"Blocked\"} 3\n\
                       ifo_evaluation_failures_total{ruleset=\"acme\\\"rules\",operation=\"Migrating\"} 1 # {trace=\"payroll\"} 1\n\
                       ifo_leader 1.0\npayroll_metric 1\nnot a metric\n# EOF\n";
        let name = redactor.name("acme\\\"rules");
        assert_eq!(
            redactor.metrics(metrics),
            format!(
                "# TYPE ifo_operations gauge\n\
                 ifo_operations{{component=\"kubevirt\",state=\"Blocked\"}} 3\n\
                 ifo_evaluation_failures_total{{ruleset=\"{name}\",operation=\"Migrating\"}} 1\n\
                 ifo_leader 1.0\n# EOF\n"
            )
        );
    }
}
