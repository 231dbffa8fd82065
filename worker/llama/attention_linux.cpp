//go:build llama && cgo

// Attention of a batch over the unified cache, in the place of ggml's own operation (see the linker flags in attention_linux.go).
//
// All sequences share one cache, and each token attends to a few of its cells: those of its own sequence. ggml's operation
// asks the mask about every cell in use, again for each head, and adds values up in half precision. This one reads a
// token's mask once, makes a list of the cells that count, and computes on those alone, in single precision. Tokens that
// follow each other in a sequence (a chunk of a prompt) are computed together, so that keys and values are read and
// converted once for all of them. The arithmetic is that of Dao et al., FlashAttention (2022), algorithm 1: one pass over
// blocks of cells with a running maximum.
//
// A list is in the order of positions, wherever in the cache the cells lie, so that what a token comes to depends on its
// own sequence alone, to the last bit: not on who else runs, on what was cached, or on how a prompt was cut. The
// positions are noted when keys are stored. Where they are not what is expected (keys that are not rotated, or by several
// positions; sliding windows; a first layer without attention) the order is that of cells, and only that is lost.

// Comparisons are not expected to trap: with that the compiler may vectorise those that choose between numbers.
#pragma GCC optimize("no-trapping-math")

#include "shim.h"

#include "ggml-cpu.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#if defined(__AVX2__) || defined(__F16C__)
#include <immintrin.h>
#endif

// The head of ggml's own struct (ggml-cpu-impl.h): all that is used here.
struct ggml_compute_params {
    int ith, nth; // this thread, of how many
};

extern "C" {
void __real_ggml_compute_forward_flash_attn_ext(const ggml_compute_params * params, ggml_tensor * dst);
void __wrap_ggml_compute_forward_flash_attn_ext(const ggml_compute_params * params, ggml_tensor * dst);
void __real_ggml_compute_forward_set_rows(const ggml_compute_params * params, ggml_tensor * dst);
void __wrap_ggml_compute_forward_set_rows(const ggml_compute_params * params, ggml_tensor * dst);
}

namespace {

constexpr int      block    = 64; // cells at a time
constexpr int      tile     = 32; // tokens computed together, at most
constexpr int      lanes    = 16;
constexpr int      widest   = 256; // of a head
constexpr uint16_t negative = 0xFC00; // -infinity in half precision
constexpr int32_t  minus_infinity = static_cast<int32_t>(0xFF800000); // in single precision

// Powers of e for x ≤ 0, to 2 units in the last place; a loop over it is vectorised. Cephes' expf.
inline float power(float x) {
    x             = x < -87.0f ? -87.0f : x; // a NaN stays one
    const float n = static_cast<float>(static_cast<int32_t>(x * 1.44269504f - 0.5f));
    const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    float       p = 1.9875691500e-4f;
    p             = p * r + 1.3981999507e-3f;
    p             = p * r + 8.3334519073e-3f;
    p             = p * r + 4.1665795894e-2f;
    p             = p * r + 1.6666665459e-1f;
    p             = p * r + 5.0000001201e-1f;
    p             = p * r * r + r + 1.0f;
    const int32_t bits = (static_cast<int32_t>(n) + 127) << 23;
    float         scale;
    std::memcpy(&scale, &bits, sizeof scale);
    return p * scale;
}

// convert widens n values, a multiple of the lanes.
inline void convert(const void * from, float * to, int n) {
    const auto * x = static_cast<const ggml_fp16_t *>(from);
#if defined(__AVX512F__)
    for (int i = 0; i < n; i += 16) {
        _mm512_storeu_ps(to + i, _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i *>(x + i))));
    }
#elif defined(__F16C__)
    for (int i = 0; i < n; i += 8) {
        _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i *>(x + i))));
    }
#else
    ggml_cpu_fp16_to_fp32(x, to, n);
#endif
}

