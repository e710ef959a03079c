//! The templates of a data directory: what is built, what still fits, building what does not.

use std::{
    collections::BTreeSet,
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::SystemTime,
};

use jiff::Timestamp;
use pandastack_agent_protocol::GENERATION;
use pandastack_engine::{Engine, EngineKind, Resources, SnapshotSupport, VmId, VmSpec, vm::RUNTIME_MOUNT};
use pandastack_snapshot::{Cpu, HostFacts};

use crate::{
    bake,
    error::{BuildError, StoreError},
    manifest::{self, FORMAT, ROOTFS_MANIFEST, RootfsManifest, TEMPLATE_MANIFEST, TemplateManifest},
    progress::{Progress, Silent, step},
    recipe::{Recipe, first_party},
    rootfs::{self, rootfs_hash, sandbox_environment},
    runtime::{self, INTERPRETER_DIR, runtime_hash},
    workshop::{Workshop, remove_tree},
};

/// The Python of `sim`, which has no root file system.
const SIM_PYTHON_VARIABLE: &str = "PANDASTACK_SIM_PYTHON";
const MIB: u64 = 1024 * 1024;

/// A template that sandboxes can start from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuiltTemplate {
    pub name: String,
    /// Of everything that went into it.
    pub hash: String,
    /// The root file system on the host.
    pub rootfs: PathBuf,
    /// [`VmSpec::runtime_dir`].
    pub runtime_dir: PathBuf,
    /// `None` where the engine restores no memory: boot instead.
    pub snapshot: Option<PathBuf>,
    pub agent_args: Vec<String>,
    pub env: Vec<(String, String)>,
    pub resources: Resources,
    /// Root file system and snapshot, on disk, in bytes.
    pub size_bytes: u64,
    pub created_at: Timestamp,
}

impl BuiltTemplate {
    /// What an engine needs to start a machine of it.
    #[must_use]
    pub fn vm_spec(&self, id: VmId, hostname: &str) -> VmSpec {
        VmSpec {
            id,
            rootfs: self.rootfs.clone(),
            runtime_dir: self.runtime_dir.clone(),
            agent_args: self.agent_args.clone(),
            env: self.env.clone(),
            hostname: hostname.to_owned(),
            resources: self.resources,
        }
    }
}

/// What [`TemplateStore::prune`] removed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PruneReport {
    /// Directories, relative to the data directory.
    pub removed: Vec<PathBuf>,
}

/// The templates of one data directory. Several processes may use one at the same time.
#[derive(Clone, Debug)]
pub struct TemplateStore {
    data_dir: PathBuf,
    sim_python: String,
}

/// What a template of a recipe would be made of here and now.
struct Plan<'a> {
    recipe: &'a Recipe,
    hash: String,
    rootfs_hash: String,
    runtime_hash: String,
    agent_args: Vec<String>,
    env: Vec<(String, String)>,
    cpu: Cpu,
    engine: EngineKind,
}

impl TemplateStore {
    /// Opens the store of a data directory, which is created if missing.
    ///
    /// # Errors
    /// The directory could not be created.
    pub fn open(data_dir: &Path) -> Result<Self, StoreError> {
        let failed = |source| StoreError::Io { action: "open", path: data_dir.to_owned(), source };
        fs_err::create_dir_all(data_dir).map_err(failed)?;
        let data_dir = fs_err::canonicalize(data_dir).map_err(failed)?;
        let sim_python = std::env::var(SIM_PYTHON_VARIABLE).unwrap_or_else(|_| "python3".to_owned());
        Ok(Self { data_dir, sim_python })
    }

    /// Chooses the Python that the `sim` engine runs, instead of the variable `PANDASTACK_SIM_PYTHON` or `python3`.
    #[must_use]
    pub fn with_sim_python(mut self, python: &str) -> Self {
        python.clone_into(&mut self.sim_python);
        self
    }

