//! How a build tells what it does.

use std::time::{Duration, Instant};

/// Receives what a build does. Called from the build's task, so it must not block for long.
pub trait Progress: Send + Sync {
    /// A step begins.
    fn step(&self, name: &str, detail: &str);
    /// A line of output of the step's tool, without its newline, at most some kilobytes.
    fn line(&self, text: &str);
    /// The step that began last is done.
    fn done(&self, name: &str, elapsed: Duration);
}

/// Tells nobody.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Progress for Silent {
    fn step(&self, _name: &str, _detail: &str) {}
    fn line(&self, _text: &str) {}
    fn done(&self, _name: &str, _elapsed: Duration) {}
}

/// Runs `work` as a step.
pub(crate) async fn step<T, E>(
    progress: &dyn Progress,
    name: &str,
    detail: &str,
    work: impl Future<Output = Result<T, E>>,
) -> Result<T, E> {
    progress.step(name, detail);
    let started = Instant::now();
    let value = work.await?;
    progress.done(name, started.elapsed());
    Ok(value)
}
