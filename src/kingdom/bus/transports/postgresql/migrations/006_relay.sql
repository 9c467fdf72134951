-- Relays that carry streams to Kafka share the work: the aggregates of a stream are dealt out to shards, each of which
-- one relay holds under a lease. The index in which they find their rows is made by the first relay: nobody else needs
-- it, and everybody who publishes would pay for it.
CREATE TABLE outbox_relay_member (
    stream text COLLATE "C" NOT NULL,
    holder text COLLATE "C" NOT NULL,
    until  timestamptz NOT NULL,
    PRIMARY KEY (stream, holder)
);

CREATE TABLE outbox_relay (
    stream text COLLATE "C" NOT NULL,
    shard  integer NOT NULL,
    holder text COLLATE "C",
    until  timestamptz,
    PRIMARY KEY (stream, shard)
);
