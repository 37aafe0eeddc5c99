#include "run/checkpoints.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "base/process.h"
#include "base/run_files.h"
#include "base/text.h"
#include "run/inputs.h"

namespace hearth::run {
namespace {

/// Min time between two checkpoints in memory, as a multiple of the time for which a checkpoint interrupts
/// training.
constexpr double kMinIntervalFactor = 50;

}  // namespace

Checkpoints::Checkpoints(Worker worker, const RunFolder& folder)
    : worker_(worker), folder_(folder), run_id_(folder.path().string() + "\n" + identity_of(worker.recipe)) {}

void Checkpoints::hash_inputs(bool accepts_changed_inputs) {
  accepts_changed_inputs_ = accepts_changed_inputs;
  // Hashing takes as long as reading the files from the disk, so it runs in the heartbeat phase for work of
  // unknown duration.
  const distributed::EncodingPhase work(worker_.events.heartbeat);
  inputs_ = inputs_of(worker_.recipe);
}

std::optional<RunState> Checkpoints::load() {
  const fs::path& run = folder_.path();
  std::vector<std::string> refused;
  const std::optional<Restored> found = restore(&refused);
  if (!found && !refused.empty()) {
    // Throws instead of starting from step 0, which would overwrite the damaged run.
    user_error("no complete checkpoint in {}: {}; start a new run with hearth train {} --out FOLDER",
               folder_.checkpoints().string(), fmt::join(refused, "; "), (run / kRunRecipe).string());
  }
  if (!found) {
    worker_.events.message(
        fmt::format("no complete checkpoint in {}: starting from the beginning", run.string()));
    return std::nullopt;
  }
  const std::string passed_over =
      refused.empty() ? "" : fmt::format("; passed over {}", fmt::join(refused, "; "));
  worker_.events.message(found->text + passed_over);
  return found->state;
}

std::optional<RunState> Checkpoints::restore_newest() {
  std::optional<Restored> found = restore(nullptr);
  if (!found) return std::nullopt;
  return std::move(found->state);
}

std::optional<io::FoundCheckpoint> Checkpoints::newest() const {
  return io::find_newest_checkpoint(folder_.checkpoints(), nullptr);
}

std::optional<Checkpoints::Restored> Checkpoints::restore(std::vector<std::string>* refused) {
  const io::CheckpointMemory* const memory = worker_.events.memory;
  const auto on_disk = io::find_newest_checkpoint(folder_.checkpoints(), refused);
  const auto in_memory = memory != nullptr ? memory->find_newest(run_id_, refused) : std::nullopt;
  // If both have the same step, uses the checkpoint on disk, because only that one contains a change of the
  // sample order (Trainer::change_order()).
  if (in_memory && (!on_disk || in_memory->step > on_disk->step)) {
    RunState state = restore(in_memory->state, in_memory->memory, "the checkpoint in memory");
    std::string text = fmt::format("resumed step {} from memory", state.step);
    return Restored{std::move(state), std::move(text)};
  }
  if (!on_disk) return std::nullopt;
  const io::CheckpointContents contents = io::read_checkpoint(on_disk->path);
  RunState state = restore(contents.state, contents.memory, on_disk->path.string());
  std::string text = fmt::format("resuming from {} (step {})", on_disk->path.string(), state.step);
  return Restored{std::move(state), std::move(text)};
}

void Checkpoints::check_number_of_workers(const RunState& state, const std::string& where) const {
  if (!recipe::have_private_states(worker_.recipe) || state.num_workers == worker_.num_workers()) return;
  user_error(
      "{1} was written with devices={0}, each with private state (exchange.compress, exchange.local_steps), "
      "but devices is {2}; set devices={3}",
      state.num_workers, where, worker_.num_workers(), state.num_workers);
}

void Checkpoints::check_same_run(const RunState& state, const std::string& where) const {
  if (!state.optimizer.empty() && state.optimizer != worker_.recipe.optimizer.name) {
    user_error(
        "{1} has the state of optimizer.name={0}, but optimizer.name is {2}; set it back, or start a new run "
        "from its weights with init=FILE",
        state.optimizer, where, worker_.recipe.optimizer.name);
  }
  if (state.num_rows != 0 && state.num_rows != worker_.task.num_data_rows()) {
    user_error(
        "{} was trained on {} rows per epoch, but the data has {}; restore the data, or start a new run from "
        "its weights with init=FILE",
        where, state.num_rows, worker_.task.num_data_rows());
  }
}

void Checkpoints::check_inputs(const RunState& state, const std::string& where) const {
  if (accepts_changed_inputs_) return;
  const std::vector<std::string> changes = changes_between(state.inputs, inputs_);
  if (changes.empty()) return;
  user_error(
      "files have changed since {} was written: {}; restore them, or resume with --accept-changed-inputs",
      where, fmt::join(changes, ", "));
}

RunState Checkpoints::restore(const std::string& state_text, std::span<const std::byte> memory,
                              const std::string& where) {
  RunState state = parse_run_state(state_text, where);
  check_number_of_workers(state, where);
  check_same_run(state, where);
  if (worker_.leads()) check_inputs(state, where);
  engine::Engine& engine = worker_.engine;
  if (memory.size() != engine.state().size()) {
    const std::string changed = folder_.changed_keys(worker_.recipe);
    user_error("{} does not match the model or optimizer of the recipe; {}", where,
               changed.empty() ? "use config.yaml of the run" : "undo the change of " + changed);
  }
  std::ranges::copy(memory, engine.state().begin());
  engine.restore_local_states();
  // Advances to the next epoch if the rest of this one is not trained: with another batch size than before,
  // it may be too small for a micro-batch.
  state.position = data::advanced(state.position, 0, worker_.task.num_rows());
  return state;
}

StateText Checkpoints::write(RunState& state) const {
  state.num_workers = recipe::have_private_states(worker_.recipe) ? worker_.num_workers() : 1;
  state.optimizer = worker_.recipe.optimizer.name;
  state.num_rows = worker_.task.num_data_rows();
  state.inputs = inputs_;
  return write_run_state(state);
}

void Checkpoints::open() {
  writer_ = std::make_unique<io::CheckpointWriter>(folder_.checkpoints(), std::ssize(worker_.engine.state()),
                                                   static_cast<int>(worker_.recipe.train.keep_checkpoints));
}

void Checkpoints::save(RunState& state, RunSink& sink) {
  worker_.events.heartbeat.beat(distributed::Phase::saving, state.step);
  const StateText text = write(state);
  // A resumed run truncates its log at the step of the checkpoint. The log is flushed first, so that it
  // contains all earlier steps even after a power failure.
  sink.sync();
  writer_->save(state.step, worker_.engine.state(), std::string_view(text.data(), text.size()));
}

void Checkpoints::discard_after(int64_t step) { writer_->discard_later(step); }

std::string Checkpoints::allocate_memory() {
  const io::CheckpointMemory* const memory = worker_.events.memory;
  const double every = worker_.recipe.train.memory_checkpoint_every;
  if (memory == nullptr || every <= 0) return "";
  const int64_t num_bytes = std::ssize(worker_.engine.state());
  // On the CPU, subtracts the memory of the plan: it is allocated, but the system counts pages that were not
  // written yet as free.
  const int64_t wanted = worker_.engine.device().gpu ? 0 : worker_.engine.plan().memory_bytes();
  const int64_t free_bytes = std::max<int64_t>(0, available_memory_bytes() - wanted);
  if (!memory->make_room(num_bytes, free_bytes)) {
    return fmt::format(
        "checkpoints in memory are disabled: two of {} need more than half of the {} of free memory",
        human_bytes(num_bytes), human_bytes(free_bytes));
  }
  memory_due_at_ = process_seconds() + every;
  return "";
}

bool Checkpoints::is_memory_due() const { return memory_due_at_ > 0 && process_seconds() >= memory_due_at_; }

void Checkpoints::save_to_memory(RunState& state) {
  const double before = process_seconds();
  worker_.engine.gather_states();
  if (!worker_.leads()) return;
  worker_.events.heartbeat.beat(distributed::Phase::saving, state.step);
  const StateText text = write(state);
  const bool saved =
      worker_.events.memory->save(run_id_, state.step, worker_.engine.state(), {text.data(), text.size()});
  const double now = process_seconds();
  memory_due_at_ =
      now + std::max(worker_.recipe.train.memory_checkpoint_every, kMinIntervalFactor * (now - before));
  if (saved) return;
  memory_due_at_ = 0;
  worker_.events.message("checkpoints in memory are disabled: out of memory");
}

}  // namespace hearth::run
