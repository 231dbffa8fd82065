//go:build llama && cgo

#include "shim.h"

#include <cmath>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

// Layouts that this file and llama.cpp's objects must agree on: another version's headers on the include path would corrupt memory silently.
static_assert(sizeof(llama_batch) == 56, "llama_batch: headers and objects are of different versions");
static_assert(sizeof(llama_model_params) == 72, "llama_model_params: headers and objects are of different versions");
static_assert(sizeof(llama_context_params) == 120, "llama_context_params: headers and objects are of different versions");
static_assert(sizeof(llama_token) == 4 && sizeof(llama_pos) == 4 && sizeof(llama_seq_id) == 4, "Go passes these as int32");

extern "C" void goLlamaLog(uintptr_t handle, int level, char * text);

namespace {

uintptr_t log_handle; // set once by cadence_init, before any other thread exists that could log

thread_local std::string line;            // the log line under way on this thread
thread_local int         line_level = 0;  // its level
thread_local bool        in_call    = false; // errors are collected for the caller, who returns them
thread_local int         warn_as    = GGML_LOG_LEVEL_WARN; // how warnings during the call are logged
thread_local std::string call_error;      // what llama.cpp logged as an error during the call

void forward(int level, std::string & text) {
    if (level >= GGML_LOG_LEVEL_INFO && !text.empty()) {
        goLlamaLog(log_handle, level, text.data());
    }
    text.clear();
}

// Pieces of a line arrive one by one, continuations with a level of their own.
void on_log(ggml_log_level level, const char * text, void *) {
    if (level != GGML_LOG_LEVEL_CONT) {
        line_level = level;
    }
    for (const char * c = text; *c != '\0'; ++c) {
        if (*c != '\n') {
            line.push_back(*c);
            continue;
        }
        if (in_call && line_level == GGML_LOG_LEVEL_ERROR) {
            if (!call_error.empty()) {
                call_error += "; ";
            }
            call_error += line;
            forward(GGML_LOG_LEVEL_INFO, line);
        } else {
            forward(in_call && line_level == GGML_LOG_LEVEL_WARN ? warn_as : line_level, line);
        }
    }
}

// The process ends right after this call; say why in the log and, should that be buffered, on standard error.
void on_abort(const char * message) {
    fprintf(stderr, "llama.cpp aborts: %s\n", message);
    std::string text = std::string("llama.cpp aborts: ") + message;
    forward(GGML_LOG_LEVEL_ERROR, text);
}

void put_error(char * error, const std::string & text) {
    snprintf(error, CADENCE_ERROR_BYTES, "%s", text.c_str());
}

bool abort_requested(void * flag) {
    return __atomic_load_n(static_cast<int32_t *>(flag), __ATOMIC_RELAXED) != 0;
}

// Runs body with its error lines collected; no exception leaves. Returns failed when one was caught.
template <typename F, typename R> R guarded(char * error, R failed, int warnings, F body) {
    error[0] = '\0';
    warn_as  = warnings;
    call_error.clear();
    in_call = true;
    R result = failed;
    try {
        result = body();
    } catch (const std::exception & e) {
        call_error = std::string("C++ exception: ") + e.what();
    } catch (...) {
        call_error = "unknown C++ exception";
    }
    in_call = false;
    put_error(error, call_error);
    return result;
}

// utf8 follows the bytes of a text: how many more its last character needs, and the range of the next one (Unicode table 3-7).
struct utf8 {
    uint8_t need = 0;
    uint8_t low  = 0x80;
    uint8_t high = 0xBF;

