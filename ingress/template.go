package ingress

import (
	"errors"

	"github.com/cadence-slo/cadence/ingress/chat"
	"github.com/cadence-slo/cadence/ingress/openai"
)

// chatTemplate turns conversations into prompts.
type chatTemplate struct{ t *chat.Template }

func newChatTemplate(m Model) (*chatTemplate, error) {
	t, err := chat.Compile(m.ChatTemplate, chat.Options{BOS: m.BOS, EOS: m.EOS})
	if err != nil {
		return nil, err
	}
	return &chatTemplate{t}, nil
}

// render returns the prompt of a conversation, ending where the assistant's next turn begins. A conversation that the
// template cannot take is the client's mistake: the same template renders others.
func (t *chatTemplate) render(messages []openai.Message) (string, *openai.Error) {
	turns := make([]chat.Message, len(messages))
	for i, m := range messages {
		role := m.Role
		if role == openai.RoleDeveloper { // OpenAI's newer name; templates know the older
			role = openai.RoleSystem
		}
		turns[i] = chat.Message{Role: string(role), Content: m.Content}
	}
	prompt, err := t.t.Render(turns, true)
	var rejected *chat.RejectedError
	switch {
	case errors.As(err, &rejected):
		return "", openai.InvalidParameter("messages", "the model's chat template refuses them: %s", rejected.Message)
	case err != nil:
		return "", openai.InvalidParameter("messages", "the model's chat template cannot render them")
	}
	return prompt, nil
}
