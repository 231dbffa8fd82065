package modelfile

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/cadence-slo/cadence/worker/gguf"
)

// Errors of [Pull]. What it returns wraps one of them, or the context's error, and says which file and server it was.
var (
	ErrRequest  = errors.New("modelfile: bad request")
	ErrUnpinned = errors.New("modelfile: no SHA-256 is known")
	ErrChecksum = errors.New("modelfile: SHA-256 differs")
	ErrHTTP     = errors.New("modelfile: server refused")
	ErrTransfer = errors.New("modelfile: transfer broke off")
	ErrRedirect = errors.New("modelfile: redirect not followed")
	ErrDiskFull = errors.New("modelfile: disk is full")
	ErrNoModel  = errors.New("modelfile: downloaded file is no model")
)

// Request says what to download and how hard to try. Start from [DefaultRequest].
type Request struct {
	Source        string                  // name of a known model, or an http or https URL
	SHA256        string                  // expected, 64 hex digits; "" takes the known model's
	AllowUnpinned bool                    // accept and record whatever hash the file has, when none is expected
	Dir           string                  // cache folder, "" for the usual one
	File          string                  // name in it, "" for the known model's or the last part of the URL
	Progress      func(done, total int64) // bytes; total is -1 while unknown; may be nil
	Client        *http.Client            // nil for one that uses the environment's proxies; its CheckRedirect is replaced
	Retries       int                     // attempts in a row that may fail without getting on, after the first
	RetryWait     time.Duration           // before the first retry; doubles up to a minute
	StallTimeout  time.Duration           // an attempt without a byte for this long has failed
}

// DefaultRequest tries five times more, a second apart at first, and gives up on a silent server after a minute.
func DefaultRequest(source string) Request {
	return Request{Source: source, Retries: 5, RetryWait: time.Second, StallTimeout: time.Minute}
}

// Validate wraps [ErrRequest] or [ErrUnpinned].
func (r Request) Validate() error {
	_, err := r.resolve()
	return err
}

// Result is a model that is now in the cache folder.
type Result struct {
	Path           string `json:"path"`
	SHA256         string `json:"sha256"`
	SizeBytes      int64  `json:"size_bytes"`
	Pinned         bool   `json:"pinned"`           // the hash was expected, not just recorded
	AlreadyPresent bool   `json:"already_present"`  // nothing was downloaded
	Resumed        int64  `json:"resumed_at_bytes"` // an earlier call's part that was kept
	Attempts       int    `json:"attempts"`         // requests made
}

// job is a validated request.
type job struct {
	Request
	url    *url.URL
	file   string
	sha256 string // lower case, "" when unpinned
}

func (r Request) resolve() (job, error) {
	j := job{Request: r, sha256: strings.ToLower(r.SHA256), file: r.File}
	bad := func(field string, value any, allowed string) (job, error) {
		return job{}, fmt.Errorf("%w: %s is %v, allowed: %s", ErrRequest, field, value, allowed)
	}
	source := r.Source
	known, isKnown := lookup(source)
	if isKnown {
		source = known.URL
		if j.file == "" {
			j.file = known.File
		}
		if j.sha256 == "" {
			j.sha256 = known.SHA256
		}
	}
	u, err := url.Parse(source)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		var names []string
		for _, k := range KnownModels() {
			names = append(names, k.Name)
		}
		return bad("Source", fmt.Sprintf("%q", r.Source), "an http or https URL, "+strings.Join(names, ", "))
	}
	j.url = u
	if j.file == "" {
		j.file = path.Base(u.Path)
	}
	if j.file == "." || j.file == "/" || strings.HasPrefix(j.file, ".") || filepath.Base(j.file) != j.file || strings.ContainsAny(j.file, "/\\:\x00") {
		return bad("File", fmt.Sprintf("%q", j.file), "a plain file name")
	}
	if raw, err := hex.DecodeString(j.sha256); err != nil || len(raw) != 0 && len(raw) != sha256.Size {
		return bad("SHA256", fmt.Sprintf("%q", r.SHA256), "64 hex digits")
	}
	switch {
	case r.Retries < 0 || r.Retries > 1000:
		return bad("Retries", r.Retries, "0 to 1000")
	case r.RetryWait < 0:
		return bad("RetryWait", r.RetryWait, "0 or more")
	case r.StallTimeout <= 0:
		return bad("StallTimeout", r.StallTimeout, "above 0")
	}
	if j.sha256 == "" && !r.AllowUnpinned {
		return job{}, fmt.Errorf("%w for %s: state the one that its publisher gives, or allow an unpinned download", ErrUnpinned, r.Source)
	}
	return j, nil
}

