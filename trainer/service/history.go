package service

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/cadence-slo/cadence/predictor/artifact"
	"github.com/cadence-slo/cadence/schema"
	"github.com/cadence-slo/cadence/streams"
)

// ErrModel is returned for a model that is not, or not uniquely, in a pool's history.
var ErrModel = errors.New("trainer: model")

// None is how the physics without a model is asked for.
const None = "none"

// Find returns the pointer of a pool's history whose model begins with so many digits, 6 and more; "current" is the present one. ErrModel.
func Find(history []streams.ModelPointer, digits string) (streams.ModelPointer, error) {
	var found *streams.ModelPointer
	for i := range history {
		p := &history[i]
		if digits == "current" {
			return *p, nil
		}
		if len(digits) < 6 || p.Artifact == "" || !strings.HasPrefix(p.Artifact, digits) {
			continue
		}
		if found != nil && found.Artifact != p.Artifact {
			return *p, fmt.Errorf("%w %q: two begin so", ErrModel, digits)
		}
		if found == nil {
			found = p
		}
	}
	if found == nil {
		return streams.ModelPointer{}, fmt.Errorf("%w %q is not in the pool's history of %d; allowed: current, or 6 and more digits of one that is", ErrModel, digits, len(history))
	}
	return *found, nil
}

// previous is the latest pointer to another model than the present one's.
func previous(history []streams.ModelPointer) (streams.ModelPointer, error) {
	for _, p := range history {
		if p.Artifact != history[0].Artifact {
			return p, nil
		}
	}
	return streams.ModelPointer{}, fmt.Errorf("%w: the history of %d has no other one to go back to", ErrModel, len(history))
}

// Rollback moves a pool's pointer back: to the model that the first digits name, to None, or, if it is empty, to the one before. The
// model must be whole and readable. It returns where the pointer was and where it is. ErrModel, streams.ErrModelMoved, and the errors of
// the store and of artifact.Decode.
func Rollback(ctx context.Context, c *streams.Client, models *streams.ModelStore, pool, to, source, why string, now time.Time) (was, is streams.ModelPointer, err error) {
	history, err := models.History(ctx, pool)
	if err != nil {
		return was, is, err
	}
	if len(history) == 0 {
		return was, is, fmt.Errorf("%w: pool %s has never had one", ErrModel, pool)
	}
	was = history[0]
	is = streams.ModelPointer{}
	switch to {
	case None:
	case "":
		is, err = previous(history)
	default:
		is, err = Find(history, to)
	}
	if err != nil {
		return was, is, err
	}
	if is.Artifact == was.Artifact {
		return was, is, fmt.Errorf("%w: it is the pool's already", ErrModel)
	}
	if is.Artifact != "" {
		file, err := models.Get(ctx, is.Artifact)
		if err != nil {
			return was, is, err
		}
		if _, err := artifact.Decode(file); err != nil {
			return was, is, err
		}
	}
	is = streams.ModelPointer{Pool: pool, Artifact: is.Artifact, Source: source, Reason: "rolled_back"}
	if err := Move(ctx, models, was.Revision, is); err != nil {
		return was, is, err
	}
	if why == "" {
		why = "from " + was.Artifact
	}
	return was, is, Tell(ctx, c, source, pool, schema.ModelRolledBack, is.Artifact, "rolled_back", why, now)
}
