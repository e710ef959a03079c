//! Promotion: one child of a fork-tree is kept, and its siblings are ended if that is asked for.

use std::collections::BTreeMap;

use futures::future::join_all;
use pandastack_api_types::{SandboxId, WorkspaceName, params, views, views::SandboxStatus};
use pandastack_store::SandboxRecord;

use crate::{
    error::{AccessError, LifecycleError, LookupError},
    events::Happening,
    fork::{EXPLORE_TTL, PARENT, TREE},
    manager::{Entry, SandboxManager},
    validate,
};

impl SandboxManager {
    /// Keeps a child of a fork-tree: it gets the clocks of its parent. Siblings are ended if that is asked for. Idempotent.
    ///
    /// # Errors
    /// [`LifecycleError`]; nothing is changed then. A sibling that cannot be ended is no error but reported.
    pub async fn promote(
        &self,
        workspace: &WorkspaceName,
        id: &SandboxId,
        params: params::Promote,
    ) -> Result<views::Promoted, LifecycleError> {
        let candidate = self.entry_or_ended(workspace, id).await.map_err(AccessError::from)?;
        let tree = candidate.record.metadata.get(TREE).cloned().unwrap_or_default();
        // Promotions of one tree take turns, so that two winners do not end each other. No idempotency key has such a name.
        let _turn = self.inner.turn((workspace.clone(), format!("\0promote {tree}"))).await;
        let winner = self.entry_or_ended(workspace, id).await.map_err(AccessError::from)?;
        let status = winner.handle.lifecycle().status;
        if matches!(status, SandboxStatus::Failed | SandboxStatus::Stopping) {
            return Err(AccessError::InvalidState { status: status.as_str().to_owned() }.into());
        }
        if let Some(given) = params.tree_id.filter(|given| !given.is_empty() && *given != tree) {
            let message = format!("the sandbox is no child of the fork-tree {given:?}");
            return Err(validate::invalid("tree_id", message).into());
        }
        let cleanup = params.cleanup_siblings.unwrap_or(false);
        if cleanup && tree.is_empty() {
            let message = "cleanup_siblings needs a child of a fork-tree, and this sandbox is none";
            return Err(validate::invalid("cleanup_siblings", message).into());
        }
        self.keep_as_long_as_parent(&winner).await?;
        let (mut deleted, mut failures) = (Vec::new(), BTreeMap::new());
        if cleanup {
            let siblings = self.inner.store.sandboxes_of_tree(workspace, &tree).await?;
            let siblings: Vec<_> = siblings.into_iter().filter(|sibling| sibling.id != *id).collect();
            let ended = join_all(siblings.iter().map(|sibling| self.end_sibling(workspace, sibling))).await;
            for (sibling, ended) in siblings.iter().zip(ended) {
                match ended {
                    Ok(()) => deleted.push(sibling.id.to_string()),
                    Err(error) => drop(failures.insert(sibling.id.to_string(), error.to_string())),
                }
            }
        }
        if !tree.is_empty() {
            Happening::Promoted { tree: tree.clone() }.record(&self.inner.store, &winner.record).await;
        }
        Ok(views::Promoted { winner: id.to_string(), tree_id: tree, deleted, failures })
    }

    /// One that is gone already counts as ended.
    async fn end_sibling(&self, workspace: &WorkspaceName, sibling: &SandboxRecord) -> Result<(), LookupError> {
        if sibling.status == SandboxStatus::Deleted {
            return Ok(());
        }
        match self.kill(workspace, &sibling.id).await {
            Err(LookupError::NotFound | LookupError::Ended { .. }) => Ok(()),
            other => other,
        }
    }

    /// A candidate of an exploration has a short life of its own; the winner gets that of its parent.
    async fn keep_as_long_as_parent(&self, winner: &Entry) -> Result<(), LifecycleError> {
        let metadata = &winner.record.metadata;
        if !metadata.contains_key(EXPLORE_TTL) {
            return Ok(());
        }
        let parent = match metadata.get(PARENT).and_then(|id| id.parse().ok()) {
            Some(id) => self.inner.store.get_sandbox(&id).await?,
            None => None,
        };
        let parent = parent.filter(|parent| parent.workspace == winner.record.workspace);
        match parent {
            Some(parent) => Ok(winner.handle.set_clocks(Some(parent.ttl_seconds), Some(parent.persistent)).await?),
            // Forgotten long ago; at least it does not end soon.
            None if metadata.contains_key(PARENT) => {
                Ok(winner.handle.set_clocks(Some(self.inner.config.default_ttl.as_secs()), None).await?)
            }
            None => Ok(()),
        }
    }
}
