//! Images of machines on disk: how one is captured, committed, restored from, and removed.
//!
//! An image has a row in the store before it has a directory, and counts only once its row says so. What has no such row is garbage.

use std::{
    collections::{BTreeMap, HashMap},
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use jiff::Timestamp;
use pandastack_agent_client::AgentClient;
use pandastack_api_types::SnapshotId;
use pandastack_engine::{Engine, SnapshotSupport, Vm, VmId};
use pandastack_snapshot::{Cpu, Draft, Durability, HostFacts, Meta, Opened, SnapshotStore, TemplateRef};
use pandastack_store::{SandboxRecord, SnapshotKind, SnapshotRecord, SnapshotStatus, Store, StoreError};
use pandastack_template::BuiltTemplate;
use tokio::sync::Semaphore;

use crate::{
    config::ManagerConfig,
    driver::now_ms,
    error::{CaptureError, LaunchError, RestoreError},
    journal,
    launch::{self, VmGuard},
    pool::chain,
    templates::Templates,
};

/// Restores and boots at the same time: more would only make each slower.
const CONCURRENT_LAUNCHES: usize = 4;
/// Below this, an engine that could not write has most likely run into a full disk.
const FULL_DISK_BYTES: u64 = 64 * 1024 * 1024;

/// What all sandboxes share to be saved and brought back.
#[derive(Debug)]
pub(crate) struct Images {
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) store: Store,
    pub(crate) dirs: SnapshotStore,
    pub(crate) templates: Templates,
    pub(crate) config: Arc<ManagerConfig>,
    cpu: Cpu,
    pub(crate) launches: Semaphore,
    /// Images that are being made, restored from or removed.
    pins: Mutex<HashMap<SnapshotId, Uses>>,
}

#[derive(Debug, Default)]
struct Uses {
    pins: usize,
    removing: bool,
}

/// Keeps an image from being removed.
#[derive(Debug)]
pub(crate) struct Pin {
    images: Arc<Images>,
    id: SnapshotId,
}

impl Drop for Pin {
    fn drop(&mut self) {
        let mut pins = self.images.pins.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(uses) = pins.get_mut(&self.id) {
            uses.pins -= 1;
            if uses.pins == 0 && !uses.removing {
                pins.remove(&self.id);
            }
        }
    }
}

/// The right to remove an image that nobody uses. Until it is dropped nobody can begin to.
#[derive(Debug)]
pub(crate) struct Removal {
    images: Arc<Images>,
    id: SnapshotId,
}

impl Drop for Removal {
    fn drop(&mut self) {
        let mut pins = self.images.pins.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(uses) = pins.get_mut(&self.id) {
            uses.removing = false;
            if uses.pins == 0 {
                pins.remove(&self.id);
            }
        }
    }
}

/// What an image is to be.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) kind: SnapshotKind,
    pub(crate) name: Option<String>,
    pub(crate) metadata: BTreeMap<String, String>,
}

impl Plan {
    pub(crate) fn of(kind: SnapshotKind) -> Self {
        Self { kind, name: None, metadata: BTreeMap::new() }
    }

    fn steps(&self) -> [Option<&'static str>; 3] {
        match self.kind {
            SnapshotKind::Snapshot => ["snapshot.recorded", "snapshot.captured", "snapshot.placed"].map(Some),
            SnapshotKind::Fork => [None; 3],
            SnapshotKind::Hibernation => ["hibernate.recorded", "hibernate.captured", "hibernate.placed"].map(Some),
        }
    }
}

fn reached(step: Option<&'static str>) {
    if let Some(step) = step {
        journal::reached(step);
    }
}

/// An image whose machine has been captured, and which is not sealed yet.
#[derive(Debug)]
pub(crate) struct Captured {
    pub(crate) record: SnapshotRecord,
    draft: Draft,
    meta: Meta,
    placed: Option<&'static str>,
    pub(crate) pin: Pin,
}

