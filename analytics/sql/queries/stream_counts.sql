-- Rows of each life of each stream against its sequences: rows = sequences unless something was inserted twice;
-- last_seq - first_seq + 1 exceeds them by what the stream deleted and by dead letters.
SELECT table, stream_id, rows, sequences, first_seq, last_seq, p.last_seq AS position_seq, p.updated AS position_updated
FROM
(
    SELECT 'events' AS table, stream_id, count() AS rows, uniqExact(seq) AS sequences, min(seq) AS first_seq, max(seq) AS last_seq
    FROM events GROUP BY stream_id
    UNION ALL
    SELECT 'engine_steps' AS table, stream_id, count() AS rows, uniqExact(seq) AS sequences, min(seq) AS first_seq, max(seq) AS last_seq
    FROM engine_steps GROUP BY stream_id
) AS c
LEFT JOIN (SELECT stream_id, last_seq, updated FROM projector_positions FINAL WHERE state = 'landed') AS p USING (stream_id)
ORDER BY table, stream_id
