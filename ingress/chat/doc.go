// Package chat turns a conversation into a prompt with the chat template that a model's metadata carries.
//
// The templates are Jinja in the dialect of Hugging Face's transformers, rendered by gonja with that dialect's
// environment: blocks trimmed, raise_exception, strftime_now, tojson, namespace, loop controls. testdata/golden.json is
// what transformers' own environment makes of the same templates.
//
// A template comes with the model that an operator chose: it is not hostile, but it may be wrong. It cannot read files
// or include others, range and output are bounded, and a panic of the interpreter becomes an error. Loops over what
// clients send are bounded by the request's own limits.
package chat
