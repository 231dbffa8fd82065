package chat

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nikolalohinski/gonja/v2/exec"
	"github.com/nikolalohinski/gonja/v2/loaders"
)

var (
	// ErrCompile is returned for a template that is not valid.
	ErrCompile = errors.New("chat: template does not compile")
	// ErrRender is returned when a template fails on a conversation.
	ErrRender = errors.New("chat: template failed")
	// ErrTooLong is returned when a template's output passes MaxOutput.
	ErrTooLong = errors.New("chat: prompt is too long")
)

// RejectedError is what a template itself says against a conversation, by raise_exception: a client's mistake.
type RejectedError struct{ Message string }

// Error implements error.
func (e *RejectedError) Error() string { return e.Message }

// MaxOutput bounds a rendered prompt, in bytes.
const MaxOutput = 16 << 20

// ChatML is the template of models that have none of their own but were trained on ChatML.
const ChatML = `{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}`

// Message is one turn of a conversation.
type Message struct {
	Role    string
	Content string
}

// Options are what a template knows beside the conversation.
type Options struct {
	BOS, EOS string           // texts of the tokens that begin and end a text
	Now      func() time.Time // for strftime_now; nil is time.Now
}

// Template is a compiled chat template. Any number of goroutines may render it at once.
type Template struct {
	t    *exec.Template
	opts Options
}

// Compile reads a template. The error wraps ErrCompile.
func Compile(source string, opts Options) (t *Template, err error) {
	defer recovered(&err, ErrCompile)
	if opts.Now == nil {
		opts.Now = time.Now
	}
	if err := parsable(source); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCompile, err)
	}
	const root = "/chat"
	loader, err := loaders.NewMemoryLoader(map[string]string{root: keepInline(source)})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCompile, err)
	}
	compiled, err := exec.NewTemplate(root, dialect, loader, environment())
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCompile, err)
	}
	return &Template{t: compiled, opts: opts}, nil
}

// Render returns the prompt of a conversation; generate asks for the beginning of the assistant's next turn. The error
// is a *RejectedError, or wraps ErrRender or ErrTooLong.
func (t *Template) Render(messages []Message, generate bool) (prompt string, err error) {
	defer recovered(&err, ErrRender)
	turns := make(list, len(messages))
	for i, m := range messages {
		turns[i] = map[string]any{"role": m.Role, "content": m.Content}
	}
	var rejected *RejectedError
	var used budget
	data := exec.NewContext(map[string]any{
		budgetName:              &used,
		"messages":              turns,
		"add_generation_prompt": generate,
		"bos_token":             t.opts.BOS,
		"eos_token":             t.opts.EOS,
		"raise_exception": func(message string) (string, error) {
			if rejected == nil {
				rejected = &RejectedError{Message: message}
			}
			return "", rejected
		},
		"strftime_now": func(layout string) string { return strftime(t.opts.Now(), layout) },
	})
	var out bounded
	err = t.t.Execute(&out, data)
	switch {
	case rejected != nil:
		return "", rejected
	case out.full:
		return "", fmt.Errorf("%w: more than %d bytes", ErrTooLong, MaxOutput)
	case used.over != nil:
		return "", fmt.Errorf("%w: %w", ErrRender, used.over)
	case err != nil:
		return "", fmt.Errorf("%w: %w", ErrRender, err)
	}
	return out.String(), nil
}

// bounded is a writer that takes MaxOutput bytes.
type bounded struct {
	strings.Builder
	full bool
}

func (b *bounded) Write(p []byte) (int, error) {
	if b.full = b.full || b.Len()+len(p) > MaxOutput; b.full {
		return 0, ErrTooLong
	}
	return b.Builder.Write(p)
}

// WriteString keeps writers from going around the bound.
func (b *bounded) WriteString(s string) (int, error) { return b.Write([]byte(s)) }

// recovered makes an error of a panic in the interpreter.
func recovered(err *error, sentinel error) {
	if r := recover(); r != nil {
		*err = fmt.Errorf("%w: %v", sentinel, r)
	}
}