/// An image that is whole on disk, and which is not committed yet.
#[derive(Debug)]
pub(crate) struct Sealed {
    pub(crate) record: SnapshotRecord,
    pub(crate) pin: Pin,
}

impl Images {
    pub(crate) fn new(
        engine: Arc<dyn Engine>,
        store: Store,
        dirs: SnapshotStore,
        templates: Templates,
        config: Arc<ManagerConfig>,
        cpu: Cpu,
    ) -> Self {
        let (launches, pins) = (Semaphore::new(CONCURRENT_LAUNCHES), Mutex::default());
        Self { engine, store, dirs, templates, config, cpu, launches, pins }
    }

    pub(crate) fn pin(self: &Arc<Self>, id: &SnapshotId) -> Pin {
        self.pins.lock().unwrap_or_else(PoisonError::into_inner).entry(id.clone()).or_default().pins += 1;
        Pin { images: Arc::clone(self), id: id.clone() }
    }

    /// A pin on an image that somebody names; `None` if it is being removed.
    pub(crate) fn try_pin(self: &Arc<Self>, id: &SnapshotId) -> Option<Pin> {
        let pin = self.pin(id);
        let pins = self.pins.lock().unwrap_or_else(PoisonError::into_inner);
        let removing = pins.get(id).is_some_and(|uses| uses.removing);
        drop(pins);
        (!removing).then_some(pin)
    }

    /// The right to remove an image; `None` if it is used, or somebody else is about to remove it.
    pub(crate) fn claim_removal(self: &Arc<Self>, id: &SnapshotId) -> Option<Removal> {
        let mut pins = self.pins.lock().unwrap_or_else(PoisonError::into_inner);
        if pins.contains_key(id) {
            return None;
        }
        pins.insert(id.clone(), Uses { pins: 0, removing: true });
        Some(Removal { images: Arc::clone(self), id: id.clone() })
    }

    pub(crate) fn is_pinned(&self, id: &SnapshotId) -> bool {
        self.pins.lock().unwrap_or_else(PoisonError::into_inner).contains_key(id)
    }

    /// Writes memory, processes and files of a running machine into a fresh image. The machine goes on.
    pub(crate) async fn capture(
        self: &Arc<Self>,
        source: &SandboxRecord,
        vm: &Arc<dyn Vm>,
        agent_generation: u32,
        plan: Plan,
    ) -> Result<Captured, CaptureError> {
        if self.engine.capabilities().snapshot < SnapshotSupport::Memory {
            return Err(CaptureError::Unsupported { engine: self.engine.kind().name() });
        }
        self.admit(source, vm, plan.kind).await?;
        let meta = self.meta(source, agent_generation).await?;
        let [recorded, captured, placed] = plan.steps();
        let record = new_record(source, plan);
        let pin = self.pin(&record.id);
        self.store.insert_snapshot(&record).await?;
        reached(recorded);
        match self.draw(&record, vm).await {
            Ok((draft, paused_ms)) => {
                reached(captured);
                let record = SnapshotRecord { paused_ms, ..record };
                Ok(Captured { record, draft, meta, placed, pin })
            }
            Err(error) => {
                self.discard(&record.id).await;
                Err(error)
            }
        }
    }

    async fn draw(&self, record: &SnapshotRecord, vm: &Arc<dyn Vm>) -> Result<(Draft, u64), CaptureError> {
        let draft = self.dirs.begin(&record.id).map_err(|error| self.write_error(error.to_string()))?;
        match vm.snapshot(draft.path()).await {
            Ok(report) => Ok((draft, report.paused_ms)),
            Err(error) => Err(self.write_error(chain(&error))),
        }
    }

    async fn meta(&self, source: &SandboxRecord, agent_generation: u32) -> Result<Meta, CaptureError> {
        let template = self.templates.version(&source.template, &source.template_hash).await;
        let template = template.ok_or_else(|| CaptureError::Engine { detail: "its template is gone".to_owned() })?;
        Ok(Meta {
            engine: self.engine.kind(),
            engine_version: self.engine.capabilities().engine_version.clone(),
            cpu: self.cpu.clone(),
            template: TemplateRef { name: template.name.clone(), hash: template.hash.clone() },
            agent_generation,
            resources: template.resources,
            created_at: Timestamp::now(),
        })
    }

