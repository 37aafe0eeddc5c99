#include "train/bench_workload.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/philox.h"
#include "train/classifier.h"
#include "train/generator.h"
#include "train/language_model.h"

namespace hearth::train {
namespace {

/// Readable bytes that a micro-batch wants behind each array.
constexpr size_t kSlack = 16;
constexpr double kRate = 1e-3;

std::string profile_table(const ir::Graph& graph, const std::vector<double>& seconds) {
  struct Row {
    std::string what;
    double seconds = 0, flops = 0;
    int count = 0;
  };
  std::map<std::string, Row> rows;
  double total = 0;
  for (size_t i = 0; i < seconds.size(); ++i) {
    const ir::Node& node = graph.nodes[i];
    if (node.op->is_view) continue;
    const std::string what =
        fmt::format("{} {}", node.op->name, to_string(graph.type(node.outputs[0]).shape));
    Row& row = rows[what];
    row = {what, row.seconds + seconds[i], row.flops + ir::cost_of(graph, node).flops, row.count + 1};
    total += seconds[i];
  }
  std::vector<Row> sorted;
  sorted.reserve(rows.size());
  for (const auto& [what, row] : rows) sorted.push_back(row);
  std::sort(sorted.begin(), sorted.end(), [](const Row& a, const Row& b) { return a.seconds > b.seconds; });
  std::string text =
      fmt::format("{:>9} {:>6} {:>5} {:>8}  op and its result\n", "ms", "share", "count", "GFLOP/s");
  for (const Row& row : sorted)
    text += fmt::format("{:9.3f} {:5.1f}% {:5} {:8.1f}  {}\n", row.seconds * 1e3, 100 * row.seconds / total,
                        row.count, row.flops / row.seconds / 1e9, row.what);
  return text + fmt::format("{:9.3f} in all\n", total * 1e3);
}

models::DecoderConfig llama(std::string_view name) {
  const bool small = name == "llama15m";
  const std::string json = fmt::format(
      R"({{"model_type": "llama", "vocab_size": 32000, "hidden_size": {}, "intermediate_size": {},
"num_hidden_layers": {}, "num_attention_heads": {}, "max_position_embeddings": 1024, "rms_norm_eps": 1e-5,
"tie_word_embeddings": true}})",
      small ? 288 : 768, small ? 768 : 2048, small ? 6 : 12, small ? 6 : 12);
  return models::parse_decoder_config(json, std::string(name));
}

/// Training steps on one micro-batch.
class Training : public Workload {
 public:
  Training(const EngineOptions& options, int64_t num_samples)
      : engine_(options, std::span(&options.batch, 1), {}), num_samples_(num_samples) {
    engine_.initialise();
    draw_frozen();
    batch_.num_rows = options.batch;
  }

  void run(int64_t index) override {
    engine_.train_step(
        1, num_samples_, [&] { return batch_; }, index, kRate);
  }
  double flops() const override { return engine_.train_program().report().flops; }
  std::string profile() override {
    return profile_table(engine_.train_program().graph(), engine_.profile(batch_, 10));
  }

 protected:
  MicroBatch batch_;

 private:
  /// Weights under an adapter, which the engine leaves to files.
  void draw_frozen() {
    for (const nn::Tensor& tensor : engine_.tensors()) {
      if (engine_.layout().at(tensor.name).role != ir::Role::frozen) continue;
      nn::initialise(tensor, 0, engine_.values(tensor.name), engine_.threads());
    }
  }

  Engine engine_;
  int64_t num_samples_;
};

class PictureTraining : public Training {
 public:
  PictureTraining(const BenchCase& bench, int num_threads)
      : Training(engine_options(bench, num_threads), bench.batch),
        images_(static_cast<size_t>(bench.batch * bench.length * bench.length * bench.channels) + kSlack),
        labels_(static_cast<size_t>(bench.batch) + kSlack) {
    PhiloxSequence random(1, 0);
    for (float& value : images_) value = random.uniform(-1, 1);
    for (int32_t& label : labels_) label = static_cast<int32_t>(random.below(10));
    batch_.inputs = {images_.data(), labels_.data()};
  }

 private:
  std::vector<float> images_;
  std::vector<int32_t> labels_;
};

std::vector<int32_t> random_tokens(int64_t count, int64_t vocab) {
  std::vector<int32_t> tokens(static_cast<size_t>(count) + kSlack);
  PhiloxSequence random(1, 0);
  for (int32_t& token : tokens) token = static_cast<int32_t>(random.below(static_cast<uint32_t>(vocab)));
  return tokens;
}

class TextTraining : public Training {
 public:
  TextTraining(const BenchCase& bench, int num_threads)
      : Training(engine_options(bench, num_threads), bench.batch * (bench.length - 1)),
        tokens_(random_tokens(bench.batch * bench.length, llama(bench.model).vocab_size)),
        labels_(tokens_.size()),
        positions_(tokens_.size()) {
    for (int64_t t = 0; t < bench.batch * bench.length; ++t) {
      const auto at = static_cast<size_t>(t);
      positions_[at] = static_cast<int32_t>(t % bench.length);
      labels_[at] = (t + 1) % bench.length == 0 ? -1 : tokens_[at + 1];
    }
    batch_.inputs = {tokens_.data(), labels_.data(), positions_.data()};
  }

 private:
  std::vector<int32_t> tokens_, labels_, positions_;
};

/// Greedy answers, the prompt's tokens and every answer's included.
class Answers : public Workload {
 public:
  Answers(const BenchCase& bench, int num_threads)
      : generator_(Generator::untrained(llama(bench.model),
                                        {.slots = bench.prompt + bench.length, .num_threads = num_threads})),
        prompt_(random_tokens(bench.prompt, llama(bench.model).vocab_size)),
        options_{.max_tokens = bench.length} {
    prompt_.resize(static_cast<size_t>(bench.prompt));
  }

  void run(int64_t) override {
    generator_.restart();
    const Answer made = answer(generator_, nullptr, prompt_, options_, [](std::string_view) {});
    HEARTH_CHECK(std::ssize(made.ids) == options_.max_tokens);
  }
  double flops() const override { return 0; }

 private:
  Generator generator_;
  std::vector<int32_t> prompt_;
  AnswerOptions options_;
};

}  // namespace

EngineOptions engine_options(const BenchCase& bench, int num_threads) {
  if (bench.prompt > 0) user_error("expected a case of training, got '{}'", bench.name);
  EngineOptions options{.batch = bench.batch, .precision = bench.precision, .num_threads = num_threads};
  if (bench.channels > 0) {
    options.objective = classifier({.model = {.name = std::string(bench.model),
                                              .num_classes = 10,
                                              .channels = bench.channels,
                                              .image_size = bench.length}});
    return options;
  }
  options.objective = language_model({.config = llama(bench.model), .context = bench.length});
  options.optimizer = {.name = "adamw", .weight_decay = 0.01, .in_backward = true};
  options.adapter = {.rank = bench.rank};
  options.budget_bytes = bench.arena_mib << 20;
  return options;
}

std::unique_ptr<Workload> open_workload(const BenchCase& bench, int num_threads) {
  if (bench.channels > 0) return std::make_unique<PictureTraining>(bench, num_threads);
  if (bench.prompt > 0) return std::make_unique<Answers>(bench, num_threads);
  return std::make_unique<TextTraining>(bench, num_threads);
}

}  // namespace hearth::train
