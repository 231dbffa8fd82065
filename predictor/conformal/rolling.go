package conformal

// DefaultWindow is the number of recent rows that arms hold.
const DefaultWindow = 512

// Rolling is split conformal calibration on the most recent rows. It follows a shift as the window turns over; it is exact while the
// rows of the window and the next one are exchangeable.
type Rolling struct {
	alpha float64
	rows  window
}

// NewRolling starts from rows, oldest first, of which it keeps the last size. ErrAlpha, ErrValue.
func NewRolling(alpha float64, size int, rows []Row) (*Rolling, error) {
	if err := checkAlpha(alpha); err != nil {
		return nil, err
	}
	w, err := newWindow(size, rows)
	if err != nil {
		return nil, err
	}
	return &Rolling{alpha: alpha, rows: w}, nil
}

// Quantile is the window's. See Arm.
func (a *Rolling) Quantile() (float64, bool) { return a.rows.at(a.alpha) }

// Observe adds a row to the window. See Arm.
func (a *Rolling) Observe(r Row) error {
	_, err := a.rows.take(r, 0, false)
	return err
}

// Len is the number of rows in the window.
func (a *Rolling) Len() int { return a.rows.n }

// Rescore replaces the scores in the window. See Arm.
func (a *Rolling) Rescore(score func(Row) float64) error { return a.rows.rescore(score) }

// Export is a copy of the state.
func (a *Rolling) Export() State {
	return State{Kind: KindRolling, Alpha: a.alpha, Size: len(a.rows.ring), Rows: a.rows.export()}
}

// ACI is adaptive conformal inference (Gibbs and Candès 2021, eq. 2) on a window of recent rows: each row moves the working level,
// α_{t+1} = α_t + γ(α − err_t). The level is not clipped: at or below 0 there is no bound until hits have raised it.
type ACI struct {
	alpha, gamma, level float64
	rows                window
}

// NewACI starts at the level alpha from rows, oldest first, of which it keeps the last size. gamma > 0 is the step of the level per row.
// ErrAlpha, ErrValue.
func NewACI(alpha, gamma float64, size int, rows []Row) (*ACI, error) {
	if err := checkAlpha(alpha); err != nil {
		return nil, err
	}
	if err := checkPositive("gamma", gamma); err != nil {
		return nil, err
	}
	w, err := newWindow(size, rows)
	if err != nil {
		return nil, err
	}
	return &ACI{alpha: alpha, gamma: gamma, level: alpha, rows: w}, nil
}

// Level is the working level, around α; it may leave [0, 1].
func (a *ACI) Level() float64 { return a.level }

// Quantile is the window's at the working level. See Arm.
func (a *ACI) Quantile() (float64, bool) { return a.rows.at(a.level) }

// Observe judges a row, moves the level and adds the row to the window. See Arm.
func (a *ACI) Observe(r Row) error {
	q, ok := a.Quantile()
	judge, err := a.rows.take(r, q, ok)
	if err != nil || !judge {
		return err
	}
	a.level += a.gamma * a.alpha
	if ok && r.Score > q {
		a.level -= a.gamma
	}
	return nil
}

// Len is the number of rows in the window.
func (a *ACI) Len() int { return a.rows.n }

// Rescore replaces the scores in the window and keeps the level. See Arm.
func (a *ACI) Rescore(score func(Row) float64) error { return a.rows.rescore(score) }

// Export is a copy of the state.
func (a *ACI) Export() State {
	return State{Kind: KindACI, Alpha: a.alpha, Size: len(a.rows.ring), Rows: a.rows.export(), Gamma: a.gamma, Level: a.level}
}