// place is the URL as messages and files show it: a query can hold a secret.
func (j *job) place() string { return j.url.Scheme + "://" + j.url.Host + j.url.EscapedPath() }

// Pull downloads a model into the cache folder, unless it is there, and returns when it is verified and durable. An interrupted
// Pull goes on where it stopped. Two Pulls of the same file take turns.
func Pull(ctx context.Context, r Request) (Result, error) {
	j, err := r.resolve()
	if err != nil {
		return Result{}, err
	}
	dir, err := makeDir(j.Dir)
	if err != nil {
		return Result{}, err
	}
	unlock, err := lock(ctx, dir, j.file)
	if err != nil {
		return Result{}, err
	}
	defer unlock()
	final := filepath.Join(dir, j.file)
	switch result, err := j.verifyPresent(final); {
	case err == nil:
		return result, nil
	case !errors.Is(err, os.ErrNotExist):
		return Result{}, err
	}
	d := newDownload(&j, final)
	if err := d.run(ctx); err != nil {
		return Result{}, err
	}
	sum, err := d.checkSum(ctx)
	if err != nil {
		return Result{}, err
	}
	if _, err := gguf.InspectFile(d.part); err != nil {
		return Result{}, fmt.Errorf("%w: %s: %w", ErrNoModel, j.place(), errors.Join(err, d.discard()))
	}
	if err := d.finish(sum); err != nil {
		return Result{}, fmt.Errorf("modelfile: finish %s: %w", final, err)
	}
	return Result{Path: final, SHA256: sum, SizeBytes: d.have, Pinned: j.sha256 != "", Resumed: d.resumed, Attempts: d.attempts}, nil
}

// verifyPresent checks a model that is there already, against the expected hash or else the recorded one. The error wraps
// os.ErrNotExist when there is none.
func (j *job) verifyPresent(final string) (Result, error) {
	if _, err := os.Stat(final); err != nil {
		return Result{}, err
	}
	sum, size, err := hashFile(final)
	if err != nil {
		return Result{}, fmt.Errorf("modelfile: %w", err)
	}
	want, from := j.sha256, "expected"
	if want == "" {
		want, from = recordedHash(final), "recorded"
	}
	if want == "" { // put there by hand
		want = sum
		if err := recordHash(final, sum); err != nil {
			return Result{}, fmt.Errorf("modelfile: %w", err)
		}
	}
	if want != sum {
		return Result{}, fmt.Errorf("%w: %s is there with %s, %s is %s: remove the file to download it again", ErrChecksum, final, sum, from, want)
	}
	return Result{Path: final, SHA256: sum, SizeBytes: size, Pinned: j.sha256 != "", AlreadyPresent: true}, nil
}

func hashFile(name string) (sum string, size int64, err error) {
	f, err := os.Open(name)
	if err != nil {
		return "", 0, err
	}
	defer f.Close()
	h := sha256.New()
	if size, err = io.Copy(h, f); err != nil {
		return "", 0, err
	}
	return hex.EncodeToString(h.Sum(nil)), size, nil
}

// hashSuffix names the file beside a model that records its hash.
const hashSuffix = ".sha256"

// recordHash writes what sha256sum -c reads.
func recordHash(final, sum string) error {
	temporary := final + hashSuffix + ".tmp"
	if err := os.WriteFile(temporary, []byte(sum+"  "+filepath.Base(final)+"\n"), 0o644); err != nil {
		return err
	}
	return os.Rename(temporary, final+hashSuffix)
}

// recordedHash reads it back, "" when there is none.
func recordedHash(final string) string {
	f, err := os.Open(final + hashSuffix)
	if err != nil {
		return ""
	}
	defer f.Close()
	line, _ := bufio.NewReader(io.LimitReader(f, 1<<12)).ReadString('\n')
	sum, _, _ := strings.Cut(line, " ")
	if raw, err := hex.DecodeString(sum); err != nil || len(raw) != sha256.Size {
		return ""
	}
	return strings.ToLower(sum)
}
