use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::files::{DamagedError, check_digests, check_sizes};

pub(crate) fn meta() -> Meta {
    Meta {
        engine: EngineKind::Gvisor,
        engine_version: "runsc 1".to_owned(),
        cpu: Cpu { vendor: "v".to_owned(), model: "m".to_owned(), flags: BTreeSet::from(["sse".to_owned()]) },
        template: TemplateRef { name: "base".to_owned(), hash: "ab".to_owned() },
        agent_generation: 1,
        resources: Resources { vcpus: 2, memory_mib: 2048, disk_mib: 1024, pids: 256 },
        created_at: Timestamp::UNIX_EPOCH,
    }
}

fn snapshot() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs_err::write(dir.path().join("pages.img"), b"pages").unwrap();
    fs_err::create_dir(dir.path().join("state")).unwrap();
    fs_err::write(dir.path().join("state/kernel.img"), b"kernel").unwrap();
    dir
}

#[test]
fn what_is_written_is_read() {
    let dir = snapshot();
    let written = write(dir.path(), meta()).unwrap();
    assert_eq!(written, read(dir.path()).unwrap());
    assert_eq!(written.size_bytes(), 11);
    assert_eq!(
        written.files.iter().map(|file| file.path.as_str()).collect::<Vec<_>>(),
        ["pages.img", "state/kernel.img"]
    );
    check_digests(dir.path(), &written.files).unwrap();
    assert_eq!(write(dir.path(), meta()).unwrap(), written, "writing again does not list the manifest itself");
}

#[test]
fn a_torso_and_a_newer_format_are_told_apart() {
    let dir = snapshot();
    assert!(matches!(read(dir.path()), Err(ReadError::Missing)));
    fs_err::write(dir.path().join(MANIFEST_NAME), br#"{"format": 7, "files": "elsewhere"}"#).unwrap();
    assert!(matches!(read(dir.path()), Err(ReadError::Format { found: 7 })));
    fs_err::write(dir.path().join(MANIFEST_NAME), vec![b' '; 3 * 1024 * 1024]).unwrap();
    assert!(matches!(read(dir.path()), Err(ReadError::TooLarge)));
}

#[test]
fn damage_is_found() {
    let dir = snapshot();
    let manifest = write(dir.path(), meta()).unwrap();
    fs_err::write(dir.path().join("pages.img"), b"pagEs").unwrap();
    check_sizes(dir.path(), &manifest.files).unwrap();
    assert!(matches!(check_digests(dir.path(), &manifest.files), Err(DamagedError::Digest { .. })));
    fs_err::write(dir.path().join("pages.img"), b"page").unwrap();
    assert!(matches!(check_sizes(dir.path(), &manifest.files), Err(DamagedError::Size { expected: 5, found: 4, .. })));
    fs_err::remove_file(dir.path().join("pages.img")).unwrap();
    assert!(matches!(check_sizes(dir.path(), &manifest.files), Err(DamagedError::Read { .. })));
}

#[test]
fn paths_out_of_the_directory_are_refused() {
    let dir = snapshot();
    let manifest = write(dir.path(), meta()).unwrap();
    for path in ["../x", "/etc/passwd", "a/../../b", "", "a\0b"] {
        let mut hostile = manifest.clone();
        hostile.files[0].path = path.to_owned();
        assert!(matches!(decode(&serde_json::to_vec(&hostile).unwrap()), Err(ReadError::BadFiles)), "{path:?}");
    }
}

proptest! {
    #[test]
    fn garbage_is_refused(bytes in proptest::collection::vec(any::<u8>(), 0..512)) {
        prop_assert!(decode(&bytes).is_err());
    }

    #[test]
    fn damaged_manifests_never_panic(position in 0_usize..2000, byte in any::<u8>()) {
        let manifest = Manifest { format: FORMAT, meta: meta(), files: vec![] };
        let mut bytes = serde_json::to_vec_pretty(&manifest).unwrap();
        let position = position % bytes.len();
        bytes[position] = byte;
        drop(decode(&bytes));
        bytes.truncate(position);
        prop_assert!(decode(&bytes).is_err());
    }

    #[test]
    fn any_meta_survives_the_round_trip(version in ".*", hash in ".*", flags in proptest::collection::btree_set(".*", 0..5)) {
        let mut meta = meta();
        meta.engine_version = version;
        meta.template.hash = hash;
        meta.cpu.flags = flags;
        let manifest = Manifest { format: FORMAT, meta, files: vec![] };
        prop_assert_eq!(decode(&serde_json::to_vec(&manifest).unwrap()).unwrap(), manifest);
    }
}
