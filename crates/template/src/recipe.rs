//! Recipes: their format and the first-party ones.

use std::{path::Path, sync::LazyLock};

use pandastack_engine::Resources;
use serde::{Deserialize, Serialize};

use crate::error::RecipeError;

/// Most characters of a template's name.
const MAX_NAME: usize = 64;

/// What a template is made of. Parsed strictly: an unknown key is an error.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recipe {
    pub name: String,
    /// For people, a few words.
    pub label: String,
    /// For people, a sentence.
    pub description: String,
    pub category: String,
    /// Other names under which sandboxes can be created from it.
    pub aliases: Vec<String>,
    /// What is in it that people ask for by name.
    pub tools: Vec<String>,
    pub vcpus: u32,
    pub memory_mib: u64,
    pub disk_mib: u64,
    /// Most processes and threads.
    pub pids: u32,
    pub system: System,
    #[serde(default)]
    pub files: Vec<RecipeFile>,
    pub interpreter: Interpreter,
    /// The pinned Python packages: pip's requirements format, each with hashes.
    #[serde(skip)]
    pub lock: String,
}

/// The Debian system of a template.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct System {
    /// The Debian release's code name.
    pub suite: String,
    /// Names of apt packages, installed without recommendations.
    pub packages: Vec<String>,
    /// Directories to make, absolute.
    pub directories: Vec<String>,
}

/// A file that a recipe adds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecipeFile {
    /// Absolute.
    pub path: String,
    pub text: String,
}

/// How the interpreter is warmed up before the snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Interpreter {
    /// Address space that one context may use, in MiB: what its libraries map counts, touched or not.
    pub cell_memory_mib: u64,
    /// Modules that the zygote imports.
    pub warm_imports: Vec<String>,
    /// Code to run once in a context that is thrown away; empty means none.
    pub warm_cell: String,
}

impl Recipe {
    /// Reads a recipe from its two files.
    ///
    /// # Errors
    /// The TOML has another shape, or a value could do more than its field should.
    pub fn parse(recipe: &str, lock: &str) -> Result<Self, RecipeError> {
        let recipe = Self { lock: lock.to_owned(), ..toml::from_str(recipe)? };
        recipe.check()?;
        Ok(recipe)
    }

    /// Whether `name` is the recipe's own name or an alias.
    #[must_use]
    pub fn answers_to(&self, name: &str) -> bool {
        self.name == name || self.aliases.iter().any(|alias| alias == name)
    }

    /// The limits of its sandboxes.
    #[must_use]
    pub fn resources(&self) -> Resources {
        let &Self { vcpus, memory_mib, disk_mib, pids, .. } = self;
        Resources { vcpus, memory_mib, disk_mib, pids }
    }

    /// What it is built on, for people, e.g. `debian-trixie`.
    #[must_use]
    pub fn base(&self) -> String {
        format!("debian-{}", self.system.suite)
    }

    fn check(&self) -> Result<(), RecipeError> {
        for name in std::iter::once(&self.name).chain(&self.aliases) {
            ensure(is_name(name), "a name", name)?;
        }
        ensure(is_word(&self.system.suite, "-"), "the suite", &self.system.suite)?;
        for package in &self.system.packages {
            ensure(is_word(package, "+.-"), "an apt package", package)?;
        }
        for path in self.system.directories.iter().chain(self.files.iter().map(|file| &file.path)) {
            ensure(is_plain_absolute(path), "a path", path)?;
        }
        for module in &self.interpreter.warm_imports {
            ensure(module.split('.').all(is_identifier), "a warm import", module)?;
        }
        let Resources { vcpus, memory_mib, disk_mib, pids } = self.resources();
        let sane = (1..=64).contains(&vcpus)
            && (128..=1_048_576).contains(&memory_mib)
            && (64..=16_777_216).contains(&disk_mib)
            && (32..=65_536).contains(&pids);
        ensure(sane, "resources", &format!("{:?}", self.resources()))
    }
}

fn ensure(valid: bool, field: &'static str, value: &str) -> Result<(), RecipeError> {
    if valid { Ok(()) } else { Err(RecipeError::Invalid { field, value: value.to_owned() }) }
}

