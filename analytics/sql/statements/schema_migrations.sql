CREATE TABLE IF NOT EXISTS schema_migrations
(
    version  UInt32 COMMENT 'number of the migration file',
    name     String COMMENT 'name of the file, without number and extension',
    checksum String COMMENT 'SHA-256 of the file, hex: an applied file is never edited',
    applied  DateTime64(3, 'UTC') DEFAULT now64(3) COMMENT 'when, by the server''s clock'
)
ENGINE = MergeTree
ORDER BY version
SETTINGS fsync_after_insert = 1
COMMENT 'Migrations applied; two migrators at once may leave a version twice, with equal checksums'
