-- The domain's own tables, in the same database as the bus: so one transaction covers both.

CREATE TABLE signal (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    strategy_key text NOT NULL,
    market       text NOT NULL,
    side         text NOT NULL CHECK (side IN ('bid', 'ask')),
    price        numeric NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE order_intent (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    signal_id  bigint NOT NULL UNIQUE REFERENCES signal,   -- one signal, one order
    volume     numeric NOT NULL CHECK (volume > 0),
    trace_id   text NOT NULL,                              -- of the event that started it; all its events carry it
    created_at timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE order_attempt (
    id                bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    order_intent_id   bigint NOT NULL REFERENCES order_intent,
    attempt_no        integer NOT NULL CHECK (attempt_no >= 1),
    identifier        text NOT NULL UNIQUE,                -- what the exchange knows the order by
    status            text NOT NULL DEFAULT 'PREPARED' CHECK (status IN
                      ('PREPARED', 'SUSPENDED', 'SENT', 'UNKNOWN', 'ACKED', 'REJECTED', 'THROTTLED')),
    exchange_order_id text,
    created_at        timestamptz NOT NULL DEFAULT now(),
    updated_at        timestamptz NOT NULL DEFAULT now(),
    UNIQUE (order_intent_id, attempt_no)
);

-- At most one attempt of an intent can be, or become, an order. The database refuses a second one,
-- whatever a handler believes.
CREATE UNIQUE INDEX order_attempt_live ON order_attempt (order_intent_id)
    WHERE status IN ('PREPARED', 'SUSPENDED', 'SENT', 'UNKNOWN', 'ACKED');

CREATE TABLE order_attempt_history (
    id               bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    order_attempt_id bigint NOT NULL REFERENCES order_attempt,
    status           text NOT NULL,
    reason           text NOT NULL,
    at               timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- One row. Events may arrive twice or in the wrong order: the higher version is the later wish.
CREATE TABLE kill_switch (
    only_row          boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    engaged           boolean NOT NULL DEFAULT false,
    applied_version   bigint NOT NULL DEFAULT 0,
    requested_version bigint NOT NULL DEFAULT 0
);
INSERT INTO kill_switch DEFAULT VALUES;

CREATE TABLE notification_log (
    event_id   text NOT NULL UNIQUE,
    event_type text NOT NULL,
    message    text NOT NULL,
    pushed_at  timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE backtest (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    market      text NOT NULL,
    seed        bigint NOT NULL,
    candles     integer NOT NULL,
    fast        integer NOT NULL,
    slow        integer NOT NULL,
    trades      integer,
    profit      double precision,
    drawdown    double precision,
    finished_at timestamptz
);
