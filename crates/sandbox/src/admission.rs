//! What may be started: limits of the server, of a workspace, and of the host.

use std::{
    collections::HashMap,
    sync::{Arc, PoisonError},
};

use pandastack_api_types::{
    WorkspaceName,
    views::{Quota, SandboxStatus},
};
use pandastack_store::SandboxRecord;

use crate::{
    error::{AccessError, CreateError},
    images::Images,
    manager::{Entry, Inner},
};

/// What is being started and counts as if it ran already.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    sandboxes: usize,
    workspaces: HashMap<WorkspaceName, Share>,
}

/// What a workspace has of the server.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Share {
    pub(crate) sandboxes: usize,
    /// Those of them that have a machine.
    pub(crate) running: usize,
    pub(crate) memory_mib: u64,
}

/// Places for sandboxes that are being started, until this is dropped.
#[derive(Debug)]
pub(crate) struct Slots {
    inner: Arc<Inner>,
    workspace: WorkspaceName,
    share: Share,
}

impl Slots {
    /// Takes places for `count` new sandboxes of `memory_mib` each.
    pub(crate) fn take(
        inner: &Arc<Inner>,
        workspace: &WorkspaceName,
        count: usize,
        memory_mib: u64,
    ) -> Result<Self, CreateError> {
        let share = Share { sandboxes: count, running: count, memory_mib: memory_mib.saturating_mul(count as u64) };
        let limit = inner.config.max_workspace_sandboxes;
        Self::take_share(inner, workspace, share, Some(limit))
    }

    /// Takes the place of a hibernated sandbox's machine.
    pub(crate) fn take_to_wake(inner: &Arc<Inner>, record: &SandboxRecord) -> Result<Self, AccessError> {
        let share = Share { sandboxes: 1, running: 1, memory_mib: record.memory_mb };
        Self::take_share(inner, &record.workspace, share, None).map_err(|error| match error {
            CreateError::MemoryQuota { limit_mib } => AccessError::MemoryQuota { limit_mib },
            _ => AccessError::Quota { limit: inner.config.max_sandboxes },
        })
    }

    /// `limit` is on the workspace's sandboxes, of which a hibernated one is one already.
    fn take_share(
        inner: &Arc<Inner>,
        workspace: &WorkspaceName,
        share: Share,
        limit: Option<usize>,
    ) -> Result<Self, CreateError> {
        let (config, count) = (&inner.config, share.sandboxes);
        let mut pending = inner.pending.lock().unwrap_or_else(PoisonError::into_inner);
        let running = inner.entries(|entry| entry.handle.state().machine.is_some()).len();
        if running + pending.sandboxes + count > config.max_sandboxes {
            return Err(CreateError::Quota { limit: config.max_sandboxes });
        }
        let has = inner.share(workspace);
        let starting = pending.workspaces.entry(workspace.clone()).or_default();
        if let Some(limit) = limit.filter(|limit| has.sandboxes + starting.sandboxes + count > *limit) {
            return Err(CreateError::WorkspaceQuota { limit });
        }
        if let Some(limit_mib) = config.max_memory_mib
            && has.memory_mib + starting.memory_mib + share.memory_mib > limit_mib
        {
            return Err(CreateError::MemoryQuota { limit_mib });
        }
        starting.sandboxes += share.sandboxes;
        starting.memory_mib += share.memory_mib;
        pending.sandboxes += count;
        Ok(Self { inner: Arc::clone(inner), workspace: workspace.clone(), share })
    }
}

impl Drop for Slots {
    fn drop(&mut self) {
        let mut pending = self.inner.pending.lock().unwrap_or_else(PoisonError::into_inner);
        pending.sandboxes -= self.share.sandboxes;
        if let Some(starting) = pending.workspaces.get_mut(&self.workspace) {
            starting.sandboxes -= self.share.sandboxes;
            starting.memory_mib -= self.share.memory_mib;
            if starting.sandboxes == 0 {
                pending.workspaces.remove(&self.workspace);
            }
        }
    }
}

impl Inner {
    /// What the sandboxes of a workspace take now.
    pub(crate) fn share(&self, workspace: &WorkspaceName) -> Share {
        let of_workspace = |entry: &Entry| entry.record.workspace == *workspace;
        self.entries(of_workspace).iter().fold(Share::default(), |share, entry| {
            let resident = matches!(entry.handle.lifecycle().status, SandboxStatus::Running | SandboxStatus::Paused);
            let memory = if resident { entry.record.memory_mb } else { 0 };
            Share {
                sandboxes: share.sandboxes + 1,
                running: share.running + usize::from(entry.handle.state().machine.is_some()),
                memory_mib: share.memory_mib + memory,
            }
        })
    }
}

impl Images {
    /// Whether machines that take `extra_mib` may be started.
    ///
    /// # Errors
    /// The free memory in MiB, if it is too little.
    pub(crate) fn admit_memory(&self, extra_mib: u64) -> Result<(), u64> {
        // A host whose memory cannot be read is not refused work for that.
        let Some(free_mib) = free_memory_mib() else { return Ok(()) };
        if free_mib < self.config.min_free_memory_mib.saturating_add(extra_mib) { Err(free_mib) } else { Ok(()) }
    }
}

fn free_memory_mib() -> Option<u64> {
    let text = fs_err::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
    Some(kib / 1024)
}

/// A quota; no limit is shown as the largest number that every client reads exactly.
pub(crate) fn quota(used: u64, max: Option<u64>) -> Quota {
    const MOST: u64 = (1 << 53) - 1;
    Quota { used, max: max.unwrap_or(MOST) }
}
