//! The overloads of each function and operator, except for `&&` and `||`. An overload is one
//! accepted combination of argument types, with the type of the result. The expressions of a
//! `ValidatingAdmissionPolicy` in Kubernetes 1.36 have the same overloads.

use super::named_format::NamedFormat as NamedFormatValue;

/// A type in the declaration of an overload. `A` and `B` are type parameters, which stand for any
/// type. Two arguments with the type `A` have the same type.
#[derive(Clone, Copy)]
pub(super) enum ParameterType {
    A,
    B,
    Dyn,
    Bool,
    Int,
    Uint,
    Double,
    String,
    Bytes,
    Duration,
    Timestamp,
    Quantity,
    Url,
    Ip,
    Cidr,
    Semver,
    NamedFormat,
    Type(&'static ParameterType),
    List(&'static ParameterType),
    Map(&'static ParameterType, &'static ParameterType),
    Optional(&'static ParameterType),
}

/// The types of the arguments and of the result of one variant of a function.
pub(super) struct Overload {
    /// True for `receiver.name(..)`, and false for `name(..)`.
    pub member: bool,
    /// The types of the arguments. The receiver of a member call is the first argument.
    pub args: &'static [ParameterType],
    pub result: ParameterType,
}

/// Declares an overload of the form `name(..)`.
const fn f(args: &'static [ParameterType], result: ParameterType) -> Overload {
    Overload {
        member: false,
        args,
        result,
    }
}

/// Declares an overload of the form `receiver.name(..)`.
const fn m(args: &'static [ParameterType], result: ParameterType) -> Overload {
    Overload {
        member: true,
        args,
        result,
    }
}

use ParameterType::{
    A, B, Bool, Bytes, Cidr, Double, Duration, Dyn, Int, Ip, List, Map, NamedFormat, Optional,
    Quantity, Semver, String as Str, Timestamp, Type, Uint, Url,
};

const LIST_A: ParameterType = List(&A);
const LIST_STRING: ParameterType = List(&Str);
const MAP_A_B: ParameterType = Map(&A, &B);
const OPTIONAL_A: ParameterType = Optional(&A);

static ADD: [Overload; 9] = [
    f(&[Bytes, Bytes], Bytes),
    f(&[Double, Double], Double),
    f(&[Duration, Duration], Duration),
    f(&[Duration, Timestamp], Timestamp),
    f(&[Timestamp, Duration], Timestamp),
    f(&[Int, Int], Int),
    f(&[LIST_A, LIST_A], LIST_A),
    f(&[Str, Str], Str),
    f(&[Uint, Uint], Uint),
];
static SUBTRACT: [Overload; 6] = [
    f(&[Double, Double], Double),
    f(&[Duration, Duration], Duration),
    f(&[Int, Int], Int),
    f(&[Timestamp, Duration], Timestamp),
    f(&[Timestamp, Timestamp], Duration),
    f(&[Uint, Uint], Uint),
];
static MULTIPLY: [Overload; 3] = [
    f(&[Double, Double], Double),
    f(&[Int, Int], Int),
    f(&[Uint, Uint], Uint),
];
static MODULO: [Overload; 2] = [f(&[Int, Int], Int), f(&[Uint, Uint], Uint)];
static NEGATE: [Overload; 2] = [f(&[Double], Double), f(&[Int], Int)];
static NOT: [Overload; 1] = [f(&[Bool], Bool)];
static EQUAL: [Overload; 1] = [f(&[A, A], Bool)];
static CONDITION: [Overload; 1] = [f(&[Bool, A, A], A)];
static ORDER: [Overload; 14] = [
    f(&[Bool, Bool], Bool),
    f(&[Int, Int], Bool),
    f(&[Uint, Uint], Bool),
    f(&[Double, Double], Bool),
    f(&[Str, Str], Bool),
    f(&[Bytes, Bytes], Bool),
    f(&[Timestamp, Timestamp], Bool),
    f(&[Duration, Duration], Bool),
    f(&[Int, Uint], Bool),
    f(&[Int, Double], Bool),
    f(&[Uint, Int], Bool),
    f(&[Uint, Double], Bool),
    f(&[Double, Int], Bool),
    f(&[Double, Uint], Bool),
];
// Indexing an optional list or map returns an optional value.
static INDEX: [Overload; 4] = [
    f(&[LIST_A, Int], A),
    f(&[MAP_A_B, A], B),
    f(&[Optional(&LIST_A), Int], OPTIONAL_A),
    f(&[Optional(&MAP_A_B), A], Optional(&B)),
];
static OPTIONAL_INDEX: [Overload; 4] = [
    f(&[LIST_A, Int], OPTIONAL_A),
    f(&[Optional(&LIST_A), Int], OPTIONAL_A),
    f(&[MAP_A_B, A], Optional(&B)),
    f(&[Optional(&MAP_A_B), A], Optional(&B)),
];
static IN: [Overload; 2] = [f(&[A, LIST_A], Bool), f(&[A, MAP_A_B], Bool)];
static SIZE: [Overload; 8] = [
    f(&[Bytes], Int),
    m(&[Bytes], Int),
    f(&[LIST_A], Int),
    m(&[LIST_A], Int),
    f(&[MAP_A_B], Int),
    m(&[MAP_A_B], Int),
    f(&[Str], Int),
    m(&[Str], Int),
];
static TYPE: [Overload; 1] = [f(&[A], Type(&A))];
static DYN: [Overload; 1] = [f(&[A], Dyn)];
static TO_BOOL: [Overload; 2] = [f(&[Bool], Bool), f(&[Str], Bool)];
static TO_BYTES: [Overload; 2] = [f(&[Bytes], Bytes), f(&[Str], Bytes)];
static TO_DOUBLE: [Overload; 4] = [
    f(&[Double], Double),
    f(&[Int], Double),
    f(&[Str], Double),
    f(&[Uint], Double),
];
// Kubernetes declares the conversion of an integer to a duration, but this conversion always fails.
static TO_DURATION: [Overload; 3] = [
    f(&[Duration], Duration),
    f(&[Int], Duration),
    f(&[Str], Duration),
];
static TO_INT: [Overload; 6] = [
    f(&[Int], Int),
    f(&[Double], Int),
    f(&[Duration], Int),
    f(&[Str], Int),
    f(&[Timestamp], Int),
    f(&[Uint], Int),
];
static TO_STRING: [Overload; 10] = [
    f(&[Str], Str),
    f(&[Bool], Str),
    f(&[Bytes], Str),
    f(&[Double], Str),
    f(&[Duration], Str),
    f(&[Int], Str),
    f(&[Timestamp], Str),
    f(&[Uint], Str),
    f(&[Ip], Str),
    f(&[Cidr], Str),
];
static TO_TIMESTAMP: [Overload; 3] = [
    f(&[Timestamp], Timestamp),
    f(&[Int], Timestamp),
    f(&[Str], Timestamp),
];
static TO_UINT: [Overload; 4] = [
    f(&[Uint], Uint),
    f(&[Double], Uint),
    f(&[Int], Uint),
    f(&[Str], Uint),
];
static PREDICATE: [Overload; 1] = [m(&[Str, Str], Bool)];
static MATCHES: [Overload; 2] = [f(&[Str, Str], Bool), m(&[Str, Str], Bool)];
static GET_DATE: [Overload; 2] = [m(&[Timestamp], Int), m(&[Timestamp, Str], Int)];
static GET_TIME: [Overload; 3] = [
    m(&[Timestamp], Int),
    m(&[Timestamp, Str], Int),
    m(&[Duration], Int),
];

static CHAR_AT: [Overload; 1] = [m(&[Str, Int], Str)];
static FORMAT: [Overload; 1] = [m(&[Str, List(&Dyn)], Str)];
static INDEX_OF: [Overload; 3] = [
    m(&[Str, Str], Int),
    m(&[Str, Str, Int], Int),
    m(&[LIST_A, A], Int),
];
static JOIN: [Overload; 2] = [m(&[LIST_STRING], Str), m(&[LIST_STRING, Str], Str)];
static REPLACE: [Overload; 2] = [m(&[Str, Str, Str], Str), m(&[Str, Str, Str, Int], Str)];
static SPLIT: [Overload; 2] = [
    m(&[Str, Str], LIST_STRING),
    m(&[Str, Str, Int], LIST_STRING),
];
static SUBSTRING: [Overload; 2] = [m(&[Str, Int], Str), m(&[Str, Int, Int], Str)];
static OF_STRING: [Overload; 1] = [m(&[Str], Str)];
static QUOTE: [Overload; 1] = [f(&[Str], Str)];
static QUANTITY: [Overload; 1] = [f(&[Str], Quantity)];
static IS_QUANTITY: [Overload; 1] = [f(&[Str], Bool)];
// Kubernetes implements `sign(quantity)`, although its documentation describes `quantity.sign()`.
static SIGN: [Overload; 1] = [f(&[Quantity], Int)];
static IS_INTEGER: [Overload; 1] = [m(&[Quantity], Bool)];
static AS_INTEGER: [Overload; 1] = [m(&[Quantity], Int)];
static AS_FLOAT: [Overload; 1] = [m(&[Quantity], Double)];
static ADD_QUANTITY: [Overload; 2] = [
    m(&[Quantity, Quantity], Quantity),
    m(&[Quantity, Int], Quantity),
];
static COMPARE: [Overload; 2] = [m(&[Quantity, Quantity], Int), m(&[Semver, Semver], Int)];
static IS_BEYOND: [Overload; 2] = [m(&[Quantity, Quantity], Bool), m(&[Semver, Semver], Bool)];

static SUM: [Overload; 4] = [
    m(&[List(&Int)], Int),
    m(&[List(&Uint)], Uint),
    m(&[List(&Double)], Double),
    m(&[List(&Duration)], Duration),
];
/// `min` and `max`.
static EXTREME: [Overload; 8] = [
    m(&[List(&Int)], Int),
    m(&[List(&Uint)], Uint),
    m(&[List(&Double)], Double),
    m(&[List(&Bool)], Bool),
    m(&[List(&Duration)], Duration),
    m(&[List(&Timestamp)], Timestamp),
    m(&[List(&Str)], Str),
    m(&[List(&Bytes)], Bytes),
];
static IS_SORTED: [Overload; 8] = [
    m(&[List(&Int)], Bool),
    m(&[List(&Uint)], Bool),
    m(&[List(&Double)], Bool),
    m(&[List(&Bool)], Bool),
    m(&[List(&Duration)], Bool),
    m(&[List(&Timestamp)], Bool),
    m(&[List(&Str)], Bool),
    m(&[List(&Bytes)], Bool),
];
static SORT: [Overload; 8] = [
    m(&[List(&Int)], List(&Int)),
    m(&[List(&Uint)], List(&Uint)),
    m(&[List(&Double)], List(&Double)),
    m(&[List(&Bool)], List(&Bool)),
    m(&[List(&Duration)], List(&Duration)),
    m(&[List(&Timestamp)], List(&Timestamp)),
    m(&[List(&Str)], List(&Str)),
    m(&[List(&Bytes)], List(&Bytes)),
];
/// The internal function that cel-go calls for the macro `sortBy`. Its arguments are the list and
/// the list of the keys. Error messages contain the name of this function.
static SORT_BY_KEYS: [Overload; 8] = [
    m(&[LIST_A, List(&Int)], LIST_A),
    m(&[LIST_A, List(&Uint)], LIST_A),
    m(&[LIST_A, List(&Double)], LIST_A),
    m(&[LIST_A, List(&Bool)], LIST_A),
    m(&[LIST_A, List(&Duration)], LIST_A),
    m(&[LIST_A, List(&Timestamp)], LIST_A),
    m(&[LIST_A, List(&Str)], LIST_A),
    m(&[LIST_A, List(&Bytes)], LIST_A),
];
/// The internal function that cel-go calls for the macros `transformMap` and `transformMapEntry`.
static MAP_INSERT: [Overload; 2] = [
    f(&[MAP_A_B, A, B], MAP_A_B),
    f(&[MAP_A_B, MAP_A_B], MAP_A_B),
];
static SLICE: [Overload; 1] = [m(&[LIST_A, Int, Int], LIST_A)];
static FLATTEN: [Overload; 2] = [
    m(&[List(&LIST_A)], LIST_A),
    m(&[List(&Dyn), Int], List(&Dyn)),
];
static RANGE: [Overload; 1] = [f(&[Int], List(&Int))];
/// `reverse` and `distinct`.
static SAME_LIST: [Overload; 1] = [m(&[LIST_A], LIST_A)];
/// `first` and `last`.
static LIST_END: [Overload; 1] = [m(&[LIST_A], OPTIONAL_A)];
static FIND: [Overload; 1] = [m(&[Str, Str], Str)];
static FIND_ALL: [Overload; 2] = [
    m(&[Str, Str], LIST_STRING),
    m(&[Str, Str, Int], LIST_STRING),
];
static SETS: [Overload; 1] = [f(&[LIST_A, LIST_A], Bool)];

static OPTIONAL_OF: [Overload; 1] = [f(&[A], OPTIONAL_A)];
static OPTIONAL_NONE: [Overload; 1] = [f(&[], OPTIONAL_A)];
static OPTIONAL_UNWRAP: [Overload; 1] = [f(&[List(&OPTIONAL_A)], LIST_A)];
static UNWRAP_OPTIONALS: [Overload; 1] = [m(&[List(&OPTIONAL_A)], LIST_A)];
static OPTIONAL_VALUE: [Overload; 1] = [m(&[OPTIONAL_A], A)];
static HAS_VALUE: [Overload; 1] = [m(&[OPTIONAL_A], Bool)];
static OPTIONAL_OR: [Overload; 1] = [m(&[OPTIONAL_A, OPTIONAL_A], OPTIONAL_A)];
static OR_VALUE: [Overload; 1] = [m(&[OPTIONAL_A, A], A)];

static URL: [Overload; 1] = [f(&[Str], Url)];
static URL_TEXT: [Overload; 1] = [m(&[Url], Str)];
static URL_QUERY: [Overload; 1] = [m(&[Url], Map(&Str, &LIST_STRING))];
/// `isURL`, `isIP`, `isCIDR` and `ip.isCanonical`.
static IS_TEXT_OF: [Overload; 1] = [f(&[Str], Bool)];
static IP: [Overload; 2] = [f(&[Str], Ip), m(&[Cidr], Ip)];
static IP_FAMILY: [Overload; 1] = [m(&[Ip], Int)];
static IS_IP_KIND: [Overload; 1] = [m(&[Ip], Bool)];
static CIDR: [Overload; 1] = [f(&[Str], Cidr)];
static CONTAINS_IP: [Overload; 2] = [m(&[Cidr, Ip], Bool), m(&[Cidr, Str], Bool)];
static CONTAINS_CIDR: [Overload; 2] = [m(&[Cidr, Cidr], Bool), m(&[Cidr, Str], Bool)];
static MASKED: [Overload; 1] = [m(&[Cidr], Cidr)];
static PREFIX_LENGTH: [Overload; 1] = [m(&[Cidr], Int)];
static SEMVER: [Overload; 2] = [f(&[Str], Semver), f(&[Str, Bool], Semver)];
static IS_SEMVER: [Overload; 2] = [f(&[Str], Bool), f(&[Str, Bool], Bool)];
static SEMVER_PART: [Overload; 1] = [m(&[Semver], Int)];
static NAMED: [Overload; 1] = [f(&[Str], Optional(&NamedFormat))];
static CONSTANT_FORMAT: [Overload; 1] = [f(&[], NamedFormat)];
static VALIDATE: [Overload; 1] = [m(&[NamedFormat, Str], Optional(&LIST_STRING))];

/// Returns the overloads of a function or operator, or an empty slice for an unknown name. An
/// operator has the name that the parser gives to it, such as `_+_`.
pub(super) fn overloads(name: &str) -> &'static [Overload] {
    match name {
        "_+_" => &ADD,
        "_-_" => &SUBTRACT,
        "_*_" | "_/_" => &MULTIPLY,
        "_%_" => &MODULO,
        "-_" => &NEGATE,
        "!_" => &NOT,
        "_==_" | "_!=_" => &EQUAL,
        "_?_:_" => &CONDITION,
        "_<_" | "_<=_" | "_>_" | "_>=_" => &ORDER,
        "_[_]" => &INDEX,
        "_[?_]" => &OPTIONAL_INDEX,
        "@in" => &IN,
        "size" => &SIZE,
        "type" => &TYPE,
        "dyn" => &DYN,
        "bool" => &TO_BOOL,
        "bytes" => &TO_BYTES,
        "double" => &TO_DOUBLE,
        "duration" => &TO_DURATION,
        "int" => &TO_INT,
        "string" => &TO_STRING,
        "timestamp" => &TO_TIMESTAMP,
        "uint" => &TO_UINT,
        "contains" | "startsWith" | "endsWith" => &PREDICATE,
        "matches" => &MATCHES,
        "getFullYear" | "getMonth" | "getDayOfYear" | "getDayOfMonth" | "getDate"
        | "getDayOfWeek" => &GET_DATE,
        "getHours" | "getMinutes" | "getSeconds" | "getMilliseconds" => &GET_TIME,
        "charAt" => &CHAR_AT,
        "format" => &FORMAT,
        "indexOf" | "lastIndexOf" => &INDEX_OF,
        "join" => &JOIN,
        "replace" => &REPLACE,
        "split" => &SPLIT,
        "substring" => &SUBSTRING,
        "lowerAscii" | "trim" | "upperAscii" => &OF_STRING,
        "strings.quote" => &QUOTE,
        "quantity" => &QUANTITY,
        "isQuantity" => &IS_QUANTITY,
        "sign" => &SIGN,
        "isInteger" => &IS_INTEGER,
        "asInteger" => &AS_INTEGER,
        "asApproximateFloat" => &AS_FLOAT,
        "add" | "sub" => &ADD_QUANTITY,
        "compareTo" => &COMPARE,
        "isGreaterThan" | "isLessThan" => &IS_BEYOND,
        "sum" => &SUM,
        "min" | "max" => &EXTREME,
        "isSorted" => &IS_SORTED,
        "sort" => &SORT,
        "@sortByAssociatedKeys" => &SORT_BY_KEYS,
        "cel.@mapInsert" => &MAP_INSERT,
        "slice" => &SLICE,
        "flatten" => &FLATTEN,
        "lists.range" => &RANGE,
        "reverse" | "distinct" => &SAME_LIST,
        "first" | "last" => &LIST_END,
        "find" => &FIND,
        "findAll" => &FIND_ALL,
        "sets.contains" | "sets.equivalent" | "sets.intersects" => &SETS,
        "optional.of" | "optional.ofNonZeroValue" => &OPTIONAL_OF,
        "optional.none" => &OPTIONAL_NONE,
        "optional.unwrap" => &OPTIONAL_UNWRAP,
        "unwrapOpt" => &UNWRAP_OPTIONALS,
        "value" => &OPTIONAL_VALUE,
        "hasValue" => &HAS_VALUE,
        "or" => &OPTIONAL_OR,
        "orValue" => &OR_VALUE,
        "url" => &URL,
        "getScheme" | "getHost" | "getHostname" | "getPort" | "getEscapedPath" => &URL_TEXT,
        "getQuery" => &URL_QUERY,
        "isURL" | "isIP" | "isCIDR" | "ip.isCanonical" => &IS_TEXT_OF,
        "ip" => &IP,
        "family" => &IP_FAMILY,
        "isUnspecified"
        | "isLoopback"
        | "isLinkLocalMulticast"
        | "isLinkLocalUnicast"
        | "isGlobalUnicast" => &IS_IP_KIND,
        "cidr" => &CIDR,
        "containsIP" => &CONTAINS_IP,
        "containsCIDR" => &CONTAINS_CIDR,
        "masked" => &MASKED,
        "prefixLength" => &PREFIX_LENGTH,
        "semver" => &SEMVER,
        "isSemver" => &IS_SEMVER,
        "major" | "minor" | "patch" => &SEMVER_PART,
        "format.named" => &NAMED,
        "validate" => &VALIDATE,
        _ if constant_format(name).is_some() => &CONSTANT_FORMAT,
        _ => &[],
    }
}

/// Returns the format if `name` is the name of a function such as `format.dns1123Label`.
pub(super) fn constant_format(name: &str) -> Option<NamedFormatValue> {
    name.strip_prefix("format.")
        .and_then(NamedFormatValue::named)
}
