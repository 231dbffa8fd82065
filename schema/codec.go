package schema

import (
	"encoding/json"
	"fmt"
	"reflect"
)

// Body is a message of the wire: it knows where its version is and whether it is valid. Only this package has bodies.
type Body interface {
	version() *int
	Validate() error
}

// Encode validates m, stamps the version into it and returns its JSON, which the caller owns. It returns ErrInvalid or
// ErrTokens for what may not cross the wire. Bytes of a string that are not UTF-8 become U+FFFD.
func Encode(m Body) ([]byte, error) {
	*m.version() = Version
	if err := m.Validate(); err != nil {
		return nil, err
	}
	var w wire
	if !w.walk(m) {
		w.b, w.err = json.Marshal(m)
	}
	if w.err != nil {
		return nil, fmt.Errorf("schema: encoding %T: %w", m, w.err)
	}
	return w.b, nil
}

// Decode reads JSON into m and validates it; what m held before is gone. It returns ErrVersion for a newer writer's
// body, ErrInvalid for one that breaks a rule, and encoding/json's error or ErrTokens for one that cannot be read. After
// an error m holds anything. m does not alias data.
func Decode(data []byte, m Body) error {
	reflect.ValueOf(m).Elem().SetZero()
	if !fastDecode(data, m) {
		if err := json.Unmarshal(data, m); err != nil {
			// A newer version may have given a field another type.
			var only struct {
				V int `json:"v"`
			}
			if json.Unmarshal(data, &only) == nil && only.V > Version {
				return versionError(m, only.V)
			}
			return fmt.Errorf("schema: decoding %T: %w", m, err)
		}
	}
	switch v := *m.version(); {
	case v > Version:
		return versionError(m, v)
	case v < 1:
		return fmt.Errorf("%w %T: v is %d", ErrInvalid, m, v)
	}
	return m.Validate()
}

// fastDecode reports whether it could read data into m. If not, m is as zero as it was.
func fastDecode(data []byte, m Body) bool {
	w := wire{b: data, reading: true}
	if w.walk(m) && w.err == nil && len(w.b) == 0 {
		return true
	}
	reflect.ValueOf(m).Elem().SetZero()
	return false
}

func versionError(m Body, v int) error {
	return fmt.Errorf("%w: %T has version %d, this reader knows 1 to %d", ErrVersion, m, v, Version)
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
func (s *EngineState) version() *int   { return &s.V }
func (s *PoolState) version() *int     { return &s.V }

// Validate accepts any reply: its length is checked against the question by the asker.
func (d *DispatchReply) Validate() error { return nil }

// Validate returns ErrInvalid for a malformed request id.
func (c *Cancel) Validate() error { return validID("cancel", c.Request) }

// Validate returns ErrInvalid for a malformed request id.
func (s *Seal) Validate() error { return validID("seal", s.Request) }

// Validate returns ErrInvalid, naming the field, if the end that was relayed breaks a rule.
func (s *SealReply) Validate() error { return s.Finish.validate("seal reply") }

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
