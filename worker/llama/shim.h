// The C side of the binding: llama.cpp's calls that can throw, log or need callbacks, in a form that Go can call.
#ifndef CADENCE_SHIM_H
#define CADENCE_SHIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__has_include)
#if !__has_include("llama.h")
#error "llama.h not found: build with `make build`, which sets CGO_CPPFLAGS to the include folders of the llama.cpp module"
#endif
#endif
#include "llama.h"

#ifdef __cplusplus
extern "C" {
#endif

// Room for an error text, terminating zero included. Longer texts are cut.
#define CADENCE_ERROR_BYTES 512

// A C++ exception came out of llama.cpp; the error text is its message.
#define CADENCE_EXCEPTION (-1000)

// Starts llama.cpp and sends its log lines of level INFO and above to goLlamaLog with this handle. backend_dir, unless NULL,
// holds ggml backends to load. Call once per process.
int cadence_init(uintptr_t log_handle, const char * backend_dir, char * error);

// Fills in one device. Returns its type, or -1 when index is out of range. The texts live as long as the process.
int cadence_device(size_t index, const char ** name, const char ** description, size_t * memory_free, size_t * memory_total);

typedef struct cadence_model_options {
    int32_t gpu_layers;
    bool    mmap;
    bool    mlock;
    bool    repack;
    bool    vocab_only;
} cadence_model_options;

// NULL on error. pretokenizer, unless NULL, replaces the file's tokenizer.ggml.pre.
struct llama_model * cadence_model_load(const char * path, cadence_model_options options, const char * pretokenizer, char * error);

typedef struct cadence_context_options {
    uint32_t cells;
    uint32_t batch_tokens;
    uint32_t micro_batch_tokens;
    uint32_t sequences;
    int32_t  threads;
    int32_t  batch_threads;
} cadence_context_options;

// NULL on error. While *abort_flag is not 0, decoding stops; the flag must outlive the context.
struct llama_context * cadence_context_new(struct llama_model * model, cadence_context_options options, int32_t * abort_flag, char * error);

// Like llama_tokenize; CADENCE_EXCEPTION with a text in error when llama.cpp throws.
int32_t cadence_tokenize(const struct llama_vocab * vocab, const char * text, int32_t length, llama_token * tokens, int32_t max_tokens,
                         bool add_special, bool parse_special, char * error);

// Like llama_token_to_piece without leading-space removal.
int32_t cadence_piece(const struct llama_vocab * vocab, llama_token token, char * buffer, int32_t length, bool special);

// Like llama_decode of n tokens. The sequence ids of all tokens lie one after another in sequences, counts[i] of them for token i;
// scratch has room for n pointers.
int32_t cadence_decode(struct llama_context * context, int32_t n, llama_token * tokens, llama_pos * positions, int32_t * counts,
                       llama_seq_id * sequences, int8_t * outputs, llama_seq_id ** scratch, char * error);

// A sequence's place in a grammar. It refers to the vocabulary, which must outlive it.
typedef struct cadence_grammar cadence_grammar;

// NULL on error: the text is no grammar in GBNF with a rule root.
cadence_grammar * cadence_grammar_new(const struct llama_vocab * vocab, const char * gbnf, char * error);
void cadence_grammar_free(cadence_grammar * grammar);

// Sets ok[i] to whether tokens[i] may come next. A token whose bytes would make the text other than UTF-8 may not, nor one that
// has no text, but for the end of generation where the grammar is complete. Returns 0, or CADENCE_EXCEPTION.
int32_t cadence_grammar_allowed(cadence_grammar * grammar, int32_t n, const llama_token * tokens, bool * ok, char * error);

// Moves on by a token. Returns 0, 1 if the token may not come next and nothing has moved, or CADENCE_EXCEPTION.
int32_t cadence_grammar_accept(cadence_grammar * grammar, llama_token token, char * error);

// The operation of attention_linux.cpp alone, for tests: out[token][head] of q[token][head], k and v[cell][group], mask[token][cell] (in half
// precision, 0 or -infinity), each of width floats, by threads one after the other. It returns false if ggml's own operation would be used.
typedef struct {
    int32_t width, tokens, heads, groups, cells, threads;
    float   scale;
} cadence_attention;
bool cadence_attend(cadence_attention x, const float * q, const uint16_t * k, const uint16_t * v, const uint16_t * mask, const int32_t * positions, float * out);

// Reports whether so many bytes, allocated and given back as ggml does, began a large page; for tests. Linux.
bool cadence_large_page(size_t size);

#ifdef __cplusplus
}
#endif

#endif
