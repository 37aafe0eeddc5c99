#include "train/trainer.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "backend/cpu/conv.h"
#include "base/error.h"
#include "base/philox.h"
#include "base/process.h"
#include "base/text.h"
#include "data/image.h"
#include "io/safetensors.h"
#include "plan/draw.h"
#include "train/tensors_dataset.h"
#include "train/weights.h"

namespace hearth::train {
namespace {

/// Pictures with their predictions in the report.
constexpr int64_t kNumSamples = 36;

/// Sizes of the batches that cover `count` samples.
std::vector<int64_t> batch_sizes(int64_t count, int64_t batch) {
  std::vector<int64_t> sizes;
  if (count >= batch) sizes.push_back(batch);
  if (count % batch != 0) sizes.push_back(count % batch);
  return sizes;
}

data::DatasetOptions test_options(const Recipe& recipe) {
  data::DatasetOptions options = recipe.data;
  options.split = "test";
  options.count = recipe.val_count;
  return options;
}

void check_fits(const Recipe& recipe, const data::Dataset& dataset) {
  const models::ModelOptions& model = recipe.model;
  if (dataset.image_size() != model.image_size || dataset.channels() != model.channels) {
    user_error(
        "expected pictures of {2}x{2}x{3} as the recipe says, got {0}x{0}x{1} in {4}; try "
        "data.image_size={0} data.channels={1}",
        dataset.image_size(), dataset.channels(), model.image_size, model.channels,
        recipe.data.path.string());
  }
  if (std::ssize(dataset.class_names()) > model.num_classes) {
    user_error("expected at most the {1} classes of the model, got {0} in {2}; try model.num_classes={0}",
               dataset.class_names().size(), model.num_classes,
               recipe.data.kind == "shapes" ? "the shapes" : recipe.data.path.string());
  }
}

void check_memory(const Recipe& recipe, const Engine& engine) {
  const int64_t pictures =
      recipe.batch * recipe.model.image_size * recipe.model.image_size * recipe.model.channels;
  const int64_t needed = engine.arena_bytes() + engine.layout().num_bytes() + 8 * pictures;
  if (const int64_t free = available_memory_bytes(); needed > free) {
    user_error(
        "expected a micro-batch that fits the {} of memory that are free here, got one of {} that needs {}; "
        "try a lower train.batch with a higher train.accumulate (hearth plan RECIPE --memory={} finds the "
        "largest)",
        human_bytes(free), recipe.batch, human_bytes(needed), free);
  }
  if (recipe.memory > 0 && engine.arena_bytes() > recipe.memory) {
    user_error(
        "a micro-batch of {} needs an arena of {}, above memory={} even with recomputation; lower "
        "train.batch and raise train.accumulate",
        recipe.batch, human_bytes(engine.arena_bytes()), human_bytes(recipe.memory));
  }
}

}  // namespace

Trainer::Trainer(Recipe recipe, fs::path out, TrainerEvents events)
    : recipe_(std::move(recipe)), out_(std::move(out)), events_(std::move(events)) {
  const auto& off = recipe_.passes_off;
  cpu::allow_winograd(std::find(off.begin(), off.end(), "winograd") == off.end());
  train_data_ = open_any_dataset(recipe_.data, recipe_.model.num_classes);
  test_data_ = open_any_dataset(test_options(recipe_), recipe_.model.num_classes);
  check_fits(recipe_, *train_data_);
  engine_ = std::make_unique<Engine>(engine_options(recipe_), batch_sizes(train_data_->size(), recipe_.batch),
                                     batch_sizes(test_data_->size(), recipe_.batch));
  check_memory(recipe_, *engine_);
  engine_->initialise();
  if (!recipe_.init.empty()) load_weights(*engine_, recipe_.init);
  total_steps_ = recipe_.steps > 0 ? recipe_.steps : recipe_.epochs * steps_per_epoch();
  state_.position.seed = recipe_.seed;
}

Trainer::~Trainer() = default;

int64_t Trainer::steps_per_epoch() const {
  const int64_t group = recipe_.batch * recipe_.accumulate;
  return (train_data_->size() + group - 1) / group;
}

void Trainer::start(bool resume) {
  make_folder(out_);
  const bool resumed = resume && load_checkpoint();
  write_file_atomically(out_ / "config.yaml", write_recipe(recipe_));
  log_ = std::make_unique<io::RunLog>(out_ / "trainer_log.jsonl", resumed ? state_.step : -1);
  event_file_ = std::make_unique<io::EventFile>(out_);
  checkpoints_ = std::make_unique<io::CheckpointWriter>(
      out_ / "checkpoints", std::ssize(engine_->persistent()), static_cast<int>(recipe_.keep_checkpoints));
  data::LoaderOptions options = recipe_.loader;
  loader_ = std::make_unique<data::Loader>(*train_data_, options, state_.position);
}

bool Trainer::load_checkpoint() {
  std::vector<std::string> refused;
  const auto found = io::find_newest_checkpoint(out_ / "checkpoints", &refused);
  const std::string passed_over =
      refused.empty() ? "" : fmt::format("; passed over {}", fmt::join(refused, "; "));
  if (!found && !refused.empty()) {
    // A new start would overwrite what is left of the run.
    user_error("expected a complete checkpoint in {}, got {}; try hearth train {} --out of another folder",
               (out_ / "checkpoints").string(), fmt::join(refused, "; "), (out_ / "config.yaml").string());
  }
  if (!found) {
    events_.message(fmt::format("no complete checkpoint in {}: starting from the beginning", out_.string()));
    return false;
  }
  const io::CheckpointContents contents = io::read_checkpoint(found->path);
  const auto state = nlohmann::json::parse(contents.state);
  if (contents.memory.size() != engine_->persistent().size()) {
    user_error("{} holds another model or optimiser than the recipe; use the run's own config.yaml",
               found->path.string());
  }
  std::copy(contents.memory.begin(), contents.memory.end(), engine_->persistent().begin());
  state_ = {.step = state.at("step").get<int64_t>(),
            .best_accuracy = state.at("best_accuracy").get<double>(),
            .evaluations_without_gain = state.at("evaluations_without_gain").get<int64_t>(),
            .position = {.seed = state.at("seed").get<uint64_t>(),
                         .epoch = state.at("epoch").get<int64_t>(),
                         .sample = state.at("sample").get<int64_t>(),
                         .total = state.at("total").get<int64_t>()}};
  events_.message(
      fmt::format("resuming from {} (step {}){}", found->path.string(), state_.step, passed_over));
  return true;
}

void Trainer::save_checkpoint() {
  const data::LoaderPosition position = loader_->position();
  char text[512];
  const auto end = fmt::format_to_n(text, sizeof(text),
                                    "{{\"step\":{},\"best_accuracy\":{},\"evaluations_without_gain\":{},"
                                    "\"seed\":{},\"epoch\":{},\"sample\":{},\"total\":{}}}",
                                    state_.step, state_.best_accuracy, state_.evaluations_without_gain,
                                    position.seed, position.epoch, position.sample, position.total);
  checkpoints_->save(state_.step, engine_->persistent(), std::string_view(text, end.size));
}

StepResult Trainer::train_one(double rate) {
  step_start_ = loader_->position();
  const int64_t samples = samples_of_step();
  const auto next = [&] {
    const data::Batch& batch = loader_->next();
    return MicroBatch{batch.images, batch.labels, batch.count};
  };
  return engine_->train_step(num_micro(samples), samples, next, state_.step, rate);
}

int64_t Trainer::samples_of_step() const {
  return std::min(train_data_->size() - step_start_.sample, recipe_.batch * recipe_.accumulate);
}

int64_t Trainer::num_micro(int64_t samples) const { return (samples + recipe_.batch - 1) / recipe_.batch; }

std::string Trainer::find_not_finite() {
  data::Loader loader(*train_data_, recipe_.loader, step_start_);
  const int64_t count = num_micro(samples_of_step());
  for (int64_t i = 0; i < count; ++i) {
    const data::Batch& batch = loader.next();
    const std::string found =
        engine_->find_not_finite({batch.images, batch.labels, batch.count}, state_.step, i);
    if (!found.empty()) return found;
  }
  return "the sum over all gradients";
}

void Trainer::stop_for_not_finite(const StepResult& result) {
  const std::string first = find_not_finite();
  // What led here is of no use to a resumed run, unless it is all there is.
  checkpoints_->discard_behind(last_good_step_);
  const auto kept = io::find_newest_checkpoint(out_ / "checkpoints", nullptr);
  const char* came = std::isnan(result.loss)       ? "a loss that is not a number"
                     : !std::isfinite(result.loss) ? "an infinite loss"
                                                   : "gradients that are not finite";
  user_error(
      "expected a finite loss, got {} at step {}, first made by {}; {}; try a lower optimizer.lr or "
      "train.clip_norm=1",
      came, state_.step + 1, first,
      kept ? fmt::format("the last good checkpoint is {}", kept->path.string())
           : std::string("no checkpoint was due before it"));
}

RunSummary Trainer::run(bool resume) {
  started_seconds_ = process_seconds();
  start(resume);
  RunSummary summary;
  if (state_.step >= total_steps_) {
    events_.message(fmt::format("all {} steps were done already; to go on, raise train.steps or train.epochs",
                                state_.step));
  }
  while (state_.step < total_steps_) {
    const double rate = learning_rate(recipe_.schedule, recipe_.lr, state_.step, total_steps_);
    const StepResult result = train_one(rate);
    const bool overflow_only = recipe_.precision == "fp16" && engine_->loss_scale() >= 1;
    if ((result.skipped || !std::isfinite(result.loss)) && !overflow_only) stop_for_not_finite(result);
    if (!result.skipped) last_good_step_ = state_.step;
    after_step(result, rate);
    if (recipe_.early_stop > 0 && state_.evaluations_without_gain >= recipe_.early_stop) {
      events_.message(
          fmt::format("stopping early: {} evaluations without a better accuracy", recipe_.early_stop));
      break;
    }
    if (events_.stop != nullptr && *events_.stop) {
      summary.interrupted = true;
      break;
    }
  }
  finish(summary);
  return summary;
}

void Trainer::after_step(const StepResult& result, double rate) {
  ++state_.step;
  ++session_steps_;
  session_images_ += result.num_samples;
  log_step(result, rate);
  checkpoints_->check();
  if (time_to_evaluate()) evaluate_and_log();
  const bool last = state_.step == total_steps_;
  // Weights that give no finite loss are no checkpoint; the loss scale may only mend gradients.
  const bool due = state_.step % recipe_.checkpoint_every == 0 && std::isfinite(result.loss);
  if (due || last) save_checkpoint();
}

bool Trainer::time_to_evaluate() const {
  const int64_t every = recipe_.eval_every > 0 ? recipe_.eval_every : steps_per_epoch();
  return state_.step % every == 0 || state_.step == total_steps_;
}

void Trainer::log_step(const StepResult& result, double rate) {
  log_->step(state_.step, total_steps_, result.loss, rate, result.grad_norm,
             process_seconds() - started_seconds_);
  if (state_.step % recipe_.log_every != 0 && session_steps_ != 1) return;
  event_file_->add_scalar(state_.step, "train/loss", static_cast<float>(result.loss));
  event_file_->add_scalar(state_.step, "train/learning_rate", static_cast<float>(rate));
  event_file_->add_scalar(state_.step, "train/grad_norm", static_cast<float>(result.grad_norm));
  report_progress(result, rate);
}

void Trainer::report_progress(const StepResult& result, double rate) {
  const double elapsed = process_seconds() - started_seconds_;
  const double training = std::max(1e-3, elapsed - evaluation_seconds_);
  const auto done = static_cast<double>(session_steps_);
  const double flops = engine_->train_program().report().flops * static_cast<double>(recipe_.accumulate);
  events_.progress({.step = state_.step,
                    .total_steps = total_steps_,
                    .loss = result.loss,
                    .learning_rate = rate,
                    .grad_norm = result.grad_norm,
                    .images_per_second = static_cast<double>(session_images_) / training,
                    .tflops = flops * done / training * 1e-12,
                    .memory_bytes = engine_->arena_bytes() + engine_->layout().num_bytes(),
                    .eta_seconds = elapsed / done * static_cast<double>(total_steps_ - state_.step)});
}

void Trainer::evaluate_and_log() {
  const double before = process_seconds();
  const bool last = state_.step == total_steps_;
  last_evaluation_ = evaluate(last ? kNumSamples : 0);
  log_->evaluation(state_.step, last_evaluation_.loss, last_evaluation_.accuracy);
  event_file_->add_scalar(state_.step, "eval/loss", static_cast<float>(last_evaluation_.loss));
  event_file_->add_scalar(state_.step, "eval/accuracy", static_cast<float>(last_evaluation_.accuracy));
  events_.message(fmt::format("step {}: validation loss {:.4f}, accuracy {:.2f}%", state_.step,
                              last_evaluation_.loss, 100 * last_evaluation_.accuracy));
  ++state_.evaluations_without_gain;
  if (std::isfinite(last_evaluation_.loss) && last_evaluation_.accuracy > state_.best_accuracy) {
    state_.best_accuracy = last_evaluation_.accuracy;
    state_.evaluations_without_gain = 0;
    save_weights(*engine_, out_ / "best.safetensors", true);
  }
  evaluation_seconds_ += process_seconds() - before;
}

namespace {

data::Image picture_of(const data::Dataset& dataset, int64_t index) {
  data::Image image{
      .height = dataset.image_size(), .width = dataset.image_size(), .channels = dataset.channels()};
  image.pixels.resize(static_cast<size_t>(image.height * image.width * image.channels));
  int32_t label = 0;
  dataset.read(index, image.pixels.data(), &label);
  return image;
}

/// At most `count` of `size` pictures, ascending: one from each of as many equal stretches, since many
/// datasets lie sorted by class.
std::vector<int64_t> spread(int64_t count, int64_t size) {
  count = std::min(count, size);
  PhiloxSequence random(0, 0);
  std::vector<int64_t> chosen;
  for (int64_t i = 0; i < count; ++i) {
    const double at = static_cast<double>(i) + random.uniform();
    chosen.push_back(static_cast<int64_t>(at * static_cast<double>(size) / static_cast<double>(count)));
  }
  chosen.erase(std::unique(chosen.begin(), chosen.end()), chosen.end());
  return chosen;
}

}  // namespace

Evaluation Trainer::evaluate(int64_t num_samples) {
  data::LoaderOptions options = recipe_.loader;
  options.shuffle = false;
  options.augment = {};
  data::Loader loader(*test_data_, options);
  const int64_t num_classes = recipe_.model.num_classes;
  const auto names = static_cast<int64_t>(test_data_->class_names().size());
  const std::vector<int64_t> shown = spread(test_data_->holds_floats() ? 0 : num_samples, test_data_->size());
  Evaluation evaluation;
  evaluation.confusion.assign(static_cast<size_t>(names * names), 0);
  for (int64_t done = 0; done < test_data_->size();) {
    const data::Batch& batch = loader.next();
    const StepResult result = engine_->evaluate({batch.images, batch.labels, batch.count});
    evaluation.loss += result.loss * static_cast<double>(batch.count);
    evaluation.accuracy += result.correct;
    for (int64_t i = 0; i < batch.count; ++i) {
      const float* row = engine_->probabilities().data() + i * num_classes;
      const int64_t predicted = std::max_element(row, row + num_classes) - row;
      const int64_t truth = batch.labels[i];
      if (predicted < names && truth < names)
        ++evaluation.confusion[static_cast<size_t>(truth * names + predicted)];
      if (predicted >= names || !std::ranges::binary_search(shown, batch.indices[i])) continue;
      evaluation.samples.push_back({.png = data::encode_png(picture_of(*test_data_, batch.indices[i])),
                                    .truth = test_data_->class_names()[static_cast<size_t>(truth)],
                                    .predicted = test_data_->class_names()[static_cast<size_t>(predicted)],
                                    .probability = static_cast<double>(row[predicted])});
    }
    done += batch.count;
  }
  evaluation.loss /= static_cast<double>(test_data_->size());
  evaluation.accuracy /= static_cast<double>(test_data_->size());
  return evaluation;
}

void Trainer::finish(RunSummary& summary) {
  if (summary.interrupted) save_checkpoint();
  // A run that was killed behind its last step, or that stopped early, has no pictures for its report yet.
  if (!summary.interrupted && last_evaluation_.samples.empty()) last_evaluation_ = evaluate(kNumSamples);
  checkpoints_->flush();
  save_weights(*engine_, out_ / "model.safetensors", false);
  summary.steps = state_.step;
  summary.best_accuracy = std::max(0.0, state_.best_accuracy);
  summary.last = last_evaluation_;
  summary.seconds = process_seconds() - started_seconds_;
  const exec::Program& program = engine_->train_program();
  io::ReportData data{.title = fmt::format("{} on {}", recipe_.model.name, recipe_.data.kind)};
  data.summary = {{"best accuracy", fmt::format("{:.2f}%", 100 * summary.best_accuracy)},
                  {"steps", std::to_string(state_.step)},
                  {"time", fmt::format("{:.1f} s", summary.seconds)},
                  {"training pictures", std::to_string(train_data_->size())},
                  {"validation pictures", std::to_string(test_data_->size())},
                  {"precision", recipe_.precision},
                  {"arena", human_bytes(engine_->arena_bytes())},
                  {"weights and state", human_bytes(engine_->layout().num_bytes())}};
  data.loss = io::read_curve(out_ / "trainer_log.jsonl", "loss");
  data.learning_rate = io::read_curve(out_ / "trainer_log.jsonl", "lr");
  data.eval_loss = io::read_curve(out_ / "trainer_log.jsonl", "eval_loss");
  data.eval_accuracy = io::read_curve(out_ / "trainer_log.jsonl", "eval_accuracy");
  data.class_names = test_data_->class_names();
  data.confusion = last_evaluation_.confusion;
  data.samples = last_evaluation_.samples;
  data.arena_svg = plan::draw_svg(program.plan_problem(), program.plan_solution());
  write_file_atomically(out_ / "report.html", io::make_report(data));
}

void Trainer::dump_gradients(const fs::path& path) {
  data::Loader loader(*train_data_, recipe_.loader);
  const data::Batch& batch = loader.next();
  std::vector<std::vector<float>> values;
  std::vector<io::TensorView> views;
  engine_->gradients(
      {batch.images, batch.labels, batch.count}, [&](const nn::Tensor& tensor, std::span<const float> data) {
        values.emplace_back(data.begin(), data.end());
        views.push_back({.name = tensor.name, .dtype = DType::f32, .shape = tensor.layout.file_shape});
      });
  for (size_t i = 0; i < views.size(); ++i) views[i].bytes = std::as_bytes(std::span(values[i]));
  io::write_safetensors(path, views);
}

}  // namespace hearth::train
