//! Forks: several sandboxes from one instant of a running one, which goes on.

use std::sync::Arc;

use futures::future::join_all;
use pandastack_api_types::{SandboxId, SnapshotId, WorkspaceName, params, views};
use pandastack_snapshot::Durability;
use pandastack_store::{RequestKey, SandboxRecord, SnapshotKind, SnapshotRecord};
use tokio::sync::oneshot;

use crate::{
    admission::Slots,
    contexts::timestamp,
    create::{CLAIM_TIMEOUT, Machine, new_record, started_record},
    error::{CaptureError, CreateError, ForkError, RestoreError},
    events::Happening,
    exec,
    images::{Plan, Sealed},
    journal,
    launch::{self, BootMode},
    manager::{Entry, Inner, SandboxManager},
    pool::chain,
    requests::{self, Claim},
    validate,
    view::view,
};

/// Children of one fork at most.
const MOST_CHILDREN: i64 = 16;
const MIB: u64 = 1024 * 1024;

/// Which of the two kinds of fork.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForkKind {
    /// One child, unless more are asked for.
    Fork,
    /// Two children, unless another number is asked for, that know each other by their tree.
    Tree,
}

/// Keys of a child's metadata.
pub(crate) const PARENT: &str = "fork_parent_id";
const FORKED_FROM: &str = "forked_from";
const INDEX: &str = "fork_index";
pub(crate) const TREE: &str = "fork_tree_id";
const ROLE: &str = "fork_tree_role";
/// Seconds that a child lives without use if it is not promoted; set by the published clients' `explore`.
pub(crate) const EXPLORE_TTL: &str = "explore_ttl";

/// A fork with every value checked.
#[derive(Debug)]
struct NewFork {
    kind: ForkKind,
    count: usize,
    metadata: std::collections::BTreeMap<String, String>,
    /// Seconds.
    ttl: Option<u64>,
    request: Option<RequestKey>,
}

impl NewFork {
    fn check(inner: &Inner, parent: &SandboxId, kind: ForkKind, mut params: params::Fork) -> Result<Self, CreateError> {
        if inner.stopping.is_cancelled() {
            return Err(CreateError::ShuttingDown);
        }
        let key = params.idempotency_key.take();
        let request = requests::key(key, &("fork", parent.as_str(), kind == ForkKind::Tree, &params))?;
        let default = if kind == ForkKind::Tree { 2 } else { 1 };
        let count = params.count.unwrap_or(default);
        if !(1..=MOST_CHILDREN).contains(&count) {
            let message =
                format!("count is from 1 to {MOST_CHILDREN}, got {count}: fork count capped at {MOST_CHILDREN}");
            return Err(validate::invalid("count", message).into());
        }
        if let Some(mode) = params.mode.as_deref().filter(|mode| !matches!(*mode, "warm" | "cold")) {
            return Err(validate::invalid("mode", format!("mode is `warm` or `cold`, got {mode:?}")).into());
        }
        let metadata = validate::metadata(params.metadata.unwrap_or_default())?;
        let ttl = metadata.get(EXPLORE_TTL).map(|text| explore_ttl(inner, text)).transpose()?;
        let count = usize::try_from(count).unwrap_or(1);
        Ok(Self { kind, count, metadata, ttl, request })
    }
}

fn explore_ttl(inner: &Inner, text: &str) -> Result<u64, CreateError> {
    let invalid = || validate::invalid("metadata", format!("explore_ttl is a number of seconds, got {text:?}"));
    let seconds: f64 = text.parse().map_err(|_| invalid())?;
    if !(1.0..1e9).contains(&seconds) {
        return Err(invalid().into());
    }
    #[expect(clippy::cast_possible_truncation, reason = "checked to be small")]
    let ttl = validate::ttl(seconds.ceil() as i64, inner.config.max_ttl)?;
    Ok(ttl.map_or(0, |ttl| ttl.as_secs()))
}

/// A fork that has happened.
struct Forked {
    image: SnapshotRecord,
    children: Vec<Entry>,
    errors: Vec<views::ForkFailure>,
}

