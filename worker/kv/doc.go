// Package kv accounts for the pages of an engine's KV cache: which are free, which belong to which sequence, and which
// are shared. It moves no data and knows no engine; it is pure, and one goroutine (the engine's owner) drives it.
//
// A page is room for a fixed number of tokens. A sequence's pages stand in its Table, in order; its last page may be
// partly filled. Every table that lists a page, and every Hold of the prefix tree, is one reference to it.
//
//	free ──Reserve──► used, one reference ──Share, Fork, Replace, Hold──► used, shared ──┐
//	  ▲                    │      ▲                                                      │
//	  └──last reference────┘      └───────Release, Drop, Replace, copy-on-write──────────┘
//
// Two allocators satisfy Allocator. Paged hands out any page: it shares pages, and never fails while enough are free.
// Contiguous gives each table one run of neighbouring pages, as engines did before paging; it shares nothing, and can
// fail for want of a run although enough pages are free. It is there to be compared with.
//
// Which page is handed out is specified, so that two implementations can be compared page by page. Paged keeps a
// stack: the page freed last is handed out first, pages freed by one call come back in the order in which that call
// listed them, and at the beginning the lowest id comes first. Contiguous takes the run with the lowest first page
// that is long enough.
//
// Invariants, which Check verifies: a page is free if and only if nothing refers to it; a page's references are the
// tables that list it and the holds on it; free and used pages add up to all pages; no table holds more tokens than
// its pages have room for; Contiguous: every table is one run, and no page is in two.
//
// Nothing allocates once every table and the free list have reached their size.
package kv
