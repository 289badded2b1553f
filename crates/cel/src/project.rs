//! Computes the fields that a program reads.
//!
//! Input: an op tree, or paths. Output: the [`Projection`] for decoding. It contains at least all
//! fields that an evaluation can read.

use super::op::{Comprehension, ComprehensionKind, Function, Op};

/// A union of field paths.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Projection {
    pub(super) root: NeededPart,
}

impl Projection {
    /// Adds a path of field names with the whole subtree below it. `"*"` means every element of a
    /// list and every member of an object.
    pub fn add(&mut self, path: &[&str]) {
        let need = path.iter().rev().fold(NeededPart::whole(), |need, name| {
            if *name == "*" {
                NeededPart::every(need)
            } else {
                NeededPart::named(name, need)
            }
        });
        self.root.merge(need);
    }

    /// Adds all paths of `other`.
    pub fn merge(&mut self, other: &Projection) {
        self.root.merge(other.root.clone());
    }

    /// Returns the paths that `op` can read of `object`, also through variables, and of `item`.
    /// `want` is the needed part of the result.
    pub(super) fn of(op: &Op, want: NeededPart, variables: &[&Op]) -> (Self, NeededPart) {
        let mut reader = NeedCollector {
            variables: vec![None; variables.len()],
            ..NeedCollector::default()
        };
        reader.read(op, want);
        // A variable reads only earlier variables. So each is processed once, for all its readers.
        for (slot, op) in variables.iter().enumerate().rev() {
            if let Some(need) = reader.variables.get_mut(slot).and_then(Option::take) {
                reader.read(op, need);
            }
        }
        let object = Self {
            root: reader.object,
        };
        (object, reader.item)
    }
}

/// The needed part of one value. Without any part, only its existence is needed.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct NeededPart {
    whole: bool,
    named: Vec<(Box<str>, NeededPart)>,
    every: Option<Box<NeededPart>>,
}

static WHOLE: NeededPart = NeededPart {
    whole: true,
    named: Vec::new(),
    every: None,
};

impl NeededPart {
    pub(super) fn whole() -> Self {
        WHOLE.clone()
    }

    fn named(name: &str, need: NeededPart) -> Self {
        Self {
            named: vec![(name.into(), need)],
            ..Self::default()
        }
    }

    pub(super) fn every(need: NeededPart) -> Self {
        Self {
            every: Some(Box::new(need)),
            ..Self::default()
        }
    }

    /// Only the existence of the value.
    pub(super) fn is_existence(&self) -> bool {
        !self.whole && self.named.is_empty() && self.every.is_none()
    }

    /// Returns the needed part of the member `name`.
    pub(super) fn member(&self, name: &str) -> Option<&NeededPart> {
        if self.whole {
            return Some(&WHOLE);
        }
        self.named
            .iter()
            .find_map(|(key, need)| (**key == *name).then_some(need))
            .or(self.every.as_deref())
    }

    /// Returns the needed part of each element of a list.
    pub(super) fn element(&self) -> Option<&NeededPart> {
        if self.whole {
            Some(&WHOLE)
        } else {
            self.every.as_deref()
        }
    }

    fn into_element(mut self) -> NeededPart {
        if self.whole {
            return Self::whole();
        }
        self.every.take().map(|need| *need).unwrap_or_default()
    }

    pub(super) fn merge(&mut self, other: NeededPart) {
        if self.whole {
            return;
        }
        if other.whole {
            *self = Self::whole();
            return;
        }
        for (name, need) in other.named {
            match self.named.iter_mut().find(|(key, _)| *key == name) {
                Some((_, own)) => own.merge(need),
                None => self.named.push((name, need)),
            }
        }
        if let Some(need) = other.every {
            self.every.get_or_insert_default().merge(*need);
        }
        // A named member also needs the part that every member needs. A copy of that part under
        // each name would grow as 2^depth, so a value that is read in both ways is kept completely.
        if !self.named.is_empty() && self.every.as_ref().is_some_and(|need| !need.is_existence()) {
            *self = Self::whole();
        }
    }
}