/// Also safe as a file name: no leading dot.
fn is_name(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    (1..=MAX_NAME).contains(&text.len()) && text.bytes().all(allowed) && !text.starts_with('.')
}

/// A word that no tool could take for an option or a separator.
fn is_word(text: &str, punctuation: &str) -> bool {
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || punctuation.contains(c);
    text.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit()) && text.chars().all(allowed)
}

fn is_identifier(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

fn is_plain_absolute(text: &str) -> bool {
    use std::path::Component::{Normal, RootDir};
    let path = Path::new(text);
    path.is_absolute()
        && text != "/"
        && !text.contains('\0')
        && path.components().all(|part| matches!(part, RootDir | Normal(_)))
}

static FIRST_PARTY: LazyLock<Vec<Recipe>> = LazyLock::new(|| {
    let sources = [
        (
            include_str!("../../../guest/templates/code-interpreter/recipe.toml"),
            include_str!("../../../guest/templates/code-interpreter/requirements.lock"),
        ),
        (
            include_str!("../../../guest/templates/base/recipe.toml"),
            include_str!("../../../guest/templates/base/requirements.lock"),
        ),
    ];
    let parse =
        |(recipe, lock)| Recipe::parse(recipe, lock).expect("first-party recipes are valid: a test parses them");
    sources.into_iter().map(parse).collect()
});

/// The recipes that come with the program.
pub(crate) fn first_party() -> &'static [Recipe] {
    &FIRST_PARTY
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SMALL: &str = r#"
        name = "small"
        label = "Small"
        description = "A test"
        category = "code"
        aliases = ["tiny"]
        tools = []
        vcpus = 1
        memory_mib = 512
        disk_mib = 512
        pids = 128
        [system]
        suite = "trixie"
        packages = ["python3"]
        directories = ["/work"]
        [interpreter]
        cell_memory_mib = 256
        warm_imports = ["os.path"]
        warm_cell = "1"
    "#;

    #[test]
    fn first_party_recipes_are_valid_and_their_names_unique() {
        let mut names: Vec<&str> = first_party()
            .iter()
            .flat_map(|recipe| std::iter::once(&recipe.name).chain(&recipe.aliases))
            .map(String::as_str)
            .collect();
        names.sort_unstable();
        assert_eq!(names, ["base", "code-interpreter", "ubuntu-24.04"]);
        for recipe in first_party() {
            let pins = recipe.lock.lines().filter(|line| line.contains("==")).count();
            let hashes = recipe.lock.matches("--hash=sha256:").count();
            assert!(pins > 0 && hashes >= pins, "{}: {pins} pins, {hashes} hashes", recipe.name);
        }
    }

    #[test]
    fn a_recipe_answers_to_its_aliases() {
        let recipe = Recipe::parse(SMALL, "").unwrap();
        assert!(recipe.answers_to("small") && recipe.answers_to("tiny") && !recipe.answers_to("other"));
    }

    #[test]
    fn unknown_keys_are_refused() {
        for extra in ["colour = 1\n", "[weather]\nrain = 1\n"] {
            let text = format!("{extra}{SMALL}");
            assert!(matches!(Recipe::parse(&text, ""), Err(RecipeError::Parse(_))), "{extra}");
        }
        let text = SMALL.replace("vcpus = 1", "vcpus = 1\nspeed = 2");
        assert!(matches!(Recipe::parse(&text, ""), Err(RecipeError::Parse(_))));
    }

    #[test]
    fn values_that_could_do_more_are_refused() {
        for (from, to) in [
            ("\"small\"", "\"../up\""),
            ("\"small\"", "\".hidden\""),
            ("\"python3\"", "\"-o=evil\""),
            ("\"python3\"", "\"a,b\""),
            ("\"trixie\"", "\"--help\""),
            ("\"/work\"", "\"work\""),
            ("\"/work\"", "\"/work/../etc\""),
            ("\"os.path\"", "\"os;import sys\""),
            ("vcpus = 1", "vcpus = 0"),
        ] {
            let text = SMALL.replace(from, to);
            assert!(matches!(Recipe::parse(&text, ""), Err(RecipeError::Invalid { .. })), "{to}");
        }
    }

    proptest! {
        #[test]
        fn garbage_never_panics(text in ".*") {
            drop(Recipe::parse(&text, ""));
        }
    }
}
