package schema

import (
	"encoding/json"
	"fmt"
)

// body is a message of the wire: it knows where its version is and whether it is valid.
type body interface {
	version() *int
	Validate() error
}

// Encode validates m, stamps the version and returns its JSON.
func Encode(m body) ([]byte, error) {
	*m.version() = Version
	if err := m.Validate(); err != nil {
		return nil, err
	}
	b, err := json.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("schema: encoding %T: %w", m, err)
	}
	return b, nil
}

// Decode reads JSON into m and validates it. It returns ErrVersion for a newer writer's body, ErrInvalid for one that
// breaks a rule, and encoding/json's error for one that is not JSON. m does not alias data, except for a Dispatch's
// Request fields, which are copies too.
func Decode(data []byte, m body) error {
	if err := json.Unmarshal(data, m); err != nil {
		return fmt.Errorf("schema: decoding %T: %w", m, err)
	}
	if v := *m.version(); v < 1 || v > Version {
		return fmt.Errorf("%w: %T has version %d, this reader knows 1 to %d", ErrVersion, m, v, Version)
	}
	return m.Validate()
}

func (r *Request) version() *int       { return &r.V }
func (e *Event) version() *int         { return &e.V }
func (c *Chunk) version() *int         { return &c.V }
func (d *Dispatch) version() *int      { return &d.V }
func (d *DispatchReply) version() *int { return &d.V }
func (c *Cancel) version() *int        { return &c.V }
func (s *Seal) version() *int          { return &s.V }
func (s *SealReply) version() *int     { return &s.V }
func (s *WorkerState) version() *int   { return &s.V }
func (s *IngressState) version() *int  { return &s.V }
func (s *Step) version() *int          { return &s.V }

// Validate accepts any reply: its length is checked against the question by the asker.
func (d *DispatchReply) Validate() error { return nil }

// Validate returns ErrInvalid for a malformed request id.
func (c *Cancel) Validate() error { return validID("cancel", c.Request) }

// Validate returns ErrInvalid for a malformed request id.
func (s *Seal) Validate() error { return validID("seal", s.Request) }

// Validate accepts any reply.
func (s *SealReply) Validate() error { return nil }

// Validate returns ErrInvalid, naming the field, if the heartbeat breaks a rule.
func (s *IngressState) Validate() error {
	if !ValidName(string(s.Ingress)) || s.Interval <= 0 {
		return fmt.Errorf("%w ingress state: ingress %q, interval_ns %d", ErrInvalid, s.Ingress, s.Interval)
	}
	return nil
}

// Validate returns ErrInvalid, naming the field, if the step breaks a rule.
func (s *Step) Validate() error {
	if !ValidName(string(s.Worker)) || s.Time <= 0 || s.Duration < 0 {
		return fmt.Errorf("%w step: worker %q, time_ns %d, duration_ns %d", ErrInvalid, s.Worker, s.Time, s.Duration)
	}
	return nil
}

func validID(what string, id RequestID) error {
	if !id.Valid() {
		return fmt.Errorf("%w %s: request_id is %q", ErrInvalid, what, id)
	}
	return nil
}
