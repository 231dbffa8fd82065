package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestEncodeStampsVersion(t *testing.T) {
	for name, m := range fixtures() {
		*m.version() = 0
		if _, err := Encode(m); err != nil || *m.version() != Version {
			t.Errorf("%s: version %d, %v", name, *m.version(), err)
		}
	}
}

func TestEncodeRefusesInvalid(t *testing.T) {
	if b, err := Encode(&Event{Type: Received}); !errors.Is(err, ErrInvalid) || b != nil {
		t.Errorf("got %q, %v", b, err)
	}
	chunk := &Chunk{Request: idA, Attempt: 1, IDs: Tokens{1, -1}}
	if b, err := Encode(chunk); !errors.Is(err, ErrTokens) || b != nil {
		t.Errorf("got %q, %v", b, err)
	}
	seal := &SealReply{Relayed: Tokens{-1}} // by way of encoding/json
	if b, err := Encode(seal); !errors.Is(err, ErrTokens) || b != nil {
		t.Errorf("got %q, %v", b, err)
	}
}

func TestDecodeErrors(t *testing.T) {
	const id = `"request_id":"` + string(idA) + `"`
	for _, c := range []struct {
		data string
		m    Body
		want error // nil: an error of encoding/json
	}{
		{``, new(Event), nil},
		{`{`, new(Event), nil},
		{`[]`, new(Event), nil},
		{`null`, new(Event), ErrInvalid},
		{`{}`, new(Event), ErrInvalid},
		{`{"v":0}`, new(Seal), ErrInvalid},
		{`{"v":-1}`, new(Seal), ErrInvalid},
		{`{"v":2}`, new(Seal), ErrVersion},
		{`{"v":2,` + id + `,"attempt":1,"index":0,"text":7}`, new(Chunk), ErrVersion},
		{`{"text":7,"v":2}`, new(Chunk), ErrVersion},
		{`{"text":7,"v":1}`, new(Chunk), nil},
		{`{"v":1,` + id + `,"attempt":1,"index":0,"ids":"gA"}`, new(Chunk), ErrTokens},
		{`{"v":1,` + id + `,"attempt":1,"index":0}`, new(Chunk), ErrInvalid},
		{`{"v":1,` + id + `,"attempt":-1,"index":0}`, new(Chunk), nil},
		{`{"v":1,` + id + `,"attempt":1,"index":2147483648}`, new(Chunk), nil},
		{`{"v":1,` + id + `,"attempt":1}x`, new(Seal), nil},
	} {
		err := Decode([]byte(c.data), c.m)
		ours := errors.Is(err, ErrInvalid) || errors.Is(err, ErrVersion) || errors.Is(err, ErrTokens)
		if err == nil || (c.want == nil && ours) || (c.want != nil && !errors.Is(err, c.want)) {
			t.Errorf("%s into %T: %v, want %v", c.data, c.m, err, c.want)
		}
	}
}

// TestDecodeForgets holds that a body used again keeps nothing of what it held, whichever way Decode takes.
func TestDecodeForgets(t *testing.T) {
	short := &Chunk{Request: idB, Attempt: 1, IDs: Tokens{5}}
	data := mustEncode(t, short)
	for _, data := range [][]byte{data, append(data, ' ')} {
		m := fixtures()["chunk_finish"].(*Chunk)
		if err := Decode(data, m); err != nil || !reflect.DeepEqual(m, short) {
			t.Errorf("got %+v, %v", m, err)
		}
	}
}

func TestDecodeDoesNotAlias(t *testing.T) {
	for name, want := range fixtures() {
		data := mustEncode(t, want)
		got := newBody(want)
		if err := Decode(data, got); err != nil {
			t.Fatal(err)
		}
		for i := range data {
			data[i] = 'x'
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s changed with its input: %+v", name, got)
		}
	}
}

// TestWalkNamesEveryField gives each field of a body alone a value, and compares with encoding/json.
func TestWalkNamesEveryField(t *testing.T) {
	for _, m := range bodies() {
		if !newWalks(m) {
			continue
		}
		for _, index := range fields(reflect.TypeOf(m).Elem()) {
			one := newBody(m)
			v := reflect.ValueOf(one).Elem()
			for _, i := range index {
				if v.Kind() == reflect.Pointer {
					v.Set(reflect.New(v.Type().Elem()))
					v = v.Elem()
				}
				v = v.Field(i)
			}
			switch v.Kind() {
			case reflect.String:
				v.SetString("x")
			case reflect.Bool:
				v.SetBool(true)
			case reflect.Float32:
				v.SetFloat(0.5)
			case reflect.Slice:
				v.Set(reflect.MakeSlice(v.Type(), 2, 2))
			case reflect.Uint32, reflect.Uint64:
				v.SetUint(3)
			default:
				v.SetInt(3)
			}
			walkAsJSON(t, one)
		}
	}
}

