package record

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/parquet-go/parquet-go"
)

// Names of the files of a run.
const (
	RunFile     = "run.json"
	ParquetFile = "requests.parquet"
	JSONLFile   = "requests.jsonl"
)

// groupRows is how many requests are held in memory before they go to disk.
const groupRows = 10_000

// ErrRun is returned for a directory that is not of a complete run of this version.
var ErrRun = errors.New("record: not a complete run")

// Writer writes the requests of one run as they come. It has one owner.
type Writer struct {
	dir     string
	file    *os.File
	rows    *parquet.GenericWriter[Request]
	text    *os.File // nil without JSONL
	buffer  *bufio.Writer
	encoder *json.Encoder
}

// Create makes a run's directory, or empties one that is there of what an earlier run left in it.
func Create(dir string, jsonl bool) (w *Writer, err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	for _, name := range []string{RunFile, ParquetFile, JSONLFile} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	w = &Writer{dir: dir}
	if w.file, err = os.Create(filepath.Join(dir, ParquetFile)); err != nil {
		return nil, err
	}
	w.rows = parquet.NewGenericWriter[Request](w.file, parquet.Compression(&parquet.Zstd), parquet.MaxRowsPerRowGroup(groupRows))
	if jsonl {
		if w.text, err = os.Create(filepath.Join(dir, JSONLFile)); err != nil {
			return nil, errors.Join(err, w.file.Close())
		}
		w.buffer = bufio.NewWriter(w.text)
		w.encoder = json.NewEncoder(w.buffer)
	}
	return w, nil
}

// Add writes a request, which it does not keep.
func (w *Writer) Add(r *Request) error {
	if w.encoder != nil {
		if err := w.encoder.Encode(r); err != nil {
			return fmt.Errorf("record: writing %s: %w", JSONLFile, err)
		}
	}
	if _, err := w.rows.Write([]Request{*r}); err != nil {
		return fmt.Errorf("record: writing %s: %w", ParquetFile, err)
	}
	return nil
}

// Close ends the files and writes run, with which the run is complete; a nil run leaves it incomplete.
func (w *Writer) Close(run *Run) error {
	err := errors.Join(w.rows.Close(), w.file.Close())
	if w.text != nil {
		err = errors.Join(err, w.buffer.Flush(), w.text.Close())
	}
	if err != nil || run == nil {
		return err
	}
	run.Version = Version
	b, err := json.MarshalIndent(run, "", "  ")
	if err != nil {
		return err
	}
	// The name appears with the whole file behind it.
	path := filepath.Join(w.dir, RunFile)
	if err := os.WriteFile(path+".tmp", append(b, '\n'), 0o644); err != nil {
		return err
	}
	return os.Rename(path+".tmp", path)
}

// Open reads a run's description, or returns ErrRun.
func Open(dir string) (*Run, error) {
	b, err := os.ReadFile(filepath.Join(dir, RunFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %s has no %s", ErrRun, dir, RunFile)
	}
	if err != nil {
		return nil, err
	}
	run := new(Run)
	if err := json.Unmarshal(b, run); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrRun, dir, err)
	}
	if run.Version != Version {
		return nil, fmt.Errorf("%w: %s is of version %d, this is %d", ErrRun, dir, run.Version, Version)
	}
	return run, nil
}

// Requests reads a run's requests, in order of their index.
func Requests(dir string) ([]Request, error) {
	rows, err := parquet.ReadFile[Request](filepath.Join(dir, ParquetFile))
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrRun, dir, err)
	}
	slices.SortStableFunc(rows, func(a, b Request) int { return a.Index - b.Index })
	return rows, nil
}

// Runs returns the directories of complete runs below dir, in order of their names.
func Runs(dir string) ([]string, error) {
	var out []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && d.Name() == RunFile {
			out = append(out, filepath.Dir(path))
		}
		return err
	})
	return out, err
}