#if defined(__AVX2__)
// pairs adds up eight lanes: halves, then halves of these.
inline float pairs(__m256 eight) {
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two  = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}
#endif

// dot adds up in lanes, and these in pairs. So does score, for many queries at once: both come to the same bits, as long as the
// compiler contracts score's products and sums into one operation each, which it does unless told not to (-ffp-contract=off).
inline float dot(const float * a, const float * b, int n) {
#if defined(__AVX512F__)
    __m512 sum = _mm512_setzero_ps();
    for (int i = 0; i < n; i += lanes) {
        sum = _mm512_fmadd_ps(_mm512_loadu_ps(a + i), _mm512_loadu_ps(b + i), sum);
    }
    return pairs(_mm256_add_ps(_mm512_castps512_ps256(sum), _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(sum), 1))));
#elif defined(__AVX2__) && defined(__FMA__)
    __m256 low = _mm256_setzero_ps(), high = _mm256_setzero_ps();
    for (int i = 0; i < n; i += lanes) {
        low  = _mm256_fmadd_ps(_mm256_loadu_ps(a + i), _mm256_loadu_ps(b + i), low);
        high = _mm256_fmadd_ps(_mm256_loadu_ps(a + i + 8), _mm256_loadu_ps(b + i + 8), high);
    }
    return pairs(_mm256_add_ps(low, high));
#else
    float sum[lanes] = {};
    for (int i = 0; i < n; i += lanes) {
        for (int l = 0; l < lanes; ++l) {
            sum[l] += a[i + l] * b[i + l];
        }
    }
    for (int width = lanes / 2; width > 0; width /= 2) {
        for (int l = 0; l < width; ++l) {
            sum[l] += sum[l + width];
        }
    }
    return sum[0];
#endif
}

// Positions of the cells of caches, by the buffer that a cache lies in. An entry outlives its cache; what is used
// again is written before it is read. A step writes an entry in one operation and reads it in later ones; the mutex
// guards the map, for there may be several engines.
std::mutex                                     guard;
std::map<const void *, std::vector<int32_t>> caches;

std::vector<int32_t> & positions_of(const ggml_tensor * cache) {
    const std::lock_guard<std::mutex> lock(guard);
    return caches[cache->buffer];
}

// What one thread needs; kept between calls.
struct scratch {
    std::vector<uint16_t> any;           // by cell: all ones if the last token of the tile attends to it
    std::vector<int32_t>  cells, sorted; // those
    std::vector<float>   q, out;          // by row (token, head): scaled query, sum of values
    std::vector<float>   score;           // by row and cell of the block
    std::vector<float>   most, sum, left; // by row: largest score, sum of weights, factor of what was summed before
    float                key[block * widest];   // by cell, or for many rows by dimension, then cell
    float                value[block * widest]; // by cell
    float                one[widest];
};

struct attention {
    const ggml_tensor * q;
    const ggml_tensor * k;
    const ggml_tensor * v;
    const ggml_tensor * mask;
    ggml_tensor *       dst;
    float               scale;
    const int32_t *     positions; // by cell; null: unknown
    int                 dk, dv, tokens, heads, groups, share, span; // share: heads of one group; span: cells to look at

    const uint16_t * masked(int token) const {
        return reinterpret_cast<const uint16_t *>(static_cast<const char *>(mask->data) + token * mask->nb[1]);
    }

    // look fills s.any with the cells that a token attends to, and returns how many they are.
    int look(scratch & s, int token) const {
        const uint16_t * m     = masked(token);
        int              count = 0;
        s.any.resize(span + 3); // for list
        for (int c = 0; c < span; ++c) {
            s.any[c] = m[c] == negative ? 0 : 0xFFFF;
            count += m[c] != negative;
        }
        std::fill(s.any.begin() + span, s.any.end(), 0);
        return count;
    }

