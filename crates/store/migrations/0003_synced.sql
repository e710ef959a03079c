-- A row to write when everything before it has to reach the disk: see `Store::sync`.
CREATE TABLE synced (
    id    INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
    times INTEGER NOT NULL
) STRICT;

INSERT INTO synced (id, times) VALUES (1, 0);
