// Attention over parts of a text -> over all of it; the body of one kernel. One simdgroup does one
// head of one token; each lane holds D / 32 numbers.
//
// In:   partial (parts, H, D) and stats (parts, H, 2) of paged_attention.metal;
//       first_parts (N + 1, padded): token n was computed in parts first_parts[n] to
//       first_parts[n + 1] - 1
// Out:  out (N, H, D)
// Made for: type O (out), int D
    constexpr int each = D / 32;
    const int lane = thread_index_in_simdgroup;
    const int head = threadgroup_position_in_grid.y;
    const int token = threadgroup_position_in_grid.z;
    const int heads = partial_shape[1];
    float mean[each];
    for (int e = 0; e < each; e++) {
        mean[e] = 0.0f;
    }
    float top = 0.0f;
    float sum = 0.0f;  // 0 until a part was met that saw anything
    for (int part = first_parts[token]; part < first_parts[token + 1]; part++) {
        const size_t place = size_t(part) * heads + head;
        const float its_top = stats[place * 2];
        const float its_sum = stats[place * 2 + 1];
        if (its_sum > 0.0f) {
            const float higher = sum > 0.0f ? metal::max(top, its_top) : its_top;
            const float kept = sum > 0.0f ? metal::exp(top - higher) : 0.0f;
            const float weight = its_sum * metal::exp(its_top - higher);
            for (int e = 0; e < each; e++) {
                mean[e] = mean[e] * kept + weight * partial[place * D + lane * each + e];
            }
            sum = sum * kept + weight;
            top = higher;
        }
    }
    const size_t place = (size_t(token) * heads + head) * D + lane * each;
    for (int e = 0; e < each; e++) {
        out[place + e] = O(sum > 0.0f ? mean[e] / sum : 0.0f);
    }