    /// Gives a captured image its checksums, its manifest and its place.
    pub(crate) async fn seal(
        self: &Arc<Self>,
        captured: Captured,
        durability: Durability,
    ) -> Result<Sealed, CaptureError> {
        let Captured { mut record, draft, meta, placed, pin } = captured;
        let template = self.templates.version(&meta.template.name, &meta.template.hash).await;
        let base = template.and_then(|template| template.snapshot.clone());
        let finished = tokio::task::spawn_blocking(move || draft.finish(meta, durability, base.as_deref())).await;
        let error = match finished {
            Ok(Ok(manifest)) => {
                reached(placed);
                record.size_bytes = manifest.size_bytes();
                match self.admit_sealed(&record).await {
                    Ok(()) => return Ok(Sealed { record, pin }),
                    Err(error) => error,
                }
            }
            Ok(Err(error)) => self.write_error(chain(&error)),
            Err(join) => CaptureError::Engine { detail: join.to_string() },
        };
        self.discard(&record.id).await;
        Err(error)
    }

    /// Whether there is room for another image.
    pub(crate) async fn admit(
        &self,
        source: &SandboxRecord,
        vm: &Arc<dyn Vm>,
        kind: SnapshotKind,
    ) -> Result<(), CaptureError> {
        let expected = vm.usage().await.map(|usage| usage.memory_bytes).unwrap_or(0);
        let mib = 1024 * 1024;
        if let Ok(space) = self.dirs.space()
            && space.free_bytes < expected.saturating_add(self.config.min_free_disk_mib * mib)
        {
            return Err(CaptureError::Disk { free_mib: space.free_bytes / mib, needed_mib: expected / mib });
        }
        let (count, bytes) = self.store.snapshot_usage(&source.workspace).await?;
        let limit = self.config.max_snapshots;
        if kind == SnapshotKind::Snapshot && count >= limit as u64 {
            return Err(CaptureError::Quota { limit });
        }
        match self.config.max_disk_mib {
            // How much of it is new is known once it is sealed.
            Some(limit_mib) if kind != SnapshotKind::Fork && bytes >= limit_mib * mib => {
                Err(CaptureError::DiskQuota { limit_mib })
            }
            _ => Ok(()),
        }
    }

    /// Whether an image that is whole on disk fits what its workspace may have.
    async fn admit_sealed(&self, record: &SnapshotRecord) -> Result<(), CaptureError> {
        let Some(limit_mib) = self.config.max_disk_mib.filter(|_| record.kind != SnapshotKind::Fork) else {
            return Ok(());
        };
        let (_, bytes) = self.store.snapshot_usage(&record.workspace).await?;
        let fits = bytes.saturating_add(record.size_bytes) <= limit_mib * 1024 * 1024;
        if fits { Ok(()) } else { Err(CaptureError::DiskQuota { limit_mib }) }
    }

    /// What went wrong while files were written, told apart from a full disk.
    fn write_error(&self, detail: String) -> CaptureError {
        let says_full = detail.to_ascii_lowercase().contains("no space left");
        match self.dirs.space() {
            Ok(space) if says_full || space.free_bytes < FULL_DISK_BYTES => {
                CaptureError::Disk { free_mib: space.free_bytes / (1024 * 1024), needed_mib: 0 }
            }
            _ => CaptureError::Engine { detail },
        }
    }

    /// Removes an image and what is known of it. What fails is left to the next collection.
    pub(crate) async fn discard(&self, id: &SnapshotId) {
        if let Err(error) = self.remove(id).await {
            tracing::warn!(image = %id, error, "an image could not be removed yet");
        }
    }

