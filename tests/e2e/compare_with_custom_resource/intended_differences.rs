//! The intended differences between the answers of the live resource and of the custom resource,
//! with their reasons. An entry has patterns of requests. If the difference of an entry does not
//! occur for one of these patterns, the test fails.

/// An intended difference between the answers to some requests.
pub struct IntendedDifference {
    /// A short name.
    pub name: &'static str,
    /// The reason.
    pub reason: &'static str,
    /// Patterns of the names of the requests whose answers show the difference. `…` matches any
    /// text. The name of a request is its line in the table. A name that begins with `DOCUMENT` is
    /// a part of a discovery or OpenAPI document.
    pub requests: &'static [&'static str],
    /// Patterns of the paths of the fields that differ, such as `body.message`. `…` matches any
    /// text.
    pub at: &'static [&'static str],
    /// Text that the live resource's value of the field contains. An empty text matches any value.
    /// The value is JSON, or `(nothing)` if the field is missing. The number of elements precedes
    /// an array, as in `length 1: ["get"]`.
    pub live: &'static str,
    /// Text that the custom resource's value of the field contains, in the same form as `live`.
    pub custom: &'static str,
}

/// Matches any field of the answers.
const ALL: &[&str] = &["…"];

/// All intended differences.
pub const INTENDED_DIFFERENCES: &[IntendedDifference] = &[
    IntendedDifference {
        name: "managedFields",
        reason: "operations cannot be written, so no client manages their fields",
        requests: &["…"],
        at: &["…metadata.managedFields"],
        live: "(nothing)",
        custom: "",
    },
    IntendedDifference {
        name: "generation",
        reason: "the spec of an operation never changes; a custom resource without a status \
                 subresource also counts changes of its status",
        requests: &["…"],
        at: &["…metadata.generation"],
        live: "1",
        custom: "",
    },
    IntendedDifference {
        name: "description of the column Name",
        reason: "the server chooses the name of an operation, so the text describes its origin",
        requests: &["…as=Table…"],
        at: &["…columnDefinitions[0].description"],
        live: "a hash of the operation's identity and start",
        custom: "Is required when creating resources",
    },
    IntendedDifference {
        name: "percent sign",
        reason: "the column Progress shows 45%; a custom resource's columns show values as they are",
        requests: &["…as=Table…"],
        at: &["…cells[5]"],
        live: "%",
        custom: "",
    },
    IntendedDifference {
        name: "priority of the column Name",
        reason: "only the wide table shows the names of operations, as for Events; the column Name \
                 of a custom resource cannot be hidden",
        requests: &["…as=Table…"],
        at: &["…columnDefinitions[0].priority"],
        live: "1",
        custom: "0",
    },
    IntendedDifference {
        name: "kind and name in one cell",
        reason: "the column Subject shows VM/a, so that the default table is narrow; a custom \
                 resource's columns show values as they are",
        requests: &["…as=Table…"],
        at: &["…cells[2]"],
        live: "/",
        custom: "",
    },
    IntendedDifference {
        name: "progress in the cell State",
        reason: "the column State shows Progressing 45%, so that the default table is narrow",
        requests: &["…as=Table…"],
        at: &["…cells[4]"],
        live: "%",
        custom: "",
    },
    IntendedDifference {
        name: "short messages",
        reason: "the column Message shows at most 80 characters; a custom resource's columns show \
                 whole values",
        requests: &[
            "GET {fat} | Accept-Encoding: gzip | Accept: application/json;as=Table;v=v1;g=meta.k8s.io",
        ],
        at: &["…cells[7]"],
        live: "x…\"",
        custom: "",
    },
    IntendedDifference {
        name: "no protobuf",
        reason: "clients that prefer protobuf also accept JSON; custom resources have protobuf only \
                 for metadata",
        requests: &[
            "GET {list} | Accept: text/plain",
            "GET {list} | Accept: application/xml",
            "GET {list} | Accept: application/cbor",
            "GET {list} | Accept: application/cbor-seq",
            "GET {list} | Accept: APPLICATION/JSON",
            "GET {list} | Accept: application/json;stream=other",
            "GET {list} | Accept: application/yaml;stream=watch",
            "GET {list} | Accept: application/json;v=v1",
            "GET {one} | Accept: application/json;g=meta.k8s.io;v=v1",
            "GET {missing} | Accept: application/json;g=example.com",
            "GET {list} | Accept: application/json;as=…",
            "GET {list} | Accept: nonsense",
            "GET {list} | Accept: ,",
            "GET {list} | Accept: */json",
            "GET {list}?watch=1&timeoutSeconds=… | Accept: …",
            "GET {gv} | Accept: application/xml",
            "GET {gv} | Accept: application/json;v=v1",
            "GET {list} | Accept: application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io",
        ],
        at: &["body.message"],
        live: "only the following media types are accepted: application/json",
        custom: "application/vnd.kubernetes.protobuf",
    },
    IntendedDifference {
        name: "no protobuf for metadata and errors",
        reason: "clients that prefer protobuf, such as kube-controller-manager, also accept JSON",
        requests: &[
            "GET {list} | Accept: application/vnd.kubernetes.protobuf",
            "GET {one} | Accept: application/vnd.kubernetes.protobuf",
            "GET {list} | Accept: application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
            "GET {all}?{mine} | Accept: application/vnd.kubernetes.protobuf;…",
            "GET {list}?watch=1&timeoutSeconds=1 | Accept: application/vnd.kubernetes.protobuf",
            "GET {list}?watch=1&timeoutSeconds=1 | Accept: application/vnd.kubernetes.protobuf;stream=watch",
        ],
        at: ALL,
        live: "",
        custom: "",
    },
    IntendedDifference {
        name: "name of the list's kind",
        reason: "a custom resource shows a type of the Go program",
        requests: &[
            "GET {list} | Accept: application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
        ],
        at: &["body.message"],
        live: "the requested object is a list (InFlightOperationList)",
        custom: "(*unstructured.UnstructuredList)",
    },
    IntendedDifference {
        name: "a list of metadata without items",
        reason: "the live resource answers with an empty array, because null breaks some clients",
        requests: &[
            "GET {list}?labelSelector=none | Accept: application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
        ],
        at: &["body.items"],
        live: "[]",
        custom: "null",
    },
    IntendedDifference {
        name: "PartialObjectMetadataList of one object",
        reason: "the request is invalid, so the live resource answers with a client error, and not with \
                 a server error",
        requests: &[
            "GET {one} | Accept: application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
        ],
        at: &["code", "body.code", "body.message", "body.reason"],
        live: "",
        custom: "",
    },
    IntendedDifference {
        name: "PartialObjectMetadataList in a watch",
        reason: "the watch of a custom resource ends without an event, and so do all retries",
        requests: &[
            "GET {list}?watch=1&timeoutSeconds=3&resourceVersion=0 | Accept: application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
        ],
        at: &["body"],
        live: "",
        custom: "",
    },
    IntendedDifference {
        name: "read-only",
        reason: "operations follow from their subjects; they cannot be written",
        requests: &[
            "POST {list}?dryRun=All",
            "POST {all}?dryRun=All",
            "POST {one}?dryRun=All",
            "POST {list}?dryRun=All | Content-Type: text/plain",
            "PUT {one}?dryRun=All",
            "PUT {list}?dryRun=All",
            "PATCH {one}?dryRun=All",
            "PATCH {list}?dryRun=All",
            "PATCH {one}?dryRun=All | Content-Type: application/json",
            "DELETE {one}?dryRun=All",
            "DELETE {missing}?dryRun=All",
            "DELETE {list}?dryRun=All",
            "DELETE {all}?dryRun=All&{mine}",
        ],
        at: ALL,
        live: "",
        custom: "",
    },
    IntendedDifference {
        name: "read-only, in discovery",
        reason: "operations cannot be written; they are not stored, so they have no storage version \
                 hash; and only the live kind has the short names",
        requests: &[
            "GET {gv}",
            "GET {gv}/",
            "GET {gv}?pretty=1",
            "GET {gv} | Accept: application/yaml",
            "GET {gv} | Accept: application/json;stream=watch",
            "GET {gv} | Impersonate-User: nobody",
        ],
        at: &[
            "body.resources[0].verbs",
            "body.resources[0].shortNames",
            "body.resources[0].storageVersionHash",
        ],
        live: "",
        custom: "",
    },
    IntendedDifference {
        name: "entity tags in discovery",
        reason: "clients need not read an unchanged document again",
        requests: &[
            "GET {gv}",
            "GET {gv}/",
            "GET {gv}?pretty=1",
            "GET {gv} | Accept: application/yaml",
            "GET {gv} | Accept: application/json;stream=watch",
            "HEAD {gv}",
            "GET {gv} | Impersonate-User: nobody",
        ],
        at: &["headers.etag"],
        live: "",
        custom: "(nothing)",
    },
    IntendedDifference {
        name: "methods of discovery",
        reason: "the discovery of a custom resource returns the document for any method",
        requests: &["OPTIONS {gv}", "POST {gv}"],
        at: ALL,
        live: "",
        custom: "",
    },
    IntendedDifference {
        name: "methods of the old paths of watches",
        reason: "for a custom resource, kube-apiserver accepts any method on these paths",
        requests: &["POST {gv}/watch/namespaces/{namespace}/inflightoperations?timeoutSeconds=1"],
        at: &["code", "body", "layout.…"],
        live: "",
        custom: "",
    },
    IntendedDifference {
        name: "Vary behind the aggregator",
        reason: "the client accepts no compressed answer, but kube-apiserver requests one from \
                 ifo-apiserver, decompresses the answer, and keeps its header",
        requests: &["GET {all}"],
        at: &["headers.vary"],
        live: "Accept-Encoding",
        custom: "(nothing)",
    },
    IntendedDifference {
        name: "methods that are no verbs",
        reason: "the message of a custom resource lacks the verb",
        requests: &["OPTIONS {list}", "OPTIONS {one}"],
        at: &["body.message", "body.details.group", "body.details.kind"],
        live: "",
        custom: "",
    },
    IntendedDifference {
        name: "more selectable fields",
        reason: "a custom resource can have at most 8",
        requests: &[
            "GET {list}?fieldSelector=spec.item%3Dx",
            "GET {list}?fieldSelector=spec.subject.apiVersion%3Dkubevirt.io/v1",
            "GET {list}?fieldSelector=spec.subject.namespace%3D{namespace}",
        ],
        at: ALL,
        live: "",
        custom: "",
    },
    IntendedDifference {
        name: "headers of refused WebSocket watches",
        reason: "kube-apiserver forwards the answer of an aggregated server to an upgrade without its \
                 own headers",
        requests: &[
            "GET {list}?watch=1&timeoutSeconds=1&… | Upgrade: websocket",
            "GET {gv}/nothings?watch=1&timeoutSeconds=1 | Upgrade: websocket",
        ],
        at: &[
            "headers.audit-id",
            "headers.cache-control",
            "headers.x-kubernetes-pf-…",
        ],
        live: "(nothing)",
        custom: "",
    },
    IntendedDifference {
        name: "invalid WebSocket handshakes, as a Status",
        reason: "a custom resource answers without a Status and without headers",
        requests: &["GET {list}?watch=1&timeoutSeconds=1 | Upgrade: websocket | Sec-WebSocket-…"],
        at: &["body", "headers.…", "layout.…"],
        live: "",
        custom: "",
    },
    IntendedDifference {
        name: "WebSocket watches without an origin",
        reason: "programs that are no browsers send no Origin, and this header protects only servers \
                 that use cookies",
        requests: &["GET {list}?watch=1&timeoutSeconds=1 | Upgrade: websocket | Origin: -"],
        at: ALL,
        live: "",
        custom: "",
    },
    IntendedDifference {
        name: "not found, as a Status",
        reason: "other Kubernetes servers answer this way, and kubectl prints it better",
        requests: &[
            "GET {all}/{name}",
            "GET {all}/{name}/status",
            "GET {gv}//namespaces/{namespace}//inflightoperations",
            "GET {gv}/INFLIGHTOPERATIONS",
            "GET {gv}/ifo",
            "GET {gv}/inflightoperation",
            "GET {gv}/namespaces",
            "GET {gv}/namespaces/{namespace}",
            "GET {gv}/namespaces/{namespace}/nothings",
            "GET {gv}/namespaces/{namespace}/nothings/x",
            "GET {gv}/nothings",
            "GET {gv}/watch/namespaces/{namespace}?timeoutSeconds=1",
            "GET {gv}/watch/namespaces?timeoutSeconds=1",
            "GET {gv}/watch/nothings?timeoutSeconds=1",
            "GET {gv}/nothings?watch=1&timeoutSeconds=1 | Upgrade: websocket",
        ],
        at: &[
            "body",
            "headers.content-type[0]",
            "headers.x-content-type-options",
        ],
        live: "",
        custom: "",
    },
    IntendedDifference {
        name: "paths that are no text",
        reason: "no object can have such a name, so the live resource answers with a client error",
        requests: &["GET {list}/%FF"],
        at: &[
            "code",
            "body.code",
            "body.message",
            "body.reason",
            "body.details",
        ],
        live: "",
        custom: "",
    },
    IntendedDifference {
        name: "bad JSON in a continue token",
        reason: "the parsers have different messages",
        requests: &[
            "GET {list}?continue=abc",
            "GET {list}?continue=abc&resourceVersion=abc",
            "GET {list}?includeObject=bogus&continue=abc | Accept: application/json;as=Table;v=v1;g=meta.k8s.io",
        ],
        at: &["body.message"],
        live: "continue key is not valid: ",
        custom: "continue key is not valid: ",
    },
    IntendedDifference {
        name: "versions that are no numbers",
        reason: "the request is invalid, so the live resource answers with 400, as for lists, and not \
                 with 500",
        requests: &[
            "GET {one}?resourceVersion=abc",
            "GET {one}?resourceVersion=-1",
            "GET {one}?resourceVersion=1.5",
            "GET {one}?resourceVersion=99999999999999999999",
            "GET {one}?resourceVersion=abc&resourceVersionMatch=Bogus",
            "GET {list}?watch=1&timeoutSeconds=3&resourceVersion=abc",
            "GET {list}?watch=1&timeoutSeconds=3&resourceVersion=-1",
            "GET {list}?watch=1&timeoutSeconds=3&resourceVersion=99999999999999999999",
            "GET {list}?watch=1&timeoutSeconds=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=abc",
        ],
        at: &["code", "body.code", "body.message", "body.reason"],
        live: "",
        custom: "",
    },
    IntendedDifference {
        name: "watches from the future",
        reason: "the resourceVersion comes from before a restart of the server, and may never be \
                 reached; without an error, the client would wait forever",
        requests: &["GET {list}?watch=1&timeoutSeconds=…&resourceVersion={future}"],
        at: &["body"],
        live: "",
        custom: "null",
    },
    IntendedDifference {
        name: "read-only, in aggregated discovery",
        reason: "operations cannot be written, and only the live kind has the short names",
        requests: &["DOCUMENT aggregated discovery"],
        at: &[
            "versions[0].resources[0].shortNames",
            "versions[0].resources[0].verbs",
        ],
        live: "",
        custom: "",
    },
    IntendedDifference {
        name: "read-only, in OpenAPI",
        reason: "operations follow from their subjects; they cannot be written",
        requests: &[
            "DOCUMENT paths in OpenAPI v3",
            "DOCUMENT paths in OpenAPI v2",
        ],
        at: &["….methods"],
        live: "length 1: [\"get\"]",
        custom: "",
    },
    IntendedDifference {
        name: "how metadata is written",
        reason: "defaults and merge rules of lists matter only for writes",
        requests: &[
            "DOCUMENT schema in OpenAPI v3",
            "DOCUMENT schema in OpenAPI v2",
        ],
        at: &[
            "properties.metadata.….default",
            "properties.metadata.….x-kubernetes-…",
        ],
        live: "(nothing)",
        custom: "",
    },
    IntendedDifference {
        name: "defaults in OpenAPI v2",
        reason: "kube-apiserver drops the defaults of custom resources in OpenAPI v2",
        requests: &["DOCUMENT schema in OpenAPI v2"],
        at: &["….default"],
        live: "",
        custom: "(nothing)",
    },
    IntendedDifference {
        name: "more selectable fields, in OpenAPI",
        reason: "a custom resource has 8 at most",
        requests: &[
            "DOCUMENT schema in OpenAPI v3",
            "DOCUMENT schema in OpenAPI v2",
        ],
        at: &["x-kubernetes-selectable-fields"],
        live: "length 15:",
        custom: "length 8:",
    },
    IntendedDifference {
        name: "sharded lists",
        reason: "an alpha feature of kube-apiserver, which documents the parameter even if it is off",
        requests: &[
            "DOCUMENT paths in OpenAPI v3",
            "DOCUMENT paths in OpenAPI v2",
        ],
        at: &["…parameters.shardSelector"],
        live: "(nothing)",
        custom: "",
    },
];
