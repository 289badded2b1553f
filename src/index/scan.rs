//! One pass over the JSON of an object: is it well formed, and where do the values lie
//! that are wanted later. Enters: text and a layout. Leaves: spans, or what is wrong.
//!
//! Strict as RFC 8259, tolerant of whitespace. Names of members are compared as they
//! are written: an escape in one, which no encoder needs for the names that Kubernetes
//! uses, hides the member.

use super::Layout;

#[cfg(test)]
mod tests;

/// A part of a text: from the first byte to the one after the last. Empty where there
/// is nothing, since no JSON value is empty. u32, since there are many of them and the
/// texts are short.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Span {
    pub start: u32,
    pub end: u32,
}

impl Span {
    pub(super) fn is_empty(self) -> bool {
        self.start == self.end
    }

    /// The part of `text`, which must be the one that the span was found in.
    pub(super) fn of(self, text: &[u8]) -> &[u8] {
        &text[self.start as usize..self.end as usize]
    }
}

/// Why a text is not that of an object to index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} at byte {at}")]
pub struct Malformed {
    /// What is wrong.
    pub what: &'static str,
    /// Where, in bytes from the start.
    pub at: usize,
}

/// How deep arrays and objects may nest: `serde_json`'s limit too. It bounds the stack.
const DEEPEST: usize = 128;

/// Paths that every entry has, after those of the layout.
const OWN: [&[&str]; 3] = [
    &["metadata"],
    &["metadata", "resourceVersion"],
    &["metadata", "labels"],
];

/// Where the values lie.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Spans {
    /// `metadata`: an object.
    pub metadata: Span,
    /// `metadata.resourceVersion`: a string, with its quotes; empty if there is none.
    pub version: Span,
    /// `metadata.labels`: an object; empty if there is none.
    pub labels: Span,
    /// The values at the paths of the layout, by number; empty if there is none.
    pub values: Box<[Span]>,
}

/// Finds the spans of the values in `text`.
pub(super) fn spans(text: &[u8], layout: &Layout) -> Result<Spans, Malformed> {
    if let Err(e) = std::str::from_utf8(text) {
        return Err(Malformed {
            what: "no UTF-8",
            at: e.valid_up_to(),
        });
    }
    if u32::try_from(text.len()).is_err() {
        return Err(Malformed {
            what: "4 GiB or more",
            at: 0,
        });
    }
    let own = layout.paths.len();
    let mut scanner = Scanner {
        text,
        at: 0,
        layout,
        found: vec![Span::default(); own + OWN.len()],
    };
    let all = (1 << (own + OWN.len())) - 1;
    scanner.space();
    scanner.value(all, 0)?;
    scanner.space();
    if scanner.at < text.len() {
        return scanner.fail("text after the object");
    }

    let mut values = scanner.found;
    let [metadata, version, labels] = [values[own], values[own + 1], values[own + 2]];
    values.truncate(own);
    let first = |span: Span| span.of(text).first().copied();
    let fail = |what, span: Span| {
        Err(Malformed {
            what,
            at: span.start as usize,
        })
    };
    if first(metadata) != Some(b'{') {
        return fail("no object metadata", metadata);
    }
    if !matches!(first(version), None | Some(b'"')) {
        return fail("a resourceVersion that is no string", version);
    }
    let labels = match first(labels) {
        Some(b'{') | None => labels,
        // As Kubernetes' own decoders take it.
        Some(b'n') => Span::default(),
        Some(_) => return fail("labels that are no object", labels),
    };
    Ok(Spans {
        metadata,
        version,
        labels,
        values: values.into_boxed_slice(),
    })
}

struct Scanner<'a> {
    text: &'a [u8],
    at: usize,
    layout: &'a Layout,
    found: Vec<Span>,
}