    pub(crate) async fn remove(&self, id: &SnapshotId) -> Result<(), String> {
        let text = |error: StoreError| chain(&error);
        self.store.mark_snapshot_deleting(id).await.map_err(text)?;
        let (dirs, removed) = (self.dirs.clone(), id.clone());
        let done = tokio::task::spawn_blocking(move || dirs.remove(&removed)).await;
        done.map_err(|join| join.to_string())?.map_err(|error| error.to_string())?;
        self.store.forget_snapshot(id).await.map_err(text)?;
        Ok(())
    }

    /// Brings up a machine from an image. It has the identity of its source until it is personalized.
    pub(crate) async fn restore(
        self: &Arc<Self>,
        id: &SnapshotId,
        record: &SandboxRecord,
    ) -> Result<(VmGuard, AgentClient), RestoreError> {
        let _pin = self.pin(id);
        self.check(id).await?;
        let (name, hash) = (&record.template, &record.template_hash);
        let template = self
            .templates
            .version(name, hash)
            .await
            .ok_or_else(|| RestoreError::TemplateGone { name: name.clone(), hash: hash.clone() })?;
        // Waiting for a turn is not the machine's fault, so it does not count against its time.
        let _turn = self.launches.acquire().await.map_err(|_| RestoreError::ShuttingDown)?;
        let opened = self.open(id, template.snapshot.clone()).await?;
        let limit = self.config.launch_timeout;
        match self.start(&template, &opened, limit / 2).await {
            // Nothing has happened in it yet and the image is as it was. Under load one restore of some hundreds never answers or ends.
            Err(error @ (LaunchError::Timeout { .. } | LaunchError::Link(_) | LaunchError::Hello { .. })) => {
                tracing::warn!(image = %id, error = %chain(&error), "restoring an image once more");
                Ok(self.start(&template, &opened, limit).await?)
            }
            started => Ok(started?),
        }
    }

    async fn start(
        &self,
        template: &BuiltTemplate,
        image: &Opened,
        limit: Duration,
    ) -> Result<(VmGuard, AgentClient), LaunchError> {
        let spec = template.vm_spec(VmId::random(), launch::TEMPLATE_HOSTNAME);
        launch::start(self.engine.as_ref(), &spec, Some(image.path()), limit).await
    }

    /// The files of an image as an engine wants them, until what this returns is dropped.
    async fn open(self: &Arc<Self>, id: &SnapshotId, base: Option<PathBuf>) -> Result<Opened, RestoreError> {
        let (dirs, id, pin) = (self.dirs.clone(), id.clone(), self.pin(id));
        let opened = tokio::task::spawn_blocking(move || {
            let _pin = pin;
            dirs.open_for_restore(&id, base.as_deref())
        });
        Ok(opened.await.map_err(|_| RestoreError::ShuttingDown)??)
    }

    async fn check(self: &Arc<Self>, id: &SnapshotId) -> Result<(), RestoreError> {
        let (images, id) = (Arc::clone(self), id.clone());
        let checked = tokio::task::spawn_blocking(move || {
            let host = HostFacts {
                engine: images.engine.kind(),
                capabilities: images.engine.capabilities(),
                cpu: &images.cpu,
                agent_generation: pandastack_agent_protocol::GENERATION,
            };
            images.dirs.check(&id, &host)
        });
        checked.await.map_err(|_| RestoreError::ShuttingDown)??;
        Ok(())
    }
}

fn new_record(source: &SandboxRecord, plan: Plan) -> SnapshotRecord {
    SnapshotRecord {
        id: SnapshotId::random(),
        workspace: source.workspace.clone(),
        sandbox_id: source.id.clone(),
        kind: plan.kind,
        status: SnapshotStatus::Creating,
        name: plan.name,
        metadata: plan.metadata,
        template: source.template.clone(),
        template_hash: source.template_hash.clone(),
        cpu: source.cpu,
        memory_mb: source.memory_mb,
        size_bytes: 0,
        paused_ms: 0,
        created_at_ms: now_ms(),
    }
}
