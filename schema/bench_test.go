package schema

import (
	"encoding/json"
	"fmt"
	"math/rand"
	"testing"
)

// The benchmarks run with
//
//	go test ./schema -run '^$' -bench . -benchmem
//
// Every request costs about eight events (encoded once, decoded by the scheduler and by the projector) and one chunk
// per engine step (encoded by the worker, decoded by its ingress).

// promptTokens returns n token ids spread evenly over a vocabulary of 151,936 (Qwen2.5's): the longest encoding that
// real prompts come near to, since frequent tokens have low ids.
func promptTokens(n int) Tokens {
	rng := rand.New(rand.NewSource(1))
	ids := make(Tokens, n)
	for i := range ids {
		ids[i] = rng.Int31n(151_936)
	}
	return ids
}

func mustEncode(tb testing.TB, m Body) []byte {
	tb.Helper()
	b, err := Encode(m)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

// benchmarkEncode and benchmarkDecode compare with encoding/json, to which the same validation is added.
func benchmarkEncode(b *testing.B, name string, m Body) {
	b.Run(name, func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := Encode(m); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run(name+"/encoding_json", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := json.Marshal(m); err != nil || m.Validate() != nil {
				b.Fatal(err)
			}
		}
	})
}

func benchmarkDecode(b *testing.B, name string, m Body) {
	data := mustEncode(b, m)
	got := newBody(m)
	b.Run(name, func(b *testing.B) {
		b.SetBytes(int64(len(data)))
		b.ReportAllocs()
		for b.Loop() {
			if err := Decode(data, got); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run(name+"/encoding_json", func(b *testing.B) {
		b.SetBytes(int64(len(data)))
		b.ReportAllocs()
		for b.Loop() {
			if err := json.Unmarshal(data, got); err != nil || got.Validate() != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkEncodeEvent(b *testing.B) {
	for _, typ := range []Type{Accepted, Finished} {
		e := eventFixture(typ)
		benchmarkEncode(b, string(typ), &e)
	}
}

func BenchmarkDecodeEvent(b *testing.B) {
	for _, typ := range []Type{Accepted, Finished} {
		e := eventFixture(typ)
		benchmarkDecode(b, string(typ), &e)
	}
}

var chunkSamples = []struct {
	name  string
	chunk Chunk
}{
	{"ascii", Chunk{Request: idA, Attempt: 1, Index: 17, IDs: Tokens{1234}, Text: " stream"}},
	{"unicode", Chunk{Request: idA, Attempt: 1, Index: 17, IDs: Tokens{1234, 99_999}, Text: "日本語"}},
	{"escaped", Chunk{Request: idA, Attempt: 1, Index: 17, IDs: Tokens{1234, 99_999}, Text: "if a < \"b\"\n"}},
}

func BenchmarkEncodeChunk(b *testing.B) {
	for _, s := range chunkSamples {
		benchmarkEncode(b, s.name, &s.chunk)
	}
}

func BenchmarkDecodeChunk(b *testing.B) {
	for _, s := range chunkSamples {
		benchmarkDecode(b, s.name, &s.chunk)
	}
}

func request500() *Request {
	return &Request{
		ID: idA, Pool: "default", Model: "qwen2.5-0.5b-instruct", Tenant: "acme", Ingress: "ing-1", Kind: KindChat,
		Received: 1_760_000_000_000_000_000, Prompt: promptTokens(500), MaxTokens: 256, Sampling: Sampling{Temperature: 0.7, Seed: 42},
	}
}

func BenchmarkEncodeRequest500(b *testing.B) { benchmarkEncode(b, "request", request500()) }
func BenchmarkDecodeRequest500(b *testing.B) { benchmarkDecode(b, "request", request500()) }

// A dispatch carries a request as it came, and encoding/json reads all of it each time.
func BenchmarkEncodeDispatch500(b *testing.B) { benchmarkEncode(b, "dispatch", dispatch500(b)) }
func BenchmarkDecodeDispatch500(b *testing.B) { benchmarkDecode(b, "dispatch", dispatch500(b)) }

func dispatch500(tb testing.TB) *Dispatch {
	return &Dispatch{Pool: "default", Epoch: 4711, Items: []DispatchItem{{Attempt: 1, Request: mustEncode(tb, request500())}}}
}

// BenchmarkTokens500 compares the wire form of 500 token ids with a plain JSON array of the same ids; wire-B is its size.
func BenchmarkTokens500(b *testing.B) {
	ids := promptTokens(500)
	plain := []int32(ids)
	varint, err := json.Marshal(ids)
	if err != nil {
		b.Fatal(err)
	}
	decimal, err := json.Marshal(plain)
	if err != nil {
		b.Fatal(err)
	}
	encode := func(v any, size int) func(*testing.B) {
		return func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := json.Marshal(v); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(size), "wire-B")
		}
	}
	b.Run("encode/varint", encode(ids, len(varint)))
	b.Run("encode/decimal", encode(plain, len(decimal)))
	b.Run("decode/varint", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			var got Tokens
			if err := json.Unmarshal(varint, &got); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("decode/decimal", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			var got []int32
			if err := json.Unmarshal(decimal, &got); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkApply folds steady traffic with 10,000 requests alive: each iteration is one event of a life of accepted,
// dispatched, first_token, finished. Ids come again only when they are forgotten.
func BenchmarkApply(b *testing.B) {
	const live = 10_000
	ids := make([]RequestID, 2*tombstones)
	for i := range ids {
		ids[i] = RequestID(fmt.Sprintf("%08x-0000-7000-8000-000000000000", i))
	}
	s := NewState()
	apply := func(i int, e Event) {
		e.Request, e.Pool, e.Worker = ids[i%len(ids)], "default", "w-1"
		s.Apply(&Stored{Event: e, Seq: s.Seq + 1})
	}
	accepted := Event{Type: Accepted, Tenant: "acme", Ingress: "ing-1", RequestSeq: 1}
	for i := range live {
		apply(i, accepted)
	}
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		i := n / 4 // this one ends, the one live after it begins
		switch n % 4 {
		case 0:
			apply(i+live, accepted)
		case 1:
			apply(i+live/2, Event{Type: Dispatched, Attempt: 1})
		case 2:
			apply(i+live/2, Event{Type: FirstToken, Attempt: 1})
		case 3:
			apply(i, Event{Type: Finished, Attempt: 1})
		}
	}
	if len(s.Requests) < live {
		b.Fatalf("%d requests are alive", len(s.Requests))
	}
}
