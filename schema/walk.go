package schema

// The walks name the fields of the bodies that cross the wire most, in the order of their structs: num, str and toks
// for a field that is always written, opt… for one with omitempty.

// walk writes or reads m and reports true, or false if m has no walk.
func (w *wire) walk(m Body) bool {
	switch m := m.(type) {
	case *Event:
		m.walk(w)
	case *Chunk:
		m.walk(w)
	case *Request:
		m.walk(w)
	default:
		return false
	}
	return true
}

func (e *Event) walk(w *wire) {
	w.open(448 + len(e.Message) + 4*len(e.Resume))
	num(w, `,"v":`, &e.V)
	str(w, `,"type":`, &e.Type)
	num(w, `,"time_ns":`, &e.Time)
	str(w, `,"source":`, &e.Source)
	optStr(w, `,"request_id":`, &e.Request)
	optNum(w, `,"attempt":`, &e.Attempt)
	optNum(w, `,"ordinal":`, &e.Ordinal)
	optStr(w, `,"pool":`, &e.Pool)
	optStr(w, `,"model":`, &e.Model)
	optStr(w, `,"tenant":`, &e.Tenant)
	optStr(w, `,"ingress":`, &e.Ingress)
	optStr(w, `,"worker":`, &e.Worker)
	optStr(w, `,"client_request_id":`, &e.ClientRequest)
	optStr(w, `,"kind":`, &e.Kind)
	optStr(w, `,"class":`, &e.Class)
	optBool(w, `,"stream":`, &e.Stream)
	optNum(w, `,"budget_ns":`, &e.Budget)
	optNum(w, `,"grace_ns":`, &e.Grace)
	optStr(w, `,"reason":`, &e.Reason)
	optStr(w, `,"message":`, &e.Message)
	optNum(w, `,"retry_after_ns":`, &e.RetryAfter)
	optNum(w, `,"prompt_tokens":`, &e.PromptTokens)
	optNum(w, `,"cached_tokens":`, &e.CachedTokens)
	optNum(w, `,"max_tokens":`, &e.MaxTokens)
	optNum(w, `,"output_tokens":`, &e.OutputTokens)
	optNum(w, `,"resume_tokens":`, &e.ResumeTokens)
	optNum(w, `,"queue_ns":`, &e.QueueTime)
	optNum(w, `,"prefill_ns":`, &e.PrefillTime)
	optNum(w, `,"decode_ns":`, &e.DecodeTime)
	optNum(w, `,"ttft_ns":`, &e.TTFT)
	optNum(w, `,"e2e_ns":`, &e.E2E)
	optNum(w, `,"request_seq":`, &e.RequestSeq)
	optNum(w, `,"epoch":`, &e.Epoch)
	optNum(w, `,"queue_depth":`, &e.QueueDepth)
	optToks(w, `,"resume":`, &e.Resume)
	optStr(w, `,"backend":`, &e.Backend)
	optStr(w, `,"fingerprint":`, &e.Fingerprint)
	optNum(w, `,"slots":`, &e.Slots)
	optNum(w, `,"kv_pages":`, &e.KVPages)
	optNum(w, `,"context_tokens":`, &e.ContextTokens)
	optStr(w, `,"decision":`, &e.Decision)
	optStr(w, `,"artifact":`, &e.Artifact)
	optNum(w, `,"ttft_budget_ns":`, &e.TTFTBudget)
	optNum(w, `,"predicted_ns":`, &e.Predicted)
	optNum(w, `,"predicted_ttft_ns":`, &e.PredictedTTFT)
	optNum(w, `,"bound_ns":`, &e.Bound)
	optFloat(w, `,"bound_level":`, &e.BoundLevel)
	optFloat(w, `,"meet":`, &e.Meet)
	optFloat(w, `,"gain":`, &e.Gain)
	optNum(w, `,"cost_ns":`, &e.Cost)
	optFloat(w, `,"lambda":`, &e.Lambda)
	optFloat(w, `,"propensity":`, &e.Propensity)
	optNum(w, `,"physics_ns":`, &e.Physics)
	optFloats(w, `,"features":`, &e.Features)
	w.close()
}

