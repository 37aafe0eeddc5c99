// The training loop. All workers run the same steps. Only the leader (rank 0) writes files. After each step
// it broadcasts its decision (decide()) to continue, save a checkpoint to memory, pause or stop. Bad steps
// need no broadcast, because all workers compute the same loss. A rollback repeats steps, so the outputs of a
// step in the run folder are either overwritten with the same bytes or skipped while is_repeating() is true.
#include "run/trainer.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/process.h"
#include "base/text.h"
#include "engine/inspect.h"
#include "io/safetensors.h"
#include "run/device_rates.h"
#include "run/first_weights.h"
#include "run/fitting_engine.h"
#include "run/from_recipe.h"
#include "run/gpu_readings.h"
#include "run/resolve.h"
#include "tasks/stratified_indices.h"
#include "tasks/task_def.h"

namespace hearth::run {
namespace {

void check_memory(const recipe::Recipe& recipe, const engine::Engine& engine, int64_t staging_bytes) {
  const int64_t needed = engine.plan().memory_bytes() + staging_bytes;
  if (const int64_t free = available_memory_bytes(); needed > free) {
    user_error(
        "a micro-batch of {1} needs {2} of memory, but only {0} are free; lower train.batch and raise "
        "train.accumulate (hearth plan RECIPE --memory={3} finds the largest)",
        human_bytes(free), recipe.train.batch, human_bytes(needed), free);
  }
  if (recipe.memory > 0 && engine.plan().arena_bytes > recipe.memory) {
    user_error(
        "a micro-batch of {} needs an arena of {}, above memory={} even with recomputation; lower "
        "train.batch and raise train.accumulate",
        recipe.train.batch, human_bytes(engine.plan().arena_bytes), human_bytes(recipe.memory));
  }
}

/// Throws a UserError if an epoch has so few rows that the last worker would have none.
void check_share(const recipe::Recipe& recipe, const tasks::Task& task, int num_workers) {
  if (recipe.parallel == Parallel::pipeline) return;
  const data::LoaderShare last{.first = recipe.train.accumulate / num_workers * (num_workers - 1)};
  if (last.first * recipe.train.batch < task.num_rows()) return;
  user_error(
      "an epoch of {1} rows is too short for {0} devices with updates of {2} micro-batches of {3} rows; "
      "lower train.batch or set devices=1",
      num_workers, task.num_rows(), recipe.train.accumulate, recipe.train.batch);
}

/// Returns the distinct sizes of training micro-batches, in rows: those of a full epoch, then those of the
/// rest of an epoch after the newest checkpoint in `checkpoints`.
std::vector<int64_t> train_sizes(int64_t num_rows, int64_t batch, const fs::path& checkpoints) {
  std::vector<int64_t> sizes = tasks::batch_sizes(num_rows, batch);
  const auto newest = io::find_newest_checkpoint(checkpoints, nullptr);
  if (!newest) return sizes;
  const std::string state = io::read_state(newest->path);
  const int64_t left = num_rows - parse_run_state(state, newest->path.string()).position.sample;
  if (left <= 0) return sizes;
  for (const int64_t size : tasks::batch_sizes(left, batch))
    if (std::ranges::find(sizes, size) == sizes.end()) sizes.push_back(size);
  return sizes;
}

}  // namespace

Trainer::Trainer(tasks::Job job, fs::path out, TrainerEvents events, WorkerSetup member, Use use)
    : job_(std::move(job)),
      folder_(std::move(out)),
      events_(std::move(events)),
      group_(member.group),
      pacer_(events_) {
  HEARTH_CHECK(num_usable_devices(recipe_, num_workers()) == num_workers());
  const int device = member.device.value_or(rank());
  task_ = tasks::task_of(recipe_).open(job_, device);
  take_class_names(job_.recipe, *task_);
  engine::EngineOptions options = engine_options(job_, device, num_workers());
  options.rank = rank();
  const std::string unknown_rates = set_device_rates(options);
  if (!unknown_rates.empty()) events_.message(unknown_rates);
  if (member.rates != nullptr) options.device = *member.rates;
  options.devices = std::move(member.devices);
  options.row_lengths = task_->row_lengths();
  const std::vector<int64_t> sizes =
      train_sizes(task_->num_rows(), recipe_.train.batch, folder_.checkpoints());
  std::vector<int64_t> eval_sizes = task_->eval_sizes(recipe_.train.batch);
  if (task_->evaluates_training_rows()) eval_sizes.insert(eval_sizes.end(), sizes.begin(), sizes.end());
  options.reduces_on_gpu = group_ != nullptr && group_->has(distributed::Capability::device_memory);
  engine_ = make_engine(options, sizes, eval_sizes);
  check_memory(recipe_, *engine_, task_->staging_bytes());
  if (use == Use::run && !task_->is_prepared()) {
    // The engine was created first, so that a model that does not fit in memory is reported before the slow
    // preparation. The preparation needs the memory of the GPU, so the engine is deleted now and created
    // again afterwards.
    if (options.backend == exec::Backend::gpu) engine_.reset();
    prepare();
    if (!engine_) engine_ = make_engine(options, sizes, eval_sizes);
  }
  if (group_ != nullptr) engine_->join(*group_);
  check_share(recipe_, *task_, num_workers());
  engine_->set_heartbeat(events_.heartbeat);
  engine_->initialize();
  load_frozen_weights(*engine_, recipe_);
  state_.position.seed = recipe_.seed;
  plan_.emplace(recipe_, *task_);
  const Worker worker{
      .recipe = recipe_, .task = *task_, .engine = *engine_, .events = events_, .group = group_};
  checkpoints_.emplace(worker, folder_);
  rollback_.emplace(worker, *plan_, *checkpoints_);
}

Trainer::~Trainer() = default;

void Trainer::prepare() {
  const distributed::EncodingPhase work(events_.heartbeat);
  task_->prepare(events_.message);
}

void Trainer::load_initial_weights() {
  const std::vector<std::string> notes = run::load_initial_weights(*engine_, recipe_);
  if (std::exchange(reported_initial_weights_, true) || !leads()) return;
  for (const std::string& note : notes) events_.message(note);
}

void Trainer::start(const RunStart& how) {
  make_folder(folder_.path());
  if (leads()) checkpoints_->hash_inputs(how.accepts_changed_inputs);
  std::optional<RunState> restored;
  if (how.resume) restored = checkpoints_->load();
  const bool resumed = restored.has_value();
  if (resumed) state_ = std::move(*restored);
  plan_->count_steps(state_);
  if (resumed) {
    task_->resume(folder_.path());
  } else {
    load_initial_weights();
    task_->begin(*engine_, events_.message);
    if (leads()) task_->save_initial_results(folder_.path());
  }
  if (leads()) open_files(resumed);
  // Reports missing memory in the first attempt only, not after every restart.
  const std::string no_memory = leads() ? checkpoints_->allocate_memory() : "";
  if (!no_memory.empty() && how.reason.empty()) report_event(state_.step, no_memory);
  // Logs the reason of a restart, which the supervisor has already printed.
  if (!how.reason.empty()) sink_->event({.step = state_.step, .text = how.reason, .is_printed = true});
  // For a new run, -1, so that evaluate_initial_weights() reports step 0.
  logged_step_ = resumed ? state_.step : -1;
  if (!resumed) evaluate_initial_weights();
  logged_step_ = state_.step;
  if (how.new_order) change_order();
  stream_.emplace(task_->open(state_.position, engine_->share()));
}

void Trainer::evaluate_initial_weights() {
  if (!recipe_.train.eval_on_start) return;
  if (engine_->plan().evaluates_jointly) engine_->gather_states();
  if (evaluates()) evaluate_and_report();
}

void Trainer::change_order() {
  if (!data::change_order(state_.position)) return;
  engine_->gather_states();
  if (!leads()) return;
  // Saves a checkpoint immediately, so that every later restart uses the same order.
  checkpoints_->save(state_, *sink_);
  checkpoints_->flush();
  report_event(
      state_.step,
      fmt::format(
          "from step {} on, samples are shuffled again (order number {}), including the rest of epoch {}",
          state_.step, state_.position.num_changes, state_.position.epoch));
}

void Trainer::open_files(bool resumed) {
  folder_.choose_dtype(job_, resumed);
  // Copies tokenizer and configuration to the run folder, which then contains everything for a resume except
  // the data.
  task_->save_companions(folder_.path(), folder_.saved_dtype());
  folder_.open(job_, *engine_, resumed);
  sink_ = open_sinks({.folder = folder_.path(),
                      .last_step = resumed ? state_.step : -1,
                      .recipe = recipe_,
                      .task = *task_,
                      .plan = engine_->plan(),
                      .events = events_,
                      .num_workers = num_workers()});
  meter_.read_earlier_sessions(folder_.log());
  checkpoints_->open();
  requests_.emplace(folder_.path());
}

void Trainer::check_folder() const {
  folder_.check();
  sink_->check();
}

engine::StepResult Trainer::train_one(double rate) {
  beat(distributed::Phase::training);
  const int64_t num_samples = task_->num_samples(state_.position, plan_->num_rows(state_.position));
  engine_->start_step(
      plan_->num_micro(state_.position), num_samples, [&] { return stream_->next(); }, state_.step, rate);
  const bool goes_on = state_.step + 1 < plan_->total_steps() && !rollback_->is_bad(state_.step + 1);
  if (const engine::MicroBatch* ahead = engine_->device().gpu && goes_on ? stream_->peek() : nullptr)
    engine_->stage_ahead(*ahead);
  const engine::StepResult result = engine_->finish_step();
  report_recording_fault();
  return result;
}

void Trainer::report_recording_fault() {
  const std::string_view fault = engine_->device().recording_fault;
  if (fault.empty() || std::exchange(reported_recording_fault_, true)) return;
  events_.warning(fmt::format("graph replay is off: {}; kernels are launched one by one", fault));
}

void Trainer::prune_if_due() {
  const auto target = plan_->prune_target(state_.step);
  if (!target) return;
  engine_->prune(target->sparsity, target->dropped);
  // The report belongs to the next update, so that a run that resumes before it writes the report again.
  const int64_t step = state_.step + 1;
  if (leads() && step > logged_step_)
    sink_->sparsity({.step = step, .layers = engine::layer_sparsity(*engine_)});
}

engine::StepResult Trainer::skip_one() {
  const data::LoaderShare own = engine_->share();
  for (int64_t i = own.first; i < std::min(own.first + own.count, plan_->num_micro(state_.position)); ++i)
    stream_->next();
  ++state_.num_bad;
  ++state_.num_bad_in_row;
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  return {.loss = kNone, .grad_norm = kNone, .skipped = true};
}

RunSummary Trainer::run(const RunStart& how) {
  try {
    return run_to_end(how);
  } catch (const UserError&) {
    // If the run folder was deleted, throws the clear message of check() instead of that of the failed write.
    folder_.check();
    throw;
  }
}

RunSummary Trainer::run_to_end(const RunStart& how) {
  meter_.start();
  start(how);
  RunSummary summary;
  if (state_.step >= plan_->total_steps()) {
    events_.message(fmt::format(
        "all {} steps are already done; to continue, raise train.steps or train.epochs", state_.step));
  }
  while (state_.step < plan_->total_steps()) {
    prune_if_due();
    const double rate = plan_->learning_rate(state_.step);
    const bool skips = rollback_->is_bad(state_.step);
    const double began = process_seconds();
    const engine::StepResult result = skips ? skip_one() : train_one(rate);
    const double step_seconds = process_seconds() - began;
    if (const std::string fault = skips ? "" : rollback_->describe_fault(result, state_); !fault.empty()) {
      if (rollback_->may_skip(state_)) {
        roll_back(result, fault);
        continue;
      }
      if (leads()) rollback_->stop(result, state_, fault);
      break;
    }
    if (!skips) rollback_->record_good_step(result, state_);
    after_step(result, rate);
    const Decision next = decide(result, step_seconds);
    if (next.order == Order::snapshot) checkpoints_->save_to_memory(state_);
    if (next.order == Order::checkpoint) save_as_requested();
    if (next.order == Order::pause) wait_while_hot(result);
    if (next.order == Order::stop_early && leads())
      report_event(state_.step, fmt::format("stopping early: {} evaluations without a better score",
                                            recipe_.train.early_stop));
    summary.interrupted = next.order == Order::interrupt;
    if (next.order == Order::interrupt || next.order == Order::stop_early) break;
    pacer_.rest(next.rest_seconds);
  }
  // There is no final evaluation yet if the run stopped early or was killed after its last step.
  if (!summary.interrupted && !final_ && evaluates()) final_ = task_->evaluate(*engine_, tasks::kMaxSamples);
  if (summary.interrupted || engine_->plan().evaluates_jointly) engine_->gather_states();
  summary.led = leads();
  if (leads()) finish(summary, how.command);
  return summary;
}

Trainer::Order Trainer::order(const engine::StepResult& result) {
  if (recipe_.train.early_stop > 0 && state_.evaluations_without_gain >= recipe_.train.early_stop)
    return Order::stop_early;
  const io::RunRequest request = requests_ ? requests_->take() : io::RunRequest::none;
  if (request == io::RunRequest::stop || (events_.stop != nullptr && *events_.stop)) return Order::interrupt;
  if (pacer_.is_paused() && state_.step < plan_->total_steps()) return Order::pause;
  if (request == io::RunRequest::checkpoint && std::isfinite(result.loss)) return Order::checkpoint;
  return checkpoints_->is_memory_due() && std::isfinite(result.loss) ? Order::snapshot : Order::proceed;
}

Trainer::Decision Trainer::decide(const engine::StepResult& result, double step_seconds) {
  Decision decision{.order = order(result), .rest_seconds = leads() ? pacer_.rest_seconds(step_seconds) : 0};
  if (group_ != nullptr) group_->broadcast(std::as_writable_bytes(std::span(&decision, 1)), 0);
  return decision;
}

void Trainer::save_as_requested() {
  engine_->gather_states();
  if (!leads()) return;
  checkpoints_->save(state_, *sink_);
  checkpoints_->flush();
  report_event(state_.step, fmt::format("saved a checkpoint at step {}, as requested", state_.step));
}

void Trainer::roll_back(const engine::StepResult& result, const std::string& fault) {
  const int64_t bad = state_.step + 1;
  rollback_->roll_back(result, state_, [&] { start_over(); });
  report_event(
      bad, fmt::format("step {}: {}; rolled back to step {}, its samples will be skipped (bad_steps.max={})",
                       bad, fault, state_.step, recipe_.bad_steps.max));
  stream_.emplace(task_->open(state_.position, engine_->share()));
}

void Trainer::start_over() {
  std::ranges::fill(engine_->state(), std::byte{});
  engine_->initialize();
  load_initial_weights();
  state_ = {.position = {.seed = recipe_.seed}};
  evaluate_initial_weights();
}

void Trainer::wait_while_hot(const engine::StepResult& result) {
  engine_->gather_states();
  const bool saves = std::isfinite(result.loss);
  if (leads() && saves) {
    checkpoints_->save(state_, *sink_);
    checkpoints_->flush();
  }
  report_event(state_.step, fmt::format("paused after step {}: {}, and idling between steps does not cool "
                                        "it{}; training continues automatically when it is cool",
                                        state_.step, events_.gpus->read().reason.data(),
                                        saves ? "; a checkpoint is saved" : ""));
  const double seconds = pacer_.wait_while_paused();
  report_event(state_.step, fmt::format("continued after a pause of {:.0f} s: {}", seconds,
                                        gpu_text(events_.gpus->read())));
}

void Trainer::after_step(const engine::StepResult& result, double rate) {
  meter_.count_step(result.num_samples);
  plan_->advance(state_);
  const int64_t step = state_.step;
  if (plan_->has_equal_weights(step)) engine_->outer_step();
  // Saves no checkpoint of weights with a non-finite loss: lowering the fp16 loss scale can fix gradients,
  // but not weights.
  const bool saves = plan_->is_last(step) || (plan_->is_checkpoint_due(step) && std::isfinite(result.loss));
  const bool judges = plan_->is_evaluated(step);
  if (saves || (judges && engine_->plan().evaluates_jointly)) engine_->gather_states();
  if (leads()) {
    check_folder();
    folder_.update_config(recipe_);
    if (!is_repeating()) report_step(result, rate);
    checkpoints_->check();
  }
  if (judges && evaluates()) evaluate_and_report();
  if (leads() && saves) checkpoints_->save(state_, *sink_);
  logged_step_ = std::max(logged_step_, step);
}

void Trainer::report_step(const engine::StepResult& result, double rate) {
  const std::optional<supervise::GpuState> gpus = pacer_.readings();
  StepReport report{.step = state_.step,
                    .total_steps = plan_->total_steps(),
                    .loss = result.loss,
                    .learning_rate = rate,
                    .grad_norm = result.grad_norm,
                    .elapsed_seconds = meter_.run_seconds(),
                    .gpus = gpus ? &*gpus : nullptr};
  std::optional<Progress> progress;
  const bool is_due = plan_->is_progress_due(state_.step) || meter_.session_steps() == 1;
  if (is_due && state_.num_bad_in_row == 0) {
    progress = meter_.progress_after(report, *engine_, task_->unit(), num_workers());
    if (gpus) progress->gpus = gpu_text(*gpus);
    report.progress = &*progress;
  }
  sink_->step(report);
}

void Trainer::evaluate_and_report() {
  const double before = process_seconds();
  beat(distributed::Phase::evaluating);
  const bool last = plan_->is_last(state_.step);
  const tasks::Evaluation found = task_->evaluate(*engine_, last ? tasks::kMaxSamples : 0);
  if (last) final_ = found;
  if (!leads()) return;
  beat(distributed::Phase::saving);
  const bool is_best = std::isfinite(found.loss) && found.score > state_.best_score;
  if (!is_repeating()) {
    report_evaluation(found, is_best);
    task_->write_tables(folder_.path(), plan_->steps_per_epoch());
  }
  ++state_.evaluations_without_gain;
  if (is_best) {
    state_.best_score = found.score;
    state_.evaluations_without_gain = 0;
    folder_.save_best_weights(*engine_);
  }
  meter_.count_evaluation(process_seconds() - before);
}

void Trainer::report_evaluation(const tasks::Evaluation& found, bool is_best) {
  std::vector<ImageReport> images;
  for (const auto& [name, image] : found.images)
    images.push_back({.name = name, .size = {image.height, image.width}, .png = data::encode_png(image)});
  sink_->evaluation({.step = state_.step,
                     .loss = found.loss,
                     .metrics = found.metrics,
                     .text = task_->evaluation_text(found),
                     .images = images,
                     .is_best = is_best});
}

void Trainer::finish(RunSummary& summary, const std::string& command) {
  if (summary.interrupted) checkpoints_->save(state_, *sink_);
  beat(distributed::Phase::finishing);
  checkpoints_->flush();
  check_folder();
  folder_.save_last_weights(*engine_);
  summary.steps = state_.step;
  summary.best_score = state_.best_score;
  summary.best = state_.best_score == RunState::kNoScore ? "none yet" : task_->score_text(state_.best_score);
  summary.seconds = meter_.session_seconds();
  if (!summary.interrupted) summary.last_line = task_->last_line(folder_.log());
  sink_->finish({.step = state_.step,
                 .elapsed_seconds = meter_.run_seconds(),
                 .best = summary.best,
                 .command = command,
                 .layers = engine::layer_sparsity(*engine_),
                 .result = final_.value_or(tasks::Evaluation{})});
  check_folder();
}

void Trainer::dump_gradients(const fs::path& path) {
  load_initial_weights();
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
