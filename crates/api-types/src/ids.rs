//! Names and ids, checked when they are made.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// A text that is no id or name of the wanted kind.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} must be {rule}")]
pub struct InvalidId {
    what: &'static str,
    rule: &'static str,
}

macro_rules! id_type {
    ($(#[$doc:meta])* $name:ident, $what:literal, $rule:literal, $valid:expr) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl FromStr for $name {
            type Err = InvalidId;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                let valid: fn(&str) -> bool = $valid;
                if valid(text) { Ok(Self(text.to_owned())) } else { Err(InvalidId { what: $what, rule: $rule }) }
            }
        }

        impl TryFrom<String> for $name {
            type Error = InvalidId;

            fn try_from(text: String) -> Result<Self, Self::Error> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> Self {
                id.0
            }
        }
    };
}

fn is_uuid(text: &str) -> bool {
    text.len() == 36 && text == text.to_ascii_lowercase() && uuid::Uuid::try_parse(text).is_ok()
}

fn is_name(text: &str) -> bool {
    (1..=64).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
        && !text.starts_with('.')
}

id_type!(
    /// A sandbox. A UUID, so that it is safe in a URL and as a DNS label.
    SandboxId, "a sandbox id", "a lower-case UUID", is_uuid
);
id_type!(
    /// A code context within its sandbox.
    ContextId, "a context id", "a lower-case UUID", is_uuid
);
id_type!(SnapshotId, "a snapshot id", "a lower-case UUID", is_uuid);
id_type!(
    /// A template.
    TemplateName, "a template name", "1 to 64 letters, digits, `.`, `_` or `-`", is_name
);
id_type!(
    /// Whose sandboxes and tokens they are.
    WorkspaceName, "a workspace name", "1 to 64 letters, digits, `.`, `_` or `-`", is_name
);

impl SandboxId {
    /// A fresh id; later ones sort after earlier ones.
    #[must_use]
    pub fn random() -> Self {
        Self(uuid::Uuid::now_v7().to_string())
    }
}

impl SnapshotId {
    /// A fresh id; later ones sort after earlier ones.
    #[must_use]
    pub fn random() -> Self {
        Self(uuid::Uuid::now_v7().to_string())
    }
}

impl ContextId {
    #[must_use]
    pub fn random() -> Self {
        Self(uuid::Uuid::now_v7().to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_ids_are_refused() {
        for text in ["", "..", "a/b", "../x", "A", "018f\0", "x y", ".hidden", &"a".repeat(65)] {
            assert!(text.parse::<SandboxId>().is_err(), "{text:?}");
        }
        assert!("..".parse::<TemplateName>().is_err());
        assert!("a/b".parse::<TemplateName>().is_err());
        assert!("ubuntu-24.04".parse::<TemplateName>().is_ok());
    }

    #[test]
    fn random_ids_parse() {
        let id = SandboxId::random();
        assert_eq!(id.as_str().parse::<SandboxId>(), Ok(id));
    }
}
