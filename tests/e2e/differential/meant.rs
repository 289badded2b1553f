//! Differences that are meant, each with its reason. Every request that an entry names
//! must really show it; the test fails on one that does not.

/// A difference that is meant.
pub struct Meant {
    /// What it is, in short.
    pub name: &'static str,
    /// Why it is so.
    pub reason: &'static str,
    /// The requests that show it; `…` stands for anything.
    pub requests: &'static [&'static str],
    /// Where in the answers.
    pub at: &'static [&'static str],
    /// Part of what the live resource has there.
    pub live: &'static str,
    /// Part of what the custom one has there.
    pub custom: &'static str,
}

/// Everywhere in the answers.
const ALL: &[&str] = &["…"];

/// All of them.
pub const MEANT: &[Meant] = &[
    Meant {
        name: "managedFields",
        reason: "nobody manages fields of what cannot be written",
        requests: &["…"],
        at: &["…metadata.managedFields"],
        live: "(nothing)",
        custom: "",
    },
    Meant {
        name: "generation",
        reason: "it counts changes of the spec, and that of an operation is fixed; without a \
                 subresource for the status, a custom resource counts changes of that too",
        requests: &["…"],
        at: &["…metadata.generation"],
        live: "1",
        custom: "",
    },
    Meant {
        name: "description of the column Name",
        reason: "nobody gives an operation its name, so it is told where that comes from",
        requests: &["…as=Table…"],
        at: &["…columnDefinitions[0].description"],
        live: "a hash of its identity and start",
        custom: "Is required when creating resources",
    },
    Meant {
        name: "percent sign",
        reason: "the column Progress shows 45%; a custom resource's columns show values as they are",
        requests: &["…as=Table…"],
        at: &["…cells[6]"],
        live: "%",
        custom: "",
    },
    Meant {
        name: "no protobuf",
        reason: "clients that prefer it also take JSON, and for custom resources there is none but \
                 for metadata",
        requests: &[
            "GET {list} | Accept: text/plain",
            "GET {list} | Accept: application/xml",
            "GET {list} | Accept: application/cbor",
            "GET {list} | Accept: application/cbor-seq",
            "GET {list} | Accept: APPLICATION/JSON",
            "GET {list} | Accept: application/json;stream=other",
            "GET {list} | Accept: application/json;as=…",
            "GET {list} | Accept: nonsense",
            "GET {list} | Accept: ,",
            "GET {list} | Accept: */json",
            "GET {list}?watch=1&timeoutSeconds=… | Accept: …",
            "GET {gv} | Accept: application/xml",
            "GET {list} | Accept: application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io",
        ],
        at: &["body.message"],
        live: "only the following media types are accepted: application/json",
        custom: "application/vnd.kubernetes.protobuf",
    },
    Meant {
        name: "no protobuf, for metadata and errors neither",
        reason: "as above; kube-controller-manager, which asks for it, takes JSON too",
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
    Meant {
        name: "name of the list's kind",
        reason: "a custom resource shows a type of the Go program",
        requests: &[
            "GET {list} | Accept: application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
        ],
        at: &["body.message"],
        live: "the requested object is a list (InFlightOperationList)",
        custom: "(*unstructured.UnstructuredList)",
    },
    Meant {
        name: "a list of metadata without items",
        reason: "an empty array breaks no client; null breaks some",
        requests: &[
            "GET {list}?labelSelector=none | Accept: application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
        ],
        at: &["body.items"],
        live: "[]",
        custom: "null",
    },
    Meant {
        name: "PartialObjectMetadataList of one object",
        reason: "it is the client's mistake, not the server's",
        requests: &[
            "GET {one} | Accept: application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
        ],
        at: &["code", "body.code", "body.message", "body.reason"],
        live: "",
        custom: "",
    },
    Meant {
        name: "PartialObjectMetadataList in a watch",
        reason: "a custom resource's watch says nothing and closes, for ever again",
        requests: &[
            "GET {list}?watch=1&timeoutSeconds=3&resourceVersion=0 | Accept: application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
        ],
        at: &["body"],
        live: "",
        custom: "",
    },
    Meant {
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
    Meant {
        name: "read-only, in discovery",
        reason: "as above; there is nothing stored that a hash could tell the version of, and only \
                 the live kind has the short names",
        requests: &[
            "GET {gv}",
            "GET {gv}/",
            "GET {gv}?pretty=1",
            "GET {gv} | Accept: application/yaml",
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
    Meant {
        name: "entity tags in discovery",
        reason: "whoever has a document that never changes need not read it again",
        requests: &[
            "GET {gv}",
            "GET {gv}/",
            "HEAD {gv}",
            "GET {gv} | Impersonate-User: nobody",
        ],
        at: &["headers.etag"],
        live: "",
        custom: "(nothing)",
    },
    Meant {
        name: "methods of discovery",
        reason: "a custom resource's discovery answers to whatever method with the document",
        requests: &["OPTIONS {gv}", "POST {gv}"],
        at: ALL,
        live: "",
        custom: "",
    },
    Meant {
        name: "methods of the old paths of watches",
        reason: "a custom resource is watched there with whatever method",
        requests: &["POST {gv}/watch/namespaces/{namespace}/inflightoperations?timeoutSeconds=1"],
        at: &["code", "body", "layout.…"],
        live: "",
        custom: "",
    },
    Meant {
        name: "Vary behind the aggregator",
        reason: "kube-apiserver asks this server for compression that its client did not ask for, \
                 undoes it, and leaves the header",
        requests: &["GET {all}"],
        at: &["headers.vary"],
        live: "Accept-Encoding",
        custom: "(nothing)",
    },
    Meant {
        name: "methods that are no verbs",
        reason: "a custom resource's message has a hole where the verb should be",
        requests: &["OPTIONS {list}", "OPTIONS {one}"],
        at: &["body.message", "body.details.group", "body.details.kind"],
        live: "",
        custom: "",
    },
    Meant {
        name: "more selectable fields",
        reason: "a custom resource has 8 at most",
        requests: &[
            "GET {list}?fieldSelector=spec.item%3Dx",
            "GET {list}?fieldSelector=spec.subject.apiVersion%3Dkubevirt.io/v1",
            "GET {list}?fieldSelector=spec.subject.namespace%3D{namespace}",
        ],
        at: ALL,
        live: "",
        custom: "",
    },
    Meant {
        name: "not found, as a Status",
        reason: "servers other than that of custom resources answer so, and kubectl shows it better",
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
        ],
        at: &[
            "body",
            "headers.content-type[0]",
            "headers.x-content-type-options",
        ],
        live: "",
        custom: "",
    },
    Meant {
        name: "paths that are no text",
        reason: "no object can have such a name, so the request is a mistake",
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
    Meant {
        name: "bad JSON in a continue token",
        reason: "another parser has other words for it",
        requests: &["GET {list}?continue=abc"],
        at: &["body.message"],
        live: "continue key is not valid: ",
        custom: "continue key is not valid: ",
    },
    Meant {
        name: "versions that are no numbers",
        reason: "it is the client's mistake, not the server's: 400 as in lists, and not 500",
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
    Meant {
        name: "watches from the future",
        reason: "such a version is of a server before a restart and may never come; silence would \
                 keep the client waiting",
        requests: &["GET {list}?watch=1&timeoutSeconds=…&resourceVersion={future}"],
        at: &["body"],
        live: "",
        custom: "null",
    },
];
