package ingress_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alecthomas/kong"
	"github.com/cadence-slo/cadence/ingress"
	"github.com/cadence-slo/cadence/schema"
	"github.com/cadence-slo/cadence/streams/streamstest"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
)

// OpenAI's own client understands what the ingress says: streams, bodies, usage, errors before and within a stream.
func TestOpenAIClient(t *testing.T) {
	t.Parallel()
	cfg := config()
	cfg.APIKeys = []string{"acme:sk-1"}
	h := start(t, cfg)
	c := openai.NewClient(option.WithBaseURL(h.url+"/v1"), option.WithAPIKey("sk-1"), option.WithMaxRetries(0))
	params := openai.ChatCompletionNewParams{
		Model:         modelName,
		Messages:      []openai.ChatCompletionMessageParamUnion{openai.SystemMessage("be short"), openai.UserMessage("hello")},
		MaxTokens:     openai.Int(8),
		StreamOptions: openai.ChatCompletionStreamOptionsParam{IncludeUsage: openai.Bool(true)},
	}
	stream := c.Chat.Completions.NewStreaming(t.Context(), params)
	r := h.next()
	go short(r)
	var acc openai.ChatCompletionAccumulator
	for stream.Next() {
		acc.AddChunk(stream.Current())
	}
	if err := stream.Err(); err != nil {
		t.Fatal(err)
	}
	if got := acc.Choices[0]; got.Message.Content != r.words(1, 0, 8) || got.FinishReason != "length" || acc.Usage.CompletionTokens != 8 || acc.Usage.PromptTokens != int64(len(r.Prompt)) {
		t.Fatalf("%+v", acc.ChatCompletion)
	}

	stream = c.Chat.Completions.NewStreaming(t.Context(), params)
	r = h.next()
	r.tokens(1, 0, 2)
	r.publish(&schema.Chunk{Attempt: 1, Index: 2, Error: &schema.Error{Code: schema.FailedEngine}})
	for stream.Next() {
	}
	if err := stream.Err(); err == nil || !strings.Contains(err.Error(), "error while processing") {
		t.Errorf("an error in the stream: %v", err)
	}

	params.StreamOptions = openai.ChatCompletionStreamOptionsParam{}
	h.serve(short)
	whole, err := c.Chat.Completions.New(t.Context(), params)
	if err != nil || whole.Choices[0].FinishReason != "length" || whole.Usage.CompletionTokens != 8 {
		t.Fatalf("%+v, %v", whole, err)
	}
	text, err := c.Completions.New(t.Context(), openai.CompletionNewParams{Model: modelName, Prompt: openai.CompletionNewParamsPromptUnion{OfString: openai.String("once upon")}, MaxTokens: openai.Int(4)})
	if err != nil || len(strings.Fields(text.Choices[0].Text)) != 4 {
		t.Fatalf("%+v, %v", text, err)
	}
	models, err := c.Models.List(t.Context())
	if err != nil || len(models.Data) != 2 || models.Data[0].ID != modelName {
		t.Fatalf("%+v, %v", models, err)
	}
	params.Model = "nope"
	var api *openai.Error
	if _, err = c.Chat.Completions.New(t.Context(), params); !errors.As(err, &api) || api.StatusCode != 404 || api.Code != "model_not_found" || api.Param != "model" {
		t.Errorf("%+v", err)
	}
	other := openai.NewClient(option.WithBaseURL(h.url+"/v1"), option.WithAPIKey("sk-2"), option.WithMaxRetries(0))
	if _, err = other.Models.List(t.Context()); !errors.As(err, &api) || api.StatusCode != 401 {
		t.Errorf("%+v", err)
	}
}

// Each of 200 clients at once gets its own text, whole, whatever the others do.
func TestManyStreamsAtOnce(t *testing.T) {
	t.Parallel()
	h := start(t, config())
	h.serve(func(r *run) {
		n := r.MaxTokens
		r.tokens(1, 0, n)
		r.finish(1, n, schema.FinishLength)
	})
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 200}}
	defer client.CloseIdleConnections()
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Go(func() {
			n := int32(5 + i%40)
			q := h.request(t, http.MethodPost, chatPath, chatBody(fmt.Sprint("client ", i), fmt.Sprintf(`,"stream":true,"max_tokens":%d`, n)))
			res, err := client.Do(q)
			if err != nil {
				t.Error(err)
				return
			}
			defer res.Body.Close()
			r := &run{Request: schema.Request{ID: schema.RequestID(res.Header.Get("X-Cadence-Request-Id"))}}
			var text, end string
			if err := parseSSE(res.Body, func(e sse) { text += e.text(t); end = e.data }); err != nil || end != "[DONE]" || text != r.words(1, 0, n) {
				t.Errorf("client %d: %v, %q, then %q", i, err, text, end)
			}
		})
	}
	wg.Wait()
	eventually(t, "no open request", func() bool { return h.in.Stats().Open == 0 })
	if st := h.in.Stats(); st.Delivered[schema.OutcomeComplete] != 200 || st.TTFT.Count != 200 || st.E2E.P99 < st.E2E.P50 {
		t.Errorf("%+v", st)
	}
}

