INSERT INTO events
(
    type, ts, stream_id, seq, stored, source, request_id, attempt, ordinal, pool, model, tenant, ingress, worker,
    client_request_id, kind, class, stream, budget_ns, grace_ns, reason, message, retry_after_ns, prompt_tokens,
    cached_tokens, max_tokens, output_tokens, resume_tokens, queue_ns, prefill_ns, decode_ns, ttft_ns, e2e_ns,
    request_seq, epoch, queue_depth, backend, fingerprint, slots, kv_pages, context_tokens, payload,
    decision, artifact, ttft_budget_ns, predicted_ns, predicted_ttft_ns, bound_ns, bound_level, meet, gain, cost_ns, lambda,
    propensity, physics_ns, features
)
