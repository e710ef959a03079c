//! Progress of long work: a line that moves on a terminal, plain lines elsewhere.

use std::{io::IsTerminal, sync::Mutex, time::Duration};

use indicatif::{ProgressBar, ProgressStyle};

/// Shows the steps of a template build on stderr.
pub(crate) struct StepProgress {
    bar: Option<ProgressBar>,
    step: Mutex<String>,
}

impl StepProgress {
    pub(crate) fn new() -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new_spinner();
            bar.set_style(
                ProgressStyle::with_template("{spinner} {msg} [{elapsed}]")
                    .unwrap_or_else(|_| ProgressStyle::default_spinner()),
            );
            bar.enable_steady_tick(Duration::from_millis(120));
            bar
        });
        Self { bar, step: Mutex::default() }
    }

    fn say(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.println(text),
            None => crate::output::Output::new(false).note(text),
        }
    }

    pub(crate) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

impl pandastack_template::Progress for StepProgress {
    fn step(&self, name: &str, detail: &str) {
        let text = if detail.is_empty() { name.to_owned() } else { format!("{name}: {detail}") };
        match &self.bar {
            Some(bar) => bar.set_message(text.clone()),
            None => self.say(&text),
        }
        *self.step.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = text;
    }

    fn line(&self, text: &str) {
        if let Some(bar) = &self.bar {
            let step = self.step.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
            let short: String = text.chars().take(80).collect();
            bar.set_message(format!("{step}  {short}"));
        }
    }

    fn done(&self, name: &str, elapsed: Duration) {
        self.say(&format!("  {name} done in {:.1} s", elapsed.as_secs_f64()));
    }
}