impl SandboxManager {
    /// Makes children of a sandbox, which all have its memory, processes and files of one instant; the sandbox goes on. A child that cannot
    /// be started is reported, and the others stand.
    ///
    /// # Errors
    /// [`ForkError`]; there are no children then.
    pub async fn fork(
        &self,
        workspace: &WorkspaceName,
        id: &SandboxId,
        kind: ForkKind,
        params: params::Fork,
    ) -> Result<views::Fork, ForkError> {
        let fork = NewFork::check(&self.inner, id, kind, params)?;
        let turn = match self.inner.claim(workspace, fork.request.as_ref()).await? {
            Claim::First(turn) => turn,
            Claim::Again(records) => return Ok(self.forked_before(records).await),
        };
        let parent = self.entry_or_ended(workspace, id).await.map_err(CaptureError::from)?;
        let has_key = turn.is_some();
        let (send, receive) = oneshot::channel();
        let inner = Arc::clone(&self.inner);
        // In a task of its own: it must run to its end or its undoing even if the caller's connection breaks.
        self.inner.tasks.spawn(async move {
            let forked = inner.fork(&parent, fork).await;
            drop(turn);
            if let Err(Ok(forked)) = send.send(forked)
                && !has_key
            {
                join_all(forked.children.iter().map(Entry::abandon)).await;
            }
        });
        let forked = receive.await.map_err(|_| CreateError::ShuttingDown)??;
        let children = join_all(forked.children.iter().map(view)).await;
        Ok(answer(forked.image.paused_ms, timestamp(forked.image.created_at_ms), children, forked.errors))
    }

    /// The answer to a fork that an earlier request made.
    async fn forked_before(&self, records: Vec<SandboxRecord>) -> views::Fork {
        let at = records.iter().map(|record| record.created_at_ms).min().unwrap_or(0);
        let image: Option<SnapshotId> = records[0].from_snapshot.as_deref().and_then(|id| id.parse().ok());
        let image = match image {
            Some(id) => self.inner.store.get_snapshot(&id).await.ok().flatten(),
            None => None,
        };
        let paused_ms = image.map_or(0, |image| image.paused_ms);
        answer(paused_ms, timestamp(at), self.views_of(records).await, Vec::new())
    }
}

/// What all answers about one fork have; the rest is in the children.
fn answer(
    paused_ms: u64,
    at: String,
    mut children: Vec<views::Sandbox>,
    errors: Vec<views::ForkFailure>,
) -> views::Fork {
    let index = |child: &views::Sandbox| child.metadata.get(INDEX).and_then(|index| index.parse::<usize>().ok());
    children.sort_by_key(index);
    let first = children.first().cloned();
    let of_first = |key: &str| first.as_ref().and_then(|child| child.metadata.get(key).cloned());
    let tree_id = of_first(TREE);
    views::Fork {
        parent_id: of_first(PARENT).unwrap_or_default(),
        snapshot_id: first.as_ref().and_then(|child| child.from_snapshot.clone()).unwrap_or_default(),
        at,
        paused_ms,
        sandbox: first.filter(|_| tree_id.is_none()),
        tree_id,
        children,
        errors,
    }
}

impl Inner {
    async fn fork(self: &Arc<Self>, parent: &Entry, fork: NewFork) -> Result<Forked, ForkError> {
        let slots = Slots::take(self, &parent.record.workspace, fork.count, parent.record.memory_mb)?;
        let resident = parent.handle.usage().await.map_or(0, |usage| usage.memory_bytes);
        let expected_mib = resident / MIB * fork.count as u64;
        self.images.admit_memory(expected_mib).map_err(|free_mib| CreateError::Capacity { free_mib })?;
        let captured = parent.handle.capture(Plan::of(SnapshotKind::Fork)).await?;
        let Sealed { record: image, pin } = self.images.seal(captured, Durability::Fleeting).await?;
        self.store.snapshot_ready(&image.id, image.size_bytes, image.paused_ms).await?;
        journal::reached("fork.captured");
        let records = children_of(self, parent, &image, &fork);
        let ids: Vec<_> = records.iter().map(|record| record.id.clone()).collect();
        let made = self.start_children(records, &image.id).await;
        drop(pin);
        if let Err(error) = &made {
            join_all(ids.iter().map(|id| self.forget(id, error))).await;
        }
        let (children, errors) = made?;
        if children.is_empty() {
            let detail = errors.into_iter().next().map(|error| error.err).unwrap_or_default();
            return Err(ForkError::NoChild { count: fork.count, detail });
        }
        drop(slots);
        let forked = Happening::Forked { snapshot: image.id.to_string(), children: children.len() };
        forked.record(&self.store, &parent.record).await;
        Ok(Forked { image, children, errors })
    }

