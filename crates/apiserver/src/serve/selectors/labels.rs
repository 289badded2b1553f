//! Label selectors, such as `a=b,c!=d,e in (f,g),h notin (i),j,!k,l>3`. This file compares label
//! selectors with the labels of objects. The file `parser.rs` parses label selectors.

#[cfg(any(test, feature = "testing"))]
mod fuzzing;
mod parser;
mod syntax;

use crate::auth;
use crate::serve::error_status::ErrorStatus;
use std::collections::BTreeSet;

#[cfg(any(test, feature = "testing"))]
pub use self::fuzzing::check;

/// One requirement of a label selector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelRequirement {
    key: String,
    test: Test,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Test {
    In(BTreeSet<String>),
    /// An object without the label also fulfils this test.
    NotIn(BTreeSet<String>),
    Exists,
    DoesNotExist,
    Greater(i64),
    Less(i64),
}

impl Test {
    /// Returns true if the value of the label fulfils the test. `value` is None if the object does
    /// not have the label.
    fn matches(&self, value: Option<&str>) -> bool {
        let number = || value?.parse::<i64>().ok();
        match self {
            Test::In(values) => value.is_some_and(|value| values.contains(value)),
            Test::NotIn(values) => !value.is_some_and(|value| values.contains(value)),
            Test::Exists => value.is_some(),
            Test::DoesNotExist => value.is_none(),
            Test::Greater(than) => number().is_some_and(|number| number > *than),
            Test::Less(than) => number().is_some_and(|number| number < *than),
        }
    }
}

/// Returns true if an object fulfils all `requirements`. `value` returns the value of the object's
/// label with the given key, or None if the object does not have the label.
pub fn all_match<'a>(
    requirements: &[LabelRequirement],
    value: impl Fn(&str) -> Option<&'a str>,
) -> bool {
    let mut all = requirements.iter();
    all.all(|it| it.test.matches(value(&it.key)))
}

impl LabelRequirement {
    /// Returns the requirement in the form of a `SubjectAccessReview`. Returns None for comparisons
    /// (`>` and `<`), because a review does not support them.
    pub fn to_review_requirement(&self) -> Option<auth::SelectorRequirement> {
        let (operator, values) = match &self.test {
            Test::In(values) => ("In", values.iter().cloned().collect()),
            Test::NotIn(values) => ("NotIn", values.iter().cloned().collect()),
            Test::Exists => ("Exists", Vec::new()),
            Test::DoesNotExist => ("DoesNotExist", Vec::new()),
            Test::Greater(_) | Test::Less(_) => return None,
        };
        Some(auth::SelectorRequirement {
            key: self.key.clone(),
            operator,
            values,
        })
    }
}

/// Returns the number of values in all requirements: `a in (b,c),d=e` has three. The number in a
/// comparison such as `l>3` does not count.
pub fn count_values(requirements: &[LabelRequirement]) -> usize {
    let values = requirements.iter().map(|it| match &it.test {
        Test::In(values) | Test::NotIn(values) => values.len(),
        _ => 0,
    });
    values.sum()
}

/// Returns a 400 if a requirement needs a label that no object has, according to `check`. Without the
/// error, the list would be empty, and the user would not notice the mistake. A field selector with an
/// unknown field is refused, too.
pub fn check_keys(
    requirements: &[LabelRequirement],
    check: fn(&str) -> Result<(), String>,
) -> Result<(), ErrorStatus> {
    let mut needing = requirements.iter().filter(|it| !it.test.matches(None));
    needing
        .try_for_each(|it| check(&it.key))
        .map_err(ErrorStatus::bad_request)
}

/// Parses a label selector. Returns a 400 if the selector is not valid. As in the kube-apiserver,
/// the requirements are sorted by their keys.
pub fn parse(text: &str) -> Result<Vec<LabelRequirement>, ErrorStatus> {
    let parsed = parser::Parser::new(text).parse_selector();
    let mut requirements = parsed.map_err(ErrorStatus::bad_request)?;
    requirements.sort_by(|a, b| a.key.cmp(&b.key));
    Ok(requirements)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LABELS: [(&str, &str); 3] = [("a", "1"), ("b.c/d", "x"), ("e", "")];

    fn value(key: &str) -> Option<&'static str> {
        let mut labels = LABELS.into_iter();
        labels.find_map(|(own, value)| (own == key).then_some(value))
    }

    fn matches(selector: &str) -> bool {
        all_match(&parse(selector).unwrap(), value)
    }

    #[test]
    fn every_operator_compares_as_kubernetes_does() {
        for selector in [
            "",
            "a",
            "a=1",
            "a==1",
            "a = 1",
            "a!=2",
            "z!=1",
            "a in (0,1)",
            "a notin (2)",
            "z notin (1)",
            "!z",
            "a>0",
            "a<2",
            "a\t<\r\n2",
            "b.c/d=x,a=1",
            "z!=1,b.c/d,a<2,!y,a>0,a!=3,a,e notin (f)",
            "e=",
            "e",
            "e in (,x)",
            "a in (1 , 2)",
        ] {
            assert!(matches(selector), "{selector}");
        }
        for selector in [
            "z",
            "a=2",
            "a!=1",
            "a in (2)",
            "a notin (1)",
            "!a",
            "a>1",
            "a<1",
            "z>0",
            "b.c/d>0",
            "a=1,z",
            "a,a=1,a!=1",
            "b.c/d=x,a=1,y,a",
            "a=",
        ] {
            assert!(!matches(selector), "{selector}");
        }
    }

    #[test]
    fn invalid_label_selectors_are_rejected() {
        for (selector, why) in [
            (
                ",",
                "found ',', expected: !, identifier, or 'end of string'",
            ),
            ("a,", "found '', expected: identifier after ','"),
            ("a=b c", "found 'c', expected: ',' or 'end of string'"),
            (
                "!,",
                "unable to parse requirement: found ',', expected: identifier",
            ),
            (
                "a b",
                "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt",
            ),
            (
                "a in 1",
                "unable to parse requirement: found '1' expected: '('",
            ),
            (
                "a in (1",
                "unable to parse requirement: found '', expected: ',' or ')'",
            ),
            (
                "a==(",
                "unable to parse requirement: found '(', expected: identifier",
            ),
        ] {
            assert_eq!(parse(selector).unwrap_err().to_string(), why);
        }
        for selector in [
            "-a",
            "a=b/c",
            "a>x",
            "a<-1",
            "a>",
            "a in (b c)",
            "é=1",
            "a\u{b}",
            "a=b\u{a0}",
        ] {
            assert!(parse(selector).is_err(), "{selector}");
        }
    }

    #[test]
    fn selectors_are_parsed_as_in_kubernetes() {
        crate::serve::selectors::tests::compare("labels", |text| {
            let requirements = parse(text).map_err(|failure| failure.to_string())?;
            Ok(fuzzing::Spelling::Sets.terms(&requirements))
        });
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text in "[a-c=!,<>() \\\\innotéx/.-]{0,24}") {
            all_match(&parse(&text).unwrap_or_default(), value);
        }
    }
}
