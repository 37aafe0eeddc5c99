#include "bench/open_workload.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>

#include "base/error.h"
#include "base/philox.h"
#include "bench/kernel.h"
#include "engine/gpu_options.h"
#include "engine/inspect.h"
#include "hub/weights.h"
#include "infer/batch_generator.h"
#include "run/device_rates.h"
#include "run/fitting_engine.h"

namespace hearth::bench {
namespace {

using Clock = std::chrono::steady_clock;

/// Number of elements allocated after each input array, because kernels may read past its end.
constexpr size_t kSlack = 16;

std::vector<ProfileRow> profile_rows(const ir::Graph& graph, const std::vector<double>& seconds) {
  std::map<std::pair<std::string, std::string>, ProfileRow> rows;
  for (size_t i = 0; i < seconds.size(); ++i) {
    const ir::Node& node = graph.nodes[i];
    if (node.op->is_view) continue;
    const std::string op(node.op->name), shape = to_string(graph.type(node.outputs[0]).shape);
    ProfileRow& row = rows[{op, shape}];
    row = {op, shape, row.seconds + seconds[i], row.flops + ir::cost_of(graph, node).flops, row.count + 1};
  }
  std::vector<ProfileRow> sorted;
  sorted.reserve(rows.size());
  for (auto& [key, row] : rows) sorted.push_back(std::move(row));
  std::ranges::stable_sort(sorted, std::greater<>(), &ProfileRow::seconds);
  return sorted;
}

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

engine::EngineOptions with_rates(engine::EngineOptions options, const BenchMachine& machine) {
  run::set_device_rates(options, machine.group);
  return options;
}

/// Creates the engine of a case. Without enough GPU memory for all gradients, weights are updated in the
/// backward pass.
std::unique_ptr<engine::Engine> make_engine(engine::EngineOptions options, const BenchMachine& machine) {
  options = with_rates(std::move(options), machine);
  const std::span sizes(&options.batch, 1);
  if (options.backend == exec::Backend::gpu && options.num_workers == 1) {
    try {
      return std::make_unique<engine::Engine>(options, sizes, std::span<const int64_t>());
    } catch (const engine::DoesNotFit&) {
      options.optimizer.in_backward = true;
    }
  }
  return run::make_engine(options, sizes, {});
}

/// Training steps on one micro-batch with random data.
class Training : public Workload {
 public:
  Training(const engine::EngineOptions& options, const BenchMachine& machine, int64_t num_samples)
      : engine_(make_engine(options, machine)), num_samples_(num_samples * options.accumulate) {
    if (machine.group != nullptr) engine_->join(*machine.group);
    engine_->initialize();
    hub::initialize_frozen(*engine_);
  }

  double run(int64_t index) override {
    engine::Inspector inspector(*engine_);
    const auto start = Clock::now();
    if (gpu() != nullptr) inspector.record(started_);
    engine_->start_step(
        engine_->plan().options.accumulate, num_samples_, [&] { return batch_; }, index, kBenchRate);
    if (gpu() != nullptr) {
      inspector.record(ended_);
      engine_->stage_ahead(batch_);
    }
    last_ = engine_->finish_step();
    const double seconds = gpu() != nullptr ? ended_.seconds_since(started_) : seconds_since(start);
    if (!std::isfinite(last_.loss))
      internal_error("the loss of step {} is {}, which is not a finite number", index, last_.loss);
    return seconds;
  }
  engine::StepResult last() const override { return last_; }
  const engine::Plan* plan() const override { return &engine_->plan(); }
  double flops() const override { return engine_->plan().model_flops(); }
  int64_t num_samples() const override { return num_samples_; }
  const gpu::DeviceInfo* gpu() const override { return engine_->device().gpu; }
  int64_t gpu_bytes() const override { return gpu() != nullptr ? engine_->plan().gpu_bytes() : 0; }
  std::vector<ProfileRow> profile(int num_steps) override {
    return profile_rows(engine_->plan().train_program().graph,
                        engine::Inspector(*engine_).profile(batch_, num_steps));
  }

 protected:
  void set_inputs(std::initializer_list<data::NamedArray> inputs) {
    batch_ = {inputs, engine_->plan().options.batch};
  }

  engine::MicroBatch batch_;

