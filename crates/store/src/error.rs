use std::path::PathBuf;

/// Why the store could not answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    #[error("could not create the database file {path}")]
    CreateFile { path: PathBuf, source: std::io::Error },
    #[error("could not open the database")]
    Open(#[source] sqlx::Error),
    #[error("could not bring the database to this version's schema")]
    Migrate(#[source] sqlx::migrate::MigrateError),
    #[error("could not {operation}")]
    Query { operation: &'static str, source: sqlx::Error },
    /// A row that this version did not write, or a damaged file.
    #[error("column {column} of a {table} row holds {value:?}")]
    CorruptRow { table: &'static str, column: &'static str, value: String },
    #[error("{field} {value} does not fit the database")]
    OutOfRange { field: &'static str, value: u64 },
    #[error("the operating system gave no random bytes")]
    Random(#[source] getrandom::Error),
    /// Cannot happen unless the random source is broken.
    #[error("every new token collided with an existing one")]
    TokenCollision,
}

/// SQLite's code for a full disk, and the one it has if the index of its log cannot grow.
const FULL_CODES: [&str; 2] = ["13", "4874"];

impl StoreError {
    /// Whether it failed because the disk is full, so that room on it helps.
    #[must_use]
    pub fn is_full(&self) -> bool {
        match self {
            Self::CreateFile { source, .. } => source.kind() == std::io::ErrorKind::StorageFull,
            Self::Open(source) | Self::Query { source, .. } => is_full(source),
            Self::Migrate(sqlx::migrate::MigrateError::Execute(source)) => is_full(source),
            _ => false,
        }
    }

    pub(crate) fn query(operation: &'static str) -> impl FnOnce(sqlx::Error) -> Self {
        move |source| Self::Query { operation, source }
    }
}

fn is_full(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Database(error) => error.code().is_some_and(|code| FULL_CODES.contains(&code.as_ref())),
        sqlx::Error::Io(error) => error.kind() == std::io::ErrorKind::StorageFull,
        _ => false,
    }
}
