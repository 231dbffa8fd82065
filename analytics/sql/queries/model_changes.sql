-- What trainers and operators did with models of the residual, newest first.
--
-- :param since DateTime64(3) = -30d  at or after
-- :param limit UInt32 = 50  rows at most
SELECT ts, pool, replaceOne(type, 'model_', '') AS what, if(artifact = '', 'physics', substring(artifact, 1, 12)) AS model, reason, message, source
FROM events FINAL
WHERE type IN ('model_published', 'model_rejected', 'model_rolled_back') AND ts >= {since:DateTime64(3)}
ORDER BY ts DESC
LIMIT {limit:UInt32}