impl Scanner<'_> {
    fn fail<T>(&self, what: &'static str) -> Result<T, Malformed> {
        Err(Malformed { what, at: self.at })
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    /// Passes `byte` if it is next.
    fn take(&mut self, byte: u8) -> bool {
        let is = self.peek() == Some(byte);
        self.at += usize::from(is);
        is
    }

    fn path(&self, number: usize) -> &'static [&'static str] {
        let own = self.layout.paths.len();
        if number < own {
            self.layout.paths[number]
        } else {
            OWN[number - own]
        }
    }

    /// Passes one value. `live` has a bit for each path that leads to it or further;
    /// `depth` is how many values it lies in.
    fn value(&mut self, live: u64, depth: usize) -> Result<(), Malformed> {
        if depth > DEEPEST {
            return self.fail("a value too deep");
        }
        match self.peek() {
            Some(b'{') => self.object(live, depth),
            Some(b'[') => self.array(depth),
            Some(b'"') => self.string().map(drop),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => self.literal(b"true"),
            Some(b'f') => self.literal(b"false"),
            Some(b'n') => self.literal(b"null"),
            _ => self.fail("no value"),
        }
    }

    fn object(&mut self, live: u64, depth: usize) -> Result<(), Malformed> {
        self.at += 1;
        self.space();
        if self.take(b'}') {
            return Ok(());
        }
        loop {
            let name = self.string()?;
            self.space();
            if !self.take(b':') {
                return self.fail("no colon");
            }
            self.space();
            let into = self.matching(live, depth, name);
            let start = self.at;
            self.value(into, depth + 1)?;
            self.record(into, depth + 1, start)?;
            self.space();
            if self.take(b'}') {
                return Ok(());
            }
            if !self.take(b',') {
                return self.fail("no comma");
            }
            self.space();
        }
    }

    /// Those of the paths in `live` that go on with the member `name`. Only objects keep
    /// paths alive, so a path's element for this object is number `depth`.
    fn matching(&self, live: u64, depth: usize, name: Span) -> u64 {
        let name = name.of(self.text);
        bits(live)
            .filter(|&n| {
                self.path(n)
                    .get(depth)
                    .is_some_and(|part| part.as_bytes() == name)
            })
            .fold(0, |into, n| into | 1 << n)
    }

    /// Notes the value that began at `start` and ends here for the paths that end here.
    fn record(&mut self, live: u64, depth: usize, start: usize) -> Result<(), Malformed> {
        let span = self.span(start, self.at);
        for n in bits(live) {
            if self.path(n).len() != depth {
                continue;
            }
            if !self.found[n].is_empty() {
                // Readers differ in which of the two they take.
                return Err(Malformed {
                    what: "a member for the second time",
                    at: start,
                });
            }
            self.found[n] = span;
        }
        Ok(())
    }

    fn array(&mut self, depth: usize) -> Result<(), Malformed> {
        self.at += 1;
        self.space();
        if self.take(b']') {
            return Ok(());
        }
        loop {
            self.value(0, depth + 1)?;
            self.space();
            if self.take(b']') {
                return Ok(());
            }
            if !self.take(b',') {
                return self.fail("no comma");
            }
            self.space();
        }
    }

    /// Passes a string; the span is that between its quotes.
    fn string(&mut self) -> Result<Span, Malformed> {
        if !self.take(b'"') {
            return self.fail("no string");
        }
        let start = self.at;
        loop {
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(self.span(start, self.at - 1));
                }
                Some(b'\\') => {
                    self.at += 1;
                    self.escape()?;
                }
                Some(0x20..) => self.at += 1,
                Some(_) => return self.fail("a control character"),
                None => return self.fail("no end of a string"),
            }
        }
    }

    fn escape(&mut self) -> Result<(), Malformed> {
        match self.peek() {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => {
                self.at += 1;
                Ok(())
            }
            Some(b'u') => {
                let hex = self.text.get(self.at + 1..self.at + 5);
                if !hex.is_some_and(|hex| hex.iter().all(u8::is_ascii_hexdigit)) {
                    return self.fail("no four hex digits");
                }
                self.at += 5;
                Ok(())
            }
            _ => self.fail("no such escape"),
        }
    }

    fn number(&mut self) -> Result<(), Malformed> {
        self.take(b'-');
        if !self.take(b'0') {
            self.digits()?;
        }
        if self.take(b'.') {
            self.digits()?;
        }
        if self.take(b'e') || self.take(b'E') {
            if !self.take(b'+') {
                self.take(b'-');
            }
            self.digits()?;
        }
        Ok(())
    }

    fn digits(&mut self) -> Result<(), Malformed> {
        let start = self.at;
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        if self.at == start {
            return self.fail("no digit");
        }
        Ok(())
    }

    fn literal(&mut self, word: &[u8]) -> Result<(), Malformed> {
        if !self.text[self.at..].starts_with(word) {
            return self.fail("no value");
        }
        self.at += word.len();
        Ok(())
    }

    fn span(&self, start: usize, end: usize) -> Span {
        debug_assert!(end <= self.text.len());
        let short = |at| u32::try_from(at).expect("spans() let no longer text in");
        Span {
            start: short(start),
            end: short(end),
        }
    }
}

/// The numbers of the bits that are set.
fn bits(mut set: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let lowest = (set != 0).then(|| set.trailing_zeros() as usize)?;
        set &= set - 1;
        Some(lowest)
    })
}
