#include "run/trainer.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/process.h"
#include "base/text.h"
#include "engine/inspect.h"
#include "hub/adapter.h"
#include "hub/denoiser_adapter.h"
#include "hub/image_weights.h"
#include "hub/weights.h"
#include "io/safetensors.h"
#include "ops/conv/conv_cpu.h"
#include "run/device_rates.h"
#include "run/fitting_engine.h"
#include "run/from_recipe.h"
#include "run/gpu_readings.h"
#include "run/resolve.h"
#include "run/schedule.h"
#include "tasks/language/text_source.h"

namespace hearth::run {
namespace {

/// Images with their predictions in the report.
constexpr int64_t kNumSamples = 36;
/// That an earlier session's pace stands for.
constexpr double kKnownUpdates = 100;

void check_memory(const recipe::Recipe& recipe, const engine::Engine& engine, int64_t staging_bytes) {
  const int64_t needed = engine.compiled().memory_bytes() + staging_bytes;
  if (const int64_t free = available_memory_bytes(); needed > free) {
    user_error(
        "expected a micro-batch that fits the {} of memory that are free here, got one of {} that needs {}; "
        "try a lower train.batch with a higher train.accumulate (hearth plan RECIPE --memory={} finds the "
        "largest)",
        human_bytes(free), recipe.train.batch, human_bytes(needed), free);
  }
  if (recipe.memory > 0 && engine.compiled().arena_bytes > recipe.memory) {
    user_error(
        "a micro-batch of {} needs an arena of {}, above memory={} even with recomputation; lower "
        "train.batch and raise train.accumulate",
        recipe.train.batch, human_bytes(engine.compiled().arena_bytes), human_bytes(recipe.memory));
  }
}

}  // namespace

Trainer::Trainer(recipe::Recipe recipe, fs::path out, TrainerEvents events, Membership member, Use use)
    : recipe_(resolve(tasks::with_date(std::move(recipe), out), out).recipe),
      out_(std::move(out)),
      run_(out_.string() + "\n" + identity_of(recipe_)),
      events_(std::move(events)),
      group_(member.group) {
  HEARTH_CHECK(num_sharing(recipe_, num_workers()) == num_workers());
  const auto& off = recipe_.passes.off;
  cpu::allow_winograd(std::find(off.begin(), off.end(), "winograd") == off.end());
  const int device = member.device.value_or(rank());
  task_ = open_task(recipe_, device);
  take_class_names();
  engine::EngineOptions options = engine_options(recipe_, device, num_workers());
  options.rank = rank();
  const std::string unknown_rates = use_device_rates(options);
  if (!unknown_rates.empty()) events_.message(unknown_rates);
  if (member.rates != nullptr) options.device = *member.rates;
  options.devices = std::move(member.devices);
  options.row_lengths = task_->row_lengths();
  const std::vector<int64_t> sizes = train_sizes();
  std::vector<int64_t> eval_sizes = task_->eval_sizes(recipe_.train.batch);
  if (task_->evaluates_training_rows()) eval_sizes.insert(eval_sizes.end(), sizes.begin(), sizes.end());
  options.meets_on_gpu = group_ != nullptr && group_->has(distributed::Capability::device_memory);
  engine_ = make_engine(options, sizes, eval_sizes);
  check_memory(recipe_, *engine_, task_->staging_bytes());
  if (use == Use::run && !task_->is_prepared()) {
    // What does not fit is said before anything slow, but what prepares has the GPU for itself.
    if (options.backend == exec::Backend::gpu) engine_.reset();
    prepare();
    if (!engine_) engine_ = make_engine(options, sizes, eval_sizes);
  }
  if (group_ != nullptr) engine_->join(*group_);
  check_share();
  engine_->set_heartbeat(events_.heartbeat);
  engine_->initialize();
  load_frozen_weights();
  total_steps_ = count_steps();
  state_.position.seed = recipe_.seed;
}

Trainer::~Trainer() = default;

void Trainer::take_class_names() {
  std::vector<std::string>& names = recipe_.model.class_names;
  std::vector<std::string> of_data = task_->class_names();
  if (names.empty())
    names = std::move(of_data);
  else if (!of_data.empty() && of_data != names)
    user_error(
        "the classes of the data ({}) are not those of model.class_names ({}); use the data that the run "
        "was trained with, or train another",
        fmt::join(of_data, ", "), fmt::join(names, ", "));
}

void Trainer::prepare() {
  const distributed::OtherWork work(events_.heartbeat);
  task_->prepare(events_.message);
}

void Trainer::check_share() const {
  if (recipe_.parallel == recipe::Parallel::pipeline) return;
  const data::LoaderShare last{.first = recipe_.train.accumulate / num_workers() * (num_workers() - 1)};
  if (last.first * recipe_.train.batch < task_->num_rows()) return;
  user_error(
      "expected data for every one of {} devices, got {} rows in an epoch for an update of {} x {}; try a "
      "lower train.batch or devices=1",
      num_workers(), task_->num_rows(), recipe_.train.accumulate, recipe_.train.batch);
}

void Trainer::load_frozen_weights() {
  if (!hub::has_adapter(*engine_)) return;
  if (recipe_.model.path.empty())
    user_error("expected model.path, the model that the adapter is for, got none; try model=FOLDER");
  hub::load_model(*engine_, recipe_.init.empty() ? recipe_.model.path : recipe_.init);
}

void Trainer::load_first_weights() {
  const bool adapts = hub::has_adapter(*engine_);
  const std::string& first = recipe_.init.empty() ? recipe_.model.path : recipe_.init;
  const bool whole = recipe::is_text(recipe_) || recipe::makes_pictures(recipe_);
  if (!adapts && !first.empty() && whole) hub::load_model(*engine_, first);
  if (!first.empty() && !whole) load_first_image_weights(first);
  if (adapts && !recipe_.adapter.path.empty())
    hub::load_weights(*engine_, hub::adapter_weights(recipe_.adapter.path));
}

void Trainer::load_first_image_weights(const fs::path& path) {
  const std::vector<std::string> notes = hub::load_image_weights(*engine_, path);
  if (leads() && !said_first_weights_)
    for (const std::string& note : notes) events_.message(note);
  said_first_weights_ = true;
}

int64_t Trainer::steps_per_epoch() const {
  const int64_t group = recipe_.train.batch * recipe_.train.accumulate;
  return (task_->num_rows() + group - 1) / group;
}

void Trainer::start(const Start& how) {
  make_folder(out_);
  accepts_changed_inputs_ = how.accepts_changed_inputs;
  if (leads()) take_inputs();
  const bool resumed = how.resume && load_checkpoint();
  total_steps_ = count_steps();
  if (resumed) {
    task_->resume(out_);
  } else {
    load_first_weights();
    task_->begin(*engine_, events_.message);
    if (leads()) task_->save_beginning(out_);
  }
  const fs::path config = out_ / "config.json";
  saved_dtype_ = resumed && path_exists(config) ? hub::config_dtype(config) : hub::saved_dtype(recipe_);
  // The folder alone is enough to continue with, but for the data.
  if (leads()) task_->save_companions(out_, saved_dtype_);
  if (leads()) open_files(resumed);
  // It is said once, not before every attempt.
  if (leads()) make_room(how.reason.empty());
  // The supervisor has printed the reason.
  if (!how.reason.empty()) sink_->event({.step = state_.step, .text = how.reason, .is_printed = true});
  // A step's first line in the log is written where it is above this.
  logged_step_ = resumed ? state_.step : -1;
  if (!resumed) evaluate_first_weights();
  logged_step_ = state_.step;
  if (how.new_order) change_order();
  stream_.emplace(task_->open(state_.position, engine_->share()));
}

void Trainer::evaluate_first_weights() {
  if (!recipe_.train.eval_on_start) return;
  if (engine_->compiled().evaluates_together) engine_->gather_states();
  if (evaluates()) evaluate_and_log();
}

void Trainer::change_order() {
  if (!data::change_order(state_.position)) return;
  engine_->gather_states();
  if (!leads()) return;
  const std::string text =
      fmt::format("from step {} on the samples come in another order, number {}: the rest of epoch {} too",
                  state_.step, state_.position.num_changes, state_.position.epoch);
  // Whoever resumes from here continues in the same order.
  save_checkpoint();
  checkpoints_->flush();
  sink_->event({.step = state_.step, .text = text});
}

void Trainer::write_config() const {
  write_file_atomically(out_ / "config.yaml", recipe::write_recipe(recipe_));
}

void Trainer::open_files(bool resumed) {
  folder_.emplace(out_);
  // A changed recipe is written only after its first step, so that one that fails does not prevent resuming.
  wrote_config_ = !resumed;
  if (wrote_config_) write_config();
  if (hub::has_adapter(*engine_)) {
    const engine::Compiled& compiled = engine_->compiled();
    write_file_atomically(
        out_ / hub::kAdapterConfig,
        recipe::makes_pictures(recipe_)
            ? hub::peft_config_json(hub::adapted_modules(compiled.options.adapter, compiled.tensors),
                                    recipe_.model.path)
            : hub::adapter_config_json(recipe_.adapter, compiled.tensors, recipe_.model.path));
  }
  sink_ = open_sinks({.folder = out_,
                      .last_step = resumed ? state_.step : -1,
                      .recipe = recipe_,
                      .task = *task_,
                      .compiled = engine_->compiled(),
                      .events = events_,
                      .num_workers = num_workers()});
  read_pace(out_ / kLogFile);
  checkpoints_ = std::make_unique<io::CheckpointWriter>(out_ / "checkpoints", std::ssize(engine_->state()),
                                                        static_cast<int>(recipe_.train.keep_checkpoints));
}

void Trainer::check_folder() const {
  folder_->check();
  sink_->check();
}

void Trainer::read_pace(const fs::path& log) {
  const std::vector<io::CurvePoint> times = io::read_curve(log, "elapsed_time");
  if (times.empty()) return;
  const io::CurvePoint& last = times.back();
  const io::CurvePoint& first = times[times.size() - std::min<size_t>(times.size(), 100)];
  seconds_before_ = last.value;
  if (last.step > first.step)
    seconds_per_update_ = (last.value - first.value) / static_cast<double>(last.step - first.step);
}

engine::StepResult Trainer::train_one(double rate) {
  beat(distributed::Phase::training);
  const int64_t num_samples = task_->num_samples(state_.position, rows_of_step());
  engine_->start_step(
      num_micro(), num_samples, [&] { return stream_->next(); }, state_.step, rate);
  const bool goes_on = state_.step + 1 < total_steps_ && !is_bad(state_.step + 1);
  if (const engine::MicroBatch* ahead = engine_->device().gpu && goes_on ? stream_->peek() : nullptr)
    engine_->stage_ahead(*ahead);
  const engine::StepResult result = engine_->finish_step();
  say_recording_fault();
  return result;
}

void Trainer::say_recording_fault() {
  const std::string_view fault = engine_->device().recording_fault;
  if (fault.empty() || std::exchange(said_recording_fault_, true)) return;
  events_.warning(fmt::format("a recorded step is left off: {}; steps are queued anew instead", fault));
}

int64_t Trainer::rows_of_step() const {
  return std::min(task_->num_rows() - state_.position.sample, recipe_.train.batch * recipe_.train.accumulate);
}

int64_t Trainer::num_micro() const {
  return (rows_of_step() + recipe_.train.batch - 1) / recipe_.train.batch;
}

RunSummary Trainer::run(const Start& how) {
  try {
    return run_to_end(how);
  } catch (const UserError&) {
    // What a write to a folder that is gone fails with does not say so.
    if (folder_) folder_->check();
    throw;
  }
}

RunSummary Trainer::run_to_end(const Start& how) {
  started_seconds_ = process_seconds();
  start(how);
  RunSummary summary;
  if (state_.step >= total_steps_) {
    events_.message(fmt::format(
        "all {} steps were done already; to continue, raise train.steps or train.epochs", state_.step));
  }
  while (state_.step < total_steps_) {
    const double rate = learning_rate(recipe_.schedule, recipe_.optimizer.lr, state_.step, total_steps_);
    const bool left_out = is_bad(state_.step);
    const double began = process_seconds();
    const engine::StepResult result = left_out ? leave_out_one() : train_one(rate);
    const double step_seconds = process_seconds() - began;
    if (const std::string fault = left_out ? "" : fault_of(result); !fault.empty()) {
      if (may_skip()) {
        roll_back(result, fault);
        continue;
      }
      if (leads()) stop_for_bad_step(result, fault);
      break;
    }
    if (!left_out) note_good(result);
    after_step(result, rate);
    const Decision next = agree({.order = order(result), .rest_seconds = rest_seconds(step_seconds)});
    if (next.order == Order::remember) remember();
    if (next.order == Order::pause) wait_while_hot(result);
    summary.interrupted = next.order == Order::interrupt;
    if (next.order == Order::interrupt || next.order == Order::stop_early) break;
    rest(next.rest_seconds);
  }
  // A run that was killed after its last step, or that stopped early, has nothing to show yet.
  if (!summary.interrupted && !final_ && evaluates()) final_ = task_->evaluate(*engine_, kNumSamples);
  if (summary.interrupted || engine_->compiled().evaluates_together) engine_->gather_states();
  summary.led = leads();
  if (leads()) finish(summary, how.command);
  return summary;
}

Trainer::Order Trainer::order(const engine::StepResult& result) const {
  if (recipe_.train.early_stop > 0 && state_.evaluations_without_gain >= recipe_.train.early_stop) {
    events_.message(
        fmt::format("stopping early: {} evaluations without a better score", recipe_.train.early_stop));
    return Order::stop_early;
  }
  if (events_.stop != nullptr && *events_.stop) return Order::interrupt;
  if (events_.gpus != nullptr && events_.gpus->paused() && state_.step < total_steps_) return Order::pause;
  return time_to_remember(result) ? Order::remember : Order::proceed;
}

Trainer::Decision Trainer::agree(Decision decision) const {
  if (group_ != nullptr) group_->broadcast(std::as_writable_bytes(std::span(&decision, 1)), 0);
  return decision;
}

void Trainer::note_good(const engine::StepResult& result) {
  state_.num_bad_in_row = 0;
  // A loss scale that is too high says nothing.
  if (result.skipped) return;
  last_good_step_ = state_.step;
  state_.losses.add(result.loss);
}

void Trainer::after_step(const engine::StepResult& result, double rate) {
  ++state_.step;
  ++session_steps_;
  session_samples_ += result.num_samples;
  state_.position = data::advanced(state_.position, rows_of_step(), task_->num_rows());
  if (are_together()) engine_->move_together();
  // Weights that give no finite loss are no checkpoint; the loss scale may only mend gradients.
  const bool due = state_.step % recipe_.train.checkpoint_every == 0 && std::isfinite(result.loss);
  const bool saves = due || state_.step == total_steps_;
  if (saves || (time_to_evaluate() && engine_->compiled().evaluates_together)) engine_->gather_states();
  if (leads()) check_folder();
  if (leads() && !std::exchange(wrote_config_, true)) write_config();
  if (leads() && !goes_again()) report_step(result, rate);
  if (leads()) checkpoints_->check();
  if (time_to_evaluate() && evaluates()) evaluate_and_log();
  if (leads() && saves) save_checkpoint();
  logged_step_ = std::max(logged_step_, state_.step);
}

bool Trainer::are_together() const {
  return state_.step % recipe_.exchange.local_steps == 0 || state_.step == total_steps_;
}

bool Trainer::time_to_evaluate() const {
  const int64_t every = recipe_.train.eval_every > 0 ? recipe_.train.eval_every : steps_per_epoch();
  // What falls due between two steps together waits for the next one.
  const bool is_due = state_.step / every > (state_.step - recipe_.exchange.local_steps) / every;
  return state_.step == total_steps_ || (is_due && are_together());
}

void Trainer::report_step(const engine::StepResult& result, double rate) {
  std::optional<supervise::GpuState> gpus;
  if (events_.gpus != nullptr) gpus = events_.gpus->read();
  if (gpus && gpus->number == 0) gpus.reset();
  std::optional<Progress> progress;
  const bool is_due = state_.step % recipe_.train.log_every == 0 || session_steps_ == 1;
  if (is_due && state_.num_bad_in_row == 0) {
    progress = progress_after(result, rate);
    if (gpus) progress->gpus = gpu_text(*gpus);
  }
  sink_->step({.step = state_.step,
               .total_steps = total_steps_,
               .loss = result.loss,
               .learning_rate = rate,
               .grad_norm = result.grad_norm,
               .elapsed_seconds = seconds_before_ + process_seconds() - started_seconds_,
               .gpus = gpus ? &*gpus : nullptr,
               .progress = progress ? &*progress : nullptr});
}

Progress Trainer::progress_after(const engine::StepResult& result, double rate) const {
  const double elapsed = process_seconds() - started_seconds_;
  const double training = std::max(1e-3, elapsed - evaluation_seconds_);
  const auto done = static_cast<double>(session_steps_);
  // The first updates take longer than those that follow, so that an earlier session's pace counts like a
  // few.
  const double known = seconds_per_update_ > 0 ? kKnownUpdates : 0;
  const double pace = (known * seconds_per_update_ + elapsed) / (known + done);
  const engine::Compiled& compiled = engine_->compiled();
  const gpu::DeviceInfo* gpu = engine_->device().gpu;
  const double flops = compiled.model_flops() * done / training;
  return {.step = state_.step,
          .total_steps = total_steps_,
          .loss = result.loss,
          .learning_rate = rate,
          .grad_norm = result.grad_norm,
          .samples_per_second = static_cast<double>(session_samples_) / training,
          .unit = task_->unit(),
          .tflops = flops * 1e-12,
          .memory_bytes = gpu != nullptr ? compiled.gpu_bytes() : compiled.memory_bytes(),
          .device_bytes = gpu != nullptr ? gpu->memory_bytes : total_memory_bytes(),
          .mfu = share_of_peak(flops / num_workers(), gpu, compiled.options.precision),
          .eta_seconds = pace * static_cast<double>(total_steps_ - state_.step)};
}

void Trainer::evaluate_and_log() {
  const double before = process_seconds();
  beat(distributed::Phase::evaluating);
  const bool last = state_.step == total_steps_;
  const tasks::Evaluation found = task_->evaluate(*engine_, last ? kNumSamples : 0);
  if (last) final_ = found;
  if (!leads()) return;
  beat(distributed::Phase::saving);
  if (!goes_again()) {
    report_evaluation(found);
    task_->write_tables(out_, steps_per_epoch());
  }
  ++state_.evaluations_without_gain;
  if (std::isfinite(found.loss) && found.score > state_.best_score) {
    state_.best_score = found.score;
    state_.evaluations_without_gain = 0;
    hub::save_weights(*engine_, out_ / "best.safetensors", true, saved_dtype_);
  }
  evaluation_seconds_ += process_seconds() - before;
}

void Trainer::report_evaluation(const tasks::Evaluation& found) {
  std::vector<ImageReport> images;
  for (const auto& [name, image] : found.pictures)
    images.push_back({.name = name, .size = {image.height, image.width}, .png = data::encode_png(image)});
  sink_->evaluation({.step = state_.step,
                     .loss = found.loss,
                     .metrics = found.metrics,
                     .text = task_->evaluation_text(found),
                     .images = images});
}

void Trainer::finish(RunSummary& summary, const std::string& command) {
  if (summary.interrupted) save_checkpoint();
  beat(distributed::Phase::finishing);
  checkpoints_->flush();
  check_folder();
  hub::save_weights(*engine_, out_ / hub::weights_name(*engine_), false, saved_dtype_);
  summary.steps = state_.step;
  summary.best_score = state_.best_score;
  summary.best = state_.best_score == RunState::kNoScore ? "none yet" : task_->score_text(state_.best_score);
  summary.seconds = process_seconds() - started_seconds_;
  if (!summary.interrupted) summary.last_line = task_->last_line(out_ / kLogFile);
  sink_->finish({.step = state_.step,
                 .elapsed_seconds = seconds_before_ + summary.seconds,
                 .best = summary.best,
                 .command = command,
                 .result = final_.value_or(tasks::Evaluation{})});
  check_folder();
}

void Trainer::dump_gradients(const fs::path& path) {
  load_first_weights();
  task_->begin(*engine_, events_.message);
  const std::unique_ptr<tasks::BatchStream> stream = task_->open({.seed = recipe_.seed});
  const engine::MicroBatch batch = stream->next();
  const int64_t num_samples = task_->num_samples({.seed = recipe_.seed}, batch.num_rows);
  std::vector<std::vector<float>> values;
  std::vector<io::TensorView> views;
  engine::Inspector(*engine_).gradients(
      batch, num_samples, [&](const nn::Tensor& tensor, std::span<const float> data) {
        values.emplace_back(data.begin(), data.end());
        views.push_back({.name = tensor.name, .dtype = DType::f32, .shape = tensor.layout.file_shape});
      });
  for (size_t i = 0; i < views.size(); ++i) views[i].bytes = std::as_bytes(std::span(values[i]));
  io::write_safetensors(path, views);
}

}  // namespace hearth::run
