package openai

import "strings"

// Role is who a message is from.
type Role string

// The roles.
const (
	RoleSystem    Role = "system"
	RoleDeveloper Role = "developer" // OpenAI's newer name for system
	RoleUser      Role = "user"
	RoleAssistant Role = "assistant"
	RoleTool      Role = "tool"
)

// Message is one turn of a conversation.
type Message struct {
	Role Role
	// Content is the text. Several text parts are joined by a line feed. It may be empty; for an assistant's null it is.
	Content string
	// Name tells apart participants of one role; empty if not given.
	Name string
	// ToolCallID is what a tool's message answers; empty if not given.
	ToolCallID string
}

func (p *parser) messages(out *[]Message) *Error {
	const param = "messages"
	if p.peek() != kindArray {
		return p.wrongType(param, "an array of messages")
	}
	err := p.array(func(i int) *Error {
		if i == p.limits.Messages {
			return InvalidParameter(param, "it has more than %d messages", p.limits.Messages)
		}
		m, err := p.message(path(param, i))
		*out = append(*out, m)
		return err
	})
	if err == nil && len(*out) == 0 {
		err = InvalidParameter(param, "it is empty; give at least one message")
	}
	return err
}

// The keys of a message that are read; other keys are skipped.
const (
	seenRole = 1 << iota
	seenContent
	seenName
	seenToolCallID
	seenToolCalls
	seenFunctionCall
	seenAudio
)

var messageKeys = map[string]uint{
	"role": seenRole, "content": seenContent, "name": seenName, "tool_call_id": seenToolCallID,
	"tool_calls": seenToolCalls, "function_call": seenFunctionCall, "audio": seenAudio,
}

func (p *parser) message(param string) (Message, *Error) {
	if p.peek() != kindObject {
		return Message{}, p.wrongType(param, "an object")
	}
	var m Message
	var seen uint
	null := false // content was null
	err := p.object(func(key string) (err *Error) {
		bit, known := messageKeys[key]
		if !known {
			return p.skip()
		}
		at := param + "." + key
		if seen&bit != 0 {
			return InvalidParameter(at, "it is given twice")
		}
		seen |= bit
		if p.peek() == kindNull {
			if bit == seenRole {
				seen &^= bit
			}
			null = null || bit == seenContent
			return p.literal("null")
		}
		switch bit {
		case seenRole:
			m.Role, err = p.role(at)
		case seenContent:
			m.Content, err = p.content(at)
		case seenName:
			m.Name, err = p.text(at, 0, maxUserBytes)
		case seenToolCallID:
			m.ToolCallID, err = p.text(at, 0, maxUserBytes)
		default:
			var neutral bool
			if neutral, err = p.neutral(); err == nil && !neutral {
				err = Unsupported(at, "only text is supported in messages")
			}
		}
		return err
	})
	switch {
	case err != nil:
		return Message{}, err
	case seen&seenRole == 0:
		return Message{}, MissingParameter(param + ".role")
	case seen&seenContent == 0:
		return Message{}, MissingParameter(param + ".content")
	case null && m.Role != RoleAssistant:
		return Message{}, InvalidParameter(param+".content", "expected a string or an array of text parts, got null, which only an assistant's message may have")
	}
	return m, nil
}

func (p *parser) role(param string) (Role, *Error) {
	s, err := p.text(param, 0, p.limits.BodyBytes)
	if err != nil {
		return "", err
	}
	switch r := Role(s); r {
	case RoleSystem, RoleDeveloper, RoleUser, RoleAssistant, RoleTool:
		return r, nil
	}
	return "", InvalidParameter(param, "unknown role '%s'; expected one of system, developer, user, assistant, tool", clip(s, maxQuoteBytes))
}

// content reads a string, or an array of text parts.
func (p *parser) content(param string) (string, *Error) {
	switch p.peek() {
	case kindString:
		return p.string()
	case kindArray:
	default:
		return "", p.wrongType(param, "a string or an array of text parts")
	}
	var parts []string
	err := p.array(func(i int) *Error {
		s, err := p.part(path(param, i))
		parts = append(parts, s)
		return err
	})
	if err == nil && len(parts) == 0 {
		err = InvalidParameter(param, "it is an empty array; give at least one text part")
	}
	return strings.Join(parts, "\n"), err
}

func (p *parser) part(param string) (string, *Error) {
	if p.peek() != kindObject {
		return "", p.wrongType(param, "an object")
	}
	var kind, text string
	var hasKind, hasText bool
	err := p.object(func(key string) (err *Error) {
		switch {
		case key == "type" && !hasKind:
			hasKind = true
			kind, err = p.text(param+".type", 0, p.limits.BodyBytes)
		case key == "text" && !hasText:
			hasText = true
			text, err = p.text(param+".text", 0, p.limits.BodyBytes)
		case key == "type", key == "text":
			err = InvalidParameter(param+"."+key, "it is given twice")
		default:
			err = p.skip()
		}
		return err
	})
	switch {
	case err != nil:
		return "", err
	case !hasKind:
		return "", MissingParameter(param + ".type")
	case kind != "text":
		return "", Unsupported(param+".type", "'%s' is not supported; only 'text' is", clip(kind, maxQuoteBytes))
	case !hasText:
		return "", MissingParameter(param + ".text")
	}
	return text, nil
}
