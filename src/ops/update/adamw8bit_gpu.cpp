#include "ops/many_tensors.h"
#include "ops/update/dynamic_map.h"
#include "ops/update/rules.h"
#include "ops/update/update.h"

namespace hearth::ops {
namespace {

using ir::KernelArgs;
using ir::NodeView;

/// Number of elements per thread block. Each warp processes kBlock8Bit elements, which share a scale, at a
/// time.
constexpr int kRun = 64 * kBlock8Bit;
/// Number of adjacent elements per load of a thread, and number of such loads for the kBlock8Bit elements
/// that a warp processes at a time.
constexpr int kNeighbors = 4, kGroups = kBlock8Bit / (kNeighbors * rt::kWarp);

template <typename T>
struct Tensor {
  float* param;
  const T* grad;
  uint8_t* m;
  float* m_scale;
  uint8_t* v;
  float* v_scale;
};

/// A dynamic map (dynamic_map.h), and tables to find the nearest of its non-negative values. The bits of a
/// non-negative float are monotonic in its value. Floats with equal upper 16 bits form a cell; a cell
/// contains at most one midpoint between adjacent map values, so that one table lookup and one comparison
/// suffice.
template <bool with_sign>
struct alignas(64) Codes {
  static constexpr int kZero = with_sign ? 127 : 0;
  static constexpr uint32_t kFirst = 0x3400,
                            kLast = 0x3f80;  ///< cell of 2^-23, which is below all midpoints, and cell of 1
  static constexpr int kCells = 12 * kBlockThreads;
  static_assert(kLast < kFirst + kCells);
  float values[256];
  uint32_t middles[256];  ///< bits of the midpoint between values[kZero + i] and the next value
  uint8_t ranks[kCells];  ///< number of midpoints below cell kFirst + i

