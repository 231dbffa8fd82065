-- Why requests were refused, by tenant, with what was expected of them: means of those that something was predicted of.
--
-- :param since DateTime64(3) = -24h  arrived at or after
-- :param until DateTime64(3) = now  arrived before
SELECT
    reason, decision, tenant, count() AS requests, countIf(predicted_ns > 0) AS predicted,
    round(avgOrNullIf(predicted_ns, predicted_ns > 0) / 1e6, 3) AS predicted_mean_ms,
    round(avgOrNullIf(meet, predicted_ns > 0), 4) AS meet_mean,
    round(avgOrNullIf(retry_after_ns, retry_after_ns > 0) / 1e9, 1) AS retry_after_mean_seconds
FROM events FINAL
WHERE type = 'refused'
    AND UUIDv7ToDateTime(request_id, 'UTC') >= {since:DateTime64(3)} AND UUIDv7ToDateTime(request_id, 'UTC') < {until:DateTime64(3)}
GROUP BY reason, decision, tenant
ORDER BY requests DESC, reason, decision, tenant