    // follows reports whether a token attends to all that is in s.any and to one cell more, which it adds to it. seen is one
    // of those in s.any.
    bool follows(scratch & s, int token, int seen) const {
        const uint16_t * m = masked(token);
        if (m[seen] == negative) {
            return false;
        }
        uint16_t lost  = 0;
        int      added = 0;
        for (int c = 0; c < span; ++c) {
            const uint16_t yes = m[c] == negative ? 0 : 0xFFFF;
            lost |= s.any[c] & ~yes;
            added += (yes & ~s.any[c]) != 0;
        }
        if (lost != 0 || added != 1) {
            return false;
        }
        int c = 0;
        while (m[c] == negative || s.any[c] != 0) {
            ++c;
        }
        s.any[c] = 0xFFFF;
        return true;
    }

    // list fills s.cells with the cells in s.any, count of them, in order of their positions.
    void list(scratch & s, int count) const {
        s.cells.clear();
        for (int first = 0; first < span; first += 4) { // most are other sequences'
            uint64_t four;
            std::memcpy(&four, &s.any[first], sizeof four);
            for (int c = first; four != 0 && c < first + 4; ++c) {
                if (s.any[c] != 0) {
                    s.cells.push_back(c);
                }
            }
        }
        if (positions == nullptr) {
            return;
        }
        s.sorted.assign(count, -1);
        for (const int32_t c : s.cells) {
            const int32_t at = positions[c];
            if (at < 0 || at >= count || s.sorted[at] >= 0) {
                return; // not one cell for each position from 0 on
            }
            s.sorted[at] = c;
        }
        s.cells.swap(s.sorted);
    }

    const char * at(const ggml_tensor * x, int cell, int group) const {
        return static_cast<const char *>(x->data) + cell * x->nb[1] + group * x->nb[2];
    }

    // fetch brings a cell's key and value near.
    void fetch(int cell, int group) const {
        const char * key   = at(k, cell, group);
        const char * value = at(v, cell, group);
        for (int b = 0; b < 2 * dk; b += 64) {
            __builtin_prefetch(key + b);
        }
        for (int b = 0; b < 2 * dv; b += 64) {
            __builtin_prefetch(value + b);
        }
    }

    // attend computes tokens [from, to) for one group of heads over s.cells. after is the group that this thread computes next.
    void attend(scratch & s, int from, int to, int group, int after) const {
        const int  rows = (to - from) * share;
        const bool many = rows >= lanes; // worth turning the keys around
        s.q.resize(rows * dk);
        s.out.assign(rows * dv, 0.0f);
        s.score.resize(rows * block);
        s.most.assign(rows, -INFINITY);
        s.sum.assign(rows, 0.0f);
        s.left.resize(rows);
        for (int r = 0; r < rows; ++r) {
            const char * query = static_cast<const char *>(q->data) + (from + r / share) * q->nb[1] + (group * share + r % share) * q->nb[2];
            for (int d = 0; d < dk; ++d) {
                s.q[r * dk + d] = reinterpret_cast<const float *>(query)[d] * scale;
            }
        }
        const int all = static_cast<int>(s.cells.size());
        for (int first = 0; first < all; first += block) {
            const int n = std::min(block, all - first);
            for (int j = 0; j < n; ++j) {
                const int cell = s.cells[first + j];
                float *   key  = many ? s.one : s.key + j * dk;
                if (first + block + j < all) { // a block ahead, in time and too far apart for the processor to guess
                    fetch(s.cells[first + block + j], group);
                } else if (after < groups) {
                    fetch(s.cells[j], after);
                }
                convert(at(k, cell, group), key, dk);
                convert(at(v, cell, group), s.value + j * dv, dv);
                for (int d = 0; many && d < dk; ++d) {
                    s.key[d * block + j] = key[d];
                }
            }
            if (many) {
                score(s, rows);
            } else {
                for (int r = 0; r < rows; ++r) {
                    for (int j = 0; j < n; ++j) {
                        s.score[r * block + j] = dot(&s.q[r * dk], s.key + j * dk, dk);
                    }
                }
            }
            weigh(s, from, rows, first, n);
            for (int r = 0; r < rows; r += 4) {
                sum_values(s, r, std::min(r + 4, rows), n);
            }
        }
        for (int r = 0; r < rows; ++r) {
            const int   token = from + r / share, head = group * share + r % share;
            float *     to_dst = reinterpret_cast<float *>(static_cast<char *>(dst->data) + (static_cast<size_t>(token) * heads + head) * dst->nb[1]);
            const float inverse = s.sum[r] > 0 ? 1 / s.sum[r] : 0.0f;
            for (int d = 0; d < dv; ++d) {
                to_dst[d] = s.out[r * dv + d] * inverse;
            }
        }
    }

