SELECT
    toString(request_id), arrived, pool, tenant, kind, class, features, physics_ns, propensity, prompt_tokens, max_tokens,
    output_tokens, e2e_ns, delivered, failure, worker, worker_fingerprint
FROM traces
WHERE arrived >= {since:DateTime64(3, 'UTC')} AND pool = {pool:String}
ORDER BY arrived, request_id
