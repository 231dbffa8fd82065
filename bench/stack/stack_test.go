package stack

import "testing"

func TestOf(t *testing.T) {
	o := Owners{{"a/b.", "inner"}, {"a/", "outer"}, {"runtime.gc", "collector"}}
	for _, c := range []struct {
		stack []string
		want  string
	}{
		{nil, "other"},
		{[]string{"main.main"}, "other"},
		{[]string{"runtime.memmove", "a/b.F", "a/c.G"}, "inner"},
		{[]string{"a/c.G", "a/b.F"}, "outer"},
		{[]string{"_Cfunc_x", "runtime.gcDrain"}, "collector"},
	} {
		if got := o.Of(c.stack); got != c.want {
			t.Errorf("%v is %q, want %q", c.stack, got, c.want)
		}
	}
}