    // score multiplies the queries with a block of keys that lie by dimension, two rows at a time.
    void score(scratch & s, int rows) const {
        constexpr int half = lanes / 2;
        for (int r = 0; r < rows; r += 2) {
            const int     second = std::min(r + 1, rows - 1);
            const float * q0     = &s.q[r * dk];
            const float * q1     = &s.q[second * dk];
            float         sum0[half][block], sum1[half][block];
            for (int l = 0; l < half; ++l) {
                float a0[block] = {}, a1[block] = {}, b0[block] = {}, b1[block] = {};
                for (int d = l; d < dk; d += lanes) {
                    const float * ka = s.key + d * block;
                    const float * kb = s.key + (d + half) * block;
                    for (int j = 0; j < block; ++j) {
                        a0[j] += q0[d] * ka[j];
                        a1[j] += q1[d] * ka[j];
                        b0[j] += q0[d + half] * kb[j];
                        b1[j] += q1[d + half] * kb[j];
                    }
                }
                for (int j = 0; j < block; ++j) {
                    sum0[l][j] = a0[j] + b0[j];
                    sum1[l][j] = a1[j] + b1[j];
                }
            }
            for (int width = half / 2; width > 0; width /= 2) {
                for (int l = 0; l < width; ++l) {
                    for (int j = 0; j < block; ++j) {
                        sum0[l][j] += sum0[l + width][j];
                        sum1[l][j] += sum1[l + width][j];
                    }
                }
            }
            std::memcpy(&s.score[r * block], sum0[0], sizeof sum0[0]);
            std::memcpy(&s.score[second * block], second == r ? sum0[0] : sum1[0], sizeof sum1[0]);
        }
    }

    // weigh turns the scores of a block into weights, 0 where the mask says so.
    void weigh(scratch & s, int from, int rows, int first, int n) const {
        for (int r = 0; r < rows; ++r) {
            const uint16_t * m     = masked(from + r / share);
            float *          score = &s.score[r * block];
            float            most  = s.most[r];
            for (int j = 0; j < n && rows > share; ++j) { // a token alone sees all that is on its list
                score[j] = m[s.cells[first + j]] == negative ? -INFINITY : score[j];
            }
            std::fill(score + n, score + block, -INFINITY);
            float high[lanes]; // loops without order between their turns are vectorised
            std::fill(high, high + lanes, most);
            for (int j = 0; j < block; j += lanes) {
                for (int l = 0; l < lanes; ++l) {
                    high[l] = score[j + l] > high[l] ? score[j + l] : high[l];
                }
            }
            for (const float h : high) {
                most = std::max(most, h);
            }
            const float base = most == -INFINITY ? 0.0f : most;
            float       sum  = 0;
            for (int j = 0; j < block; ++j) {
                const float w = power(score[j] - base);
                int32_t     bits, weight;
                std::memcpy(&bits, &score[j], sizeof bits);
                std::memcpy(&weight, &w, sizeof weight);
                weight &= -static_cast<int32_t>(bits != minus_infinity);
                std::memcpy(&score[j], &weight, sizeof weight);
            }
            for (int j = 0; j < n; ++j) {
                sum += score[j];
            }
            s.left[r] = s.most[r] == -INFINITY ? 0.0f : power(s.most[r] - base);
            s.sum[r]  = s.sum[r] * s.left[r] + sum;
            s.most[r] = most;
        }
    }

