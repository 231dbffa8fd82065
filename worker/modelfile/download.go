package modelfile

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	maxRedirects = 10
	maxWait      = time.Minute // between two attempts, whatever the server asks for
	getsOn       = 1 << 20     // bytes that an attempt must bring so that failures are counted anew
	chunk        = 128 << 10
)

// partFile is the file that a download grows in.
type partFile interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	Truncate(size int64) error
	Sync() error
}

// partState is NAME.part.json: what the part belongs to.
type partState struct {
	Place        string `json:"place"`
	ETag         string `json:"etag,omitempty"` // strong ones only
	LastModified string `json:"last_modified,omitempty"`
}

// validator is what If-Range takes, "" when the server gave none and nothing can be resumed.
func (s partState) validator() string {
	if s.ETag != "" {
		return s.ETag
	}
	return s.LastModified
}

// download is one file on its way in. One goroutine owns it.
type download struct {
	job      *job
	final    string
	part     string
	client   *http.Client
	open     func(name string) (file partFile, size int64, err error)
	file     partFile
	hash     hash.Hash // of the first have bytes
	have     int64     // bytes in the part
	total    int64     // -1 while unknown
	state    partState
	resumed  int64 // bytes that an earlier call left and this one kept
	attempts int
}

func newDownload(j *job, final string) *download {
	client := &http.Client{}
	if j.Client != nil {
		*client = *j.Client
	}
	client.CheckRedirect = checkRedirect
	return &download{job: j, final: final, part: final + ".part", client: client, open: openPart, hash: sha256.New(), total: -1}
}

func openPart(name string) (partFile, int64, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, 0, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	return f, info.Size(), nil
}

func checkRedirect(next *http.Request, via []*http.Request) error {
	to := next.URL.Scheme + "://" + next.URL.Host
	switch {
	case len(via) >= maxRedirects:
		return fmt.Errorf("%w: %d in a row, the last to %s", ErrRedirect, len(via), to)
	case next.URL.Scheme != "http" && next.URL.Scheme != "https":
		return fmt.Errorf("%w: to %s, which is neither http nor https", ErrRedirect, to)
	case next.URL.Scheme == "http" && via[len(via)-1].URL.Scheme == "https":
		return fmt.Errorf("%w: from https to %s", ErrRedirect, to)
	}
	return nil
}

// transient is an error after which another attempt makes sense.
type transient struct {
	error
	after time.Duration // what the server asked to wait, 0 for nothing
}

func (t transient) Unwrap() error { return t.error }

// run brings the part to its full length. On error the part stays for a later call, if the server allows resuming.
func (d *download) run(ctx context.Context) (err error) {
	if err := d.start(); err != nil {
		return fmt.Errorf("modelfile: %w", err)
	}
	defer func() {
		if err == nil {
			err = diskError(d.file.Sync())
		}
		if closed := diskError(d.file.Close()); err == nil {
			err = closed
		}
	}()
	failures := 0
	for {
		before := d.have
		err := d.attempt(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("modelfile: %s: stopped at byte %d: %w", d.job.place(), d.have, context.Cause(ctx))
		}
		var t transient
		if !errors.As(err, &t) {
			return fmt.Errorf("%w: %s", err, d.job.place())
		}
		if d.have-before >= getsOn {
			failures = 0
		}
		if failures++; failures > d.job.Retries {
			return fmt.Errorf("%w: %s: given up at byte %d after %d attempts", err, d.job.place(), d.have, d.attempts)
		}
		if err := d.wait(ctx, failures, t.after); err != nil {
			return err
		}
	}
}

// wait doubles with every failure, less up to a quarter so that clients spread, and is never shorter than what the server asked for.
func (d *download) wait(ctx context.Context, failures int, atLeast time.Duration) error {
	wait := d.job.RetryWait
	for range failures - 1 {
		wait = min(2*wait, maxWait)
	}
	wait -= rand.N(wait/4 + 1)
	timer := time.NewTimer(min(max(wait, atLeast), maxWait))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return fmt.Errorf("modelfile: %s: stopped at byte %d: %w", d.job.place(), d.have, context.Cause(ctx))
	case <-timer.C:
		return nil
	}
}

// start opens the part and keeps what an earlier call left of the same file.
func (d *download) start() error {
	file, size, err := d.open(d.part)
	if err != nil {
		return err
	}
	d.file, d.have, d.resumed = file, size, 0
	d.state = partState{}
	if data, err := os.ReadFile(d.statePath()); err == nil && json.Unmarshal(data, &d.state) != nil {
		d.state = partState{}
	}
	if size == 0 || d.state.Place != d.job.place() || d.state.validator() == "" {
		err = d.restart()
	} else {
		d.resumed = size
		d.hash.Reset()
		_, err = io.Copy(d.hash, io.NewSectionReader(file, 0, size))
	}
	if err != nil {
		return errors.Join(err, file.Close())
	}
	return nil
}

