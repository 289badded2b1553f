//! Test of `kubectl ifo rules check --cluster`. The command downloads the OpenAPI schemas of the
//! cluster. It checks that these schemas contain each field that a rule expression reads.

use crate::harness::shared;
use std::path::Path;
use std::process::Stdio;
use tokio::process::Command;

#[test]
fn misspelled_fields_are_found_with_the_schemas_of_the_cluster() {
    shared(async |cluster| {
        let rule_set = |resource: &str, expression: &str| {
            format!(
                "---\napiVersion: ifo.kubevirt.io/v1alpha1\nkind: OperationRuleSet\n\
                 metadata: {{name: {resource}}}\nspec:\n  component: c\n  \
                 target: {{group: apps, version: v1, resource: {resource}}}\n  \
                 rules: [{{operation: Moving, expression: \"{expression}\"}}]\n"
            )
        };
        let rule_sets = [
            rule_set(
                "deployments",
                "object.status.conditions.exists(c, c.typ == 'x')",
            ),
            rule_set("statefulsets", "object.status.currentRevision != ''"),
            rule_set("cows", "object.status.anything"),
        ];
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rules.yaml");
        std::fs::write(&path, rule_sets.concat()).unwrap();
        let check = async |path: &Path| {
            let output = Command::new(crate::plugin())
                .args(["rules", "check", "--cluster"])
                .arg(path)
                .env("KUBECONFIG", &cluster.control_plane.addresses.kubeconfig)
                .stdin(Stdio::null())
                .output()
                .await
                .unwrap();
            let text = |bytes| String::from_utf8(bytes).unwrap();
            (
                output.status.code(),
                text(output.stdout),
                text(output.stderr),
            )
        };
        let (code, out, err) = check(&path).await;
        assert_eq!(code, Some(1), "{out}{err}");
        assert!(
            err.contains(
                "deployments: rules[Moving].expression: 1:37: the schema has no field 'typ'; the nearest is 'type'"
            ),
            "{err}"
        );
        assert!(err.contains("no schema of apps/v1/cows"), "{err}");
        assert!(out.contains("statefulsets: ok"), "{out}");
        assert_eq!(err.matches("error: ").count(), 1, "{err}");

        // The shipped rule sets for built-in resources must read existing fields only.
        let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("rules/generic");
        let (code, out, err) = check(&shipped).await;
        assert_eq!(code, Some(0), "{out}{err}");
    });
}
