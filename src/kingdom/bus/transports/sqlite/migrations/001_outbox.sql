-- The outbox of the specification, with the names it has on PostgreSQL. Times are seconds since the epoch.
--
-- The payload stands last: SQLite then reads the other columns without following a long row to its overflow pages.
-- The rowid is the publish order. It needs no AUTOINCREMENT: a new row always gets a number above all that are kept.
CREATE TABLE outbox_event (
    id                 INTEGER PRIMARY KEY,
    next_retry_at      REAL NOT NULL DEFAULT ((julianday('now') - 2440587.5) * 86400.0),
    created_at         REAL NOT NULL DEFAULT ((julianday('now') - 2440587.5) * 86400.0),
    updated_at         REAL NOT NULL DEFAULT ((julianday('now') - 2440587.5) * 86400.0),
    locked_until       REAL,
    last_attempt_at    REAL,
    processed_at       REAL,
    attempt_count      INTEGER NOT NULL DEFAULT 0,
    max_attempts       INTEGER,                       -- NULL: the worker's policy decides
    priority           INTEGER NOT NULL DEFAULT 1     -- 0 high, 1 normal, 2 low
                       CHECK (priority IN (0, 1, 2)),
    blocked            INTEGER NOT NULL DEFAULT 0,    -- 1: an earlier event of its aggregate is unfinished
    status             TEXT NOT NULL DEFAULT 'PENDING'
                       CHECK (status IN ('PENDING', 'PROCESSING', 'DONE', 'DEAD')),
    stream             TEXT NOT NULL,
    event_id           TEXT NOT NULL,
    event_type         TEXT NOT NULL,
    aggregate_type     TEXT,
    aggregate_id       TEXT,
    ordering_key       TEXT,                          -- set in ordered streams only
    locked_by          TEXT,                          -- the claim: worker, host, process and a token of its own
    last_error_code    TEXT,
    last_error_message TEXT,
    payload_json       TEXT NOT NULL,                 -- the whole envelope
    UNIQUE (event_id, stream)
);

-- What can be claimed: for each type and priority in the order it is claimed, so that neither what is delayed nor
-- types nobody asks for are ever read. What is blocked lies in a part of the index that no claim looks at.
CREATE INDEX outbox_event_ready ON outbox_event (stream, blocked, event_type, priority, next_retry_at)
    WHERE status = 'PENDING';
-- What is held, by the end of its lease: a claim looks at those that ended, not at those that are held.
CREATE INDEX outbox_event_held ON outbox_event (stream, priority, locked_until) WHERE status = 'PROCESSING';
-- What is finished, by age.
CREATE INDEX outbox_event_dead ON outbox_event (stream, processed_at) WHERE status = 'DEAD';
CREATE INDEX outbox_event_done ON outbox_event (stream, processed_at) WHERE status = 'DONE';
-- The aggregates of ordered streams; empty, and so free, for all others.
CREATE INDEX outbox_event_order ON outbox_event (stream, ordering_key, id)
    WHERE ordering_key IS NOT NULL AND status IN ('PENDING', 'PROCESSING');
CREATE INDEX outbox_event_order_held ON outbox_event (stream, ordering_key, locked_until)
    WHERE ordering_key IS NOT NULL AND status = 'PROCESSING';
CREATE INDEX outbox_event_order_dead ON outbox_event (stream, ordering_key, id)
    WHERE ordering_key IS NOT NULL AND status = 'DEAD';

CREATE TABLE outbox_stream (
    stream     TEXT PRIMARY KEY,
    ordered    INTEGER NOT NULL DEFAULT 0,
    dead_head  TEXT NOT NULL DEFAULT 'go-on' CHECK (dead_head IN ('go-on', 'park')),
    created_at REAL NOT NULL DEFAULT ((julianday('now') - 2440587.5) * 86400.0)
) WITHOUT ROWID;