    // sum_values adds the weighted values of a block to rows [from, to), at most four.
    void sum_values(scratch & s, int from, int to, int n) const {
        for (int d0 = 0; d0 < dv; d0 += lanes * 2) {
            float sum[4][lanes * 2] = {};
            for (int r = from; r < to; ++r) {
                for (int d = 0; d < lanes * 2; ++d) {
                    sum[r - from][d] = s.out[r * dv + d0 + d] * s.left[r];
                }
            }
            const float * w0 = &s.score[from * block];
            const float * w1 = &s.score[std::min(from + 1, to - 1) * block];
            const float * w2 = &s.score[std::min(from + 2, to - 1) * block];
            const float * w3 = &s.score[std::min(from + 3, to - 1) * block];
            for (int j = 0; j < n; ++j) {
                const float * value = s.value + j * dv + d0;
                for (int d = 0; d < lanes * 2; ++d) {
                    sum[0][d] += w0[j] * value[d];
                    sum[1][d] += w1[j] * value[d];
                    sum[2][d] += w2[j] * value[d];
                    sum[3][d] += w3[j] * value[d];
                }
            }
            for (int r = from; r < to; ++r) {
                std::memcpy(&s.out[r * dv + d0], sum[r - from], sizeof sum[0]);
            }
        }
    }
};

// describe reads the operation, and reports whether it is one that is computed here.
bool describe(const ggml_tensor * dst, attention & a) {
    a.q = dst->src[0];
    a.k = dst->src[1];
    a.v = dst->src[2];
    a.mask = dst->src[3];
    a.dst  = const_cast<ggml_tensor *>(dst);
    float bias, cap;
    std::memcpy(&a.scale, dst->op_params, sizeof a.scale);
    std::memcpy(&bias, dst->op_params + 1, sizeof bias);
    std::memcpy(&cap, dst->op_params + 2, sizeof cap);
    if (bias != 0 || cap != 0 || a.mask == nullptr || dst->src[4] != nullptr || a.q->type != GGML_TYPE_F32 || a.k->type != GGML_TYPE_F16 ||
        a.v->type != GGML_TYPE_F16 || a.mask->type != GGML_TYPE_F16 || a.q->ne[3] != 1 || a.k->ne[3] != 1 || a.mask->ne[2] != 1) {
        return false;
    }
    a.dk     = static_cast<int>(a.k->ne[0]);
    a.dv     = static_cast<int>(a.v->ne[0]);
    a.tokens = static_cast<int>(a.q->ne[1]);
    a.heads  = static_cast<int>(a.q->ne[2]);
    a.groups = static_cast<int>(a.k->ne[2]);
    a.span   = static_cast<int>(a.k->ne[1]);
    if (a.dk % lanes != 0 || a.dv % (2 * lanes) != 0 || a.dk > widest || a.dv > widest || a.groups == 0 || a.heads % a.groups != 0 || a.v->ne[2] != a.groups) {
        return false;
    }
    a.share     = a.heads / a.groups;
    a.positions = nullptr;
    return true;
}

// compute does this thread's part of an operation.
void compute(const attention & a, const ggml_compute_params * params) {
    static thread_local scratch s;
    int unit = 0; // of work: a tile and a group of heads
    for (int from = 0, to; from < a.tokens; from = to) {
        int count = a.look(s, from);
        to        = from + 1;
        if (count > 0) {
            const int seen = static_cast<int>(std::find(s.any.begin(), s.any.end(), 0xFFFF) - s.any.begin());
            while (to < a.tokens && to - from < tile && a.follows(s, to, seen)) {
                ++to;
                ++count;
            }
        }
        a.list(s, count);
        for (int group = 0; group < a.groups; ++group) {
            if (unit++ % params->nth == params->ith) {
                a.attend(s, from, to, group, group + params->nth);
            }
        }
    }
}

} // namespace

