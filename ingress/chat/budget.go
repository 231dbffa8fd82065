package chat

import (
	"errors"
	"fmt"

	"github.com/nikolalohinski/gonja/v2/builtins"
	controls "github.com/nikolalohinski/gonja/v2/builtins/control_structures"
	"github.com/nikolalohinski/gonja/v2/exec"
	"github.com/nikolalohinski/gonja/v2/nodes"
	"github.com/nikolalohinski/gonja/v2/parser"
	"github.com/nikolalohinski/gonja/v2/tokens"
)

// The interpreter has no bounds of its own: two nested loops run for minutes, and a macro that calls itself exhausts
// the stack, which ends the process and cannot be recovered.
const (
	maxSource   = 256 << 10 // bytes of a template
	maxBrackets = 100       // nesting of brackets in an expression
	maxSteps    = 50_000    // loop iterations and macro calls of one rendering
	maxMacros   = 100       // macros that call each other
	maxElements = 1_000_000 // of a list that a template builds
)

// budgetName is the variable that holds a rendering's budget. No template can spell it.
const budgetName = "cadence budget"

// budget is what one rendering has used. It belongs to the goroutine that renders.
type budget struct {
	steps, macros int
	over          error // why the rendering was stopped
}

func (b *budget) stop(format string, a ...any) error {
	if b.over == nil {
		b.over = fmt.Errorf("template "+format, a...)
	}
	return b.over
}

func budgetOf(r *exec.Renderer) *budget {
	v, _ := r.Environment.Context.Get(budgetName)
	b, ok := v.(*budget)
	if !ok {
		b = &budget{steps: maxSteps} // outside of Render: nothing may loop
	}
	return b
}

// structures are the tags of a template that stands alone: those that load others, or can call themselves unseen, are
// left out, and loops, macros and assignments are counted.
func structures() *exec.ControlStructureSet {
	set := map[string]parser.ControlStructureParser{}
	for _, name := range []string{"if", "call", "filter", "with", "raw", "break", "continue"} {
		set[name] = builtin(name)
	}
	set["for"], set["macro"], set["set"] = loop, macro, assignment
	return exec.NewControlStructureSet(set)
}

func builtin(name string) parser.ControlStructureParser {
	p, ok := builtins.ControlStructures.Get(name)
	if !ok {
		panic("chat: gonja has no tag " + name) // its version is pinned
	}
	return p
}

// meter runs at a fixed place of a body and charges the rendering.
type meter struct {
	at    *tokens.Token
	check func(b *budget, r *exec.Renderer) error
}

func (m *meter) Position() *tokens.Token { return m.at }
func (m *meter) String() string          { return "meter" }

// Execute implements gonja's exec.ControlStructure.
func (m *meter) Execute(r *exec.Renderer, _ *nodes.ControlStructureBlock) error {
	return m.check(budgetOf(r), r)
}

func (m *meter) node() nodes.Node {
	return &nodes.ControlStructureBlock{Location: m.at, Name: "meter", ControlStructure: m}
}

func step(b *budget, _ *exec.Renderer) error {
	if b.steps++; b.steps > maxSteps {
		return b.stop("makes more than %d steps", maxSteps)
	}
	return nil
}

func loop(p, args *parser.Parser) (nodes.ControlStructure, error) {
	at := p.Current()
	parsed, err := builtin("for")(p, args)
	if err != nil {
		return nil, err
	}
	f, ok := parsed.(*controls.ForControlStructure)
	if !ok {
		return nil, fmt.Errorf("a loop is a %T", parsed)
	}
	if f.Recursive {
		return nil, errors.New("recursive loops are not supported")
	}
	f.BodyWrapper.Nodes = append([]nodes.Node{(&meter{at, step}).node()}, f.BodyWrapper.Nodes...)
	return f, nil
}

func macro(p, args *parser.Parser) (nodes.ControlStructure, error) {
	at := p.Current()
	parsed, err := builtin("macro")(p, args)
	if err != nil {
		return nil, err
	}
	m, ok := parsed.(*controls.MacroControlStructure)
	if !ok {
		return nil, fmt.Errorf("a macro is a %T", parsed)
	}
	enter := &meter{at, func(b *budget, r *exec.Renderer) error {
		if b.macros++; b.macros > maxMacros {
			return b.stop("calls macros deeper than %d", maxMacros)
		}
		return step(b, r)
	}}
	leave := &meter{at, func(b *budget, _ *exec.Renderer) error { b.macros--; return nil }}
	m.Wrapper.Nodes = append(append([]nodes.Node{enter.node()}, m.Wrapper.Nodes...), leave.node())
	return m, nil
}

// measured is an assignment that looks at what was assigned: x = x + x, in a loop, is soon larger than memory.
type measured struct {
	exec.ControlStructure
	name string // of the variable, or of the namespace
}

// Execute implements gonja's exec.ControlStructure.
func (m *measured) Execute(r *exec.Renderer, tag *nodes.ControlStructureBlock) error {
	if err := m.ControlStructure.Execute(r, tag); err != nil {
		return err
	}
	v, _ := r.Environment.Context.Get(m.name)
	attributes, isNamespace := v.(map[string]any)
	if !isNamespace {
		return measure(budgetOf(r), v)
	}
	for _, v := range attributes {
		if err := measure(budgetOf(r), v); err != nil {
			return err
		}
	}
	return nil
}

func measure(b *budget, v any) error {
	value := exec.ToValue(v)
	switch {
	case value.IsString() && len(value.String()) > MaxOutput:
		return b.stop("makes a text of more than %d bytes", MaxOutput)
	case value.IsList() && value.Len() > maxElements:
		return b.stop("makes a list of more than %d elements", maxElements)
	}
	return nil
}

func assignment(p, args *parser.Parser) (nodes.ControlStructure, error) {
	m := &measured{}
	if t := args.Current(tokens.Name); t != nil {
		m.name = t.Val
	}
	parsed, err := builtin("set")(p, args)
	if err != nil {
		return nil, err
	}
	s, ok := parsed.(exec.ControlStructure)
	if !ok {
		return nil, fmt.Errorf("an assignment is a %T", parsed)
	}
	m.ControlStructure = s
	return m, nil
}

// parsable refuses what would exhaust the stack of gonja's parser.
func parsable(source string) error {
	if len(source) > maxSource {
		return fmt.Errorf("it has %d bytes; allowed are %d", len(source), maxSource)
	}
	depth := 0
	for stream := tokens.LexAll(source, dialect); !stream.End(); {
		switch stream.Next().Type {
		case tokens.LeftParenthesis, tokens.LeftBracket, tokens.LeftBrace:
			if depth++; depth > maxBrackets {
				return fmt.Errorf("its brackets are nested deeper than %d", maxBrackets)
			}
		case tokens.RightParenthesis, tokens.RightBracket, tokens.RightBrace:
			depth--
		}
	}
	return nil
}
