-- Engine steps, a row each: a copy of JetStream's stream STEPS. Identity, partition and settings as in events.
CREATE TABLE IF NOT EXISTS engine_steps
(
    worker              LowCardinality(String) COMMENT 'worker whose engine made the step',
    ts                  DateTime64(9, 'UTC') COMMENT 'when it ended, by the worker''s clock' CODEC(Delta, ZSTD(1)),
    stream_id           LowCardinality(String) COMMENT 'stream and the time of its creation',
    seq                 UInt64 COMMENT 'sequence in the stream' CODEC(Delta, ZSTD(1)),
    stored              DateTime64(9, 'UTC') COMMENT 'when JetStream stored it' CODEC(Delta, ZSTD(1)),
    step                UInt64 COMMENT 'number of the step in the worker''s life' CODEC(Delta, ZSTD(1)),
    prefill_tokens      Int32 COMMENT 'prompt tokens computed' CODEC(T64, ZSTD(1)),
    decode_batch        Int32 COMMENT 'requests that got a token' CODEC(T64, ZSTD(1)),
    context_tokens      Int32 COMMENT 'tokens attended to, summed over the batch' CODEC(T64, ZSTD(1)),
    duration_ns         Int64 COMMENT 'duration of the step, ns' CODEC(T64, ZSTD(1)),
    kv_free_pages       Int32 COMMENT 'free pages of the KV cache after it' CODEC(T64, ZSTD(1)),
    kv_high_water_pages Int32 COMMENT 'highest page in use after it' CODEC(T64, ZSTD(1))
)
ENGINE = ReplacingMergeTree
PARTITION BY toYYYYMM(stored)
ORDER BY (worker, toStartOfHour(ts), stream_id, seq)
SETTINGS non_replicated_deduplication_window = 10000, fsync_after_insert = 1, fsync_part_directory = 1
COMMENT 'Engine steps: what the cost model of a worker is fitted from';
