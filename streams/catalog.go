package streams

import (
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Names of the streams.
const (
	Requests    = "REQUESTS"
	Events      = "EVENTS"
	Steps       = "STEPS"
	Tokens      = "TOKENS"
	DeadLetters = "DLQ"
)

const (
	day = 24 * time.Hour
	mib = int64(1) << 20
)

// eventsDuplicates is for how long EVENTS remembers ids: all of them in memory, so that a longer outage is bridged by
// looking into the log instead.
const eventsDuplicates = 2 * time.Minute

// Limits bounds what the streams keep. Zero fields take the defaults of DefaultLimits.
type Limits struct {
	RequestsAge   time.Duration
	RequestsBytes int64
	EventsAge     time.Duration
	EventsBytes   int64
	StepsAge      time.Duration
	StepsBytes    int64
	TokensAge     time.Duration
	TokensBytes   int64
}

// DefaultLimits suit one machine: at most 9 GiB on disk.
func DefaultLimits() Limits {
	return Limits{
		RequestsAge: 7 * day, RequestsBytes: 2048 * mib,
		EventsAge: 30 * day, EventsBytes: 6144 * mib,
		StepsAge: 2 * day, StepsBytes: 256 * mib,
		TokensAge: 15 * time.Minute, TokensBytes: 512 * mib,
	}
}

// Catalog returns every stream's configuration. The same data sets up the embedded server and a cluster.
func Catalog(l Limits, replicas int) []jetstream.StreamConfig {
	return []jetstream.StreamConfig{
		{
			Name: Requests, Subjects: []string{"req.*"},
			Description: "admitted requests; the scheduler reads on from its last accepted event",
			Retention:   jetstream.LimitsPolicy, Discard: jetstream.DiscardOld, Storage: jetstream.FileStorage,
			MaxAge: l.RequestsAge, MaxBytes: l.RequestsBytes, Duplicates: 10 * time.Minute,
			AllowDirect: true, Replicas: replicas,
		},
		{
			Name: Events, Subjects: []string{"evt.>"},
			Description: "lifecycle events: the truth that every state is a fold of",
			Retention:   jetstream.LimitsPolicy, Discard: jetstream.DiscardOld, Storage: jetstream.FileStorage,
			MaxAge: l.EventsAge, MaxBytes: l.EventsBytes, Duplicates: eventsDuplicates,
			AllowDirect: true, AllowAtomicPublish: true, Replicas: replicas,
		},
		{
			Name: Steps, Subjects: []string{"step.*"},
			Description: "sampled engine steps",
			Retention:   jetstream.LimitsPolicy, Discard: jetstream.DiscardOld, Storage: jetstream.FileStorage,
			MaxAge: l.StepsAge, MaxBytes: l.StepsBytes, Duplicates: time.Second, NoAck: false,
			AllowDirect: true, Replicas: replicas,
		},
		{
			Name: Tokens, Subjects: []string{"tok.*.*"},
			Description: "answer tokens, kept to fill gaps and to resume; regenerable",
			Retention:   jetstream.LimitsPolicy, Discard: jetstream.DiscardOld, Storage: jetstream.FileStorage,
			MaxAge: l.TokensAge, MaxBytes: l.TokensBytes, Duplicates: time.Second, NoAck: true,
			AllowDirect: true, PersistMode: asyncPersist(replicas), Replicas: replicas,
		},
		{
			Name: DeadLetters, Subjects: []string{"dlq.*"},
			Description: "what could not be read, with the reason",
			Retention:   jetstream.LimitsPolicy, Discard: jetstream.DiscardOld, Storage: jetstream.FileStorage,
			MaxAge: 30 * day, MaxBytes: 256 * mib, Duplicates: 10 * time.Minute,
			AllowDirect: true, Replicas: replicas,
		},
	}
}

// asyncPersist is for streams that may lose their tail; replicated streams do not have it.
func asyncPersist(replicas int) jetstream.PersistModeType {
	if replicas > 1 {
		return jetstream.DefaultPersistMode
	}
	return jetstream.AsyncPersistMode
}
