// Programs with copies beside their computing, on an emulated GPU: in whatever order the queues get on,
// recorded or not, the bytes are those of the processor.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "backend/gpu/emu/stream.h"
#include "backend/gpu/modules.h"
#include "base/error.h"
#include "base/philox.h"
#include "exec/device/gpu.h"
#include "ops/gpu_support.h"
#include "ops/op_list.h"
#include "passes/memory/offload.h"

namespace hearth::exec {
namespace {

constexpr int64_t kCount = 1100;
constexpr int kLayers = 5;
constexpr int kRuns = 6;
/// Stays on the GPU.
const ir::Type kSmall{.dtype = DType::f32, .shape = {8}};
const ir::Type kRow{.dtype = DType::f32, .shape = {kCount}};

class Builder {
 public:
  ir::Graph build() {
    const ir::ValueId x = graph_.add_value("x", kRow, ir::Role::input);
    std::vector<ir::ValueId> weights, sums, kept;
    for (int i = 0; i < kLayers; ++i) {
      weights.push_back(graph_.add_value("weight" + std::to_string(i), kRow, ir::Role::parameter));
      sums.push_back(graph_.add_value("sum" + std::to_string(i), kRow, ir::Role::state));
    }
    // The sum's workspace may take the bytes that the copy reads.
    const ir::ValueId away = add("stash", {add("mul", {x, x})});
    ir::ValueId h = x, total = add("sum_all", {x});
    for (int i = 0; i < kLayers; ++i) {
      h = add("add", {h, weights[static_cast<size_t>(i)]});
      kept.push_back(add("stash", {h}));
      h = add("mul", {h, x});
      total = add("add", {total, add("sum_all", {h})});
    }
    for (int i = kLayers; i-- > 0;) {
      h = add("mul", {h, add("fetch", {kept[static_cast<size_t>(i)]})});
      add("accumulate", {sums[static_cast<size_t>(i)], h});
      add("accumulate", {weights[static_cast<size_t>(i)], h});
    }
    total = add("add", {total, add("sum_all", {add("fetch", {away})})});
    const ir::ValueId small = graph_.add_value("small", kSmall, ir::Role::parameter);
    add("accumulate", {graph_.add_value("small_sum", kSmall, ir::Role::state), small});
    graph_.outputs = {total};
    passes::offload(graph_, {.states = true, .weights = true, .min_bytes = 2 * kSmall.num_bytes()});
    passes::prefetch(graph_, 10 * kRow.num_bytes(), nullptr, {.link_bytes_per_second = 1e7});
    return std::move(graph_);
  }

 private:
  ir::ValueId add(const char* op, std::vector<ir::ValueId> in) {
    return graph_.add1(*ops::find_op(op), std::move(in), {}, op);
  }
  ir::Graph graph_;
};

/// The output of every run, and what the weights and states came to.
struct Outcome {
  std::vector<float> outputs;
  std::vector<std::byte> image;
};

void expect_equal(const Outcome& got, const Outcome& want) {
  ASSERT_EQ(got.outputs.size(), want.outputs.size());
  for (size_t i = 0; i < got.outputs.size(); ++i)
    EXPECT_NEAR(got.outputs[i], want.outputs[i], 1e-5 * std::fabs(want.outputs[i])) << "run " << i;
  const auto [here, there] = std::ranges::mismatch(got.image, want.image);
  EXPECT_EQ(here - got.image.begin(), std::ssize(want.image)) << "the first byte that differs";
}

void fill(std::span<std::byte> image) {
  PhiloxSequence random(1, 0);
  for (size_t i = 0; i + sizeof(float) <= image.size(); i += sizeof(float)) {
    const float value = random.uniform(-1, 1);
    std::memcpy(&image[i], &value, sizeof value);
  }
}

/// Two arrays in turns, as a stream of batches hands them out.
class Inputs {
 public:
  const float* next() {
    std::vector<float>& row = rows_[num_++ % 2];
    row.resize(kCount + 16);
    PhiloxSequence random(2, num_);
    for (float& value : row) value = random.uniform(-0.2F, 0.2F);
    return row.data();
  }

