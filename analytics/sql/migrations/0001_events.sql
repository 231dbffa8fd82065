-- Lifecycle events, a row each: a copy of JetStream's stream EVENTS.
--
-- The sorting key identifies a message, so that a message inserted twice merges to one row; every part of it is a
-- function of the message. So is the partition, by the time at which JetStream stored it: Replacing never merges
-- across partitions. stream_id names one life of a stream: a stream that was deleted and made again starts at
-- sequence 1 again, with other messages.
CREATE TABLE IF NOT EXISTS events
(
    type              LowCardinality(String) COMMENT 'what happened: received, admitted, dispatched, finished, ...',
    ts                DateTime64(9, 'UTC') COMMENT 'when it happened, by the writer''s clock; do not subtract between sources' CODEC(Delta, ZSTD(1)),
    stream_id         LowCardinality(String) COMMENT 'stream and the time of its creation',
    seq               UInt64 COMMENT 'sequence in the stream' CODEC(Delta, ZSTD(1)),
    stored            DateTime64(9, 'UTC') COMMENT 'when JetStream stored it' CODEC(Delta, ZSTD(1)),
    source            LowCardinality(String) COMMENT 'service instance that wrote it',
    request_id        UUID COMMENT 'request, a UUIDv7; zero for events of workers and epochs' CODEC(ZSTD(1)),
    attempt           UInt32 COMMENT 'attempt at the request, from 1; 0 before the first dispatch' CODEC(T64, ZSTD(1)),
    ordinal           UInt32 COMMENT 'tells apart repeated events of one attempt, from 0' CODEC(T64, ZSTD(1)),
    pool              LowCardinality(String) COMMENT 'pool of workers',
    model             LowCardinality(String) COMMENT 'model',
    tenant            LowCardinality(String) COMMENT 'tenant',
    ingress           LowCardinality(String) COMMENT 'ingress that holds the client''s connection',
    worker            LowCardinality(String) COMMENT 'worker; empty if none took part',
    client_request_id String COMMENT 'X-Request-Id of the client' CODEC(ZSTD(1)),
    kind              LowCardinality(String) COMMENT 'API: chat or completion',
    class             LowCardinality(String) COMMENT 'best-effort or guaranteed; empty is best effort',
    stream            Bool COMMENT 'whether the client asked for a stream',
    budget_ns         Int64 COMMENT 'deadline left at this event, ns; 0 is no deadline' CODEC(T64, ZSTD(1)),
    grace_ns          Int64 COMMENT 'time that generation goes on without the client, ns' CODEC(T64, ZSTD(1)),
    reason            LowCardinality(String) COMMENT 'refusal, failure, cancel, down or finish reason, or outcome, by type',
    message           String COMMENT 'detail for people' CODEC(ZSTD(1)),
    retry_after_ns    Int64 COMMENT 'time after which a refused client was told to come back, ns' CODEC(T64, ZSTD(1)),
    prompt_tokens     Int32 COMMENT 'tokens of the prompt' CODEC(T64, ZSTD(1)),
    cached_tokens     Int32 COMMENT 'of the prompt, found in the prefix cache' CODEC(T64, ZSTD(1)),
    max_tokens        Int32 COMMENT 'bound of the output, tokens' CODEC(T64, ZSTD(1)),
    output_tokens     Int32 COMMENT 'tokens generated so far' CODEC(T64, ZSTD(1)),
    resume_tokens     Int32 COMMENT 'of the output, from earlier attempts' CODEC(T64, ZSTD(1)),
    queue_ns          Int64 COMMENT 'waited before this event in this service, ns' CODEC(T64, ZSTD(1)),
    prefill_ns        Int64 COMMENT 'prefill start to first token, ns' CODEC(T64, ZSTD(1)),
    decode_ns         Int64 COMMENT 'first to last token, ns' CODEC(T64, ZSTD(1)),
    ttft_ns           Int64 COMMENT 'arrival to first token written, at the ingress, ns' CODEC(T64, ZSTD(1)),
    e2e_ns            Int64 COMMENT 'arrival to last byte written, at the ingress, ns' CODEC(T64, ZSTD(1)),
    request_seq       UInt64 COMMENT 'sequence of the request in REQUESTS' CODEC(T64, ZSTD(1)),
    epoch             UInt64 COMMENT 'epoch of the scheduler that wrote it' CODEC(T64, ZSTD(1)),
    queue_depth       Int32 COMMENT 'requests waiting, this one not counted' CODEC(T64, ZSTD(1)),
    backend           LowCardinality(String) COMMENT 'engine backend of a worker',
    fingerprint       LowCardinality(String) COMMENT 'of engine, model and settings of a worker',
    slots             Int32 COMMENT 'requests that a worker takes at once' CODEC(T64, ZSTD(1)),
    kv_pages          Int32 COMMENT 'pages of KV cache of a worker' CODEC(T64, ZSTD(1)),
    context_tokens    Int32 COMMENT 'longest prompt and output of a worker, tokens' CODEC(T64, ZSTD(1)),
    payload           String COMMENT 'the message as it was, JSON: what has no column is here' CODEC(ZSTD(1)),
    INDEX request_id_bloom request_id TYPE bloom_filter(0.01) GRANULARITY 4,
    INDEX arrival_minmax UUIDv7ToDateTime(request_id, 'UTC') TYPE minmax GRANULARITY 1
)
ENGINE = ReplacingMergeTree
PARTITION BY toYYYYMM(stored)
ORDER BY (type, toStartOfHour(ts), stream_id, seq)
SETTINGS
    -- 0, the default, forgets the tokens of earlier inserts, and a repeated insert doubles its rows.
    non_replicated_deduplication_window = 10000,
    -- The projector's position is written after the rows; no power cut may keep the one and lose the other.
    fsync_after_insert = 1,
    fsync_part_directory = 1
COMMENT 'Lifecycle events; a zero or empty value is absent';
