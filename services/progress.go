package services

import (
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// progress returns a function for callbacks that tell done and total bytes: a bar on a terminal, nothing elsewhere.
// finish ends the line.
func progress(w io.Writer, what string) (report func(done, total int64), finish func()) {
	return bar(w, what, true)
}

// count is progress of things that are not bytes.
func count(w io.Writer, what string) (report func(done, total int64), finish func()) {
	return bar(w, what, false)
}

func bar(w io.Writer, what string, bytes bool) (report func(done, total int64), finish func()) {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return func(int64, int64) {}, func() {}
	}
	var bar *progressbar.ProgressBar
	report = func(done, total int64) {
		if bar == nil {
			bar = progressbar.NewOptions64(total, progressbar.OptionSetWriter(w), progressbar.OptionSetDescription(what),
				progressbar.OptionShowBytes(bytes), progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionClearOnFinish(),
				progressbar.OptionSetPredictTime(true), progressbar.OptionFullWidth())
		}
		if total > 0 && bar.GetMax64() != total {
			bar.ChangeMax64(total)
		}
		// The terminal may be gone; the work goes on.
		_ = bar.Set64(done)
	}
	return report, func() {
		if bar != nil {
			_ = bar.Finish()
		}
	}
}
