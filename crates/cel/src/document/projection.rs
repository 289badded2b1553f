//! The fields of an object that expressions need. [`Doc::parse`](crate::Doc::parse) decodes only
//! these fields. A [`Projection`] can contain more fields than an evaluation reads, but never fewer.

/// Maximum number of parts of one [`Projection`]. If more parts are needed, the whole value is
/// needed. A Kubernetes type with its most-used fields has fewer than 200 parts.
pub(crate) const MAX_PROJECTION_PARTS: usize = 1024;

/// Maximum number of parts that one program needs. The server stores these parts for each of up to
/// 1,000 programs of a rule set. If a program needs more parts, it needs the whole value.
const MAX_PROGRAM_PARTS: usize = 128;

/// A set of field paths of an object.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Projection {
    pub(crate) root: NeededPart,
}

impl Projection {
    /// Adds a path of field names, with everything below the last field. The name `"*"` stands for
    /// every element of a list and every member of an object. An empty path stands for the whole
    /// object.
    pub fn add(&mut self, path: &[&str]) {
        let need = path.iter().rev().fold(NeededPart::whole(), |need, name| {
            if *name == "*" {
                NeededPart::every(need)
            } else {
                NeededPart::named(name, need)
            }
        });
        self.root.merge_up_to(need, MAX_PROJECTION_PARTS);
    }

    /// Adds all paths of `other`. With more than `MAX_PROJECTION_PARTS` parts, the result is the
    /// whole object.
    pub fn merge(&mut self, other: &Projection) {
        self.root
            .merge_up_to(other.root.clone(), MAX_PROJECTION_PARTS);
    }
}

/// The part of one value that an evaluation needs. With the default of this type, the evaluation
/// only needs to know whether the value exists.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct NeededPart {
    /// True if the evaluation needs the whole value.
    whole: bool,
    /// The needed parts of some members, by their names.
    named: Vec<(Box<str>, NeededPart)>,
    /// The part that the evaluation needs of every member or element. None if it needs only the
    /// members in `named`.
    every: Option<Box<NeededPart>>,
}

static WHOLE: NeededPart = NeededPart {
    whole: true,
    named: Vec::new(),
    every: None,
};

impl NeededPart {
    pub(crate) fn whole() -> Self {
        WHOLE.clone()
    }

    pub(crate) fn named(name: &str, need: NeededPart) -> Self {
        Self {
            named: vec![(name.into(), need)],
            ..Self::default()
        }
    }

    /// Returns the needed part of a list or map, if the evaluation needs the part `need` of every
    /// element or member.
    pub(crate) fn every(need: NeededPart) -> Self {
        Self {
            every: Some(Box::new(need)),
            ..Self::default()
        }
    }

    /// Returns the number of parts below this part.
    pub(crate) fn count(&self) -> usize {
        let named = self.named.iter().map(|(_, need)| need);
        named
            .chain(self.every.as_deref())
            .map(|need| 1 + need.count())
            .sum()
    }

    /// Returns true if the evaluation only needs to know whether the value exists.
    pub(crate) fn is_existence(&self) -> bool {
        !self.whole && self.named.is_empty() && self.every.is_none()
    }

    /// Returns true if the evaluation needs members with known names, and not the whole value.
    pub(crate) fn has_named_members(&self) -> bool {
        !self.named.is_empty()
    }

    /// Returns the needed part of the member `name`, or None if the member is not needed.
    pub(crate) fn member(&self, name: &str) -> Option<&NeededPart> {
        if self.whole {
            return Some(&WHOLE);
        }
        self.named
            .iter()
            .find_map(|(key, need)| (**key == *name).then_some(need))
            .or(self.every.as_deref())
    }

    /// Returns the needed part of each element of a list, or None if no element is needed.
    pub(crate) fn element(&self) -> Option<&NeededPart> {
        if self.whole {
            Some(&WHOLE)
        } else {
            self.every.as_deref()
        }
    }

    pub(crate) fn into_element(mut self) -> NeededPart {
        if self.whole {
            return Self::whole();
        }
        self.every.take().map(|need| *need).unwrap_or_default()
    }

    /// Returns the union of the needed parts of all members of a map.
    pub(crate) fn into_member(self) -> NeededPart {
        if self.whole {
            return Self::whole();
        }
        let mut member = self.every.map(|need| *need).unwrap_or_default();
        for (_, need) in self.named {
            member.merge(need);
        }
        member
    }

    /// Adds `other`. If the result has more than `limit` parts, the whole value is needed instead.
    fn merge_up_to(&mut self, other: NeededPart, limit: usize) {
        self.merge(other);
        if self.count() > limit {
            *self = Self::whole();
        }
    }

    /// Adds the part `other`, which another program needs of the same value.
    pub(crate) fn merge_program(&mut self, other: NeededPart) {
        self.merge_up_to(other, MAX_PROGRAM_PARTS);
    }

    fn merge(&mut self, other: NeededPart) {
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
        // The part that is needed of every member is also needed of each named member. With a copy
        // of this part in each named member, the size of the tree could double at each level. So
        // the whole value is marked as needed instead.
        if !self.named.is_empty() && self.every.as_ref().is_some_and(|need| !need.is_existence()) {
            *self = Self::whole();
        }
    }
}
