// Collectives beside computing, on the processor and on an emulated GPU: whoever gets ahead, the bytes are
// those of calls that are made in their place.
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <deque>
#include <functional>
#include <thread>

#include "backend/gpu/emu/stream.h"
#include "backend/gpu/modules.h"
#include "base/philox.h"
#include "exec/device/gpu.h"
#include "exec/fake_group.h"
#include "exec/host_queue.h"
#include "ir/verify.h"
#include "ops/op_list.h"
#include "passes/parallel/all_reduce.h"

namespace hearth::exec {
namespace {

constexpr int kLayers = 5;
constexpr int kRuns = 4;
constexpr int64_t kCount = 700;

/// Like those of a backward pass, each gradient comes when the ones before it are on their way.
passes::TrainGraph make_graph(const passes::AllReduceOptions& options) {
  passes::TrainGraph train;
  ir::Graph& graph = train.graph;
  const auto add = [&](const char* op, std::vector<ir::ValueId> in) {
    return graph.add1(*ops::find_op(op), std::move(in), {}, op);
  };
  const ir::Type row{.dtype = DType::f32, .shape = {kCount}};
  const ir::ValueId x = graph.add_value("x", row, ir::Role::input);
  ir::ValueId h = x;
  for (int i = 0; i < kLayers; ++i) {
    const ir::ValueId weight = graph.add_value("weight" + std::to_string(i), row, ir::Role::parameter);
    const ir::ValueId gradient = add("mul", {h, x});
    h = add("mul", {h, weight});
    train.shared.push_back({.value = gradient});
    train.gradients.push_back({.parameter = weight, .gradient = gradient});
  }
  // A value that is another one's bytes until it is summed, and one that is summed where it is kept.
  const ir::ValueId sum = graph.add_value("sum", row, ir::Role::carried);
  train.shared.push_back({.value = add("accumulate", {sum, h})});
  for (const passes::Gradient& gradient : train.gradients)
    add("accumulate", {gradient.parameter, gradient.gradient});
  add("accumulate", {graph.add_value("kept", row, ir::Role::state), train.shared.back().value});
  add("zero", {train.shared.back().value});
  passes::all_reduce(train, options);
  ir::verify(graph, "all_reduce");
  return train;
}

/// Two workers more, of which one has twice as much and one has ones; not always at once.
class Others : public FakeGroup {
 public:
  explicit Others(int most_microseconds) : most_microseconds_(most_microseconds) {}
  void set_collective_id(const distributed::CollectiveId& /*place*/) override { num_pieces.push_back(0); }
  void all_reduce(std::span<float> data, DType wire) override {
    EXPECT_EQ(wire, DType::f32);
    if (most_microseconds_ > 0)
      std::this_thread::sleep_for(std::chrono::microseconds(random_.below(most_microseconds_)));
    add_up(data);
    num_pieces.back() += data.size() / kCount;
  }
  /// Of each collective; every piece has kCount numbers.
  std::vector<size_t> num_pieces;

 protected:
  static void add_up(std::span<float> data) {
    for (float& value : data) value = 3 * value + 1;
  }

 private:
  uint64_t most_microseconds_;
  PhiloxSequence random_{3, 0};
};

/// The same for the memory of GPUs, when their streams get to it.
class OthersGpus : public Others {
 public:
  explicit OthersGpus(bool meet) : Others(0), meet_(meet) {}
  using Others::all_reduce;
  bool has(distributed::Capability capability) const override {
    return meet_ && capability == distributed::Capability::device_memory;
  }
  void all_reduce(std::span<float> data, DType wire) override {
    EXPECT_FALSE(meet_);
    Others::all_reduce(data, wire);
  }
  void all_reduce(void* data, int64_t count, DType dtype, gpu::Stream& stream) override {
    EXPECT_TRUE(meet_);
    EXPECT_EQ(dtype, DType::f32);
    num_pieces.back() += static_cast<size_t>(count / kCount);
    calls_.emplace_back(
        [values = std::span(static_cast<float*>(data), static_cast<size_t>(count))] { add_up(values); });
    stream.call([](void* call) { (*static_cast<std::function<void()>*>(call))(); }, &calls_.back());
  }

