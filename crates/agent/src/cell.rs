//! One cell from its start to its end.
//!
//! ```text
//!             end, death
//!   running ------------------------------------> finished
//!      | time limit, interrupted, cancelled           ^
//!      v                 end                          |
//!   interrupting ------------------------------------ +
//!      |  SIGINT to the group, again and again        |
//!      v  1.3 s                                       |
//!   killed: the process and its session ------------- +
//! ```

use std::{future, time::Duration};

use pandastack_agent_protocol::{
    CELL_STREAM_CAP, MAX_CELL_STREAM_CAP,
    messages::{CellEnd, CellError, CellStatus, LateText, MimeBundle, MimeEntry, RunCellRequest, cell_event::Kind},
};
use tokio::time::{self, Instant};
use tokio_util::sync::CancellationToken;

use crate::{
    calls::CallGuard,
    interpreter::Interpreter,
    late::LateOutput,
    outbox::Outbox,
    output::{CappedText, Channel, Pace, read_either},
    wire::{End, FromContext, Mime, ReceiveError},
};

/// From the first interrupt until the process is killed: all in all an answer comes within 2 s of a time limit.
pub(crate) const INTERRUPT_GRACE: Duration = Duration::from_millis(1300);
/// Between interrupts: code that starts one process after another swallows the first few.
const INTERRUPT_INTERVAL: Duration = Duration::from_millis(250);
/// Events that are held for a host that does not read while a cell is being interrupted.
const MOST_PENDING: usize = 64;
/// Bytes of earlier cells' text that one answer takes along; more waits for the next.
const MOST_LATE_BYTES: usize = 64 * 1024;

/// A cell to run.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) request: RunCellRequest,
    pub(crate) out: Outbox,
    /// The caller does not want it any more.
    pub(crate) cancel: CancellationToken,
    /// Until it has ended, also when its caller has gone.
    pub(crate) under_way: CallGuard,
}

/// Who may end a cell before it ends itself.
#[derive(Debug)]
pub(crate) struct Stops<'a> {
    pub(crate) cancel: &'a CancellationToken,
    pub(crate) interrupt: &'a CancellationToken,
    pub(crate) closing: &'a CancellationToken,
}

/// How a cell left its process.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// It serves the next cell.
    Alive(Verdict),
    /// It has died, or broken the contract as `fault` says.
    Broken { fault: String },
    /// It did not heed the interrupts.
    Unresponsive { status: CellStatus },
    /// The context is being closed.
    Closing,
}

/// What the interpreter said at the end.
#[derive(Debug)]
pub(crate) struct Verdict {
    pub(crate) status: CellStatus,
    pub(crate) end: End,
}

/// A cell while it runs.
pub(crate) struct Cell<'a> {
    interpreter: &'a mut Interpreter,
    number: u64,
    started: Instant,
    deadline: Option<Instant>,
    stage: Stage,
    pace: Pace,
    stdout: CappedText,
    stderr: CappedText,
    late: &'a mut LateOutput,
    late_room: usize,
    out: Outbox,
}

#[derive(Clone, Copy)]
enum Stage {
    Running,
    Interrupting { status: CellStatus, next: Instant, until: Instant },
}

impl<'a> Cell<'a> {
    /// Of a cell that the process has just been given.
    pub(crate) fn new(
        interpreter: &'a mut Interpreter,
        late: &'a mut LateOutput,
        number: u64,
        request: &RunCellRequest,
        mut out: Outbox,
    ) -> Self {
        let started = Instant::now();
        let limit = (request.timeout_ms > 0).then(|| Duration::from_millis(request.timeout_ms));
        let cap = match request.max_output_bytes {
            0 => CELL_STREAM_CAP,
            bytes => bytes.min(MAX_CELL_STREAM_CAP),
        };
        for piece in late.take() {
            out.push(Kind::Late(piece));
        }
        Self {
            interpreter,
            number,
            started,
            deadline: limit.and_then(|limit| started.checked_add(limit)),
            stage: Stage::Running,
            pace: Pace::default(),
            stdout: CappedText::new(cap),
            stderr: CappedText::new(cap),
            late,
            late_room: MOST_LATE_BYTES,
            out,
        }
    }

    /// Follows the cell to its end.
    pub(crate) async fn follow(&mut self, stops: &Stops<'_>) -> Outcome {
        loop {
            let held = self.out.held();
            let may_read = held == 0 || (matches!(self.stage, Stage::Interrupting { .. }) && held < MOST_PENDING);
            let running = matches!(self.stage, Stage::Running);
            tokio::select! {
                biased;
                () = stops.closing.cancelled() => return Outcome::Closing,
                () = stops.interrupt.cancelled(), if running => self.begin_interrupt(CellStatus::Interrupted),
                () = stops.cancel.cancelled(), if running => self.begin_interrupt(CellStatus::Cancelled),
                () = alarm(self.deadline, self.stage) => {
                    if let Some(outcome) = self.alarmed() {
                        return outcome;
                    }
                }
                () = self.out.send_one(), if held > 0 => {}
                message = crate::wire::receive(&mut self.interpreter.receiver), if may_read => {
                    self.drain();
                    if let Some(outcome) = self.handle(message) {
                        self.flush_text();
                        return outcome;
                    }
                }
                (channel, bytes) = read_either(&mut self.pace, &mut self.interpreter.stdout, &mut self.interpreter.stderr), if may_read => {
                    match channel {
                        Channel::Stdout => emit(&mut self.stdout, bytes, Kind::Stdout, &mut self.out),
                        Channel::Stderr => emit(&mut self.stderr, bytes, Kind::Stderr, &mut self.out),
                    }
                }
            }
        }
    }

