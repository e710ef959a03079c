use std::path::PathBuf;

use pandastack_api_types::SnapshotId;

use super::*;
use crate::{
    BaseError, DamagedError, Durability, FoundState, MANIFEST_NAME, Manifest, OpenError, SnapshotStore,
    manifest::{self, tests::meta},
    pages::PAGE,
};

const PAGES: u32 = 2048;

/// Pages of numbers, each different from all others.
fn contents(numbers: impl IntoIterator<Item = u32>) -> Vec<u8> {
    numbers.into_iter().flat_map(|number| (number + 1).to_le_bytes().repeat(PAGE / 4)).collect()
}

struct Fixture {
    dir: tempfile::TempDir,
    store: SnapshotStore,
    /// What the snapshot's `memory/pages.img` was.
    file: Vec<u8>,
}

fn fixture() -> Fixture {
    let dir = tempfile::tempdir().unwrap();
    let store = SnapshotStore::open(dir.path()).unwrap();
    let changed = contents((0..PAGES).map(|page| if page % 100 == 7 { page + 10_000 } else { page }));
    let f = Fixture { dir, store, file: [vec![0; 100 * PAGE], changed].concat() };
    f.make_base(&contents(0..PAGES));
    f
}

impl Fixture {
    fn base(&self) -> PathBuf {
        self.dir.path().join("template")
    }

    fn make_base(&self, contents: &[u8]) {
        fs_err::create_dir_all(self.base().join("memory")).unwrap();
        fs_err::write(self.base().join("memory/pages.img"), contents).unwrap();
        manifest::write(&self.base(), meta()).unwrap();
    }

    fn made(&self, durability: Durability, base: Option<&Path>) -> (SnapshotId, Manifest) {
        let id = SnapshotId::random();
        let draft = self.store.begin(&id).unwrap();
        fs_err::create_dir(draft.path().join("memory")).unwrap();
        fs_err::write(draft.path().join("memory/pages.img"), &self.file).unwrap();
        fs_err::write(draft.path().join("kernel.img"), b"kernel").unwrap();
        (id, draft.finish(meta(), durability, base).unwrap())
    }

    /// One that is a delta against the base.
    fn shared(&self) -> (SnapshotId, PathBuf) {
        let (id, _) = self.made(Durability::Durable, Some(&self.base()));
        let delta = self.store.path(&id).join("memory/pages.img.delta");
        assert!(delta.is_file());
        (id, delta)
    }

    fn names(&self, id: &SnapshotId) -> Vec<String> {
        manifest::read(&self.store.path(id)).unwrap().files.into_iter().map(|file| file.path).collect()
    }

    fn opened_in(&self, store: &SnapshotStore, id: &SnapshotId) -> Result<(), OpenError> {
        let opened = store.open_for_restore(id, Some(&self.base()))?;
        assert!(fs_err::read(opened.path().join("memory/pages.img")).unwrap() == self.file);
        assert_eq!(fs_err::read(opened.path().join("kernel.img")).unwrap(), b"kernel");
        Ok(())
    }

    /// What a store says that has not seen the files yet, and that nothing is left of it.
    fn refused(&self, id: &SnapshotId) -> OpenError {
        let before = self.store.list().unwrap().len();
        let error = self.opened_in(&SnapshotStore::open(self.dir.path()).unwrap(), id).unwrap_err();
        assert_eq!(self.store.list().unwrap().len(), before);
        error
    }

    fn reseal(&self, id: &SnapshotId, change: impl FnOnce(&mut Manifest)) {
        let mut manifest = manifest::read(&self.store.path(id)).unwrap();
        change(&mut manifest);
        fs_err::write(self.store.path(id).join(MANIFEST_NAME), serde_json::to_vec(&manifest).unwrap()).unwrap();
    }
}

#[test]
fn a_large_file_is_kept_as_what_it_differs_by() {
    let f = fixture();
    let (id, manifest) = f.made(Durability::Durable, Some(&f.base()));
    assert_eq!(f.names(&id), ["kernel.img", "memory/pages.img.delta"]);
    let delta = manifest.files[1].delta.clone().unwrap();
    let told = manifest::read(&f.base()).unwrap().files[0].blake3.clone().unwrap();
    assert_eq!(delta, DeltaOf { path: "memory/pages.img".to_owned(), size: f.file.len() as u64, base: told });
    assert!(manifest.size_bytes() < 200_000, "{}", manifest.size_bytes());
    assert!(!f.store.path(&id).join("memory/pages.img").exists());
    for store in [&f.store, &SnapshotStore::open(f.dir.path()).unwrap()] {
        f.opened_in(store, &id).unwrap();
        f.opened_in(store, &id).unwrap();
    }
    assert_eq!(f.store.list().unwrap().len(), 1, "what was made whole is gone");
}

#[test]
fn what_shares_nothing_is_kept_whole() {
    let f = fixture();
    let whole = |base: Option<&Path>, durability| {
        let (id, manifest) = f.made(durability, base);
        assert_eq!(f.names(&id), ["kernel.img", "memory/pages.img"]);
        assert_eq!(manifest.size_bytes(), f.file.len() as u64 + 6);
        f.opened_in(&f.store, &id).unwrap();
        assert_eq!(f.store.open_for_restore(&id, None).unwrap().path(), f.store.path(&id));
        assert!(f.store.path(&id).join("kernel.img").exists(), "nothing of it goes away with what was opened");
    };
    whole(None, Durability::Durable);
    whole(Some(&f.base()), Durability::Fleeting);
    whole(Some(&f.dir.path().join("nowhere")), Durability::Durable);
    fs_err::write(f.base().join("memory/pages.img"), &f.file).unwrap();
    whole(Some(&f.base()), Durability::Durable);
    f.make_base(&contents(50_000..50_000 + PAGES));
    whole(Some(&f.base()), Durability::Durable);
}