func (d *download) statePath() string { return d.part + ".json" }

// restart forgets the part's contents.
func (d *download) restart() error {
	d.have, d.resumed, d.total, d.state = 0, 0, -1, partState{}
	d.hash.Reset()
	return diskError(d.file.Truncate(0))
}

// attempt makes one request for what is missing and appends its body.
func (d *download) attempt(ctx context.Context) error {
	d.attempts++
	if d.have > 0 && d.state.validator() == "" { // whether the rest would fit cannot be known
		if err := d.restart(); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stalled := fmt.Errorf("%w: no data for %s", ErrTransfer, d.job.StallTimeout)
	watchdog := time.AfterFunc(d.job.StallTimeout, func() { cancel(stalled) })
	defer watchdog.Stop()

	request, err := http.NewRequestWithContext(ctx, http.MethodGet, d.job.url.String(), nil)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrRequest, err)
	}
	request.Header.Set("User-Agent", "cadence")
	request.Header.Set("Accept-Encoding", "identity") // ranges and hash are of the file itself
	if d.have > 0 {
		request.Header.Set("Range", fmt.Sprintf("bytes=%d-", d.have))
		request.Header.Set("If-Range", d.state.validator())
	}
	response, err := d.client.Do(request)
	if err != nil {
		if errors.Is(context.Cause(ctx), stalled) {
			return transient{error: stalled}
		}
		return connectError(err)
	}
	defer response.Body.Close()
	if done, err := d.accept(response); done || err != nil {
		return err
	}
	if err := d.checkSpace(); err != nil {
		return err
	}
	err = d.copyBody(ctx, response.Body, func() { watchdog.Reset(d.job.StallTimeout) })
	if err != nil && errors.Is(context.Cause(ctx), stalled) {
		return transient{error: stalled}
	}
	return err
}

// connectError sorts out what another attempt cannot mend. The URL, which can hold a secret, is taken out.
func connectError(err error) error {
	var inner *url.Error
	if errors.As(err, &inner) {
		err = inner.Err
	}
	var dns *net.DNSError
	var certificate *tls.CertificateVerificationError
	switch {
	case errors.Is(err, ErrRedirect):
		return err
	case errors.As(err, &dns) && dns.IsNotFound, errors.As(err, &certificate):
		return fmt.Errorf("%w: %w", ErrTransfer, err)
	}
	return transient{error: fmt.Errorf("%w: %w", ErrTransfer, err)}
}

// accept looks at status and headers. done means that the part is complete already.
func (d *download) accept(response *http.Response) (done bool, err error) {
	now := partState{Place: d.job.place(), ETag: response.Header.Get("ETag"), LastModified: response.Header.Get("Last-Modified")}
	if strings.HasPrefix(now.ETag, "W/") {
		now.ETag = "" // a weak one does not promise the same bytes
	}
	changed := now.ETag != d.state.ETag || now.ETag == "" && now.LastModified != d.state.LastModified
	switch response.StatusCode {
	case http.StatusOK:
		if encoding := response.Header.Get("Content-Encoding"); encoding != "" && encoding != "identity" {
			return false, fmt.Errorf("%w: the server compresses with %s unasked", ErrTransfer, encoding)
		}
		if err := d.restart(); err != nil {
			return false, err
		}
		d.total, d.state = response.ContentLength, now
		return false, d.saveState()
	case http.StatusPartialContent:
		from, total, ok := contentRange(response.Header.Get("Content-Range"))
		if !ok || from != d.have || d.have == 0 || changed {
			return false, d.startOver("its range does not continue the part")
		}
		d.total = total
		return false, nil
	case http.StatusRequestedRangeNotSatisfiable:
		if size, isUnsatisfied := strings.CutPrefix(response.Header.Get("Content-Range"), "bytes */"); isUnsatisfied && d.have > 0 && size == strconv.FormatInt(d.have, 10) {
			d.total = d.have
			return true, nil
		}
		return false, d.startOver("the part is longer than the file")
	}
	refused := fmt.Errorf("%w: %s", ErrHTTP, response.Status)
	switch response.StatusCode {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests, http.StatusInternalServerError,
		http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return false, transient{refused, retryAfter(response.Header.Get("Retry-After"))}
	case http.StatusUnauthorized, http.StatusForbidden:
		return false, fmt.Errorf("%w (it wants credentials, or the model is not public)", refused)
	}
	return false, refused
}

// startOver drops the part and lets the next attempt fetch the whole file.
func (d *download) startOver(why string) error {
	if err := d.restart(); err != nil {
		return err
	}
	return transient{error: fmt.Errorf("%w: %s", ErrTransfer, why)}
}

