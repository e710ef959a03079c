-- A CHECK cannot be altered, so the table is copied.
CREATE TABLE sandboxes_next (
    id             TEXT    NOT NULL PRIMARY KEY,
    workspace      TEXT    NOT NULL,
    vm_id          TEXT,
    template       TEXT    NOT NULL,
    template_hash  TEXT    NOT NULL,
    status         TEXT    NOT NULL
        CHECK (status IN ('creating', 'running', 'paused', 'hibernated', 'stopping', 'failed', 'deleted')),
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
    deleted_at_ms  INTEGER,
    -- The image of a hibernated sandbox.
    snapshot_id    TEXT,
    -- The idempotency key of the request that made it, and a hash of what was asked.
    request_key    TEXT,
    request_hash   TEXT,
    CHECK (status <> 'hibernated' OR snapshot_id IS NOT NULL),
    CHECK ((request_key IS NULL) = (request_hash IS NULL))
) STRICT, WITHOUT ROWID;

INSERT INTO sandboxes_next (id, workspace, vm_id, template, template_hash, status, metadata, persistent, ttl_seconds,
        created_at_ms, last_active_ms, boot_mode, boot_ms, isolation, from_snapshot, stop_reason, cpu, memory_mb,
        deleted_at_ms)
    SELECT id, workspace, vm_id, template, template_hash, status, metadata, persistent, ttl_seconds,
        created_at_ms, last_active_ms, boot_mode, boot_ms, isolation, from_snapshot, stop_reason, cpu, memory_mb,
        deleted_at_ms
    FROM sandboxes;

DROP TABLE sandboxes;
ALTER TABLE sandboxes_next RENAME TO sandboxes;

CREATE INDEX sandboxes_of_workspace ON sandboxes (workspace, created_at_ms) WHERE status <> 'deleted';
CREATE INDEX sandboxes_deleted ON sandboxes (deleted_at_ms) WHERE status = 'deleted';
CREATE INDEX sandboxes_of_request ON sandboxes (workspace, request_key) WHERE request_key IS NOT NULL;

-- The files are in the data directory under the id; a row says what they are and whether they are whole.
CREATE TABLE snapshots (
    id            TEXT    NOT NULL PRIMARY KEY,
    workspace     TEXT    NOT NULL,
    sandbox_id    TEXT    NOT NULL,
    kind          TEXT    NOT NULL CHECK (kind IN ('snapshot', 'fork', 'hibernation')),
    status        TEXT    NOT NULL CHECK (status IN ('creating', 'ready', 'deleting')),
    name          TEXT,
    metadata      TEXT    NOT NULL CHECK (json_valid(metadata)),
    template      TEXT    NOT NULL,
    template_hash TEXT    NOT NULL,
    cpu           INTEGER NOT NULL,
    memory_mb     INTEGER NOT NULL,
    size_bytes    INTEGER NOT NULL,
    paused_ms     INTEGER NOT NULL,
    created_at_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX snapshots_of_workspace ON snapshots (workspace, created_at_ms);

CREATE TABLE events (
    seq        INTEGER PRIMARY KEY AUTOINCREMENT,
    sandbox_id TEXT    NOT NULL,
    workspace  TEXT    NOT NULL,
    time_ms    INTEGER NOT NULL,
    kind       TEXT    NOT NULL,
    payload    TEXT    NOT NULL CHECK (json_valid(payload))
) STRICT;

CREATE INDEX events_of_sandbox ON events (sandbox_id, seq);
CREATE INDEX events_by_time ON events (time_ms);
