-- The columns that the indexes look at are written by our own statements, not generated, and the states are not checked
-- by a constraint: PostgreSQL reads and plans those expressions again for each statement, which an INSERT of one event
-- pays in full. Dropping the expressions keeps the values and rewrites nothing.
--
-- A person who changes `status` by hand need not know of them: what does not fit is put right by a trigger. Its
-- conditions are such that our own statements never call it.
ALTER TABLE outbox_event
    ALTER COLUMN finished DROP EXPRESSION,
    ALTER COLUMN dead DROP EXPRESSION,
    ALTER COLUMN held_key DROP EXPRESSION,
    DROP CONSTRAINT IF EXISTS outbox_event_status_check;
ALTER TABLE outbox_event
    ALTER COLUMN finished SET DEFAULT false,
    ALTER COLUMN dead SET DEFAULT false;

CREATE OR REPLACE FUNCTION outbox_event_marks() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.status NOT IN ('PENDING', 'PROCESSING', 'DONE', 'DEAD') THEN
        RAISE check_violation USING
            MESSAGE = format('%I.status cannot be %L', TG_TABLE_NAME, NEW.status),
            HINT = 'It is PENDING, PROCESSING, DONE or DEAD.';
    END IF;
    IF NEW.finished <> (NEW.status IN ('DONE', 'DEAD')) OR NEW.dead <> (NEW.status = 'DEAD')
       OR NEW.held_key IS DISTINCT FROM (CASE WHEN NEW.status = 'PROCESSING' THEN NEW.ordering_key END) THEN
        -- By its name in full: the session that edits the table may look for tables elsewhere.
        EXECUTE format(
            $sql$UPDATE %I.%I SET finished = status IN ('DONE', 'DEAD'), dead = status = 'DEAD',
                 held_key = CASE WHEN status = 'PROCESSING' THEN ordering_key END WHERE id = $1$sql$,
            TG_TABLE_SCHEMA, TG_TABLE_NAME
        ) USING NEW.id;
    END IF;
    RETURN NULL;
END
$$;

-- AFTER, not BEFORE: a trigger before an UPDATE locks each row once more, with a record in the log for each, and one
-- before an INSERT keeps COPY from writing a page at a time.
CREATE TRIGGER outbox_event_changed AFTER UPDATE OF status ON outbox_event FOR EACH ROW
    WHEN (NEW.finished <> (NEW.status IN ('DONE', 'DEAD')) OR NEW.dead <> (NEW.status = 'DEAD')
          OR NEW.held_key IS DISTINCT FROM CASE WHEN NEW.status = 'PROCESSING' THEN NEW.ordering_key END
          OR NEW.status NOT IN ('PENDING', 'PROCESSING', 'DONE', 'DEAD'))
    EXECUTE FUNCTION outbox_event_marks();
CREATE TRIGGER outbox_event_added AFTER INSERT ON outbox_event FOR EACH ROW
    WHEN (NEW.status <> 'PENDING')
    EXECUTE FUNCTION outbox_event_marks();
