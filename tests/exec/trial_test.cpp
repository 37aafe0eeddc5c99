// Excerpts of nodes that are too large to be computed in float64 say what the processor's kernels make of the
// whole.
#include "exec/device/trial.h"

#include <gtest/gtest.h>

#include "base/threads.h"
#include "exec/memory.h"
#include "ops/matmul/quantized.h"
#include "ops/op_list.h"

namespace hearth::exec {
namespace {

ir::Type f32(const Shape& shape) { return {.dtype = DType::f32, .shape = shape}; }
ir::Type i32(const Shape& shape) { return {.dtype = DType::i32, .shape = shape}; }

Region room_for(const ir::Type& type) { return Region(type.num_bytes() + 128); }

std::vector<std::vector<std::byte>> run_on_processor(const ir::OpDef& op, const NodeTest& trial) {
  ThreadPool threads(2);
  const ir::NodeView view{.attrs = trial.attrs, .in = trial.in, .out = trial.out, .num_threads = 2};
  const ir::Kernel kernel = op.cpu(view);
  std::vector<Region> regions;
  std::vector<void*> in, out;
  for (size_t i = 0; i < trial.in.size(); ++i) {
    const std::vector<std::byte> bytes = test_input(trial, i);
    std::ranges::copy(bytes, regions.emplace_back(room_for(trial.in[i])).data());
    in.push_back(regions.back().data());
  }
  for (const ir::Type& type : trial.out) out.push_back(regions.emplace_back(room_for(type)).data());
  const Region workspace(kernel.workspace_bytes + 128);
  kernel.run({.in = in, .out = out, .workspace = workspace.data(), .threads = &threads});
  std::vector<std::vector<std::byte>> outputs;
  for (size_t k = 0; k < out.size(); ++k) {
    const auto* bytes = static_cast<const std::byte*>(out[k]);
    outputs.emplace_back(bytes, bytes + trial.out[k].num_bytes());
  }
  return outputs;
}

struct Large {
  const char* op;
  std::vector<ir::Type> in;
  ir::Attrs attrs;
  Shape ran = {};  ///< of the first input, where what runs is shorter
};

class Trials : public testing::TestWithParam<Large> {};

TEST_P(Trials, OfALargeNodeAreWhatTheProcessorMakes) {
  const auto& [name, in, attrs, ran] = GetParam();
  const ir::OpDef& op = *ops::find_op(name);
  const ir::Inferred inferred = op.infer({.attrs = attrs, .in = in, .out = {}});
  ASSERT_EQ(inferred.error, "");
  const auto trial = node_test_of(op, {.attrs = attrs, .in = in, .out = inferred.out});
  ASSERT_TRUE(trial);
  EXPECT_EQ(trial->in[0].shape, ran.rank() > 0 ? ran : in[0].shape);
  std::vector<std::vector<std::byte>> outputs = run_on_processor(op, *trial);
  EXPECT_EQ(compare_with_excerpt(op, *trial, outputs), "");
  for (std::byte& byte : outputs[0]) byte = std::byte{0};
  EXPECT_NE(compare_with_excerpt(op, *trial, outputs), "");
}

ir::Attrs attention(int64_t causal) {
  return {{"batch", int64_t{2}},       {"heads", int64_t{8}},  {"kv_heads", int64_t{2}},
          {"head_size", int64_t{128}}, {"scale", 1 / 11.3125}, {"causal", causal}};
}
Large quantized(int64_t rows, int64_t columns, int64_t back, const Shape& ran) {
  Large made{.op = "quantized_linear",
             .in = {f32({5, back != 0 ? rows : columns})},
             .attrs = {{"format", std::string("nf4")}, {"rows", rows}, {"columns", columns}, {"back", back}},
             .ran = ran};
  for (const ops::QuantizedPart& part : ops::quantized_parts(ops::Quantization::nf4, rows, columns))
    made.in.push_back(part.type);
  return made;
}
std::vector<Large> large_nodes() {
  const ir::Type q = f32({2000, 1024}), k = f32({2000, 256});
  return {
      {"matmul",
       {f32({900, 300}), f32({700, 900})},
       {{"transpose_a", int64_t{1}}, {"transpose_b", int64_t{1}}}},
      {"attention", {q, k, k}, attention(1)},
      {"attention", {q, k, k, i32({2000})}, attention(1)},
      {"attention", {q, k, k}, attention(0), {1250, 1024}},
      {"attention_grad", {q, k, k, q, f32({2000, 8}), q}, attention(1), {624, 1024}},
      {"head_cross_entropy", {f32({40, 4096}), f32({4000, 4096}), i32({40})}, {{"rows", int64_t{16}}}},
      {"head_cross_entropy_train",
       {f32({100, 4096}), f32({4000, 4096}), i32({100}), f32({})},
       {{"rows", int64_t{16}}},
       {80, 4096}},
      {"conv2d",
       {f32({3, 20, 20, 70}), f32({3, 3, 70, 90})},
       {{"stride", int64_t{2}}, {"padding", int64_t{1}}}},
      {"conv2d",
       {f32({3, 20, 20, 70}), f32({3, 3, 1, 140})},
       {{"padding", int64_t{2}}, {"dilation", int64_t{2}}, {"groups", int64_t{70}}}},
      {"conv2d_grad_input",
       {f32({3, 20, 20, 140}), f32({3, 3, 4, 140})},
       {{"padding", int64_t{1}}, {"groups", int64_t{35}}, {"in_h", int64_t{20}}, {"in_w", int64_t{20}}}},
      {"conv2d_grad_weight",
       {f32({3, 20, 20, 140}), f32({3, 20, 20, 140})},
       {{"padding", int64_t{1}},
        {"groups", int64_t{140}},
        {"kernel_h", int64_t{3}},
        {"kernel_w", int64_t{3}}}},
      {"embedding", {i32({5000}), f32({3000, 60})}, {}},
      quantized(16, 4096, 0, {}),
      quantized(4096, 4096, 1, {5, 3051}),
  };
}
INSTANTIATE_TEST_SUITE_P(Large, Trials, testing::ValuesIn(large_nodes()), [](const auto& param) {
  return std::string(param.param.op) + std::to_string(param.index);
});

}  // namespace
}  // namespace hearth::exec
