package kv

import (
	"errors"
	"fmt"
)

var (
	// ErrConfig is returned by the constructors for sizes below 1 or too large.
	ErrConfig = errors.New("kv: invalid configuration")
	// ErrNoPages is returned by Reserve if the pages are not there; nothing has changed then.
	ErrNoPages = errors.New("kv: no pages left")
	// ErrTable is returned for a table that is not in the state that the call needs: not empty, of another allocator,
	// too short, or filled already.
	ErrTable = errors.New("kv: table does not fit the call")
	// ErrPages is returned for pages that are not in use, or, by Drop, not held.
	ErrPages = errors.New("kv: page is not in use")
	// ErrSharing is returned by an allocator that cannot share pages.
	ErrSharing = errors.New("kv: pages cannot be shared")
	// ErrInvariant is returned by Check.
	ErrInvariant = errors.New("kv: invariant broken")
)

// PageID names a page, in [0, Stats.Pages).
type PageID int32

// SeqID names a sequence of the engine, in [0, its number of sequences). -1 stands for none.
type SeqID int32

// Allocator hands out pages. It is owned by one goroutine. A call that returns an error has changed nothing.
type Allocator interface {
	// PageTokens returns how many tokens a page has room for, ≥ 1.
	PageTokens() int
	// Need returns how many fresh pages Reserve(t, tokens) would take, the ones for copy-on-write included.
	Need(t *Table, tokens int) int
	// Reserve gives t pages for the tokens [0, tokens), and makes those from t.Tokens() on its own: a shared page that
	// will be written is replaced by a fresh one (copy-on-write; the caller's engine copies what is in it). It never
	// takes pages away. Errors: ErrNoPages, ErrTable.
	Reserve(t *Table, tokens int) error
	// Fill notes that the tokens [0, tokens) are written. It returns ErrTable for fewer than t.Tokens(), for more than
	// t has pages for, and for a write into a page that became shared after it was reserved.
	Fill(t *Table, tokens int) error
	// Share gives the empty table t pages that are in use, one reference each; they hold its first tokens, and there
	// are exactly as many as these fill, the last one perhaps in part. The slice stays the caller's. Nothing to share
	// is no error. Errors: ErrTable, ErrPages, ErrSharing.
	Share(t *Table, pages []PageID, tokens int) error
	// Replace puts pages that are in use and hold the same tokens in the place of t's first len(pages) pages, which
	// must be full; t's references move with them, and a page that nothing refers to any more is free. Errors:
	// ErrTable, ErrPages, ErrSharing.
	Replace(t *Table, pages []PageID) error
	// Fork gives the empty table dst everything that src has filled, a partly filled last page included; both copy on
	// write from then on. Errors: ErrTable, ErrSharing.
	Fork(dst, src *Table) error
	// Release gives back all that t has, and leaves it empty. A table of another allocator is left alone.
	Release(t *Table)
	// Hold adds a reference of the prefix tree to each of the pages, which are in use. Errors: ErrPages, ErrSharing.
	Hold(pages []PageID) error
	// Drop takes back one Hold of each of the pages. Errors: ErrPages, ErrSharing.
	Drop(pages []PageID) error
	// Stats returns how full the cache is, in constant time but for the search of the highest used page.
	Stats() Stats
	// Check verifies the package's invariants in O(pages + pages of tables), for tests and for debugging.
	Check() error
}

// Stats describes an allocator at one moment.
type Stats struct {
	Pages     int // all there are
	Free      int // referred to by nothing
	Used      int // Pages - Free
	Shared    int // referred to more than once
	HighWater int // highest used page id + 1, now; 0 if none is used
	Peak      int // the most pages that were ever used at once
	// ReservedPages counts the pages of tables, a shared one once for each table.
	ReservedPages int
	// FilledTokens counts the tokens of tables, those in a shared page once for each table.
	FilledTokens int
	// Fragmentation is the share of the tables' reserved token slots that hold no token, in [0, 1]; 0 if none is
	// reserved.
	Fragmentation float64
	// ExternalFragmentation is the share of the free pages that are outside the longest free run, in [0, 1]: what
	// Contiguous cannot hand out at once. It is 0 for Paged, which needs no runs, and if nothing is free.
	ExternalFragmentation float64
	// Copies counts the pages that were replaced by copy-on-write since the beginning.
	Copies int64
}

