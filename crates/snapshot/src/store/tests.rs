use pandastack_engine::{Capabilities, EngineKind, Isolation, SnapshotSupport};

use super::*;
use crate::manifest::{MANIFEST_NAME, tests::meta};

struct Fixture {
    dir: tempfile::TempDir,
    store: SnapshotStore,
    capabilities: Capabilities,
}

fn fixture() -> Fixture {
    let dir = tempfile::tempdir().unwrap();
    let capabilities = Capabilities {
        isolation: Isolation::Gvisor,
        snapshot: SnapshotSupport::Memory,
        snapshot_stops_source: false,
        shares_pages: false,
        engine_version: "runsc 1".to_owned(),
        missing_limits: Vec::new(),
    };
    Fixture { store: SnapshotStore::open(dir.path()).unwrap(), dir, capabilities }
}

impl Fixture {
    fn check_with(&self, store: &SnapshotStore, id: &SnapshotId) -> Result<Manifest, OpenError> {
        let cpu = meta().cpu;
        let host =
            HostFacts { engine: EngineKind::Gvisor, capabilities: &self.capabilities, cpu: &cpu, agent_generation: 1 };
        store.check(id, &host)
    }

    fn check(&self, id: &SnapshotId) -> Result<Manifest, OpenError> {
        self.check_with(&self.store, id)
    }

    fn made(&self, durability: Durability) -> (SnapshotId, Manifest) {
        let id = SnapshotId::random();
        let draft = self.store.begin(&id).unwrap();
        fs_err::write(draft.path().join("pages.img"), b"pages").unwrap();
        fs_err::create_dir(draft.path().join("state")).unwrap();
        fs_err::write(draft.path().join("state/kernel.img"), b"kernel").unwrap();
        (id, draft.finish(meta(), durability, None).unwrap())
    }

    fn states(&self) -> Vec<FoundState> {
        self.store.list().unwrap().into_iter().map(|found| found.state).collect()
    }
}

