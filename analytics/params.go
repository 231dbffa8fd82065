package analytics

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	ch "github.com/ClickHouse/clickhouse-go/v2"

	"github.com/cadence-slo/cadence/analytics/sql"
)

// escaper writes a value as the server reads parameters: as a field of tab-separated text.
var escaper = strings.NewReplacer(`\`, `\\`, "\t", `\t`, "\n", `\n`, "\r", `\r`, "\x00", `\0`)

// bind returns the value of each placeholder, ready to send.
func bind(placeholders []sql.Placeholder, params map[string]string, now time.Time) (ch.Parameters, error) {
	bound := make(ch.Parameters, len(placeholders))
	for _, p := range placeholders {
		if _, ok := bound[p.Name]; ok {
			return nil, fmt.Errorf("%w %s: used with two types", ErrParam, p.Name)
		}
		value, ok := params[p.Name]
		if !ok {
			return nil, fmt.Errorf("%w %s: no value given for {%s:%s}", ErrParam, p.Name, p.Name, p.Type)
		}
		if strings.HasPrefix(p.Type, "DateTime") {
			value = timeParam(value, p.Type, now)
		}
		bound[p.Name] = escaper.Replace(value)
	}
	for name := range params {
		if _, ok := bound[name]; !ok {
			return nil, fmt.Errorf("%w %s: the query does not use it", ErrParam, name)
		}
	}
	return bound, nil
}

// timeParam turns the forms that people write into seconds since the epoch, which mean
// the same in every zone, with as many decimals as typ has. Anything else is left to the
// server.
func timeParam(value, typ string, now time.Time) string {
	t := now
	if value != "now" {
		if age, ok := parseAge(value); ok {
			t = now.Add(-age)
		} else if parsed, err := time.Parse(time.RFC3339Nano, value); err == nil {
			t = parsed
		} else {
			return value
		}
	}
	digits := 0
	if scale, ok := strings.CutPrefix(typ, "DateTime64("); ok {
		digits, _ = strconv.Atoi(scale[:1]) // a bad scale is the server's to refuse
	}
	text := strconv.FormatInt(t.Unix(), 10)
	if digits == 0 {
		return text
	}
	return text + "." + fmt.Sprintf("%09d", t.Nanosecond())[:min(digits, 9)]
}

// parseAge reads "-90m" or "-7d" as the time before now that it means.
func parseAge(value string) (time.Duration, bool) {
	text, ok := strings.CutPrefix(value, "-")
	if !ok {
		return 0, false
	}
	if days, ok := strings.CutSuffix(text, "d"); ok {
		n, err := strconv.ParseUint(days, 10, 16)
		return time.Duration(n) * 24 * time.Hour, err == nil
	}
	age, err := time.ParseDuration(text)
	return age, err == nil && age >= 0
}
