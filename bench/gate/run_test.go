package gate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/predictor/profile"
)

// childVariable makes this test binary a pipeline that starts and then answers everything with a status, or ends at once.
const childVariable = "GATE_TEST_STATUS"

func TestMain(m *testing.M) {
	if status := os.Getenv(childVariable); status != "" {
		fmt.Fprintln(os.Stderr, serve(status))
		os.Exit(3)
	}
	os.Exit(m.Run())
}

func serve(text string) error {
	status, err := strconv.Atoi(text)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Printf("Listening on http://%s\n", l.Addr())
	s := http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })}
	return s.Serve(l)
}

// A pipeline that starts and answers nothing is a regression; one that does not start says nothing.
func TestPipelinesThatFail(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	b := expected()
	if b.Settings.Contents, err = b.Settings.contents(); err != nil {
		t.Fatal(err)
	}
	for i := range b.Points {
		b.Points[i].Canary = 0.001 // any machine will do
	}
	o := Options{Dir: t.TempDir(), Executable: exe, Log: slog.New(slog.DiscardHandler)}
	t.Setenv(childVariable, "500")
	r, err := Run(t.Context(), b, o)
	if err != nil || r.Exit != Regression || len(r.Broken) != 2 || len(r.Samples) != 2 || r.Samples[0].Canary <= 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	var text strings.Builder
	if err := r.Write(&text); err != nil || !strings.Contains(text.String(), "broken: at 16 requests/s") || !strings.Contains(text.String(), "A regression.") {
		t.Errorf("%v\n%s", err, &text)
	}
	t.Setenv(childVariable, "none")
	if r, err := Run(t.Context(), b, o); err == nil {
		t.Errorf("%+v", r)
	}
	o.Limit = time.Nanosecond
	if r, err := Run(t.Context(), b, o); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "longer than 1ns") {
		t.Errorf("%+v, %v", r, err)
	}
}

// A budget of another profile or workload is found before anything is measured.
func TestBudgetsOfOtherSettings(t *testing.T) {
	s := DefaultSettings()
	now, err := s.contents()
	if err != nil {
		t.Fatal(err)
	}
	p, err := profile.Open(s.Profile)
	if err != nil {
		t.Fatal(err)
	}
	slow, err := hash(p, []byte("{}"))
	if err != nil {
		t.Fatal(err)
	}
	p.Cost.Base *= 0.8
	if fast, err := hash(p, []byte("{}")); err != nil || fast == slow {
		t.Errorf("a faster profile is not told apart: %v", err)
	}
	s.Workload = "uniform"
	if other, err := s.contents(); err != nil || other == now || slow == now {
		t.Errorf("another workload is not told apart: %v", err)
	}
	b := expected()
	b.Settings.Contents = slow
	r, err := Run(t.Context(), b, Options{})
	if err != nil || r.Exit != Invalid || len(r.Invalid) != 1 || !strings.Contains(r.Invalid[0], "another profile mock") {
		t.Errorf("%+v, %v", r, err)
	}
	for _, change := range []func(*Settings){func(s *Settings) { s.Profile = "none" }, func(s *Settings) { s.Workload = "none" }} {
		s := DefaultSettings()
		change(&s)
		if _, err := s.contents(); !errors.Is(err, ErrBudget) {
			t.Error(err)
		}
	}
}

// What is disturbed is done again, what is red is confirmed, and neither longer than there is time for.
func TestAgain(t *testing.T) {
	b := expected()
	for name, c := range map[string]struct {
		runs  string // what each turns out as, in order: good, bad, disturbed
		limit time.Duration
		want  Exit
		names string // of the runs
	}{
		"all good":                          {"gg", 3 * time.Minute, Passed, "0 gate.1, 1 gate.1"},
		"disturbed once":                    {"dgg", 3 * time.Minute, Passed, "0 gate.1, 0 gate.2, 1 gate.1"},
		"disturbed, no limit":               {"ddgddd", 0, Invalid, "0 gate.1, 0 gate.2, 0 gate.3, 1 gate.1, 1 gate.2, 1 gate.3"},
		"disturbed, time for one run more":  {"ddg", 3 * time.Minute, Invalid, "0 gate.1, 0 gate.2, 1 gate.1"},
		"disturbed, no time":                {"dg", 2 * time.Minute, Invalid, "0 gate.1, 1 gate.1"},
		"disturbed at the end":              {"gdg", 3 * time.Minute, Passed, "0 gate.1, 1 gate.1, 1 gate.2"},
		"worse by chance":                   {"bgg", 3 * time.Minute, Passed, "0 gate.1, 0 again.1, 1 gate.1"},
		"worse":                             {"bbg", 3 * time.Minute, Regression, "0 gate.1, 0 again.1, 1 gate.1"},
		"worse at the end":                  {"gbb", 3 * time.Minute, Regression, "0 gate.1, 1 gate.1, 1 again.1"},
		"worse, no time":                    {"bg", 2 * time.Minute, Regression, "0 gate.1, 1 gate.1"},
		"worse, no limit":                   {"bbbb", 0, Regression, "0 gate.1, 0 again.1, 1 gate.1, 1 again.1"},
		"worse, disturbed when done again":  {"bdg", 3 * time.Minute, Invalid, "0 gate.1, 0 again.1, 1 gate.1"},
		"worse, disturbed twice, then good": {"bddgg", 0, Passed, "0 gate.1, 0 again.1, 0 again.2, 0 again.3, 1 gate.1"},
	} {
		var names []string
		spent := time.Duration(0)
		r := runner{limit: c.limit, log: slog.New(slog.DiscardHandler), spent: func() time.Duration { return spent },
			measure: func(_ context.Context, name string, i int) (Sample, error) {
				names = append(names, fmt.Sprintf("%d %s", i, name))
				spent += time.Minute
				s := b.Points[i].Sample
				switch c.runs[min(len(names), len(c.runs))-1] {
				case 'b':
					s.Goodput /= 2
				case 'd':
					s.Canary /= 2
				}
				return s, nil
			}}
		got, err := r.all(t.Context(), b)
		if err != nil {
			t.Fatal(err)
		}
		if v := Judge(b, got); v.Exit != c.want || strings.Join(names, ", ") != c.names || len(names) != len(c.runs) {
			t.Errorf("%s: %+v after %v", name, v, names)
		}
		if c.limit > 0 && spent > c.limit {
			t.Errorf("%s: %v are more than %v", name, spent, c.limit)
		}
	}
	wrong := errors.New("no pipeline")
	r := runner{measure: func(context.Context, string, int) (Sample, error) { return Sample{}, wrong }, spent: func() time.Duration { return 0 }}
	if got, err := r.all(t.Context(), b); !errors.Is(err, wrong) || !reflect.DeepEqual(got, []Sample(nil)) {
		t.Errorf("%+v, %v", got, err)
	}
}

// The canary takes at least its sleeps, and ends with its context.
func TestCanary(t *testing.T) {
	rate, err := canary(t.Context())
	if most := 1 / canarySleep.Seconds(); err != nil || rate <= 0 || rate >= most {
		t.Errorf("%v steps/s, at most %v are possible: %v", rate, most, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := canary(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
