#include <algorithm>

#include <fmt/ranges.h>

#include <cmath>

#include "base/error.h"
#include "base/process.h"
#include "base/text.h"
#include "recipe/recipe_file.h"
#include "recipe/resume.h"
#include "run/from_recipe.h"
#include "run/inputs.h"
#include "run/trainer.h"

namespace hearth::run {
namespace {

/// A checkpoint in memory stops training: at least so many times as long lies between two.
constexpr double kLeastShare = 50;

}  // namespace

int64_t Trainer::count_steps() const {
  if (recipe_.train.steps > 0) return recipe_.train.steps;
  // Earlier steps may have had another batch size.
  const int64_t group = recipe_.train.batch * recipe_.train.accumulate;
  const int64_t left_of_epoch = (task_->num_rows() - state_.position.sample + group - 1) / group;
  return state_.step + left_of_epoch + (recipe_.train.epochs - 1 - state_.position.epoch) * steps_per_epoch();
}

std::vector<int64_t> Trainer::train_sizes() const {
  const int64_t num_rows = task_->num_rows(), batch = recipe_.train.batch;
  std::vector<int64_t> sizes = tasks::batch_sizes(num_rows, batch);
  const auto newest = io::find_newest_checkpoint(out_ / "checkpoints", nullptr);
  if (!newest) return sizes;
  const std::string state = io::read_state(newest->path);
  const int64_t left = num_rows - parse_run_state(state, newest->path.string()).position.sample;
  if (left <= 0) return sizes;
  for (const int64_t size : tasks::batch_sizes(left, batch))
    if (std::ranges::find(sizes, size) == sizes.end()) sizes.push_back(size);
  return sizes;
}

bool Trainer::load_checkpoint() {
  std::vector<std::string> refused;
  const std::string found = restore_newest(&refused);
  const std::string passed_over =
      refused.empty() ? "" : fmt::format("; passed over {}", fmt::join(refused, "; "));
  if (found.empty() && !refused.empty()) {
    // A new start would overwrite what is left of the run.
    user_error("expected a complete checkpoint in {}, got {}; try hearth train {} --out of another folder",
               (out_ / "checkpoints").string(), fmt::join(refused, "; "), (out_ / "config.yaml").string());
  }
  if (found.empty()) {
    events_.message(fmt::format("no complete checkpoint in {}: starting from the beginning", out_.string()));
    return false;
  }
  events_.message(found + passed_over);
  return true;
}

std::string Trainer::restore_newest(std::vector<std::string>* refused) {
  const auto on_disk = io::find_newest_checkpoint(out_ / "checkpoints", refused);
  const auto in_memory = events_.memory ? events_.memory->find_newest(run_, refused) : std::nullopt;
  // Of one step, that on the disk counts: it knows of a change of the order.
  if (in_memory && (!on_disk || in_memory->step > on_disk->step)) {
    restore(in_memory->state, in_memory->memory, "the checkpoint in memory");
    return fmt::format("resumed step {} from memory", state_.step);
  }
  if (!on_disk) return "";
  const io::CheckpointContents contents = io::read_checkpoint(on_disk->path);
  restore(contents.state, contents.memory, on_disk->path.string());
  return fmt::format("resuming from {} (step {})", on_disk->path.string(), state_.step);
}

void Trainer::check_number_of_workers(const RunState& state, const std::string& where) const {
  if (!recipe::have_own_states(recipe_) || state.num_workers == num_workers()) return;
  user_error(
      "expected devices={}, as {} has it, because each of them has states of its own (exchange.compress, "
      "exchange.local_steps), got {}; try devices={}",
      state.num_workers, where, num_workers(), state.num_workers);
}

void Trainer::check_same_run(const RunState& state, const std::string& where) const {
  if (!state.optimizer.empty() && state.optimizer != recipe_.optimizer.name) {
    user_error(
        "expected optimizer.name={}, whose state {} holds, got {}; try init=FILE to start anew from its "
        "weights",
        state.optimizer, where, recipe_.optimizer.name);
  }
  if (state.num_rows != 0 && state.num_rows != task_->num_data_rows()) {
    user_error(
        "expected the data that {} was trained on, {} rows an epoch, got {} rows; bring it back, or try "
        "init=FILE to "
        "start anew from its weights",
        where, state.num_rows, task_->num_data_rows());
  }
}

void Trainer::check_inputs(const RunState& state, const std::string& where) const {
  if (accepts_changed_inputs_) return;
  const std::vector<std::string> changes = changes_between(state.inputs, inputs_);
  if (changes.empty()) return;
  user_error(
      "files have changed since {} was written: {}; bring them back, or resume with --accept-changed-inputs",
      where, fmt::join(changes, ", "));
}

std::string Trainer::changed_keys() const {
  const fs::path config = out_ / "config.yaml";
  if (!path_exists(config)) return "";
  return fmt::format("{}", fmt::join(recipe::changed_keys(load_recipe(config, {}), recipe_), ", "));
}

void Trainer::restore(const std::string& state_text, std::span<const std::byte> memory,
                      const std::string& where) {
  const RunState state = parse_run_state(state_text, where);
  check_number_of_workers(state, where);
  check_same_run(state, where);
  if (leads()) check_inputs(state, where);
  if (memory.size() != engine_->state().size()) {
    const std::string changed = changed_keys();
    user_error("{} holds another model or optimizer than the recipe; {}", where,
               changed.empty() ? "use the run's own config.yaml" : "resume without the change of " + changed);
  }
  std::ranges::copy(memory, engine_->state().begin());
  engine_->take_own_states();
  state_ = state;
  // With another batch size the rest of the epoch may be left out.
  state_.position = data::advanced(state_.position, 0, task_->num_rows());
}

StateText Trainer::state_text() {
  state_.num_workers = recipe::have_own_states(recipe_) ? num_workers() : 1;
  state_.optimizer = recipe_.optimizer.name;
  state_.num_rows = task_->num_data_rows();
  state_.inputs = inputs_;
  return write_run_state(state_);
}

void Trainer::take_inputs() {
  // Gigabytes are hashed at the pace of the disk.
  const distributed::OtherWork work(events_.heartbeat);
  inputs_ = inputs_of(recipe_);
}

void Trainer::save_checkpoint() {
  beat(distributed::Phase::saving);
  const StateText text = state_text();
  // A run that resumes cuts its log at the checkpoint, so the log must reach it after a power cut too.
  sink_->sync();
  checkpoints_->save(state_.step, engine_->state(), std::string_view(text.data(), text.size()));
}

void Trainer::make_room(bool says) {
  if (events_.memory == nullptr || recipe_.train.memory_checkpoint_every <= 0) return;
  const int64_t num_bytes = std::ssize(engine_->state());
  // What a run on the processor has asked for it may not have touched yet.
  const int64_t wanted = engine_->device().gpu ? 0 : engine_->compiled().memory_bytes();
  const int64_t free_bytes = std::max<int64_t>(0, available_memory_bytes() - wanted);
  if (events_.memory->make_room(num_bytes, free_bytes)) {
    remember_at_ = process_seconds() + recipe_.train.memory_checkpoint_every;
  } else if (says) {
    const std::string text =
        fmt::format("no checkpoints in memory: two of {} are more than half of the {} that are free",
                    human_bytes(num_bytes), human_bytes(free_bytes));
    sink_->event({.step = state_.step, .text = text});
  }
}

bool Trainer::time_to_remember(const engine::StepResult& result) const {
  return leads() && remember_at_ > 0 && process_seconds() >= remember_at_ && std::isfinite(result.loss);
}

void Trainer::remember() {
  const double before = process_seconds();
  engine_->gather_states();
  if (!leads()) return;
  beat(distributed::Phase::saving);
  const StateText text = state_text();
  const bool saved = events_.memory->save(run_, state_.step, engine_->state(), {text.data(), text.size()});
  const double now = process_seconds();
  remember_at_ = now + std::max(recipe_.train.memory_checkpoint_every, kLeastShare * (now - before));
  if (saved) return;
  remember_at_ = 0;
  events_.message("no more checkpoints in memory: the system has none left for them");
}

}  // namespace hearth::run
