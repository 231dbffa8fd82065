-- What decided on requests, by interval of arrival: who was let in and refused by which rule, and the price of an engine's time.
--
-- :param since DateTime64(3) = -1h  arrived at or after
-- :param until DateTime64(3) = now  arrived before
-- :param step UInt32 = 60  length of an interval, seconds
SELECT
    toStartOfInterval(UUIDv7ToDateTime(request_id, 'UTC'), toIntervalSecond({step:UInt32})) AS interval_start, decision,
    countIf(type = 'admitted') AS admitted, countIf(type = 'refused') AS refused,
    round(avg(lambda), 4) AS lambda_mean,
    round(avgOrNullIf(meet, predicted_ns > 0), 4) AS meet_mean
FROM events FINAL
WHERE type IN ('admitted', 'refused')
    AND UUIDv7ToDateTime(request_id, 'UTC') >= {since:DateTime64(3)} AND UUIDv7ToDateTime(request_id, 'UTC') < {until:DateTime64(3)}
GROUP BY interval_start, decision
ORDER BY interval_start, decision