 private:
  std::vector<float> rows_[2];
  uint64_t num_ = 0;
};

Outcome on_processor() {
  PersistentLayout layout;
  ir::Graph graph = Builder().build();
  layout.add(graph);
  const Program program = compile(std::move(graph), layout, {});
  Executor executor(program);
  const Region image(layout.num_bytes()), arena(program.arena_bytes()), host(program.report.host_bytes);
  fill({image.data(), static_cast<size_t>(layout.num_bytes())});
  executor.bind({.persistent = image.data(), .arena = arena.data(), .host = host.data()});
  ThreadPool threads(1);
  Inputs inputs;
  Outcome outcome;
  for (int i = 0; i < kRuns; ++i) {
    executor.bind_input("x", inputs.next());
    executor.run(threads);
    outcome.outputs.push_back(*static_cast<const float*>(executor.data(program.graph.outputs[0])));
  }
  outcome.image.assign(image.data(), image.data() + layout.num_bytes());
  return outcome;
}

class GpuPrograms : public testing::Test {
 protected:
  GpuPrograms() {
    ir::Graph graph = Builder().build();
    layout_.add(graph);
    compile_for_gpu(std::move(graph));
  }
  ~GpuPrograms() override { emu::gpus() = {{}}; }

  void compile_for_gpu(ir::Graph graph, const cost::Device& device = {}) {
    executor_.reset();
    program_ = compile(std::move(graph), layout_,
                       {.backend = Backend::gpu, .driver = &gpu::emulator(), .device = device});
    executor_.emplace(program_);
  }

  void compile_one_node() {
    ir::Graph graph;
    const ir::ValueId weight = graph.add_value("weight", kRow, ir::Role::parameter);
    graph.outputs = {graph.add1(*ops::find_op("relu"), {weight})};
    layout_ = {};
    layout_.add(graph);
    compile_for_gpu(std::move(graph));
  }

  void open(const emu::GpuSettings& settings, RecordMode record = RecordMode::automatic) {
    image_.reset();
    results_.reset();
    gpu_.reset();
    emu::gpus() = {settings};
    gpu_.emplace(GpuRequest{.device = "emulated", .record = record});
    image_.emplace(gpu_->device(), layout_.num_bytes());
    results_.emplace(gpu_->device(), kRuns * sizeof(float));
    fill({image_->data(), static_cast<size_t>(layout_.num_bytes())});
    ProgramMemory::Requirements needs;
    needs.cover(program_);
    gpu_->allocate(layout_, image_->data(), needs);
    executor_->bind(gpu_->places());
    gpu_->upload();
  }
  /// Without waiting in between.
  void start_all() {
    for (int i = 0; i < kRuns; ++i) {
      executor_->bind_input("x", inputs_.next());
      executor_->start(threads_);
      executor_->read(program_.graph.outputs[0], results_->data() + i * sizeof(float));
    }
  }
  Outcome outcome() {
    executor_->wait();
    Outcome outcome;
    outcome.outputs.resize(kRuns);
    std::memcpy(outcome.outputs.data(), results_->data(), kRuns * sizeof(float));
    gpu_->download();
    outcome.image.assign(image_->data(), image_->data() + layout_.num_bytes());
    return outcome;
  }