func (r *Request) walk(w *wire) {
	w.open(512 + 4*len(r.Prompt) + len(r.Grammar))
	num(w, `,"v":`, &r.V)
	str(w, `,"request_id":`, &r.ID)
	str(w, `,"pool":`, &r.Pool)
	str(w, `,"model":`, &r.Model)
	str(w, `,"tenant":`, &r.Tenant)
	str(w, `,"ingress":`, &r.Ingress)
	str(w, `,"kind":`, &r.Kind)
	optStr(w, `,"class":`, &r.Class)
	num(w, `,"received_time_ns":`, &r.Received)
	toks(w, `,"prompt":`, &r.Prompt)
	num(w, `,"max_tokens":`, &r.MaxTokens)
	optStrs(w, `,"stop":`, &r.Stop)
	optBool(w, `,"ignore_eos":`, &r.IgnoreEOS)
	w.must(w.key(`,"sampling":`))
	r.Sampling.walk(w)
	optNum(w, `,"budget_ns":`, &r.Budget)
	optNum(w, `,"ttft_budget_ns":`, &r.TTFTBudget)
	optStr(w, `,"on_deadline":`, &r.OnDeadline)
	optNum(w, `,"grace_ns":`, &r.Grace)
	optNum(w, `,"logprobs":`, &r.Logprobs)
	optStr(w, `,"grammar":`, &r.Grammar)
	w.close()
}

func (s *Sampling) walk(w *wire) {
	w.open(0)
	optFloat(w, `,"temperature":`, &s.Temperature)
	optNum(w, `,"top_k":`, &s.TopK)
	optFloat(w, `,"top_p":`, &s.TopP)
	optFloat(w, `,"min_p":`, &s.MinP)
	optFloat(w, `,"repetition_penalty":`, &s.RepetitionPenalty)
	optFloat(w, `,"presence_penalty":`, &s.PresencePenalty)
	optFloat(w, `,"frequency_penalty":`, &s.FrequencyPenalty)
	num(w, `,"seed":`, &s.Seed)
	w.close()
}

func (c *Chunk) walk(w *wire) {
	w.open(160 + len(c.Text) + 4*len(c.IDs))
	num(w, `,"v":`, &c.V)
	str(w, `,"request_id":`, &c.Request)
	num(w, `,"attempt":`, &c.Attempt)
	num(w, `,"index":`, &c.Index)
	optToks(w, `,"ids":`, &c.IDs)
	optStr(w, `,"text":`, &c.Text)
	if (w.reading || c.Finish != nil) && w.key(`,"finish":`) {
		if w.reading {
			c.Finish = new(Finish)
		}
		c.Finish.walk(w)
	}
	if (w.reading || c.Error != nil) && w.key(`,"error":`) {
		if w.reading {
			c.Error = new(Error)
		}
		c.Error.walk(w)
	}
	if (w.reading || c.Logprobs != nil) && w.key(`,"logprobs":`) {
		if w.reading {
			c.Logprobs = new(Logprobs)
		}
		c.Logprobs.walk(w)
	}
	w.close()
}

func (l *Logprobs) walk(w *wire) {
	w.open(32 + 12*len(l.Chosen) + 16*len(l.Top))
	optFloats(w, `,"chosen":`, &l.Chosen)
	optToks(w, `,"top":`, &l.Top)
	optFloats(w, `,"top_logprobs":`, &l.TopLogprobs)
	w.close()
}

func (f *Finish) walk(w *wire) {
	w.open(0)
	str(w, `,"reason":`, &f.Reason)
	num(w, `,"prompt_tokens":`, &f.PromptTokens)
	optNum(w, `,"cached_tokens":`, &f.CachedTokens)
	num(w, `,"output_tokens":`, &f.OutputTokens)
	w.close()
}

func (e *Error) walk(w *wire) {
	w.open(0)
	str(w, `,"code":`, &e.Code)
	str(w, `,"message":`, &e.Message)
	w.close()
}
