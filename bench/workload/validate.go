package workload

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Validate returns ErrSpec for the first key that is outside its range.
func (s *Spec) Validate() error {
	if s.Name == "" {
		return fmt.Errorf("%w: name is empty", ErrSpec)
	}
	if len(s.Kinds) == 0 {
		if err := s.mix()[0].validate(""); err != nil {
			return err
		}
	} else if err := s.validateKinds(); err != nil {
		return err
	}
	names := map[string]bool{}
	for i, t := range s.Tenants {
		key := fmt.Sprintf("tenants[%d]", i)
		if err := entry(key, t.Name, t.Share, names); err != nil {
			return err
		}
		if !(t.Weight >= 0 && t.Weight <= 1e9) {
			return fmt.Errorf("%w: %s.weight (of %s) is %v, allowed: 0 (for 1) to 1e9", ErrSpec, key, t.Name, t.Weight)
		}
	}
	return s.validateSLOs()
}

func (s *Spec) validateKinds() error {
	if s.SharedRatio != 0 || s.SystemPrompts != 0 || s.SystemTokens != (Range{}) || s.TailTokens != (Range{}) || s.UniqueTokens != (Range{}) || s.Output != (Output{}) {
		return fmt.Errorf("%w: with kinds, the keys of prompts and output belong to each of them, not beside them", ErrSpec)
	}
	names := map[string]bool{}
	for i := range s.Kinds {
		k, key := &s.Kinds[i], fmt.Sprintf("kinds[%d]", i)
		if err := entry(key, k.Name, k.Share, names); err != nil {
			return err
		}
		if err := k.validate(key + "."); err != nil {
			return err
		}
	}
	return nil
}

// entry checks what kinds and tenants have in common and adds name to names.
func entry(key, name string, share float64, names map[string]bool) error {
	switch {
	case name == "":
		return fmt.Errorf("%w: %s.name is empty", ErrSpec, key)
	case names[name]:
		return fmt.Errorf("%w: %s.name is %s, as that of another", ErrSpec, key, name)
	case !(share > 0 && share <= 1e9):
		return fmt.Errorf("%w: %s.share (of %s) is %v, allowed: more than 0 to 1e9", ErrSpec, key, name, share)
	}
	names[name] = true
	return nil
}

func (k *Kind) validate(prefix string) error {
	if !(k.SharedRatio >= 0 && k.SharedRatio <= 1) {
		return fmt.Errorf("%w: %sshared_ratio is %v, allowed: 0 to 1", ErrSpec, prefix, k.SharedRatio)
	}
	if k.SharedRatio > 0 {
		if k.SystemPrompts < 1 || k.SystemPrompts > 1<<16 {
			return fmt.Errorf("%w: %ssystem_prompts is %d, allowed: 1 to %d", ErrSpec, prefix, k.SystemPrompts, 1<<16)
		}
		if err := errors.Join(k.SystemTokens.validate(prefix+"system_tokens"), k.TailTokens.validate(prefix+"tail_tokens")); err != nil {
			return err
		}
	}
	if k.SharedRatio < 1 {
		if err := k.UniqueTokens.validate(prefix + "unique_tokens"); err != nil {
			return err
		}
	}
	return k.Output.validate(prefix)
}

// validateSLOs checks that classes and objectives fit: a request whose class has no objective would count as good
// whenever it is answered.
func (s *Spec) validateSLOs() error {
	used := map[string]bool{}
	for _, k := range s.mix() {
		for _, t := range s.senders() {
			used[class(&k, &t)] = true
		}
	}
	classes := slices.Sorted(maps.Keys(used))
	for _, c := range classes {
		if _, ok := s.SLOs[c]; !ok && (len(s.SLOs) > 0 || c != "") {
			return fmt.Errorf("%w: requests are of class %q, which slos does not have", ErrSpec, c)
		}
	}
	for c, slo := range s.SLOs {
		if !used[c] {
			return fmt.Errorf("%w: slos has class %q, but requests are only of %q", ErrSpec, c, strings.Join(classes, ", "))
		}
		if slo.TTFT < 0 || slo.TPOT < 0 || slo.E2E < 0 || slo.TTFT+slo.TPOT+slo.E2E == 0 {
			return fmt.Errorf("%w: slos of class %q are ttft %v, tpot %v and e2e %v, allowed: 0 (for none) and more, not all 0", ErrSpec, c, slo.TTFT, slo.TPOT, slo.E2E)
		}
	}
	return nil
}