CREATE TABLE inbox_event (
    consumer    TEXT NOT NULL,
    event_id    TEXT NOT NULL,
    received_at REAL NOT NULL DEFAULT ((julianday('now') - 2440587.5) * 86400.0),
    PRIMARY KEY (consumer, event_id)
) WITHOUT ROWID;
CREATE INDEX inbox_event_received ON inbox_event (received_at);

-- Order. Of each aggregate at most one unfinished event, the first, is not blocked; none is while a dead event before
-- it keeps the aggregate parked. Triggers keep it so for each writer: our statements, a caller's transaction, a person.
--
-- Rejected: finding the heads in each claim. A loose scan over the aggregates costs as much as there are aggregates
-- with something to do; an anti-join over the waiting events costs as much as one aggregate has waiting.
CREATE TRIGGER outbox_event_added AFTER INSERT ON outbox_event WHEN NEW.ordering_key IS NOT NULL
BEGIN
    UPDATE outbox_event SET blocked = 1
    WHERE id = NEW.id
      AND (EXISTS (SELECT 1 FROM outbox_event AS e INDEXED BY outbox_event_order
                   WHERE e.stream = NEW.stream AND e.ordering_key = NEW.ordering_key AND e.id < NEW.id
                     AND e.status IN ('PENDING', 'PROCESSING'))
           OR (EXISTS (SELECT 1 FROM outbox_stream AS s WHERE s.stream = NEW.stream AND s.dead_head = 'park')
               AND EXISTS (SELECT 1 FROM outbox_event AS e INDEXED BY outbox_event_order_dead
                           WHERE e.stream = NEW.stream AND e.ordering_key = NEW.ordering_key AND e.id < NEW.id
                             AND e.status = 'DEAD')));
END;

-- A view that stores nothing: inserting into it puts one aggregate in order. (SQLite has no procedures.)
CREATE VIEW outbox_reorder (stream, ordering_key) AS SELECT NULL, NULL WHERE false;

-- After one event has come, gone or died, only the first and the second of those unfinished can be marked wrongly.
CREATE TRIGGER outbox_reorder_run INSTEAD OF INSERT ON outbox_reorder
BEGIN
    UPDATE outbox_event
    SET blocked = (EXISTS (SELECT 1 FROM outbox_stream AS s WHERE s.stream = NEW.stream AND s.dead_head = 'park')
                   AND EXISTS (SELECT 1 FROM outbox_event AS e INDEXED BY outbox_event_order_dead
                               WHERE e.stream = NEW.stream AND e.ordering_key = NEW.ordering_key
                                 AND e.id < outbox_event.id AND e.status = 'DEAD'))
    WHERE id = (SELECT min(e.id) FROM outbox_event AS e INDEXED BY outbox_event_order
                WHERE e.stream = NEW.stream AND e.ordering_key = NEW.ordering_key
                  AND e.status IN ('PENDING', 'PROCESSING'));
    UPDATE outbox_event SET blocked = 1
    WHERE blocked = 0
      AND id = (SELECT e.id FROM outbox_event AS e INDEXED BY outbox_event_order
                WHERE e.stream = NEW.stream AND e.ordering_key = NEW.ordering_key
                  AND e.status IN ('PENDING', 'PROCESSING')
                ORDER BY e.id LIMIT 1 OFFSET 1);
END;

CREATE TRIGGER outbox_event_moved AFTER UPDATE OF status ON outbox_event
WHEN NEW.ordering_key IS NOT NULL AND (NEW.status IN ('DONE', 'DEAD') OR OLD.status IN ('DONE', 'DEAD'))
BEGIN
    UPDATE outbox_event SET blocked = 1 WHERE id = NEW.id AND NEW.status IN ('PENDING', 'PROCESSING');
    INSERT INTO outbox_reorder VALUES (NEW.stream, NEW.ordering_key);
END;

CREATE TRIGGER outbox_event_removed AFTER DELETE ON outbox_event
WHEN OLD.ordering_key IS NOT NULL AND OLD.status <> 'DONE'
BEGIN
    INSERT INTO outbox_reorder VALUES (OLD.stream, OLD.ordering_key);
END;