/// Collects the needed parts from the root of an op tree to its leaves.
#[derive(Default)]
struct NeedCollector {
    object: NeededPart,
    item: NeededPart,
    /// The needed part of each variable of the environment. None for a variable that is not used.
    variables: Vec<Option<NeededPart>>,
    /// The needed part of each comprehension variable in scope.
    vars: Vec<NeededPart>,
}

impl NeedCollector {
    fn read(&mut self, op: &Op, want: NeededPart) {
        match op {
            Op::Const(_) | Op::Now => {}
            Op::Object => self.object.merge(want),
            Op::Item => self.item.merge(want),
            Op::Variable(slot) => {
                if let Some(variable) = self.variables.get_mut(*slot) {
                    variable.get_or_insert_default().merge(want);
                }
            }
            Op::Var(slot) => {
                if let Some(var) = self.vars.get_mut(*slot) {
                    var.merge(want);
                }
            }
            Op::Path(base, fields) => {
                let need = fields
                    .iter()
                    .rev()
                    .fold(want, |need, field| NeededPart::named(field, need));
                self.read(base, need);
            }
            Op::Has(base, field) => {
                self.read(base, NeededPart::named(field, NeededPart::default()));
            }
            Op::Index(pair) => {
                self.read(&pair.0, NeededPart::every(want));
                self.read(&pair.1, NeededPart::whole());
            }
            Op::List(items) => {
                let element = want.into_element();
                for item in items {
                    self.read(item, element.clone());
                }
            }
            Op::Map(entries) => {
                for (key, value) in entries {
                    self.read(key, NeededPart::whole());
                    self.read(value, NeededPart::whole());
                }
            }
            Op::Not(operand) | Op::Neg(operand) | Op::InSet(operand, _) => {
                self.read(operand, NeededPart::whole());
            }
            Op::Matches(operand, _) => self.read(operand, NeededPart::whole()),
            Op::And(terms) | Op::Or(terms) => self.all(terms),
            Op::Cond(parts) => {
                self.read(&parts.0, NeededPart::whole());
                self.read(&parts.1, want.clone());
                self.read(&parts.2, want);
            }
            Op::Equal(pair, _) | Op::Order(pair, _) | Op::Arith(pair, _) | Op::In(pair) => {
                self.read(&pair.0, NeededPart::whole());
                self.read(&pair.1, NeededPart::whole());
            }
            Op::Call(Function::Size, args) => {
                for arg in args {
                    self.read(arg, NeededPart::every(NeededPart::default()));
                }
            }
            Op::Call(Function::Dyn, args) => {
                for arg in args {
                    self.read(arg, want.clone());
                }
            }
            Op::Call(_, args) => self.all(args),
            Op::Fold(fold) => self.fold(fold, want),
        }
    }

    fn all(&mut self, ops: &[Op]) {
        for op in ops {
            self.read(op, NeededPart::whole());
        }
    }

    fn fold(&mut self, fold: &Comprehension, want: NeededPart) {
        let element = want.into_element();
        self.vars.push(NeededPart::default());
        if let Some(test) = &fold.test {
            self.read(test, NeededPart::whole());
        }
        match fold.kind {
            ComprehensionKind::Map => self.read(&fold.body, element),
            ComprehensionKind::Filter => {
                self.read(&fold.body, NeededPart::whole());
                if let Some(var) = self.vars.last_mut() {
                    var.merge(element);
                }
            }
            ComprehensionKind::All | ComprehensionKind::Exists | ComprehensionKind::ExistsOne => {
                self.read(&fold.body, NeededPart::whole());
            }
        }
        let var = self.vars.pop().unwrap_or_default();
        self.read(&fold.range, NeededPart::every(var));
    }
}