#[test]
fn a_base_that_is_not_the_same_is_refused() {
    let f = fixture();
    let (id, _) = f.shared();
    assert!(matches!(f.store.open_for_restore(&id, None), Err(OpenError::Base { problem: BaseError::Absent, .. })));
    f.make_base(&contents(1..=PAGES));
    assert!(matches!(f.refused(&id), OpenError::Base { problem: BaseError::Changed, .. }));
    // Back again, but then another byte, which is noticed by a store that knows the file as well.
    f.make_base(&contents(0..PAGES));
    f.opened_in(&f.store, &id).unwrap();
    let mut damaged = contents(0..PAGES);
    damaged[5_000_000] ^= 1;
    fs_err::write(f.base().join("memory/pages.img"), damaged).unwrap();
    for error in [f.refused(&id), f.opened_in(&f.store, &id).unwrap_err()] {
        assert!(matches!(error, OpenError::Base { problem: BaseError::Damaged, .. }), "{error}");
    }
    fs_err::write(f.base().join("memory/pages.img"), b"short").unwrap();
    assert!(matches!(f.refused(&id), OpenError::Base { problem: BaseError::Damaged, .. }));
    fs_err::remove_dir_all(f.base()).unwrap();
    let error = f.refused(&id);
    assert!(matches!(error, OpenError::Base { problem: BaseError::Absent, .. }));
    let said = "memory/pages.img has pages in the snapshot of its template, which cannot be used: it is not there";
    assert_eq!(error.to_string(), said);
}

/// Each byte of a small file; the delta's digest is compared before anything is made of it.
#[test]
fn a_damaged_delta_is_refused() {
    let f = fixture();
    let (id, delta) = f.shared();
    let good = fs_err::read(&delta).unwrap();
    for position in (0..good.len()).step_by(3001) {
        let mut bad = good.clone();
        bad[position] ^= 4;
        fs_err::write(&delta, bad).unwrap();
        for error in [f.refused(&id), f.opened_in(&f.store, &id).unwrap_err()] {
            assert!(matches!(error, OpenError::Damaged(DamagedError::Digest { .. })), "{position}: {error}");
        }
    }
    fs_err::write(&delta, &good[..good.len() - PAGE]).unwrap();
    assert!(matches!(f.refused(&id), OpenError::Damaged(DamagedError::Size { .. })));
    fs_err::write(&delta, &good).unwrap();
    f.opened_in(&f.store, &id).unwrap();
}

#[test]
fn a_delta_that_contradicts_its_manifest_is_refused() {
    let f = fixture();
    let (id, _) = f.shared();
    let delta = |change: fn(&mut DeltaOf)| {
        f.reseal(&id, |manifest| change(manifest.files[1].delta.as_mut().unwrap()));
        f.refused(&id)
    };
    let error = delta(|delta| delta.size += 1);
    assert!(matches!(&error, OpenError::Damaged(DamagedError::Delta { .. })), "{error}");
    let said = "memory/pages.img.delta of the snapshot cannot be used: it is of a file of another size";
    assert_eq!(error.to_string(), said);
    assert!(matches!(delta(|delta| delta.size = u64::MAX), OpenError::Read(_)));
}

#[test]
fn manifests_of_impossible_deltas_are_refused() {
    let f = fixture();
    let changes: [fn(&mut Manifest); 5] = [
        |manifest| manifest.files[1].delta.as_mut().unwrap().path = "../pages.img".to_owned(),
        |manifest| manifest.files[1].delta.as_mut().unwrap().path = "kernel.img".to_owned(),
        |manifest| manifest.files[1].delta.as_mut().unwrap().base = "ab".to_owned(),
        |manifest| manifest.files[1].delta.as_mut().unwrap().size = 1 << 60,
        |manifest| manifest.files[1].blake3 = None,
    ];
    for change in changes {
        let (id, _) = f.shared();
        f.reseal(&id, change);
        assert!(matches!(f.refused(&id), OpenError::Read(manifest::ReadError::BadFiles)));
    }
}

#[test]
fn two_can_have_it_open_and_a_killed_one_leaves_nothing_for_long() {
    let f = fixture();
    let (id, _) = f.shared();
    let (other, _) = f.shared();
    let open = |id| f.store.open_for_restore(id, Some(&f.base())).unwrap();
    let states = || f.store.list().unwrap().into_iter().map(|found| found.state).collect::<Vec<_>>();
    let (first, second, third) = (open(&id), open(&id), open(&other));
    assert_ne!(first.path(), second.path());
    assert_eq!(states().iter().filter(|state| **state == FoundState::Opened).count(), 3);
    drop(first);
    let second = std::mem::ManuallyDrop::new(second);
    f.store.remove(&id).unwrap();
    assert!(!second.path().exists());
    assert!(third.path().exists(), "it is of another snapshot");
    let third = std::mem::ManuallyDrop::new(third);
    drop(SnapshotStore::open(f.dir.path()).unwrap());
    assert!(!third.path().exists());
    assert_eq!(states(), [FoundState::Whole]);
}
