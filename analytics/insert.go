package analytics

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	ch "github.com/ClickHouse/clickhouse-go/v2"

	"github.com/cadence-slo/cadence/analytics/sql"
)

// maxRejected is how many rows of one range the server may refuse one by one before that
// is taken for a fault of the table, which somebody has to mend, and not of the rows.
const maxRejected = 32

// errSystemic is returned when more rows than maxRejected are refused.
var errSystemic = errors.New("analytics: the table refuses too many rows")

// dataErrors are the server's codes for data that it will refuse again. Everything else
// is taken for a state of the server that passes.
var dataErrors = map[int32]bool{
	6:   true, // CANNOT_PARSE_TEXT
	27:  true, // CANNOT_PARSE_INPUT_ASSERTION_FAILED
	38:  true, // CANNOT_PARSE_DATE
	41:  true, // CANNOT_PARSE_DATETIME
	53:  true, // TYPE_MISMATCH
	69:  true, // ARGUMENT_OUT_OF_BOUND
	70:  true, // CANNOT_CONVERT_TYPE
	72:  true, // CANNOT_PARSE_NUMBER
	131: true, // TOO_LARGE_STRING_SIZE
	321: true, // VALUE_IS_OUT_OF_RANGE_OF_DATA_TYPE
	349: true, // CANNOT_INSERT_NULL_IN_ORDINARY_COLUMN
	395: true, // FUNCTION_THROW_IF_VALUE_IS_NON_ZERO
	407: true, // DECIMAL_OVERFLOW
	469: true, // VIOLATED_CONSTRAINT
	691: true, // UNKNOWN_ELEMENT_OF_ENUM
}

// errRow is returned for rows that the client library cannot encode.
var errRow = errors.New("analytics: row cannot be encoded")

func dataError(err error) bool {
	exception := (*ch.Exception)(nil)
	return errors.Is(err, errRow) || errors.As(err, &exception) && dataErrors[exception.Code]
}

// insertAll inserts the gathered rows, one insert a partition: an insert that spans two
// may land in one and not in the other. Rows that the server refuses join s.bad.
func (s *session) insertAll(ctx context.Context, r seqRange) error {
	again := s.repeat.last > 0
	for wait := backoffMin; ; wait = min(2*wait, backoffMax) {
		var present map[uint64]bool
		if again {
			var err error
			if present, err = s.present(ctx, r); err != nil {
				return err
			}
		}
		again = true
		s.rejected = s.rejected[:0]
		err := s.insertRuns(ctx, r, present)
		if err == nil {
			return s.confirm(ctx)
		}
		if !errors.Is(err, errSystemic) {
			return err
		}
		s.log.Error("table refuses rows; nothing is lost, but the projector waits", "error", err)
		if err := s.look(ctx); err != nil {
			return err
		}
		if err := pause(ctx, wait); err != nil {
			return err
		}
	}
}

// confirm asks the server a second time for each row that it refused: the table may have
// been mended in the middle. What it refuses again joins s.bad.
func (s *session) confirm(ctx context.Context) error {
	set := s.block.set()
	for _, r := range s.rejected {
		err := s.retry(ctx, "insert", func(ctx context.Context) error { return s.send(ctx, r) })
		if err != nil && !dataError(err) {
			return err
		}
		if err != nil {
			s.bad = append(s.bad, badMessage{seq: set.seq.v[r.rows.from], body: set.bodies[r.rows.from], err: err})
		}
	}
	return nil
}

// present returns the sequences of a range that are in the table. A range that is inserted
// again may be in it by halves, under the halves' tokens.
func (s *session) present(ctx context.Context, r seqRange) (map[uint64]bool, error) {
	stored := s.block.set().stored.v
	if len(stored) == 0 {
		return nil, nil
	}
	first, last := slices.MinFunc(stored, time.Time.Compare), slices.MaxFunc(stored, time.Time.Compare)
	params := ch.WithParameters(ch.Parameters{
		"stream_id": s.streamID,
		"first_seq": strconv.FormatUint(r.first, 10), "last_seq": strconv.FormatUint(r.last, 10),
		"first_stored": strconv.FormatInt(first.UnixNano(), 10), "last_stored": strconv.FormatInt(last.UnixNano(), 10),
	})
	var found map[uint64]bool
	err := s.retry(ctx, "rows present", func(ctx context.Context) error {
		found = map[uint64]bool{}
		rows, err := s.conn.Query(ch.Context(ctx, params), sql.Statement(s.table+"_present"))
		if err != nil {
			return err
		}
		defer func() { _ = rows.Close() }()
		for rows.Next() {
			var seq uint64
			if err := rows.Scan(&seq); err != nil {
				return err
			}
			found[seq] = true
		}
		return rows.Err()
	})
	return found, err
}

