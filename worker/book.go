package worker

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/cadence-slo/cadence/schema"
	"github.com/cadence-slo/cadence/worker/batch"
)

// mail is what the engine loop is told.
type mail struct {
	kind   mailKind
	run    *run
	reason schema.CancelReason
}

type mailKind uint8

const (
	mailAdd     mailKind = iota // start the run
	mailCancel                  // stop it and say so
	mailReplace                 // stop it without a word
)

// book knows which attempts this worker owns and what they reserve. It answers for the engine without waiting for it:
// what it has accepted always fits there, at the latest when the engine has read its mail.
type book struct {
	pool  string
	vocab int
	plan  batch.Config

	// wake has room for one: the engine loop has mail, or the worker drains.
	wake chan struct{}
	// changed has room for one: the heartbeat has something new to tell. So has told, for the teller.
	changed, told chan struct{}

	mu       sync.Mutex
	life     *life
	epoch    uint64
	draining bool
	slots    int // taken
	pages    int // reserved
	// Of both, what is guaranteed.
	promised, promisedPages int

	next  batch.ID
	live  map[schema.RequestID]*run
	ended memory
	mail  []mail
}

func newBook(pool string, vocab, remember int, plan batch.Config) *book {
	return &book{
		pool: pool, vocab: vocab, plan: plan,
		wake: make(chan struct{}, 1), changed: make(chan struct{}, 1), told: make(chan struct{}, 1),
		live: map[schema.RequestID]*run{}, ended: newMemory(remember),
	}
}

// poke fills a channel with room for one.
func poke(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// offer answers a dispatch to a life: verdicts[i] for d.Items[i]; bad hears why an item is invalid. A life that is over
// takes nothing new.
func (b *book) offer(l *life, d *schema.Dispatch, now time.Duration, over bool, bad func(item int, err error)) *schema.DispatchReply {
	reply := &schema.DispatchReply{Worker: l.id, Verdicts: make([]schema.Verdict, len(d.Items))}
	runs := make([]*run, len(d.Items))
	for i := range d.Items {
		r, err := newRun(&d.Items[i], b.pool, b.vocab, &b.plan)
		if err != nil {
			bad(i, err)
			continue
		}
		r.life, r.arrived, runs[i] = l, now, r
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if d.Pool != b.pool { // its epochs are not those of this pool
		for i := range reply.Verdicts {
			reply.Verdicts[i] = schema.VerdictInvalid
		}
		reply.Epoch = b.epoch
		return reply
	}
	stale := d.Epoch < b.epoch
	b.epoch = max(b.epoch, d.Epoch)
	reply.Epoch = b.epoch
	accepted := false
	for i, r := range runs {
		switch {
		case stale:
			reply.Verdicts[i] = schema.VerdictStaleEpoch
		case r == nil:
			reply.Verdicts[i] = schema.VerdictInvalid
		default:
			reply.Verdicts[i] = b.accept(r, over)
			accepted = accepted || reply.Verdicts[i] == schema.VerdictAccepted
		}
	}
	if accepted {
		poke(b.wake)
		poke(b.changed)
		poke(b.told)
	}
	return reply
}

func (b *book) accept(r *run, dead bool) schema.Verdict {
	old := b.live[r.req.ID]
	if old != nil && r.attempt <= old.attempt || r.attempt <= b.ended.last(r.req.ID) {
		return schema.VerdictDuplicate
	}
	if b.draining || dead || r.life != b.life {
		return schema.VerdictDraining
	}
	slots, pages := b.slots+1, b.pages+r.pages
	if old != nil {
		slots, pages = slots-1, pages-old.pages
	}
	promised, promisedPages := b.promised, b.promisedPages
	if old.guaranteed() {
		promised, promisedPages = promised-1, promisedPages-old.pages
	}
	if r.guaranteed() {
		promised, promisedPages = promised+1, promisedPages+r.pages
	}
	over := slots > b.plan.MaxBatch || pages > b.plan.Promises()
	if r.guaranteed() { // best effort will give way to it
		over = promised > b.plan.MaxBatch || promisedPages > b.plan.Promises()
	}
	if over {
		return schema.VerdictFull
	}
	if old != nil { // the scheduler has given that attempt up
		b.forget(old)
		b.mail = append(b.mail, mail{kind: mailReplace, run: old})
	}
	b.next++
	r.id = b.next
	b.slots, b.pages, b.promised, b.promisedPages = slots, pages, promised, promisedPages
	b.live[r.req.ID] = r
	b.mail = append(b.mail, mail{kind: mailAdd, run: r})
	return schema.VerdictAccepted
}

// forget takes a run out of the live ones; its reservation is the caller's to give back.
func (b *book) forget(r *run) {
	delete(b.live, r.req.ID)
	b.ended.add(r.req.ID, r.attempt)
	r.gone.Store(true)
}

// release gives back what an ended run reserved, unless that has happened.
func (b *book) release(r *run) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.live[r.req.ID] != r {
		return
	}
	delete(b.live, r.req.ID)
	b.ended.add(r.req.ID, r.attempt)
	b.slots--
	b.pages -= r.pages
	if r.guaranteed() {
		b.promised--
		b.promisedPages -= r.pages
	}
	poke(b.changed)
	poke(b.told)
	if b.draining && b.slots == 0 {
		poke(b.wake)
	}
}

// cancel tells the engine to stop a request, if it is here.
func (b *book) cancel(id schema.RequestID, reason schema.CancelReason) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if r := b.live[id]; r != nil {
		b.mail = append(b.mail, mail{kind: mailCancel, run: r, reason: reason})
		poke(b.wake)
	}
}

