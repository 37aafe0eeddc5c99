// A decoder in stages: how it is cut, and that stages which run side by side make the bits of one program.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <tuple>

#include "base/philox.h"
#include "exec/executor.h"
#include "exec/fake_group.h"
#include "exec/host_queue.h"
#include "ir/verify.h"
#include "models/decoder/decoder.h"
#include "ops/op_list.h"
#include "passes/parallel/unroll.h"
#include "passes/pipeline.h"

namespace hearth::models {
namespace {

constexpr int64_t kContext = 16;
constexpr int64_t kNumMicro = 5;
constexpr int64_t kVocabulary = 50;

struct Model {
  const char* name;
  bool tied_head = false;
  DType precision = DType::f32;
  nn::Adapter adapter = {};
};
const Model kModels[] = {
    {.name = "untied"},
    {.name = "tied", .tied_head = true},
    {.name = "tied_bf16", .tied_head = true, .precision = DType::bf16},
    {.name = "adapter", .precision = DType::bf16, .adapter = {.rank = 2, .dropout = 0.3}},
};

DecoderConfig config_of(const Model& model) {
  return parse_decoder_config(
      fmt::format(R"({{"model_type": "llama", "vocab_size": {}, "hidden_size": 16, "intermediate_size": 24,
"num_hidden_layers": 4, "num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 512,
"rms_norm_eps": 1e-5, "tie_word_embeddings": {}}})",
                  kVocabulary, model.tied_head),
      "test");
}

/// A micro-batch's forward and backward pass, which adds gradients up in grad/NAME.
passes::TrainGraph make_micro(const Model& model) {
  passes::TrainGraph train;
  ir::Graph& graph = train.graph;
  nn::Builder builder(graph, nn::Builder::Mode::train, 1, model.adapter);
  const ir::Type ids{.dtype = DType::i32, .shape = {2 * kContext}};
  const ir::ValueId tokens = builder.input("tokens", ids), labels = builder.input("labels", ids);
  const ir::ValueId positions = builder.input("positions", ids);
  const DecoderOutputs out =
      build_decoder(builder, config_of(model),
                    {.tokens = tokens, .positions = positions, .num_rows = 2, .context = kContext});
  train.losses = builder.op("head_cross_entropy", {out.hidden, out.head, labels}, {{"rows", int64_t{8}}});
  train.loss_weight = graph.add_value("weight", {.dtype = DType::f32, .shape = {}}, ir::Role::scalar);
  graph.outputs = {graph.add1(*ops::find_op("sum_all"), {train.losses}, {}, "loss")};
  passes::PassContext context{.precision = model.precision, .cuts_stages = true};
  context.workspace_of = [](const ir::Node&) { return int64_t{0}; };
  context.consume_gradients = [](passes::TrainGraph& made) {
    for (passes::Gradient& gradient : made.gradients) {
      const ir::Value weight = made.graph.value(gradient.parameter);
      const ir::ValueId sum = made.graph.add_value("grad/" + weight.name, weight.type, ir::Role::carried);
      gradient.gradient = made.graph.add1(*ops::find_op("accumulate"), {sum, gradient.gradient}, {}, "sum");
    }
  };
  passes::run_passes(train, context, passes::Stage::compute);
  return train;
}

std::vector<passes::StageDevice> equal_devices(int count) {
  return std::vector<passes::StageDevice>(static_cast<size_t>(count));
}
passes::Stages split(const passes::TrainGraph& train, std::vector<passes::StageDevice> devices) {
  return passes::split_stages(train, {.devices = std::move(devices), .num_micro = kNumMicro});
}

class Pipeline : public testing::TestWithParam<Model> {
 protected:
  passes::TrainGraph micro_ = make_micro(GetParam());
};

