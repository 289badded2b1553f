//! The literals in random expressions. Many of them are edge cases.

/// Returns the texts in one of the constants below.
pub(super) fn texts(list: &'static str) -> Vec<&'static str> {
    list.split(" ;; ").collect()
}

pub(super) const INTS: &str = "\
    0 ;; 1 ;; -1 ;; 2 ;; 3 ;; 4 ;; 5 ;; 7 ;; 10 ;; 12 ;; 31 ;; 63 ;; 100 ;; -3 ;; \
    9223372036854775807 ;; -9223372036854775808 ;; 1709210096 ;; 0x1F";
pub(super) const SMALL_INTS: &str = "\
    0 ;; 1 ;; 2 ;; 3 ;; 4 ;; 5 ;; 6 ;; 13 ;; -1 ;; -9223372036854775808";
pub(super) const UINTS: &str = "\
    0u ;; 1u ;; 2u ;; 3u ;; 10u ;; 18446744073709551615u ;; 9223372036854775808u";
pub(super) const DOUBLES: &str = "\
    0.0 ;; -0.0 ;; 1.0 ;; 2.0 ;; 1.5 ;; -2.5 ;; 0.1 ;; 3.7 ;; 100.0 ;; 1e300 ;; 1e-300 ;; \
    1e15 ;; 9007199254740993.0 ;; 9223372036854775807.0 ;; 1.7976931348623157e308 ;; \
    double('NaN') ;; double('-Infinity')";
pub(super) const STRINGS: &str = "\
    '' ;; 'a' ;; 'b' ;; 'abc' ;; 'aXbXc' ;; 'Hello, Wörld' ;; 'é😀' ;; 'e\\u0301' ;; \
    ' a\\t' ;; 'a,b,,c' ;; ',' ;; '1' ;; '-1' ;; '1.5' ;; 'true' ;; '1Gi' ;; '1h' ;; \
    'a\\nb' ;; '\"q\" \\\\ \\'' ;; '%s' ;; 'aaa' ;; 'ab' ;; '2024-02-29T12:00:00Z' ;; \
    'https://example.com/p?q=1' ;; '10.0.0.1' ;; '10.0.0.0/8' ;; '1.2.3' ;; 'my-name' ;; \
    '\\u0000' ;; '\u{2028}<&>' ;; r'\\d' ;; 'ÄSS' ;; 'l' ;; 'x'";
pub(super) const BYTES: &str = "\
    b'' ;; b'a' ;; b'abc' ;; b'\\xff' ;; b'é' ;; b'\\x00a'";
pub(super) const DURATIONS: &str = "\
    1h ;; 90s ;; -5m ;; 0s ;; 1.5s ;; 1ns ;; 1h30m15.25s ;; -0.5ms ;; \
    2562047h47m16.854775807s ;; 24h";
pub(super) const TIMES: &str = "\
    2024-02-29T12:00:00Z ;; 2024-12-31T23:59:59.999999999Z ;; 1970-01-01T00:00:00Z ;; \
    0001-01-01T00:00:00Z ;; 9999-12-31T23:59:59Z ;; 2026-03-01T01:00:15.25+01:30 ;; \
    2024-03-31T01:30:00Z ;; 2000-01-01T00:00:00-23:59 ;; 1969-12-31T23:59:59.5Z";
pub(super) const ZONES: &str = "\
    UTC ;; Europe/Berlin ;; America/New_York ;; +01:00 ;; -02:30 ;; 02:00 ;;  ;; Local ;; \
    Mars/X ;; Asia/Kathmandu";
pub(super) const QUANTITIES: &str = "\
    0 ;; 1 ;; -1 ;; 1.5 ;; 1Gi ;; 1.5Gi ;; 500m ;; 1k ;; 1e3 ;; 100n ;; -250m ;; \
    9223372036854775807 ;; 0.5u ;; 1Ei ;; 1E ;; 1e-3 ;; +2Mi";
pub(super) const URLS: &str = "\
    https://example.com ;; https://user:pw@example.com:8080/a/b?x=1&y=2&x=3 ;; /path?q ;; \
    http://[::1]:80/ ;; mailto:a@b ;; https://example.com/a%20b?c=%26&d=+ ;; //host/p ;; \
    http://h:99999/ ;; http://a b/ ;; HTTPS://EXAMPLE.com/ ;; https://h?a;b ;; \
    https://h/#f ;;  ;; x ;; https://h?=&&k ;; file:///etc";
pub(super) const IPS: &str = "\
    10.0.0.1 ;; 127.0.0.1 ;; 0.0.0.0 ;; :: ;; ::1 ;; fe80::1 ;; ff02::1 ;; 2001:db8::1 ;; \
    224.0.0.1 ;; 169.254.1.1 ;; 255.255.255.255 ;; ::ffff:1.2.3.4 ;; \
    2001:DB8:0:0:0:0:0:1 ;; 1.2.3";
pub(super) const CIDRS: &str = "\
    10.0.0.0/8 ;; 10.1.2.3/8 ;; 0.0.0.0/0 ;; ::/0 ;; 2001:db8::/32 ;; 192.168.1.0/32 ;; \
    fe80::1/64 ;; 10.0.0.0/33 ;; 1.2.3.4 ;; ::1/128";
pub(super) const SEMVERS: &str = "\
    1.2.3 ;; 0.0.0 ;; 1.2.3-rc.1+build.5 ;; 1.2.3-rc.10 ;; 1.2.3-1 ;; v1.20 ;; 1 ;; 1.2 ;; \
    01.2.3 ;; 1.2.3+b ;; 1.2.3- ;; 18446744073709551615.0.0 ;; 1.0.0-a.b-c ;; 1.2.3.4";
pub(super) const FORMATS: &str = "\
    dns1123Label ;; dns1123Subdomain ;; dns1035Label ;; qualifiedName ;; labelValue ;; \
    uri ;; uuid ;; byte ;; date ;; datetime ;; dns1123LabelPrefix ;; \
    dns1123SubdomainPrefix ;; dns1035LabelPrefix";
pub(super) const FORMAT_TEXTS: &str = "\
    my-name ;; My_Name ;; a.b.c ;; -a ;; a- ;; 1a ;; example.com/name ;; a/b/c ;;  ;; \
    aGVsbG8= ;; aGVsbG8 ;; 2024-02-29 ;; 2023-02-29 ;; 2024-02-29T12:00:00Z ;; \
    https://example.com ;; not a uri ;; 123e4567-e89b-12d3-a456-426614174000 ;; é";
pub(super) const PATTERNS: &str = "\
    a ;;  ;; ^[a-c]+$ ;; [0-9]+ ;; (a)(b)? ;; .* ;; b|c ;; \\\\d ;; \\\\s+ ;; ^ ;; $ ;; \
    x* ;; (?i)A ;; é ;; . ;; [^,]* ;; a{2} ;; \\\\bl ;; ( ;; (?P<n>o)";
pub(super) const VERBS: &str = "\
    %s ;; %d ;; %f ;; %.2f ;; %e ;; %.0e ;; %x ;; %X ;; %b ;; %o ;; %.1f ;; a%% ;; é ;; \
    %.20f ;; %.3e";