    /// The recipes that come with the program.
    #[must_use]
    pub fn recipes() -> &'static [Recipe] {
        first_party()
    }

    /// Finds a recipe by its name or an alias.
    #[must_use]
    pub fn resolve(name: &str) -> Option<&'static Recipe> {
        first_party().iter().find(|recipe| recipe.answers_to(name))
    }

    /// When a version of this template was last added or removed; `None` if there never was one. Cheap, to notice a rebuild by.
    #[must_use]
    pub fn changed(&self, recipe: &Recipe) -> Option<SystemTime> {
        fs_err::metadata(self.data_dir.join("templates").join(&recipe.name))
            .and_then(|metadata| metadata.modified())
            .ok()
    }

    /// Returns the template if it is built and everything it was made of is still the same: recipe, agent, interpreter, engine and
    /// its version, processor.
    ///
    /// # Errors
    /// The agent could not be read or the processor not be identified. A damaged template is not an error but not ready.
    pub async fn ready(
        &self,
        recipe: &Recipe,
        engine: &dyn Engine,
        agent: &Path,
    ) -> Result<Option<BuiltTemplate>, StoreError> {
        let plan = self.plan(recipe, engine, agent)?;
        Ok(self.find(&plan, engine))
    }

    /// A version of a template that is still on disk, whether or not it is what would be built now. Its snapshot is not looked at:
    /// this is for what was made from that version and needs its root file system and runtime.
    #[must_use]
    pub fn by_hash(&self, name: &str, hash: &str) -> Option<BuiltTemplate> {
        if !is_file_name(name) || !is_file_name(hash) {
            return None;
        }
        self.whole(name, hash)
    }

    /// Builds what is missing of a template; does nothing if it is ready. Safe to interrupt and to run twice at the same time.
    ///
    /// # Errors
    /// A step failed. What existed before is untouched, and what was half made is removed, at the latest by the next build.
    pub async fn build(
        &self,
        recipe: &Recipe,
        engine: Arc<dyn Engine>,
        agent: &Path,
        progress: &dyn Progress,
    ) -> Result<BuiltTemplate, BuildError> {
        let plan = self.plan(recipe, engine.as_ref(), agent)?;
        if let Some(template) = self.find(&plan, engine.as_ref()) {
            return Ok(template);
        }
        let workshop = Workshop::enter(&self.data_dir.join("building"), progress).await?;
        workshop.sweep(Some(engine.as_ref())).await?;
        // Another build may have made it while this one waited.
        if let Some(template) = self.find(&plan, engine.as_ref()) {
            return Ok(template);
        }
        let bench = workshop.bench()?;
        let result = self.build_on(&bench, &plan, engine.as_ref(), agent, progress).await;
        if let Err(error) = workshop.discard(&bench, Some(engine.as_ref())).await {
            tracing::warn!(%error, "could not tidy up after a build; the next one will");
        }
        result
    }

    /// Removes what killed builds left, unless a build is under way. For the start of a server.
    ///
    /// # Errors
    /// Something could not be removed.
    pub async fn sweep(&self, engine: &dyn Engine) -> Result<(), StoreError> {
        if let Some(workshop) = Workshop::try_enter(&self.data_dir.join("building"))? {
            workshop.sweep(Some(engine)).await?;
        }
        Ok(())
    }

    /// Removes every version of every template whose hash is not in `keep`, then the root file systems and runtimes that no remaining
    /// version needs. The caller keeps what is ready and what a sandbox or snapshot was made from.
    ///
    /// # Errors
    /// Something could not be removed; what was removed stays so.
    pub async fn prune(&self, keep: &BTreeSet<String>) -> Result<PruneReport, StoreError> {
        let workshop = Workshop::enter(&self.data_dir.join("building"), &Silent).await?;
        let (store, keep) = (self.clone(), keep.clone());
        let task = tokio::task::spawn_blocking(move || store.prune_blocking(&keep));
        let report = task.await.map_err(|_| StoreError::Interrupted)?;
        drop(workshop);
        report
    }

    fn plan<'a>(&self, recipe: &'a Recipe, engine: &dyn Engine, agent: &Path) -> Result<Plan<'a>, StoreError> {
        let sim = engine.kind() == EngineKind::Sim;
        let runtime_hash = runtime_hash(agent).map_err(|source| StoreError::Io {
            action: "read the agent",
            path: agent.to_owned(),
            source,
        })?;
        let rootfs_hash = if sim { "empty".to_owned() } else { rootfs_hash(recipe) };
        let interpreter = if sim {
            self.runtime_path(&runtime_hash).join(INTERPRETER_DIR).display().to_string()
        } else {
            format!("{RUNTIME_MOUNT}/{INTERPRETER_DIR}")
        };
        let python = if sim { self.sim_python.as_str() } else { "/usr/bin/python3" };
        let agent_args = agent_args(recipe, &interpreter, python, sim);
        let env = if sim { sim_environment() } else { sandbox_environment() };
        let cpu = Cpu::of_host()?;
        let capabilities = engine.capabilities();
        let inputs = (
            (FORMAT, &recipe.name, &rootfs_hash, &runtime_hash, &agent_args, &env, recipe.resources()),
            (
                &recipe.interpreter,
                engine.kind(),
                &capabilities.engine_version,
                capabilities.snapshot,
                cpu.fingerprint(),
            ),
        );
        let encoded = serde_json::to_vec(&inputs).expect("strings and numbers can be encoded");
        let hash = blake3::hash(&encoded).to_hex()[..32].to_owned();
        Ok(Plan { recipe, hash, rootfs_hash, runtime_hash, agent_args, env, cpu, engine: engine.kind() })
    }

    fn rootfs_path(&self, hash: &str) -> PathBuf {
        self.data_dir.join("rootfs").join(hash)
    }

    fn runtime_path(&self, hash: &str) -> PathBuf {
        self.data_dir.join("runtime").join(hash)
    }

    fn template_path(&self, name: &str, hash: &str) -> PathBuf {
        self.data_dir.join("templates").join(name).join(hash)
    }

    /// Looks a planned template up and makes sure that it is whole.
    fn find(&self, plan: &Plan<'_>, engine: &dyn Engine) -> Option<BuiltTemplate> {
        let template = self.whole(&plan.recipe.name, &plan.hash)?;
        if let Some(snapshot) = &template.snapshot
            && let Err(reason) = self.snapshot_fits(snapshot, plan, engine)
        {
            tracing::warn!(template = %template.name, %reason, "the template's snapshot cannot be used");
            return None;
        }
        Some(template)
    }

    /// A version whose record, root file system and runtime are there.
    fn whole(&self, name: &str, hash: &str) -> Option<BuiltTemplate> {
        let record: TemplateManifest = manifest::read(&self.template_path(name, hash).join(TEMPLATE_MANIFEST))?;
        let template = self.assemble(&record);
        let whole = record.format == FORMAT
            && record.name == name
            && record.hash == hash
            && template.rootfs.is_dir()
            && template.runtime_dir.join(runtime::AGENT_NAME).is_file();
        whole.then_some(template)
    }

    fn snapshot_fits(&self, dir: &Path, plan: &Plan<'_>, engine: &dyn Engine) -> Result<(), String> {
        let read = pandastack_snapshot::read(dir).map_err(|error| error.to_string())?;
        let host = HostFacts {
            engine: engine.kind(),
            capabilities: engine.capabilities(),
            cpu: &plan.cpu,
            agent_generation: GENERATION,
        };
        pandastack_snapshot::verdict(&read, &host).map_err(|error| error.to_string())?;
        pandastack_snapshot::check_sizes(dir, &read.files).map_err(|error| error.to_string())
    }

    fn assemble(&self, record: &TemplateManifest) -> BuiltTemplate {
        let snapshot = self.template_path(&record.name, &record.hash).join("snapshot");
        BuiltTemplate {
            name: record.name.clone(),
            hash: record.hash.clone(),
            rootfs: self.rootfs_path(&record.rootfs_hash).join("root"),
            runtime_dir: self.runtime_path(&record.runtime_hash),
            snapshot: record.snapshot.then_some(snapshot),
            agent_args: record.agent_args.clone(),
            env: record.env.clone(),
            resources: record.resources,
            size_bytes: record.size_bytes,
            created_at: record.created_at,
        }
    }

    async fn build_on(
        &self,
        bench: &Path,
        plan: &Plan<'_>,
        engine: &dyn Engine,
        agent: &Path,
        progress: &dyn Progress,
    ) -> Result<BuiltTemplate, BuildError> {
        let rootfs = self.ensure_rootfs(bench, plan, progress).await?;
        self.ensure_runtime(bench, plan, agent)?;
        let mut record = TemplateManifest {
            format: FORMAT,
            name: plan.recipe.name.clone(),
            hash: plan.hash.clone(),
            rootfs_hash: plan.rootfs_hash.clone(),
            runtime_hash: plan.runtime_hash.clone(),
            engine: plan.engine,
            engine_version: engine.capabilities().engine_version.clone(),
            snapshot: false,
            agent_args: plan.agent_args.clone(),
            env: plan.env.clone(),
            resources: plan.recipe.resources(),
            size_bytes: rootfs.size_bytes,
            created_at: Timestamp::now(),
        };
        let dir = bench.join("template");
        create_dir(&dir)?;
        if plan.engine != EngineKind::Sim && engine.capabilities().snapshot >= SnapshotSupport::Memory {
            let warm_cell = &plan.recipe.interpreter.warm_cell;
            let baked = bake::bake(engine, &self.assemble(&record), warm_cell, bench, progress).await?;
            rename(&bench.join("snapshot"), &dir.join("snapshot"))?;
            record.snapshot = true;
            record.size_bytes += baked.size_bytes();
        }
        manifest::write(&dir.join(TEMPLATE_MANIFEST), &record)?;
        publish(&dir, &self.template_path(&record.name, &record.hash))?;
        Ok(self.assemble(&record))
    }

    async fn ensure_rootfs(
        &self,
        bench: &Path,
        plan: &Plan<'_>,
        progress: &dyn Progress,
    ) -> Result<RootfsManifest, BuildError> {
        let target = self.rootfs_path(&plan.rootfs_hash);
        let existing = manifest::read::<RootfsManifest>(&target.join(ROOTFS_MANIFEST));
        if let Some(record) = existing.filter(|record| record.format == FORMAT && target.join("root").is_dir()) {
            return Ok(record);
        }
        let dir = bench.join("rootfs");
        create_dir(&dir)?;
        if plan.engine == EngineKind::Sim {
            create_dir(&dir.join("root"))?;
        } else {
            rootfs::build(plan.recipe, &dir, progress).await?;
        }
        let store = self.clone();
        let hash = plan.rootfs_hash.clone();
        let finish = tokio::task::spawn_blocking(move || store.finish_rootfs(&dir, hash));
        let finish = async { finish.await.map_err(|_| StoreError::Interrupted)? };
        Ok(step(progress, "store", "writing to disk", finish).await?)
    }

    fn finish_rootfs(&self, dir: &Path, hash: String) -> Result<RootfsManifest, StoreError> {
        let failed = |action| move |source| StoreError::Io { action, path: dir.to_owned(), source };
        let scratch = dir.join("scratch");
        if scratch.exists() {
            fs_err::remove_dir_all(scratch).map_err(failed("tidy up"))?;
        }
        let size_bytes = disk_usage(&dir.join("root")).map_err(failed("measure"))?;
        let record = RootfsManifest { format: FORMAT, hash, size_bytes, created_at: Timestamp::now() };
        manifest::write(&dir.join(ROOTFS_MANIFEST), &record)?;
        publish(dir, &self.rootfs_path(&record.hash))?;
        Ok(record)
    }

    fn ensure_runtime(&self, bench: &Path, plan: &Plan<'_>, agent: &Path) -> Result<(), StoreError> {
        let target = self.runtime_path(&plan.runtime_hash);
        if target.join(runtime::AGENT_NAME).is_file() {
            return Ok(());
        }
        let dir = bench.join("runtime");
        create_dir(&dir)?;
        runtime::fill(&dir, agent).map_err(|source| StoreError::Io { action: "fill", path: dir.clone(), source })?;
        publish(&dir, &target)
    }

    fn prune_blocking(&self, keep: &BTreeSet<String>) -> Result<PruneReport, StoreError> {
        let mut report = PruneReport::default();
        let (mut rootfs, mut runtimes) = (BTreeSet::new(), BTreeSet::new());
        for name in children(&self.data_dir.join("templates"))? {
            for version in children(&name)? {
                let hash = file_name(&version);
                if keep.contains(&hash)
                    && let Some(record) = manifest::read::<TemplateManifest>(&version.join(TEMPLATE_MANIFEST))
                {
                    rootfs.insert(record.rootfs_hash);
                    runtimes.insert(record.runtime_hash);
                } else {
                    self.remove(&version, &mut report)?;
                }
            }
        }
        for (dir, used) in [("rootfs", rootfs), ("runtime", runtimes)] {
            for version in children(&self.data_dir.join(dir))? {
                if !used.contains(&file_name(&version)) {
                    self.remove(&version, &mut report)?;
                }
            }
        }
        Ok(report)
    }

    fn remove(&self, dir: &Path, report: &mut PruneReport) -> Result<(), StoreError> {
        remove_tree(dir)?;
        report.removed.push(dir.strip_prefix(&self.data_dir).unwrap_or(dir).to_owned());
        Ok(())
    }
}