    // Returns false for a byte that cannot come.
    bool next(uint8_t c) {
        if (need > 0) {
            if (c < low || c > high) {
                return false;
            }
            --need;
            low  = 0x80;
            high = 0xBF;
            return true;
        }
        if (c < 0x80) {
            return true;
        }
        if (c < 0xC2 || c > 0xF4) {
            return false;
        }
        need = c < 0xE0 ? 1 : c < 0xF0 ? 2 : 3;
        low  = c == 0xE0 ? 0xA0 : c == 0xF0 ? 0x90 : 0x80;
        high = c == 0xED ? 0x9F : c == 0xF4 ? 0x8F : 0xBF;
        return true;
    }
};

// piece puts the bytes of a token, as a client sees them, into text.
void piece(const llama_vocab * vocab, llama_token token, std::string & text) {
    text.resize(text.capacity());
    int32_t n = llama_token_to_piece(vocab, token, &text[0], int32_t(text.size()), 0, false);
    if (n < 0) {
        text.resize(-n);
        n = llama_token_to_piece(vocab, token, &text[0], int32_t(text.size()), 0, false);
    }
    text.resize(n < 0 ? 0 : n);
}

} // namespace

int cadence_init(uintptr_t handle, const char * backend_dir, char * error) {
    log_handle = handle;
    llama_log_set(on_log, nullptr);
    ggml_set_abort_callback(on_abort);
    return guarded(error, CADENCE_EXCEPTION, GGML_LOG_LEVEL_WARN, [&] {
        if (backend_dir != nullptr) {
            ggml_backend_load_all_from_path(backend_dir);
        }
        llama_backend_init();
        return 0;
    });
}

int cadence_device(size_t index, const char ** name, const char ** description, size_t * memory_free, size_t * memory_total) {
    if (index >= ggml_backend_dev_count()) {
        return -1;
    }
    ggml_backend_dev_t device = ggml_backend_dev_get(index);
    *name        = ggml_backend_dev_name(device);
    *description = ggml_backend_dev_description(device);
    ggml_backend_dev_memory(device, memory_free, memory_total);
    return ggml_backend_dev_type(device);
}

llama_model * cadence_model_load(const char * path, cadence_model_options options, const char * pretokenizer, char * error) {
    return guarded(error, static_cast<llama_model *>(nullptr), GGML_LOG_LEVEL_WARN, [&] {
        llama_model_params params = llama_model_default_params();
        params.n_gpu_layers    = options.gpu_layers;
        params.use_mmap        = options.mmap;
        params.use_mlock       = options.mlock;
        params.use_extra_bufts = options.repack;
        params.vocab_only      = options.vocab_only;
        llama_model_kv_override overrides[2] = {}; // ends with an empty key
        if (pretokenizer != nullptr) {
            overrides[0].tag = LLAMA_KV_OVERRIDE_TYPE_STR;
            snprintf(overrides[0].key, sizeof(overrides[0].key), "%s", "tokenizer.ggml.pre");
            snprintf(overrides[0].val_str, sizeof(overrides[0].val_str), "%s", pretokenizer);
            params.kv_overrides = overrides;
        }
        return llama_model_load_from_file(path, params);
    });
}

llama_context * cadence_context_new(llama_model * model, cadence_context_options options, int32_t * abort_flag, char * error) {
    // Expected: a context smaller than the one trained for.
    return guarded(error, static_cast<llama_context *>(nullptr), GGML_LOG_LEVEL_INFO, [&] {
        llama_context_params params = llama_context_default_params();
        params.n_ctx               = options.cells;
        params.n_batch             = options.batch_tokens;
        params.n_ubatch            = options.micro_batch_tokens;
        params.n_seq_max           = options.sequences;
        params.n_threads           = options.threads;
        params.n_threads_batch     = options.batch_threads;
        params.flash_attn_type     = LLAMA_FLASH_ATTN_TYPE_AUTO;
        params.kv_unified          = true;
        params.abort_callback      = abort_requested;
        params.abort_callback_data = abort_flag;
        return llama_init_from_model(model, params);
    });
}

int32_t cadence_tokenize(const llama_vocab * vocab, const char * text, int32_t length, llama_token * tokens, int32_t max_tokens,
                         bool add_special, bool parse_special, char * error) {
    return guarded(error, int32_t(CADENCE_EXCEPTION), GGML_LOG_LEVEL_INFO, [&] {
        return llama_tokenize(vocab, text, length, tokens, max_tokens, add_special, parse_special);
    });
}

