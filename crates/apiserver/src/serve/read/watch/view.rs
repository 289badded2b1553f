//! Hides objects from the user of a watch. When the view of the user expires, the watch creates a
//! new view, and sends the difference between both views.

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

    /// Replaces the expired view, and sends the difference between the expired view and the new
    /// view. Returns false if the client reads the difference too slowly.
    pub(super) async fn renew_view(&mut self, version: Rv) -> Result<bool, ErrorStatus> {
        let Some(expired) = self.view.take() else {
            return Ok(true);
        };
        let objects = self.objects_at(version)?;
        let viewed = ViewedObjects {
            scope: &self.scope,
            version,
            objects: &objects,
            continues: false,
        };
        self.view = Some(expired.renew(viewed).await?);
        Ok(self.send_objects(objects, Some(&*expired), version).await)
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