#[test]
fn what_was_finished_is_checked_and_found() {
    let f = fixture();
    for durability in [Durability::Durable, Durability::Fleeting] {
        let (id, manifest) = f.made(durability);
        assert_eq!(manifest.size_bytes(), 11);
        assert_eq!(f.check(&id).unwrap(), manifest);
        let digests = manifest.files.iter().filter(|file| file.blake3.is_some()).count();
        assert_eq!(digests, if durability == Durability::Durable { 2 } else { 0 });
        assert!(f.store.begin(&id).is_err(), "it exists");
        let again = SnapshotStore::open(f.dir.path()).unwrap();
        assert_eq!(f.check_with(&again, &id).unwrap(), manifest);
        let found = again.list().unwrap();
        assert_eq!((found.len(), found[0].id.as_ref(), found[0].state), (1, Some(&id), FoundState::Whole));
        assert!(found[0].bytes >= 11);
        f.store.remove(&id).unwrap();
        f.store.remove(&id).unwrap();
        assert!(f.states().is_empty());
        assert!(matches!(f.check(&id), Err(OpenError::Missing)));
    }
    let mode = fs_err::metadata(f.dir.path().join("snapshots")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
}

#[test]
fn an_unfinished_one_goes_away() {
    let f = fixture();
    let id = SnapshotId::random();
    let draft = f.store.begin(&id).unwrap();
    fs_err::write(draft.path().join("pages.img"), b"pages").unwrap();
    assert!(matches!(f.check(&id), Err(OpenError::Missing)));
    assert_eq!(f.states(), [FoundState::Draft]);
    drop(draft);
    assert!(f.states().is_empty());
    let draft = f.store.begin(&id).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", draft.path().join("link")).unwrap();
    assert!(matches!(draft.finish(meta(), Durability::Durable, None), Err(WriteError::Files { .. })));
    assert!(f.states().is_empty());
}

/// As a killed server leaves them.
#[test]
fn torsos_are_told_apart_and_removed() {
    let f = fixture();
    let root = f.dir.path().join("snapshots");
    let (id, _) = f.made(Durability::Durable);
    fs_err::create_dir_all(root.join(format!("{id}.gone/state"))).unwrap();
    let (dead, half) = (SnapshotId::random(), SnapshotId::random());
    fs_err::create_dir(root.join(format!("{dead}.new"))).unwrap();
    fs_err::write(root.join(format!("{dead}.new/pages.img")), b"x").unwrap();
    fs_err::create_dir(root.join(format!("{half}.gone"))).unwrap();
    fs_err::create_dir(root.join("lost+found")).unwrap();
    fs_err::write(root.join(SnapshotId::random().as_str()), b"a file").unwrap();
    let count = |state| f.states().into_iter().filter(|found| *found == state).count();
    assert_eq!([FoundState::Draft, FoundState::Whole, FoundState::Gone, FoundState::Foreign].map(count), [1, 1, 2, 2]);
    let restarted = f.store.begin(&dead).unwrap();
    assert_eq!(fs_err::read_dir(restarted.path()).unwrap().count(), 0, "what a dead maker left is gone");
    drop(restarted);
    for id in [&id, &dead, &half] {
        f.store.remove(id).unwrap();
    }
    assert_eq!(f.states(), [FoundState::Foreign; 2]);
}

#[test]
fn damage_is_found_by_whoever_has_not_seen_the_files() {
    let f = fixture();
    let (id, _) = f.made(Durability::Durable);
    let pages = f.store.path(&id).join("pages.img");
    f.check(&id).unwrap();
    fs_err::write(&pages, b"pagEs").unwrap();
    for store in [f.store.clone(), SnapshotStore::open(f.dir.path()).unwrap()] {
        let error = f.check_with(&store, &id).unwrap_err();
        assert!(matches!(error, OpenError::Damaged(DamagedError::Digest { .. })), "{error}");
    }
    fs_err::write(&pages, b"pages").unwrap();
    f.check(&id).unwrap();
    fs_err::write(&pages, b"page").unwrap();
    assert!(matches!(f.check(&id), Err(OpenError::Damaged(DamagedError::Size { .. }))));
    fs_err::remove_file(f.store.path(&id).join(MANIFEST_NAME)).unwrap();
    assert!(matches!(f.check(&id), Err(OpenError::Read(ReadError::Missing))));
}

/// A file whose contents went bad without a trace in its metadata shows which checks read it.
#[test]
fn files_are_read_once() {
    let f = fixture();
    let (id, mut manifest) = f.made(Durability::Durable);
    manifest.files[0].blake3 = Some("0".repeat(64));
    fs_err::write(f.store.path(&id).join(MANIFEST_NAME), serde_json::to_vec(&manifest).unwrap()).unwrap();
    assert_eq!(f.check(&id).unwrap(), manifest, "the files were not touched since this store wrote them");
    let fresh = SnapshotStore::open(f.dir.path()).unwrap();
    for _ in 0..2 {
        assert!(f.check_with(&fresh, &id).is_err(), "a failed check makes nothing trusted");
    }
}

#[test]
fn what_does_not_fit_is_said_before_files_are_read() {
    let mut f = fixture();
    let (id, _) = f.made(Durability::Durable);
    fs_err::write(f.store.path(&id).join("pages.img"), b"").unwrap();
    f.capabilities.engine_version = "runsc 2".to_owned();
    let error = f.check(&id).unwrap_err();
    assert!(matches!(error, OpenError::Incompatible(Incompatible::EngineVersion { .. })));
    assert_eq!(error.to_string(), "the snapshot cannot be restored here: it was taken by runsc 1, here is runsc 2");
}

#[test]
fn there_is_room() {
    let space = fixture().store.space().unwrap();
    assert!(0 < space.free_bytes && space.free_bytes <= space.total_bytes, "{space:?}");
}
