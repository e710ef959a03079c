//! The process that draws charts with a browser, for all contexts. It is started when the first of them connects to its socket, which
//! this process holds open for it, and has nothing that would be missed: whoever waits for a picture when it ends does without.

use std::{
    collections::HashSet,
    fs::{self, Permissions},
    io,
    os::{
        fd::{AsFd, AsRawFd},
        unix::{fs::PermissionsExt, net::UnixListener},
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicI32, Ordering},
    },
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Pid, Signal, kill_process},
};
use tokio::{io::unix::AsyncFd, sync::oneshot, time};

use crate::{
    processes::{self, Process, family, signal_session},
    reaper::{Exit, Reaper},
    refusal::plain,
    sys,
};

/// Where contexts look for it unless [`SOCKET_VARIABLE`] says otherwise.
pub(crate) const SOCKET: &str = "/run/pandastack/renderer.sock";
pub(crate) const SOCKET_VARIABLE: &str = "PANDASTACK_RENDERER_SOCKET";
/// From its end until it may be started again.
const RESTART_PAUSE: Duration = Duration::from_secs(1);
/// Most that are turned away in a row: as many as can have been waiting.
const MOST_WAITING: usize = 4096;

/// How it is started.
#[derive(Debug)]
pub(crate) struct RendererConfig {
    pub(crate) python: PathBuf,
    /// Directory that holds the package `pandastack_interpreter`.
    pub(crate) interpreter: PathBuf,
    pub(crate) socket: PathBuf,
}

/// The handle to the process, whether it runs or not. By default there never is one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Renderer {
    /// 0 while it does not run.
    pid: Arc<AtomicI32>,
}

impl Renderer {
    /// Opens the socket and waits for somebody to connect.
    pub(crate) fn start(config: RendererConfig, reaper: Reaper) -> io::Result<Self> {
        let listener = sys::watch_for_connections(listen(&config.socket)?)?;
        let renderer = Self::default();
        tokio::spawn(Keeper { config, reaper, listener, pid: Arc::clone(&renderer.pid) }.run());
        Ok(renderer)
    }

    /// Which of these processes are its own, its browser included.
    pub(crate) fn family(&self, processes: &[Process]) -> HashSet<i32> {
        match self.pid.load(Ordering::Relaxed) {
            0 => HashSet::new(),
            pid => family(processes, pid),
        }
    }

    /// Kills it and all it has started. False if it does not run.
    pub(crate) fn kill(&self) -> bool {
        let leader = self.pid.swap(0, Ordering::Relaxed);
        let Some(pid) = Pid::from_raw(leader) else {
            return false;
        };
        tracing::warn!("killed the renderer: memory is short");
        let others = family(&processes::descendants(), leader);
        signal_session(pid, Signal::KILL);
        for pid in others.into_iter().filter_map(Pid::from_raw) {
            if let Err(error) = kill_process(pid, Signal::KILL) {
                tracing::debug!(%error, ?pid, "a process of the renderer had ended");
            }
        }
        true
    }
}

fn listen(socket: &Path) -> io::Result<UnixListener> {
    if let Some(directory) = socket.parent() {
        fs::create_dir_all(directory)?;
    }
    // One that a template's files hold is nobody's.
    match fs::remove_file(socket) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(socket)?;
    fs::set_permissions(socket, Permissions::from_mode(0o666))?;
    Ok(listener)
}

struct Keeper {
    config: RendererConfig,
    reaper: Reaper,
    /// In blocking mode, as the process expects it; it is only ever accepted from when somebody waits.
    listener: AsyncFd<UnixListener>,
    pid: Arc<AtomicI32>,
}

impl Keeper {
    async fn run(self) {
        loop {
            if let Err(error) = self.connection().await {
                tracing::warn!(%error, "the renderer's socket failed");
                return;
            }
            match self.spawn() {
                Ok((pid, exit)) => {
                    self.pid.store(pid.as_raw_nonzero().get(), Ordering::Relaxed);
                    if let Ok(exit) = exit.await {
                        tracing::info!("the renderer {exit}");
                    }
                    signal_session(pid, Signal::KILL);
                    self.pid.store(0, Ordering::Relaxed);
                }
                Err(error) => tracing::warn!(error = plain(&error), "the renderer could not be started"),
            }
            self.turn_away();
            time::sleep(RESTART_PAUSE).await;
        }
    }

    /// Waits until somebody has connected.
    async fn connection(&self) -> io::Result<()> {
        loop {
            let mut ready = self.listener.readable().await?;
            if self.somebody_waits() {
                return Ok(());
            }
            ready.clear_ready();
        }
    }

    fn somebody_waits(&self) -> bool {
        let mut fds = [PollFd::new(self.listener.get_ref(), PollFlags::IN)];
        matches!(poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })), Ok(count) if count > 0)
    }

    fn spawn(&self) -> io::Result<(Pid, oneshot::Receiver<Exit>)> {
        let inherited = self.listener.get_ref().as_fd().try_clone_to_owned()?;
        let mut command = Command::new(&self.config.python);
        command
            .args(["-m", "pandastack_interpreter.renderer", "--listen-fd"])
            .arg(inherited.as_raw_fd().to_string())
            .env("PYTHONPATH", &self.config.interpreter)
            // Python looks for modules in the working directory first: it must not be one that user code writes to.
            .current_dir("/")
            .stdin(Stdio::null())
            // A page that is drawn can write there without end.
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        sys::detach(&mut command, Some(inherited));
        let (_child, pid, exit) = self.reaper.spawn(&mut command)?;
        Ok((pid, exit))
    }

    /// Closes the connections that wait, so that their owners do not.
    fn turn_away(&self) {
        for _ in 0..MOST_WAITING {
            if !self.somebody_waits() {
                return;
            }
            if let Err(error) = self.listener.get_ref().accept() {
                tracing::debug!(%error, "a connection to the renderer was gone");
            }
        }
    }
}