int32_t cadence_piece(const llama_vocab * vocab, llama_token token, char * buffer, int32_t length, bool special) {
    return llama_token_to_piece(vocab, token, buffer, length, 0, special);
}

int32_t cadence_decode(llama_context * context, int32_t n, llama_token * tokens, llama_pos * positions, int32_t * counts,
                       llama_seq_id * sequences, int8_t * outputs, llama_seq_id ** scratch, char * error) {
    for (int32_t i = 0; i < n; ++i) {
        scratch[i] = sequences;
        sequences += counts[i];
    }
    llama_batch batch = {n, tokens, nullptr, positions, counts, scratch, outputs};
    return guarded(error, int32_t(CADENCE_EXCEPTION), GGML_LOG_LEVEL_INFO, [&] { return llama_decode(context, batch); });
}

struct cadence_grammar {
    const llama_vocab *           vocab;
    llama_sampler *               sampler;
    utf8                          state;
    std::string                   text;       // scratch
    std::vector<llama_token_data> candidates; // scratch

    // allowed asks llama.cpp, whose decoder takes more for UTF-8 than is, and whose pieces of control tokens are their names.
    void allowed(int32_t n, const llama_token * tokens, bool * ok) {
        candidates.resize(n);
        for (int32_t i = 0; i < n; ++i) {
            candidates[i] = {tokens[i], 0.0f, 0.0f};
        }
        llama_token_data_array array = {candidates.data(), candidates.size(), -1, false};
        llama_sampler_apply(sampler, &array);
        for (int32_t i = 0; i < n; ++i) {
            ok[i] = !std::isinf(candidates[i].logit) && (llama_vocab_is_eog(vocab, tokens[i]) ? state.need == 0 : readable(tokens[i]));
        }
    }

    bool readable(llama_token token) {
        piece(vocab, token, text);
        utf8 s = state;
        for (char c : text) {
            if (!s.next(uint8_t(c))) {
                return false;
            }
        }
        return !text.empty();
    }
};

cadence_grammar * cadence_grammar_new(const llama_vocab * vocab, const char * gbnf, char * error) {
    return guarded(error, static_cast<cadence_grammar *>(nullptr), GGML_LOG_LEVEL_INFO, [&]() -> cadence_grammar * {
        llama_sampler * sampler = llama_sampler_init_grammar(vocab, gbnf, "root");
        if (sampler == nullptr) {
            return nullptr;
        }
        auto * grammar    = new cadence_grammar;
        grammar->vocab    = vocab;
        grammar->sampler  = sampler;
        grammar->text.reserve(64);
        return grammar;
    });
}

void cadence_grammar_free(cadence_grammar * grammar) {
    llama_sampler_free(grammar->sampler);
    delete grammar;
}

int32_t cadence_grammar_allowed(cadence_grammar * grammar, int32_t n, const llama_token * tokens, bool * ok, char * error) {
    return guarded(error, int32_t(CADENCE_EXCEPTION), GGML_LOG_LEVEL_INFO, [&] {
        grammar->allowed(n, tokens, ok);
        return 0;
    });
}

int32_t cadence_grammar_accept(cadence_grammar * grammar, llama_token token, char * error) {
    return guarded(error, int32_t(CADENCE_EXCEPTION), GGML_LOG_LEVEL_INFO, [&] {
        bool ok = false;
        grammar->allowed(1, &token, &ok); // llama.cpp aborts on a token that may not come
        if (!ok) {
            return 1;
        }
        llama_sampler_accept(grammar->sampler, token);
        if (!llama_vocab_is_eog(grammar->vocab, token)) {
            piece(grammar->vocab, token, grammar->text);
            for (char c : grammar->text) {
                grammar->state.next(uint8_t(c));
            }
        }
        return 0;
    });
}
