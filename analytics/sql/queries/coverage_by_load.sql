-- How many bounds were kept, by day, tenant, level and decile of load: want kept_ratio to be at least bound_level.
--
-- Load is how many run or wait for each slot at the arrival; its deciles are those of all requests with a bound that are asked for.
-- Requests whose client left before the bound are in neither count.
--
-- :param since DateTime64(3) = -7d  arrived at or after
-- :param until DateTime64(3) = now  arrived before
WITH
    loads AS
    (
        SELECT request_id, any(features[6] + features[7]) AS load -- running_ratio and waiting_ratio
        FROM events
        WHERE type = 'admitted' AND bound_ns > 0 AND length(features) >= 7
            AND UUIDv7ToDateTime(request_id, 'UTC') >= {since:DateTime64(3)} AND UUIDv7ToDateTime(request_id, 'UTC') < {until:DateTime64(3)}
        GROUP BY request_id
    ),
    (SELECT quantilesExact(0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)(load) FROM loads) AS cuts
SELECT
    toDate(arrived) AS day, tenant, bound_level, arrayCount(cut -> load > cut, cuts) + 1 AS load_decile,
    round(min(load), 3) AS load_from, round(max(load), 3) AS load_to,
    count() AS bounds, countIf(met = true) AS kept, countIf(met = false) AS missed,
    round(kept / nullIf(kept + missed, 0), 4) AS kept_ratio
FROM requests
INNER JOIN loads USING (request_id)
WHERE arrived >= {since:DateTime64(3)} AND arrived < {until:DateTime64(3)} AND isNotNull(e2e_ns)
GROUP BY day, tenant, bound_level, load_decile
ORDER BY day DESC, tenant, bound_level, load_decile
