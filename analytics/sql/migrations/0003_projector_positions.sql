-- Where the projector is in each stream. Before the first row of a range of sequences is inserted, the range is
-- written as started; after the last, as landed. A projector that finds a range started and not landed inserts exactly
-- that range again, under the same deduplication tokens.
CREATE TABLE IF NOT EXISTS projector_positions
(
    stream_id LowCardinality(String) COMMENT 'stream and the time of its creation',
    state     LowCardinality(String) COMMENT 'started or landed',
    first_seq UInt64 COMMENT 'first sequence of the range',
    last_seq  UInt64 COMMENT 'last sequence of the range; the landed one is the position',
    instance  String COMMENT 'projector that wrote it',
    updated   DateTime64(3, 'UTC') DEFAULT now64(3) COMMENT 'when, by the server''s clock'
)
ENGINE = ReplacingMergeTree(last_seq)
ORDER BY (stream_id, state)
SETTINGS fsync_after_insert = 1, fsync_part_directory = 1
COMMENT 'Progress of the projector; read it with FINAL';
