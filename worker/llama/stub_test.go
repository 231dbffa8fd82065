//go:build !llama || !cgo

package llama

import (
	"errors"
	"testing"
)

func TestConstructorsSayHowToBuild(t *testing.T) {
	_, load := LoadModel("any", DefaultModelOptions())
	_, context := NewContext(nil, DefaultContextOptions())
	_, devices := Devices()
	_, info := SystemInfo()
	for name, err := range map[string]error{"Init": Init(nil, ""), "LoadModel": load, "NewContext": context, "Devices": devices, "SystemInfo": info} {
		if !errors.Is(err, ErrNotBuilt) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if Built {
		t.Error("Built is true")
	}
}