/// One part of a path, which cannot lead out of the directory it is looked up in.
fn is_file_name(text: &str) -> bool {
    let mut parts = Path::new(text).components();
    matches!((parts.next(), parts.next()), (Some(std::path::Component::Normal(part)), None) if part == text)
}

fn agent_args(recipe: &Recipe, interpreter: &str, python: &str, sim: bool) -> Vec<String> {
    let mut args: Vec<String> = ["--interpreter", interpreter, "--python", python].map(str::to_owned).to_vec();
    // A host's Python need not have the data stack, and its memory is nobody's limit.
    if !sim {
        for module in &recipe.interpreter.warm_imports {
            args.extend(["--warm-import".to_owned(), module.clone()]);
        }
        args.extend(["--cell-memory-bytes".to_owned(), (recipe.interpreter.cell_memory_mib * MIB).to_string()]);
    }
    args
}

/// `sim` runs the host's programs.
fn sim_environment() -> Vec<(String, String)> {
    let of_host =
        |name: &str, default: &str| (name.to_owned(), std::env::var(name).unwrap_or_else(|_| default.to_owned()));
    let fixed = [("LANG", "C.UTF-8"), ("MPLBACKEND", "Agg"), ("PYTHONUNBUFFERED", "1")];
    let mut env = vec![of_host("PATH", crate::tool::HOST_PATH), of_host("HOME", "/")];
    env.extend(fixed.map(|(name, value)| (name.to_owned(), value.to_owned())));
    env
}

