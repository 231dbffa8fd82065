package trainer

import (
	"fmt"
	"maps"
	"slices"
)

// Rotations is in how many ways rounds become folds, and the least number of rounds.
const Rotations = 4

// Folds are rows by what they are for. No round, and so no run, is in two.
type Folds struct{ Fit, Calibrate, Test []Row }

// Split makes whole rounds whole folds: in ascending order of the rounds, two of four fit, one calibrates, one tests. Over the rotations
// 0 to 3 every round tests once and calibrates once. The order of the rows stays. ErrRounds below four rounds; ErrRow for a run
// that is in two; ErrConfig for another rotation.
func Split(rows []Row, rotation int) (Folds, error) {
	var f Folds
	if rotation < 0 || rotation >= Rotations {
		return f, fmt.Errorf("%w: rotation is %d, allowed: 0 to %d", ErrConfig, rotation, Rotations-1)
	}
	of, place := map[int]int{}, map[int]int{}
	for i := range rows {
		r := &rows[i]
		if round, ok := of[r.Run]; ok && round != r.Round {
			return f, fmt.Errorf("%w: %d is of run %d in round %d, which was in round %d", ErrRow, i, r.Run, r.Round, round)
		}
		of[r.Run], place[r.Round] = r.Round, 0
	}
	if len(place) < Rotations {
		return f, fmt.Errorf("%w: %d, allowed: %d and more", ErrRounds, len(place), Rotations)
	}
	for i, round := range slices.Sorted(maps.Keys(place)) {
		place[round] = (i + rotation) % Rotations
	}
	for _, r := range rows {
		switch place[r.Round] {
		case 0, 1:
			f.Fit = append(f.Fit, r)
		case 2:
			f.Calibrate = append(f.Calibrate, r)
		default:
			f.Test = append(f.Test, r)
		}
	}
	return f, nil
}
