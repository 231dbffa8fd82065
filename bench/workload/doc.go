// Package workload makes requests as data: who sends them, which token ids each prompt has, which prefixes are shared, how
// long each answer is, and under which objective.
//
// A [Source] gives the i-th request of a run, always the same one. There are two sorts:
//
//   - A [Spec] says what requests are like: one kind or several, from tenants or from nobody, with objectives by class or
//     without. It is a YAML (or JSON) file that anyone may edit; [Embedded] names those that come with the package. A
//     [Generator] draws from it: the i-th request depends on the spec, the vocabulary, the seed and i alone, so that several
//     servers, or one server in several modes, get exactly the same requests, and any part of a run can be drawn again.
//   - A trace has lengths and times of its own ([Timed]): Azure's, Mooncake's, or a run of ours that was recorded. Its
//     lengths and times are used as they are unless an option says otherwise, and the description tells what was changed.
//
// [OpenSource] opens either by name.
//
// Prompts are token ids drawn at random from the vocabulary: a prompt has exactly the length that was asked for, shares
// nothing by accident, and every server sees the same ids. Answers have a given length (max_tokens with ignore_eos), for a
// server must not win by answering less; Cap is what a client would have sent who does not know that length.
//
// Kind and tenant of a request are drawn apart from its lengths and ids: to change a mixture leaves those as they were.
//
// The package has no clock and does no I/O but to open what has a name. Nothing here is shared between goroutines except
// Sources, which are never changed.
package workload
