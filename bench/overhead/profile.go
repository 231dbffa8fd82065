package overhead

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cadence-slo/cadence/bench/stack"
	"google.golang.org/protobuf/encoding/protowire"
)

// errProfile is returned for bytes that are not a pprof profile.
var errProfile = errors.New("overhead: malformed CPU profile")

// Share is a part of the services' CPU time, in [0, 1].
type Share struct {
	Name  string  `json:"name"`
	Ratio float64 `json:"ratio"`
}

// Profile says where the CPU time of the services went.
type Profile struct {
	File    string        `json:"file"` // for go tool pprof
	Length  time.Duration `json:"length_ns"`
	CPU     time.Duration `json:"cpu_ns"`
	Owners  []Share       `json:"owners"`  // whose code it was, with what the runtime and the kernel did for it
	Kernel  float64       `json:"kernel"`  // of the whole, in system calls
	Hottest []Share       `json:"hottest"` // functions, by themselves
}

// fetchProfile takes a CPU profile of the given length and stores it in file.
func fetchProfile(ctx context.Context, addr, file string, length time.Duration) (*Profile, error) {
	url := fmt.Sprintf("http://%s/debug/pprof/profile?seconds=%d", addr, max(1, int(length.Seconds())))
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("overhead: CPU profile: %w", err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("overhead: CPU profile: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("overhead: CPU profile: %s: %.200s", resp.Status, body)
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return nil, fmt.Errorf("overhead: CPU profile: %w", err)
	}
	if err := os.WriteFile(file, body, 0o644); err != nil {
		return nil, fmt.Errorf("overhead: CPU profile: %w", err)
	}
	samples, err := parseProfile(body)
	if err != nil {
		return nil, err
	}
	p := summarize(samples)
	p.File, p.Length = file, length
	return p, nil
}

// sample is CPU time with the stack that it was spent in, the innermost function first.
type sample struct {
	stack []string
	cpu   time.Duration
}

// owners names code by the beginning of its functions' names.
var owners = stack.Owners{
	{"github.com/cadence-slo/cadence/ingress", "ingress"},
	{"github.com/cadence-slo/cadence/scheduler", "scheduler"},
	{"github.com/cadence-slo/cadence/worker", "worker"},
	{"github.com/cadence-slo/cadence/analytics", "projector"},
	{"github.com/ClickHouse/", "projector"},
	{"github.com/cadence-slo/cadence/schema", "wire (schema)"},
	{"github.com/cadence-slo/cadence/streams", "streams"},
	{"github.com/nats-io/nats-server", "NATS server"},
	{"github.com/nats-io/nats.go", "NATS client"},
	{"github.com/valyala/fasthttp", "HTTP (fasthttp, fiber)"},
	{"github.com/gofiber/", "HTTP (fasthttp, fiber)"},
	{"runtime.gcBgMarkWorker", "garbage collector"},
	{"runtime.bgsweep", "garbage collector"},
	{"runtime.bgscavenge", "garbage collector"},
	{"runtime.gcAssistAlloc", "garbage collector"},
	{"runtime.mcall", "Go scheduler"},
	{"runtime.mstart", "Go scheduler"},
	{"runtime.sysmon", "Go scheduler"},
	{"runtime.findRunnable", "Go scheduler"},
}

func summarize(samples []sample) *Profile {
	p := &Profile{}
	var kernel time.Duration
	byOwner, byFunction := map[string]time.Duration{}, map[string]time.Duration{}
	for _, s := range samples {
		if len(s.stack) == 0 {
			continue
		}
		p.CPU += s.cpu
		byOwner[owners.Of(s.stack)] += s.cpu
		byFunction[s.stack[0]] += s.cpu
		if strings.Contains(s.stack[0], "yscall") { // internal/runtime/syscall.Syscall6 and its like
			kernel += s.cpu
		}
	}
	if p.CPU == 0 {
		return p
	}
	shares := func(m map[string]time.Duration) (out []Share) {
		for name, cpu := range m {
			out = append(out, Share{name, float64(cpu) / float64(p.CPU)})
		}
		slices.SortFunc(out, func(a, b Share) int {
			return cmp.Or(cmp.Compare(b.Ratio, a.Ratio), cmp.Compare(a.Name, b.Name))
		})
		return out
	}
	p.Kernel = float64(kernel) / float64(p.CPU)
	p.Owners = shares(byOwner)
	p.Hottest = shares(byFunction)
	p.Hottest = p.Hottest[:min(len(p.Hottest), 20)]
	return p
}

// parseProfile reads the parts of a pprof profile that summarize needs: samples, locations, functions and names. The
// last value of a sample is its CPU time.
func parseProfile(data []byte) ([]sample, error) {
	z, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errProfile, err)
	}
	raw, err := io.ReadAll(z)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errProfile, err)
	}
	type rawSample struct{ locations, values []uint64 }
	var (
		names     []string
		stacks    []rawSample
		functions = map[uint64]uint64{}   // id → index of its name
		locations = map[uint64][]uint64{} // id → functions, the innermost first
	)
	err = eachField(raw, func(num protowire.Number, _ uint64, b []byte) error {
		switch num {
		case 2: // sample
			var s rawSample
			err := eachField(b, func(num protowire.Number, v uint64, b []byte) error {
				switch num {
				case 1:
					return appendVarints(&s.locations, v, b)
				case 2:
					return appendVarints(&s.values, v, b)
				}
				return nil
			})
			stacks = append(stacks, s)
			return err
		case 4: // location
			var id uint64
			var lines []uint64
			err := eachField(b, func(num protowire.Number, v uint64, b []byte) error {
				switch num {
				case 1:
					id = v
				case 4: // line
					return eachField(b, func(num protowire.Number, v uint64, _ []byte) error {
						if num == 1 {
							lines = append(lines, v)
						}
						return nil
					})
				}
				return nil
			})
			locations[id] = lines
			return err
		case 5: // function
			var id, name uint64
			err := eachField(b, func(num protowire.Number, v uint64, _ []byte) error {
				switch num {
				case 1:
					id = v
				case 2:
					name = v
				}
				return nil
			})
			functions[id] = name
			return err
		case 6: // string table
			names = append(names, string(b))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	out := make([]sample, 0, len(stacks))
	for _, s := range stacks {
		if len(s.values) == 0 {
			return nil, fmt.Errorf("%w: sample without a value", errProfile)
		}
		one := sample{cpu: time.Duration(s.values[len(s.values)-1])}
		for _, l := range s.locations {
			for _, f := range locations[l] {
				if name := functions[f]; name < uint64(len(names)) {
					one.stack = append(one.stack, names[name])
				}
			}
		}
		out = append(out, one)
	}
	return out, nil
}

// eachField calls f for every field of a protobuf message: v for numbers, b for the others.
func eachField(msg []byte, f func(num protowire.Number, v uint64, b []byte) error) error {
	for len(msg) > 0 {
		num, typ, n := protowire.ConsumeTag(msg)
		if n < 0 {
			return fmt.Errorf("%w: %w", errProfile, protowire.ParseError(n))
		}
		msg = msg[n:]
		var v uint64
		var b []byte
		switch typ {
		case protowire.VarintType:
			v, n = protowire.ConsumeVarint(msg)
		case protowire.BytesType:
			b, n = protowire.ConsumeBytes(msg)
		default:
			n = protowire.ConsumeFieldValue(num, typ, msg)
		}
		if n < 0 {
			return fmt.Errorf("%w: %w", errProfile, protowire.ParseError(n))
		}
		msg = msg[n:]
		if err := f(num, v, b); err != nil {
			return err
		}
	}
	return nil
}

// appendVarints takes a repeated number, packed or not.
func appendVarints(to *[]uint64, v uint64, packed []byte) error {
	if packed == nil {
		*to = append(*to, v)
		return nil
	}
	for len(packed) > 0 {
		v, n := protowire.ConsumeVarint(packed)
		if n < 0 {
			return fmt.Errorf("%w: %w", errProfile, protowire.ParseError(n))
		}
		*to = append(*to, v)
		packed = packed[n:]
	}
	return nil
}