void __wrap_ggml_compute_forward_flash_attn_ext(const ggml_compute_params * params, ggml_tensor * dst) {
    attention a;
    if (!describe(dst, a)) {
        __real_ggml_compute_forward_flash_attn_ext(params, dst);
        return;
    }
    if (const ggml_tensor * cache = a.k->view_src; cache != nullptr && cache->buffer != nullptr) {
        const std::vector<int32_t> & all = positions_of(cache);
        a.positions = static_cast<int>(all.size()) >= a.span ? all.data() : nullptr;
    }
    compute(a, params);
}

// Keys are stored after they were rotated by their positions, which are an operand of that.
void __wrap_ggml_compute_forward_set_rows(const ggml_compute_params * params, ggml_tensor * dst) {
    __real_ggml_compute_forward_set_rows(params, dst);
    const ggml_tensor * cache = dst->view_src;
    const ggml_tensor * rows  = dst->src[1];
    // One layer tells for all; the positions are not kept until the last one.
    if (params->ith != 0 || cache == nullptr || std::strcmp(cache->name, "cache_k_l0") != 0 || rows->type != GGML_TYPE_I64) {
        return;
    }
    const ggml_tensor * key = dst->src[0];
    while (key != nullptr && (key->op == GGML_OP_VIEW || key->op == GGML_OP_RESHAPE)) {
        key = key->src[0];
    }
    if (key == nullptr || key->op != GGML_OP_ROPE || key->src[1]->type != GGML_TYPE_I32 || key->src[1]->ne[0] != rows->ne[0]) {
        return;
    }
    std::vector<int32_t> & all = positions_of(cache);
    all.resize(ggml_nrows(cache), -1);
    for (int64_t i = 0; i < rows->ne[0]; ++i) {
        all[static_cast<const int64_t *>(rows->data)[i]] = static_cast<const int32_t *>(key->src[1]->data)[i];
    }
}

bool cadence_attend(cadence_attention x, const float * q, const uint16_t * k, const uint16_t * v, const uint16_t * mask, const int32_t * positions, float * out) {
    ggml_tensor query = {}, key = {}, value = {}, allowed = {}, dst = {};
    const auto  shape = [](ggml_tensor & t, ggml_type type, const void * data, int64_t width, int64_t rows, int64_t planes, size_t row, size_t plane) {
        t.type  = type;
        t.data  = const_cast<void *>(data);
        t.ne[0] = width, t.ne[1] = rows, t.ne[2] = planes, t.ne[3] = 1;
        t.nb[0] = ggml_type_size(type), t.nb[1] = row, t.nb[2] = plane, t.nb[3] = 0;
    };
    shape(query, GGML_TYPE_F32, q, x.width, x.tokens, x.heads, sizeof(float) * x.width * x.heads, sizeof(float) * x.width);
    shape(key, GGML_TYPE_F16, k, x.width, x.cells, x.groups, 2 * x.width * x.groups, 2 * x.width);
    shape(value, GGML_TYPE_F16, v, x.width, x.cells, x.groups, 2 * x.width * x.groups, 2 * x.width);
    shape(allowed, GGML_TYPE_F16, mask, x.cells, x.tokens, 1, 2 * x.cells, 2 * x.cells * x.tokens);
    shape(dst, GGML_TYPE_F32, out, x.width, x.heads, x.tokens, sizeof(float) * x.width, sizeof(float) * x.width * x.heads);
    dst.src[0] = &query, dst.src[1] = &key, dst.src[2] = &value, dst.src[3] = &allowed;
    std::memcpy(dst.op_params, &x.scale, sizeof x.scale);
    attention a;
    if (!describe(&dst, a)) {
        return false;
    }
    a.positions = positions;
    for (int i = 0; i < x.threads; ++i) {
        const ggml_compute_params params = {i, x.threads};
        compute(a, &params);
    }
    return true;
}