// contentRange parses "bytes FROM-TO/TOTAL"; total is -1 for "*".
func contentRange(header string) (from, total int64, ok bool) {
	spec, isBytes := strings.CutPrefix(header, "bytes ")
	span, totalText, hasTotal := strings.Cut(spec, "/")
	fromText, toText, hasTo := strings.Cut(span, "-")
	if !isBytes || !hasTotal || !hasTo {
		return 0, 0, false
	}
	from, err := strconv.ParseInt(fromText, 10, 64)
	to, toErr := strconv.ParseInt(toText, 10, 64)
	total = -1
	var totalErr error
	if totalText != "*" {
		total, totalErr = strconv.ParseInt(totalText, 10, 64)
	}
	if errors.Join(err, toErr, totalErr) != nil || from < 0 || to < from || totalText != "*" && to >= total {
		return 0, 0, false
	}
	return from, total, true
}

// retryAfter parses seconds or a date.
func retryAfter(header string) time.Duration {
	if seconds, err := strconv.Atoi(header); err == nil && seconds >= 0 {
		return min(time.Duration(min(seconds, 3600))*time.Second, maxWait)
	}
	if date, err := http.ParseTime(header); err == nil {
		return max(time.Until(date), 0)
	}
	return 0
}

// copyBody appends the body to the part until it or ctx ends; alive is called after every piece.
func (d *download) copyBody(ctx context.Context, body io.Reader, alive func()) error {
	buffer := make([]byte, chunk)
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		n, readErr := body.Read(buffer)
		alive()
		if n > 0 {
			if d.total >= 0 && int64(n) > d.total-d.have {
				return fmt.Errorf("%w: more than the announced %d bytes", ErrTransfer, d.total)
			}
			if _, err := d.file.WriteAt(buffer[:n], d.have); err != nil {
				return diskError(err)
			}
			d.hash.Write(buffer[:n])
			d.have += int64(n)
			if d.job.Progress != nil {
				d.job.Progress(d.have, d.total)
			}
		}
		switch {
		case readErr == nil:
		case errors.Is(readErr, io.EOF) && (d.total < 0 || d.have == d.total):
			return nil
		default:
			if errors.Is(readErr, io.EOF) {
				readErr = io.ErrUnexpectedEOF
			}
			return transient{error: fmt.Errorf("%w: at byte %d of %d: %w", ErrTransfer, d.have, d.total, readErr)}
		}
	}
}

// checkSpace refuses to begin what cannot end.
func (d *download) checkSpace() error {
	need := d.total - d.have
	if free, ok := freeBytes(filepath.Dir(d.part)); ok && d.total >= 0 && uint64(need) > free {
		return fmt.Errorf("%w: %d more bytes needed in %s, %d free", ErrDiskFull, need, filepath.Dir(d.part), free)
	}
	return nil
}

// diskError names a full disk; nil stays nil.
func diskError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return fmt.Errorf("%w: %w", ErrDiskFull, err)
	}
	return fmt.Errorf("modelfile: %w", err)
}

func (d *download) saveState() error {
	data, err := json.Marshal(d.state)
	if err != nil {
		return fmt.Errorf("modelfile: %w", err)
	}
	return diskError(os.WriteFile(d.statePath(), data, 0o644))
}

// checkSum compares the complete part with the expected hash. A part that an earlier call began gets a second chance as a whole, since
// its beginning can have been damaged in between; otherwise a wrong file is dropped.
func (d *download) checkSum(ctx context.Context) (string, error) {
	for {
		sum := hex.EncodeToString(d.hash.Sum(nil))
		if want := d.job.sha256; want == "" || sum == want {
			return sum, nil
		}
		resumed := d.resumed
		dropped := d.discard()
		if resumed == 0 {
			return "", errors.Join(fmt.Errorf("%w: %s sent %s (%d bytes), expected %s", ErrChecksum, d.job.place(), sum, d.have, d.job.sha256), dropped)
		}
		if dropped != nil {
			return "", dropped
		}
		if err := d.run(ctx); err != nil {
			return "", err
		}
	}
}

// discard removes the part.
func (d *download) discard() error {
	if err := os.Remove(d.statePath()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("modelfile: %w", err)
	}
	if err := os.Remove(d.part); err != nil {
		return fmt.Errorf("modelfile: %w", err)
	}
	return nil
}

// finish gives the verified part its name.
func (d *download) finish(sum string) error {
	if err := recordHash(d.final, sum); err != nil {
		return err
	}
	if err := os.Rename(d.part, d.final); err != nil {
		return err
	}
	if err := os.Remove(d.statePath()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return syncDir(filepath.Dir(d.final))
}
