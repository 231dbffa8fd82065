// Package chat turns a conversation into a prompt with the chat template that a model's metadata carries.
//
// The templates are Jinja in the dialect of Hugging Face's transformers, rendered by gonja with that dialect's
// environment: blocks trimmed, raise_exception, strftime_now, tojson, namespace, loop controls. testdata/golden.json is
// what transformers' own environment makes of the same templates.
//
// A template comes with the model that an operator chose: it is not hostile, but it may be wrong. It cannot read files
// or include others; its size, nesting, loops, macros, assigned values and output are bounded; and a panic of the
// interpreter becomes an error. What one expression makes is not bounded ('x' * 10 ** 10): gonja has no place for that.
//
// gonja's grammar has no conditional expression in brackets: a template with one does not compile. Its lstrip_blocks would
// also take the white space between two tags of one line; Compile marks such tags so that it stays.
package chat
