//! Hides objects from the user of a watch. When the view of the user expires, and before each
//! bookmark, the watch creates a new view, and sends the difference between both views.

use super::Watcher;
use crate::Model;
use crate::serve::answer::error_status::ErrorStatus;
use crate::serve::visibility::{RestrictedUser, View, ViewedObjects};
use crate::store::{Entry, ReadVersion, Rv};
use std::sync::Arc;

impl<M: Model> Watcher<M> {
    /// Creates the user's view at the version at which the watch starts.
    pub(super) async fn set_view(
        &mut self,
        version: Rv,
        continues: bool,
    ) -> Result<(), ErrorStatus> {
        let Some(RestrictedUser { user, visibility }) = &self.user else {
            return Ok(());
        };
        let viewed = ViewedObjects {
            scope: &self.scope,
            version,
            objects: &self.objects_at(version)?,
            continues,
        };
        self.view = Some(visibility.view(user, viewed).await?);
        Ok(())
    }

    /// Replaces the view, and sends the difference between the old view and the new view. Returns
    /// `Err(None)` if the client reads the difference too slowly.
    pub(super) async fn renew_view(&mut self, version: Rv) -> Result<(), Option<ErrorStatus>> {
        let Some(before) = self.view.take() else {
            return Ok(());
        };
        let objects = self.objects_at(version)?;
        let viewed = ViewedObjects {
            scope: &self.scope,
            version,
            objects: &objects,
            continues: false,
        };
        self.view = Some(before.renew(viewed).await?);
        self.send_objects(objects, Some(&*before), version).await
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