    /// Starts all children, and records those that run at once: a crash leaves all of them or none.
    async fn start_children(
        self: &Arc<Self>,
        records: Vec<SandboxRecord>,
        image: &SnapshotId,
    ) -> Result<(Vec<Entry>, Vec<views::ForkFailure>), ForkError> {
        for record in &records {
            self.store.insert_sandbox(record).await?;
        }
        journal::reached("fork.recorded");
        let started = join_all(records.into_iter().map(|record| self.start_child(record, image))).await;
        journal::reached("fork.started");
        let (mut running, mut errors) = (Vec::new(), Vec::new());
        for (index, result) in started.into_iter().enumerate() {
            match result {
                Ok(child) => running.push(child),
                Err((record, error)) => {
                    self.forget(&record.id, &error).await;
                    errors.push(views::ForkFailure { index, err: chain(&error) });
                }
            }
        }
        let all: Vec<_> = running.iter().map(|(record, _)| started_record(record)).collect();
        if !self.store.start_all(&all).await? {
            return Err(CreateError::ShuttingDown.into());
        }
        journal::reached("fork.committed");
        let mut children = Vec::with_capacity(running.len());
        for (record, machine) in running {
            let entry = self.adopt_running(record, machine);
            Happening::Running { boot_mode: entry.record.boot_mode.clone() }.record(&self.store, &entry.record).await;
            children.push(entry);
        }
        Ok((children, errors))
    }

    async fn start_child(
        self: &Arc<Self>,
        mut record: SandboxRecord,
        image: &SnapshotId,
    ) -> Result<(SandboxRecord, Machine), (SandboxRecord, RestoreError)> {
        let begun = std::time::Instant::now();
        match self.images.restore(image, &record).await {
            Ok((guard, client)) => {
                record.vm_id = Some(guard.vm().id().to_string());
                if let Err(error) = launch::personalize(&client, &record.id, CLAIM_TIMEOUT).await {
                    return Err((record, error.into()));
                }
                record.boot_mode = BootMode::Fork.as_str().to_owned();
                record.boot_ms = exec::millis(begun.elapsed()).max(1);
                record.status = pandastack_api_types::views::SandboxStatus::Running;
                Ok((record, Machine { guard, client, mode: BootMode::Fork }))
            }
            Err(error) => Err((record, error)),
        }
    }
}

/// The records of the children, in order.
fn children_of(inner: &Inner, parent: &Entry, image: &SnapshotRecord, fork: &NewFork) -> Vec<SandboxRecord> {
    let clocks = parent.handle.lifecycle().clocks;
    let parent = &parent.record;
    let tree = SandboxId::random().to_string();
    let child = |index: usize| {
        let mut metadata = fork.metadata.clone();
        let mut set = |key: &str, value: &str| metadata.insert(key.to_owned(), value.to_owned());
        set(PARENT, parent.id.as_str());
        set(FORKED_FROM, parent.id.as_str());
        set(INDEX, &index.to_string());
        if fork.kind == ForkKind::Tree {
            set(TREE, &tree);
            set(ROLE, "child");
        }
        SandboxRecord {
            template: parent.template.clone(),
            template_hash: parent.template_hash.clone(),
            metadata,
            // A candidate that nobody promotes must end by itself.
            persistent: clocks.persistent && fork.ttl.is_none(),
            ttl_seconds: fork.ttl.unwrap_or_else(|| clocks.ttl_ms.unwrap_or(0) / 1000),
            from_snapshot: Some(image.id.to_string()),
            cpu: parent.cpu,
            memory_mb: parent.memory_mb,
            ..new_record(inner, &parent.workspace, fork.request.clone())
        }
    };
    (0..fork.count).map(child).collect()
}
