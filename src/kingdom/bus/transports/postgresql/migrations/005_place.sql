-- A finished row that is set back by hand takes its place in what its stream has become since, as requeue does it: the
-- function of 003, which finds out that place.
CREATE OR REPLACE FUNCTION outbox_event_marks() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    place text := NEW.ordering_key;
BEGIN
    IF NEW.status NOT IN ('PENDING', 'PROCESSING', 'DONE', 'DEAD') THEN
        RAISE check_violation USING
            MESSAGE = format('%I.status cannot be %L', TG_TABLE_NAME, NEW.status),
            HINT = 'It is PENDING, PROCESSING, DONE or DEAD.';
    END IF;
    IF NEW.finished <> (NEW.status IN ('DONE', 'DEAD')) OR NEW.dead <> (NEW.status = 'DEAD')
       OR NEW.held_key IS DISTINCT FROM (CASE WHEN NEW.status = 'PROCESSING' THEN NEW.ordering_key END) THEN
        -- Tables by their names in full: the session that edits them may look for tables elsewhere.
        IF NEW.finished AND NEW.status IN ('PENDING', 'PROCESSING') THEN  -- started over, as requeue.sql does it
            EXECUTE format(
                $sql$SELECT coalesce($2, '') || chr(31) || coalesce($3, '')
                     FROM %I.outbox_stream s WHERE s.stream = $1 AND s.ordered$sql$,
                TG_TABLE_SCHEMA
            ) INTO place USING NEW.stream, NEW.aggregate_type, NEW.aggregate_id;
        END IF;
        EXECUTE format(
            $sql$UPDATE %I.%I SET finished = status IN ('DONE', 'DEAD'), dead = status = 'DEAD', ordering_key = $2,
                 held_key = CASE WHEN status = 'PROCESSING' THEN $2 END WHERE id = $1$sql$,
            TG_TABLE_SCHEMA, TG_TABLE_NAME
        ) USING NEW.id, place;
    END IF;
    RETURN NULL;
END
$$;
