// Attention of a few new tokens to keys and values that lie in blocks; the body of one kernel.
//
// A threadgroup does one work item for one key/value head: up to Q queries that share this head, over
// a range of one text's positions. Its simdgroups take stretches of STRETCH neighbouring positions in
// turns; each lane holds D / 32 numbers of a head. The softmax runs along (Milakov and Gimelshein,
// 2018, algorithm 3), in float32, and no infinity is computed with. At the end the simdgroups are
// merged through threadgroup memory.
//
// In:   q (N, H, D); plan: work items of ITEM numbers, then block tables (see kernel_work.py);
//       pool0, pool1, ...: segments (2 Hkv, slots, D), the keys of all heads, then the values
// Out:  out (parts, H, D), normalized; stats (parts, H, 2): highest score, sum of exp(score - highest)
// Made for: types T and O (out), ints D, Q, GROUP = H / Hkv, BLOCK, STRETCH (divides BLOCK),
//       SIMDGROUPS, ITEM
    constexpr int each = D / 32;
    const int lane = thread_index_in_simdgroup;
    const int member = simdgroup_index_in_threadgroup;
    const int thread_index = member * 32 + lane;
    const int kv_head = threadgroup_position_in_grid.y;
    const int kv_heads = pool0_shape[0] / 2;
    const size_t heads = size_t(kv_heads) * GROUP;

    const device int* item = plan + threadgroup_position_in_grid.z * ITEM;
    const int first_row = item[0];       // the text's first new token, as a row of q
    const int first_position = item[1];  // and its position in the text
    const int first_query = item[2];     // a text's queries: token by token, GROUP heads each
    const int query_count = item[3];     // of the text, all items
    const int begin = item[4];           // positions [begin, end) are this item's
    const int end = item[5];
    const int window = item[6];          // 0: none
    const int dropped = item[7];         // positions before the table's first block
    const device int* table = plan + item[8];
    const int first_part = item[9];      // where its first token's part goes
    const int parts = item[10];          // in how many parts each token of this text is computed

    const float scale = 1.0f / metal::sqrt(float(D));
    float query[Q][each];
    float mean[Q][each];  // sum of weight * value so far
    float highest[Q];
    float total[Q];       // 0 until a position was seen
    int from[Q];
    int to[Q];
    for (int i = 0; i < Q; i++) {
        // The places beyond the last query repeat it, and are not written.
        const int index = metal::min(first_query + i, query_count - 1);
        const int token = index / GROUP;
        const size_t head = size_t(kv_head) * GROUP + index % GROUP;
        const device T* source = q + ((first_row + token) * heads + head) * D + lane * each;
        for (int e = 0; e < each; e++) {
            query[i][e] = float(source[e]) * scale;
            mean[i][e] = 0.0f;
        }
        highest[i] = 0.0f;
        total[i] = 0.0f;
        to[i] = first_position + token + 1;
        from[i] = window > 0 ? to[i] - window : 0;
    }

    for (int stretch = begin / STRETCH + member; stretch * STRETCH < end; stretch += SIMDGROUPS) {
        const int place = stretch * STRETCH - dropped;
        int slot = table[place / BLOCK] * BLOCK + place % BLOCK;
        const device T* pool = pool0;
        int slots = pool0_shape[1];
        // OTHER SEGMENTS
        const int start = metal::max(begin, stretch * STRETCH);
        const int stop = metal::min(end, (stretch + 1) * STRETCH);
        slot += start - stretch * STRETCH;
        const device T* key = pool + (size_t(kv_head) * slots + slot) * D + lane * each;
        const device T* value = key + size_t(kv_heads) * slots * D;
        for (int position = start; position < stop; position++) {
            float k[each];
            float v[each];
            for (int e = 0; e < each; e++) {
                k[e] = float(key[e]);
                v[e] = float(value[e]);
            }
            for (int i = 0; i < Q; i++) {
                float score = 0.0f;
                for (int e = 0; e < each; e++) {
                    score += query[i][e] * k[e];
                }
                score = simd_sum(score);
                if (position >= from[i] && position < to[i]) {
                    const bool seen = total[i] > 0.0f;
                    const float top = seen ? metal::max(highest[i], score) : score;
                    const float kept = seen ? metal::exp(highest[i] - top) : 0.0f;
                    const float weight = metal::exp(score - top);
                    highest[i] = top;
                    total[i] = total[i] * kept + weight;
                    for (int e = 0; e < each; e++) {
                        mean[i][e] = mean[i][e] * kept + weight * v[e];
                    }
                }
            }
            key += D;
            value += D;
        }
    }

    threadgroup float tops[SIMDGROUPS];
    threadgroup float totals[SIMDGROUPS];
    threadgroup float means[SIMDGROUPS * D];
    for (int i = 0; i < Q; i++) {
        if (lane == 0) {
            tops[member] = highest[i];
            totals[member] = total[i];
        }
        for (int e = 0; e < each; e++) {
            means[member * D + lane * each + e] = mean[i][e];
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        const int index = first_query + i;
        if (index < query_count) {
            float top = 0.0f;
            float sum = 0.0f;  // of all simdgroups, relative to their highest score
            for (int s = 0; s < SIMDGROUPS; s++) {
                if (totals[s] > 0.0f) {
                    const float higher = sum > 0.0f ? metal::max(top, tops[s]) : tops[s];
                    const float kept = sum > 0.0f ? metal::exp(top - higher) : 0.0f;
                    sum = sum * kept + totals[s] * metal::exp(tops[s] - higher);
                    top = higher;
                }
            }
            const size_t part = first_part + (index / GROUP) * parts;
            const size_t place = part * heads + size_t(kv_head) * GROUP + index % GROUP;
            for (int d = thread_index; d < D; d += SIMDGROUPS * 32) {
                float x = 0.0f;
                for (int s = 0; s < SIMDGROUPS; s++) {
                    if (totals[s] > 0.0f) {
                        x += means[s * D + d] * metal::exp(tops[s] - top);
                    }
                }
                out[place * D + d] = O(sum > 0.0f ? x / sum : 0.0f);
            }
            if (thread_index == 0) {
                stats[place * 2] = top;
                stats[place * 2 + 1] = sum;
            }
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);  // before the next query's numbers come
    }
