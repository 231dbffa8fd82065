-- Every event of one request, in the order of the log.
--
-- :param request UUID required  the request's id, as in X-Cadence-Request-Id
SELECT seq, ts, type, source, attempt, ordinal, worker, reason, message, prompt_tokens, output_tokens, payload
FROM events FINAL
WHERE request_id = {request:UUID}
ORDER BY stream_id, seq