// A client of HTTP/1.0 cannot read chunks: its stream ends with the connection.
func TestHTTP10(t *testing.T) {
	t.Parallel()
	h := start(t, config())
	h.serve(short)
	for _, more := range []string{"", `,"stream":true`} {
		c := h.dial(t)
		body := chatBody("a", more)
		fmt.Fprintf(c, "POST %s HTTP/1.0\r\nContent-Length: %d\r\n\r\n%s", chatPath, len(body), body)
		out, err := io.ReadAll(c)
		if err != nil {
			t.Fatal(err)
		}
		head, rest, _ := bytes.Cut(out, []byte("\r\n\r\n"))
		if bytes.Contains(head, []byte("chunked")) {
			t.Errorf("header %q", head)
		}
		if more == "" {
			if !bytes.HasPrefix(rest, []byte(`{"id"`)) {
				t.Errorf("body %q", rest)
			}
			continue
		}
		end := ""
		if err := parseSSE(bytes.NewReader(rest), func(e sse) { end = e.data }); err != nil || end != "[DONE]" {
			t.Errorf("%v, end %q in %q", err, end, rest)
		}
	}
}

// selfSigned writes a certificate for 127.0.0.1 and its key.
func selfSigned(t *testing.T) (cert, key string, pool *x509.CertPool) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	crt := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	if err := errors.Join(os.WriteFile(cert, crt, 0o600), os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}), 0o600)); err != nil {
		t.Fatal(err)
	}
	pool = x509.NewCertPool()
	pool.AppendCertsFromPEM(crt)
	return cert, key, pool
}

func TestTLS(t *testing.T) {
	t.Parallel()
	cfg := config()
	var pool *x509.CertPool
	cfg.TLSCert, cfg.TLSKey, pool = selfSigned(t)
	h := startDown(t, cfg)
	addr := h.in.Addr().String()
	h.url = "https://" + addr
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}}
	defer client.CloseIdleConnections()
	eventually(t, "readiness", func() bool { return h.in.Readiness().Ready })
	res, err := client.Do(h.request(t, http.MethodPost, chatPath, chatBody("a", `,"stream":true`)))
	if err != nil {
		t.Fatal(err)
	}
	s := follow(t, res)
	r := h.next()
	short(r)
	if _, text := s.rest(); text != r.words(1, 0, 8) {
		t.Errorf("%q", text)
	}
	// The end of a TLS connection is noticed behind its last bytes.
	c, err := tls.Dial("tcp", addr, &tls.Config{RootCAs: pool})
	if err != nil {
		t.Fatal(err)
	}
	body := chatBody("a", "")
	fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", chatPath, len(body), body)
	r = h.next()
	_ = c.Close()
	if reason := streamstest.Receive(t, r.cancelled); reason != schema.CancelDisconnect {
		t.Errorf("%s", reason)
	}
	// Plain text on a TLS port is no reason to fall.
	plain := h.dial(t)
	_, _ = io.WriteString(plain, "GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
	_, _ = io.Copy(io.Discard, plain)
	if res, err := client.Get(h.url + "/health"); err != nil || readAll(t, res).StatusCode != 200 {
		t.Errorf("%v", err)
	}
}

// panicking is a tokenizer with a fault.
type panicking struct{}

func (panicking) Tokenize(text string, _, _ bool) ([]int32, error) {
	switch {
	case strings.Contains(text, "panic"):
		panic("tokenizer")
	case strings.Contains(text, "error"):
		return nil, errors.New("no")
	}
	return nil, nil
}

func TestFaultyTokenizer(t *testing.T) {
	t.Parallel()
	model := mockModel()
	model.Tokenizer = panicking{}
	h := startModels(t, config(), model)
	h.post(t, completionPath, `{"model":"mock-1","prompt":"panic"}`).want(t, 500, "internal_error")
	h.post(t, completionPath, `{"model":"mock-1","prompt":"error"}`).want(t, 400, "invalid_value")
	h.post(t, completionPath, `{"model":"mock-1","prompt":"empty"}`).want(t, 400, "invalid_value")
	if st := h.in.Stats(); st.Open != 0 {
		t.Errorf("%d places are lost", st.Open)
	}
}

