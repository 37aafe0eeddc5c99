// What a worker sends of the same gradient again and again adds up to that gradient, however little it sends
// of each.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "base/philox.h"
#include "exec/executor.h"
#include "exec/fake_group.h"
#include "ir/verify.h"
#include "ops/op_list.h"
#include "passes/parallel/all_reduce.h"
#include "passes/parallel/compress.h"

namespace hearth::exec {
namespace {

constexpr int64_t kRows = 96, kColumns = 80;
constexpr size_t kCount = kRows * kColumns;

passes::TrainGraph make_graph(const passes::CompressOptions& options) {
  passes::TrainGraph train;
  ir::Graph& graph = train.graph;
  const auto add = [&](const char* op, std::vector<ir::ValueId> in) {
    return graph.add1(*ops::find_op(op), std::move(in), {}, op);
  };
  const ir::Type matrix{.dtype = DType::f32, .shape = {2, kRows / 2, kColumns}};
  const ir::ValueId weight = graph.add_value("weight", matrix, ir::Role::parameter);
  const ir::ValueId x = graph.add_value("x", matrix, ir::Role::input);
  const ir::ValueId gradient = add("neg", {x});
  train.gradients.push_back({.parameter = weight, .gradient = gradient});
  train.shared.push_back({.value = gradient});
  add("accumulate", {weight, gradient});
  passes::compress(train, options);
  ir::verify(graph, "compress");
  passes::all_reduce(train, {});
  ir::verify(graph, "all_reduce");
  return train;
}

float sent_as(DType wire, float value) {
  return wire == DType::bf16 ? to_f32(to_bf16(value)) : f8_e5m2_to_f32(f32_to_f8_e5m2(value));
}

/// A second worker that has the same gradient, and counts what it is sent.
class Twin : public FakeGroup {
 public:
  void all_reduce(std::span<float> data, DType wire) override {
    for (float& value : data) {
      EXPECT_TRUE(wire == DType::f32 || value == sent_as(wire, value)) << value;
      value *= 2;
    }
    num_bytes += std::ssize(data) * dtype_bytes(wire);
  }
  int64_t num_bytes = 0;
};

std::vector<float> make_gradient() {
  PhiloxSequence random(5, 0);
  std::vector<float> gradient(kCount + 16);
  for (float& value : gradient) value = random.uniform(-1, 1);
  return gradient;
}

struct Outcome {
  double distance = 0;  ///< of the mean of what came to the weight from the gradient, over the gradient
  double missing = 0;   ///< of what came, with what is left over, from all gradients, over the gradient
  int64_t num_bytes = 0;
};

Outcome run(Compress way, int num_runs) {
  passes::TrainGraph train = make_graph({.way = way});
  PersistentLayout layout;
  layout.add(train.graph);
  const Program program = compile(std::move(train.graph), layout, {});
  Executor executor(program);
  const Region image(layout.num_bytes()), arena(program.arena_bytes());
  executor.bind({.persistent = image.data(), .arena = arena.data()});
  Twin twin;
  executor.connect(twin, nullptr);
  ThreadPool threads(1);
  const std::vector<float> gradient = make_gradient();
  executor.bind_input("x", gradient.data());
  for (int i = 0; i < num_runs; ++i) executor.run(threads);
  const auto* weight = reinterpret_cast<const float*>(image.data() + layout.at("weight").offset);
  const auto* error = reinterpret_cast<const float*>(image.data() + layout.at("error/weight").offset);
  double squares = 0, distance = 0, missing = 0;
  for (size_t i = 0; i < kCount; ++i) {
    const double whole = -2.0 * num_runs * gradient[i];
    squares += 4.0 * gradient[i] * gradient[i];
    distance += std::pow((weight[i] - whole) / num_runs, 2);
    missing += std::pow(weight[i] + 2.0 * error[i] - whole, 2);
  }
  return {.distance = std::sqrt(distance / squares),
          .missing = std::sqrt(missing / squares),
          .num_bytes = twin.num_bytes / num_runs};
}

TEST(Compress, RoundingIsMadeGoodByWhatFollows) {
  const Outcome once = run(Compress::bf16, 1);
  EXPECT_GT(once.distance, 1e-4);
  const Outcome often = run(Compress::bf16, 100);
  EXPECT_LT(often.distance, once.distance / 50);
  EXPECT_LT(often.missing, 1e-4);
  EXPECT_EQ(often.num_bytes, 2 * kRows * kColumns);
}

TEST(Compress, EightBitsAreMadeGoodByWhatFollows) {
  const Outcome once = run(Compress::fp8, 1);
  EXPECT_GT(once.distance, 1e-2);
  const Outcome often = run(Compress::fp8, 100);
  EXPECT_LT(often.distance, once.distance / 50);
  EXPECT_LT(often.missing, 1e-4);
  EXPECT_EQ(often.num_bytes, kRows * kColumns + 4) << "with a sum of squares";
}

TEST(Compress, FactorsOfRankFourFindAWholeMatrixInTime) {
  const Outcome once = run(Compress::powersgd, 1);
  EXPECT_GT(once.distance, 0.8);
  const Outcome often = run(Compress::powersgd, 300);
  EXPECT_LT(often.distance, 0.1);
  EXPECT_LT(often.missing, 1e-2);
  EXPECT_EQ(often.num_bytes, 4 * 4 * (kRows + kColumns));
}

}  // namespace
}  // namespace hearth::exec
