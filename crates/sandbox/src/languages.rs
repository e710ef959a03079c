//! Names of languages, and whether a sandbox has them.

use crate::{driver::Lease, error::LanguageError};

/// A language that a sandbox may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Language {
    Python,
    Node,
    Bash,
    Ruby,
}

use Language::{Bash, Node, Python, Ruby};

/// Those that contexts can speak.
pub(crate) const OF_CONTEXTS: &[Language] = &[Python, Node, Bash];
/// Those of one-shot programs.
pub(crate) const OF_PROGRAMS: &[Language] = &[Python, Node, Bash, Ruby];

impl Language {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Python => "python",
            Node => "node",
            Bash => "bash",
            Ruby => "ruby",
        }
    }

    fn aliases(self) -> &'static [&'static str] {
        match self {
            Python => &["py", "python3"],
            Node => &["javascript", "js"],
            Bash => &["sh", "shell"],
            Ruby => &["rb"],
        }
    }

    /// The program that reads its source from standard input.
    pub(crate) fn program(self) -> &'static [&'static str] {
        match self {
            Python => &["python3", "-"],
            Node => &["node", "-"],
            Bash => &["bash", "-s"],
            Ruby => &["ruby", "-"],
        }
    }

    /// The language of a name; Python if there is none.
    pub(crate) fn parse(given: Option<String>, known: &'static [Self]) -> Result<Self, LanguageError> {
        let Some(text) = given else { return Ok(Python) };
        let named = |language: &&Self| language.name() == text || language.aliases().contains(&text.as_str());
        let found = known.iter().find(named).copied();
        found.ok_or_else(|| LanguageError::Unknown { language: text, known: list(known.iter().copied()) })
    }

    /// Refuses a language that the sandbox has not.
    pub(crate) fn check_present(self, lease: &Lease, known: &'static [Self]) -> Result<(), LanguageError> {
        let has = lease.client().languages();
        // An agent of the first generation does not say.
        if has.is_empty() || has.iter().any(|name| name == self.name()) {
            return Ok(());
        }
        let present = known.iter().copied().filter(|language| has.iter().any(|name| name == language.name()));
        Err(LanguageError::Missing { language: self.name(), has: list(present) })
    }
}

fn list(languages: impl Iterator<Item = Language>) -> String {
    let names: Vec<_> = languages.map(Language::name).collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_aliases_are_known_and_others_refused_with_a_list() {
        for (text, language) in
            [("py", Python), ("python3", Python), ("javascript", Node), ("shell", Bash), ("sh", Bash)]
        {
            assert_eq!(Language::parse(Some(text.to_owned()), OF_CONTEXTS).unwrap(), language);
        }
        assert_eq!(Language::parse(None, OF_CONTEXTS).unwrap(), Python);
        assert_eq!(Language::parse(Some("ruby".to_owned()), OF_PROGRAMS).unwrap(), Ruby);
        let refused = Language::parse(Some("ruby".to_owned()), OF_CONTEXTS).unwrap_err();
        assert_eq!(refused.to_string(), "unknown language \"ruby\": use one of python, node, bash");
    }
}