TEST_P(Pipeline, EdgesGoForwardInTheForwardPassAndBackInTheBackwardPass) {
  for (const int num_stages : {1, 2, 3, 4}) {
    const passes::Stages stages = split(micro_, equal_devices(num_stages));
    ASSERT_EQ(stages.of_node.size(), micro_.graph.nodes.size());
    std::set<std::pair<int, passes::MicroPart>> seen;
    const auto at = [](const auto& all, ir::NodeId id) { return all[static_cast<size_t>(id)]; };
    for (ir::NodeId id = 0; id < std::ssize(micro_.graph.nodes); ++id) {
      const int stage = at(stages.of_node, id);
      const passes::MicroPart part = at(stages.part_of_node, id);
      seen.insert({stage, part});
      ASSERT_GE(stage, passes::Stages::kEvery);
      ASSERT_LT(stage, num_stages);
      for (const ir::ValueId in : micro_.graph.node(id).inputs) {
        const ir::NodeId from = in == ir::kNone ? ir::kNone : micro_.graph.value(in).producer;
        if (from == ir::kNone || at(stages.of_node, from) == passes::Stages::kEvery) continue;
        if (part == passes::MicroPart::forward && at(stages.part_of_node, from) != passes::MicroPart::early) {
          EXPECT_LE(at(stages.of_node, from), stage);
        } else if (part != passes::MicroPart::late &&
                   at(stages.part_of_node, from) == passes::MicroPart::backward) {
          EXPECT_GE(at(stages.of_node, from), stage);
        }
        EXPECT_TRUE(at(stages.part_of_node, from) != passes::MicroPart::late ||
                    (part == passes::MicroPart::late && at(stages.of_node, from) == stage));
      }
    }
    for (int stage = 0; stage < num_stages; ++stage) {
      EXPECT_TRUE(seen.contains({stage, passes::MicroPart::forward}));
      EXPECT_TRUE(seen.contains({stage, passes::MicroPart::backward}));
      for (const passes::MicroPart part : {passes::MicroPart::early, passes::MicroPart::late}) {
        EXPECT_EQ(seen.contains({stage, part}), GetParam().tied_head && stage > 0 && stage == num_stages - 1);
      }
    }
  }
}

/// The residual stream and its gradient, and, where the head is the table, that table's rows and theirs.
TEST_P(Pipeline, CutsWhereOneValueCrosses) {
  const passes::Stages stages = split(micro_, equal_devices(3));
  std::map<passes::MicroPart, int> num_crossings;
  for (const passes::Crossing& crossing : stages.crossings) {
    ++num_crossings[crossing.part];
    EXPECT_NE(crossing.from, crossing.to);
    EXPECT_EQ(micro_.graph.type(crossing.value).shape[0], 2 * kContext);
    EXPECT_EQ(crossing.part == passes::MicroPart::early || crossing.part == passes::MicroPart::backward,
              crossing.from > crossing.to);
  }
  const int tied = GetParam().tied_head ? 1 : 0;
  EXPECT_EQ(num_crossings[passes::MicroPart::forward], 2);
  EXPECT_EQ(num_crossings[passes::MicroPart::backward], 2);
  EXPECT_EQ(num_crossings[passes::MicroPart::late], tied);
  EXPECT_EQ(num_crossings[passes::MicroPart::early], tied);
}

TEST_P(Pipeline, UnequalDevicesGetUnequalParts) {
  const auto equal = split(micro_, equal_devices(2)).shares;
  const auto faster = split(micro_, {{.speed = 3}, {.speed = 1}}).shares;
  EXPECT_GT(3 * faster[0].seconds, 1.3 * equal[0].seconds);
  EXPECT_LT(faster[1].seconds, equal[1].seconds);
  const auto bytes = [](const passes::StageShare& share) {
    return share.weight_bytes + share.activation_bytes;
  };
  const int64_t less = bytes(equal[0]) - 1;
  const auto smaller = split(micro_, {{.memory_bytes = less}, {}}).shares;
  EXPECT_LE(bytes(smaller[0]), less);
  EXPECT_GT(bytes(smaller[1]), bytes(equal[1]));
}

