//! The known differences between our answers and the recorded answers of Kubernetes.

use super::answers::Answer;
use crate::value::named_format::NO_URI;

/// A known difference between our answers and the answers of Kubernetes. `applies` receives
/// Kubernetes' answer and the class of our answer, and returns true if they differ for `reason`.
pub(crate) struct Difference {
    pub reason: &'static str,
    pub applies: fn(&Answer, &str) -> bool,
}

pub(crate) const DIFFERENCES: &[Difference] = &[
    Difference {
        reason: "A list or map literal can have values of different types, because rule sets of \
                 earlier releases use such literals.",
        applies: |answer, here| {
            answer.v.contains(": expected type '")
                && answer.v.contains("' but found '")
                && answer.expr.contains(['[', '{'])
                && here != "compile-err"
        },
    },
    Difference {
        reason: "cel-go panics. We return an error or the value.",
        applies: |answer, _| {
            answer.v.starts_with("panic:") || answer.v.starts_with("internal error:")
        },
    },
    Difference {
        reason: "cel-go computes the cost of flatten from the depth. We compute it from the list.",
        applies: |answer, _| {
            answer.v == "operation cancelled: actual cost limit exceeded"
                && answer.expr.contains(".flatten(")
        },
    },
    Difference {
        reason: "cel-go changes the order of equal keys in a list of more than 12 elements.",
        applies: |answer, _| answer.expr.ends_with(", 16].sortBy(x, x % 3)"),
    },
    Difference {
        reason: "NaN has no order. We put it at the end.",
        applies: |answer, _| answer.expr.contains("NaN") && answer.expr.ends_with(".sort()"),
    },
    Difference {
        reason: "Numbers in texts cannot be hexadecimal or have underscores.",
        applies: |answer, _| answer.expr.starts_with("double(") && answer.expr.contains(['_', 'x']),
    },
    Difference {
        reason: "cel-go takes the precision of a number modulo 256. We refuse more than 255 digits.",
        applies: |answer, here| {
            let clauses = ["%.1000f", "%.256f", "%.256e", "string(object.big) + 'f'"];
            clauses.iter().any(|clause| answer.expr.contains(clause)) && here == "eval-err"
        },
    },
    Difference {
        reason: "Go rounds a fraction of a duration, and a power of ten, more than once.",
        applies: |answer, here| {
            let is_number = here.starts_with("double:") && answer.v.starts_with("double:");
            answer.expr.starts_with("duration('0.977") && here.starts_with("duration:")
                || answer.expr.contains("asApproximateFloat") && is_number
        },
    },
    Difference {
        reason: "The parts of a duration are exact. cel-go computes them as doubles, which round up \
                 .999999999 of a long duration.",
        applies: |answer, _| {
            answer.expr.contains(".999999999")
                && [".getHours()", ".getSeconds()"]
                    .iter()
                    .any(|getter| answer.expr.ends_with(getter))
        },
    },
    Difference {
        reason: "If two texts are equally near to a double, Go and Rust can choose different texts.",
        applies: |answer, _| answer.expr == "'%s'.format([742480226586680.2])",
    },
    Difference {
        reason: "The hour of a timestamp has two digits.",
        applies: |answer, here| {
            answer.expr.contains("T1:") && ["eval-err", "compile-err"].contains(&here)
        },
    },
    Difference {
        reason: "There are no protobuf messages, because objects are JSON.",
        applies: |answer, _| answer.expr.starts_with("google.protobuf."),
    },
    Difference {
        reason: "The value of `variables` itself cannot be read, because each variable is evaluated \
                 only when it is read.",
        applies: |answer, here| {
            here == "compile-err"
                && [
                    "variables)",
                    "variables]",
                    "variables ",
                    "kubernetes.variables",
                ]
                .iter()
                .any(|use_of| answer.expr.contains(use_of))
                || answer.expr == "variables"
        },
    },
    Difference {
        reason: "Kubernetes reports a missing field in a variable as another error.",
        applies: |answer, here| {
            answer.v.starts_with("composited variable") && here.starts_with("missing")
        },
    },
    Difference {
        reason: "A field of an optional variable is optional, as for other optionals.",
        applies: |answer, here| answer.expr == "variables.opt.x" && here == "optional.none",
    },
    Difference {
        reason: "The types of variables are known when an expression is compiled.",
        applies: |answer, here| {
            answer.v.starts_with("no such overload")
                && answer.expr.starts_with("variables.")
                && here == "compile-err"
        },
    },
    Difference {
        reason: "A variable that does not compile, or whose name is reserved, is an error of the rule \
                 set, and not of the expressions.",
        applies: |answer, _| {
            answer.v.starts_with("variable ") || answer.expr.contains("variables.namespace")
        },
    },
    Difference {
        reason: "A variable of a macro can have the name of an internal variable of cel-go.",
        applies: |answer, _| answer.v.contains("overwrites accumulator variable"),
    },
    Difference {
        reason: "The conversion of a list or map literal, and an index such as null, are errors of the \
                 evaluation, and not of the compiler.",
        applies: |answer, here| {
            (here == "eval-err" || here.starts_with("missing"))
                && ["invalid qualifier type", "no such overload"]
                    .iter()
                    .any(|error| {
                        let start = format!("program instantiation failed: {error}");
                        answer.v.starts_with(&start)
                    })
        },
    },
    Difference {
        reason: "`now` exists here, but not in Kubernetes.",
        applies: |answer, _| answer.v.contains("undeclared reference to 'now'"),
    },
    Difference {
        reason: "The functions of the authorizer do not exist here. In Kubernetes, they exist, \
                 but a call on an object fails.",
        applies: |answer, here| {
            answer.topic == "refused"
                && answer.v.starts_with("no such overload: ")
                && here == "compile-err"
        },
    },
    Difference {
        reason: "cel-go converts the result of a conditional or of `optMap` to a Go value and back. \
                 Values of Kubernetes' own types, values that are types, and nested optionals are \
                 lost.",
        applies: |answer, _| {
            answer.v.starts_with("unsupported conversion to ref.Val")
                || answer.v.contains("reference to undefined type")
                || (answer.topic == "opaque" && answer.expr.contains("optional.of("))
                || answer.expr.contains(".optMap(k, int)")
        },
    },
    Difference {
        reason: "In Kubernetes, the result of `add` and `sub` of quantities is not equal to any \
                 value.",
        applies: |answer, here| {
            (answer.expr.contains(".add(") || answer.expr.contains(".sub("))
                && !here.starts_with("quantity:")
                && here != "eval-err"
        },
    },
    Difference {
        reason: "In Kubernetes, the comparison of a quantity in an optional with null is an error.",
        applies: |answer, _| answer.expr == "optional.of(quantity('2')) == optional.of(dyn(null))",
    },
    Difference {
        reason: "The recorded text of a quantity of more than 63 bits is rounded.",
        applies: |answer, _| answer.expr.ends_with("quantity('1e30'))"),
    },
    Difference {
        reason: "Kubernetes cannot subtract the smallest integer from a quantity.",
        applies: |answer, _| answer.expr.ends_with(".sub(-9223372036854775808)"),
    },
    Difference {
        reason: "cel-go infers the element type of an empty list from its uses.",
        applies: |answer, _| answer.expr == "[].map(x, x > 1, x + 'a')",
    },
    Difference {
        reason: "A URL is refused if RFC 3986 does not allow its characters, escapes, user name or \
                 host, or if it is `*`.",
        applies: |answer, here| {
            let urls = [
                "'*'",
                "'http://[fe80::1%25eth0]/x'",
                "'https://h/a b'",
                "'https://h/[x]'",
                "'https://h/ö/%2f'",
                "'https://ä.de/ü?k=ß'",
                "'https://h?%zz=1'",
                "'https://a@b@c/'",
            ];
            urls.iter().any(|url| answer.expr.contains(url))
                && (["bool:false", "eval-err"].contains(&here) || here.contains(NO_URI))
        },
    },
    Difference {
        reason: "The text of a URL is as it is written. Kubernetes changes the scheme to lower case \
                 and removes the slashes before an empty host.",
        applies: |answer, here| {
            let urls = ["HTTP://Example.COM/%7Efoo", "https://"];
            urls.iter().any(|url| here == format!("url:\"{url}\""))
                && answer.v.starts_with("url:\"http")
        },
    },
    Difference {
        reason: "A semicolon in a query is part of the parameter. Kubernetes ignores the parameter.",
        applies: |answer, _| answer.expr.contains("?a;b") && answer.expr.contains("getQuery()"),
    },
    Difference {
        reason: "The message about a text that is not a URI has other words.",
        applies: |answer, here| answer.v.contains(r#""parse \""#) && here.contains(NO_URI),
    },
    Difference {
        reason: "The parser of the `regex` crate refuses some rare texts of RE2, or they have another \
                 meaning there.",
        applies: |answer, here| {
            let texts = [
                r"\Qa.b\",
                "[a&&b]",
                "[+--]",
                "[a[][]]",
                "'^a{$'",
                "'^a{,2}$'",
                "(?P<n>a)(?P<n>b)",
            ];
            texts.iter().any(|text| answer.expr.contains(text))
                && ["compile-err", "eval-err"].contains(&here)
        },
    },
    Difference {
        reason: "A number in the pre-release of a semantic version can have more than 64 bits.",
        applies: |answer, _| {
            answer.expr.contains("emver('1.2.3-99999999999999999999'")
                && answer.phase != "compile-err"
        },
    },
];

/// Returns true for a compile error of cel-go whose text or position differs from ours on purpose.
pub(crate) fn has_excluded_text(answer: &Answer) -> bool {
    let other_texts = [
        // For wrong syntax and wrong literals, the texts of the crate `cel`, which parses our
        // expressions, differ from the texts of cel-go.
        "Syntax error",
        "unsupported syntax",
        "unable to unescape string",
        "invalid unicode code point",
        "invalid int literal",
        "invalid uint literal",
        "invalid double literal",
        "reserved identifier",
        "expression recursion limit",
        "invalid argument to has() macro",
        // Our text for all macros is "argument must be a simple name".
        "argument is not an identifier",
        // Our text says that the value cannot be the range, or that it is no list.
        "sortBy can only be applied",
        // For wrong format strings, our texts do not quote the format string.
        "could not parse formatting clause",
        "index 0 out of range",
        "index 1 out of range",
        // Our texts say that the name is unknown, or that the type has no fields. Our texts write
        // the type `type(type)` as `type(type(dyn))`.
        "is not a type",
        "is not a message type",
        "unexpected failed resolution",
        "undeclared reference to '.f'",
        "(type(type))",
        "(type(optional_type))",
        "'allowed'",
        "'check'",
        // A list literal of several types is an error only in Kubernetes.
        "list(type(int))",
        "expected type 'int' but found 'string'",
        // These texts contain cel-go's names of type parameters.
        "_var",
        "(A)",
        "(A, B)",
        "type(type)",
        // `now` does not exist in Kubernetes.
        "'now'",
    ];
    other_texts.iter().any(|text| answer.v.contains(text))
        // cel-go expands a comprehension to a conditional, whose error it reports at the comprehension.
        // We report an error at the condition.
        || answer.v.contains("'_?_:_' applied")
            && [".filter(", ".map(", ".exists_one(", ".existsOne(", ".transform"]
                .iter()
                .any(|macro_call| answer.expr.contains(macro_call))
        // We report a range that is no list or map at the range.
        || answer.v.contains("cannot be range") && answer.expr.contains(".sortBy(")
        // For an error at a negative number, our position is the first digit, and cel-go's position
        // is the sign.
        || answer.v.contains("error during formatting") && answer.expr.contains("[-")
        || answer.expr.contains("timestamp(-")
        // This crate has no protobuf messages.
        || answer.expr.contains("google.protobuf.")
        // A number is never a valid duration. For `duration(-1)`, the positions differ as for every
        // negative number.
        || answer.v.contains("invalid duration argument") && !answer.expr.contains("duration('")
        // The value of `variables` itself cannot be read here.
        || answer.expr.contains("variables")
}
