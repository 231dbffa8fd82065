package ladder

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// drawn is any valid ladder.
func drawn(t *rapid.T) *Definition {
	d := &Definition{Name: "drawn", Workload: "seed", Length: 10, Drain: 1, Anchor: "a0"}
	n := rapid.IntRange(1, 9).Draw(t, "arms")
	var first, second []string
	for i := range n {
		name := fmt.Sprintf("a%d", i)
		d.Arms = append(d.Arms, Arm{Name: name})
		if i > 0 && rapid.Bool().Draw(t, "second") {
			second = append(second, name)
		} else {
			first = append(first, name)
		}
	}
	if len(second) > 0 {
		d.Blocks = [][]string{first, second}
	}
	for i := range rapid.IntRange(1, 12).Draw(t, "points") {
		if rapid.Bool().Draw(t, "loads") && len(d.Rates) == 0 || len(d.Loads) > 0 {
			d.Loads = append(d.Loads, float64(i+1)/4)
		} else {
			d.Rates = append(d.Rates, float64(i+1)*1.3)
		}
	}
	for i := range rapid.IntRange(3, 9).Draw(t, "seeds") {
		d.Seeds = append(d.Seeds, uint64(i*i+1))
	}
	d.fill()
	if err := d.Validate(); err != nil {
		t.Fatal(err)
	}
	return d
}

type cell struct {
	block int
	point float64
	seed  uint64
}

func point(j *Job) float64 { return max(j.Rate, j.Load) }

// Every arm of a block runs exactly once at each rate with each seed, rates come one after the other, the anchor is in
// every block, and ids tell all runs apart.
func TestEveryRunHasItsPlace(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := drawn(t)
		jobs := d.Plan()
		seen := map[string]bool{}
		arms := map[cell][]string{}
		var points []string // block and rate, as they come
		for i, j := range jobs {
			if j.Order != i || seen[j.ID] {
				t.Fatalf("%d: %+v", i, j)
			}
			seen[j.ID] = true
			c := cell{j.Block, point(&j), j.Seed}
			if len(arms[c]) > 0 && jobs[i-1].Block == j.Block && (point(&jobs[i-1]) != c.point || jobs[i-1].Seed != j.Seed) {
				t.Fatalf("run %d: another pair of rate and seed came between its arms", i)
			}
			arms[c] = append(arms[c], j.Arm)
			at := fmt.Sprint(j.Block, c.point)
			if len(points) == 0 || points[len(points)-1] != at {
				if slices.Contains(points, at) {
					t.Fatalf("run %d comes back to %s", i, at)
				}
				points = append(points, at)
			}
		}
		for b, want := range d.Blocks {
			if !slices.Contains(want, d.Anchor) {
				t.Fatalf("block %d has no anchor", b)
			}
			for _, p := range append(slices.Clone(d.Rates), d.Loads...) {
				for _, s := range d.Seeds {
					if got := arms[cell{b, p, s}]; len(got) != len(want) || !slices.Equal(slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want))) {
						t.Fatalf("block %d at %v with seed %d: %v, want %v", b, p, s, got, want)
					}
				}
			}
		}
	})
}

// No arm is systematically first, or second, or last: over a block, over the seeds of a rate, and over the rates of a
// seed, each is in each place as often as another, or once less.
func TestNoArmIsSystematicallyFirst(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := drawn(t)
		places := map[string]map[string]int{} // where and in which place → arm → times
		jobs := d.Plan()
		begin := 0 // of the block
		for i, j := range jobs {
			if j.Block != jobs[begin].Block {
				begin = i
			}
			place := (i - begin) % len(d.Blocks[j.Block])
			for _, where := range []string{"block", "seed " + fmt.Sprint(j.Seed), "rate " + fmt.Sprint(point(&j))} {
				key := fmt.Sprintf("%d %s, place %d", j.Block, where, place)
				if places[key] == nil {
					places[key] = map[string]int{}
					for _, a := range d.Blocks[j.Block] {
						places[key][a] = 0
					}
				}
				places[key][j.Arm]++
			}
		}
		for key, times := range places {
			least, most := len(d.Seeds)*100, 0
			for _, n := range times {
				least, most = min(least, n), max(most, n)
			}
			if most-least > 1 {
				t.Fatalf("block %s: %v", key, times)
			}
		}
	})
}

func TestEmbeddedLadders(t *testing.T) {
	for _, name := range Embedded() {
		d, err := Open(name)
		if err != nil || d.Name != name || d.About == "" {
			t.Errorf("%s: %+v, %v", name, d, err)
			continue
		}
		if text, err := Text(name); err != nil || !strings.HasPrefix(string(text), "#") {
			t.Errorf("%s does not begin with what it is for: %v", name, err)
		}
	}
	d, err := Open("order")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, a := range d.Arms {
		names = append(names, a.Name)
	}
	if got := strings.Join(names, " "); got != "prefill-first decode-first replicate-1 replicate-2 replicate-3" {
		t.Error(got)
	}
	if a := d.Arm("decode-first"); a.Args[0] != d.Args[0] || a.Args[len(a.Args)-1] != "--worker-prefill-order=decode-first" {
		t.Error(a.Args)
	}
}

const good = `{"name": "mine", "arms": [{"name": "a"}, {"name": "b"}], "rates": [1], "seeds": [1, 2, 3], "workload": "seed", "length": "10s", "drain": "1s"}`