 private:
  std::unique_ptr<engine::Engine> engine_;
  gpu::Event started_{gpu::Event::Kind::timed}, ended_{gpu::Event::Kind::timed};
  int64_t num_samples_;
  engine::StepResult last_;
};

std::vector<int32_t> random_labels(size_t count, int64_t num_classes, PhiloxSequence& random) {
  std::vector<int32_t> labels(count + kSlack);
  for (int32_t& label : labels)
    label = static_cast<int32_t>(random.below(static_cast<uint32_t>(num_classes)));
  return labels;
}

/// Returns random boxes for all images of a case in the format of ops/detect/detect.h. Their sides are 10% to
/// 50% of the image's.
std::vector<float> random_boxes(const BenchCase& bench, PhiloxSequence& random) {
  constexpr size_t kNumbers = 5;
  std::vector<float> boxes(static_cast<size_t>(bench.batch * kMaxBoxes) * kNumbers + kSlack, -1);
  const auto side = static_cast<float>(bench.length);
  for (int64_t image = 0; image < bench.batch; ++image) {
    for (int64_t i = 0; i < kNumBoxes; ++i) {
      float* box = &boxes[static_cast<size_t>(image * kMaxBoxes + i) * kNumbers];
      box[0] = static_cast<float>(random.below(static_cast<uint32_t>(bench.num_classes)));
      for (int axis = 0; axis < 2; ++axis) {
        const float extent = random.uniform(0.1F, 0.5F) * side;
        box[1 + axis] = random.uniform(extent / 2, side - extent / 2);
        box[3 + axis] = extent;
      }
    }
  }
  return boxes;
}

class ImageTraining : public Training {
 public:
  ImageTraining(const BenchCase& bench, const BenchMachine& machine)
      : Training(engine_options(bench, machine), machine, bench.batch),
        images_(static_cast<size_t>(bench.batch * bench.length * bench.length * bench.channels) + kSlack),
        weights_(static_cast<size_t>(bench.batch) + kSlack) {
    PhiloxSequence random(1, 0);
    const auto rows = static_cast<size_t>(bench.batch);
    const Labels kind = labels_of(bench);
    const float min_pixel = kind == Labels::boxes ? 0 : -1;
    const float max_pixel = kind == Labels::boxes ? 255 : 1;
    for (float& value : images_) value = random.uniform(min_pixel, max_pixel);
    if (kind == Labels::boxes) {
      boxes_ = random_boxes(bench, random);
      set_inputs({{"images", images_.data()}, {"targets", boxes_.data()}, {"l1_weight", weights_.data()}});
      return;
    }
    const size_t pixels = kind == Labels::masks ? static_cast<size_t>(bench.length * bench.length) : 1;
    labels_ = random_labels(rows * pixels, bench.num_classes, random);
    std::ranges::fill(weights_, 1.0F);
    if (kind == Labels::masks) {
      set_inputs({{"images", images_.data()}, {"masks", labels_.data()}, {"weight", weights_.data()}});
    } else {
      set_inputs({{"images", images_.data()}, {"labels", labels_.data()}});
    }
  }

 private:
  std::vector<float> images_, boxes_, weights_;
  std::vector<int32_t> labels_;
};

class LatentTraining : public Training {
 public:
  LatentTraining(const BenchCase& bench, const BenchMachine& machine, const tasks::DenoiseFormat& format)
      : Training(engine_options(bench, machine), machine, bench.batch) {
    const Extent latents(bench.length);
    const auto patches = latents.num_pixels() / (format.model.patch * format.model.patch);
    tokens_ = random_normal(bench.batch * patches * format.model.features());
    target_ = random_normal(std::ssize(tokens_));
    settings_.assign(static_cast<size_t>(bench.batch) + kSlack, {.time = 500, .weight = 1});
    set_inputs({{"tokens", tokens_.data()}, {"target", target_.data()}, {"settings", settings_.data()}});
    if (format.has_labels()) {
      PhiloxSequence random(1, 0);
      labels_ = random_labels(static_cast<size_t>(bench.batch), format.model.num_classes, random);
      batch_.add({"labels", labels_.data()});
    } else {
      text_ = random_normal(bench.batch * format.text_size());
      pooled_ = random_normal(bench.batch * format.pooled_size());
      batch_.add({"text", text_.data()});
      if (format.pooled_size() > 0) batch_.add({"pooled", pooled_.data()});
    }
  }

 private:
  static std::vector<float> random_normal(int64_t count) {
    std::vector<float> values(static_cast<size_t>(count) + kSlack);
    PhiloxSequence random(1, static_cast<uint64_t>(count));
    for (float& value : values) value = random.normal();
    return values;
  }

  std::vector<float> tokens_, target_, text_, pooled_;
  std::vector<tasks::DenoiseSettings> settings_;
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
  TextTraining(const BenchCase& bench, const BenchMachine& machine)
      : Training(engine_options(bench, machine), machine, bench.batch * (bench.length - 1)),
        tokens_(random_tokens(bench.batch * bench.length, bench_decoder(bench).vocab_size)),
        labels_(tokens_.size()),
        positions_(tokens_.size()) {
    for (int64_t t = 0; t < bench.batch * bench.length; ++t) {
      const auto at = static_cast<size_t>(t);
      positions_[at] = static_cast<int32_t>(t % bench.length);
      labels_[at] = (t + 1) % bench.length == 0 ? -1 : tokens_[at + 1];
    }
    set_inputs({{"tokens", tokens_.data()}, {"labels", labels_.data()}, {"positions", positions_.data()}});
  }

 private:
  std::vector<int32_t> tokens_, labels_, positions_;
};

/// Greedy text generation on the CPU: each run processes the prompt and generates all tokens.
class Answers : public Workload {
 public:
  Answers(const BenchCase& bench, int num_threads)
      : generator_(bench_decoder(bench),
                   {.slots = bench.prompt + bench.length, .compute = {.num_threads = num_threads}}),
        prompt_(random_tokens(bench.prompt, bench_decoder(bench).vocab_size)),
        options_{.max_tokens = bench.length} {
    prompt_.resize(static_cast<size_t>(bench.prompt));
  }