// take moves the mail to the engine; idle says that nothing is owned and nothing will come: the worker has drained.
func (b *book) take(dst []mail) (mails []mail, idle bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	dst = append(dst, b.mail...)
	clear(b.mail)
	b.mail = b.mail[:0]
	return dst, b.draining && b.slots == 0
}

// drain refuses new requests from now on.
func (b *book) drain() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.draining = true
	poke(b.wake)
	poke(b.changed)
}

// begin makes l the life that requests are accepted for, with nothing owned. What an earlier life owned is forgotten
// without a word.
func (b *book) begin(l *life) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range b.live {
		b.forget(r)
	}
	clear(b.mail)
	b.mail, b.slots, b.pages, b.life = b.mail[:0], 0, 0, l
	b.promised, b.promisedPages = 0, 0
}

// standing is what a heartbeat tells.
type standing struct {
	life         *life
	draining     bool
	slots, pages int // taken
}

func (b *book) standing() standing {
	b.mu.Lock()
	defer b.mu.Unlock()
	return standing{life: b.life, draining: b.draining, slots: b.slots, pages: b.pages}
}

// held appends what is owned to dst, in the order in which it was taken, those included that the engine has not heard of yet.
func (b *book) held(dst []*run) []*run {
	b.mu.Lock()
	for _, r := range b.live {
		dst = append(dst, r)
	}
	b.mu.Unlock()
	slices.SortFunc(dst, func(x, y *run) int { return cmp.Compare(x.id, y.id) })
	return dst
}

// memory remembers the last attempt of requests that ended here, the most recent ones.
type memory struct {
	attempts map[schema.RequestID]uint32
	ring     []schema.RequestID // of attempts, oldest at next once it is full
	next     int
}

func newMemory(size int) memory {
	return memory{attempts: map[schema.RequestID]uint32{}, ring: make([]schema.RequestID, 0, size)}
}

// last returns the highest attempt remembered, or 0.
func (m *memory) last(id schema.RequestID) uint32 { return m.attempts[id] }

func (m *memory) add(id schema.RequestID, attempt uint32) {
	if before, ok := m.attempts[id]; ok {
		m.attempts[id] = max(before, attempt)
		return
	}
	m.attempts[id] = attempt
	if len(m.ring) < cap(m.ring) {
		m.ring = append(m.ring, id)
		return
	}
	delete(m.attempts, m.ring[m.next])
	m.ring[m.next] = id
	m.next = (m.next + 1) % len(m.ring)
}
