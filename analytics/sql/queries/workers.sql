-- Lives of workers: since when, until when and why, and what they are.
--
-- :param since DateTime64(3) = -7d  up, or gone, at or after
SELECT
    worker,
    anyIf(pool, type = 'worker_up') AS pool,
    anyIf(model, type = 'worker_up') AS model,
    anyIf(backend, type = 'worker_up') AS backend,
    anyIf(fingerprint, type = 'worker_up') AS fingerprint,
    anyIf(slots, type = 'worker_up') AS slots,
    anyIf(kv_pages, type = 'worker_up') AS kv_pages,
    minOrNullIf(stored, type = 'worker_up') AS up,
    minOrNullIf(stored, type = 'worker_down') AS down,
    anyIf(reason, type = 'worker_down') AS down_reason
FROM events
WHERE type IN ('worker_up', 'worker_down') AND stored >= {since:DateTime64(3)}
GROUP BY worker
ORDER BY up DESC, worker
