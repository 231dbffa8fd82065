package ingress

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cadence-slo/cadence/ingress/openai"
)

// Tokenizer turns text into token ids. Any number of goroutines use it at once.
type Tokenizer interface {
	// Tokenize returns the ids of a text. addSpecial adds what the model's vocabulary wants at the beginning or end;
	// parseSpecial reads the names of special tokens in the text as these tokens.
	Tokenize(text string, addSpecial, parseSpecial bool) ([]int32, error)
}

// Model is what the ingress must know of a model to serve it.
type Model struct {
	// Name is what workers call the model in their heartbeats, and clients in their requests; Aliases are other names
	// for clients.
	Name    string
	Aliases []string
	Tokenizer
	// ChatTemplate is the Jinja source from the model's metadata; empty: the model does not chat. BOS and EOS are the
	// texts of these tokens, which templates name.
	ChatTemplate, BOS, EOS string
	// Control are the names of the vocabulary's control tokens (<|im_end|>): in a chat they are tokens only where the
	// template writes them, and text where a message has them.
	Control []string
	// ContextTokens is the longest prompt + output; where live workers have less, they decide.
	ContextTokens int
	// VocabTokens is the number of token ids: those of token prompts must be below. 0 takes any.
	VocabTokens int
	// Speller tells the bytes of tokens, for clients who want log-probabilities; nil: the model's engine tells none.
	Speller Speller
	// Grammar turns a JSON Schema into a grammar for the model's engine; what its error says is for the client. nil: the
	// engine cannot be held to one.
	Grammar func(schema []byte) (string, error)
	// Fingerprint goes into responses as system_fingerprint; empty leaves it out.
	Fingerprint string
	Created     time.Time
}

// served is a model with its compiled template.
type served struct {
	Model
	chat    *chatTemplate // nil: does not chat
	control *controlNames
}

// catalogue finds models by name. It is immutable.
type catalogue struct {
	byName map[string]*served
	list   []*served
}

func newCatalogue(models []Model) (*catalogue, error) {
	c := &catalogue{byName: map[string]*served{}}
	for _, m := range models {
		s := &served{Model: m, control: newControlNames(m.Control)}
		if m.Tokenizer == nil || m.ContextTokens < 2 {
			return nil, fmt.Errorf("%w: model %q has no tokenizer or a context of %d tokens", ErrConfig, m.Name, m.ContextTokens)
		}
		if m.ChatTemplate != "" {
			t, err := newChatTemplate(m)
			if err != nil {
				return nil, fmt.Errorf("%w: chat template of model %s: %w", ErrConfig, m.Name, err)
			}
			s.chat = t
		}
		for _, name := range append([]string{m.Name}, m.Aliases...) {
			if name == "" || c.byName[name] != nil {
				return nil, fmt.Errorf("%w: model name %q is empty or given twice", ErrConfig, name)
			}
			c.byName[name] = s
		}
		c.list = append(c.list, s)
	}
	return c, nil
}

// chatPrompt renders and tokenizes a conversation.
func (m *served) chatPrompt(messages []openai.Message) ([]int32, *openai.Error) {
	if m.chat == nil {
		return nil, openai.InvalidParameter("model", "'%s' has no chat template; use /v1/completions", m.Name)
	}
	messages = slices.Clone(messages)
	for i := range messages {
		messages[i].Content = m.control.mark(messages[i].Content)
	}
	text, err := m.chat.render(messages)
	if err != nil {
		return nil, err
	}
	// A template that writes the first token itself must not get another one.
	addSpecial := m.BOS == "" || !strings.HasPrefix(text, m.BOS)
	if !strings.Contains(text, cut) {
		return m.tokenize("messages", text, addSpecial)
	}
	parts := pieces(text)
	if len(parts) > m.ContextTokens { // each is a token at least
		return nil, openai.ContextLengthExceeded("messages", len(parts), m.ContextTokens)
	}
	var ids []int32
	for i, part := range parts {
		more, err := m.tokenize("messages", part, addSpecial && i == 0)
		if err != nil {
			return nil, err
		}
		ids = append(ids, more...)
	}
	return ids, nil
}

// textPrompt tokenizes the prompt of a completion. It is the whole input of the model, as the client wants it: names of
// control tokens in it are these tokens, so that clients can write their own templates.
func (m *served) textPrompt(text string) ([]int32, *openai.Error) {
	// A tokenizer's time grows with the square of their number: too many for the context are not worth it.
	if n := m.control.count(text); n > m.ContextTokens {
		return nil, openai.ContextLengthExceeded("prompt", n, m.ContextTokens)
	}
	return m.tokenize("prompt", text, true)
}

func (m *served) tokenize(param, text string, addSpecial bool) ([]int32, *openai.Error) {
	ids, err := m.Tokenize(text, addSpecial, true)
	if err != nil {
		return nil, openai.InvalidParameter(param, "it cannot be tokenized")
	}
	if len(ids) == 0 {
		return nil, openai.InvalidParameter(param, "it has no tokens")
	}
	return ids, nil
}

// tokenPrompt checks a prompt of token ids.
func (m *served) tokenPrompt(ids []int32) *openai.Error {
	if m.VocabTokens <= 0 {
		return nil
	}
	for i, id := range ids {
		if int(id) >= m.VocabTokens {
			return openai.InvalidParameter(fmt.Sprintf("prompt[%d]", i), "%d is not in the vocabulary of %d tokens", id, m.VocabTokens)
		}
	}
	return nil
}

// entry is the model in GET /v1/models.
func (m *served) entry(name string) openai.Model {
	return openai.Model{ID: name, Created: m.Created, OwnedBy: "cadence", ContextTokens: m.ContextTokens}
}