  RT_DEVICE static float value(int code) { return dynamic_value(with_sign, static_cast<uint8_t>(code)); }
  RT_DEVICE static uint32_t middle(int rank) {
    const int code = kZero + rank;
    return code < 255 ? rt::bits_as<uint32_t>(0.5F * (value(code) + value(code + 1))) : 0xffffffffU;
  }
  /// Computes entry i of each table.
  RT_DEVICE void fill(int i) {
    if (i < 256) {
      values[i] = value(i);
      middles[i] = middle(i);
    }
    const uint32_t begin = (kFirst + static_cast<uint32_t>(i)) << 16;
    int rank = 0;
    for (int step = 128; step > 0; step /= 2) rank += begin > middle(rank + step - 1) ? step : 0;
    ranks[i] = static_cast<uint8_t>(rank);
  }
  /// Returns the number of midpoints below the float with these bits; bits below min_bits are replaced by
  /// min_bits.
  RT_DEVICE int rank_of(uint32_t bits, uint32_t min_bits = kFirst << 16) const {
    bits = bits < min_bits ? min_bits : bits;
    const uint32_t cell = bits >> 16;
    const int rank = ranks[(cell > kLast ? kLast : cell) - kFirst];
    return rank + (bits > middles[rank] ? 1 : 0);
  }
};

/// Bits of a float whose nearest map value is the smallest one above 0: the minimum for negative numbers,
/// which must not become 0.
constexpr uint32_t kMinNegativeBits = 0x35860000;

/// Returns the code nearest to x, or the nearest code of a negative value if `value` is negative (x may have
/// been rounded to 0). Ties go to the lower code.
RT_DEVICE uint8_t code_of(const Codes<true>& codes, float value, float x) {
  const uint32_t bits = rt::bits_as<uint32_t>(x) & 0x7fffffffU;
  const bool negative = value < 0;
  const int rank = codes.rank_of(bits + (negative ? 1 : 0), negative ? kMinNegativeBits : codes.kFirst << 16);
  return static_cast<uint8_t>(negative ? 127 - (rank > 127 ? 127 : rank) : 127 + rank);
}
RT_DEVICE uint8_t code_of(const Codes<false>& codes, float x) {
  return static_cast<uint8_t>(codes.rank_of(rt::bits_as<uint32_t>(x)));
}

/// Code tables and step constants in the workspace, shared by all tensors.
struct Tables {
  Codes<true> with_sign;
  Codes<false> without_sign;
  Adam8Step step;
};
constexpr int kFillBlocks = Codes<true>::kCells / kBlockThreads;

__global__ void __launch_bounds__(kBlockThreads)
    fill(Tables* tables, AdamOptions options, const float* lr, const float* factor, const float* step_count) {
  const auto i = static_cast<int>(first_element());
  tables->with_sign.fill(i);
  tables->without_sign.fill(i);
  if (i == 0) tables->step = adam8_step(options, *lr, *factor, *step_count);
}

template <typename C>
RT_DEVICE void copy_codes(const C& from, C& to) {
  constexpr int kWords = sizeof(C) / sizeof(rt::Word16);
  for (int i = static_cast<int>(threadIdx.x); i < kWords; i += kBlockThreads)
    reinterpret_cast<rt::Word16*>(&to)[i] = reinterpret_cast<const rt::Word16*>(&from)[i];
}

/// Updates the kBlock8Bit elements from `begin` on, which share a scale, by one warp. `all` is true if all of
/// them are before `end`.
template <bool all, typename T>
RT_DEVICE void move_block(const Tensor<T>& tensor, const Adam8Step& step, const Codes<true>& with_sign,
                          const Codes<false>& without_sign, int64_t begin, int64_t end) {
  const int64_t block = begin / kBlock8Bit, first = begin + rt::lane() * kNeighbors;
  const auto at = [&](int group) { return first + group * kNeighbors * rt::kWarp; };
  if constexpr (all) end = INT64_MAX;
  rt::Vec<float, kNeighbors> param[kGroups], m[kGroups], v[kGroups];
  rt::Vec<T, kNeighbors> grad[kGroups];
  rt::Vec<uint8_t, kNeighbors> m_codes[kGroups], v_codes[kGroups];
  RT_UNROLL
  for (int g = 0; g < kGroups; ++g) {
    param[g] = load_before<kNeighbors>(end, tensor.param, at(g));
    grad[g] = load_before<kNeighbors>(end, tensor.grad, at(g));
    m_codes[g] = load_before<kNeighbors>(end, tensor.m, at(g));
    v_codes[g] = load_before<kNeighbors>(end, tensor.v, at(g));
  }
  const float m_scale = tensor.m_scale[block], v_scale = tensor.v_scale[block];
  float absmax_m = 0, absmax_v = 0;
  RT_UNROLL
  for (int g = 0; g < kGroups; ++g) {
    RT_UNROLL
    for (int e = 0; e < kNeighbors; ++e) {
      const bool inside = at(g) + e < end;
      float& own_m = m[g].at[e] = inside ? m_scale * with_sign.values[m_codes[g].at[e]] : 0.0F;
      float& own_v = v[g].at[e] = inside ? v_scale * without_sign.values[v_codes[g].at[e]] : 0.0F;
      step.move_moments(rt::to_float(grad[g].at[e]), own_m, own_v);
      step.move(own_m, own_v, param[g].at[e]);
      absmax_m = rt::Max()(fabsf(own_m), absmax_m);
      absmax_v = rt::Max()(fabsf(own_v), absmax_v);
    }
    store_before(end, tensor.param, at(g), param[g]);
  }
  absmax_m = rt::reduce_warp(absmax_m, rt::Max());
  absmax_v = rt::reduce_warp(absmax_v, rt::Max());
  const float per_m = absmax_m > 0 ? 1 / absmax_m : 0.0F, per_v = absmax_v > 0 ? 1 / absmax_v : 0.0F;
  RT_UNROLL
  for (int g = 0; g < kGroups; ++g) {
    RT_UNROLL
    for (int e = 0; e < kNeighbors; ++e) {
      m_codes[g].at[e] = code_of(with_sign, m[g].at[e], per_m * m[g].at[e]);
      v_codes[g].at[e] = code_of(without_sign, per_v * v[g].at[e]);
    }
    store_before(end, tensor.m, at(g), m_codes[g]);
    store_before(end, tensor.v, at(g), v_codes[g]);
  }
  // All lanes must have read the scales before lane 0 overwrites them.
  rt::sync_warp();
  if (rt::lane() > 0) return;
  tensor.m_scale[block] = absmax_m;
  tensor.v_scale[block] = absmax_v;
}

template <typename T>
__global__ void __launch_bounds__(kBlockThreads)
    update(ManyTensors<Tensor<T>> all, const Tables* tables, const float* factor) {
  if (*factor < 0) return;
  RT_SHARED(with_sign, Codes<true>);
  RT_SHARED(without_sign, Codes<false>);
  copy_codes(tables->with_sign, with_sign);
  copy_codes(tables->without_sign, without_sign);
  const Adam8Step step = tables->step;
  const BlockRun run = run_of_block(all);
  const Tensor<T> tensor = all.tensors[run.tensor];
  rt::sync_block();
  for (int64_t begin = run.begin + rt::warp() * kBlock8Bit; begin < run.end;
       begin += kBlockThreads / rt::kWarp * kBlock8Bit) {
    if (begin + kBlock8Bit <= run.end) {
      move_block<true>(tensor, step, with_sign, without_sign, begin, run.end);
    } else {
      move_block<false>(tensor, step, with_sign, without_sign, begin, run.end);
    }
  }
}

template <typename T>
Tensor<T> tensor_of(const KernelArgs& args) {
  return {output_of<float>(args, 0), input_of<T>(args, 1),        output_of<uint8_t>(args, 1),
          output_of<float>(args, 2), output_of<uint8_t>(args, 3), output_of<float>(args, 4)};
}

template <typename T>
ir::Kernel make(std::span<const NodeView> nodes) {
  const auto run = [options = adam_options(nodes[0].attrs),
                    counts = counts_of(nodes)](const KernelArgs& args) {
    const size_t num_nodes = counts.size();
    auto* tables = reinterpret_cast<Tables*>(args.workspace);
    const auto* factor = input_of<float>(args, 3);
    rt::launch(fill, {kFillBlocks, kBlockThreads}, args.stream->handle(), tables, options,
               input_of<float>(args, 2), factor, input_of<float>(args, 8));
    for_many_tensors<Tensor<T>>(
        counts, kRun, [&](size_t i) { return tensor_of<T>(args_of(args, num_nodes, i)); },
        [&](const ManyTensors<Tensor<T>>& all) {
          rt::launch(update<T>, {all.num_blocks, kBlockThreads}, args.stream->handle(), all, tables, factor);
        });
  };
  return {.run = run, .workspace_bytes = int64_t{sizeof(Tables)}};
}

ir::Kernel adamw8bit_update_gpu(std::span<const NodeView> nodes) {
  return with_storage_type(nodes[0].in_type(1).dtype, [&](auto grad) { return make<decltype(grad)>(nodes); });
}

const GpuKernels kKernels = {{.op = "adamw8bit_update", .many = adamw8bit_update_gpu}};

}  // namespace
}  // namespace hearth::ops
