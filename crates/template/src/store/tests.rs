use std::sync::Mutex;

use async_trait::async_trait;
use pandastack_engine::{AdoptError, BootError, Capabilities, Isolation, ReapError, ReapReport, Vm, error::ToolError};

use super::*;

/// An engine that starts nothing.
#[derive(Debug)]
struct Inert {
    kind: EngineKind,
    capabilities: Capabilities,
    adopted: Mutex<Vec<String>>,
}

impl Inert {
    fn new(kind: EngineKind, version: &str) -> Self {
        let capabilities = Capabilities {
            isolation: Isolation::None,
            snapshot: SnapshotSupport::Memory,
            snapshot_stops_source: false,
            shares_pages: false,
            engine_version: version.to_owned(),
            missing_limits: Vec::new(),
        };
        Self { kind, capabilities, adopted: Mutex::default() }
    }
}

#[async_trait]
impl Engine for Inert {
    fn kind(&self) -> EngineKind {
        self.kind
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    async fn boot(&self, _spec: &VmSpec) -> Result<Arc<dyn Vm>, BootError> {
        Err(ToolError::Timeout { tool: "inert".to_owned(), action: "boot".to_owned(), seconds: 0 }.into())
    }

    async fn restore(&self, spec: &VmSpec, _snapshot_dir: &Path) -> Result<Arc<dyn Vm>, BootError> {
        self.boot(spec).await
    }

    async fn adopt(&self, id: &VmId) -> Result<Arc<dyn Vm>, AdoptError> {
        self.adopted.lock().unwrap().push(id.to_string());
        Err(AdoptError::NotFound(id.clone()))
    }

    async fn reap(&self, _keep: &BTreeSet<VmId>) -> Result<ReapReport, ReapError> {
        Ok(ReapReport::default())
    }
}

struct Fixture {
    dir: tempfile::TempDir,
    store: TemplateStore,
    agent: PathBuf,
    recipe: &'static Recipe,
}

fn fixture() -> Fixture {
    let dir = tempfile::tempdir().unwrap();
    let agent = dir.path().join("agent-binary");
    fs_err::write(&agent, "agent 1").unwrap();
    let store = TemplateStore::open(&dir.path().join("data")).unwrap().with_sim_python("/usr/bin/python3");
    Fixture { store, agent, recipe: TemplateStore::resolve("ubuntu-24.04").unwrap(), dir }
}

fn sim(version: &str) -> Arc<Inert> {
    Arc::new(Inert::new(EngineKind::Sim, version))
}

#[tokio::test]
async fn a_sim_template_needs_no_system() {
    let f = fixture();
    assert_eq!(f.store.changed(f.recipe), None);
    assert_eq!(f.store.ready(f.recipe, sim("1").as_ref(), &f.agent).await.unwrap(), None);
    let built = f.store.build(f.recipe, sim("1"), &f.agent, &Silent).await.unwrap();
    assert_eq!((built.name.as_str(), built.snapshot.as_deref()), ("code-interpreter", None));
    assert!(built.rootfs.is_dir() && built.runtime_dir.join("agent").is_file());
    let interpreter = built.runtime_dir.join("interpreter").display().to_string();
    assert_eq!(built.agent_args, ["--interpreter", &interpreter, "--python", "/usr/bin/python3"]);
    assert!(f.store.changed(f.recipe).is_some());
    assert_eq!(f.store.ready(f.recipe, sim("1").as_ref(), &f.agent).await.unwrap(), Some(built.clone()));
    assert_eq!(f.store.build(f.recipe, sim("1"), &f.agent, &Silent).await.unwrap(), built);
    let spec = built.vm_spec(VmId::random(), "host");
    assert_eq!((spec.rootfs, spec.resources, spec.hostname.as_str()), (built.rootfs, built.resources, "host"));
}

#[tokio::test]
async fn another_agent_or_engine_version_is_another_template() {
    let f = fixture();
    let first = f.store.build(f.recipe, sim("1"), &f.agent, &Silent).await.unwrap();
    assert_eq!(f.store.ready(f.recipe, sim("2").as_ref(), &f.agent).await.unwrap(), None);
    fs_err::write(&f.agent, "agent 2").unwrap();
    assert_eq!(f.store.ready(f.recipe, sim("1").as_ref(), &f.agent).await.unwrap(), None);
    let second = f.store.build(f.recipe, sim("1"), &f.agent, &Silent).await.unwrap();
    assert_ne!((&first.hash, &first.runtime_dir), (&second.hash, &second.runtime_dir));
    assert_eq!(first.rootfs, second.rootfs);
}

#[tokio::test]
async fn an_older_version_is_found_by_its_hash() {
    let f = fixture();
    let old = f.store.build(f.recipe, sim("1"), &f.agent, &Silent).await.unwrap();
    fs_err::write(&f.agent, "agent 2").unwrap();
    assert_eq!(f.store.ready(f.recipe, sim("1").as_ref(), &f.agent).await.unwrap(), None);
    assert_eq!(f.store.by_hash(&old.name, &old.hash), Some(old.clone()));
    let leading_out = format!("../{}/{}", old.name, old.hash);
    for hash in
        ["", ".", "..", "/", "absent", &leading_out, &format!("{}/", old.hash), &format!("./{}", old.hash), "a\0b"]
    {
        assert_eq!(f.store.by_hash(&old.name, hash), None, "{hash:?}");
    }
    for name in ["", "..", "../templates/code-interpreter", "ubuntu-24.04"] {
        assert_eq!(f.store.by_hash(name, &old.hash), None, "{name:?}");
    }
    let copy = f.store.template_path(&old.name, "copied");
    fs_err::create_dir(&copy).unwrap();
    fs_err::copy(f.store.template_path(&old.name, &old.hash).join(TEMPLATE_MANIFEST), copy.join(TEMPLATE_MANIFEST))
        .unwrap();
    assert_eq!(f.store.by_hash(&old.name, "copied"), None, "it says that it is another");
    fs_err::remove_dir_all(&old.runtime_dir).unwrap();
    assert_eq!(f.store.by_hash(&old.name, &old.hash), None);
}

#[tokio::test]
async fn a_damaged_template_is_built_again() {
    let f = fixture();
    let built = f.store.build(f.recipe, sim("1"), &f.agent, &Silent).await.unwrap();
    let record = f.store.template_path(&built.name, &built.hash).join(TEMPLATE_MANIFEST);
    fs_err::write(&record, "{").unwrap();
    assert_eq!(f.store.ready(f.recipe, sim("1").as_ref(), &f.agent).await.unwrap(), None);
    f.store.build(f.recipe, sim("1"), &f.agent, &Silent).await.unwrap();
    fs_err::remove_dir_all(&built.runtime_dir).unwrap();
    assert_eq!(f.store.ready(f.recipe, sim("1").as_ref(), &f.agent).await.unwrap(), None);
    f.store.build(f.recipe, sim("1"), &f.agent, &Silent).await.unwrap();
    assert!(f.store.ready(f.recipe, sim("1").as_ref(), &f.agent).await.unwrap().is_some());
}

#[tokio::test]
async fn an_interrupted_build_is_cleared_away() {
    let f = fixture();
    let bench = f.dir.path().join("data/building/build-0123");
    fs_err::create_dir_all(bench.join("rootfs/root")).unwrap();
    let id = VmId::random();
    crate::workshop::note_machine(&bench, &id).unwrap();
    let engine = sim("1");
    f.store.sweep(engine.as_ref()).await.unwrap();
    assert!(!bench.exists());
    assert_eq!(*engine.adopted.lock().unwrap(), [id.to_string()]);
}

/// A machine that cannot start: the root file system is kept for the next try, and nothing else.
#[tokio::test]
async fn a_failed_bake_leaves_no_template() {
    let f = fixture();
    let engine = Arc::new(Inert::new(EngineKind::Gvisor, "1"));
    let plan = f.store.plan(f.recipe, engine.as_ref(), &f.agent).unwrap();
    let rootfs = f.store.rootfs_path(&plan.rootfs_hash);
    fs_err::create_dir_all(rootfs.join("root")).unwrap();
    let record = RootfsManifest {
        format: FORMAT,
        hash: plan.rootfs_hash.clone(),
        size_bytes: 1,
        created_at: Timestamp::UNIX_EPOCH,
    };
    manifest::write(&rootfs.join(ROOTFS_MANIFEST), &record).unwrap();
    let Err(error) = f.store.build(f.recipe, Arc::clone(&engine) as Arc<dyn Engine>, &f.agent, &Silent).await else {
        panic!("the engine starts nothing");
    };
    assert!(matches!(error, BuildError::Bake(crate::BakeError::Boot(_))), "{error}");
    assert!(rootfs.join("root").is_dir());
    assert!(!f.dir.path().join("data/templates").exists());
    assert_eq!(children(&f.dir.path().join("data/building")).unwrap().len(), 1, "only the lock");
}

#[tokio::test]
async fn pruning_keeps_what_is_needed() {
    let f = fixture();
    let old = f.store.build(f.recipe, sim("1"), &f.agent, &Silent).await.unwrap();
    fs_err::write(&f.agent, "agent 2").unwrap();
    let new = f.store.build(f.recipe, sim("1"), &f.agent, &Silent).await.unwrap();
    let report = f.store.prune(&BTreeSet::from([new.hash.clone()])).await.unwrap();
    assert_eq!(report.removed.len(), 2, "{report:?}");
    assert!(!old.runtime_dir.exists() && new.runtime_dir.exists() && new.rootfs.exists());
    assert!(f.store.ready(f.recipe, sim("1").as_ref(), &f.agent).await.unwrap().is_some());
    let rest = f.store.prune(&BTreeSet::new()).await.unwrap();
    assert_eq!(rest.removed.len(), 3, "{rest:?}");
}
