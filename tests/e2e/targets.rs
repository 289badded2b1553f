//! Test of a target: a resource that the server watches because a rule set names it. Its CRD is missing
//! and installed later. Then the server lacks the right to read it.

use crate::harness::{CRD, Kind, RULE_SET, condition, crd, is, rule_set, shared, text};
use serde_json::{Value, json};

/// A kind that the server is not allowed to read.
const WIDGET: Kind = Kind::new("e2e.example.com/v1", "Widget", "widgets");

#[test]
fn a_target_is_watched_when_it_is_installed_and_the_right_is_granted() {
    shared(async |cluster| {
        let namespace = cluster.new_namespace("target").await;
        let running = [("Running", "object.status.phase == 'Running'")];
        let rules = rule_set(namespace, &WIDGET, &running);
        cluster.create(&RULE_SET, None, &rules).await;
        let until = async |what: &str| cluster.until_rule_set(namespace, what, "True").await;
        let waiting = until("NotInstalled").await;
        let message = text(condition(&waiting, "NotInstalled"), "/message");
        assert!(message.contains("e2e.example.com"), "{message}");
        assert!(is(&waiting, "Ready", "NotInstalled"), "{waiting}");
        assert!(is(&waiting, "Validated", "True"), "{waiting}");

        let definition = crd(&WIDGET, "Namespaced");
        cluster.create(&CRD, None, &definition).await;
        let failed = until("WatchFailed").await;
        let message = text(condition(&failed, "WatchFailed"), "/message");
        for part in ["widgets", "e2e.example.com", "watch", "cluster scope"] {
            assert!(message.contains(part), "{part}: {message}");
        }
        assert!(is(&failed, "Ready", "False"), "{failed}");
        assert_eq!(condition(&failed, "NotInstalled"), &Value::Null);
        assert_ne!(failed["status"]["watchActive"], true, "{failed}");

        // The message contains the commands that grant the missing right.
        let (_, commands) = message
            .split_once("or run: ")
            .expect("the message must contain commands");
        for command in commands.split(" && ") {
            let line = command.strip_prefix("kubectl ").expect("it is kubectl");
            cluster.kubectl(line).await;
        }
        let ready = until("Ready").await;
        assert_eq!(condition(&ready, "WatchFailed"), &Value::Null, "{ready}");
        assert_eq!(ready["status"]["watchActive"], true);
        let object = WIDGET.object("a", json!({"status": {"phase": "Running"}}));
        cluster.create(&WIDGET, Some(namespace), &object).await;
        let running = [("a", "Running")];
        cluster.until_operations(namespace, &running).await;
    });
}
