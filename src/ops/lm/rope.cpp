#include <cmath>

#include "backend/cpu/clones.h"
#include "backend/cpu/convert.h"
#include "ops/lm/lm.h"
#include "ops/row_kernel.h"
#include "ops/support.h"

namespace hearth::ops {
namespace {

/// Returns the angle, rounded to f32 as in Hugging Face; at position 4096 the rounding changes it by 1e-4.
double angle(double position, double frequency) {
  return static_cast<double>(static_cast<float>(position) * static_cast<float>(frequency));
}

Inferred infer_table(const NodeView& node) {
  for (const Type& positions : node.in) {
    if (positions.dtype != DType::i32 || positions.shape.rank() != 1)
      return refuse_type("positions", "i32[N]", positions);
  }
  const auto len = std::ssize(node.attrs.reals("inv_freq"));
  if (len == 0) return refuse("expected at least one frequency in inv_freq");
  const RopeFrequencies frequencies(node);
  if (frequencies.has_two() && std::ssize(frequencies.long_frequencies) != len)
    return refuse(fmt::format("expected {} frequencies in long_inv_freq, as many as in inv_freq", len));
  return {.out = {f32_type({node.in_type(0).shape[0], 2 * len})}, .error = ""};
}

Kernel table_kernel(const NodeView& node) {
  const RopeFrequencies frequencies(node);
  const int64_t count = node.in_type(0).shape[0], len = std::ssize(frequencies.short_frequencies);
  const int64_t num_reach = node.in.back().shape[0];
  const auto run = [=](const KernelArgs& args) {
    const auto* reach = static_cast<const int32_t*>(args.in.back());
    const std::vector<double>& chosen = frequencies.chosen(std::span(reach, static_cast<size_t>(num_reach)));
    args.threads->parallel_for(count, std::max<int64_t>(1, 256 / len), [&](Range range) {
      for (int64_t i = range.begin; i < range.end; ++i) {
        float* row = args.output<float>(0) + i * 2 * len;
        for (int64_t j = 0; j < len; ++j) {
          const double turn = angle(args.input<int32_t>(0)[i], chosen[static_cast<size_t>(j)]);
          row[j] = static_cast<float>(frequencies.scale * std::cos(turn));
          row[len + j] = static_cast<float>(frequencies.scale * std::sin(turn));
        }
      }
    });
  };
  return {.run = run};
}

void table_reference(const ReferenceArgs& args) {
  const RopeFrequencies frequencies(args.node);
  const std::vector<double>& chosen = frequencies.chosen(std::span(args.in.back()));
  const size_t len = chosen.size();
  for (size_t i = 0; i < args.in[0].size(); ++i) {
    for (size_t j = 0; j < len; ++j) {
      const double turn = angle(args.in[0][i], chosen[j]);
      args.out[0][i * 2 * len + j] = frequencies.scale * std::cos(turn);
      args.out[0][i * 2 * len + len + j] = frequencies.scale * std::sin(turn);
    }
  }
}

struct Heads {
  int64_t tokens;
  int64_t width;  ///< elements per token
  int64_t size;   ///< elements per head
  int64_t len;    ///< rotated pairs per head
  bool inverse;
  bool interleaved;
  /// Returns the distance between the two elements of a pair; step() returns that between the first elements
  /// of consecutive pairs.
  int64_t apart() const { return interleaved ? 1 : len; }
  int64_t step() const { return interleaved ? 2 : 1; }
};
Heads heads_of(const NodeView& node) {
  return {.tokens = node.in_type(0).shape[0],
          .width = node.in_type(0).shape[1],
          .size = node.attrs.integer("head_size"),
          .len = node.in_type(1).shape[1] / 2,
          .inverse = node.attrs.integer_or("inverse", 0) != 0,
          .interleaved = node.attrs.integer_or("interleaved", 0) != 0};
}

Inferred infer(const NodeView& node) {
  const Type& x = node.in_type(0);
  const Type& table = node.in_type(1);
  if (x.shape.rank() != 2 || !is_storage_float(x.dtype)) return refuse_type("x", "floating [N, D]", x);
  if (table.dtype != DType::f32 || table.shape.rank() != 2 || table.shape[0] != x.shape[0] ||
      table.shape[1] % 2 != 0)
    return refuse_type("the table", fmt::format("f32[{}, 2 * len]", x.shape[0]), table);
  const Heads heads = heads_of(node);
  if (heads.size < 2 * heads.len || heads.size < 1 || heads.width % heads.size != 0)
    return refuse(fmt::format("expected a head_size of at least {} that divides {}, got {}", 2 * heads.len,
                              heads.width, heads.size));
  return same_as_first(node);
}

template <int64_t step>
inline __attribute__((always_inline)) void rotate_head(const Heads& heads, const float* table,
                                                       const float* in, float* out) {
  const int64_t len = heads.len, apart = step == 1 ? len : 1;
  const float sign = heads.inverse ? -1.0F : 1.0F;
// Ignores possible aliasing in vectorization: `out` may be `in`, but pairs are independent.
#ifndef __clang__
#pragma GCC ivdep
#endif
  for (int64_t j = 0; j < len; ++j) {
    const float a = in[step * j], b = in[step * j + apart];
    const float cosine = table[j], sine = sign * table[len + j];
    out[step * j] = a * cosine - b * sine;
    out[step * j + apart] = b * cosine + a * sine;
  }
  for (int64_t j = 2 * len; j < heads.size; ++j) out[j] = in[j];
}

/// Rotates one token: a pair (a, b) of every head becomes (a cos - b sin, b cos + a sin).
HEARTH_CLONES void rotate_row(const Heads& heads, const float* table, const float* x, float* y) {
  for (int64_t at = 0; at < heads.width; at += heads.size) {
    heads.interleaved ? rotate_head<2>(heads, table, x + at, y + at)
                      : rotate_head<1>(heads, table, x + at, y + at);
  }
}

Kernel kernel(const NodeView& node) {
  const Heads heads = heads_of(node);
  const DType dtype = node.in_type(0).dtype;
  const auto row = [=](const KernelArgs& args, int64_t i, float* scratch) {
    const int64_t at = i * heads.width;
    float* out = run_to_write(dtype, args.out[0], at, scratch == nullptr ? scratch : scratch + heads.width);
    rotate_row(heads, args.input<float>(1) + i * 2 * heads.len,
               cpu::as_f32(dtype, args.in[0], at, heads.width, scratch), out);
    cpu::store_f32(dtype, out, args.out[0], at, heads.width);
  };
  return row_kernel(heads.tokens, node.num_threads, dtype == DType::f32 ? 0 : 2 * heads.width, row);
}

void reference(const ReferenceArgs& args) {
  const Heads heads = heads_of(args.node);
  args.out[0] = args.in[0];
  for (int64_t at = 0; at < heads.tokens * heads.width; at += heads.size) {
    const double* table = args.in[1].data() + at / heads.width * 2 * heads.len;
    const double* in = args.in[0].data() + at;
    double* out = args.out[0].data() + at;
    for (int64_t j = 0; j < heads.len; ++j) {
      const int64_t first = heads.step() * j, second = first + heads.apart();
      const double sine = heads.inverse ? -table[heads.len + j] : table[heads.len + j];
      out[first] = in[first] * table[j] - in[second] * sine;
      out[second] = in[second] * table[j] + in[first] * sine;
    }
  }
}

std::vector<ValueId> vjp(const VjpContext& context) {
  Attrs attrs = context.node.attrs;
  attrs.set("inverse", int64_t{attrs.integer_or("inverse", 0) == 0});
  // Positions, and therefore the table, have no gradient.
  return {emit(context, "rope", {context.grad_out[0], context.node.inputs[1]}, attrs), kNone};
}

std::vector<Sample> table_samples() {
  std::vector<Sample> samples = {
      {.in = {labels(7, 40)}, .attrs = {{"inv_freq", std::vector{1.0, 0.1, 0.01}}, {"scale", 1.0}}},
      {.in = {labels(130, 5000)}, .attrs = {{"inv_freq", std::vector{0.7, 1e-4}}, {"scale", 1.19}}},
      {.in = {labels(3, 40)}, .attrs = {{"inv_freq", std::vector<double>(261, 0.3)}, {"scale", 1.0}}}};
  for (const int64_t original : {40, 5000}) {
    const ir::Attrs attrs = {{"inv_freq", std::vector<double>(300, 0.3)},
                             {"scale", 1.0},
                             {"long_inv_freq", std::vector<double>(300, 0.2)},
                             {"original", original}};
    samples.push_back({.in = {labels(5, 40), labels(600, 3000)}, .attrs = attrs});
    samples.push_back({.in = {labels(600, 3000)}, .attrs = attrs});
  }
  return samples;
}

Sample sample(int64_t tokens, int64_t num_heads, int64_t size, int64_t len, int64_t inverse, DType dtype) {
  return {.in = {normal({tokens, num_heads * size}, dtype), normal({tokens, 2 * len})},
          .attrs = {{"head_size", size}, {"inverse", inverse}}};
}
std::vector<Sample> samples() {
  std::vector<Sample> result = {sample(5, 3, 6, 3, 0, DType::f32),   sample(9, 2, 50, 11, 0, DType::f32),
                                sample(70, 1, 8, 4, 1, DType::f32),  sample(6, 2, 10, 4, 0, DType::bf16),
                                sample(3, 1, 4, 2, 1, DType::f16),   sample(4, 3, 7, 2, 0, DType::f32),
                                sample(3, 2, 64, 32, 0, DType::bf16)};
  for (size_t i = 0, count = result.size(); i < count; ++i) {
    result.push_back(result[i]);
    result.back().attrs.set("interleaved", int64_t{1});
  }
  return result;
}

}  // namespace

RopeFrequencies::RopeFrequencies(const NodeView& node)
    : short_frequencies(node.attrs.reals("inv_freq")), scale(node.attrs.real_or("scale", 1)) {
  if (!node.attrs.contains("long_inv_freq")) return;
  long_frequencies = node.attrs.reals("long_inv_freq");
  original = node.attrs.integer("original");
}

const OpDef rope_table{
    .name = "rope_table",
    .doc =
        "rope_table(positions i32 [N], reach i32 [M] (absent: positions)): scale * cos, then scale * sin, of "
        "positions * inv_freq, or of positions * long_inv_freq if an element of reach is `original` or more",
    .inputs = {"positions", "reach?"},
    .infer = infer_table,
    .no_vjp_because = "positions are integers",
    .cpu = table_kernel,
    .gpu = true,
    .reference = table_reference,
    .cost = [](const NodeView& node) { return cost_per_element(node, 40); },
    .precision = ir::Precision::full,
    .samples = table_samples};

const OpDef rope{.name = "rope",
                 .doc =
                     "rope(x [N, heads * head_size], table){head_size, inverse, interleaved}: pairs of each "
                     "head rotated by the table's angles",
                 .inputs = {"x", "table"},
                 .infer = infer,
                 .vjp = vjp,
                 .cpu = kernel,
                 .gpu = true,
                 .gpu_many = true,
                 .reference = reference,
                 .cost = [](const NodeView& node) { return cost_per_element(node, 3); },
                 .num_following = 1,
                 .may_work_in_place = true,
                 .samples = samples};

}  // namespace hearth::ops
