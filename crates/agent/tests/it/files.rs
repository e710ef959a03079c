use std::{convert::Infallible, io};

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use pandastack_agent_client::{CallError, WriteError};
use pandastack_agent_protocol::messages::{FileKind, Refusal};

use crate::harness::{Sandbox, argv, eventually, exec, refusal, within};

fn pattern(length: usize) -> Vec<u8> {
    (0..length as u64).map(|at| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}

#[tokio::test]
async fn files_of_every_size_go_in_and_come_back() {
    let sandbox = Sandbox::start(&[]);
    let client = sandbox.connect().await;
    for size in [0, 1, 4096, 18 * 1024 - 1, 18 * 1024 + 1, 65_536, 1 << 20, 64 << 20] {
        let data = pattern(size);
        let path = sandbox.path(&format!("a/b {size}"));
        let body = stream::iter(data.chunks(100_000).map(|piece| Ok::<_, Infallible>(Bytes::copy_from_slice(piece))));
        assert_eq!(within(client.write_file(&path, body)).await.unwrap(), size as u64);
        let file = within(client.read_file(&path)).await.unwrap();
        assert_eq!(file.size, size as u64);
        let back: Vec<Bytes> = within(file.chunks.try_collect()).await.unwrap();
        assert!(back.concat() == data, "{size} bytes came back changed");
        let entry = client.stat(&path).await.unwrap();
        assert_eq!((entry.kind(), entry.size, entry.name), (FileKind::File, size as u64, format!("b {size}")));
    }
    assert_eq!(client.list_dir(&sandbox.path("a")).await.unwrap().len(), 8);
    client.remove(&sandbox.path("a")).await.unwrap();
    assert_eq!(refusal(client.stat(&sandbox.path("a")).await), Refusal::NotFound);
}

#[tokio::test]
async fn an_upload_that_breaks_off_leaves_nothing() {
    let sandbox = Sandbox::start(&[]);
    let client = sandbox.connect().await;
    let body = stream::iter([Ok(Bytes::from(vec![1; 200_000])), Err(io::Error::other("the caller went away"))]);
    let result = within(client.write_file(&sandbox.path("d/half"), body)).await;
    assert!(matches!(result, Err(WriteError::Body(_))), "{result:?}");
    let empty = async || std::fs::read_dir(sandbox.workspace()).unwrap().next().is_none();
    eventually("everything is taken back", empty).await;

    let endless = stream::pending::<Result<Bytes, Infallible>>();
    let path = sandbox.path("e/half");
    let upload = tokio::time::timeout(std::time::Duration::from_millis(200), client.write_file(&path, endless)).await;
    assert!(upload.is_err());
    eventually("a dropped upload is taken back", empty).await;
    eventually("nothing is under way", async || client.activity().await.unwrap().quiescent).await;
}

#[tokio::test]
async fn refusals_tell_what_is_wrong() {
    let sandbox = Sandbox::start(&[]);
    let client = sandbox.connect().await;
    for path in ["relative", "", "../../etc/hostname", "/x\0y"] {
        assert_eq!(refusal(client.read_file(path).await), Refusal::InvalidPath, "{path:?}");
        assert_eq!(refusal(client.stat(path).await), Refusal::InvalidPath, "{path:?}");
        let body = stream::iter([Ok::<_, Infallible>(Bytes::from_static(b"x"))]);
        let Err(WriteError::Call(CallError::Refused { refusal, .. })) = client.write_file(path, body).await else {
            panic!("{path:?} was written");
        };
        assert_eq!(refusal, Refusal::InvalidPath);
    }
    assert_eq!(refusal(client.remove("/").await), Refusal::InvalidPath);
    assert_eq!(refusal(client.remove(&sandbox.path("")).await), Refusal::InvalidPath);
    assert_eq!(refusal(client.list_dir("/etc/passwd").await), Refusal::NotADirectory);
    assert_eq!(refusal(client.read_file("/etc").await), Refusal::IsADirectory);
    // The upload is refused while its body still comes.
    let body = stream::repeat_with(|| Ok::<_, Infallible>(Bytes::from(vec![0; 100_000])));
    let result = within(client.write_file("/etc/passwd/x", body)).await;
    assert!(matches!(result, Err(WriteError::Call(CallError::Refused { .. }))), "{result:?}");
}

#[tokio::test]
async fn a_full_disk_is_told_and_survived() {
    let sandbox = Sandbox::start(&[]);
    let client = sandbox.connect().await;
    let disk = sandbox.path("disk");
    std::fs::create_dir_all(&disk).unwrap();
    let mounted = exec(&client, argv(&["mount", "-t", "tmpfs", "-o", "size=1m", "none", &disk])).await;
    if mounted.exit_code != 0 {
        eprintln!("skipped: a small file system cannot be mounted here: {}", mounted.stderr);
        return;
    }
    let body = stream::iter(vec![Ok::<_, Infallible>(Bytes::from(vec![1; 1 << 20])); 3]);
    let result = within(client.write_file(&format!("{disk}/big"), body)).await;
    let left = client.list_dir(&disk).await;
    let small = stream::iter([Ok::<_, Infallible>(Bytes::from_static(b"1"))]);
    let after = client.write_file(&format!("{disk}/small"), small).await;
    assert_eq!(exec(&client, argv(&["umount", &disk])).await.exit_code, 0);
    let Err(WriteError::Call(CallError::Refused { refusal: Refusal::NoSpace, .. })) = result else {
        panic!("{result:?}");
    };
    assert!(left.unwrap().is_empty());
    assert_eq!(after.unwrap(), 1);
}

#[tokio::test]
async fn transfers_that_are_dropped_half_read_use_nothing_up() {
    let sandbox = Sandbox::start(&[]);
    let client = sandbox.connect().await;
    let path = sandbox.path("big");
    std::fs::write(&path, pattern(32 << 20)).unwrap();
    for _ in 0..100 {
        let mut file = within(client.read_file(&path)).await.unwrap();
        within(file.chunks.next()).await.unwrap().unwrap();
        // Until as much as may be under way is.
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    let file = within(client.read_file(&path)).await.unwrap();
    let length = within(file.chunks.try_fold(0, async |length, chunk| Ok(length + chunk.len()))).await.unwrap();
    assert_eq!(length, 32 << 20);
}

#[tokio::test]
async fn transfers_that_nobody_reads_do_not_hold_up_others() {
    let sandbox = Sandbox::start(&[]);
    let client = sandbox.connect().await;
    let path = sandbox.path("big");
    std::fs::write(&path, pattern(32 << 20)).unwrap();
    let mut stuck = Vec::new();
    for _ in 0..30 {
        let mut file = within(client.read_file(&path)).await.unwrap();
        within(file.chunks.next()).await.unwrap().unwrap();
        stuck.push(file);
    }
    assert_eq!(within(client.stat(&path)).await.unwrap().size, 32 << 20);
    assert!(!client.activity().await.unwrap().quiescent);
}
