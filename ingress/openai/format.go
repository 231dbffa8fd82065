package openai

import "bytes"

// anyObject is the schema of response_format json_object.
const anyObject = `{"type":"object"}`

const maxSchemaNameBytes = 64

// responseFormat reads what the answer has to look like into Common.Schema. What the schema says is not looked at.
func (p *parser) responseFormat(param string) *Error {
	if p.peek() != kindObject {
		return p.wrongType(param, "an object")
	}
	format, schema, seen := "", []byte(nil), map[string]bool{}
	err := p.object(func(key string) (err *Error) {
		if key != "type" && key != "json_schema" {
			return p.skip()
		}
		if seen[key] {
			return InvalidParameter(param+"."+key, "it is given twice")
		}
		seen[key] = true
		if key == "type" {
			format, err = p.text(param+"."+key, 1, p.limits.BodyBytes)
			return err
		}
		if p.peek() == kindNull {
			return p.literal("null")
		}
		schema, err = p.jsonSchema(param + "." + key)
		return err
	})
	switch {
	case err != nil:
		return err
	case !seen["type"]:
		return MissingParameter(param + ".type")
	case format == "text":
	case format == "json_object":
		p.common.Schema = []byte(anyObject)
	case format != "json_schema":
		return InvalidParameter(param+".type", "unknown format '%s'; 'text', 'json_object' and 'json_schema' are supported", clip(format, maxQuoteBytes))
	case schema == nil:
		return MissingParameter(param + ".json_schema")
	default:
		p.common.Schema = schema
	}
	return nil
}

// jsonSchema reads a named schema and returns its text. strict changes nothing: every schema is kept to.
func (p *parser) jsonSchema(param string) ([]byte, *Error) {
	if p.peek() != kindObject {
		return nil, p.wrongType(param, "an object")
	}
	var text []byte
	seen := map[string]bool{}
	err := p.object(func(key string) (err *Error) {
		path := param + "." + key
		switch key {
		case "name", "strict", "schema":
		default:
			return p.skip()
		}
		if seen[key] {
			return InvalidParameter(path, "it is given twice")
		}
		seen[key] = true
		switch {
		case key == "name":
			_, err = p.text(path, 1, maxSchemaNameBytes)
		case p.peek() == kindNull:
			err = p.literal("null")
		case key == "strict":
			_, err = p.flag(path)
		case p.peek() != kindObject:
			err = p.wrongType(path, "an object")
		default:
			begin := p.pos
			err = p.skip()
			text = bytes.Clone(p.data[begin:p.pos])
		}
		return err
	})
	switch {
	case err != nil:
		return nil, err
	case !seen["name"]:
		return nil, MissingParameter(param + ".name")
	case text == nil:
		return nil, MissingParameter(param + ".schema")
	}
	return text, nil
}
