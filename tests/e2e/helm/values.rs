//! Tests of single values of the Helm charts, and of the schemas that refuse wrong values.

use super::{CHART, RULES_CHART, with_helm};
use crate::deploy_manifests::{NAMESPACE, only_object};
use serde::Deserialize;
use serde_json::{Value, json};

/// The cases in `values.yaml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Cases {
    /// Values that change one field of the Deployment.
    changed: Vec<Change>,
    /// Values that the schema refuses, and a part of the error message.
    refused: Vec<(String, String)>,
    /// The same for the chart with the rule packs.
    refused_rules: Vec<(String, String)>,
}

#[derive(Deserialize)]
struct Change {
    set: Vec<String>,
    field: String,
    value: Value,
}

fn cases() -> Cases {
    let text = include_str!("values.yaml").replace("$version", env!("CARGO_PKG_VERSION"));
    serde_saphyr::from_str(&text).expect("the file has cases")
}

#[test]
fn the_other_values_change_only_their_field() {
    with_helm(async |_, helm| {
        let deployment = async |values: &[&str]| -> Value {
            let objects = helm.render(CHART, NAMESPACE, values).await;
            only_object(&objects, "Deployment", "ifo-apiserver").clone()
        };
        let default = deployment(&[]).await;
        for Change { set, field, value } in cases().changed {
            let values: Vec<&str> = set.iter().map(String::as_str).collect();
            let mut changed = deployment(&values).await;
            let field = format!("/spec/template/spec/{field}");
            let (parent, key) = field.rsplit_once('/').expect("a path");
            let found = changed.pointer(&field).cloned().unwrap_or_default();
            assert_eq!(found, value, "{set:?}");
            // All other fields must be unchanged. So the expected change is removed from both
            // objects before the comparison.
            let mut rest = default.clone();
            for object in [&mut changed, &mut rest] {
                match object.pointer_mut(parent).expect("the parent exists") {
                    Value::Object(members) => _ = members.remove(key),
                    Value::Array(items) => items.truncate(key.parse().expect("an index")),
                    other => panic!("{other}"),
                }
            }
            assert_eq!(changed, rest, "{set:?}");
        }

        // Helm deletes the Pod of `helm test`, also after a failed test. The Pod is not part of
        // the release, so `helm uninstall` would keep it.
        let objects = helm.render(CHART, NAMESPACE, &[]).await;
        let test = only_object(&objects, "Pod", "ifo-apiserver-test");
        let policy = &test["metadata"]["annotations"]["helm.sh/hook-delete-policy"];
        assert_eq!(policy, "before-hook-creation,hook-succeeded,hook-failed");

        // With `certificates.source=files`, the Deployment mounts another Secret than with
        // `certificates.source=openshift`. Otherwise, both Deployments are equal.
        let files = [
            "certificates.source=files",
            "certificates.secretName=own",
            "certificates.caBundle=QUJD",
            "apiService.createdBy=helm",
        ];
        let objects = helm.render(CHART, NAMESPACE, &files).await;
        let mut files = only_object(&objects, "Deployment", "ifo-apiserver").clone();
        let secret = "/spec/template/spec/volumes/1/secret/secretName";
        let secret = files.pointer_mut(secret).expect("it is mounted");
        assert_eq!(secret.take(), "own");
        *secret = json!("ifo-apiserver-serving");
        let openshift = ["certificates.source=openshift", "apiService.createdBy=helm"];
        let mut openshift = deployment(&openshift).await;
        let args = openshift.pointer_mut("/spec/template/spec/containers/0/args");
        let args = args.and_then(Value::as_array_mut).expect("arguments");
        args.retain(|arg| !arg.to_string().contains("--register-annotation="));
        assert_eq!(files, openshift);
        let registration = only_object(&objects, "APIService", "v1alpha1.live.ifo.kubevirt.io");
        assert_eq!(registration["spec"]["caBundle"], "QUJD");
    });
}

#[test]
fn the_schema_refuses_wrong_values_and_names_them() {
    with_helm(async |_, helm| {
        let Cases {
            refused,
            refused_rules,
            ..
        } = cases();
        for (chart, refused) in [(CHART, refused), (RULES_CHART, refused_rules)] {
            for (values, named) in refused {
                let why = helm
                    .run(&["template", "ifo", chart, "--set", &values])
                    .await;
                let why = why.expect_err(&values);
                assert!(why.contains("meet the specifications"), "{why}");
                // The error message contains the path of the value. Some releases of Helm 3 write
                // the path with dots, and others with slashes.
                let why = why.replace('.', "/");
                assert!(why.contains(&named), "{values}: {why}");
            }
        }
        // If another chart depends on this chart, Helm sets the value `global`. So the schema
        // must allow this value.
        let args = ["template", "ifo", CHART, "--set", "global.region=x"];
        assert!(helm.run(&args).await.is_ok());
    });
}
