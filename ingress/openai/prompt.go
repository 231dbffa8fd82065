package openai

import "math"

// prompt reads a string, an array of one string, an array of token ids, or an array of one array of token ids.
func (p *parser) prompt(req *CompletionRequest) (err *Error) {
	const param = "prompt"
	const want = "a string or an array of token ids"
	switch p.peek() {
	case kindString:
		req.Prompt, err = p.string()
	case kindArray:
		first := kindNone
		err = p.array(func(i int) (err *Error) {
			k := p.peek()
			switch {
			case i == 0:
				first = k
			case first != kindNumber:
				return Unsupported(param, "only one prompt per request is supported")
			case k != kindNumber:
				return p.wrongType(path(param, i), "a token id")
			}
			switch k {
			case kindNumber:
				return p.token(param, i, req)
			case kindString:
				req.Prompt, err = p.string()
				return err
			case kindArray:
				return p.array(func(j int) *Error { return p.token(path(param, 0), j, req) })
			}
			return p.wrongType(path(param, i), want)
		})
	default:
		return p.wrongType(param, want)
	}
	if err == nil && req.Prompt == "" && len(req.PromptTokens) == 0 {
		err = InvalidParameter(param, "it is empty")
	}
	return err
}

// token reads the i-th token id of a prompt.
func (p *parser) token(param string, i int, req *CompletionRequest) *Error {
	if i == p.limits.PromptTokens {
		return InvalidParameter(param, "it has more than %d token ids", p.limits.PromptTokens)
	}
	// The fast way: nearly every element is a few digits.
	if p.peek() == kindNumber {
		id, at := int32(0), p.pos
		for at < len(p.data) && at-p.pos < 9 && p.data[at] >= '0' && p.data[at] <= '9' {
			id = id*10 + int32(p.data[at]-'0')
			at++
		}
		if at > p.pos && at < len(p.data) && (p.data[at] == ',' || p.data[at] == ']') && (p.data[p.pos] != '0' || at == p.pos+1) {
			p.pos = at
			req.PromptTokens = append(req.PromptTokens, id)
			return nil
		}
	}
	const want = "a token id (an integer in [0, 2147483647])"
	v, err := p.integer(path(param, i), 0, want, true)
	if err == nil && v > math.MaxInt32 {
		err = InvalidParameter(path(param, i), "%d is out of range; expected %s", v, want)
	}
	if err != nil {
		return err
	}
	req.PromptTokens = append(req.PromptTokens, int32(v))
	return nil
}
