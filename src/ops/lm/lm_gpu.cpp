#include "ops/lm/lm.h"

#include <array>
#include <bit>
#include <vector>

#include "ops/many_tensors.h"

namespace hearth::ops {
namespace {

using ir::KernelArgs;
using ir::NodeView;

/// Copies the row of each token's id from the table. One block per token; an id outside of the table yields
/// NaN.
template <typename T>
__global__ void __launch_bounds__(kBlockThreads)
    look_up(const int32_t* ids, const T* table, T* out, int64_t rows, int64_t width) {
  const int64_t token = blockIdx.x, id = ids[token];
  const bool known = id >= 0 && id < rows;
  for (int64_t c = threadIdx.x; c < width; c += kBlockThreads)
    out[token * width + c] = known ? table[id * width + c] : rt::from_float<T>(nanf(""));
}

/// Maximum number of blocks of the embedding gradient. The table's rows are distributed over blockIdx.y: row
/// r belongs to block r % gridDim.y, where gridDim.y is a power of two.
constexpr int64_t kTableBlocks = 1024;
/// Columns per thread if the table's width is a multiple of it; otherwise a thread has one column.
constexpr int kTableColumns = 4;

/// Adds the gradients of a block's table rows to the residual (zero if null), with `n` columns per thread.
/// Uses no atomics: each element belongs to one thread, which adds in the order of the tokens, so that
/// results are reproducible.
template <int n, typename T>
RT_DEVICE void sum_rows(const int32_t* ids, const T* dy, const float* residual, float* table, int64_t tokens,
                        int64_t rows, int64_t width) {
  const int64_t column = first_element() * n;
  const bool inside = column < width;
  const int32_t part = static_cast<int32_t>(blockIdx.y), parts = static_cast<int32_t>(gridDim.y);
  for (int64_t row = part; row < rows && inside; row += parts) {
    const int64_t at = row * width + column;
    rt::store(table + at, residual != nullptr ? rt::load<float, n>(residual + at) : rt::Vec<float, n>{});
  }
  // All lanes of a warp scan the ids together, with several loads in flight per lane.
  constexpr int kLoads = 4;
  for (int64_t first = 0; first < tokens; first += kLoads * rt::kWarp) {
    int32_t id[kLoads];
    RT_UNROLL
    for (int j = 0; j < kLoads; ++j) {
      const int64_t token = first + j * rt::kWarp + rt::lane();
      id[j] = token < tokens ? ids[token] : -1;
    }
    RT_UNROLL
    for (int j = 0; j < kLoads; ++j) {
      const bool local = id[j] >= 0 && id[j] < rows && (id[j] & (parts - 1)) == part;
      for (uint32_t left = rt::ballot(local); left != 0; left &= left - 1) {
        const int lane = rt::lowest_bit(left);
        const int64_t token = first + j * rt::kWarp + lane, row = rt::shuffle(id[j], lane);
        if (!inside) continue;
        const auto add = rt::load<T, n>(dy + token * width + column);
        float* to = table + row * width + column;
        auto sum = rt::load<float, n>(to);
        RT_UNROLL
        for (int e = 0; e < n; ++e) sum.at[e] += rt::to_float(add.at[e]);
        rt::store(to, sum);
      }
    }
  }
}
template <typename T>
__global__ void __launch_bounds__(kBlockThreads)
    add_to_table(const int32_t* ids, const T* dy, const float* residual, float* table, int64_t tokens,
                 int64_t rows, int64_t width) {
  if (width % kTableColumns == 0) {
    sum_rows<kTableColumns>(ids, dy, residual, table, tokens, rows, width);
  } else {
    sum_rows<1>(ids, dy, residual, table, tokens, rows, width);
  }
}

/// Head layout of RoPE: the first 2 * len elements of a head are pairs (i, i + len), or (2i, 2i + 1) if
/// interleaved; the elements after the pairs are copied.
struct Heads {
  int size;  ///< elements per head
  bool inverse;
};
/// Arrays that one launch rotates, such as queries and keys; gridDim.y is their number.
template <typename T>
struct RopeArrays {
  static constexpr int kMaxArrays = 8;
  const T* x[kMaxArrays];
  const float* table[kMaxArrays];
  T* y[kMaxArrays];
  int tokens[kMaxArrays];
  int width[kMaxArrays];  ///< elements per token
  int len[kMaxArrays];    ///< rotated pairs per head
};
/// Token of an array; empty (width 0) if the array has fewer tokens.
template <typename T>
struct RopeRow {
  const T* from;
  T* to;
  const float* cosines;
  const float* sines;
  int width;
  int len;
};
template <typename T>
RT_DEVICE RopeRow<T> rope_row(const RopeArrays<T>& arrays) {
  const int array = static_cast<int>(blockIdx.y), token = static_cast<int>(blockIdx.x);
  const int len = arrays.len[array], width = arrays.width[array];
  const float* cosines = arrays.table[array] + int64_t{token} * 2 * len;
  const int64_t at = int64_t{token} * width;
  return {arrays.x[array] + at,
          arrays.y[array] + at,
          cosines,
          cosines + len,
          token < arrays.tokens[array] ? width : 0,
          len};
}
/// Applies RoPE. One block per token; one thread computes both elements of a pair, so that y may alias x.
template <typename T>
__global__ void __launch_bounds__(kBlockThreads) apply_rope(RopeArrays<T> arrays, Heads heads) {
  const RopeRow<T> row = rope_row(arrays);
  for (int e = static_cast<int>(threadIdx.x); e < row.width; e += kBlockThreads) {
    const int i = e % heads.size;
    if (i >= 2 * row.len) row.to[e] = row.from[e];
    if (i >= row.len) continue;
    const float a = rt::to_float(row.from[e]), b = rt::to_float(row.from[e + row.len]);
    const float cosine = row.cosines[i], sine = heads.inverse ? -row.sines[i] : row.sines[i];
    row.to[e] = rt::from_float<T>(a * cosine - b * sine);
    row.to[e + row.len] = rt::from_float<T>(b * cosine + a * sine);
  }
}
/// Applies interleaved RoPE. Each thread processes two adjacent elements: a pair to rotate, or two elements
/// to copy. At the end of a head of odd size there is only one.
template <typename T>
__global__ void __launch_bounds__(kBlockThreads) apply_rope_interleaved(RopeArrays<T> arrays, Heads heads) {
  const RopeRow<T> row = rope_row(arrays);
  const T* from = row.from;
  T* to = row.to;
  const int size = heads.size, pairs = (size + 1) / 2, count = row.width / size * pairs;
  for (int p = static_cast<int>(threadIdx.x); p < count; p += kBlockThreads) {
    const int j = p % pairs, e = p / pairs * size + 2 * j;
    if (j >= row.len) {
      to[e] = from[e];
      if (2 * j + 1 < size) to[e + 1] = from[e + 1];
      continue;
    }
    const bool aligned = size % 2 == 0;
    rt::Vec<T, 2> pair = aligned ? rt::load<T, 2>(from + e) : rt::Vec<T, 2>{{from[e], from[e + 1]}};
    const float a = rt::to_float(pair.at[0]), b = rt::to_float(pair.at[1]);
    const float cosine = row.cosines[j], sine = heads.inverse ? -row.sines[j] : row.sines[j];
    pair.at[0] = rt::from_float<T>(a * cosine - b * sine);
    pair.at[1] = rt::from_float<T>(b * cosine + a * sine);
    if (aligned) {
      rt::store(to + e, pair);
    } else {
      to[e] = pair.at[0];
      to[e + 1] = pair.at[1];
    }
  }
}

/// Activation of a glu, of the form x s(x). gated() returns its value and derivative.
enum class Gate : int { silu, gelu_tanh, gelu };
struct Gated {
  float value;
  float slope;
};
RT_DEVICE Gated gated(Gate gate, float x) {
  if (gate == Gate::gelu) {
    const float cdf = 0.5F * (1 + erff(x * 0.70710678F)), pdf = expf(-0.5F * x * x) * 0.39894228F;
    return {x * cdf, cdf + x * pdf};
  }
  const float twice_u = 1.59576912F * (x + 0.044715F * x * x * x);
  const float z = gate == Gate::silu ? x : twice_u;
  const float slope_of_z = gate == Gate::silu ? 1.0F : 1.59576912F * (1 + 0.134145F * x * x);
  const float s = 1 / (1 + expf(-z));
  return {x * s, s * (1 + x * (1 - s) * slope_of_z)};
}

template <typename T>
__global__ void __launch_bounds__(kBlockThreads)
    glu_forward(const T* gate, const T* up, T* y, int64_t count, Gate kind) {
  constexpr int n = kWideMove<T>;
  for (int64_t at = first_element() * n; at < count; at += element_stride() * n) {
    const auto gates = load_before<n>(count, gate, at), ups = load_before<n>(count, up, at);
    rt::Vec<T, n> result;
    RT_UNROLL
    for (int e = 0; e < n; ++e)
      result.at[e] =
          rt::from_float<T>(gated(kind, rt::to_float(gates.at[e])).value * rt::to_float(ups.at[e]));
    store_before(count, y, at, result);
  }
}
template <typename T>
__global__ void __launch_bounds__(kBlockThreads)
    glu_backward(const T* gate, const T* up, const T* dy, T* dgate, T* dup, int64_t count, Gate kind) {
  constexpr int n = kWideMove<T>;
  for (int64_t at = first_element() * n; at < count; at += element_stride() * n) {
    const auto gates = load_before<n>(count, gate, at), ups = load_before<n>(count, up, at);
    const auto cotangents = load_before<n>(count, dy, at);
    rt::Vec<T, n> dgates, dups;
    RT_UNROLL
    for (int e = 0; e < n; ++e) {
      const Gated result = gated(kind, rt::to_float(gates.at[e]));
      const float cotangent = rt::to_float(cotangents.at[e]);
      dgates.at[e] = rt::from_float<T>(cotangent * rt::to_float(ups.at[e]) * result.slope);
      dups.at[e] = rt::from_float<T>(cotangent * result.value);
    }
    store_before(count, dgate, at, dgates);
    store_before(count, dup, at, dups);
  }
}

Gate gate_of(const NodeView& node) {
  const std::string name = node.attrs.text_or("activation", "silu");
  return name == "silu" ? Gate::silu : name == "gelu_tanh" ? Gate::gelu_tanh : Gate::gelu;
}

template <typename T>
ir::Kernel make_embedding(const NodeView& node) {
  const int64_t tokens = node.in_type(0).shape[0];
  const int64_t rows = node.in_type(1).shape[0], width = node.in_type(1).shape[1];
  const auto run = [=](const KernelArgs& args) {
    rt::launch(look_up<T>, {tokens, kBlockThreads}, args.stream->handle(), input_of<int32_t>(args, 0),
               input_of<T>(args, 1), output_of<T>(args, 0), rows, width);
  };
  return {.run = run};
}
template <typename T>
ir::Kernel make_embedding_grad(const NodeView& node) {
  const ir::Type& table = node.out_type(0);
  const int64_t tokens = node.in_type(0).shape[0], rows = table.shape[0], width = table.shape[1];
  const int64_t columns = width % kTableColumns == 0 ? width / kTableColumns : width;
  const int64_t column_blocks = ceil_div(columns, kBlockThreads);
  const bool residual = node.has_input(2);
  const auto parts =
      std::bit_floor(static_cast<uint64_t>(std::clamp<int64_t>(kTableBlocks / column_blocks, 1, rows)));
  const auto run = [=](const KernelArgs& args) {
    const rt::Dim3 blocks{static_cast<unsigned>(column_blocks), static_cast<unsigned>(parts), 1};
    rt::launch(add_to_table<T>, {blocks, rt::Dim3{kBlockThreads, 1, 1}}, args.stream->handle(),
               input_of<int32_t>(args, 0), input_of<T>(args, 1),
               residual ? input_of<float>(args, 2) : nullptr, output_of<float>(args, 0), tokens, rows, width);
  };
  return {.run = run};
}
template <typename T>
ir::Kernel make_rope(std::span<const NodeView> nodes) {
  const Heads heads{.size = static_cast<int>(nodes[0].attrs.integer("head_size")),
                    .inverse = nodes[0].attrs.integer_or("inverse", 0) != 0};
  const bool interleaved = nodes[0].attrs.integer_or("interleaved", 0) != 0;
  std::vector<std::array<int, 3>> extents;  // tokens, width, len
  for (const NodeView& node : nodes) {
    const Shape &x = node.in_type(0).shape, &table = node.in_type(1).shape;
    extents.push_back({static_cast<int>(x[0]), static_cast<int>(x[1]), static_cast<int>(table[1] / 2)});
  }
  const auto run = [=](const KernelArgs& args) {
    constexpr size_t kMax = RopeArrays<T>::kMaxArrays;
    for (size_t begin = 0; begin < extents.size(); begin += kMax) {
      const size_t count = std::min(kMax, extents.size() - begin);
      RopeArrays<T> arrays = {};
      int tokens = 0;
      for (size_t i = 0; i < count; ++i) {
        const KernelArgs local = args_of(args, extents.size(), begin + i);
        arrays.x[i] = input_of<T>(local, 0);
        arrays.table[i] = input_of<float>(local, 1);
        arrays.y[i] = output_of<T>(local, 0);
        arrays.tokens[i] = extents[begin + i][0];
        arrays.width[i] = extents[begin + i][1];
        arrays.len[i] = extents[begin + i][2];
        tokens = std::max(tokens, arrays.tokens[i]);
      }
      const rt::Dim3 blocks{static_cast<unsigned>(tokens), static_cast<unsigned>(count), 1};
      rt::launch(interleaved ? apply_rope_interleaved<T> : apply_rope<T>,
                 {blocks, rt::Dim3{kBlockThreads, 1, 1}}, args.stream->handle(), arrays, heads);
    }
  };
  return {.run = run};
}
template <typename T>
ir::Kernel make_glu(const NodeView& node) {
  const int64_t count = node.in_type(0).shape.num_elements();
  const bool backward = node.in.size() == 3;
  const Gate gate = gate_of(node);
  const auto run = [=](const KernelArgs& args) {
    const rt::Shape shape(num_stride_blocks(ceil_div(count, kWideMove<T>)), kBlockThreads);
    if (backward) {
      rt::launch(glu_backward<T>, shape, args.stream->handle(), input_of<T>(args, 0), input_of<T>(args, 1),
                 input_of<T>(args, 2), output_of<T>(args, 0), output_of<T>(args, 1), count, gate);
    } else {
      rt::launch(glu_forward<T>, shape, args.stream->handle(), input_of<T>(args, 0), input_of<T>(args, 1),
                 output_of<T>(args, 0), count, gate);
    }
  };
  return {.run = run};
}

ir::Kernel embedding_gpu(const NodeView& node) {
  return with_storage_type(node.in_type(1).dtype, [&](auto x) { return make_embedding<decltype(x)>(node); });
}
ir::Kernel embedding_grad_gpu(const NodeView& node) {
  return with_storage_type(node.in_type(1).dtype,
                           [&](auto x) { return make_embedding_grad<decltype(x)>(node); });
}
ir::Kernel rope_gpu(std::span<const NodeView> nodes) {
  return with_storage_type(nodes[0].in_type(0).dtype, [&](auto x) { return make_rope<decltype(x)>(nodes); });
}
ir::Kernel glu_gpu(const NodeView& node) {
  return with_storage_type(node.in_type(0).dtype, [&](auto x) { return make_glu<decltype(x)>(node); });
}

const GpuKernels kKernels = {{.op = "embedding", .one = embedding_gpu},
                             {.op = "embedding_grad", .one = embedding_grad_gpu},
                             {.op = "rope", .many = rope_gpu},
                             {.op = "glu", .one = glu_gpu},
                             {.op = "glu_grad", .one = glu_gpu}};

}  // namespace
}  // namespace hearth::ops