// Table lists a sequence's pages in order. The zero value is empty and ready to use. It belongs to one Allocator from
// the first page on until Release, must not be copied, and is owned by the allocator's goroutine.
type Table struct {
	pages  []PageID // the memory is used again after Release
	tokens int
	owner  *ledger // nil if empty
	index  int     // in owner.tables
}

// Pages returns the pages in order. The slice is the table's, read-only, and valid until the next change of the table.
func (t *Table) Pages() []PageID { return t.pages }

// Tokens returns how many tokens are filled.
func (t *Table) Tokens() int { return t.tokens }

// Assign sets what the table lists, copying pages. It is for implementations of Allocator outside this package, and
// for nobody else: on a table of Paged or Contiguous it breaks the books.
func (t *Table) Assign(pages []PageID, tokens int) {
	t.pages = append(t.pages[:0], pages...)
	t.tokens = tokens
}

// maxSlots bounds pages and tokens, so that their products stay inside an int32.
const maxSlots = 1 << 30

// ledger is what both allocators keep about their tables.
type ledger struct {
	pageTokens int
	tables     []*Table // not empty ones, in no order
	reserved   int      // pages of tables
	filled     int      // tokens of tables
	used, peak int      // pages
	copies     int64
}

func newLedger(pageTokens, pages int) (ledger, error) {
	if pageTokens < 1 || pages < 1 || pages > maxSlots/pageTokens {
		return ledger{}, fmt.Errorf("%w: %d pages of %d tokens, allowed are 1 to %d tokens in all", ErrConfig, pages, pageTokens, maxSlots)
	}
	return ledger{pageTokens: pageTokens}, nil
}

// PageTokens returns how many tokens a page has room for.
func (l *ledger) PageTokens() int { return l.pageTokens }

// pagesFor returns how many pages hold tokens ≥ 0.
func (l *ledger) pagesFor(tokens int) int { return (tokens + l.pageTokens - 1) / l.pageTokens }

// usable returns ErrTable for a table of another allocator and for a number of tokens that no table can have.
func (l *ledger) usable(t *Table, tokens int) error {
	if t.owner != nil && t.owner != l {
		return fmt.Errorf("%w: it belongs to another allocator", ErrTable)
	}
	if tokens < 0 || tokens > maxSlots {
		return fmt.Errorf("%w: %d tokens", ErrTable, tokens)
	}
	return nil
}

// enter notes a table that gets its first pages.
func (l *ledger) enter(t *Table) {
	if t.owner == nil {
		t.owner, t.index = l, len(l.tables)
		l.tables = append(l.tables, t)
	}
}

// leave forgets a table and empties it; its pages are dealt with already.
func (l *ledger) leave(t *Table) {
	l.reserved -= len(t.pages)
	l.filled -= t.tokens
	last := len(l.tables) - 1
	moved := l.tables[last]
	l.tables[t.index], moved.index = moved, t.index
	l.tables[last] = nil
	l.tables = l.tables[:last]
	*t = Table{pages: t.pages[:0]}
}

// take notes n more used pages.
func (l *ledger) take(n int) {
	l.used += n
	l.peak = max(l.peak, l.used)
}

func (l *ledger) stats(pages int) Stats {
	s := Stats{Pages: pages, Free: pages - l.used, Used: l.used, Peak: l.peak,
		ReservedPages: l.reserved, FilledTokens: l.filled, Copies: l.copies}
	if slots := l.reserved * l.pageTokens; slots > 0 {
		s.Fragmentation = float64(slots-l.filled) / float64(slots)
	}
	return s
}

// check verifies the sums over tables.
func (l *ledger) check() error {
	reserved, filled := 0, 0
	for i, t := range l.tables {
		switch {
		case t.owner != l || t.index != i:
			return fmt.Errorf("%w: table %d does not know its place", ErrInvariant, i)
		case len(t.pages) == 0:
			return fmt.Errorf("%w: table %d is empty", ErrInvariant, i)
		case t.tokens < 0 || t.tokens > len(t.pages)*l.pageTokens:
			return fmt.Errorf("%w: table %d holds %d tokens in %d pages", ErrInvariant, i, t.tokens, len(t.pages))
		}
		reserved += len(t.pages)
		filled += t.tokens
	}
	if reserved != l.reserved || filled != l.filled {
		return fmt.Errorf("%w: tables have %d pages and %d tokens, the books say %d and %d",
			ErrInvariant, reserved, filled, l.reserved, l.filled)
	}
	if l.used > l.peak {
		return fmt.Errorf("%w: %d pages are used, never more than %d were", ErrInvariant, l.used, l.peak)
	}
	return nil
}