// fields returns the index path of every leaf field of a struct type.
func fields(typ reflect.Type) (all [][]int) {
	for i := range typ.NumField() {
		f := typ.Field(i).Type
		if f.Kind() == reflect.Pointer {
			f = f.Elem()
		}
		if f.Kind() != reflect.Struct {
			all = append(all, []int{i})
			continue
		}
		for _, rest := range fields(f) {
			all = append(all, append([]int{i}, rest...))
		}
	}
	return all
}

// walkAsJSON holds that m is written as encoding/json writes it, and that the short cut and encoding/json read that
// alike.
func walkAsJSON(t interface{ Fatalf(string, ...any) }, m Body) {
	var w wire
	w.walk(m)
	want, err := json.Marshal(m)
	if err != nil || w.err != nil {
		t.Fatalf("%T: %v, %v", m, err, w.err)
	}
	if !bytes.Equal(w.b, want) {
		t.Fatalf("%T: wrote %s\nencoding/json %s", m, w.b, want)
	}
	fast, slow := newBody(m), newBody(m)
	if err := json.Unmarshal(want, slow); err != nil {
		t.Fatalf("%T: %v", m, err)
	}
	if !fastDecode(want, fast) || !reflect.DeepEqual(fast, slow) {
		t.Fatalf("%s:\nread %+v\nencoding/json %+v", want, fast, slow)
	}
}

func TestWalkAsEncodingJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		for _, m := range []Body{new(Event), new(Chunk), new(Request)} {
			randomize(t, reflect.ValueOf(m).Elem())
			walkAsJSON(t, m)
		}
	})
}

// randomize gives v values that the wire has to take care of: extremes, escapes, bytes that are not UTF-8.
func randomize(t *rapid.T, v reflect.Value) {
	if rapid.IntRange(0, 3).Draw(t, "zero") == 0 {
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			randomize(t, v.Field(i))
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		randomize(t, v.Elem())
	case reflect.String:
		s := rapid.OneOf(
			rapid.StringMatching(`[a-zA-Z0-9_-]{0,40}`),
			rapid.String(),
			rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) }),
			rapid.SampledFrom([]string{"\"", "\\", "<>&", "\u2028\u2029", "\x00\x1f\x7f", "\xed\xa0\x80", "日本", `\u0041`, "\\\""}),
		)
		v.SetString(s.Draw(t, "string"))
	case reflect.Slice:
		if v.Type() == reflect.TypeFor[Tokens]() {
			v.Set(reflect.ValueOf(Tokens(rapid.SliceOf(rapid.Int32Min(0)).Draw(t, "tokens"))))
			return
		}
		n := rapid.IntRange(0, 3).Draw(t, "len")
		v.Set(reflect.MakeSlice(v.Type(), n, n))
		for i := range n {
			randomize(t, v.Index(i))
		}
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Float32:
		f := rapid.OneOf(rapid.Float32(), rapid.SampledFrom([]float32{1e-7, 1e21, 0.1, math.MaxFloat32, math.SmallestNonzeroFloat32}))
		v.SetFloat(float64(f.Filter(func(f float32) bool { return f-f == 0 }).Draw(t, "float")))
	case reflect.Uint32, reflect.Uint64:
		n := rapid.OneOf(rapid.Uint64(), rapid.SampledFrom([]uint64{math.MaxUint64, math.MaxInt64, math.MaxInt64 + 1, math.MaxUint32})).Draw(t, "uint")
		v.SetUint(n & (math.MaxUint64 >> (64 - v.Type().Bits())))
	default:
		n := rapid.OneOf(rapid.Int64(), rapid.SampledFrom([]int64{math.MinInt64, math.MaxInt64, math.MaxInt32, math.MinInt32})).Draw(t, "int")
		v.SetInt(n >> (64 - v.Type().Bits()))
	}
}

