package conformal

// Stage says what is known of a row's score.
type Stage uint8

const (
	// Done: the row has ended, Score is final, and it was not given before.
	Done Stage = iota
	// Overdue: the row's bound has passed and it still runs. Score is a lower bound; the row is given again as Settled.
	Overdue
	// Settled: a row that was given as Overdue has ended; Score replaces the lower bound.
	Settled
	// Dropped: the client left before the bound had passed. Score is a lower bound. Arms do not learn from it; of one that
	// was given as Overdue they know that nothing follows.
	Dropped
)

// Row is what is known of one request's score.
type Row struct {
	// ID is the caller's; it joins Settled to Overdue, and tells Rescore which row it is.
	ID uint64
	// Score is finite, or +Inf of a row that was cancelled by us: it would have missed any bound.
	Score float64
	Stage Stage
}

// Arm follows the 1−α quantile of a stream of scores. Arms judge a row against their present quantile, not against the one that was
// issued to it: of many rows in flight when a shift comes, only those that the bound would still miss push it further, so that late
// feedback does not make it overshoot.
type Arm interface {
	// Quantile is the score that bounds the next row. ok is false if there is no bound at this level now; a row that is let in all the
	// same counts as covered, as it would be by an infinite bound.
	Quantile() (q float64, ok bool)
	// Observe takes what is known of a row. ErrValue if the score is NaN or −Inf; the arm is unchanged then.
	Observe(r Row) error
	// Len is the number of recent rows held.
	Len() int
	// Rescore replaces the scores of the recent rows, oldest first, by what they are under a new model; rows that miss any bound are
	// not asked for. What else the arm has learned is carried over. ErrValue if a new score is not finite; the arm is unchanged then.
	Rescore(score func(Row) float64) error
	// Export is a copy of the state; Import makes an arm of it that goes on in the same way.
	Export() State
}
