use std::{
    collections::HashMap,
    fs::{File, OpenOptions},
    future::Future,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use futures::StreamExt;
use pandastack_agent_client::{AgentClient, CallError, CellFold, CellOutcome, ExecFold, ExecOutcome};
use pandastack_agent_protocol::{
    MAX_CELL_STREAM_CAP, link,
    messages::{CreateContextRequest, ExecRequest, HelloReply, Refusal, RunCellRequest},
};
use tokio::{net::unix::pipe, time};

/// Bounds a hang; says nothing about speed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// How long the reader of a dropped client may go on.
const READER_ENDS: Duration = Duration::from_millis(200);
const CAP: usize = 64 * 1024 * 1024;

/// An agent and the FIFOs to it, which the test holds open so that a connection may come and go.
pub(crate) struct Sandbox {
    process: Child,
    directory: tempfile::TempDir,
    _held: [File; 2],
}

impl Sandbox {
    pub(crate) fn start(arguments: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let [down, up] = ["down", "up"].map(|name| {
            let path = directory.path().join(name);
            assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
            path
        });
        let held = [&down, &up].map(|path| OpenOptions::new().read(true).write(true).open(path).unwrap());
        let process = Command::new(env!("CARGO_BIN_EXE_pandastack-agent"))
            .arg("--workspace")
            .arg(directory.path().join("workspace"))
            .arg("--renderer-socket")
            .arg(directory.path().join("renderer.sock"))
            .args(arguments)
            .env("RUST_LOG", "pandastack_agent=warn")
            .stdin(Stdio::from(File::open(&down).unwrap()))
            .stdout(Stdio::from(OpenOptions::new().write(true).open(&up).unwrap()))
            .spawn()
            .unwrap();
        Self { process, directory, _held: held }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    pub(crate) fn workspace(&self) -> PathBuf {
        self.directory.path().join("workspace")
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.workspace().join(name).to_str().unwrap().to_owned()
    }

    pub(crate) fn renderer_socket(&self) -> PathBuf {
        self.directory.path().join("renderer.sock")
    }

    pub(crate) async fn connect(&self) -> AgentClient {
        let path = |name| self.directory.path().join(name);
        let deadline = Instant::now() + PATIENCE;
        // What reads for a client that was dropped ends when its task is told, and takes bytes of this connection until then.
        time::sleep(READER_ENDS).await;
        loop {
            let to_agent = pipe::OpenOptions::new().open_sender(path("down")).unwrap();
            let from_agent = pipe::OpenOptions::new().open_receiver(path("up")).unwrap();
            // An earlier connection that still reads may swallow the answer, so there is more than one try.
            match link::connect(to_agent, from_agent, Duration::from_secs(2)).await {
                Ok(stream) => return AgentClient::connect(stream).await.unwrap().0,
                Err(error) => assert!(Instant::now() < deadline, "no connection: {error}"),
            }
        }
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        // The agent then ends what it has started.
        let asked = Command::new("kill").arg(self.process.id().to_string()).status();
        let deadline = Instant::now() + Duration::from_secs(10);
        while asked.is_ok() && Instant::now() < deadline {
            if let Ok(Some(_)) = self.process.try_wait() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

pub(crate) async fn within<T>(work: impl Future<Output = T>) -> T {
    time::timeout(PATIENCE, work).await.expect("done within the time limit")
}

pub(crate) fn shell(line: &str) -> ExecRequest {
    ExecRequest { shell: line.to_owned(), ..ExecRequest::default() }
}

pub(crate) fn argv(words: &[&str]) -> ExecRequest {
    ExecRequest { argv: words.iter().map(|&word| word.to_owned()).collect(), ..ExecRequest::default() }
}

pub(crate) async fn exec(client: &AgentClient, request: ExecRequest) -> ExecOutcome {
    try_exec(client, request).await.unwrap()
}

pub(crate) async fn try_exec(client: &AgentClient, request: ExecRequest) -> Result<ExecOutcome, CallError> {
    within(async {
        let mut events = client.exec(request).await?;
        let mut fold = ExecFold::new(CAP);
        while let Some(event) = events.next().await {
            fold.push(event?);
        }
        Ok(fold.finish().unwrap())
    })
    .await
}

pub(crate) fn refusal<T: std::fmt::Debug>(result: Result<T, CallError>) -> Refusal {
    match result {
        Err(CallError::Refused { refusal, .. }) => refusal,
        other => panic!("not refused: {other:?}"),
    }
}

pub(crate) async fn create(client: &AgentClient, id: &str) -> Result<(), CallError> {
    create_in(client, id, "python").await
}

pub(crate) async fn create_in(client: &AgentClient, id: &str, language: &str) -> Result<(), CallError> {
    let request = CreateContextRequest {
        context_id: id.to_owned(),
        language: language.to_owned(),
        env: HashMap::from([("OF_CONTEXT".to_owned(), "yes".to_owned())]),
        created_unix_ms: 1,
        ..CreateContextRequest::default()
    };
    client.create_context(request).await.map(|_| ())
}

pub(crate) fn cell(id: &str, code: &str, timeout_ms: u64) -> RunCellRequest {
    RunCellRequest { context_id: id.to_owned(), code: code.to_owned(), timeout_ms, ..RunCellRequest::default() }
}

pub(crate) async fn run(client: &AgentClient, id: &str, code: &str) -> CellOutcome {
    run_limited(client, id, code, 0).await
}

pub(crate) async fn run_limited(client: &AgentClient, id: &str, code: &str, timeout_ms: u64) -> CellOutcome {
    try_run(client, cell(id, code, timeout_ms)).await.unwrap()
}

pub(crate) async fn try_run(client: &AgentClient, request: RunCellRequest) -> Result<CellOutcome, CallError> {
    within(async {
        let mut events = client.run_cell(request).await?;
        let mut fold = CellFold::with_cap(MAX_CELL_STREAM_CAP);
        while let Some(event) = events.next().await {
            fold.push(event?);
        }
        Ok(fold.finish().unwrap())
    })
    .await
}

pub(crate) fn main_text(outcome: &CellOutcome) -> &str {
    outcome.results.first().and_then(|bundle| bundle.get("text/plain")).map_or("", String::as_str)
}

pub(crate) async fn until_warm(client: &AgentClient) -> HelloReply {
    within(async {
        loop {
            let hello = client.hello().await.unwrap();
            if hello.warm || !hello.warm_error.is_empty() {
                return hello;
            }
            time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await
}

/// Waits for what has no event of its own.
pub(crate) async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds().await {
        assert!(Instant::now() < deadline, "never: {what}");
        time::sleep(Duration::from_millis(20)).await;
    }
}

/// Processes whose command line holds this text.
pub(crate) fn processes_with(text: &str) -> usize {
    let own = std::process::id().to_string();
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    entries
        .filter(|entry| entry.file_name() != own.as_str())
        .filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok())
        .filter(|line| String::from_utf8_lossy(line).replace('\0', " ").contains(text))
        .count()
}

/// A sandbox with the real interpreter, unless this machine cannot run it.
pub(crate) fn with_interpreter() -> Option<Sandbox> {
    let interpreter = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../guest/interpreter");
    if !interpreter.join("pandastack_interpreter/zygote.py").exists() {
        eprintln!("skipped: there is no guest/interpreter");
        return None;
    }
    let python = std::env::var("PANDASTACK_TEST_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let has_ipython = Command::new(&python).args(["-c", "import IPython"]).stderr(Stdio::null()).status();
    if !has_ipython.is_ok_and(|status| status.success()) {
        eprintln!("skipped: {python} has no IPython; set PANDASTACK_TEST_PYTHON to one that has");
        return None;
    }
    let python = which(&python);
    Some(Sandbox::start(&["--python", &python, "--interpreter", interpreter.to_str().unwrap()]))
}

/// A sandbox with the interpreter of these tests, unless there is no Python at all.
pub(crate) fn with_fake_interpreter() -> Option<Sandbox> {
    if !Command::new("python3").arg("--version").stdout(Stdio::null()).status().is_ok_and(|status| status.success()) {
        eprintln!("skipped: there is no python3");
        return None;
    }
    let interpreter = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fake_interpreter");
    Some(Sandbox::start(&["--python", &which("python3"), "--interpreter", interpreter.to_str().unwrap()]))
}

fn which(program: &str) -> String {
    if program.contains('/') {
        return program.to_owned();
    }
    let found = Command::new("sh").arg("-c").arg(format!("command -v {program}")).output().unwrap();
    String::from_utf8(found.stdout).unwrap().trim().to_owned()
}
