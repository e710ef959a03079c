use std::os::unix::fs::symlink;

use futures::stream;

use super::*;

fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

fn pieces(path: &Path, data: &[&[u8]], complete: bool) -> Vec<Result<WriteFileRequest, Status>> {
    let mut pieces = vec![WriteFileRequest { path: text(path), ..WriteFileRequest::default() }];
    pieces.extend(data.iter().map(|data| WriteFileRequest { data: data.to_vec(), ..WriteFileRequest::default() }));
    pieces.last_mut().unwrap().last = complete;
    pieces.into_iter().map(Ok).collect()
}

async fn put(path: &Path, data: &[&[u8]]) -> Result<u64, Status> {
    write(stream::iter(pieces(path, data, true))).await
}

async fn content(path: &str) -> Result<(u64, Vec<u8>), Refused> {
    let mut chunks = read(path.to_owned()).await?;
    let mut size = None;
    let mut all = Vec::new();
    while let Some(chunk) = chunks.recv().await {
        let chunk = chunk.unwrap();
        size = size.or(chunk.size);
        all.extend(chunk.data);
    }
    Ok((size.unwrap(), all))
}

fn refusal<T>(result: Result<T, Refused>) -> Option<Refusal> {
    result.err().map(|refused| refused.refusal)
}

fn names(directory: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[tokio::test]
async fn a_file_is_written_and_read_back_with_its_parents_created() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("a/b/c.bin");
    let data: Vec<u8> = (0..300_000_u32).map(|at| ((at * 31) >> 3) as u8).collect();
    assert_eq!(put(&path, &[&data[..100_000], &data[100_000..]]).await.unwrap(), 300_000);
    assert_eq!(content(&text(&path)).await.unwrap(), (300_000, data));
    assert_eq!(put(&path, &[]).await.unwrap(), 0);
    assert_eq!(content(&text(&path)).await.unwrap(), (0, Vec::new()));
}

#[tokio::test]
async fn an_upload_without_a_last_piece_leaves_nothing() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("new/deep/x");
    write(stream::iter(pieces(&path, &[b"half"], false))).await.unwrap_err();
    assert!(names(root.path()).is_empty());

    let kept = root.path().join("kept");
    put(&kept, &[b"old"]).await.unwrap();
    write(stream::iter(pieces(&kept, &[b"half"], false))).await.unwrap_err();
    assert_eq!((names(root.path()), fs::read(&kept).unwrap()), (vec!["kept".to_owned()], b"old".to_vec()));
}

#[tokio::test]
async fn overwriting_keeps_the_mode_and_follows_links() {
    let root = tempfile::tempdir().unwrap();
    let script = root.path().join("run.sh");
    put(&script, &[b"1"]).await.unwrap();
    fs::set_permissions(&script, Permissions::from_mode(0o755)).unwrap();
    let link = root.path().join("link");
    symlink("run.sh", &link).unwrap();
    put(&link, &[b"2"]).await.unwrap();
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!((fs::read(&script).unwrap(), fs::metadata(&script).unwrap().mode() & 0o777), (b"2".to_vec(), 0o755));

    let dangling = root.path().join("dangling");
    symlink("sub/new", &dangling).unwrap();
    put(&dangling, &[b"3"]).await.unwrap();
    assert_eq!(fs::read(root.path().join("sub/new")).unwrap(), b"3");

    let (one, other) = (root.path().join("one"), root.path().join("other"));
    symlink(&other, &one).unwrap();
    symlink(&one, &other).unwrap();
    put(&one, &[b"4"]).await.unwrap_err();
}

#[tokio::test]
async fn what_is_no_regular_file_is_refused_and_nothing_hangs() {
    let root = tempfile::tempdir().unwrap();
    let fifo = root.path().join("fifo");
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    assert_eq!(refusal(content(&text(&fifo)).await), Some(Refusal::InvalidPath));
    assert_eq!(refusal(content("/dev/null").await), Some(Refusal::InvalidPath));
    assert_eq!(refusal(content(&text(root.path())).await), Some(Refusal::IsADirectory));
    assert_eq!(refusal(content("/no/such").await), Some(Refusal::NotFound));
    assert_eq!(refusal(content("etc/passwd").await), Some(Refusal::InvalidPath));
    assert_eq!(refusal(content("/etc/pass\0wd").await), Some(Refusal::InvalidPath));
    assert_eq!(refusal(content("/etc/passwd/x").await), Some(Refusal::NotADirectory));
    put(&fifo, &[b"x"]).await.unwrap_err();
    put(root.path(), &[b"x"]).await.unwrap_err();
    put(&root.path().join("x/"), &[b"x"]).await.unwrap_err();
}

#[tokio::test]
async fn a_file_without_a_size_is_read_to_its_end() {
    let (size, bytes) = content("/proc/self/status").await.unwrap();
    assert!(size == 0 && bytes.starts_with(b"Name:"));
}

#[tokio::test]
async fn a_listing_is_sorted_and_does_not_follow_links() {
    let root = tempfile::tempdir().unwrap();
    put(&root.path().join("b"), &[b"12"]).await.unwrap();
    fs::create_dir(root.path().join("a")).unwrap();
    symlink("/", root.path().join("c")).unwrap();
    let entries = list(text(root.path())).await.unwrap().entries;
    let seen: Vec<_> = entries.iter().map(|entry| (entry.name.as_str(), entry.kind())).collect();
    assert_eq!(seen, [("a", FileKind::Directory), ("b", FileKind::File), ("c", FileKind::Symlink)]);
    assert_eq!(entries[1].size, 2);
    assert_eq!(refusal(list(text(&root.path().join("b"))).await), Some(Refusal::NotADirectory));
    assert_eq!(stat(text(&root.path().join("c"))).await.unwrap().kind(), FileKind::Symlink);
}

#[tokio::test]
async fn removing_does_not_follow_links_and_spares_the_workspace() {
    let root = tempfile::tempdir().unwrap();
    let workspace = fs::canonicalize(root.path()).unwrap().join("work");
    put(&workspace.join("d/e/f"), &[b"x"]).await.unwrap();
    put(&workspace.join("safe"), &[b"x"]).await.unwrap();
    symlink(&workspace, workspace.join("d/loop")).unwrap();
    symlink(workspace.join("safe"), workspace.join("link")).unwrap();
    for path in ["/", "/..", &text(&workspace), &text(root.path()), &format!("{}/d/..", workspace.display())] {
        assert_eq!(refusal(remove(path.to_owned(), workspace.clone()).await), Some(Refusal::InvalidPath), "{path}");
    }
    remove(text(&workspace.join("link")), workspace.clone()).await.unwrap();
    remove(text(&workspace.join("d")), workspace.clone()).await.unwrap();
    assert_eq!(names(&workspace), ["safe"]);
    let missing = remove(text(&workspace.join("d")), workspace.clone()).await;
    assert_eq!(refusal(missing), Some(Refusal::NotFound));
}
