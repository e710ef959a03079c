-- Times are milliseconds since 1970. A secret is never stored, only its SHA-256.
CREATE TABLE tokens (
    prefix        TEXT    NOT NULL PRIMARY KEY,
    secret_sha256 BLOB    NOT NULL CHECK (length(secret_sha256) = 32),
    workspace     TEXT    NOT NULL,
    label         TEXT    NOT NULL,
    created_at_ms INTEGER NOT NULL,
    expires_at_ms INTEGER,
    revoked_at_ms INTEGER
) STRICT, WITHOUT ROWID;

CREATE INDEX tokens_of_workspace ON tokens (workspace, created_at_ms);

-- A deleted sandbox keeps its row, with deleted_at_ms set, until it is pruned.
CREATE TABLE sandboxes (
    id             TEXT    NOT NULL PRIMARY KEY,
    workspace      TEXT    NOT NULL,
    vm_id          TEXT,
    template       TEXT    NOT NULL,
    template_hash  TEXT    NOT NULL,
    status         TEXT    NOT NULL
        CHECK (status IN ('creating', 'running', 'paused', 'stopping', 'failed', 'deleted')),
    metadata       TEXT    NOT NULL CHECK (json_valid(metadata)),
    persistent     INTEGER NOT NULL CHECK (persistent IN (0, 1)),
    ttl_seconds    INTEGER NOT NULL CHECK (ttl_seconds >= 0),
    created_at_ms  INTEGER NOT NULL,
    last_active_ms INTEGER NOT NULL,
    boot_mode      TEXT    NOT NULL,
    boot_ms        INTEGER NOT NULL,
    isolation      TEXT    NOT NULL,
    from_snapshot  TEXT,
    stop_reason    TEXT,
    cpu            INTEGER NOT NULL,
    memory_mb      INTEGER NOT NULL,
    deleted_at_ms  INTEGER
) STRICT, WITHOUT ROWID;

CREATE INDEX sandboxes_of_workspace ON sandboxes (workspace, created_at_ms) WHERE status <> 'deleted';
CREATE INDEX sandboxes_deleted ON sandboxes (deleted_at_ms) WHERE status = 'deleted';