 private:
  bool meet_;
  std::deque<std::function<void()>> calls_;
};

std::vector<float> row_of(uint64_t number) {
  PhiloxSequence random(2, number);
  std::vector<float> row(kCount + 16);
  for (float& value : row) value = random.uniform(-0.9F, 0.9F);
  return row;
}

void fill(std::byte* image, const PersistentLayout& layout) {
  for (const PersistentBuffer& buffer : layout.buffers()) {
    const std::vector<float> row = row_of(100 + static_cast<uint64_t>(buffer.offset));
    std::memcpy(image + buffer.offset, row.data(), static_cast<size_t>(buffer.type.num_bytes()));
  }
}

struct Outcome {
  std::vector<std::byte> image;
  std::vector<size_t> num_pieces;
};

Outcome on_processor(const passes::AllReduceOptions& options, int most_microseconds, bool queued) {
  PersistentLayout layout;
  passes::TrainGraph train = make_graph(options);
  layout.add(train.graph);
  const Program program = compile(std::move(train.graph), layout, {});
  Executor executor(program);
  const Region image(layout.num_bytes()), arena(program.arena_bytes()), host(program.report.host_bytes);
  fill(image.data(), layout);
  executor.bind({.persistent = image.data(), .arena = arena.data(), .host = host.data()});
  Others others(most_microseconds);
  HostQueue queue;
  executor.connect(others, queued ? &queue : nullptr);
  ThreadPool threads(1);
  for (uint64_t i = 0; i < kRuns; ++i) {
    const std::vector<float> row = row_of(i);
    executor.bind_input("x", row.data());
    executor.run(threads);
  }
  return {.image = {image.data(), image.data() + layout.num_bytes()}, .num_pieces = others.num_pieces};
}

Outcome on_gpu(const passes::AllReduceOptions& options, const emu::GpuSettings& settings) {
  emu::gpus() = {settings};
  PersistentLayout layout;
  passes::TrainGraph train = make_graph(options);
  layout.add(train.graph);
  const Program program =
      compile(std::move(train.graph), layout, {.backend = Backend::gpu, .driver = &gpu::emulator()});
  EXPECT_EQ(program.num_host_nodes, 0);
  Executor executor(program);
  Gpu gpu({.device = "emulated"});
  const gpu::HostMemory image(gpu.device(), layout.num_bytes());
  std::memset(image.data(), 0, static_cast<size_t>(layout.num_bytes()));
  fill(image.data(), layout);
  ProgramMemory::Requirements needs;
  needs.cover(program);
  gpu.allocate(layout, image.data(), needs);
  executor.bind(gpu.places());
  gpu.upload();
  OthersGpus others(options.on_gpu);
  executor.connect(others, nullptr);
  ThreadPool threads(1);
  const std::vector<std::vector<float>> rows = {row_of(0), row_of(1), row_of(2), row_of(3)};
  for (const std::vector<float>& row : rows) {
    executor.bind_input("x", row.data());
    executor.start(threads);
  }
  executor.wait();
  EXPECT_EQ(executor.is_recorded(), !settings.cannot_record && !options.on_gpu);
  gpu.download();
  return {.image = {image.data(), image.data() + layout.num_bytes()}, .num_pieces = others.num_pieces};
}

/// Two to a bucket; each alone; all in one.
class Collectives : public testing::TestWithParam<int64_t> {
 protected:
  ~Collectives() override { emu::gpus() = {{}}; }
  passes::AllReduceOptions options() const { return {.bucket_bytes = GetParam() * kCount * 4}; }
  Outcome want() const { return on_processor(options(), 0, false); }
};

TEST_P(Collectives, GoOnBesideTheProcessor) {
  const Outcome want = this->want();
  const Outcome got = on_processor(options(), 300, true);
  EXPECT_EQ(got.image, want.image);
  EXPECT_EQ(got.num_pieces, want.num_pieces);
}

TEST_P(Collectives, GoOnBesideACard) {
  const Outcome want = this->want();
  passes::AllReduceOptions through_host = options();
  through_host.through_host = true;
  for (uint64_t seed = 0; seed < 12; ++seed) {
    for (const bool cannot_record : {false, true}) {
      const Outcome got = on_gpu(through_host, {.cannot_record = cannot_record, .order_seed = seed});
      EXPECT_EQ(got.image, want.image) << "order " << seed;
      EXPECT_EQ(got.num_pieces, want.num_pieces);
    }
  }
}

TEST_P(Collectives, GoFromGpuToGpu) {
  const Outcome want = this->want();
  passes::AllReduceOptions on_gpus = options();
  on_gpus.on_gpu = true;
  for (uint64_t seed = 0; seed < 12; ++seed) {
    const Outcome got = on_gpu(on_gpus, {.order_seed = seed});
    EXPECT_EQ(got.image, want.image) << "order " << seed;
    EXPECT_EQ(got.num_pieces, want.num_pieces);
  }
}

INSTANTIATE_TEST_SUITE_P(Buckets, Collectives, testing::Values(2, 1, 100));

TEST(CollectivesInBuckets, TravelTogetherAsFarAsTheyAreSmall) {
  using Sizes = std::vector<size_t>;
  const auto first_run = [](int64_t bucket_bytes) {
    const Sizes all = on_processor({.bucket_bytes = bucket_bytes}, 0, false).num_pieces;
    return Sizes(all.begin(), all.begin() + std::ssize(all) / kRuns);
  };
  EXPECT_EQ(first_run(2 * kCount * 4), Sizes({2, 2, 2}));
  EXPECT_EQ(first_run(4 * kCount * 4), Sizes({4, 2}));
  EXPECT_EQ(first_run(kCount * 4), Sizes({1, 1, 1, 1, 1, 1}));
}

TEST(CollectivesInBuckets, BeginBeforeTheRestIsComputed) {
  const passes::TrainGraph train = make_graph({.bucket_bytes = 2 * kCount * 4});
  std::vector<std::string_view> names;
  for (const ir::Node& node : train.graph.nodes) names.push_back(node.op->name);
  const auto first = std::ranges::find(names, "all_reduce");
  EXPECT_EQ(std::count(names.begin(), first, "mul"), 3);
  EXPECT_GE(std::count(first, names.end(), "mul"), 2 * kLayers - 4);
}

}  // namespace
}  // namespace hearth::exec
