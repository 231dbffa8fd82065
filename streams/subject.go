package streams

import (
	"hash/fnv"
	"strconv"

	"github.com/cadence-slo/cadence/schema"
)

// Shards is the number of shards of each event type: a reader may take a share of EVENTS.
const Shards = 16

// RequestSubject is where admitted requests of a pool are stored.
func RequestSubject(pool string) string { return "req." + pool }

// EventSubject is where e is stored: evt.<type>.<shard by request or worker>, or evt.epoch.<pool>.
func EventSubject(e *schema.Event) string {
	if e.Type == schema.Epoch {
		return EpochSubject(e.Pool)
	}
	key := string(e.Request)
	if key == "" {
		key = string(e.Worker)
	}
	h := fnv.New32a()
	h.Write([]byte(key))
	return "evt." + string(e.Type) + "." + strconv.Itoa(int(h.Sum32()%Shards))
}

// EpochSubject is where a pool's epochs are stored: its last message fences every append of the pool's scheduler.
func EpochSubject(pool string) string { return "evt.epoch." + pool }

// EventTypeSubject matches every event of a type.
func EventTypeSubject(t schema.Type) string { return "evt." + string(t) + ".>" }

// StepSubject is where a worker's engine steps are stored.
func StepSubject(w schema.WorkerID) string { return "step." + string(w) }

// TokenSubject is where the tokens of a request go, on their way to the ingress that holds its client.
func TokenSubject(in schema.IngressID, id schema.RequestID) string {
	return "tok." + string(in) + "." + string(id)
}

// DispatchSubject is where a worker takes requests.
func DispatchSubject(w schema.WorkerID) string { return "dispatch." + string(w) }

// CancelSubject carries the wish to stop a request.
func CancelSubject(id schema.RequestID) string { return "cancel." + string(id) }

// SealSubject is where an ingress answers what it has relayed.
func SealSubject(in schema.IngressID) string { return "seal." + string(in) }

// WorkerStateSubject carries a worker's heartbeats.
func WorkerStateSubject(w schema.WorkerID) string { return "state.worker." + string(w) }

// EngineStateSubject carries what a worker's engine holds.
func EngineStateSubject(w schema.WorkerID) string { return "engine." + string(w) }

// PoolStateSubject carries what waits for a pool's workers.
func PoolStateSubject(pool string) string { return "state.pool." + pool }

// IngressStateSubject carries an ingress's heartbeats.
func IngressStateSubject(in schema.IngressID) string { return "state.ingress." + string(in) }

// DeadLetterSubject is where what a service could not read is kept.
func DeadLetterSubject(service string) string { return "dlq." + service }
