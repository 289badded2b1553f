//! What operations look like as JSON, for the index to pack them by: the members in the
//! order in which they are written, and values that many of them have.

/// The JSON of one that is over, and of one in flight.
pub const OPERATIONS: &[u8] = concat!(
    r#"{"apiVersion":"live.ifo.kubevirt.io/v1alpha1","kind":"InFlightOperation","#,
    r#""metadata":{"resourceVersion":"1790000000000000","#,
    r#""creationTimestamp":"2026-11-01T10:20:30Z","generation":1,"labels":{"#,
    r#""ifo.kubevirt.io/component":"cdi","ifo.kubevirt.io/operation":"ImportInProgress","#,
    r#""ifo.kubevirt.io/owner-group":"kubevirt.io","ifo.kubevirt.io/owner-kind":"VirtualMachine","#,
    r#""ifo.kubevirt.io/owner-name":"a","#,
    r#""ifo.kubevirt.io/owner-uid":"01234567-89ab-4cde-8f01-23456789abcd","#,
    r#""ifo.kubevirt.io/owner-version":"v1","ifo.kubevirt.io/ruleset":"datavolume-rules","#,
    r#""ifo.kubevirt.io/subject-kind":"DataVolume","ifo.kubevirt.io/subject-name":"b","#,
    r#""ifo.kubevirt.io/subject-namespace":"default","#,
    r#""ifo.kubevirt.io/subject-uid":"89abcdef-0123-4567-89ab-cdef01234567"},"#,
    r#""name":"b-importinprogress-0123abcd","namespace":"default","#,
    r#""ownerReferences":[{"apiVersion":"cdi.kubevirt.io/v1beta1","blockOwnerDeletion":false,"#,
    r#""controller":true,"kind":"DataVolume","name":"b","#,
    r#""uid":"89abcdef-0123-4567-89ab-cdef01234567"}],"#,
    r#""uid":"76543210-fedc-5ba9-8765-43210fedcba9"},"#,
    r#""spec":{"operation":"ImportInProgress","ruleSet":"datavolume-rules","component":"cdi","#,
    r#""subject":{"apiVersion":"cdi.kubevirt.io/v1beta1","kind":"DataVolume","name":"b","#,
    r#""namespace":"default","uid":"89abcdef-0123-4567-89ab-cdef01234567","ownerReferences":["#,
    r#"{"apiVersion":"kubevirt.io/v1","blockOwnerDeletion":true,"controller":true,"#,
    r#""kind":"VirtualMachine","name":"a","uid":"01234567-89ab-4cde-8f01-23456789abcd"}]}},"#,
    r#""status":{"phase":"Completed","state":"Ended","reason":"NotDetected","#,
    r#""message":"No rule detects the operation any more.","progress":100,"#,
    r#""startTimeSource":"ManagedFields","lastDetected":"2026-11-01T10:20:30Z","#,
    r#""completed":"2026-11-01T10:20:30Z","detectedBy":["datavolume-rules"],"#,
    r#""subjectGeneration":1,"conditions":["#,
    r#"{"lastTransitionTime":"2026-11-01T10:20:30Z","#,
    r#""message":"No rule detects the operation any more.","observedGeneration":1,"#,
    r#""reason":"NotDetected","status":"False","type":"Progressing"},"#,
    r#"{"lastTransitionTime":"2026-11-01T10:20:30Z","message":"","observedGeneration":1,"#,
    r#""reason":"NotDetected","status":"False","type":"Detected"},"#,
    r#"{"lastTransitionTime":"2026-11-01T10:20:30Z","#,
    r#""message":"No rule detects the operation any more.","observedGeneration":1,"#,
    r#""reason":"NotDetected","status":"True","type":"Completed"}]}}"#,
    r#"{"apiVersion":"live.ifo.kubevirt.io/v1alpha1","kind":"InFlightOperation","#,
    r#""metadata":{"resourceVersion":"1790000000000000","#,
    r#""creationTimestamp":"2026-11-01T10:20:30Z","generation":1,"labels":{"#,
    r#""ifo.kubevirt.io/component":"kubevirt","ifo.kubevirt.io/correlation-group":"vm.a","#,
    r#""ifo.kubevirt.io/correlation-role":"root","ifo.kubevirt.io/operation":"Migrating","#,
    r#""ifo.kubevirt.io/ruleset":"vm-lifecycle-rules","#,
    r#""ifo.kubevirt.io/subject-kind":"VirtualMachine","ifo.kubevirt.io/subject-name":"a","#,
    r#""ifo.kubevirt.io/subject-namespace":"default","#,
    r#""ifo.kubevirt.io/subject-uid":"01234567-89ab-4cde-8f01-23456789abcd"},"#,
    r#""name":"a-migrating-89abcdef","namespace":"default","#,
    r#""ownerReferences":[{"apiVersion":"kubevirt.io/v1","blockOwnerDeletion":false,"#,
    r#""controller":true,"kind":"VirtualMachine","name":"a","#,
    r#""uid":"01234567-89ab-4cde-8f01-23456789abcd"}],"#,
    r#""uid":"fedcba98-7654-5210-9edc-ba9876543210"},"#,
    r#""spec":{"operation":"Migrating","ruleSet":"vm-lifecycle-rules","component":"kubevirt","#,
    r#""subject":{"apiVersion":"kubevirt.io/v1","kind":"VirtualMachine","name":"a","#,
    r#""namespace":"default","uid":"01234567-89ab-4cde-8f01-23456789abcd"}},"#,
    r#""status":{"phase":"Active","state":"Progressing","reason":"Migrating","#,
    r#""startTimeSource":"Detected","lastDetected":"2026-11-01T10:20:30Z","#,
    r#""detectedBy":["vm-lifecycle-rules"],"subjectGeneration":1,"conditions":["#,
    r#"{"lastTransitionTime":"2026-11-01T10:20:30Z","message":"","observedGeneration":1,"#,
    r#""reason":"Migrating","status":"True","type":"Progressing"},"#,
    r#"{"lastTransitionTime":"2026-11-01T10:20:30Z","message":"","observedGeneration":1,"#,
    r#""reason":"RuleMatched","status":"True","type":"Detected"},"#,
    r#"{"lastTransitionTime":"2026-11-01T10:20:30Z","message":"","observedGeneration":1,"#,
    r#""reason":"InFlight","status":"False","type":"Completed"}]}}"#,
)
.as_bytes();

#[cfg(test)]
mod tests {
    use super::*;
    use ifo_api::live::InFlightOperation;
    use serde_json::Deserializer;

    #[test]
    fn they_are_what_the_server_writes() {
        let operations = Deserializer::from_slice(OPERATIONS).into_iter::<InFlightOperation>();
        let mut written = Vec::new();
        for operation in operations {
            let mut json = serde_json::to_vec(&operation.unwrap()).unwrap();
            // The index puts the version first.
            let version = br#""resourceVersion":"1790000000000000","#;
            let metadata = br#""metadata":{"#;
            let at = |part: &[u8], json: &[u8]| json.windows(part.len()).position(|it| it == part);
            let there = at(version, &json).unwrap();
            json.drain(there..there + version.len());
            let first = at(metadata, &json).unwrap() + metadata.len();
            json.splice(first..first, version.iter().copied());
            written.extend(json);
        }
        assert_eq!(
            String::from_utf8(written).unwrap(),
            std::str::from_utf8(OPERATIONS).unwrap()
        );
    }
}