/// Workers that are threads of this process; a send ends when it is received.
class Meeting {
 public:
  void send(int from, int to, std::span<const std::byte> data) {
    std::unique_lock lock(mutex_);
    Parcel& parcel = parcels_[{from, to}];
    parcel = {.data = data, .is_there = true};
    changed_.notify_all();
    wait(lock, [&] { return !parcel.is_there; });
  }
  void receive(int from, int to, std::span<std::byte> data) {
    std::unique_lock lock(mutex_);
    Parcel& parcel = parcels_[{from, to}];
    if (!wait(lock, [&] { return parcel.is_there; })) return;
    EXPECT_EQ(parcel.data.size(), data.size());
    std::ranges::copy(parcel.data, data.begin());
    parcel.is_there = false;
    changed_.notify_all();
  }

 private:
  struct Parcel {
    std::span<const std::byte> data;
    bool is_there = false;
  };
  /// Nobody waits on where one has waited in vain.
  template <typename Condition>
  bool wait(std::unique_lock<std::mutex>& lock, Condition condition) {
    const bool came =
        changed_.wait_for(lock, std::chrono::seconds(20), [&] { return stuck_ || condition(); });
    if (!came || stuck_) {
      if (!stuck_) ADD_FAILURE() << "workers wait for each other";
      stuck_ = true;
      changed_.notify_all();
    }
    return !stuck_;
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::pair<int, int>, Parcel> parcels_;
  bool stuck_ = false;
};
class Member : public exec::FakeGroup {
 public:
  Member(Meeting& meeting, int rank) : meeting_(meeting), rank_(rank) {}
  void send(std::span<const std::byte> data, int to) override { meeting_.send(rank_, to, data); }
  void receive(std::span<std::byte> data, int from) override { meeting_.receive(from, rank_, data); }

 private:
  Meeting& meeting_;
  int rank_;
};

/// The ids, labels and positions of each micro-batch, and what counts dropouts.
struct Inputs {
  std::map<std::string, std::vector<int32_t>> of_name;
  std::vector<std::array<int64_t, 16>> counters;

  Inputs() {
    for (int64_t micro = 0; micro < kNumMicro; ++micro) {
      PhiloxSequence random(7, static_cast<uint64_t>(micro));
      const std::string prefix = fmt::format("m{}/", micro);
      for (int64_t i = 0; i < 2 * kContext; ++i) {
        for (const char* name : {"tokens", "labels"})
          of_name[prefix + name].push_back(static_cast<int32_t>(random.below(kVocabulary)));
        of_name[prefix + "positions"].push_back(static_cast<int32_t>(i % kContext));
      }
      counters.push_back({3, micro});
    }
    for (auto& [name, values] : of_name) values.resize(values.size() + 16);
  }
};

/// A program with memory of its own, and weights that follow from their names.
class Worker {
 public:
  explicit Worker(passes::TrainGraph train) {
    layout_.add(train.graph);
    program_ = exec::compile(std::move(train.graph), layout_, {});
    image_ = exec::Region(layout_.num_bytes());
    arena_ = exec::Region(program_.arena_bytes());
    host_ = exec::Region(program_.report.host_bytes);
    for (const exec::PersistentBuffer& buffer : layout_.buffers()) fill(buffer);
    executor_.emplace(program_);
    executor_->bind({.persistent = image_.data(), .arena = arena_.data(), .host = host_.data()});
  }

  void bind(const Inputs& inputs, int64_t micro, const std::string& bound_as) {
    const std::string prefix = fmt::format("m{}/", micro);
    for (const char* name : {"tokens", "labels", "positions"}) {
      if (executor_->has_input(bound_as + name))
        executor_->bind_input(bound_as + name, inputs.of_name.at(prefix + name).data());
    }
    if (executor_->has_input(bound_as + "counter"))
      executor_->bind_input(bound_as + "counter", inputs.counters[static_cast<size_t>(micro)].data());
    executor_->set_scalar(bound_as + "weight", 1.0F / 64);
  }
  exec::Executor& executor() { return *executor_; }

