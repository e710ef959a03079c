use std::{os::unix::fs::OpenOptionsExt, path::Path, time::Duration};

use sqlx::{
    SqlitePool,
    migrate::Migrator,
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous},
};

use crate::StoreError;

pub(crate) static MIGRATIONS: Migrator = sqlx::migrate!("./migrations");

/// SQLite has one writer at a time; a few more connections let reads go beside it.
const CONNECTIONS: u32 = 4;
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// A statement that changes rows.
pub(crate) type Change<'a> = sqlx::query::Query<'a, sqlx::Sqlite, sqlx::sqlite::SqliteArguments>;

/// The database. A clone is another handle to the same one.
#[derive(Clone, Debug)]
pub struct Store {
    pub(crate) pool: SqlitePool,
    /// A connection whose commits wait for the disk; a database in memory has none.
    durable: Option<SqlitePool>,
}

impl Store {
    /// Opens the database file, creating it (mode 0600) and bringing its schema up to date.
    ///
    /// # Errors
    /// If the file cannot be created, is no database, or was written by a newer version.
    pub async fn open(path: &Path) -> Result<Self, StoreError> {
        create_private_file(path).map_err(|source| StoreError::CreateFile { path: path.to_owned(), source })?;
        let options = SqliteConnectOptions::new()
            .filename(path)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Normal)
            .foreign_keys(true)
            .busy_timeout(BUSY_TIMEOUT);
        let pool = SqlitePoolOptions::new().max_connections(CONNECTIONS).connect_with(options.clone()).await;
        let store = Self::migrated(pool.map_err(StoreError::Open)?).await?;
        let durable = options.synchronous(SqliteSynchronous::Full);
        let durable = SqlitePoolOptions::new().max_connections(1).connect_lazy_with(durable);
        Ok(Self { durable: Some(durable), ..store })
    }

    /// Opens a database that lives as long as the returned handle, for tests.
    ///
    /// # Errors
    /// If SQLite refuses.
    pub async fn open_in_memory() -> Result<Self, StoreError> {
        let options = SqliteConnectOptions::new().in_memory(true).foreign_keys(true);
        // Each connection to `:memory:` is its own database, so there must be exactly one that never closes.
        let pool =
            SqlitePoolOptions::new().max_connections(1).idle_timeout(None).max_lifetime(None).connect_with(options);
        Self::migrated(pool.await.map_err(StoreError::Open)?).await
    }

    /// Makes everything committed so far survive a power cut. It waits for the disk once.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn sync(&self) -> Result<(), StoreError> {
        let Some(durable) = &self.durable else { return Ok(()) };
        // A commit of this connection syncs the log, and with it all commits before.
        let write = sqlx::query(
            "INSERT INTO synced (id, times) VALUES (1, 1) ON CONFLICT (id) DO UPDATE SET times = times + 1",
        );
        let write = write.execute(durable).await;
        write.map_err(StoreError::query("write the database to disk"))?;
        Ok(())
    }

    /// Writes everything back into the main file and closes it.
    pub async fn close(&self) {
        if let Some(durable) = &self.durable {
            durable.close().await;
        }
        self.pool.close().await;
    }

    /// Runs a statement and says whether it changed a row.
    pub(crate) async fn changed(&self, operation: &'static str, change: Change<'_>) -> Result<bool, StoreError> {
        let done = change.execute(&self.pool).await.map_err(StoreError::query(operation))?;
        Ok(done.rows_affected() > 0)
    }

    async fn migrated(pool: SqlitePool) -> Result<Self, StoreError> {
        MIGRATIONS.run(&pool).await.map_err(StoreError::Migrate)?;
        Ok(Self { pool, durable: None })
    }
}

/// SQLite gives its `-wal` and `-shm` files the mode of the main one.
fn create_private_file(path: &Path) -> std::io::Result<()> {
    std::fs::OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(path).map(drop)
}

/// Milliseconds since 1970.
pub(crate) fn now_ms() -> i64 {
    jiff::Timestamp::now().as_millisecond()
}
