//! Tests that regular expressions have the syntax and the meaning of RE2 in Go.

use crate::regex::pattern::LiteralPatterns;

#[test]
fn patterns_have_the_meaning_of_re2() {
    for (text, pattern, expected) in [
        ("é", r"^\w$", false),
        ("٣", r"^\d$", false),
        ("\u{a0}", r"^\s$", false),
        ("\u{b}", r"^\s$", false),
        ("a-b", "[a&&b]", true),
        ("&", "^[a&&b]$", true),
        ("-", "^[+--]$", true),
        ("[x]", r"^[\[a]x\]$", true),
        ("[]", "^[a[][]]$", true),
        ("]", "^[]a]$", true),
        ("-", "^[a-]$", true),
        ("-", r"^[\w-]$", true),
        ("é", r"^[^\w]$", true),
        ("a.b", r"^\Qa.b\E$", true),
        ("axb", r"^\Qa.b\E$", false),
        ("a{", "^a{$", true),
        ("a{,2}", "^a{,2}$", true),
        ("aa", "^a{2}$", true),
        ("A", r"^\101$", true),
        ("a<b", r"^a\<b$", true),
        ("a", r"^\<a$", false),
        ("A", r"^\x41\x{42}?$", true),
        ("é x", r"é\b x", false),
        ("ab", r"a\Bb", true),
        ("K", "^(?i)k$", true),
        ("a\nb", "a.b", false),
        ("a\nb", "(?s:a.b)", true),
        ("b\na", "(?m)^a$", true),
        ("b\na", "^a$", false),
        ("xay", r"(?P<n>a)", true),
        ("xay", r"(?<n>a)", true),
        ("λ", r"^\p{Greek}$", true),
        ("λ", r"^\pL$", true),
        ("λ", r"^[[:alpha:]]$", false),
        ("1", r"^[^[:alpha:]]$", true),
        ("aab", "^a+?ab$", true),
        ("#", "^(?U)#$", true),
    ] {
        let matched = LiteralPatterns::default()
            .get(pattern)
            .map(|pattern| pattern.matches(text));
        assert_eq!(matched, Ok(expected), "{text:?} against {pattern}");
    }
}

#[test]
fn patterns_that_re2_rejects_are_rejected() {
    for pattern in [
        "(",
        ")",
        "[",
        "a)",
        "[b-a]",
        r"(a)\1",
        r"\8",
        r"\u0041",
        "a**",
        "*",
        "a{1001}",
        "a{2,1}",
        "(a{100}){100}",
        "(?x)a",
        "(?=a)",
        "(?!a)",
        "(?<=a)",
        r"\Z",
        r"\",
        r"\x{110000}",
        r"\x4",
        "[[:nope:]]",
        r"\p{Nope}",
        "(?P<>a)",
        "(?",
        "(?i",
        "a{2}{3}",
        r"[\b]",
    ] {
        assert!(
            LiteralPatterns::default().get(pattern).is_err(),
            "{pattern}"
        );
    }
}