// insertRuns inserts the rows that are not present, a run of one month at a time.
func (s *session) insertRuns(ctx context.Context, r seqRange, present map[uint64]bool) error {
	seq, stored := s.block.set().seq.v, s.block.set().stored.v
	for from := 0; from < len(seq); {
		if present[seq[from]] {
			from++
			continue
		}
		to := from + 1
		for to < len(seq) && !present[seq[to]] && sameMonth(stored[from], stored[to]) {
			to++
		}
		part := run{rows: rowRange{from, to}, within: r, token: fmt.Sprintf("%s:%d-%d:%s", s.streamID, r.first, r.last, stored[from].Format("200601"))}
		if from > 0 || len(present) > 0 { // not the first run, or not all of it
			part.token += fmt.Sprintf(":%d-%d", seq[from], seq[to-1])
		}
		if err := s.insertRun(ctx, part); err != nil {
			return err
		}
		if err := s.crash("run"); err != nil {
			return err
		}
		from = to
	}
	return nil
}

// sameMonth mirrors the tables' partition key, toYYYYMM(stored) in UTC.
func sameMonth(a, b time.Time) bool {
	return a.Month() == b.Month() && a.Year() == b.Year()
}

// rowRange is rows [from, to) of a block.
type rowRange struct{ from, to int }

// run is the rows of one insert.
type run struct {
	rows rowRange
	// within are sequences that hold the rows. Halves are cut by sequence and not by row:
	// messages may be deleted from the stream between a crash and the repetition.
	within seqRange
	// token names the range and the partition, before it is halved.
	token string
}

// insertRun inserts the rows of a run. Refused rows are found by halving and collected;
// the others land. The server refuses the same rows each time, so that a repetition makes
// the same halves with the same tokens.
func (s *session) insertRun(ctx context.Context, r run) error {
	if r.rows.from == r.rows.to {
		return nil
	}
	err := s.retry(ctx, "insert", func(ctx context.Context) error { return s.send(ctx, r) })
	if err == nil || !dataError(err) {
		return err
	}
	s.metrics.rejected.Inc()
	set := s.block.set()
	if r.rows.to-r.rows.from == 1 {
		if len(s.rejected) == maxRejected {
			return fmt.Errorf("%w: %w", errSystemic, err)
		}
		s.rejected = append(s.rejected, r)
		return nil
	}
	mid := r.within.first + (r.within.last-r.within.first)/2
	cut, _ := slices.BinarySearch(set.seq.v[r.rows.from:r.rows.to], mid+1)
	cut += r.rows.from
	lower, upper := r, r
	lower.rows.to, lower.within.last = cut, mid
	upper.rows.from, upper.within.first = cut, mid+1
	if err := s.insertRun(ctx, lower); err != nil {
		return err
	}
	return s.insertRun(ctx, upper)
}

// send makes one insert: one block, one partition, one token. The server drops a block
// whose token it has seen, so that a token must mean the same rows for ever: it names the
// life of the stream and the sequences.
func (s *session) send(ctx context.Context, r run) error {
	set := s.block.set()
	ctx = ch.Context(ctx,
		ch.WithColumnNamesAndTypes(set.specs()),
		ch.WithSettings(ch.Settings{
			"insert_deduplicate":         1,
			"insert_deduplication_token": fmt.Sprintf("%s:%d-%d", r.token, r.within.first, r.within.last),
			// The block stays one block: the server cuts at these.
			"max_insert_block_size":       1 << 20,
			"min_insert_block_size_rows":  1 << 20,
			"min_insert_block_size_bytes": 1 << 30,
		}))
	began := time.Now()
	// A batch of clickhouse-go keeps its first error: each try takes a new one.
	batch, err := s.conn.PrepareBatch(ctx, oneLine(sql.Statement(s.table+"_insert")))
	if err != nil {
		return err
	}
	if err := set.appendTo(batch, r.rows.from, r.rows.to); err != nil {
		return fmt.Errorf("%w: %w", errRow, errors.Join(err, batch.Abort()))
	}
	if err := batch.Send(); err != nil {
		return err
	}
	s.metrics.seconds.Observe(time.Since(began).Seconds())
	s.metrics.ok.Inc()
	s.metrics.rows.Add(float64(r.rows.to - r.rows.from))
	return nil
}

// oneLine makes a statement one line, as clickhouse-go's reading of INSERT wants it.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// deadLetter keeps a message that no row can be made of, under an id that makes a
// repetition harmless, and repeats until it is stored.
func (s *session) deadLetter(ctx context.Context, b badMessage) error {
	id := fmt.Sprintf("%s:%d", s.streamID, b.seq)
	err := s.client.PublishDeadLetter(ctx, consumerName, id, b.err.Error(), b.body)
	if err != nil {
		return fmt.Errorf("analytics: dead letter %s: %w", id, err)
	}
	s.metrics.deadLetters.Inc()
	s.log.Warn("message kept as a dead letter", "seq", b.seq, "error", b.err)
	return nil
}
