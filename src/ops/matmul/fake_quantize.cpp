#include "ops/matmul/fake_quantize.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "backend/cpu/clones.h"
#include "base/block_format.h"
#include "ops/support.h"

namespace hearth::ops {
namespace {

/// Returns the format of a node; none if its name is unknown.
BlockFormat format_of(const NodeView& node) {
  return value_named<BlockFormat>(node.attrs.text("format")).value_or(BlockFormat::none);
}

Inferred infer(const NodeView& node) {
  const Type& x = node.in_type(0);
  if (format_of(node) == BlockFormat::none)
    return refuse(fmt::format("there is no block format '{}'", node.attrs.text("format")));
  if (x.dtype != DType::f32 || x.shape.rank() != 2 || x.shape[1] % kBlockElements != 0)
    return refuse_type("x", fmt::format("f32[N, {} M]", kBlockElements), x);
  if (node.in.size() > 1 && (node.in_type(1).dtype != DType::i64 || node.in_type(1).shape != Shape{2}))
    return refuse_type("the counter", "i64[2]", node.in_type(1));
  return same_as_first(node);
}

HEARTH_CLONES void round_block(BlockFormat format, const float* x, float scale, float* y) {
  const float inverse = inverse_of_scale(scale), stored = to_f32(to_f16(scale));
  for (int64_t i = 0; i < kBlockElements; ++i) y[i] = stored * block_code(format, x[i], inverse);
}

/// True if the step in the counter is before the first step that rounds.
bool is_off(const int64_t* counter, int64_t first_step) {
  return counter != nullptr && *counter < first_step;
}

Kernel kernel(const NodeView& node) {
  const int64_t num_blocks = node.in_type(0).shape.num_elements() / kBlockElements;
  const auto run = [=, format = format_of(node), first_step = node.attrs.integer("first_step"),
                    has_counter = node.in.size() > 1](const KernelArgs& args) {
    const bool off = is_off(has_counter ? args.input<int64_t>(1) : nullptr, first_step);
    args.threads->parallel_for(num_blocks, 256, [&](Range blocks) {
      const float* x = args.input<float>(0) + blocks.begin * kBlockElements;
      float* y = args.output<float>(0) + blocks.begin * kBlockElements;
      const int64_t count = (blocks.end - blocks.begin) * kBlockElements;
      if (off) {
        std::copy_n(x, count, y);
        return;
      }
      for (int64_t i = 0; i < count; i += kBlockElements)
        round_block(format, x + i, block_scale(format, extreme_of(x + i)), y + i);
    });
  };
  return {.run = run};
}

/// Rounds in f32 as the kernels do, because a product that differs in its last bit may get another code.
void reference(const ReferenceArgs& args) {
  const BlockFormat format = format_of(args.node);
  const bool off =
      args.in.size() > 1 && args.in[1][0] < static_cast<double>(args.node.attrs.integer("first_step"));
  args.out[0] = args.in[0];
  for (size_t at = 0; at < args.in[0].size() && !off; at += kBlockElements) {
    float x[kBlockElements], y[kBlockElements];
    for (size_t i = 0; i < kBlockElements; ++i) x[i] = static_cast<float>(args.in[0][at + i]);
    round_block(format, x, block_scale(format, extreme_of(x)), y);
    std::copy_n(y, kBlockElements, args.out[0].begin() + static_cast<ptrdiff_t>(at));
  }
}

std::vector<Sample> samples() {
  const SampleInput counter = filled(SampleInput::Fill::one, {2}, DType::i64);
  std::vector<Sample> result;
  for (const BlockFormat format : {BlockFormat::q4_0, BlockFormat::q8_0}) {
    const auto sample = [&](std::vector<SampleInput> in, int64_t first_step) {
      result.push_back({.in = std::move(in),
                        .attrs = {{"format", std::string(name_of(format))}, {"first_step", first_step}},
                        .tolerance = 0});
    };
    sample({normal({5, 64})}, 0);
    sample({normal({130, 96})}, 0);
    sample({filled(SampleInput::Fill::one, {3, 32}, DType::f32)}, 0);
    sample({normal({7, 32}), counter}, 1);
    sample({normal({7, 32}), counter}, 2);
  }
  return result;
}

}  // namespace

const OpDef fake_quantize{
    .name = "fake_quantize",
    .doc =
        "fake_quantize(x f32 [N, 32 M], counter i64[2]){format, first_step}: x rounded to the values that a "
        "block format can store; x itself while the counter's step is below first_step",
    .inputs = {"x", "counter?"},
    .infer = infer,
    .vjp = [](const VjpContext& c) -> std::vector<ValueId> {
      std::vector<ValueId> grads(c.node.inputs.size(), kNone);
      grads[0] = c.grad_out[0];
      return grads;
    },
    .cpu = kernel,
    .gpu = true,
    .reference = reference,
    .cost = [](const NodeView& node) { return cost_per_element(node, 8); },
    .precision = ir::Precision::full,
    .samples = samples};

}  // namespace hearth::ops
