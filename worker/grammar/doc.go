// Package grammar turns a JSON Schema into a grammar in GBNF, llama.cpp's notation, of which every sentence is a JSON text
// that satisfies the schema. It is pure: one function from bytes to text.
//
// The grammar may have fewer sentences than the schema has instances: properties come in the order in which the schema
// names them, properties that it does not name do not come where it names some, numbers have at most 16 digits, and
// white space is one space or one line break with its indentation. oneOf is anyOf: alternatives that overlap are the
// schema's own fault.
//
// What is understood: type (one or several), enum, const, properties, required, additionalProperties, items, minItems,
// maxItems, minLength, maxLength, format (date, time, date-time, uuid, email, ipv4), minimum, maximum, exclusiveMinimum
// and exclusiveMaximum (whole numbers), anyOf, oneOf, allOf of one, $ref into the same schema (recursion too), $defs and
// definitions. Annotations (title, description, default, …) are skipped. Anything else is an Error that says where: a
// keyword that was skipped silently would be a promise not kept.
//
// Work and output are bounded: see the constants.
package grammar