func TestModelWithoutChatTemplate(t *testing.T) {
	t.Parallel()
	model := mockModel()
	model.ChatTemplate = ""
	h := startModels(t, config(), model)
	if e := h.post(t, chatPath, chatBody("a", "")).want(t, 400, "invalid_value"); e.Param != "model" {
		t.Errorf("%+v", e)
	}
	model.ChatTemplate = `{{ raise_exception("roles must alternate") }}`
	h = startModels(t, config(), model)
	if e := h.post(t, chatPath, chatBody("a", "")).want(t, 400, "invalid_value"); e.Param != "messages" || !strings.Contains(e.Message, "must alternate") {
		t.Errorf("%+v", e)
	}
}

// The first token is the template's if it writes one, and the vocabulary's otherwise.
func TestOneFirstToken(t *testing.T) {
	t.Parallel()
	for template, want := range map[string]int{"<s> {{ messages[0].content }}": 2, "{{ messages[0].content }}": 2} {
		model := mockModel()
		model.ChatTemplate, model.BOS = template, "<s>"
		h := startModels(t, config(), model)
		go h.post(t, chatPath, chatBody("a", ""))
		r := h.next()
		if len(r.Prompt) != want {
			t.Errorf("%q: %d tokens", template, len(r.Prompt))
		}
		short(r)
		h.event(r.ID, schema.Delivered)
	}
}

func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	for key, spoil := range map[string]func(*ingress.Config){
		"listen":            func(c *ingress.Config) { c.Listen = "8080" },
		"tls-cert":          func(c *ingress.Config) { c.TLSCert = "x" },
		"pool":              func(c *ingress.Config) { c.Pool = "a.b" },
		"id":                func(c *ingress.Config) { c.ID = "a b" },
		"api-keys[1]":       func(c *ingress.Config) { c.APIKeys = []string{"a:k", "k2"} },
		"api-keys[0]":       func(c *ingress.Config) { c.APIKeys = []string{"a:"} },
		"cors-origins":      func(c *ingress.Config) { c.CORSOrigins = []string{"app.example"} },
		"max-open":          func(c *ingress.Config) { c.MaxOpen = 0 },
		"max-waiting-bytes": func(c *ingress.Config) { c.MaxWaitingBytes = 1 },
		"max-body":          func(c *ingress.Config) { c.MaxBody = 5 << 20 },
		"watch":             func(c *ingress.Config) { c.Watch = 2 * time.Second },
		"keep-alive":        func(c *ingress.Config) { c.KeepAlive = 0 },
		"messages":          func(c *ingress.Config) { c.Limits.Depth = 4 },
	} {
		cfg := ingress.DefaultConfig()
		if err := cfg.Validate(); err != nil {
			t.Fatal(err)
		}
		spoil(&cfg)
		err := cfg.Validate()
		if !errors.Is(err, ingress.ErrConfig) || !strings.Contains(err.Error(), key) {
			t.Errorf("%s: %v", key, err)
		}
		if err != nil && key == "api-keys[1]" && strings.Contains(err.Error(), "k2") {
			t.Errorf("the key is told: %v", err)
		}
	}
}

// What --help says and what the code does are the same defaults.
func TestFlagsHaveTheDefaults(t *testing.T) {
	t.Parallel()
	var flags struct{ ingress.Config }
	parser, err := kong.New(&flags)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := parser.Parse(nil); err != nil {
		t.Fatal(err)
	}
	want := ingress.DefaultConfig()
	if !reflect.DeepEqual(flags.Config, want) {
		t.Errorf("%+v\nwant %+v", flags.Config, want)
	}
	if _, err := parser.Parse([]string{"--api-keys=a:k1,b:k2", "--cors-origins=", "--max-waiting-bytes=5000000"}); err != nil || len(flags.APIKeys) != 2 {
		t.Errorf("%v, %+v", err, flags.Config)
	}
}

// The same connection serves one request after the other, streams among them.
func TestConnectionIsKept(t *testing.T) {
	t.Parallel()
	h := start(t, config())
	h.serve(short)
	c := h.dial(t)
	rd := bufio.NewReader(c)
	for i := range 6 {
		body := chatBody("a", [...]string{"", `,"stream":true`, `,"n":0`}[i%3])
		fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", chatPath, len(body), body)
		res, err := http.ReadResponse(rd, nil)
		if err != nil {
			t.Fatal(err)
		}
		if r := readAll(t, res); (r.StatusCode == 200) != (i%3 != 2) || res.Close {
			t.Fatalf("request %d: %d, close %v, %s", i, r.StatusCode, res.Close, r.body)
		}
	}
}

func TestPortIsTaken(t *testing.T) {
	t.Parallel()
	h := start(t, config())
	cfg := config()
	cfg.Listen = h.in.Addr().String()
	other := newServer(t, cfg, h.nats.Client(t), mockModel())
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if err := other.Run(ctx, func() { t.Error("ready") }); err == nil || !strings.Contains(err.Error(), cfg.Listen) {
		t.Fatalf("%v", err)
	}
}
