package admission_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cadence-slo/cadence/bench/admission"
)

// What holds of any experiment: each case is found at each load, shares are parts, values lie within their intervals, and the result
// can be written and drawn.
func TestExperiments(t *testing.T) {
	for _, name := range admission.Experiments()[1:] {
		o := options(t)
		o.Experiment = name
		r, err := admission.Try(context.Background(), o)
		if err != nil {
			t.Fatal(err)
		}
		loads := map[float64]int{}
		for _, f := range r.Findings {
			loads[f.Load]++
			for _, c := range r.Columns {
				v, ok := f.Values[c.Name]
				if ok && !(v.Low <= v.Value && v.Value <= v.High && v.Of > 0) || c.Share && ok && (v.Low < 0 || v.High > 1) {
					t.Errorf("%s: %s at %v has %s %+v", name, f.Case, f.Load, c.Name, v)
				}
			}
			if len(f.Values) < len(r.Columns)/3 {
				t.Errorf("%s: %+v", name, f)
			}
		}
		for load, n := range loads {
			if n*len(loads) != len(r.Findings) {
				t.Errorf("%s: %d findings at %v of %d at %d loads", name, n, load, len(r.Findings), len(loads))
			}
		}
		var out bytes.Buffer
		dir := t.TempDir()
		if err := errors.Join(r.Write(&out), r.Save(dir)); err != nil || !strings.Contains(out.String(), r.Findings[0].Case) {
			t.Errorf("%s: %v, %s", name, err, out.String())
		}
		if b, err := os.ReadFile(filepath.Join(dir, "admission-"+name+".svg")); err != nil || !bytes.Contains(b, []byte(r.Findings[0].Case)) {
			t.Errorf("%s: no figure of %s: %v", name, r.Findings[0].Case, err)
		}
	}
}

// The same options give the same result.
func TestExperimentsRepeat(t *testing.T) {
	var before []byte
	for range 2 {
		o := options(t)
		o.Experiment = "ingresses"
		r, err := admission.Try(context.Background(), o)
		if err != nil {
			t.Fatal(err)
		}
		b, err := json.Marshal(r)
		if err != nil || before != nil && !bytes.Equal(b, before) {
			t.Errorf("%v: %s, before %s", err, b, before)
		}
		before = b
	}
}

func TestWhichExperimentsThereAre(t *testing.T) {
	for _, name := range []string{"arms", "all", ""} {
		o := options(t)
		o.Experiment = name
		if _, err := admission.Try(context.Background(), o); !errors.Is(err, admission.ErrConfig) || !strings.Contains(err.Error(), "experiment") {
			t.Errorf("%q: %v", name, err)
		}
	}
}
