//! Writes the events of a watch.

use super::Watcher;
use crate::serve::answer::encoder::Encoder;
use crate::store::{Change, Entry, Rv};
use crate::{Model, clock};
use std::sync::Arc;

impl<M: Model> Watcher<M> {
    /// Writes the event for a change. Writes nothing if the client sees no matching object, neither
    /// before nor after the change. The event depends on the change, on the selector and on the
    /// view of the user:
    ///
    /// - If the object begins to match, the event is `ADDED`.
    /// - If the object matches before and after the change, the event is `MODIFIED`.
    /// - If the object no longer matches, the event is `DELETED`. This event has the last matching
    ///   content of the object, and the version of the change.
    /// - If the change has no object, it marks the start of a new leadership term (the time for
    ///   which one replica leads). If the client allows bookmarks, the event is a bookmark. A
    ///   client can continue the watch from the version of this bookmark at every replica. If the
    ///   client does not allow bookmarks, there is no event.
    pub(super) fn write_change(&mut self, change: &Change<M>, out: &mut Vec<u8>) {
        if change.key().is_none() {
            if self.plan.bookmarks {
                self.write_bookmark(change.rv, false, out);
            }
            return;
        }
        let view = self.view.as_deref();
        let visible = |entry: &Option<Arc<Entry<M>>>| self.visible_match(view, entry.as_ref()?);
        let (before, after) = (visible(&change.before), visible(&change.after));
        self.write_difference(before, after, change.rv, out);
    }

    /// Writes the event for one object: `before` and `after` are the object as the client sees it
    /// before and after a change. `rv` is the version of the change.
    pub(super) fn write_difference(
        &mut self,
        before: Option<Arc<Entry<M>>>,
        after: Option<Arc<Entry<M>>>,
        rv: Rv,
        out: &mut Vec<u8>,
    ) {
        let (kind, entry) = match (before, after) {
            (None, None) => return,
            (None, Some(after)) => ("ADDED", after),
            // The change affects only parts of the object that are hidden from the user. So the
            // user gets no event.
            (Some(before), Some(after))
                if self.view.is_some() && before.object() == after.object() =>
            {
                return;
            }
            (Some(_), Some(after)) => ("MODIFIED", after),
            (Some(before), None) => ("DELETED", before),
        };
        self.write_event(kind, &entry, rv, out);
    }

    pub(super) fn write_event(&mut self, kind: &str, entry: &Entry<M>, rv: Rv, out: &mut Vec<u8>) {
        let columns = !std::mem::replace(&mut self.columns_sent, true);
        self.encoder().event(kind, (entry, rv), columns, out);
    }

    pub(super) fn write_bookmark(&mut self, rv: Rv, initial_end: bool, out: &mut Vec<u8>) {
        let columns = !std::mem::replace(&mut self.columns_sent, true);
        self.encoder().bookmark(rv, initial_end, columns, out);
    }

    fn encoder(&self) -> Encoder<'_, M> {
        Encoder {
            resource: &self.resource,
            form: self.form,
            now: clock::now(),
        }
    }
}