    /// The end as far as the cell itself knows it, and the way to its caller.
    pub(crate) fn into_end(self) -> (CellEnd, Outbox) {
        let end = CellEnd {
            status: CellStatus::Died as i32,
            exit_code: 1,
            duration_ms: u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX),
            stdout_bytes: self.stdout.total(),
            stderr_bytes: self.stderr.total(),
            cell: self.number,
            ..CellEnd::default()
        };
        (end, self.out)
    }

    fn begin_interrupt(&mut self, status: CellStatus) {
        let now = Instant::now();
        self.interpreter.interrupt();
        self.stage = Stage::Interrupting { status, next: now + INTERRUPT_INTERVAL, until: now + INTERRUPT_GRACE };
    }

    fn alarmed(&mut self) -> Option<Outcome> {
        match self.stage {
            Stage::Running => self.begin_interrupt(CellStatus::TimedOut),
            Stage::Interrupting { status, until, .. } if Instant::now() >= until => {
                self.drain();
                self.flush_text();
                return Some(Outcome::Unresponsive { status });
            }
            Stage::Interrupting { status, next, until } => {
                self.interpreter.interrupt();
                self.stage = Stage::Interrupting { status, next: (next + INTERRUPT_INTERVAL).min(until), until };
            }
        }
        None
    }

    /// Takes what was written before the message at hand: that keeps text and results in their order.
    fn drain(&mut self) {
        let Self { interpreter, stdout, stderr, out, .. } = self;
        interpreter.drain(|channel, bytes| match channel {
            Channel::Stdout => emit(stdout, bytes, Kind::Stdout, out),
            Channel::Stderr => emit(stderr, bytes, Kind::Stderr, out),
        });
    }

    fn flush_text(&mut self) {
        let rest = [self.stdout.finish().map(Kind::Stdout), self.stderr.finish().map(Kind::Stderr)];
        for kind in rest.into_iter().flatten() {
            self.out.push(kind);
        }
    }

    /// Handles a message. Of what earlier cells still say, only text is of interest.
    fn handle(&mut self, message: Result<FromContext, ReceiveError>) -> Option<Outcome> {
        let message = match message {
            Ok(message) => message,
            Err(error) => return Some(Outcome::Broken { fault: error.fault() }),
        };
        match message {
            FromContext::End(end) if end.cell == self.number => {
                return Some(Outcome::Alive(Verdict { status: self.status(&end), end }));
            }
            FromContext::Result { cell, data } if cell == self.number => {
                self.out.push(Kind::Result(bundle(data, None, false)));
            }
            FromContext::Display { cell, data, display_id, update } if cell == self.number => {
                self.out.push(Kind::Display(bundle(data, display_id, update)));
            }
            FromContext::Sync => return self.answer_sync(),
            FromContext::Clear { cell, wait } if cell == self.number => self.out.push(Kind::Clear(wait)),
            FromContext::Stream { cell, name, text } if cell == self.number => {
                if name == "stderr" {
                    emit(&mut self.stderr, text.as_bytes(), Kind::Stderr, &mut self.out);
                } else {
                    emit(&mut self.stdout, text.as_bytes(), Kind::Stdout, &mut self.out);
                }
            }
            FromContext::Stream { cell, name, text } if cell < self.number => {
                self.pass_late(LateText { cell, stderr: name == "stderr", text, dropped_bytes: 0 });
            }
            FromContext::Error { cell, name, value, traceback } if cell == self.number => {
                self.out.push(Kind::Error(CellError { name, value, traceback }));
            }
            _ => tracing::debug!("a late message of an earlier cell was dropped"),
        }
        None
    }

    fn answer_sync(&mut self) -> Option<Outcome> {
        let fault = self.interpreter.answer_sync().err()?.to_string();
        Some(Outcome::Broken { fault })
    }

    fn pass_late(&mut self, piece: LateText) {
        if piece.cell == 0 || piece.text.len() > self.late_room {
            self.late_room = 0;
            self.late.keep(piece);
        } else {
            self.late_room -= piece.text.len();
            self.out.push(Kind::Late(piece));
        }
    }

    fn status(&self, end: &End) -> CellStatus {
        match self.stage {
            Stage::Interrupting { status, .. } => status,
            Stage::Running if end.status == "ok" => CellStatus::Ok,
            Stage::Running => CellStatus::Error,
        }
    }
}

fn emit(text: &mut CappedText, bytes: &[u8], kind: impl FnOnce(String) -> Kind, out: &mut Outbox) {
    if let Some(text) = text.push(bytes) {
        out.push(kind(text));
    }
}

fn bundle(data: Mime, display_id: Option<String>, update: bool) -> MimeBundle {
    MimeBundle {
        entries: data.0.into_iter().map(|(mime, data)| MimeEntry { mime, data }).collect(),
        display_id: display_id.unwrap_or_default(),
        update,
    }
}

async fn alarm(deadline: Option<Instant>, stage: Stage) {
    match (stage, deadline) {
        (Stage::Running, None) => future::pending().await,
        (Stage::Running, Some(deadline)) => time::sleep_until(deadline).await,
        (Stage::Interrupting { next, .. }, _) => time::sleep_until(next).await,
    }
}
