//! Tests of single values of the Helm charts, and of the schemas that refuse wrong values.

use super::{CHART, Helm, RULES_CHART};
use crate::deploy_manifests::{NAMESPACE, only_object};
use crate::harness::shared;
use serde_json::{Value, json};

#[test]
fn the_other_values_change_only_their_field() {
    shared(async |cluster| {
        let addresses = &cluster.control_plane.addresses;
        let Some(helm) = Helm::new(&addresses.kubeconfig).await else {
            return;
        };
        let digest = format!("sha256:{}", "0".repeat(64));
        let deployment = async |values: &[&str]| -> Value {
            let objects = helm.render(CHART, NAMESPACE, values).await;
            only_object(&objects, "Deployment", "ifo-apiserver").clone()
        };
        let default = deployment(&[]).await;
        let version = format!(
            "ghcr.io/kubevirt/ifo-apiserver:v{}",
            env!("CARGO_PKG_VERSION")
        );
        let container = "/spec/template/spec/containers/0";
        assert_eq!(
            default.pointer(&format!("{container}/image")),
            Some(&json!(version))
        );

        // Helm deletes the Pod of `helm test`, also after a failed test. The Pod is not part of
        // the release, so `helm uninstall` would keep it.
        let objects = helm.render(CHART, NAMESPACE, &[]).await;
        let test = only_object(&objects, "Pod", "ifo-apiserver-test");
        assert_eq!(
            test["metadata"]["annotations"]["helm.sh/hook-delete-policy"],
            "before-hook-creation,hook-succeeded,hook-failed"
        );

        let pod = "/spec/template/spec";
        let last_arg = format!("{container}/args/6");
        let last_variable = format!("{container}/env/3");
        let image = format!("image.digest={digest}");
        let by_digest = format!("ghcr.io/kubevirt/ifo-apiserver@{digest}");
        let cases: [(&[&str], String, Value); 11] = [
            (
                &[&image, "image.tag=x"],
                format!("{container}/image"),
                json!(by_digest),
            ),
            (
                &["image.pullPolicy=Always"],
                format!("{container}/imagePullPolicy"),
                json!("Always"),
            ),
            (
                &["image.pullSecrets[0].name=registry"],
                format!("{pod}/imagePullSecrets"),
                json!([{"name": "registry"}]),
            ),
            (
                &["logFormat=json"],
                last_arg.clone(),
                json!("--log-format=json"),
            ),
            (&["extraArgs={-v=1}"], last_arg, json!("-v=1")),
            (
                &["extraEnv[0].name=MAX_WATCHES", "extraEnv[0].value=a"],
                last_variable,
                json!({"name": "MAX_WATCHES", "value": "a"}),
            ),
            (
                &["historyMax=100000"],
                format!("{container}/env/0"),
                json!({"name": "HISTORY_MAX", "value": "100000"}),
            ),
            (
                &["affinity.podAffinity.x=y"],
                format!("{pod}/affinity"),
                json!({"podAffinity": {"x": "y"}}),
            ),
            (
                &["podAntiAffinity=hard"],
                format!("{pod}/affinity"),
                json!({"podAntiAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": [{
                        "topologyKey": "kubernetes.io/hostname",
                        "labelSelector": {
                            "matchLabels": {"app.kubernetes.io/name": "ifo-apiserver"},
                        },
                        "matchLabelKeys": ["pod-template-hash"],
                    }],
                }}),
            ),
            (
                &["tolerations=null"],
                format!("{pod}/tolerations"),
                Value::Null,
            ),
            (
                &["resources.limits.memory=1Gi"],
                format!("{container}/resources/limits/memory"),
                json!("1Gi"),
            ),
        ];
        for (values, field, expected) in cases {
            let mut changed = deployment(values).await;
            let (parent, key) = field.rsplit_once('/').expect("a path");
            let found = changed.pointer(&field).cloned().unwrap_or_default();
            assert_eq!(found, expected, "{values:?}");
            // All other fields must be unchanged. So the expected change is removed from both
            // objects before the comparison.
            let mut rest = default.clone();
            for object in [&mut changed, &mut rest] {
                match object.pointer_mut(parent).expect("the parent exists") {
                    Value::Object(members) => _ = members.remove(key),
                    Value::Array(items) => {
                        items.truncate(key.parse().expect("an index"));
                    }
                    other => panic!("{other}"),
                }
            }
            assert_eq!(changed, rest, "{values:?}");
        }

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
        let args = openshift.pointer_mut(&format!("{container}/args"));
        let args = args.and_then(Value::as_array_mut).expect("arguments");
        args.retain(|arg| {
            let arg = arg.as_str().expect("an argument is a string");
            !arg.starts_with("--register-annotation=")
        });
        assert_eq!(files, openshift);
        let registration = only_object(&objects, "APIService", "v1alpha1.live.ifo.kubevirt.io");
        assert_eq!(registration["spec"]["caBundle"], "QUJD");
    });
}

#[test]
fn the_schema_refuses_wrong_values_and_names_them() {
    shared(async |cluster| {
        let addresses = &cluster.control_plane.addresses;
        let Some(helm) = Helm::new(&addresses.kubeconfig).await else {
            return;
        };
        for (chart, values, named) in [
            (CHART, "replica=3", "'replica' not allowed"),
            (CHART, "replicas=0", "replicas"),
            (CHART, "replicas=two", "replicas"),
            (CHART, "persistence.enable=true", "'enable' not allowed"),
            (CHART, "persistence.retainFor=1 day", "retainFor"),
            (CHART, "historyMax=-1", "historyMax"),
            (CHART, "certificates.source=vault", "certificates/source"),
            (
                CHART,
                "certificates.source=files",
                "certificates/secretName",
            ),
            (
                CHART,
                "certificates.secretName=x",
                "certificates/secretName",
            ),
            (CHART, "crds.kep=false", "'kep' not allowed"),
            (
                CHART,
                "certificates.source=files,certificates.secretName=own",
                "apiService/createdBy",
            ),
            (CHART, "apiService.createdBy=me", "apiService/createdBy"),
            (
                CHART,
                "podAntiAffinity=hard,affinity.podAntiAffinity.x=y",
                "affinity/podAntiAffinity",
            ),
            (CHART, "image.digest=latest", "image/digest"),
            (CHART, "image.pullPolicy=Sometimes", "image/pullPolicy"),
            (CHART, "logFormat=xml", "logFormat"),
            (CHART, "tolerations[0].keys=x", "'keys' not allowed"),
            (CHART, "extraArgs={verbose}", "extraArgs"),
            (
                RULES_CHART,
                "packs.kubervirt=true",
                "'kubervirt' not allowed",
            ),
            (RULES_CHART, "packs.kubevirt=1", "packs/kubevirt"),
            (RULES_CHART, "optional={generic/jobs}", "optional"),
        ] {
            let args = ["template", "ifo", chart, "--set", values];
            let refused = helm.run(&args).await;
            let why = refused.expect_err(values);
            assert!(why.contains("meet the specifications"), "{why}");
            // The error message contains the path of the value. Some releases of Helm 3 write
            // the path with dots, and others with slashes.
            let why = why.replace('.', "/");
            assert!(why.contains(named), "{values}: {why}");
        }
        // If another chart depends on this chart, Helm sets the value `global`. So the schema
        // must allow this value.
        let args = ["template", "ifo", CHART, "--set", "global.region=x"];
        assert!(helm.run(&args).await.is_ok());
    });
}
