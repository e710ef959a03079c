//! The messages of the agent protocol. Field numbers are the contract: add, never reuse.

use std::collections::HashMap;

/// Opens every connection.
#[derive(Clone, PartialEq, prost::Message)]
pub struct HelloRequest {
    /// The host's protocol generation.
    #[prost(uint32, tag = "1")]
    pub generation: u32,
}

/// What the agent is and how far its start has come.
#[derive(Clone, PartialEq, prost::Message)]
pub struct HelloReply {
    #[prost(uint32, tag = "1")]
    pub generation: u32,
    #[prost(string, tag = "2")]
    pub agent_version: String,
    /// True once the interpreter zygote has imported its libraries; contexts are then a fork away.
    #[prost(bool, tag = "3")]
    pub warm: bool,
    /// Why the zygote could not be started, empty if it could or is still starting.
    #[prost(string, tag = "4")]
    pub warm_error: String,
    /// The sandbox id last given by `Personalize`, empty before the first.
    #[prost(string, tag = "5")]
    pub sandbox_id: String,
    /// Those of `python`, `node`, `bash` and `ruby` whose program is there.
    #[prost(string, repeated, tag = "6")]
    pub languages: Vec<String>,
}

/// Gives a restored copy its own identity. Idempotent; called before the first request of a claimed, restored or forked sandbox.
#[derive(Clone, PartialEq, prost::Message)]
pub struct PersonalizeRequest {
    #[prost(string, tag = "1")]
    pub sandbox_id: String,
    #[prost(string, tag = "2")]
    pub hostname: String,
    /// 32 bytes or more of fresh randomness from the host, mixed into the sandbox's pool.
    #[prost(bytes = "vec", tag = "3")]
    pub entropy: Vec<u8>,
    /// The host's clock, nanoseconds since 1970, to compare with.
    #[prost(int64, tag = "4")]
    pub unix_nanos: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct PersonalizeReply {
    /// The sandbox's clock minus the host's, in nanoseconds, as seen when the request arrived.
    #[prost(int64, tag = "1")]
    pub clock_skew_nanos: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct ActivityRequest {}

/// Whether anything would notice if the sandbox were frozen until the next request.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ActivityReply {
    /// No cell, command, open transfer, background process, pending task or extra thread.
    #[prost(bool, tag = "1")]
    pub quiescent: bool,
    /// What keeps it awake, for people, e.g. `process 41 (python3)`; empty when quiescent.
    #[prost(string, tag = "2")]
    pub reason: String,
    /// A cell or a command of a request runs, even if its caller went away. Background processes do not count.
    #[prost(bool, tag = "3")]
    pub working: bool,
}

/// Runs one command to its end. Output arrives as [`ExecEvent`]s.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ExecRequest {
    /// The program and its arguments, or, if `shell` is set, unused.
    #[prost(string, repeated, tag = "1")]
    pub argv: Vec<String>,
    /// A line for `/bin/sh -c`; empty means `argv` is used.
    #[prost(string, tag = "2")]
    pub shell: String,
    /// Added to the agent's own environment.
    #[prost(map = "string, string", tag = "3")]
    pub env: HashMap<String, String>,
    /// Absolute; empty means the workspace.
    #[prost(string, tag = "4")]
    pub cwd: String,
    #[prost(bytes = "vec", tag = "5")]
    pub stdin: Vec<u8>,
    /// Milliseconds until the whole process group is killed; 0 means no limit.
    #[prost(uint64, tag = "6")]
    pub timeout_ms: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct ExecEvent {
    #[prost(oneof = "exec_event::Kind", tags = "1, 2, 3, 4")]
    pub kind: Option<exec_event::Kind>,
}

pub mod exec_event {
    /// `started`, then output, then exactly one `exited`. A command that could not start is a refused call instead.
    #[derive(Clone, PartialEq, prost::Oneof)]
    pub enum Kind {
        /// The process id of the command inside the sandbox.
        #[prost(uint32, tag = "1")]
        Started(u32),
        #[prost(bytes, tag = "2")]
        Stdout(Vec<u8>),
        #[prost(bytes, tag = "3")]
        Stderr(Vec<u8>),
        #[prost(message, tag = "4")]
        Exited(super::ExecExited),
    }
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct ExecExited {
    /// The exit status, or 128 + the signal's number as a shell gives it.
    #[prost(int32, tag = "1")]
    pub exit_code: i32,
    /// The signal that ended it, 0 if none.
    #[prost(int32, tag = "2")]
    pub signal: i32,
    /// The time limit ran out and the process group was killed.
    #[prost(bool, tag = "3")]
    pub timed_out: bool,
    #[prost(uint64, tag = "4")]
    pub duration_ms: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct PathRequest {
    #[prost(string, tag = "1")]
    pub path: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct ReadFileRequest {
    #[prost(string, tag = "1")]
    pub path: String,
}

/// A piece of a file. The first of a read has `size` and may have data.
#[derive(Clone, PartialEq, prost::Message)]
pub struct FileChunk {
    #[prost(bytes = "vec", tag = "1")]
    pub data: Vec<u8>,
    /// The file's size in bytes when it was opened; only in the first piece.
    #[prost(uint64, optional, tag = "2")]
    pub size: Option<u64>,
}

/// A piece of a file to write. The first has `path`; parents are created, and the file appears whole or not at all.
#[derive(Clone, PartialEq, prost::Message)]
pub struct WriteFileRequest {
    #[prost(string, tag = "1")]
    pub path: String,
    #[prost(bytes = "vec", tag = "2")]
    pub data: Vec<u8>,
    /// Set in the last piece only: without it a broken transfer would look like a short file.
    #[prost(bool, tag = "3")]
    pub last: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct WriteFileReply {
    #[prost(uint64, tag = "1")]
    pub bytes: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct FileEntry {
    /// The last part of the path, lossily as UTF-8.
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(enumeration = "FileKind", tag = "2")]
    pub kind: i32,
    #[prost(uint64, tag = "3")]
    pub size: u64,
    /// Permission bits.
    #[prost(uint32, tag = "4")]
    pub mode: u32,
    /// Seconds since 1970.
    #[prost(int64, tag = "5")]
    pub mtime: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum FileKind {
    Other = 0,
    File = 1,
    Directory = 2,
    /// Never followed, so that a link to a directory is not walked into.
    Symlink = 3,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct ListDirReply {
    /// Sorted by name.
    #[prost(message, repeated, tag = "1")]
    pub entries: Vec<FileEntry>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct RemoveReply {}

/// Starts an interpreter context.
#[derive(Clone, PartialEq, prost::Message)]
pub struct CreateContextRequest {
    /// Chosen by the host.
    #[prost(string, tag = "1")]
    pub context_id: String,
    /// `python`, `node` or `bash`; empty means `python`.
    #[prost(string, tag = "2")]
    pub language: String,
    /// Absolute; empty means the workspace.
    #[prost(string, tag = "3")]
    pub cwd: String,
    #[prost(map = "string, string", tag = "4")]
    pub env: HashMap<String, String>,
    /// The host's clock, milliseconds since 1970, kept as the creation time.
    #[prost(int64, tag = "5")]
    pub created_unix_ms: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct ContextEntry {
    #[prost(string, tag = "1")]
    pub context_id: String,
    #[prost(string, tag = "2")]
    pub language: String,
    #[prost(int64, tag = "3")]
    pub created_unix_ms: i64,
    /// Cells run so far.
    #[prost(uint64, tag = "4")]
    pub cells: u64,
    /// A cell is running now.
    #[prost(bool, tag = "5")]
    pub busy: bool,
    #[prost(string, tag = "6")]
    pub cwd: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct ListContextsRequest {}

#[derive(Clone, PartialEq, prost::Message)]
pub struct ListContextsReply {
    #[prost(message, repeated, tag = "1")]
    pub contexts: Vec<ContextEntry>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct CloseContextRequest {
    #[prost(string, tag = "1")]
    pub context_id: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct CloseContextReply {}

/// Runs one cell; cells of one context run one after another. Dropping the call interrupts the cell.
#[derive(Clone, PartialEq, prost::Message)]
pub struct RunCellRequest {
    #[prost(string, tag = "1")]
    pub context_id: String,
    #[prost(string, tag = "2")]
    pub code: String,
    /// Milliseconds from the cell's own start (not its waiting) until it is interrupted, then killed; 0 means no limit.
    #[prost(uint64, tag = "3")]
    pub timeout_ms: u64,
    /// Set for this cell only.
    #[prost(map = "string, string", tag = "4")]
    pub env: HashMap<String, String>,
    /// The working directory for this cell only; empty means unchanged.
    #[prost(string, tag = "5")]
    pub cwd: String,
    /// What the cell reads from standard input; without it there is none and reading is an error at once.
    #[prost(string, optional, tag = "6")]
    pub stdin: Option<String>,
    /// A second call with the same key in the same context gets the events of the first and runs nothing; empty means none. A cell with a
    /// key is not interrupted when its caller goes away.
    #[prost(string, tag = "7")]
    pub idempotency_key: String,
    /// Bytes kept of each of stdout and stderr; 0 means [`crate::CELL_STREAM_CAP`].
    #[prost(uint64, tag = "8")]
    pub max_output_bytes: u64,
    /// Most characters of one text/plain form or traceback; 0 means no limit but those of the interpreter.
    #[prost(uint32, tag = "9")]
    pub max_chars: u32,
}

/// Interrupts the cell that runs in a context, as a time limit does.
#[derive(Clone, PartialEq, prost::Message)]
pub struct InterruptContextRequest {
    #[prost(string, tag = "1")]
    pub context_id: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct InterruptContextReply {
    /// False if no cell ran.
    #[prost(bool, tag = "1")]
    pub interrupted: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct CellEvent {
    #[prost(oneof = "cell_event::Kind", tags = "1, 2, 3, 4, 5, 6, 7, 8")]
    pub kind: Option<cell_event::Kind>,
}

pub mod cell_event {
    /// Output in the order it happened, then exactly one `end`.
    #[derive(Clone, PartialEq, prost::Oneof)]
    pub enum Kind {
        /// Text for stdout, cut at character boundaries, invalid UTF-8 replaced.
        #[prost(string, tag = "1")]
        Stdout(String),
        #[prost(string, tag = "2")]
        Stderr(String),
        /// The value of the last expression.
        #[prost(message, tag = "3")]
        Result(super::MimeBundle),
        /// A figure or something passed to `display()`.
        #[prost(message, tag = "4")]
        Display(super::MimeBundle),
        #[prost(message, tag = "5")]
        Error(super::CellError),
        #[prost(message, tag = "6")]
        End(super::CellEnd),
        /// `clear_output(wait)`: what was displayed so far is void; if true, only once something new comes.
        #[prost(bool, tag = "7")]
        Clear(bool),
        /// Text of an earlier cell's threads or processes, never mixed into this cell's own.
        #[prost(message, tag = "8")]
        Late(super::LateText),
    }
}

/// What an earlier cell wrote after its end.
#[derive(Clone, PartialEq, prost::Message)]
pub struct LateText {
    /// The [`CellEnd::cell`] of the cell whose text it is.
    #[prost(uint64, tag = "1")]
    pub cell: u64,
    /// To stderr rather than stdout.
    #[prost(bool, tag = "2")]
    pub stderr: bool,
    #[prost(string, tag = "3")]
    pub text: String,
    /// Bytes of late text that were not kept, before this piece.
    #[prost(uint64, tag = "4")]
    pub dropped_bytes: u64,
}

/// One object in all its forms, richest knowledge of the interpreter first.
#[derive(Clone, PartialEq, prost::Message)]
pub struct MimeBundle {
    #[prost(message, repeated, tag = "1")]
    pub entries: Vec<MimeEntry>,
    /// Ties an update to an earlier display; empty if none.
    #[prost(string, tag = "2")]
    pub display_id: String,
    /// Replaces the earlier display of the same id.
    #[prost(bool, tag = "3")]
    pub update: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct MimeEntry {
    #[prost(string, tag = "1")]
    pub mime: String,
    /// Text as it is, binary as base64, JSON as JSON text.
    #[prost(string, tag = "2")]
    pub data: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct CellError {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub value: String,
    /// Plain text without colour codes, the user's own frames only.
    #[prost(string, tag = "3")]
    pub traceback: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct CellEnd {
    #[prost(enumeration = "CellStatus", tag = "1")]
    pub status: i32,
    /// 0 for ok, 1 for an exception, the code of a `SystemExit`.
    #[prost(int32, tag = "2")]
    pub exit_code: i32,
    #[prost(uint64, tag = "3")]
    pub duration_ms: u64,
    /// What became of the variables.
    #[prost(enumeration = "ContextState", tag = "4")]
    pub context_state: i32,
    /// Bytes of stdout before the cap; larger than what arrived if it was cut.
    #[prost(uint64, tag = "5")]
    pub stdout_bytes: u64,
    #[prost(uint64, tag = "6")]
    pub stderr_bytes: u64,
    /// Why the state is not `Alive`, e.g. `the interpreter was killed by SIGKILL`; empty if it is.
    #[prost(string, tag = "7")]
    pub context_reason: String,
    #[prost(uint64, tag = "8")]
    pub execution_count: u64,
    /// Which run of its context this was, from 1; unlike `execution_count` it goes on when the process is replaced.
    #[prost(uint64, tag = "9")]
    pub cell: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum CellStatus {
    Unknown = 0,
    Ok = 1,
    /// An exception reached the top; an `Error` event came before.
    Error = 2,
    /// The time limit ran out; `context_state` tells whether the interrupt was enough.
    TimedOut = 3,
    /// The interpreter process ended under the cell; a fresh one serves the next.
    Died = 4,
    /// The caller went away and the cell was interrupted.
    Cancelled = 5,
    /// `InterruptContext` ended it.
    Interrupted = 6,
}

/// What became of a context's variables, as of the end of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum ContextState {
    Unknown = 0,
    /// Those of earlier cells exist.
    Alive = 1,
    /// The process of this or of an earlier cell ended and took them with it; a fresh one serves the context. The cell that lost them says
    /// so, and the next one that is answered says so once more.
    Restarted = 2,
    /// They are gone and no fresh process could be started yet; the next cell tries again.
    Lost = 3,
}

/// Why the agent refused a call, for programs; the status message says it to people.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum Refusal {
    Unknown = 0,
    /// The path is relative or has a NUL.
    InvalidPath = 1,
    NotFound = 2,
    NotADirectory = 3,
    IsADirectory = 4,
    PermissionDenied = 5,
    NoSpace = 6,
    /// Too many entries or too large for one answer.
    TooLarge = 7,
    /// The command could not be started: no such program.
    CommandNotFound = 8,
    /// The command could not be started: not executable or not a program.
    CommandNotExecutable = 9,
    /// The working directory does not exist or is no directory.
    InvalidCwd = 10,
    ContextNotFound = 11,
    TooManyContexts = 12,
    UnknownLanguage = 13,
    /// The interpreter could not be started.
    InterpreterUnavailable = 14,
    /// An id that is in use already.
    ContextExists = 15,
    /// A request that breaks the contract, e.g. a write without a last piece.
    InvalidRequest = 16,
    /// Too many processes or open files in the sandbox.
    Exhausted = 17,
    Io = 18,
    /// The idempotency key was used in this context with other code.
    IdempotencyConflict = 19,
}