// FuzzDecode reads anything as every body: either it is refused, or encoding it gives a text that reads as the same
// again. What the short cut reads, encoding/json reads alike.
func FuzzDecode(f *testing.F) {
	for _, m := range fixtures() {
		f.Add(mustEncode(f, m))
	}
	for _, s := range []string{
		` {"V":1, "Request_ID":"` + string(idA) + `"}`,
		`{"v":1,"request_id":"` + string(idA) + `","attempt":1,"index":0,"ids":"","text":"\ud83d\ude00\ud800","finish":{"reason":"","prompt_tokens":0,"output_tokens":-1}}`,
		`{"v":1,"request_id":"` + string(idA) + `","pool":"a","model":"","tenant":"b","ingress":"c","kind":"chat","received_time_ns":-0,"prompt":"AQ","max_tokens":1,"stop":[],"sampling":{"temperature":1e-7,"seed":01}}`,
		`{"v":1,"request_id":"` + string(idA) + `","attempt":1,"index":0,"ids":"AQI","logprobs":{"chosen":[-1e-7,-0.0],"top":"","top_logprobs":[]}}`,
		`{"v":1,"request_id":"` + string(idA) + `","attempt":1,"index":0,"ids":"AQI","logprobs":{"chosen":[-1,-9999],"top":"AQI","top_logprobs":[-0.5, null]}}`,
		`{"v":1,"pool":"a","epoch":18446744073709551615,"items":[{"attempt":1,"request": [ "<" , 1.0 ] }]}`,
		`{"v":1,"pool":"a","epoch":18446744073709551616,"items":[]}`,
	} {
		f.Add([]byte(s))
	}
	all := bodies()
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, like := range all {
			checkDecode(t, like, data)
		}
	})
}

func checkDecode(t *testing.T, like Body, data []byte) {
	if fast := newBody(like); fastDecode(data, fast) {
		slow := newBody(like)
		if err := json.Unmarshal(data, slow); err != nil || !reflect.DeepEqual(fast, slow) {
			t.Fatalf("the short cut read %+v, encoding/json %+v, %v", fast, slow, err)
		}
	}
	first := newBody(like)
	if Decode(data, first) != nil {
		return
	}
	encoded, err := Encode(first)
	if err != nil {
		t.Fatalf("%+v was decoded and cannot be encoded: %v", first, err)
	}
	second := newBody(like)
	if err := Decode(encoded, second); err != nil {
		t.Fatalf("%s was encoded and cannot be decoded: %v", encoded, err)
	}
	normalize(first)
	if !reflect.DeepEqual(first, second) {
		t.Fatalf("decoded %+v\nencoded %s\nand then %+v", first, encoded, second)
	}
	again, err := Encode(second)
	if err != nil || !bytes.Equal(encoded, again) {
		t.Fatalf("encoded %s\nand then %s, %v", encoded, again, err)
	}
}

// normalize brings m to the one of its forms that encoding gives: no empty lists where they are left out, and a
// dispatch's embedded requests without white space.
func normalize(m Body) {
	switch m := m.(type) {
	case *Request:
		if len(m.Stop) == 0 {
			m.Stop = nil
		}
	case *Chunk:
		if l := m.Logprobs; l != nil && len(l.Top) == 0 {
			l.Top, l.TopLogprobs = nil, nil
		}
	case *Dispatch:
		for i := range m.Items {
			var tight, safe bytes.Buffer
			if err := json.Compact(&tight, m.Items[i].Request); err != nil {
				panic(err) // it was part of valid JSON
			}
			json.HTMLEscape(&safe, tight.Bytes())
			m.Items[i].Request = safe.Bytes()
		}
	}
}

func TestDedupID(t *testing.T) {
	ids := map[string]string{}
	for name, m := range fixtures() {
		e, ok := m.(*Event)
		if !ok {
			continue
		}
		id := e.DedupID()
		if e.Type == Epoch {
			if id != "" {
				t.Errorf("an epoch event has the id %q: the next one of its pool would be dropped", id)
			}
			continue
		}
		if other, ok := ids[id]; ok || id == "" {
			t.Errorf("%s and %s have the same id %q", name, other, id)
		}
		ids[id] = name
	}
	e := eventFixture(Dispatched)
	if got, want := e.DedupID(), string(idA)+".2.dispatched.0"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	e = eventFixture(Preempted)
	if got, want := e.DedupID(), string(idA)+".2.preempted.1"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	e = eventFixture(WorkerUp)
	if got, want := e.DedupID(), "w-51.0.worker_up.0"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestDedupIDOfTwoWriters holds that what one service writes of a request does not make the stream drop what another
// writes of it: a lost worker's late terminal event before the scheduler's own, two wishes to cancel, two ends of a
// worker's life.
func TestDedupIDOfTwoWriters(t *testing.T) {
	for _, typ := range []Type{Finished, Failed, Cancelled, CancelRequested, WorkerDown} {
		a, b := eventFixture(typ), eventFixture(typ)
		b.Source = "sched-2"
		if a.DedupID() == b.DedupID() {
			t.Errorf("%s: both are %s", typ, a.DedupID())
		}
		if !strings.HasSuffix(b.DedupID(), ".sched-2") {
			t.Errorf("%s: %s does not name its writer", typ, b.DedupID())
		}
	}
}