/// Gives a finished directory its final name, durably. A damaged one of that name is replaced.
fn publish(dir: &Path, target: &Path) -> Result<(), StoreError> {
    let failed = |action| move |source| StoreError::Io { action, path: target.to_owned(), source };
    let parent = target.parent().expect("final names are below the data directory");
    fs_err::create_dir_all(parent).map_err(failed("make room for"))?;
    let handle = fs_err::File::open(dir).map_err(failed("open what becomes"))?;
    rustix::fs::syncfs(&handle).map_err(|error| failed("write to disk what becomes")(error.into()))?;
    if target.exists() {
        rename(target, &dir.with_extension("replaced"))?;
    }
    rename(dir, target)?;
    pandastack_snapshot::sync_directory(parent).map_err(failed("write to disk"))
}

fn rename(from: &Path, to: &Path) -> Result<(), StoreError> {
    fs_err::rename(from, to).map_err(|source| StoreError::Io { action: "move", path: from.to_owned(), source })
}

fn create_dir(dir: &Path) -> Result<(), StoreError> {
    fs_err::create_dir(dir).map_err(|source| StoreError::Io { action: "create", path: dir.to_owned(), source })
}

fn children(dir: &Path) -> Result<Vec<PathBuf>, StoreError> {
    let failed = |source| StoreError::Io { action: "list", path: dir.to_owned(), source };
    match fs_err::read_dir(dir) {
        Ok(entries) => entries.map(|entry| Ok(entry?.path())).collect::<io::Result<_>>().map_err(failed),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(source) => Err(failed(source)),
    }
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// What a tree takes on disk, in bytes.
fn disk_usage(dir: &Path) -> io::Result<u64> {
    use std::os::unix::fs::MetadataExt;
    let mut pending = vec![dir.to_owned()];
    let (mut bytes, mut linked) = (0, BTreeSet::new());
    while let Some(dir) = pending.pop() {
        for entry in fs_err::read_dir(&dir)? {
            let entry = entry?;
            let metadata = entry.metadata()?;
            if metadata.nlink() == 1 || metadata.is_dir() || linked.insert(metadata.ino()) {
                bytes += metadata.blocks() * 512;
            }
            if metadata.is_dir() {
                pending.push(entry.path());
            }
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests;
