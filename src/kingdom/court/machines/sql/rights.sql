-- What the database role of a joined machine may see and change. The owner of the tables, and every role that belongs to
-- no machine, is not concerned. Can be repeated.
--
-- A policy knows the machine by the role of the session, which the machine cannot change. The functions run with the
-- rights of their owner, with tables looked up in this schema only. In a policy they stand in (SELECT …), so that they
-- are called once for a statement and not for each row.
CREATE OR REPLACE FUNCTION court_own_machine() RETURNS text
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = {schema}, pg_temp
AS $$ SELECT machine FROM court_right WHERE role = session_user $$;

-- NULL: all of them.
CREATE OR REPLACE FUNCTION court_own_generals() RETURNS text[]
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = {schema}, pg_temp
AS $$ SELECT generals FROM court_right WHERE role = session_user $$;

CREATE OR REPLACE FUNCTION court_is_own_task(task_id text) RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = {schema}, pg_temp
AS $$
    SELECT EXISTS (
        SELECT FROM outbox_event t JOIN court_right r ON r.role = session_user
        WHERE t.event_id = task_id AND t.stream = 'tasks' AND (r.generals IS NULL OR t.event_type = ANY (r.generals)))
$$;

CREATE OR REPLACE FUNCTION court_holds_task(task_id text) RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = {schema}, pg_temp
AS $$
    SELECT EXISTS (
        SELECT FROM outbox_event t JOIN court_right r ON r.role = session_user
        WHERE t.event_id = task_id AND t.stream = 'tasks' AND t.status = 'PROCESSING'
          AND split_part(split_part(t.locked_by, '/', 1), '@', 2) = r.machine)
$$;

ALTER TABLE outbox_event ENABLE ROW LEVEL SECURITY;
ALTER TABLE court_machine ENABLE ROW LEVEL SECURITY;
ALTER TABLE court_package ENABLE ROW LEVEL SECURITY;

DROP POLICY IF EXISTS court_others ON outbox_event;
CREATE POLICY court_others ON outbox_event USING ((SELECT court_own_machine()) IS NULL);
DROP POLICY IF EXISTS court_others ON court_machine;
CREATE POLICY court_others ON court_machine USING ((SELECT court_own_machine()) IS NULL);
DROP POLICY IF EXISTS court_others ON court_package;
CREATE POLICY court_others ON court_package USING ((SELECT court_own_machine()) IS NULL);

-- It sees the tasks of its generals, their results, its own reports, and the orders for it.
DROP POLICY IF EXISTS court_sees ON outbox_event;
CREATE POLICY court_sees ON outbox_event FOR SELECT USING (
    (stream = 'tasks' AND (SELECT court_own_machine()) IS NOT NULL
        AND ((SELECT court_own_generals()) IS NULL OR event_type = ANY ((SELECT court_own_generals())::text[])))
    OR (stream = 'machine-orders' AND event_type = (SELECT court_own_machine()))
    OR (stream = 'machine-reports' AND aggregate_id = (SELECT court_own_machine()))
    OR (stream = 'machine-reports' AND event_type = 'result' AND (SELECT court_own_machine()) IS NOT NULL
        AND court_is_own_task(substr(event_id, length('result:') + 1))));

-- It reports in its own name, and the result of a task only while it holds that task. What the columns say is compared
-- with the document, which is what the court reads.
DROP POLICY IF EXISTS court_reports ON outbox_event;
CREATE POLICY court_reports ON outbox_event FOR INSERT WITH CHECK (
    stream = 'machine-reports' AND status = 'PENDING' AND aggregate_id = (SELECT court_own_machine())
    AND payload_json ->> 'type' = event_type AND payload_json ->> 'eventId' = event_id
    AND payload_json -> 'payload' ->> 'machine' = (SELECT court_own_machine())
    AND CASE WHEN event_type = 'result'
             THEN event_id = 'result:' || (payload_json -> 'payload' -> 'result' ->> 'task_id')
                  AND court_holds_task(payload_json -> 'payload' -> 'result' ->> 'task_id')
             ELSE event_type IN ('journal', 'ledger', 'file')
                  AND starts_with(event_id, event_type || ':' || (SELECT court_own_machine()) || ':') END);

-- It claims, renews, settles and gives back the tasks of its generals and the orders for it, and signs with its name. It
-- cannot touch what another holds. The columns that it may change are granted one by one.
DROP POLICY IF EXISTS court_claims ON outbox_event;
CREATE POLICY court_claims ON outbox_event FOR UPDATE
USING (
    NOT finished
    AND ((stream = 'tasks' AND (SELECT court_own_machine()) IS NOT NULL
            AND ((SELECT court_own_generals()) IS NULL OR event_type = ANY ((SELECT court_own_generals())::text[])))
        OR (stream = 'machine-orders' AND event_type = (SELECT court_own_machine())))
    AND (status = 'PENDING' OR locked_until <= now()
        OR split_part(split_part(locked_by, '/', 1), '@', 2) = (SELECT court_own_machine())
        OR (stream = 'machine-orders' AND split_part(locked_by, '/', 1) = (SELECT court_own_machine()))))
WITH CHECK (
    (SELECT court_own_machine()) IS NOT NULL
    AND (status <> 'PROCESSING'
        OR split_part(split_part(locked_by, '/', 1), '@', 2) = (SELECT court_own_machine())
        OR (stream = 'machine-orders' AND split_part(locked_by, '/', 1) = (SELECT court_own_machine()))));

-- It sees all machines, and writes its own row: as one that runs generals, unless it was removed.
DROP POLICY IF EXISTS court_sees ON court_machine;
CREATE POLICY court_sees ON court_machine FOR SELECT USING ((SELECT court_own_machine()) IS NOT NULL);
DROP POLICY IF EXISTS court_joins ON court_machine;
CREATE POLICY court_joins ON court_machine FOR INSERT
WITH CHECK (name = (SELECT court_own_machine()) AND joined AND state = 'active');
DROP POLICY IF EXISTS court_signs ON court_machine;
CREATE POLICY court_signs ON court_machine FOR UPDATE
USING (name = (SELECT court_own_machine()) AND state <> 'removed')
WITH CHECK (name = (SELECT court_own_machine()) AND joined AND state <> 'removed');

DROP POLICY IF EXISTS court_sees ON court_package;
CREATE POLICY court_sees ON court_package FOR SELECT USING (
    (SELECT court_own_machine()) IS NOT NULL
    AND ((SELECT court_own_generals()) IS NULL OR general = ANY ((SELECT court_own_generals())::text[])));