  double run(int64_t) override {
    const auto start = Clock::now();
    generator_.restart();
    const infer::Answer made = infer::answer(generator_, nullptr, prompt_, options_, [](std::string_view) {});
    HEARTH_CHECK(std::ssize(made.ids) == options_.max_tokens);
    return seconds_since(start);
  }
  double flops() const override { return 0; }
  int64_t num_samples() const override { return options_.max_tokens; }

 private:
  infer::Generator generator_;
  std::vector<int32_t> prompt_;
  infer::AnswerOptions options_;
};

/// Greedy text generation on the CPU for bench.batch requests at the same time (continuous batching).
class BatchAnswers : public Workload {
 public:
  BatchAnswers(const BenchCase& bench, int num_threads)
      : generator_(bench_decoder(bench), {.num_slots = bench.batch,
                                          .tokens_per_slot = bench.prompt + bench.length,
                                          .compute = {.num_threads = num_threads}}),
        prompts_(random_tokens(bench.batch * bench.prompt, bench_decoder(bench).vocab_size)),
        num_prompt_tokens_(bench.prompt),
        options_{.max_tokens = bench.length} {}

  double run(int64_t) override {
    const auto start = Clock::now();
    for (int64_t i = 0; i < generator_.num_slots(); ++i) {
      const auto prompt = prompts_.begin() + i * num_prompt_tokens_;
      generator_.submit({.prompt = {prompt, prompt + num_prompt_tokens_}, .options = options_},
                        [](const infer::GeneratedPiece&) { return true; });
    }
    while (generator_.step()) {
    }
    return seconds_since(start);
  }
  double flops() const override { return 0; }
  int64_t num_samples() const override { return generator_.num_slots() * options_.max_tokens; }

 private:
  infer::BatchGenerator generator_;
  std::vector<int32_t> prompts_;
  int64_t num_prompt_tokens_;
  infer::AnswerOptions options_;
};

}  // namespace

std::string to_table(const std::vector<ProfileRow>& rows) {
  double total = 0;
  for (const ProfileRow& row : rows) total += row.seconds;
  std::string text =
      fmt::format("{:>9} {:>6} {:>5} {:>8}  op and its result\n", "ms", "share", "count", "GFLOP/s");
  for (const ProfileRow& row : rows) {
    text +=
        fmt::format("{:9.3f} {:5.1f}% {:5} {:8.1f}  {} {}\n", row.seconds * 1e3, 100 * row.seconds / total,
                    row.count, row.flops / row.seconds / 1e9, row.op, row.shape);
  }
  return text + fmt::format("{:9.3f} total\n", total * 1e3);
}

engine::EngineOptions engine_options(const BenchCase& bench, const BenchMachine& machine) {
  if (bench.prompt > 0 || !bench.kernel.empty()) user_error("'{}' is not a training case", bench.name);
  engine::EngineOptions options{.objective = bench_objective(bench),
                                .batch = bench.batch,
                                .precision = bench.precision,
                                .matmul_precision = bench.matmul_precision,
                                .num_threads = machine.num_threads,
                                .budget_bytes = bench.arena_bytes,
                                .offload = bench.offload};
  options.adapter = {.rank = bench.rank, .quantized = bench.quantized};
  if (bench.channels == 0 || bench_latents(bench))
    options.optimizer = {.name = "adamw", .weight_decay = 0.01};
  options.optimizer.in_backward = !exec::names_gpu(machine.device);
  const int rank = machine.group == nullptr ? 0 : machine.group->rank();
  options.rank = rank;
  if (machine.group != nullptr) set_data_parallel(options, machine.group->size());
  if (exec::names_gpu(machine.device))
    engine::use_gpu(options, {.device = machine.device, .number = rank}, SelfTestMode::once);
  return options;
}

void set_data_parallel(engine::EngineOptions& options, int num_workers) {
  options.num_workers = options.shards = options.accumulate = num_workers;
  options.optimizer.in_backward = false;
}

std::unique_ptr<Workload> open_workload(const BenchCase& bench, const BenchMachine& machine) {
  if (!bench.kernel.empty()) return open_kernel(bench, machine);
  if (const auto format = bench_latents(bench))
    return std::make_unique<LatentTraining>(bench, machine, *format);
  if (bench.channels > 0) return std::make_unique<ImageTraining>(bench, machine);
  if (bench.prompt == 0) return std::make_unique<TextTraining>(bench, machine);
  if (machine.device != "cpu")
    user_error("expected --device cpu for '{}', got {}: answers are generated on the CPU", bench.name,
               machine.device);
  if (bench.batch > 1) return std::make_unique<BatchAnswers>(bench, machine.num_threads);
  return std::make_unique<Answers>(bench, machine.num_threads);
}

}  // namespace hearth::bench