func TestParse(t *testing.T) {
	if _, err := Parse([]byte(good)); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string][2]string{
		"lengthh":                  {`"length"`, `"lengthh"`},
		"arms is empty":            {`[{"name": "a"}, {"name": "b"}]`, `[]`},
		"arms has the name":        {`"name": "a"`, `"name": "a/b"`},
		"twice":                    {`{"name": "b"}`, `{"name": "a"}`},
		"2 seeds":                  {`[1, 2, 3]`, `[1, 2]`},
		"seeds has 1 twice":        {`[1, 2, 3]`, `[1, 2, 1]`},
		"0 rates and 0 loads":      {`"rates": [1], `, ``},
		"1 rates and 1 loads":      {`"rates": [1]`, `"rates": [1], "loads": [1]`},
		"rates has 0":              {`"rates": [1]`, `"rates": [0]`},
		"arrivals":                 {`"drain"`, `"arrivals": "never", "drain"`},
		"anchor is \"c\"":          {`"drain"`, `"anchor": "c", "drain"`},
		"no block has the arm":     {`"drain"`, `"blocks": [["a"]], "drain"`},
		"have no anchor":           {`"drain"`, `"blocks": [["a"], ["b"]], "drain"`},
		"blocks has \"b\" twice":   {`"drain"`, `"blocks": [["a", "b"], ["b"]], "anchor": "a", "drain"`},
		"capacity.arm":             {`"drain"`, `"capacity": {"arm": "c"}, "drain"`},
		"warmup":                   {`"drain"`, `"warmup": "6s", "tail": "4s", "drain"`},
		"slo and slo_alone":        {`"drain"`, `"slo": {"e2e": "1s"}, "slo_alone": {"e2e": 5}, "drain"`},
		"slo_alone has":            {`"drain"`, `"slo_alone": {}, "drain"`},
		"on has \"moon\"":          {`"drain"`, `"on": ["moon"], "drain"`},
		"workload is empty":        {`"workload": "seed"`, `"workload": ""`},
		"capacity.requests is 2":   {`"drain"`, `"capacity": {"requests": 2}, "drain"`},
		"length is 10s and requ":   {`"drain"`, `"requests": 5, "drain"`},
		"length is 0s and requ":    {`"length": "10s", `, ``},
		"warmup_requests is 3":     {`"drain"`, `"warmup_requests": 3, "drain"`},
		"allowed with requests":    {`"length": "10s"`, `"requests": 5, "warmup": "1s"`},
		"drain is -1s":             {`"1s"`, `"-1s"`},
		"name is \"\"":             {`"mine"`, `""`},
		"blocks has \"c\", allowe": {`"drain"`, `"blocks": [["a", "b", "c"]], "drain"`},
	} {
		text := strings.Replace(good, change[0], change[1], 1)
		if _, err := Parse([]byte(text)); !errors.Is(err, ErrDefinition) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	if _, err := Open("nobody"); !errors.Is(err, ErrDefinition) || !strings.Contains(err.Error(), "rungs") {
		t.Error(err)
	}
	if _, err := Text("nobody"); !errors.Is(err, ErrDefinition) {
		t.Error(err)
	}
}

func TestTimes(t *testing.T) {
	d := Definition{Length: time.Minute, Warmup: time.Second}
	if l, w := d.Times(7); l != time.Minute || w != time.Second {
		t.Error(l, w)
	}
	d = Definition{Requests: 200, WarmupRequests: 10}
	if l, w := d.Times(8); l != 26250*time.Millisecond || w != 1250*time.Millisecond {
		t.Error(l, w)
	}
}

// The hash follows what is run, and only that.
func TestHash(t *testing.T) {
	hash := func(text, on, workload string, engine ...string) string {
		t.Helper()
		d, err := Parse([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		h, err := d.Hash(on, json.RawMessage(workload), strings.Join(engine, ""))
		if err != nil || len(h) != 64 {
			t.Fatal(h, err)
		}
		return h
	}
	want := hash(good, Sim, `{}`)
	for _, text := range []string{
		strings.Replace(good, `"name": "mine", `, `"about": "words", "name": "mine", `, 1),
		strings.Replace(good, `"drain"`, `"profile": "of another name", "model": "elsewhere", "drain"`, 1),
		strings.Replace(good, `"drain"`, `"arrivals": "poisson", "threads": 1, "on": ["sim"], "drain"`, 1),
		"# YAML\nname: mine\narms: [{name: a}, {name: b}]\nrates: [1]\nseeds: [1, 2, 3]\nworkload: seed\nlength: 10000ms\ndrain: 1s\n",
	} {
		if got := hash(text, Sim, `{}`); got != want {
			t.Errorf("%s has another hash", text)
		}
	}
	for _, text := range []string{
		strings.Replace(good, `[1, 2, 3]`, `[1, 3, 2]`, 1), strings.Replace(good, `"10s"`, `"11s"`, 1), strings.Replace(good, `{"name": "b"}`, `{"name": "b", "args": ["--x=1"]}`, 1),
		strings.Replace(good, `{"name": "b"}`, `{"name": "b", "gateway": []}`, 1),
	} {
		if hash(text, Sim, `{}`) == want {
			t.Errorf("%s has the same hash", text)
		}
	}
	if hash(good, Mock, `{}`) == want || hash(good, Sim, `{"shared_ratio": 1}`) == want || hash(good, Sim, `{}`, "another content") == want {
		t.Error("another engine, another workload or another content of a profile or model has the same hash")
	}
}
