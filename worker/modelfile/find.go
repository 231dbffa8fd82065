package modelfile

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/cadence-slo/cadence/worker/gguf"
)

// Errors of [Find].
var (
	ErrNotFound = errors.New("modelfile: no such model")
	ErrBadSynth = errors.New("modelfile: bad name of a synthetic model")
)

// synthPrefix marks names of synthetic models: synth:PRESET or synth:PRESET:SEED.
const synthPrefix = "synth:"

// Find resolves what a user calls a model into the absolute path of a complete file. nameOrPath is, in this order,
//
//   - synth:PRESET or synth:PRESET:SEED: a synthetic model, made in the cache folder if it is not there; the seed is 1 unless stated
//   - the path of a file
//   - a file in the cache folder, with or without .gguf
//   - the name of a known model that was pulled
//
// dir is the cache folder, "" for the usual one. progress, unless nil, follows the making of a synthetic model. The error
// wraps [ErrNotFound], [ErrBadSynth], or is that of the file system.
func Find(ctx context.Context, dir, nameOrPath string, progress func(done, total int64)) (string, error) {
	if name, ok := strings.CutPrefix(nameOrPath, synthPrefix); ok {
		return findSynth(ctx, dir, name, progress)
	}
	if nameOrPath == "" {
		return "", fmt.Errorf("%w: no name given", ErrNotFound)
	}
	if info, err := os.Stat(nameOrPath); err == nil && info.Mode().IsRegular() {
		return filepath.Abs(nameOrPath)
	}
	dir, err := CacheDir(dir)
	if err != nil {
		return "", err
	}
	known, isKnown := lookup(nameOrPath)
	if filepath.Base(nameOrPath) == nameOrPath {
		for _, file := range []string{nameOrPath, nameOrPath + extension, known.File} {
			if info, err := os.Stat(filepath.Join(dir, file)); file != "" && err == nil && info.Mode().IsRegular() {
				return filepath.Join(dir, file), nil
			}
		}
	}
	if isKnown {
		return "", fmt.Errorf("%w: %s is not in %s: fetch it with `cadence model pull %s`", ErrNotFound, nameOrPath, dir, nameOrPath)
	}
	return "", fmt.Errorf("%w: %s is no file, and %s has %s; synthetic models are %s%s", ErrNotFound, nameOrPath, dir, present(dir), synthPrefix,
		strings.Join(gguf.Presets(), ", "+synthPrefix))
}

// present lists a folder's models for a message.
func present(dir string) string {
	entries, err := List(dir)
	if err != nil || len(entries) == 0 {
		return "no models"
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name)
	}
	return strings.Join(names, ", ")
}

// SynthFile names the file of a synthetic model in the cache folder. Version and seed are part of it, so that equal names mean equal bytes.
func SynthFile(preset string, seed uint64) string {
	return fmt.Sprintf("synth-%s-v%d-s%d%s", preset, gguf.SynthVersion, seed, extension)
}

func findSynth(ctx context.Context, dir, name string, progress func(done, total int64)) (string, error) {
	preset, seedText, hasSeed := strings.Cut(name, ":")
	seed := uint64(1)
	if hasSeed {
		var err error
		if seed, err = strconv.ParseUint(seedText, 10, 64); err != nil {
			return "", fmt.Errorf("%w: seed %q is no whole number", ErrBadSynth, seedText)
		}
	}
	spec, err := gguf.Preset(preset)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrBadSynth, err)
	}
	if dir, err = makeDir(dir); err != nil {
		return "", err
	}
	file := SynthFile(preset, seed)
	path := filepath.Join(dir, file)
	if _, err := gguf.InspectFile(path); err == nil {
		return path, nil
	}
	unlock, err := lock(ctx, dir, file)
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := gguf.InspectFile(path); err == nil { // made while we waited
		return path, nil
	}
	if _, err := gguf.SynthFile(ctx, path, spec, seed, progress); err != nil {
		return "", err
	}
	return path, nil
}
