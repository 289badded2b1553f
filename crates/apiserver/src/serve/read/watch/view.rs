//! Hides objects from the user of a watch. When the view of the watch expires, the watch replaces
//! it by a new view, and sends the difference between both views.

use super::{InitialEvents, WatchStep, Watcher};
use crate::Model;
use crate::serve::REQUEST_TIMEOUT;
use crate::serve::answer::error_status::ErrorStatus;
use crate::serve::visibility::{View, ViewedObjects};
use crate::store::{Cursor, Entry, ReadVersion, Rv};
use std::sync::Arc;
use tokio::time::Instant;

impl<M: Model> Watcher<M> {
    /// Creates the user's view at the version at which the watch starts. `entries` are the objects
    /// at this version if the caller has read them.
    pub(super) async fn set_view(
        &mut self,
        version: Rv,
        entries: Option<&[Arc<Entry<M>>]>,
        continues: bool,
    ) -> Result<(), ErrorStatus> {
        let Some(user) = &self.context.user else {
            return Ok(());
        };
        let listed;
        let objects = if let Some(entries) = entries {
            entries
        } else {
            listed = self.objects_at(version)?;
            &listed
        };
        let viewed = ViewedObjects {
            scope: &self.scope,
            version,
            objects,
            continues,
        };
        self.view = Some(user.view(viewed).await?);
        Ok(())
    }

    /// Replaces an expired view. In the returned step, the watch sends the difference between the
    /// expired view and the new view.
    pub(super) async fn renew_view(
        &mut self,
        expired: Box<dyn View<M>>,
        cursor: Cursor<M>,
    ) -> Result<WatchStep<M>, ErrorStatus> {
        let entries = self.objects_at(cursor.rv())?;
        let viewed = ViewedObjects {
            scope: &self.scope,
            version: cursor.rv(),
            objects: &entries,
            continues: false,
        };
        self.view = Some(expired.renew(viewed).await?);
        Ok(WatchStep::Initial(InitialEvents {
            entries: entries.into_iter(),
            cursor,
            before: Some(expired),
            until: Instant::now() + REQUEST_TIMEOUT,
        }))
    }

    fn objects_at(&self, version: Rv) -> Result<Vec<Arc<Entry<M>>>, ErrorStatus> {
        let reader = &self.resource.reader;
        let listed = reader.list(&self.scope, ReadVersion::Exact(version));
        Ok(listed.map_err(ErrorStatus::watch_too_old)?.1)
    }

    /// Returns the object as the user sees it, if it matches the selector of this watch.
    pub(super) fn visible_match(
        &self,
        view: Option<&dyn View<M>>,
        entry: &Arc<Entry<M>>,
    ) -> Option<Arc<Entry<M>>> {
        let visible = match view {
            Some(view) => view.show(Arc::clone(entry))?,
            None => Arc::clone(entry),
        };
        self.selector.matches(&visible).then_some(visible)
    }
}
