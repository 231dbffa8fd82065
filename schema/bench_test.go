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

func BenchmarkEncodeEvent(b *testing.B) {
	for _, typ := range []Type{Accepted, Finished} {
		e := eventFixture(typ)
		b.Run(string(typ), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				mustEncode(b, &e)
			}
		})
		b.Run(string(typ)+"/encoding_json", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := json.Marshal(&e); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkDecodeEvent(b *testing.B) {
	for _, typ := range []Type{Accepted, Finished} {
		e := eventFixture(typ)
		data := mustEncode(b, &e)
		b.Run(string(typ), func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for b.Loop() {
				var got Event
				if err := Decode(data, &got); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func chunkSamples() map[string]*Chunk {
	return map[string]*Chunk{
		"ascii":   {Request: idA, Attempt: 1, Index: 17, IDs: Tokens{1234}, Text: " stream"},
		"escaped": {Request: idA, Attempt: 1, Index: 17, IDs: Tokens{1234, 99_999}, Text: "\"<日本>\"\n"},
	}
}

func BenchmarkEncodeChunk(b *testing.B) {
	for name, c := range chunkSamples() {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				mustEncode(b, c)
			}
		})
		b.Run(name+"/encoding_json", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := json.Marshal(c); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkDecodeChunk(b *testing.B) {
	for name, c := range chunkSamples() {
		data := mustEncode(b, c)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				var got Chunk
				if err := Decode(data, &got); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func request500() *Request {
	return &Request{
		ID: idA, Pool: "default", Model: "qwen2.5-0.5b-instruct", Tenant: "acme", Ingress: "ing-1", Kind: KindChat,
		Received: 1_760_000_000_000_000_000, Prompt: promptTokens(500), MaxTokens: 256, Sampling: Sampling{Temperature: 0.7, Seed: 42},
	}
}

func BenchmarkEncodeRequest500(b *testing.B) {
	r := request500()
	b.ReportAllocs()
	for b.Loop() {
		mustEncode(b, r)
	}
}

func BenchmarkDecodeRequest500(b *testing.B) {
	data := mustEncode(b, request500())
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		var got Request
		if err := Decode(data, &got); err != nil {
			b.Fatal(err)
		}
	}
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
// dispatched, first_token, finished.
func BenchmarkApply(b *testing.B) {
	const live = 10_000
	ids := make([]RequestID, 2*live)
	for i := range ids {
		ids[i] = RequestID(fmt.Sprintf("%08x-0000-7000-8000-000000000000", i))
	}
	life := func(n int, seq uint64) Stored {
		e := Stored{Seq: seq, StoredAt: int64(seq)}
		switch n % 4 {
		case 0: // the request that starts now
			e.Event = Event{Type: Accepted, Request: ids[(n/4+live)%len(ids)], Pool: "default", Tenant: "acme", Ingress: "ing-1", RequestSeq: seq}
		case 1:
			e.Event = Event{Type: Dispatched, Request: ids[(n/4+live/2)%len(ids)], Attempt: 1, Worker: "w-1"}
		case 2:
			e.Event = Event{Type: FirstToken, Request: ids[(n/4+live/2)%len(ids)], Attempt: 1, Worker: "w-1"}
		case 3: // the oldest
			e.Event = Event{Type: Finished, Request: ids[(n/4)%len(ids)], Attempt: 1, Worker: "w-1"}
		}
		return e
	}
	s := NewState()
	seq := uint64(0)
	for _, id := range ids[:live] {
		seq++
		s.Apply(&Stored{Seq: seq, Event: Event{Type: Accepted, Request: id, Pool: "default", Tenant: "acme", Ingress: "ing-1", RequestSeq: seq}})
	}
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		seq++
		e := life(n, seq)
		n++
		s.Apply(&e)
	}
	b.ReportMetric(float64(len(s.Requests)), "live")
}
