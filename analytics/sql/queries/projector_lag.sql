-- How far behind the tables are, as far as the tables can tell: time from an event's store to the row that says that
-- its range landed. The projector's metrics know the messages that wait.
SELECT
    p.stream_id AS stream_id, p.last_seq AS position_seq, p.updated AS position_updated, p.instance AS instance,
    round(dateDiff('millisecond', greatest(e.stored, s.stored), p.updated) / 1e3, 3) AS last_range_lag_seconds,
    dateDiff('second', p.updated, now()) AS seconds_since
FROM (SELECT * FROM projector_positions FINAL WHERE state = 'landed') AS p
LEFT JOIN (SELECT stream_id, max(stored) AS stored FROM events GROUP BY stream_id) AS e ON e.stream_id = p.stream_id
LEFT JOIN (SELECT stream_id, max(stored) AS stored FROM engine_steps GROUP BY stream_id) AS s ON s.stream_id = p.stream_id
ORDER BY stream_id
