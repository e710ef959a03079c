//! Which languages there are programs for.

use std::{env, path::Path};

use pandastack_agent_protocol::messages::Refusal;
use rustix::fs::{Access, access};

use crate::refusal::Refused;

/// What code is in unless said otherwise.
pub(crate) const PYTHON: &str = "python";
/// Those that contexts can be in, and their programs.
const OF_CONTEXTS: [(&str, &str); 3] = [(PYTHON, "python3"), ("node", "node"), ("bash", "bash")];
/// Those that only whole programs can be in.
const OF_PROGRAMS: [(&str, &str); 1] = [("ruby", "ruby")];
const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// The languages whose program was there when the agent started.
#[derive(Clone, Debug)]
pub(crate) struct Languages {
    of_contexts: Vec<&'static str>,
    of_programs: Vec<&'static str>,
}

impl Languages {
    /// Looks for the programs in `PATH`. `python` is the one that contexts run.
    pub(crate) fn probe(python: &Path) -> Self {
        let path = env::var_os("PATH").unwrap_or_else(|| DEFAULT_PATH.into());
        let is_there = |&(language, program): &(&'static str, &str)| {
            let found = env::split_paths(&path).any(|directory| is_program(&directory.join(program)));
            (found || (language == PYTHON && is_program(python))).then_some(language)
        };
        Self {
            of_contexts: OF_CONTEXTS.iter().filter_map(is_there).collect(),
            of_programs: OF_PROGRAMS.iter().filter_map(is_there).collect(),
        }
    }

    pub(crate) fn all(&self) -> Vec<String> {
        self.of_contexts.iter().chain(&self.of_programs).map(|&language| language.to_owned()).collect()
    }

    /// The language of a new context; empty means Python, whose absence the interpreter's own start tells of.
    ///
    /// # Errors
    /// If there is none of this name, with a list of those that there are.
    pub(crate) fn of_context(&self, name: &str) -> Result<&'static str, Refused> {
        if name.is_empty() || name == PYTHON {
            return Ok(PYTHON);
        }
        self.of_contexts.iter().copied().find(|&language| language == name).ok_or_else(|| {
            let known = self.of_contexts.join(", ");
            Refused::new(Refusal::UnknownLanguage, format!("no context can be in {name:?} here, only in {known}"))
        })
    }
}

fn is_program(path: &Path) -> bool {
    path.is_file() && access(path, Access::EXEC_OK).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_languages_are_refused_with_those_that_there_are() {
        let languages = Languages { of_contexts: vec![PYTHON, "bash"], of_programs: vec!["ruby"] };
        assert_eq!(languages.of_context("").unwrap(), "python");
        assert_eq!(languages.of_context("bash").unwrap(), "bash");
        for name in ["node", "ruby", "Python"] {
            let refused = languages.of_context(name).unwrap_err();
            assert_eq!(refused.refusal, Refusal::UnknownLanguage);
            assert!(refused.message.ends_with("only in python, bash"), "{}", refused.message);
        }
        assert_eq!(languages.all(), ["python", "bash", "ruby"]);
    }

    #[test]
    fn programs_are_looked_for() {
        let languages = Languages::probe(Path::new("/bin/sh"));
        assert!(languages.all().contains(&"python".to_owned()));
    }
}