  /// Of the sums of gradients, by name.
  std::map<std::string, std::vector<std::byte>> sums() const {
    std::map<std::string, std::vector<std::byte>> found;
    for (const exec::PersistentBuffer& buffer : layout_.buffers()) {
      const std::byte* const begin = image_.data() + buffer.offset;
      if (buffer.role == ir::Role::carried) found[buffer.name] = {begin, begin + buffer.type.num_bytes()};
    }
    return found;
  }
  std::vector<float> outputs() const {
    std::vector<float> values;
    for (const ir::ValueId id : program_.graph.outputs)
      values.push_back(*static_cast<const float*>(executor_->data(id)));
    return values;
  }

 private:
  void fill(const exec::PersistentBuffer& buffer) {
    if (buffer.role == ir::Role::carried) return;
    PhiloxSequence random(5, std::hash<std::string>()(buffer.name));
    for (int64_t i = 0; i < buffer.type.shape.num_elements(); ++i)
      store_element(buffer.type.dtype, image_.data() + buffer.offset, i, random.uniform(-0.4F, 0.4F));
  }

  exec::PersistentLayout layout_;
  exec::Region image_, arena_, host_;
  exec::Program program_;
  std::optional<exec::Executor> executor_;
};

struct Outcome {
  std::map<std::string, std::vector<std::byte>> sums;
  std::vector<float> losses;
};

Outcome run_alone(const passes::TrainGraph& micro, const Inputs& inputs) {
  Worker worker(micro);
  ThreadPool threads(1);
  Outcome outcome;
  for (int64_t i = 0; i < kNumMicro; ++i) {
    worker.bind(inputs, i, "");
    worker.executor().run(threads);
    outcome.losses.push_back(worker.outputs()[0]);
  }
  outcome.sums = worker.sums();
  return outcome;
}

void run_stage(Worker& worker, const Inputs& inputs, Meeting& meeting, int stage) {
  Member member(meeting, stage);
  exec::HostQueue queue;
  worker.executor().connect(member, &queue);
  ThreadPool threads(1);
  for (int64_t i = 0; i < kNumMicro; ++i) worker.bind(inputs, i, fmt::format("m{}/", i));
  worker.executor().run(threads);
}

Outcome run_stages(const passes::TrainGraph& micro, int num_stages, bool through_host, const Inputs& inputs) {
  const passes::Stages stages = split(micro, equal_devices(num_stages));
  std::vector<std::unique_ptr<Worker>> workers;
  for (int stage = 0; stage < num_stages; ++stage) {
    passes::TrainGraph unrolled =
        passes::unroll(micro, stages, {.stage = stage, .num_micro = kNumMicro, .through_host = through_host});
    ir::verify(unrolled.graph, "unroll");
    workers.push_back(std::make_unique<Worker>(std::move(unrolled)));
  }
  Meeting meeting;
  std::vector<std::thread> threads;
  for (int stage = 0; stage < num_stages; ++stage) {
    threads.emplace_back(
        [&, stage] { run_stage(*workers[static_cast<size_t>(stage)], inputs, meeting, stage); });
  }
  for (std::thread& thread : threads) thread.join();
  Outcome outcome;
  for (const auto& worker : workers) {
    for (auto& [name, sum] : worker->sums()) EXPECT_TRUE(outcome.sums.emplace(name, sum).second) << name;
    for (const float loss : worker->outputs()) outcome.losses.push_back(loss);
  }
  return outcome;
}

TEST_P(Pipeline, MakesTheBitsOfOneProgram) {
  const Inputs inputs;
  const Outcome want = run_alone(micro_, inputs);
  ASSERT_EQ(want.sums.size(), micro_.gradients.size());
  for (const auto& [num_stages, through_host] : {std::pair{1, false}, {2, false}, {4, false}, {4, true}}) {
    SCOPED_TRACE(fmt::format("{} stages{}", num_stages, through_host ? " through host memory" : ""));
    const Outcome got = run_stages(micro_, num_stages, through_host, inputs);
    EXPECT_EQ(got.losses, want.losses);
    ASSERT_EQ(got.sums.size(), want.sums.size());
    for (const auto& [name, sum] : want.sums) EXPECT_TRUE(got.sums.at(name) == sum) << name;
  }
}

TEST(PipelineOrder, IsOneForwardOneBackward) {
  std::map<int, std::string> passes_of;
  std::map<int, int> in_flight, most;
  for (const passes::PipelineEvent& event : passes::order_pipeline(4, 6, {})) {
    const bool forward = event.kind == passes::PipelineEvent::Kind::forward;
    passes_of[event.stage] += fmt::format("{}{} ", forward ? 'F' : 'B', event.micro);
    in_flight[event.stage] += forward ? 1 : -1;
    most[event.stage] = std::max(most[event.stage], in_flight[event.stage]);
  }
  EXPECT_EQ(passes_of[0], "F0 F1 F2 F3 B0 F4 B1 F5 B2 B3 B4 B5 ");
  EXPECT_EQ(passes_of[2], "F0 F1 B0 F2 B1 F3 B2 F4 B3 F5 B4 B5 ");
  EXPECT_EQ(passes_of[3], "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5 ");
  EXPECT_EQ(most, (std::map<int, int>{{0, 4}, {1, 3}, {2, 2}, {3, 1}}));
}

/// What stands between the two ends of a message is no more than their own passes say.
TEST(PipelineOrder, PutsAMessageBehindWhatMakesItAndInFrontOfWhatReadsIt) {
  const std::vector<passes::Crossing> crossings = {
      {.value = 0, .from = 0, .to = 1},
      {.value = 1, .from = 0, .to = 2},
      {.value = 2, .from = 2, .to = 0, .part = passes::MicroPart::backward},
      {.value = 3, .from = 2, .to = 0, .part = passes::MicroPart::once},
      {.value = 4, .from = 0, .to = 2, .part = passes::MicroPart::late},
      {.value = 5, .from = 2, .to = 0, .part = passes::MicroPart::early}};
  using Kind = passes::PipelineEvent::Kind;
  const std::map<passes::MicroPart, std::pair<Kind, Kind>> ends = {
      {passes::MicroPart::once, {Kind::forward, Kind::forward}},
      {passes::MicroPart::early, {Kind::early, Kind::forward}},
      {passes::MicroPart::forward, {Kind::forward, Kind::forward}},
      {passes::MicroPart::backward, {Kind::backward, Kind::backward}},
      {passes::MicroPart::late, {Kind::backward, Kind::late}}};
  std::set<std::tuple<Kind, int, int64_t>> done;
  int num_messages = 0;
  for (const passes::PipelineEvent& event : passes::order_pipeline(3, 4, crossings)) {
    if (event.kind != Kind::message) {
      done.insert({event.kind, event.stage, event.micro});
      continue;
    }
    ++num_messages;
    const passes::Crossing& crossing = crossings[event.crossing];
    const auto [maker, reader] = ends.at(crossing.part);
    EXPECT_EQ(done.contains({maker, crossing.from, event.micro}), crossing.part != passes::MicroPart::once);
    EXPECT_FALSE(done.contains({reader, crossing.to, event.micro}));
    EXPECT_TRUE(done.empty() || crossing.part != passes::MicroPart::once);
  }
  EXPECT_EQ(num_messages, 5 * 4 + 1);
  for (int64_t micro = 0; micro < 4; ++micro) {
    for (const Kind kind : {Kind::early, Kind::late}) EXPECT_TRUE(done.contains({kind, 2, micro}));
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Pipeline, testing::ValuesIn(kModels),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace hearth::models
