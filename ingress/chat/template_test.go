package chat_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/ingress/chat"
)

// now is the clock of testdata/golden.py.
func now() time.Time { return time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC) }

type golden struct {
	Messages []struct{ Role, Content string }
	Generate bool `json:"add_generation_prompt"`
	Text     string
	Error    string
}

func (g *golden) messages() []chat.Message {
	out := make([]chat.Message, len(g.Messages))
	for i, m := range g.Messages {
		out[i] = chat.Message{Role: m.Role, Content: m.Content}
	}
	return out
}

func load(t testing.TB, name string) *chat.Template {
	t.Helper()
	src, err := os.ReadFile(filepath.Join("testdata", name+".jinja"))
	if err != nil {
		t.Fatal(err)
	}
	tpl, err := chat.Compile(string(src), chat.Options{BOS: "<s>", EOS: "</s>", Now: now})
	if err != nil {
		t.Fatal(err)
	}
	return tpl
}

func TestAsTransformersRendersIt(t *testing.T) {
	raw, err := os.ReadFile("testdata/golden.json")
	if err != nil {
		t.Fatal(err)
	}
	var all map[string]map[string]golden
	if err := json.Unmarshal(raw, &all); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"qwen2.5", "llama3", "llama3.1", "mistral-v0.1", "mistral-v0.3", "gemma2", "phi3", "dialect", "inline"} {
		tpl := load(t, name)
		if len(all[name]) == 0 {
			t.Errorf("no golden for %s", name)
		}
		for conversation, want := range all[name] {
			t.Run(name+"/"+conversation, func(t *testing.T) {
				got, err := tpl.Render(want.messages(), want.Generate)
				var rejected *chat.RejectedError
				switch {
				case want.Error != "" && (!errors.As(err, &rejected) || rejected.Message != want.Error):
					t.Errorf("%q, %v; want the template's own error %q", got, err, want.Error)
				case want.Error == "" && (err != nil || got != want.Text):
					t.Errorf("got  %q, %v\nwant %q", got, err, want.Text)
				}
			})
		}
	}
}

func TestWrongTemplates(t *testing.T) {
	for name, src := range map[string]string{
		"unclosed":        "{% for m in messages %}",
		"unknown tag":     "{% frobnicate %}",
		"unknown filter":  "{{ messages | frobnicate }}",
		"includes a file": "{% include '/etc/hostname' %}",
	} {
		tpl, err := chat.Compile(src, chat.Options{})
		if err == nil {
			_, err = tpl.Render([]chat.Message{{Role: "user", Content: "x"}}, true)
		}
		if !errors.Is(err, chat.ErrCompile) && !errors.Is(err, chat.ErrRender) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestBounds(t *testing.T) {
	for name, c := range map[string]struct {
		src  string
		want error
	}{
		"range":  {"{% for i in range(1000000) %}x{% endfor %}", chat.ErrRender},
		"output": {"{% for i in range(10000) %}{{ messages[0].content }}{% endfor %}", chat.ErrTooLong},
		"call":   {"{{ raise_exception(1, 2, 3) }}", chat.ErrRender},
	} {
		tpl, err := chat.Compile(c.src, chat.Options{})
		if err != nil {
			t.Fatal(name, err)
		}
		if _, err := tpl.Render([]chat.Message{{Role: "user", Content: strings.Repeat("x", 4096)}}, true); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

func TestRenderIsSafeForManyGoroutines(t *testing.T) {
	tpl := load(t, "mistral-v0.3")
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				got, err := tpl.Render([]chat.Message{{Role: "user", Content: "Hi"}}, true)
				if err != nil || got != "<s>[INST] Hi[/INST]" {
					t.Errorf("%q, %v", got, err)
				}
			}
		})
	}
	wg.Wait()
}

func TestChatMLCompiles(t *testing.T) {
	tpl, err := chat.Compile(chat.ChatML, chat.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := tpl.Render([]chat.Message{{Role: "user", Content: "Hi"}}, true); err != nil || got != "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n" {
		t.Fatalf("%q, %v", got, err)
	}
}

// BenchmarkRender renders ten turns: go test -bench Render ./ingress/chat
func BenchmarkRender(b *testing.B) {
	tpl := load(b, "qwen2.5")
	var messages []chat.Message
	for range 5 {
		messages = append(messages, chat.Message{Role: "user", Content: "What is it?"}, chat.Message{Role: "assistant", Content: "It is that."})
	}
	for b.Loop() {
		if _, err := tpl.Render(messages, true); err != nil {
			b.Fatal(err)
		}
	}
}
