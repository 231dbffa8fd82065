package constraint

import (
	"errors"
	"testing"
)

func TestCheck(t *testing.T) {
	invalid := errors.New("x: invalid options")
	if err := Check(invalid); err != nil {
		t.Error(err)
	}
	if err := Check(invalid, Of("a", true, 1, "any")); err != nil {
		t.Error(err)
	}
	err := Check(invalid, Of("a", true, 1, "any"), Of("b", false, []int{2}, "3"), Of("c", false, 0, "none"))
	if !errors.Is(err, invalid) || err.Error() != "x: invalid options: b is [2], allowed: 3" {
		t.Error(err)
	}
}