  PersistentLayout layout_;
  ThreadPool threads_{1};
  Inputs inputs_;
  std::optional<Gpu> gpu_;
  std::optional<gpu::HostMemory> image_, results_;
  Program program_;
  std::optional<Executor> executor_;
};

/// Of what is sent ahead: the next run's inputs; or others than it is bound to then; or another program's run
/// comes in between.
enum class Ahead : uint8_t { right, wrong, lost };

class GpuProgramsAhead : public GpuPrograms,
                         public testing::WithParamInterface<std::tuple<uint64_t, Ahead>> {};

TEST_P(GpuProgramsAhead, WhatIsSentAheadIsTakenWhereItIsWhatIsBound) {
  const auto [seed, ahead] = GetParam();
  open({.order_seed = seed});
  const std::vector<float> others(kCount + 16, 0.125F);
  const float* next = inputs_.next();
  for (int i = 0; i < kRuns; ++i) {
    executor_->bind_input("x", next);
    executor_->start(threads_);
    executor_->read(program_.graph.outputs[0], results_->data() + i * sizeof(float));
    next = inputs_.next();
    executor_->bind_input("x", ahead == Ahead::wrong ? others.data() : next);
    executor_->stage_ahead();
    if (ahead == Ahead::lost) {
      Staging& shared = *gpu_->places().staging;
      std::memset(shared.fill(), 0, static_cast<size_t>(program_.staging_bytes));
      shared.send(0, program_.staging_bytes);
      shared.arrive(*gpu_->places().queues[0]);
      shared.release(*gpu_->places().queues[0]);
    }
  }
  expect_equal(outcome(), on_processor());
}

INSTANTIATE_TEST_SUITE_P(Seeds, GpuProgramsAhead,
                         testing::Combine(testing::Range(uint64_t{0}, uint64_t{8}),
                                          testing::Values(Ahead::right, Ahead::wrong, Ahead::lost)));

class GpuProgramOrders : public GpuPrograms, public testing::WithParamInterface<uint64_t> {};

TEST_P(GpuProgramOrders, BytesAreThoseOfTheProcessor) {
  ASSERT_EQ(program_.num_host_nodes, 0);
  open({.order_seed = GetParam()});
  start_all();
  expect_equal(outcome(), on_processor());
  EXPECT_TRUE(executor_->is_recorded());
}

TEST_P(GpuProgramOrders, ARuntimeThatCannotRecordIsGivenTheWorkAnew) {
  open({.cannot_record = true, .order_seed = GetParam()});
  start_all();
  expect_equal(outcome(), on_processor());
  EXPECT_FALSE(executor_->is_recorded());
  EXPECT_EQ(gpu_->recorder().fault(),
            "the runtime of this GPU cannot record a step (this emulated GPU cannot record)");
}

INSTANTIATE_TEST_SUITE_P(Seeds, GpuProgramOrders, testing::Range(uint64_t{0}, uint64_t{24}));

TEST_F(GpuPrograms, EachNodeThatARecordingLosesIsFoundAndTheBytesAreRight) {
  int num_found = 0;
  for (const int64_t lost : {0, 1, 2, 3, 5, 8, 13, 20, 30, 40}) {
    SCOPED_TRACE(lost);
    inputs_ = {};
    compile_for_gpu(Builder().build());
    open({.lost_node = lost});
    start_all();
    expect_equal(outcome(), on_processor());
    if (gpu_->recorder().fault().empty()) {
      // Every node counts, so that a whole recording has none with that number.
      EXPECT_TRUE(executor_->is_recorded());
      EXPECT_GE(lost, std::ssize(program_.steps));
      continue;
    }
    EXPECT_THAT(gpu_->recorder().fault(), testing::HasSubstr("its first replay computed other bits in "));
    EXPECT_FALSE(executor_->is_recorded());
    ++num_found;
  }
  EXPECT_GE(num_found, 8);
}

TEST_F(GpuPrograms, ReplaysThatFailAreQueued) {
  for (const int failing : {0, 1, 2}) {
    inputs_ = {};
    compile_for_gpu(Builder().build());
    open({.failing_replay = failing});
    start_all();
    expect_equal(outcome(), on_processor());
    EXPECT_THAT(gpu_->recorder().fault(),
                testing::HasSubstr(failing == 0   ? "its first replay failed: this replay is"
                                   : failing == 1 ? "its replay number 2 failed: this replay is"
                                                  : "replay number 3 failed: this replay is"));
    EXPECT_FALSE(executor_->is_recorded());
  }
}

TEST_F(GpuPrograms, ReplaysThatLoseANodeLaterAreFound) {
  for (const int right : {1, 49}) {
    compile_one_node();
    open({.lost_node = 0, .num_right_replays = right});
    for (int i = 0; i < 2 * right + 1; ++i) executor_->run(threads_);
    EXPECT_EQ(gpu_->recorder().fault(), "");
    EXPECT_TRUE(executor_->is_recorded());
    executor_->run(threads_);
    EXPECT_THAT(gpu_->recorder().fault(),
                testing::HasSubstr(fmt::format("its replay number {} computed other bits", right + 1)));
    EXPECT_THAT(gpu_->recorder().fault(), testing::HasSubstr("steps before it may be wrong, too"));
    EXPECT_FALSE(executor_->is_recorded());
  }
}

TEST_F(GpuPrograms, ALostNodeIsFoundWhoseResultStandsThereFromTheRunBefore) {
  compile_one_node();
  open({.lost_node = 0});
  for (int i = 0; i < 2; ++i) executor_->run(threads_);
  EXPECT_THAT(gpu_->recorder().fault(), testing::HasSubstr("other bits in 1 of 1 results"));
}

TEST_F(GpuPrograms, AlwaysReplaysWithoutAComparisonAndNeverDoesNot) {
  open({.lost_node = 5}, RecordMode::always);
  start_all();
  EXPECT_NE(outcome().image, on_processor().image) << "the lost node shows";
  EXPECT_TRUE(executor_->is_recorded());
  inputs_ = {};
  compile_for_gpu(Builder().build());
  open({.lost_node = 5}, RecordMode::never);
  start_all();
  expect_equal(outcome(), on_processor());
  EXPECT_FALSE(executor_->is_recorded());
}

TEST_F(GpuPrograms, AlwaysRefusesARuntimeThatCannotRecord) {
  open({.cannot_record = true}, RecordMode::always);
  EXPECT_THROW(start_all(), UserError);
}

TEST_F(GpuPrograms, WhatTheHostComputesCannotBeRecorded) {
  EXPECT_EQ(executor_->obstacle(), "");
  executor_.reset();
  const auto trusts_none = [](const ir::OpDef&, const ir::NodeView&) { return false; };
  program_ = compile(Builder().build(), layout_,
                     {.backend = Backend::gpu, .driver = &gpu::emulator(), .trusts = trusts_none});
  executor_.emplace(program_);
  EXPECT_THAT(executor_->obstacle(), testing::EndsWith(" nodes that the host computes instead of the GPU"));
}

TEST_F(GpuPrograms, StartingDoesNotWait) {
  open({}, RecordMode::always);
  const std::vector<std::byte> before(image_->data(), image_->data() + layout_.num_bytes());
  for (int i = 0; i < 2; ++i) {
    executor_->bind_input("x", inputs_.next());
    executor_->start(threads_);
  }
  EXPECT_TRUE(std::equal(before.begin(), before.end(), image_->data())) << "nothing was waited for";
  executor_->wait();
  EXPECT_FALSE(std::equal(before.begin(), before.end(), image_->data()));
}

TEST_F(GpuPrograms, OffloadedBytesAreNotOnTheGpu) {
  EXPECT_EQ(layout_.device_bytes(), 2 * passes::padded_bytes(kSmall.num_bytes()));
  EXPECT_NE(layout_.device_pieces()[0].offset, layout_.device_pieces()[0].device_offset);
  emu::GpuSettings settings;
  settings.memory_bytes =
      layout_.device_bytes() + program_.arena_bytes() + 2 * program_.staging_bytes + Gpu::kSlackBytes + 256;
  open(settings);
  start_all();
  expect_equal(outcome(), on_processor());
}

TEST_F(GpuPrograms, AGpuThatSharesMemoryHasWhatTheProcessorHasFree) {
  emu::gpus() = {{.memory_bytes = int64_t{1} << 50, .integrated = true}};
  const Gpu gpu({.device = "emulated:0"});
  EXPECT_GT(gpu.usable_bytes(0), 0);
  EXPECT_LT(gpu.usable_bytes(0), int64_t{1} << 45);
  EXPECT_EQ(gpu.usable_bytes(int64_t{1} << 50), 0) << "the host takes it all";
  emu::gpus() = {{.memory_bytes = int64_t{1} << 50}};
  EXPECT_EQ(Gpu({.device = "emulated"}).usable_bytes(int64_t{1} << 49), int64_t{1} << 50);
}

/// Looks where operands lie, and multiplies by one.
std::vector<std::pair<const std::byte*, int64_t>> seen;
ir::Kernel looking_kernel(const ir::NodeView& node) {
  const int64_t num_bytes = node.in_type(0).num_bytes();
  ir::Kernel kernel = gpu::emulator().kernel("copy", node);
  kernel.workspace_bytes = 100;
  kernel.run = [num_bytes, run = kernel.run](const ir::KernelArgs& args) {
    seen.emplace_back(static_cast<const std::byte*>(args.in[0]), num_bytes);
    seen.emplace_back(static_cast<const std::byte*>(args.out[0]), num_bytes);
    seen.emplace_back(args.workspace, 100);
    run(args);
  };
  return kernel;
}

const ops::GpuKernels kLooking = {{.op = "looking", .one = looking_kernel}};

TEST_F(GpuPrograms, WhatReadsPastAnyOperandStaysInTheAllocation) {
  constexpr int64_t kPast = 4096;
  ir::OpDef looking = *ops::find_op("copy");
  looking.name = "looking";
  ir::Graph graph;
  const ir::ValueId weight = graph.add_value("last weight", kRow, ir::Role::parameter);
  const ir::ValueId x = graph.add_value("x", kRow, ir::Role::input);
  graph.outputs = {graph.add1(looking, {weight}), graph.add1(looking, {x})};
  layout_ = {};
  layout_.add(graph);
  compile_for_gpu(std::move(graph));
  open({}, RecordMode::always);
  executor_->bind_input("x", inputs_.next());
  for (int i = 0; i < 2; ++i) executor_->run(threads_);
  ProgramMemory::Requirements needs;
  needs.cover(program_);
  const std::byte* begin = gpu_->places().persistent;
  const std::byte* end = begin + Gpu::needed_bytes(layout_, needs);
  EXPECT_EQ(seen.size(), 12U);
  for (const auto& [place, num_bytes] : seen) {
    EXPECT_GE(place, begin);
    EXPECT_LE(place + num_bytes + kPast, end);
  }
}

/// Executor::wait() of a run on a GPU that hangs, and what it allows a run.
struct Hang {
  std::string what;
  double allowed_seconds;
};

TEST_F(GpuPrograms, AreWaitedForByTheirModeledTimeAndThenReported) {
  const auto hang_on = [&](const cost::Device& device) {
    compile_for_gpu(Builder().build(), device);
    open({.hanging_launch = 0, .hang_scale = 1e-6});
    executor_->bind_input("x", inputs_.next());
    executor_->start(threads_);
    Hang hang{.what = "", .allowed_seconds = allowed_seconds(program_.seconds())};
    try {
      executor_->wait();
    } catch (const gpu::DeviceError& error) {
      EXPECT_EQ(error.kind(), gpu::DeviceError::Kind::timed_out);
      hang.what = error.what();
    }
    return hang;
  };
  const auto said = [](double seconds) {
    return fmt::format("the GPU did not respond for {:.0f} s", seconds);
  };
  const Hang small = hang_on({});
  EXPECT_LT(small.allowed_seconds, 0.5);
  EXPECT_EQ(small.what, said(60)) << "the least";
  const Hang large = hang_on({.bytes_per_second = 10000});
  EXPECT_GT(large.allowed_seconds, 500);
  EXPECT_EQ(large.what, said(60 + large.allowed_seconds));
}

TEST_F(GpuPrograms, AllowEachRunThatIsNotWaitedForItsTime) {
  compile_for_gpu(Builder().build(), {.bytes_per_second = 10000});
  open({});
  const double each = allowed_seconds(program_.seconds());
  const auto patience = [&] { return gpu_->places().queues[0]->timeout_seconds(); };
  const auto start = [&] {
    executor_->bind_input("x", inputs_.next());
    executor_->start(threads_);
  };
  // Once without a recording, then for each half of the staging the first two replays, which are compared.
  for (int i = 0; i < 5; ++i) {
    start();
    executor_->wait();
    EXPECT_EQ(patience(), 60);
  }
  ASSERT_TRUE(executor_->is_recorded());
  for (int i = 1; i <= 2; ++i) {
    start();
    EXPECT_EQ(patience(), 60 + i * each);
  }
}

}  // namespace
}  // namespace hearth::exec
