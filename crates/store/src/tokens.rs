use pandastack_api_types::WorkspaceName;
use sqlx::{Row, sqlite::SqliteRow};
use subtle::ConstantTimeEq;

use crate::{NewToken, Store, StoreError, TokenRecord, TokenSecret, store::now_ms};

const CREATE_ATTEMPTS: usize = 4;

impl Store {
    /// Makes a token of a workspace; `expires_at_ms` is in milliseconds since 1970.
    ///
    /// # Errors
    /// If the random source or the database fails.
    pub async fn create_token(
        &self,
        workspace: &WorkspaceName,
        label: &str,
        expires_at_ms: Option<i64>,
    ) -> Result<NewToken, StoreError> {
        for _ in 0..CREATE_ATTEMPTS {
            let secret = TokenSecret::random()?;
            let record = TokenRecord {
                prefix: secret.prefix().to_owned(),
                workspace: workspace.clone(),
                label: label.to_owned(),
                created_at_ms: now_ms(),
                expires_at_ms,
            };
            if self.insert_token(&secret, &record).await? {
                return Ok(NewToken { secret, record });
            }
        }
        Err(StoreError::TokenCollision)
    }

    /// The token a client presented, if it exists, was not revoked and has not expired.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn find_token(&self, secret: &str) -> Result<Option<TokenRecord>, StoreError> {
        self.find_token_at(secret, now_ms()).await
    }

    pub(crate) async fn find_token_at(&self, secret: &str, now_ms: i64) -> Result<Option<TokenRecord>, StoreError> {
        let Ok(secret) = TokenSecret::parse(secret) else { return Ok(None) };
        let row = sqlx::query(
            "SELECT prefix, workspace, label, created_at_ms, expires_at_ms, secret_sha256
             FROM tokens WHERE prefix = ?1 AND revoked_at_ms IS NULL",
        )
        .bind(secret.prefix())
        .fetch_optional(&self.pool)
        .await
        .map_err(StoreError::query("look up a token"))?;
        let Some(row) = row else { return Ok(None) };
        let stored: Vec<u8> = row.try_get("secret_sha256").map_err(StoreError::query("read a token"))?;
        let record = token_from(&row)?;
        let same = bool::from(stored.as_slice().ct_eq(secret.sha256().as_slice()));
        let expired = record.expires_at_ms.is_some_and(|at| at <= now_ms);
        Ok((same && !expired).then_some(record))
    }

    /// The tokens of a workspace that were not revoked, newest first, expired ones included.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn list_tokens(&self, workspace: &WorkspaceName) -> Result<Vec<TokenRecord>, StoreError> {
        let rows = sqlx::query(
            "SELECT prefix, workspace, label, created_at_ms, expires_at_ms FROM tokens
             WHERE workspace = ?1 AND revoked_at_ms IS NULL ORDER BY created_at_ms DESC, prefix",
        )
        .bind(workspace.as_str())
        .fetch_all(&self.pool)
        .await
        .map_err(StoreError::query("list tokens"))?;
        rows.iter().map(token_from).collect()
    }

    /// Ends a token of a workspace; false if it has none of that prefix.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn revoke_token(&self, workspace: &WorkspaceName, prefix: &str) -> Result<bool, StoreError> {
        let done = sqlx::query(
            "UPDATE tokens SET revoked_at_ms = ?1 WHERE prefix = ?2 AND workspace = ?3 AND revoked_at_ms IS NULL",
        )
        .bind(now_ms())
        .bind(prefix)
        .bind(workspace.as_str())
        .execute(&self.pool)
        .await
        .map_err(StoreError::query("revoke a token"))?;
        Ok(done.rows_affected() > 0)
    }

    /// How many tokens were not revoked, in all workspaces.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn token_count(&self) -> Result<u64, StoreError> {
        let count: i64 = sqlx::query_scalar("SELECT count(*) FROM tokens WHERE revoked_at_ms IS NULL")
            .fetch_one(&self.pool)
            .await
            .map_err(StoreError::query("count tokens"))?;
        Ok(count.unsigned_abs())
    }

    /// False if the prefix is taken.
    async fn insert_token(&self, secret: &TokenSecret, record: &TokenRecord) -> Result<bool, StoreError> {
        let done = sqlx::query(
            "INSERT INTO tokens (prefix, secret_sha256, workspace, label, created_at_ms, expires_at_ms)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT (prefix) DO NOTHING",
        )
        .bind(&record.prefix)
        .bind(secret.sha256().to_vec())
        .bind(record.workspace.as_str())
        .bind(&record.label)
        .bind(record.created_at_ms)
        .bind(record.expires_at_ms)
        .execute(&self.pool)
        .await
        .map_err(StoreError::query("insert a token"))?;
        Ok(done.rows_affected() > 0)
    }
}

fn token_from(row: &SqliteRow) -> Result<TokenRecord, StoreError> {
    let columns = || -> Result<_, sqlx::Error> {
        Ok((
            row.try_get("prefix")?,
            row.try_get::<String, _>("workspace")?,
            row.try_get("label")?,
            row.try_get("created_at_ms")?,
            row.try_get("expires_at_ms")?,
        ))
    };
    let (prefix, workspace, label, created_at_ms, expires_at_ms) =
        columns().map_err(StoreError::query("read a token"))?;
    let workspace = workspace.parse().map_err(|_| StoreError::CorruptRow {
        table: "tokens",
        column: "workspace",
        value: workspace,
    })?;
    Ok(TokenRecord { prefix, workspace, label, created_at_ms, expires_at_ms })
}
