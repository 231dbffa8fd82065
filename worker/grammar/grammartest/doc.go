// Package grammartest has what tests of grammars need: a check of values against a JSON Schema and of texts that were cut
// off, random sentences of a grammar, and a recognizer. It is slow and simple.
package grammartest
