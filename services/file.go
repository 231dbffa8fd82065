package services

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
	"github.com/goccy/go-yaml"
)

// ErrConfigFile is returned for a configuration file that cannot be used; the message names the key.
var ErrConfigFile = errors.New("services: invalid configuration file")

// fileResolver gives flags their values from a YAML file. Nested keys are joined by dashes: nats: {url: …} sets
// --nats-url. Flags on the command line come first, then the environment, then the file.
type fileResolver struct {
	values map[string]any
}

// ConfigFile reads a YAML configuration for kong.
func ConfigFile(r io.Reader) (kong.Resolver, error) {
	var doc map[string]any
	if err := yaml.NewDecoder(r).Decode(&doc); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%w: %w", ErrConfigFile, err)
	}
	f := &fileResolver{values: map[string]any{}}
	if err := f.flatten("", doc); err != nil {
		return nil, err
	}
	return f, nil
}

func (f *fileResolver) flatten(prefix string, doc map[string]any) error {
	for k, v := range doc {
		key := strings.ReplaceAll(prefix+k, "_", "-")
		if nested, ok := v.(map[string]any); ok {
			if err := f.flatten(key+"-", nested); err != nil {
				return err
			}
			continue
		}
		if _, twice := f.values[key]; twice {
			return fmt.Errorf("%w: key %s is given twice, in two spellings", ErrConfigFile, key)
		}
		f.values[key] = v
	}
	return nil
}

// Validate refuses keys that no flag of any sub-command has.
func (f *fileResolver) Validate(app *kong.Application) error {
	known := map[string]bool{}
	err := kong.Visit(app, func(n kong.Visitable, next kong.Next) error {
		if flag, ok := n.(*kong.Flag); ok {
			known[flag.Name] = true
		}
		return next(nil)
	})
	if err != nil {
		return err
	}
	var unknown []string
	for key := range f.values {
		if !known[key] {
			unknown = append(unknown, key)
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	slices.Sort(unknown)
	return fmt.Errorf("%w: unknown key %s (see --help for the keys)", ErrConfigFile, strings.Join(unknown, ", "))
}

// Resolve implements kong.Resolver.
func (f *fileResolver) Resolve(_ *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
	for _, env := range flag.Envs {
		if _, set := os.LookupEnv(env); set {
			return nil, nil
		}
	}
	v, ok := f.values[flag.Name]
	if !ok {
		return nil, nil
	}
	switch v := v.(type) {
	case []any: // a list, as on the command line
		parts := make([]string, len(v))
		for i, p := range v {
			parts[i] = fmt.Sprint(p)
		}
		return strings.Join(parts, ","), nil
	case nil:
		return nil, fmt.Errorf("%w: key %s has no value", ErrConfigFile, flag.Name)
	default:
		return fmt.Sprint(v), nil
	}
}
